//! Too many tasks, and too many cgroups.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::tasks::Pair;
use super::{LONGEST_WAIT, MS, Witness, all_run, load_strict};
use crate::cgroup::Cgroup;
use crate::ufs::{Ufs, wait_until};
use crate::worker::{Worker, percentile, used_by};

/// A hundred processes that do nothing but fork, in the background.
pub(crate) fn fork_bomb(ufs: &mut Ufs) -> Result<String> {
    const MOST: u64 = 100;
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let top = Cgroup::top()?;
    top.set("cgroup.subtree_control", "+pids")?;
    let background = top.child("background", 10_000)?;
    background.set("pids.max", &MOST.to_string())?;
    let sensitive = top.child("time_sensitive", 1)?;
    let bomb = Worker::start(&background, &[], "bomb", &[])?;
    wait_until("the bomb goes off", Duration::from_secs(60), || {
        background.get("pids.events", "max").is_ok_and(|n| n > 0)
    })?;
    let urgent = Worker::burner(&sensitive, &[0])?;
    let watcher = Worker::sleeper(&sensitive, &[], 5 * MS, MS / 10, 400)?;
    let (used, _) = used_by(&urgent, &bomb, 2000 * MS)?;
    let delays = watcher.delays_ns()?;
    witness.ufs_stayed(ufs)?;
    drop(bomb);
    drop(background);
    let ran = all_run(&[&urgent], LONGEST_WAIT)?;
    let p99 = percentile(&delays, 99) / 1000;
    let numbers = format!(
        "beside {MOST} of them an urgent task used {used:.2} s of 2 s, another woke {p99} us late \
         (p99); gone, it went on after {} ms",
        ran.as_millis()
    );
    // The floor's runs: each of 100 tasks a tick of 4 ms within a deadline of
    // 1 s, on two CPUs. No wake-up waits for longer than such a tick and a fork.
    if used < 1.5 || p99 > 6000 {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// More cgroups than UFS knows, with work in some of the first and some of the
/// last of them; then all of them go, and their numbers come back.
pub(crate) fn many_cgroups(ufs: &mut Ufs) -> Result<String> {
    const COUNT: usize = 4200;
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let top = Cgroup::top()?;
    let known = || ufs.stats().map(|stats| stats["nr_cgroups"].as_u64());
    let before = known()?;
    let parents = [
        top.child("background", 100)?,
        top.child("time_sensitive", 100)?,
    ];
    let start = Instant::now();
    let mut groups = Vec::new();
    let mut workers = Vec::new();
    for number in 0..COUNT {
        let group = parents[number % 2].child(&format!("g{number}"), 100)?;
        if number % 700 < 2 || number >= COUNT - 2 {
            workers.push(Worker::burner(&group, &[0])?);
        }
        groups.push(group);
    }
    let made = start.elapsed();
    let all: Vec<&Worker> = workers.iter().collect();
    all_run(&all, 2 * LONGEST_WAIT)?;
    // Also where a cgroup counts as its parent.
    let (first, last) = (tiers_of(&all[..2])?, tiers_of(&all[all.len() - 2..])?);
    let overflows = ufs.stats()?["nr_cgroup_overflows"].as_u64().unwrap_or(0);
    drop(all);
    drop(workers);
    let start = Instant::now();
    drop(groups);
    drop(parents);
    // The kernel takes a cgroup apart some time after its removal.
    wait_until("cgroups are forgotten", Duration::from_secs(60), || {
        known().is_ok_and(|now| now <= before)
    })?;
    let gone = start.elapsed();
    // Numbers that were used before.
    let pair = Pair::new(&[0])?;
    pair.tiers_hold().context("in cgroups made after that")?;
    witness.ufs_stayed(ufs)?;
    if overflows == 0 {
        bail!("there was room for {COUNT} cgroups: nothing was tested");
    }
    Ok(format!(
        "{COUNT} cgroups made in {:.1} s, {overflows} of them beyond what UFS knows, gone in \
         {:.1} s; first and last {first:?} and {last:?} s of background and urgent work",
        made.as_secs_f64(),
        gone.as_secs_f64(),
    ))
}

/// CPU time of a background and an urgent worker, which must have more of it.
fn tiers_of(pair: &[&Worker]) -> Result<(f64, f64)> {
    let used = used_by(pair[0], pair[1], 500 * MS)?;
    // Several urgent workers share the CPU; the floor serves background ones.
    if used.1 < 2.0 * used.0 {
        bail!("background and urgent work used {used:?} s");
    }
    Ok(used)
}
