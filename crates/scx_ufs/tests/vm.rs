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
fn prove(cpus: u32, clock: Clock, claims: &[&str]) {
    let lab = Lab::open(&LabSpec::default(), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let job = Job::script(format!(
        "./ufs-probe --scx-ufs ./scx_ufs {}",
        claims.join(" ")
    ))
    .file(env!("CARGO_BIN_EXE_scx_ufs"), "scx_ufs")
    .file(env!("CARGO_BIN_EXE_ufs-probe"), "ufs-probe");
    let machine = Machine {
        cpus,
        clock,
        timeout: PATIENCE,
        ..Machine::default()
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
        Clock::LOCKSTEP,
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
        Clock::LOCKSTEP,
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
fn cpu_max_is_enforced() {
    prove(
        4,
        Clock::LOCKSTEP,
        &[
            "cpu_max_holds_in_each_tier",
            "cpu_max_holds_at_each_level",
            "cpu_max_change_takes_effect_at_once",
            "cpu_max_leaves_the_weights_of_others_alone",
            "cpu_max_of_a_crowd_stalls_nobody",
            "cpu_max_of_a_long_period_stalls_nobody",
            "cpu_max_gives_way_to_a_boost",
            "cpu_max_can_be_switched_off",
        ],
    );
}

#[test]
fn slots_say_tier_and_weight_and_harm_nobody() {
    prove(
        2,
        Clock::LOCKSTEP,
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
        Clock::LOCKSTEP,
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
        Clock::LOCKSTEP,
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
    prove(2, Clock::LOCKSTEP, &["floor_keeps_ufs_loaded_for_120_s"]);
}
