//! Claims about storms, floors and ways to leave.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup::Cgroup;
use crate::ufs::{Ufs, enable_seq, state, wait_until};
use crate::worker::{Worker, burners, nr_cpus, percentile};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// xorshift64: small, seeded, the same everywhere.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Under any clock: a lost wake-up would last for ever, a late one of a vCPU
/// that the host did not run lasts a second or two.
pub(crate) fn storm_loses_no_wakeup(ufs: &mut Ufs) -> Result<String> {
    storm(ufs, Duration::from_secs(5))
}

/// Under the lockstep clock: the timer that wakes CPUs which missed their work
/// has a period of 50 ms, so half of that means it was not needed.
pub(crate) fn storm_delays_no_wakeup(ufs: &mut Ufs) -> Result<String> {
    storm(ufs, Duration::from_millis(25))
}

/// Ten seconds of forks, exits, affinity changes, cgroup creation, moves,
/// weight changes and removals. A watcher among them must never be kept from
/// its wake-ups for `bound`, and UFS must stay loaded.
fn storm(ufs: &mut Ufs, bound: Duration) -> Result<String> {
    const SEED: u64 = 0x5eed_0f57_0a11;
    ufs.load(&[])?;
    let seq = enable_seq();
    let top = Cgroup::top()?;
    let names = ["background", "time_sensitive", "background-x", "plain"];
    let tiers = names.map(|name| top.child(name, 100));
    let tiers: Vec<Cgroup> = tiers.into_iter().collect::<Result<_>>()?;
    let watched = top.child("time_sensitive-watcher", 100)?;
    let watcher = Worker::sleeper(&watched, &[], 5 * MS, MS / 10, 1500)?;
    let cpus = nr_cpus();
    let mut random = Random(SEED);
    let mut groups: Vec<Cgroup> = Vec::new();
    let mut workers: Vec<Worker> = Vec::new();
    let start = Instant::now();
    let mut steps = 0;
    while start.elapsed() < Duration::from_secs(10) {
        steps += 1;
        match random.below(6) {
            0 if groups.len() < 40 => {
                let parent = &tiers[random.below(tiers.len())];
                let weight = 1 + random.below(10_000) as u32;
                groups.push(parent.child(&format!("s{steps}"), weight)?);
            }
            1 if groups.len() > 8 => drop(groups.swap_remove(random.below(groups.len()))),
            2 if !groups.is_empty() && workers.len() < 3 * cpus => {
                let group = &groups[random.below(groups.len())];
                workers.push(if random.below(2) == 0 {
                    Worker::burner(group, &[])?
                } else {
                    Worker::sleeper(group, &[], MS, MS / 2, 200)?
                });
            }
            3 if !workers.is_empty() => drop(workers.swap_remove(random.below(workers.len()))),
            4 if !workers.is_empty() => {
                let mut set = CpuSet::new();
                set.set(random.below(cpus))?;
                set.set(random.below(cpus))?;
                let pid = Pid::from_raw(workers[random.below(workers.len())].pid());
                // The worker may have ended.
                let _ = sched_setaffinity(pid, &set);
            }
            5 if !workers.is_empty() && !groups.is_empty() => {
                let group = &groups[random.below(groups.len())];
                let pid = workers[random.below(workers.len())].pid();
                let _ = fs::write(group.procs(), pid.to_string());
                group.set_weight(1 + random.below(10_000) as u32)?;
            }
            _ => {}
        }
    }
    let delays = watcher.delays_ns()?;
    let worst = Duration::from_nanos(delays[delays.len() - 1]);
    ufs.still_loaded_since(seq)?;
    drop(workers);
    drop(groups);
    // After the storm every CPU must still be found by work that waits.
    let after = burners(&tiers[0], &[], cpus)?;
    let before = tiers[0].seconds()?;
    sleep(1000 * MS);
    let used = tiers[0].seconds()? - before;
    drop(after);
    let numbers = format!(
        "seed {SEED:#x}, {steps} steps; a watcher woke {} times, p99 {} us late, worst {} us; \
         afterwards background work used {used:.2} CPUs of {cpus}",
        delays.len(),
        percentile(&delays, 99) / 1000,
        worst.as_micros(),
    );
    if worst > bound {
        bail!("{numbers}: a wake-up was lost");
    }
    if used < cpus as f64 * 0.5 {
        bail!("{numbers}: CPUs were left idle");
    }
    Ok(numbers)
}

/// Saturates every CPU with time-sensitive work above free, pinned and
/// low-weight background tasks and low-weight time-sensitive ones.
fn saturate(ufs: &mut Ufs, span: Duration, args: &[&str], env: &[(&str, &str)]) -> Result<String> {
    ufs.load_with(args, env)?;
    let seq = enable_seq();
    let floor_runs = |ufs: &Ufs| Ok::<_, anyhow::Error>(ufs.stats()?["nr_floor_runs"].as_u64());
    let before = floor_runs(ufs)?.unwrap_or(0);
    let top = Cgroup::top()?;
    let background = top.child("background", 1)?;
    let sensitive = top.child("time_sensitive", 10_000)?;
    let low = top.child("plain", 1)?;
    let starving = [
        background.child("free", 1)?,
        background.child("pinned", 1)?,
        background.child("heavy", 10_000)?,
    ];
    let _starving = (
        burners(&starving[0], &[], 3)?,
        burners(&starving[1], &[0], 3)?,
        burners(&starving[2], &[], 1)?,
        burners(&low, &[], 1)?,
    );
    let _saturating = burners(&sensitive, &[], 2 * nr_cpus())?;
    sleep(span);
    ufs.still_loaded_since(seq)?;
    let floor_runs = floor_runs(ufs)?.unwrap_or(0) - before;
    let used: f64 = background.seconds()?;
    let share = used / (span.as_secs_f64() * nr_cpus() as f64);
    let numbers = format!(
        "{} s of saturation, {floor_runs} floor runs, background had {:.2} % of the CPUs",
        span.as_secs(),
        share * 100.0
    );
    if floor_runs == 0 {
        bail!("{numbers}: the floor was not needed, so it was not tested");
    }
    for group in &starving {
        if group.seconds()? == 0.0 {
            bail!("{numbers}: a cgroup never ran");
        }
    }
    // The floor's share is 5 %, plus a tick for each run and the start.
    if share > 0.15 {
        bail!("{numbers}: the floor takes more than it may");
    }
    Ok(numbers)
}

/// With the kernel's limit at 4 s, so that 16 s are four times too long.
pub(crate) fn floor_short(ufs: &mut Ufs) -> Result<String> {
    saturate(
        ufs,
        Duration::from_secs(16),
        &["--floor-deadline-ms", "1000"],
        &[("SCX_TIMEOUT_MS", "4000")],
    )
}

/// With every default: the kernel's limit is 30 s.
pub(crate) fn floor_long(ufs: &mut Ufs) -> Result<String> {
    saturate(ufs, Duration::from_secs(120), &[], &[])
}

/// What a background task gets on a CPU that a time-sensitive one would fill: the least
/// share that the floor is told of, and with 0 a tick for each deadline. Where another
/// background task and its weight are in the way, a tick, too: nothing is owed.
pub(crate) fn floor_least(ufs: &mut Ufs) -> Result<String> {
    const DEADLINE_MS: u64 = 500;
    let span = 6000 * MS;
    let mut found = Vec::new();
    let mut part = |ufs: &mut Ufs, least: &str, tier: &str, what: &str| -> Result<f64> {
        let deadline = DEADLINE_MS.to_string();
        ufs.load(&["--floor-deadline-ms", &deadline, "--floor-least", least])?;
        let top = Cgroup::top()?;
        let (starved, other) = (
            top.child("background-starved", 1)?,
            top.child(tier, 10_000)?,
        );
        let _starves = burners(&other, &[0], 2)?;
        // Elsewhere nobody runs background work, nor is a CPU idle that could.
        let _others = Worker::burner(&top.child("urgent", 100)?, &[1])?;
        let burner = Worker::burner(&starved, &[0])?;
        sleep(2 * DEADLINE_MS as u32 * MS);
        let before = burner.seconds()?;
        sleep(span);
        let share = (burner.seconds()? - before) / span.as_secs_f64();
        found.push(format!("{what} {:.2} %", share * 100.0));
        ufs.stop(Signal::SIGTERM)?;
        Ok(share)
    };
    let least = part(ufs, "2", "sensitive", "least 2 %:")?;
    let none = part(ufs, "0", "sensitive", "least 0:")?;
    let weights = part(ufs, "2", "background-heavy", "beside background work:")?;
    let numbers = found.join(", ");
    // A run lasts up to a tick of 4 ms more than its slice.
    if !(0.015..=0.035).contains(&least) || none > 0.012 || weights > 0.012 || none == 0.0 {
        bail!("{numbers}; wanted 1.5 to 3.5 %, and 1.2 % at most in the other two");
    }
    Ok(numbers)
}

/// So many tasks are overdue on one CPU that its rests would be too long: each of them runs
/// once in two deadlines all the same.
pub(crate) fn floor_crowd(ufs: &mut Ufs) -> Result<String> {
    const CROWD: usize = 100;
    let deadline = 2000 * MS;
    ufs.load(&["--floor-deadline-ms", "2000"])?;
    let top = Cgroup::top()?;
    let (background, sensitive) = (top.child("background", 100)?, top.child("urgent", 100)?);
    let crowd: Vec<Worker> = (0..CROWD)
        .map(|_| Worker::burner(&background, &[0]))
        .collect::<Result<_>>()?;
    let _urgent = Worker::burner(&sensitive, &[0])?;
    sleep(2 * deadline);
    let seconds = || -> Result<Vec<f64>> { crowd.iter().map(Worker::seconds).collect() };
    let before = seconds()?;
    // And a timer period, and a tick for each CPU.
    sleep(2 * deadline + 100 * MS);
    let after = seconds()?;
    let ran = before.iter().zip(&after).filter(|(a, b)| b > a).count();
    let used: f64 = after.iter().sum::<f64>() - before.iter().sum::<f64>();
    let numbers = format!("{ran} of {CROWD} ran in two deadlines, for {used:.2} s");
    if ran < CROWD {
        bail!("{numbers}; wanted all");
    }
    Ok(numbers)
}

/// A CPU leaves and comes back; UFS restarts each time, and work goes on.
pub(crate) fn hotplug(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&[])?;
    let last = nr_cpus() - 1;
    let online = format!("/sys/devices/system/cpu/cpu{last}/online");
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let _burners = burners(&background, &[], 2)?;
    let mut took = Vec::new();
    for value in ["0", "1"] {
        let seq = enable_seq();
        fs::write(&online, value).with_context(|| format!("cannot write {online}"))?;
        let again = wait_until("UFS loading again", Duration::from_secs(120), || {
            enable_seq() > seq && state() == "enabled"
        })
        .with_context(|| ufs.log())?;
        took.push(again.as_millis());
        let before = background.seconds()?;
        sleep(500 * MS);
        if background.seconds()? - before < 0.1 {
            bail!("work has stopped after CPU {last} went to {value}");
        }
    }
    Ok(format!(
        "loaded again after {} ms and {} ms",
        took[0], took[1]
    ))
}

/// Overdue tasks wait for CPU 0, the only one that they may use and which an urgent task
/// wants, too, while the other CPUs come to dispatch a thousand times a second. Each
/// of those walks the queue of the overdue once for each that comes, and not each time.
pub(crate) fn floor_misses(ufs: &mut Ufs) -> Result<String> {
    ufs.load(&["--floor-deadline-ms", "300", "--floor-share", "1"])?;
    let top = Cgroup::top()?;
    let (background, sensitive) = (top.child("background", 100)?, top.child("urgent", 100)?);
    let _overdue = burners(&background, &[0], 30)?;
    let _urgent = Worker::burner(&sensitive, &[0])?;
    let others: Vec<usize> = (1..nr_cpus()).collect();
    sleep(1000 * MS);
    let count = |name: &str| -> Result<u64> {
        let stats = ufs.stats()?;
        stats[name].as_u64().with_context(|| format!("no {name}"))
    };
    let before = (count("nr_floor_misses")?, count("nr_floor_moves")?);
    let rounds = 1500;
    let sleeper = Worker::sleeper(&sensitive, &others, 500 * US, 100 * US, rounds)?;
    sleeper.delays_ns()?;
    let misses = count("nr_floor_misses")? - before.0;
    let moves = count("nr_floor_moves")? - before.1;
    let numbers = format!(
        "{misses} walks in vain of {} CPUs for {moves} overdue tasks, while one task slept \
         {rounds} times",
        others.len()
    );
    if moves < 10 || misses > moves * others.len() as u64 {
        bail!("{numbers}; wanted 10 tasks at least, and a walk for each on each CPU at most");
    }
    Ok(numbers)
}

/// With the last CPU offline and all others busy none is idle.
pub(crate) fn absent_cpus(ufs: &mut Ufs) -> Result<String> {
    let last = nr_cpus() - 1;
    let online = format!("/sys/devices/system/cpu/cpu{last}/online");
    let set = |value: &str| -> Result<()> {
        fs::write(&online, value).with_context(|| format!("cannot write {online}"))
    };
    ufs.stop(Signal::SIGTERM)?;
    set("0")?;
    let found = idle_cpus_of_busy_ones(ufs, last);
    ufs.stop(Signal::SIGTERM)?;
    set("1")?;
    let found = found?;
    if found != 0 {
        bail!("{found} CPUs are taken to be idle while {last} are busy and one is offline");
    }
    Ok(format!("none of {last} busy CPUs and one offline"))
}

/// The least number of CPUs that are taken to be idle, of several looks while `cpus` burn.
fn idle_cpus_of_busy_ones(ufs: &mut Ufs, cpus: usize) -> Result<u64> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let _burners = burners(&top.child("urgent", 100)?, &[], 2 * cpus)?;
    sleep(300 * MS);
    let mut least = u64::MAX;
    for _ in 0..5 {
        let idle = ufs.stats()?["nr_idle_cpus"].as_u64();
        least = least.min(idle.context("no nr_idle_cpus")?);
        sleep(20 * MS);
    }
    Ok(least)
}

/// Work goes on in `group` under the kernel's own scheduler.
fn goes_on(group: &Cgroup) -> Result<()> {
    let before = group.seconds()?;
    sleep(500 * MS);
    if state() != "disabled" {
        bail!("the state is {}, not disabled", state());
    }
    if group.seconds()? - before < 0.1 {
        bail!("work has stopped");
    }
    Ok(())
}

fn left_by(
    ufs: &mut Ufs,
    leave: impl FnOnce(Pid) -> Result<()>,
) -> Result<(std::process::ExitStatus, String)> {
    ufs.load(&[])?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let _burners = burners(&background, &[], 2 * nr_cpus())?;
    sleep(100 * MS);
    let start = Instant::now();
    leave(ufs.pid()?)?;
    wait_until("the kernel's scheduler", Duration::from_secs(30), || {
        state() == "disabled"
    })?;
    let took = start.elapsed();
    let status = ufs.wait()?;
    goes_on(&background)?;
    Ok((
        status,
        format!(
            "the kernel's scheduler was back after {} ms",
            took.as_millis()
        ),
    ))
}

/// Exit status 0.
pub(crate) fn sigterm(ufs: &mut Ufs) -> Result<String> {
    let (status, numbers) = left_by(ufs, |pid| Ok(kill(pid, Signal::SIGTERM)?))?;
    if !status.success() {
        bail!("{numbers}, but scx_ufs ended with {status}:\n{}", ufs.log());
    }
    Ok(numbers)
}

/// Exit status not 0, and the reason on stderr.
pub(crate) fn sysrq(ufs: &mut Ufs) -> Result<String> {
    let (status, numbers) = left_by(ufs, |_| {
        fs::write("/proc/sys/kernel/sysrq", "1")?;
        Ok(fs::write("/proc/sysrq-trigger", "S")?)
    })?;
    if status.success() || !ufs.log().to_lowercase().contains("sysrq") {
        bail!(
            "{numbers}, but scx_ufs ended with {status} and said:\n{}",
            ufs.log()
        );
    }
    Ok(numbers)
}
