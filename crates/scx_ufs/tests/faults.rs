//! Trust under faults: what UFS promises when something goes wrong, each promise
//! a test of its name. One machine is booted for all of them.

#[macro_use]
#[path = "guest/claims.rs"]
mod claims;
mod guest;

/// How long and with which random numbers, if the caller says so.
fn stress() -> Vec<(&'static str, String)> {
    ["GIVEWAY_STRESS_SECONDS", "GIVEWAY_STRESS_SEED"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)))
        .collect()
}

claims! {
    || claims::slow_cpus(2), stress;
    a_flapping_cpu_ends_in_ufs_or_eevdf
    clock_jumps_change_nothing
    real_time_hogs_starve_no_task_for_long
    a_real_time_task_takes_a_cpu_and_not_the_task_on_it
    deadline_hogs_leave_the_rest_to_ufs
    stopped_tasks_come_back_to_their_tier
    a_debugger_may_come_and_go
    a_frozen_cgroup_thaws_in_its_tier
    changes_of_tasks_and_cgroups_take_effect_and_revert
    stopped_lock_holder_uses_no_cpu_time
    a_fork_bomb_in_the_background_leaves_urgent_work_its_cpu
    thousands_of_cgroups_come_and_go
    invariants_hold_under_random_stress
    a_killed_loader_leaves_the_machine_to_eevdf
    dead_threads_leave_no_hints
    a_loader_out_of_memory_leaves_the_machine_to_eevdf
    an_error_in_bpf_leaves_the_machine_to_eevdf
    a_second_loader_is_turned_away_and_takes_nothing
    of_two_loaders_at_once_one_takes_everything
    a_loader_without_statistics_schedules
    an_upgrade_replaces_what_another_version_has_pinned
}
