//! UFS in a kernel that can load it: boots a virtual machine and has
//! `ufs-probe` prove UFS's claims there, on the lockstep clock: every CPU has
//! the same speed whatever the host does, and the kernel patches its code (as
//! it does whenever a scheduler comes or goes) with no CPU executing it
//! meanwhile, which multi-threaded emulation is suspected of getting wrong.

use std::time::Duration;

use giveway_lab::{Clock, Job, Lab, LabSpec, Machine, Silent};

/// A guest that hangs is ended then; a host that is busy with other things takes
/// several times the usual two or three minutes.
const PATIENCE: Duration = Duration::from_secs(2400);

/// Boots one machine for several claims, since booting and loading cost more
/// than most of them, and fails with what the probe printed.
fn prove(cpus: u32, claims: &[&str]) {
    prove_on(
        Machine {
            cpus,
            ..Machine::default()
        },
        claims,
    );
}

/// The same on a machine of some shape.
fn prove_on(machine: Machine, claims: &[&str]) {
    let lab = Lab::open(&LabSpec::default(), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let job = Job::script(format!(
        "./ufs-probe --scx-ufs ./scx_ufs {}",
        claims.join(" ")
    ))
    .file(env!("CARGO_BIN_EXE_scx_ufs"), "scx_ufs")
    .file(env!("CARGO_BIN_EXE_ufs-probe"), "ufs-probe");
    let machine = Machine {
        clock: Clock::LOCKSTEP,
        timeout: PATIENCE,
        ..machine
    };
    let mut printed = String::new();
    let outcome = lab
        .run(&machine, &job, &mut |line| {
            println!("{line}");
            printed.push_str(line);
            printed.push('\n');
        })
        .unwrap_or_else(|error| panic!("{error}\n{printed}"));
    for claim in claims {
        let passed = printed
            .lines()
            .any(|line| line.starts_with(&format!("PASS {claim}:")));
        assert!(passed, "{claim} was not shown:\n{printed}");
    }
    assert_eq!(outcome.status, 0, "{printed}");
}

#[test]
fn tiers_are_strict_and_wakeups_are_prompt() {
    prove(
        3,
        &[
            "tier_comes_from_cgroup_name_and_is_inherited",
            "wakeup_preempts_background",
            "pinned_wakeup_preempts_background",
            "no_background_runs_while_time_sensitive_waits",
            "storm_delays_no_wakeup",
        ],
    );
}

#[test]
fn time_is_shared_by_weight_within_a_tier() {
    prove(
        2,
        &[
            "background_weights_2_3_within_a_restricted_set_of_cpus",
            "background_weights_2_3_with_1_and_3_tasks",
            "time_sensitive_weights_6667_10000",
            "time_sensitive_weights_6667_10000_with_1_and_3_tasks",
            "nested_weights_compound",
            "bursty_work_gets_its_share_whatever_others_use_elsewhere",
            "weight_change_takes_effect_at_once",
        ],
    );
}

#[test]
fn slots_say_tier_and_weight_and_harm_nobody() {
    prove(
        2,
        &[
            "slot_lowers_a_thread",
            "slot_weights_2_3_within_a_cgroup",
            "hostile_slots_change_nothing_for_others",
            "kill9_of_a_client_frees_its_slot",
            "slots_run_out_without_harm",
            "table_is_passed_to_its_group_only",
            "slot_raises_with_the_right_and_not_without",
            "restart_keeps_what_clients_have_said",
        ],
    );
}

#[test]
fn background_holders_do_not_keep_urgent_waiters_waiting() {
    prove(
        2,
        &[
            "boosted_holder_of_a_mutex",
            "boosted_holder_of_a_spinlock",
            "boosted_chain_of_three",
            "boosted_holder_that_sleeps",
            "read_holder_of_a_lightweight_lock",
            "read_waiter_for_a_spinlock",
            "read_holder_of_a_heavyweight_lock",
            "boost_of_a_holder_that_never_releases_expires",
            "inversions_are_counted_without_boosts",
        ],
    );
}

#[test]
fn ufs_survives_storms_and_leaves_cleanly() {
    prove(
        4,
        &[
            "storm_loses_no_wakeup",
            "floor_keeps_ufs_loaded",
            "hotplug_restarts_ufs",
            "kill9_of_the_loader_leaves_the_system_running",
            "sysrq_ends_ufs_with_the_reason",
            "sigterm_leaves_cleanly",
        ],
    );
}

#[test]
fn two_minutes_of_saturation_leave_ufs_loaded() {
    prove(2, &["floor_keeps_ufs_loaded_for_120_s"]);
}

#[test]
fn cores_are_not_shared_and_partitions_hold() {
    prove_on(
        Machine {
            cpus: 8,
            sockets: 2,
            threads: 2,
            numa_nodes: 2,
            ..Machine::default()
        },
        &[
            "time_sensitive_tasks_do_not_share_a_core",
            "time_sensitive_tasks_that_never_sleep_leave_a_shared_core",
            "background_leaves_a_core_to_a_time_sensitive_task",
            "cpuset_partitions_hold",
            "storm_loses_no_wakeup",
            "hotplug_restarts_ufs",
        ],
    );
}

/// A socket has a last-level cache of its own; a node has two sockets.
#[test]
fn wakeups_stay_near() {
    prove_on(
        Machine {
            cpus: 8,
            sockets: 4,
            numa_nodes: 2,
            ..Machine::default()
        },
        &["wakeup_stays_in_its_cache", "wakeup_stays_in_its_numa_node"],
    );
}
