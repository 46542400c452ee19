//! `ufs-probe`: tests UFS's claims on the machine it runs on.
//!
//! ```text
//! ufs-probe --list
//! ufs-probe [--scx-ufs PATH] CLAIM...        as root; loads UFS itself
//! ```
//!
//! Each claim is a scenario of its name: it loads `scx_ufs`, runs workers in
//! cgroups of its own below `/sys/fs/cgroup/ufs-probe`, measures, and prints
//! `PASS name: numbers` or `FAIL name: reason`. A claim also fails if UFS counted a
//! broken invariant meanwhile. Exit status 1 if any failed.
//! The tests in `tests/` run it in a virtual machine.
//!
//! ```text
//! ufs.rs        scx_ufs as a child process, its state and statistics
//! cgroup.rs     cgroups that vanish with their owner
//! worker.rs     processes that burn CPU time, or sleep and measure
//! trace.rs      the kernel's own record of who ran and who waited
//! sharing.rs    claims about tiers and weights
//! debts.rs      claims about tasks that would be rid of what they have used
//! idling.rs     claims about SCHED_IDLE and cpu.idle
//! waking.rs     a claim about what a wake-up is charged
//! restricted.rs claims about background work that is pinned to some CPUs
//! marking.rs    claims about marks, and about which names can raise a tier
//! placing.rs    claims about cores, caches, NUMA nodes and cpusets
//! limits.rs     claims about cpu.max
//! loading.rs    claims about loading, and attaching what is loaded
//! survival.rs   claims about storms, the floor, hotplug and unloading
//! hinted.rs     workers with hint slots, and one that overwrites them
//! lock_hints.rs their locks, and how they record them for UFS
//! hinting.rs    claims about hint slots and boosts
//! handing.rs    claims about locks and slots that change hands
//! rights.rs     claims about which tasks a slot applies to, and the right to rise
//! inherited.rs  claims about threads and children of a process that has a slot
//! faults.rs     claims about what goes wrong outside of UFS
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use faults::{crowds, holders, loaders, machine, stress, tasks};

mod cgroup;
mod debts;
mod faults;
mod handing;
mod hinted;
mod hinting;
mod idling;
mod inherited;
mod limits;
mod loading;
mod lock_hints;
mod marking;
mod placing;
mod restricted;
mod rights;
mod sharing;
mod survival;
mod trace;
mod ufs;
mod waking;
mod worker;

/// A claim: its name, and the scenario that returns its numbers or what broke it.
type Claim = (&'static str, fn(&mut ufs::Ufs) -> Result<String>);

const CLAIMS: &[Claim] = &[
    (
        "tier_comes_from_cgroup_name_and_is_inherited",
        sharing::tiers,
    ),
    (
        "wakeup_preempts_background",
        sharing::wakeup_preempts_background,
    ),
    (
        "pinned_wakeup_preempts_background",
        sharing::pinned_wakeup_preempts_background,
    ),
    (
        "no_background_runs_while_time_sensitive_waits",
        sharing::strict_tiers,
    ),
    (
        "background_weights_2_3_within_a_restricted_set_of_cpus",
        sharing::background_weights,
    ),
    (
        "background_weights_2_3_with_1_and_3_tasks",
        sharing::background_weights_uneven,
    ),
    (
        "time_sensitive_weights_6667_10000",
        sharing::time_sensitive_weights,
    ),
    (
        "time_sensitive_weights_6667_10000_with_1_and_3_tasks",
        sharing::time_sensitive_weights_uneven,
    ),
    ("nested_weights_compound", sharing::nested_weights),
    (
        "cpu_stays_with_a_background_cgroup_for_a_slice",
        sharing::commitment,
    ),
    (
        "idle_cpu_runs_background_beside_pinned_cgroups",
        restricted::sleeper,
    ),
    (
        "weights_hold_within_and_between_pinned_and_unpinned_background",
        restricted::weights,
    ),
    ("bursty_tasks_get_their_share", sharing::bursty_share),
    (
        "pinned_sleeper_gets_no_more_than_its_weight",
        sharing::light_sleeper,
    ),
    (
        "tasks_that_are_next_keep_no_other_cgroup_away",
        sharing::next_in_line,
    ),
    ("weight_change_takes_effect_at_once", sharing::weight_change),
    ("forks_and_moves_gain_no_share", debts::kept),
    ("mark_moves_a_cgroup_that_runs", marking::moves),
    (
        "mark_moves_a_cgroup_without_hints",
        marking::moves_without_hints,
    ),
    ("names_raise_a_tier_only_if_root_chose_them", marking::named),
    ("halted_cpu_s_wakeup_is_charged_to_nobody", waking::halted),
    ("sched_idle_is_background_while_it_lasts", idling::policy),
    ("cpu_idle_is_background_while_it_lasts", idling::cgroup),
    (
        "cpu_idle_is_background_where_marks_count",
        idling::cgroup_with_marks,
    ),
    (
        "time_sensitive_tasks_do_not_share_a_core",
        placing::wake_apart,
    ),
    (
        "time_sensitive_tasks_that_never_sleep_leave_a_shared_core",
        placing::burn_apart,
    ),
    (
        "background_leaves_a_core_to_a_time_sensitive_task",
        placing::background_apart,
    ),
    ("wakeup_stays_in_its_cache", placing::stay_in_llc),
    ("wakeup_stays_in_its_numa_node", placing::stay_in_node),
    ("cpuset_partitions_hold", placing::partitions),
    ("cpu_max_holds_in_each_tier", limits::each_tier),
    ("cpu_max_holds_at_each_level", limits::nested),
    ("cpu_max_change_takes_effect_at_once", limits::change),
    ("cpu_max_leaves_the_weights_of_others_alone", limits::others),
    ("cpu_max_on_many_tasks_stalls_none", limits::crowd),
    (
        "cpu_max_with_a_long_period_stalls_no_task",
        limits::long_period,
    ),
    ("cpu_max_gives_way_to_a_boost", limits::boosted),
    ("cpu_max_can_be_switched_off", limits::switched_off),
    ("verifying_is_bounded", loading::verified),
    (
        "statistics_can_be_switched_off",
        loading::without_statistics,
    ),
    ("standby_reattach_resets_state", loading::reattach),
    ("storm_loses_no_wakeup", survival::storm_loses_no_wakeup),
    ("storm_delays_no_wakeup", survival::storm_delays_no_wakeup),
    ("floor_keeps_ufs_loaded", survival::floor_short),
    ("floor_keeps_ufs_loaded_for_120_s", survival::floor_long),
    (
        "crowd_of_overdue_tasks_on_one_cpu_runs_in_time",
        survival::floor_crowd,
    ),
    (
        "starved_background_gets_the_least_that_the_floor_is_told",
        survival::floor_least,
    ),
    (
        "cpu_checks_overdue_tasks_pinned_elsewhere_once",
        survival::floor_misses,
    ),
    ("absent_cpus_do_not_count_as_idle", survival::absent_cpus),
    ("hotplug_restarts_ufs", survival::hotplug),
    ("sigterm_leaves_cleanly", survival::sigterm),
    ("sysrq_ends_ufs_with_the_reason", survival::sysrq),
    ("slot_lowers_a_thread", hinting::lower),
    ("slot_raises_with_the_right_and_not_without", hinting::raise),
    ("slot_weights_2_3_within_a_cgroup", hinting::weight),
    ("slot_applies_to_tasks_of_its_user_only", rights::forged),
    ("losing_the_group_ends_the_right_to_rise", rights::revoked),
    (
        "lent_credentials_give_no_right_and_take_no_slot",
        rights::lent,
    ),
    (
        "threads_and_children_follow_their_process",
        inherited::follow,
    ),
    (
        "inherited_hints_raise_only_tasks_with_the_right",
        inherited::rights,
    ),
    ("boosted_holder_of_a_mutex", hinting::inversion_mutex),
    ("boosted_holder_of_a_spinlock", hinting::inversion_spin),
    ("boosted_chain_of_three", hinting::inversion_chain),
    ("boosted_holder_that_sleeps", hinting::inversion_nap),
    ("read_holder_of_a_lightweight_lock", hinting::reader_tranche),
    ("read_waiter_for_a_spinlock", hinting::reader_rescue),
    ("read_holder_of_a_heavyweight_lock", hinting::reader_blocker),
    (
        "boost_of_a_holder_that_never_releases_expires",
        hinting::expiry,
    ),
    ("another_slot_gives_no_other_boost", handing::renewed),
    (
        "waiters_are_all_woken_though_the_first_preempts",
        handing::woken,
    ),
    ("slot_s_next_owner_keeps_its_marks", handing::next_owner),
    ("inversions_are_counted_without_boosts", hinting::counted),
    (
        "holder_among_equals_runs_on_until_it_lets_go",
        hinting::extended,
    ),
    (
        "endless_holder_gets_no_more_than_its_equal",
        hinting::endless_holder,
    ),
    ("hostile_slots_change_nothing_for_others", hinting::hostile),
    (
        "kill9_of_a_client_frees_its_slot",
        hinting::kill9_of_a_client,
    ),
    ("slots_survive_a_restart_of_ufs", hinting::restart),
    ("slots_run_out_without_harm", hinting::exhausted),
    ("table_is_passed_to_its_group_only", hinting::passed_on),
    (
        "a_killed_loader_leaves_the_machine_to_eevdf",
        loaders::kill9,
    ),
    (
        "a_loader_out_of_memory_leaves_the_machine_to_eevdf",
        loaders::out_of_memory,
    ),
    (
        "an_error_in_bpf_leaves_the_machine_to_eevdf",
        loaders::bpf_error,
    ),
    (
        "a_second_loader_is_turned_away_and_takes_nothing",
        loaders::doubled,
    ),
    (
        "of_two_loaders_at_once_one_takes_everything",
        loaders::at_once,
    ),
    ("a_loader_without_statistics_schedules", loaders::unserved),
    (
        "an_upgrade_replaces_what_another_version_has_pinned",
        loaders::upgraded,
    ),
    ("a_flapping_cpu_ends_in_ufs_or_eevdf", machine::flapping_cpu),
    ("clock_jumps_change_nothing", machine::clock_jumps),
    ("real_time_hogs_starve_no_task_for_long", machine::fifo_hogs),
    (
        "a_real_time_task_takes_a_cpu_and_not_the_task_on_it",
        machine::fifo_hog_of_one,
    ),
    (
        "deadline_hogs_leave_the_rest_to_ufs",
        machine::deadline_hogs,
    ),
    ("stopped_tasks_come_back_to_their_tier", tasks::stopped),
    ("a_debugger_may_come_and_go", tasks::traced),
    ("a_frozen_cgroup_thaws_in_its_tier", tasks::frozen),
    (
        "changes_of_tasks_and_cgroups_take_effect_and_revert",
        tasks::live_changes,
    ),
    (
        "a_fork_bomb_in_the_background_leaves_urgent_work_its_cpu",
        crowds::fork_bomb,
    ),
    ("thousands_of_cgroups_come_and_go", crowds::many_cgroups),
    ("stopped_lock_holder_uses_no_cpu_time", holders::stopped),
    ("dead_threads_leave_no_hints", holders::died),
    ("invariants_hold_under_random_stress", stress::stress),
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ufs-probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(kind) = args.first().filter(|arg| arg.starts_with("--worker=")) {
        let kind = &kind["--worker=".len()..];
        return worker::main(kind, &args[1..]).map(|()| true);
    }
    if args.first().is_some_and(|arg| arg == "--list") {
        for (name, _) in CLAIMS {
            println!("{name}");
        }
        return Ok(true);
    }
    let mut scx_ufs = PathBuf::from("scx_ufs");
    if args.first().is_some_and(|arg| arg == "--scx-ufs") && args.len() > 1 {
        scx_ufs = args.remove(1).into();
        args.remove(0);
    }
    if args.is_empty() {
        bail!("name a claim; --list names them all");
    }
    let mut passed = true;
    let mut ufs = ufs::Ufs::new(scx_ufs);
    for wanted in &args {
        let Some((name, claim)) = CLAIMS.iter().find(|(name, _)| name == wanted) else {
            bail!("there is no claim '{wanted}'; --list names them all");
        };
        let outcome = claim(&mut ufs).and_then(|numbers| {
            ufs.check_invariants()?;
            Ok(numbers)
        });
        match outcome {
            Ok(numbers) => println!("PASS {name}: {numbers}"),
            Err(reason) => {
                passed = false;
                println!("FAIL {name}: {reason:#}");
            }
        }
    }
    Ok(passed)
}
