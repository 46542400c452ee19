//! UFS in a kernel that can load it: what it promises while nothing goes wrong.

use giveway_lab::{LabSpec, Machine};

mod guest;

/// Asks one machine for several claims, and fails with what the probe printed.
fn prove(cpus: u32, claims: &[&str]) {
    let shape = Machine {
        cpus,
        ..Machine::default()
    };
    prove_on(shape, claims);
}

/// The same on a machine of some shape.
fn prove_on(shape: Machine, claims: &[&str]) {
    let printed = guest::ask(&LabSpec::default(), shape, guest::PATIENCE, &[], claims);
    let printed = printed.unwrap_or_else(|error| panic!("{error}"));
    for claim in claims {
        guest::shown(claim, &printed);
    }
}

#[test]
fn marks_move_cgroups_that_run() {
    prove(
        2,
        &[
            "a_name_raises_only_where_root_has_chosen_it",
            "mark_moves_a_cgroup_that_runs",
            "mark_moves_a_cgroup_without_hints",
        ],
    );
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
fn pinned_background_work_is_in_nobodys_way() {
    prove(
        2,
        &[
            "pinned_background_keeps_no_other_from_an_idle_cpu",
            "weights_hold_within_and_between_pinned_and_unpinned_background",
        ],
    );
}

#[test]
fn ufs_loads_on_machines_of_any_size() {
    prove(2, &["verifying_is_bounded"]);
}

#[test]
fn cpu_max_is_enforced() {
    prove(
        4,
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
fn slots_speak_for_their_user_and_for_kin() {
    prove(
        2,
        &[
            "slot_speaks_for_tasks_of_its_user_only",
            "threads_and_children_follow_their_process",
            "kin_rise_by_their_own_right_only",
            "a_right_that_is_gone_raises_nobody",
        ],
    );
}

#[test]
fn idle_work_is_background() {
    prove(
        2,
        &[
            "sched_idle_is_background_while_it_lasts",
            "cpu_idle_is_background_while_it_lasts",
            "cpu_idle_is_background_where_marks_count",
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
fn loading_is_done_once() {
    prove(2, &["what_is_loaded_comes_and_goes"]);
}

#[test]
fn ufs_survives_storms_and_leaves_cleanly() {
    prove(
        4,
        &[
            "storm_loses_no_wakeup",
            "floor_keeps_ufs_loaded",
            "hotplug_restarts_ufs",
            "sysrq_ends_ufs_with_the_reason",
            "sigterm_leaves_cleanly",
        ],
    );
}

#[test]
fn cpus_look_for_what_is_theirs_only() {
    prove(
        2,
        &[
            "overdue_tasks_pinned_elsewhere_cost_a_cpu_one_look_each",
            "cpus_that_are_not_there_are_not_idle",
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
