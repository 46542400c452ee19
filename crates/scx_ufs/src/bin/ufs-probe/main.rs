//! `ufs-probe`: proves UFS's claims on the machine it runs on.
//!
//! ```text
//! ufs-probe --list
//! ufs-probe [--scx-ufs PATH] CLAIM...        as root; loads UFS itself
//! ```
//!
//! Each claim is a scenario of its name: it loads `scx_ufs`, runs workers in
//! cgroups of its own below `/sys/fs/cgroup/ufs-probe`, measures, and prints
//! `PASS name: numbers` or `FAIL name: reason`. Exit status 1 if any failed.
//! The tests in `tests/vm.rs` run it in a virtual machine.
//!
//! ```text
//! ufs.rs        scx_ufs as a child process, its state and statistics
//! cgroup.rs     cgroups that vanish with their owner
//! worker.rs     processes that burn CPU time, or sleep and measure
//! trace.rs      the kernel's own record of who ran and who waited
//! sharing.rs    claims about tiers and weights
//! limits.rs     claims about cpu.max
//! survival.rs   claims about storms, floors and ways to leave
//! hinted.rs     workers with hint slots, and one that scribbles over them
//! teller.rs     their locks, and how they tell about them
//! hinting.rs    claims about hint slots and boosts
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

mod cgroup;
mod hinted;
mod hinting;
mod limits;
mod sharing;
mod survival;
mod teller;
mod trace;
mod ufs;
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
        "bursty_work_gets_its_share_whatever_others_use_elsewhere",
        sharing::bursty_share,
    ),
    ("weight_change_takes_effect_at_once", sharing::weight_change),
    ("cpu_max_holds_in_each_tier", limits::each_tier),
    ("cpu_max_holds_at_each_level", limits::nested),
    ("cpu_max_change_takes_effect_at_once", limits::change),
    ("cpu_max_leaves_the_weights_of_others_alone", limits::others),
    ("cpu_max_of_a_crowd_stalls_nobody", limits::crowd),
    (
        "cpu_max_of_a_long_period_stalls_nobody",
        limits::long_period,
    ),
    ("cpu_max_gives_way_to_a_boost", limits::boosted),
    ("cpu_max_can_be_switched_off", limits::switched_off),
    ("storm_loses_no_wakeup", survival::storm_loses_no_wakeup),
    ("storm_delays_no_wakeup", survival::storm_delays_no_wakeup),
    ("floor_keeps_ufs_loaded", survival::floor_short),
    ("floor_keeps_ufs_loaded_for_120_s", survival::floor_long),
    ("hotplug_restarts_ufs", survival::hotplug),
    (
        "kill9_of_the_loader_leaves_the_system_running",
        survival::kill9,
    ),
    ("sigterm_leaves_cleanly", survival::sigterm),
    ("sysrq_ends_ufs_with_the_reason", survival::sysrq),
    ("slot_lowers_a_thread", hinting::lower),
    ("slot_raises_with_the_right_and_not_without", hinting::raise),
    ("slot_weights_2_3_within_a_cgroup", hinting::weight),
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
    ("inversions_are_counted_without_boosts", hinting::counted),
    ("hostile_slots_change_nothing_for_others", hinting::hostile),
    (
        "kill9_of_a_client_frees_its_slot",
        hinting::kill9_of_a_client,
    ),
    ("restart_keeps_what_clients_have_said", hinting::restart),
    ("slots_run_out_without_harm", hinting::exhausted),
    ("table_is_passed_to_its_group_only", hinting::passed_on),
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
        match claim(&mut ufs) {
            Ok(numbers) => println!("PASS {name}: {numbers}"),
            Err(reason) => {
                passed = false;
                println!("FAIL {name}: {reason:#}");
            }
        }
    }
    Ok(passed)
}
