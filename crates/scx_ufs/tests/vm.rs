//! UFS in a kernel that can load it: what it promises while nothing goes wrong.
//!
//! One machine for each module, by what the claims are about and how many CPUs they
//! take. They take about as long as each other, so that machines can run side by side.

#[macro_use]
#[path = "guest/claims.rs"]
mod claims;
mod guest;

/// Tiers, and how soon somebody is woken, or UFS attached.
mod tiers {
    claims! {
        || crate::claims::cpus(3);
        tier_comes_from_cgroup_name_and_is_inherited
        wakeup_preempts_background
        pinned_wakeup_preempts_background
        no_background_runs_while_time_sensitive_waits
        storm_delays_no_wakeup
        standby_reattach_resets_state
    }
}

/// What a wake-up is charged, where a halted CPU takes its time.
mod charges {
    use giveway_lab::{Clock, Costs, Machine};

    fn machine() -> Machine {
        let costs = Costs::find("sapphire-rapids-vm").expect("a model of the lab's");
        Machine {
            clock: Clock::Lockstep {
                quantum_ns: 10_000,
                shift: 2,
                causal: false,
                costs: Some(costs),
            },
            ..crate::claims::cpus(2)
        }
    }

    claims! {
        machine;
        halted_cpu_s_wakeup_is_charged_to_nobody
    }
}

/// Weights within a tier, who is in which tier, and what loading UFS takes.
mod basics {
    claims! {
        || crate::claims::slow_cpus(2);
        verifying_is_bounded
        statistics_can_be_switched_off
        idle_cpu_runs_background_beside_pinned_cgroups
        weights_hold_within_and_between_pinned_and_unpinned_background
        background_weights_2_3_within_a_restricted_set_of_cpus
        background_weights_2_3_with_1_and_3_tasks
        time_sensitive_weights_6667_10000
        time_sensitive_weights_6667_10000_with_1_and_3_tasks
        nested_weights_compound
        cpu_stays_with_a_background_cgroup_for_a_slice
        bursty_tasks_get_their_share
        pinned_sleeper_gets_no_more_than_its_weight
        tasks_that_are_next_keep_no_other_cgroup_away
        weight_change_takes_effect_at_once
        forks_and_moves_gain_no_share
        cpu_idle_is_background_while_it_lasts
        threads_and_children_follow_their_process
        cpu_idle_is_background_where_marks_count
        names_raise_a_tier_only_if_root_chose_them
        mark_moves_a_cgroup_that_runs
        mark_moves_a_cgroup_without_hints
        cpu_checks_overdue_tasks_pinned_elsewhere_once
        absent_cpus_do_not_count_as_idle
    }
}

/// What threads say of themselves, and of the locks that they hold or wait for.
mod hints {
    claims! {
        || crate::claims::slow_cpus(2);
        sched_idle_is_background_while_it_lasts
        slot_applies_to_tasks_of_its_user_only
        table_is_passed_to_its_group_only
        slot_lowers_a_thread
        slot_weights_2_3_within_a_cgroup
        inherited_hints_raise_only_tasks_with_the_right
        slot_raises_with_the_right_and_not_without
        slots_survive_a_restart_of_ufs
        hostile_slots_change_nothing_for_others
        kill9_of_a_client_frees_its_slot
        slots_run_out_without_harm
        losing_the_group_ends_the_right_to_rise
        lent_credentials_give_no_right_and_take_no_slot
        boosted_holder_of_a_mutex
        boosted_holder_of_a_spinlock
        boosted_chain_of_three
        boosted_holder_that_sleeps
        read_holder_of_a_lightweight_lock
        read_waiter_for_a_spinlock
        read_holder_of_a_heavyweight_lock
        boost_of_a_holder_that_never_releases_expires
        another_slot_gives_no_other_boost
        waiters_are_all_woken_though_the_first_preempts
        slot_s_next_owner_keeps_its_marks
        inversions_are_counted_without_boosts
        holder_among_equals_runs_on_until_it_lets_go
        endless_holder_gets_no_more_than_its_equal
    }
}

/// Limits, storms, and leaving.
mod limits {
    claims! {
        || crate::claims::slow_cpus(4);
        storm_loses_no_wakeup
        cpu_max_holds_in_each_tier
        cpu_max_holds_at_each_level
        cpu_max_change_takes_effect_at_once
        cpu_max_leaves_the_weights_of_others_alone
        cpu_max_gives_way_to_a_boost
        cpu_max_can_be_switched_off
        cpu_max_with_a_long_period_stalls_no_task
        cpu_max_on_many_tasks_stalls_none
        floor_keeps_ufs_loaded
        crowd_of_overdue_tasks_on_one_cpu_runs_in_time
        starved_background_gets_the_least_that_the_floor_is_told
        hotplug_restarts_ufs
        sysrq_ends_ufs_with_the_reason
        sigterm_leaves_cleanly
    }
}

/// Minutes of saturation.
mod minutes {
    claims! {
        || crate::claims::slow_cpus(2);
        floor_keeps_ufs_loaded_for_120_s
    }
}

/// Two threads to a core, two nodes.
mod cores {
    use giveway_lab::Machine;

    fn machine() -> Machine {
        Machine {
            cpus: 8,
            sockets: 2,
            threads: 2,
            numa_nodes: 2,
            ..Machine::default()
        }
    }

    claims! {
        machine;
        time_sensitive_tasks_do_not_share_a_core
        time_sensitive_tasks_that_never_sleep_leave_a_shared_core
        background_leaves_a_core_to_a_time_sensitive_task
        cpuset_partitions_hold
        storm_loses_no_wakeup
        hotplug_restarts_ufs
    }
}

/// A socket has a last-level cache of its own; a node has two sockets.
mod caches {
    use giveway_lab::Machine;

    fn machine() -> Machine {
        Machine {
            cpus: 8,
            sockets: 4,
            numa_nodes: 2,
            ..Machine::default()
        }
    }

    claims! {
        machine;
        wakeup_stays_in_its_cache
        wakeup_stays_in_its_numa_node
    }
}
