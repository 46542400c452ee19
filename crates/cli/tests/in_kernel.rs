//! `run`, `start`, `stop` and `status` against a kernel that has sched_ext and
//! cgroup v2: one guest tries everything (`guest.sh`), one test per claim.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Clock, Job, Lab, LabSpec, Machine, Silent};

/// The scheduler beside the command under test, built from this tree.
fn scheduler(giveway: &Path) -> PathBuf {
    let dir = giveway.parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "scx_ufs"]);
    if dir.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "scx_ufs does not build");
    dir.join("scx_ufs")
}

/// What the guest said, all of it.
fn said() -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let giveway = cargo_bin!("giveway");
        let lab = Lab::open(&LabSpec::default(), &Silent).unwrap();
        let machine = Machine {
            cpus: 2,
            clock: Clock::LOCKSTEP,
            timeout: Duration::from_secs(600),
            ..Machine::default()
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest.sh");
        let job = Job::new(["sh", "guest.sh"])
            .file(giveway, "giveway")
            .file(scheduler(giveway), "scx_ufs")
            .file(script, "guest.sh");
        let mut said = String::new();
        let outcome = lab.run(&machine, &job, &mut |line| {
            said.push_str(line);
            said.push('\n');
        });
        assert_eq!(outcome.unwrap().status, 0, "the guest said:\n{said}");
        said
    })
}

/// Every one of these claims held in the guest.
fn held(claims: &[&str]) {
    let said = said();
    for claim in claims {
        let held = said.lines().any(|line| line == format!("ok {claim}"));
        assert!(held, "{claim} did not hold; the guest said:\n{said}");
    }
}

#[test]
fn a_command_runs_in_the_tier_and_with_the_weight_it_was_given() {
    held(&["tier", "weight", "tier_weights"]);
}

#[test]
fn the_command_s_status_is_passed_on() {
    held(&["status", "killed", "not_found", "not_executable"]);
}

#[test]
fn a_signal_to_the_supervisor_reaches_the_command() {
    held(&["signal"]);
}

#[test]
fn no_cgroup_is_left_behind() {
    held(&["leaf_removed", "leaf_removed_after_failure"]);
    held(&["orphan_kept", "orphan_swept", "left_running"]);
}

#[test]
fn without_ufs_a_note_says_so_unless_told_to_be_quiet() {
    held(&["note", "quiet", "no_note"]);
}

#[test]
fn other_users_need_a_delegated_cgroup_and_cannot_raise_themselves() {
    held(&["undelegated", "undelegated_remedy", "delegated"]);
    held(&["raising", "raising_error"]);
}

#[test]
fn start_loads_ufs_and_waits_until_the_kernel_has_it() {
    held(&["start_not_root", "start", "start_ops", "start_again"]);
    held(&["start_again_with_options", "doctor_native"]);
}

#[test]
fn another_scheduler_is_named_and_left_alone() {
    held(&["start_occupied", "start_occupied_names", "stop_occupied"]);
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing_running() {
    held(&[
        "start_bad_option",
        "start_bad_option_says",
        "start_bad_option_leaves",
    ]);
}

#[test]
fn status_shows_the_scheduler_and_the_work_in_each_tier() {
    held(&[
        "status_scheduler",
        "status_uptime",
        "status_leaf",
        "status_last_exit",
    ]);
}

#[test]
fn stop_unloads_ufs_and_waits_until_it_is_out() {
    held(&["stop_when_out", "stop", "stop_leaves"]);
}

#[test]
fn a_killed_scheduler_can_be_started_again() {
    held(&["killed_is_out", "start_after_kill", "stop_after_kill"]);
}
