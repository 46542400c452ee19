//! The locks' socket criterion where the kernel has NUMA nodes: one guest with
//! two of them, on the lab's clock. The nodes there are a topology without
//! distance; what is shown is who follows whom.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;

/// What `giveway bench locks` measured, by lock: the part of hand-overs that
/// stayed on a node, and Jain's index.
fn measured(locks: &[&str]) -> Vec<(f64, f64)> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("rows.json");
    Command::cargo_bin("giveway-bench")
        .unwrap()
        .args(["locks", "--clock", "lockstep", "--cpus", "8"])
        .args(["--numa-nodes", "2", "--experiment", "equal"])
        .args(["--threads", "8", "--seconds", "0.3", "--locks"])
        .arg(locks.join(","))
        .arg("--json")
        .arg(&json)
        .arg("--results")
        .arg(directory.path())
        .assert()
        .success();
    let report: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let of_lock = |lock: &&str| {
        let row = rows.iter().find(|row| row["lock"] == *lock).unwrap();
        let run = &row["contended"];
        let numa = &run["numa"];
        assert_eq!(numa["nodes"], 2, "the locks did not see the nodes: {run}");
        // Enough of them that chance is a few percent.
        assert!(numa["handovers"].as_u64().unwrap() > 100, "{run}");
        (
            numa["near"].as_f64().unwrap(),
            run["jain"].as_f64().unwrap(),
        )
    };
    locks.iter().map(of_lock).collect()
}

#[test]
fn the_lock_stays_on_a_node_if_sockets_count_and_is_shared_either_way() {
    let [(by_socket, jain), (blind, blind_jain)] = measured(&["cfl", "cfl-ns"])[..] else {
        panic!("two locks");
    };
    // What the criterion is for is the difference. By chance 3 of the 7 others are on the
    // node, but who runs when the lock is free is not chance alone: with twenty seeds 0.44
    // to 0.52 stayed without the criterion, and 0.70 to 0.84 with it, at least 0.24 more
    // with each seed (results/2026-11-24-vm/locks-numa-seeds.json).
    assert!(
        by_socket > 0.6 && by_socket - blind > 0.15,
        "{by_socket} stay on a node with the criterion, {blind} without"
    );
    assert!(jain > 0.95 && blind_jain > 0.95, "{jain}, {blind_jain}");
}
