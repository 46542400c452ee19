//! Tasks that are stopped, traced, frozen and changed.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::machine::set_policy;
use super::{LONGEST_WAIT, MS, Witness, all_run, load_strict, tiers_hold};
use crate::cgroup::Cgroup;
use crate::survival::Random;
use crate::ufs::{Ufs, wait_until};
use crate::worker::{Worker, burners, nr_cpus, used_by};

/// A background and an urgent task on one CPU, each in a cgroup of its own.
pub(super) struct Pair {
    low: Worker,
    high: Worker,
    background: Cgroup,
    sensitive: Cgroup,
    top: Cgroup,
}

impl Pair {
    pub(super) fn new(cpus: &[usize]) -> Result<Self> {
        let top = Cgroup::top()?;
        let background = top.child("background", 100)?;
        let sensitive = top.child("time_sensitive", 100)?;
        Ok(Self {
            low: Worker::burner(&background, cpus)?,
            high: Worker::burner(&sensitive, cpus)?,
            background,
            sensitive,
            top,
        })
    }

    pub(super) fn tiers_hold(&self) -> Result<String> {
        tiers_hold(&self.high, &self.low)
    }

    fn all_run(&self) -> Result<Duration> {
        all_run(&[&self.low, &self.high], LONGEST_WAIT)
    }
}

/// Stopped and continued at random, and for longer than the kernel lets a
/// runnable task wait.
pub(crate) fn stopped(ufs: &mut Ufs) -> Result<String> {
    const SEED: u64 = 0x5709;
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let pair = Pair::new(&[0])?;
    let mut random = Random(SEED);
    for _ in 0..200 {
        let worker = [&pair.low, &pair.high][random.below(2)];
        worker.signal([Signal::SIGSTOP, Signal::SIGCONT][random.below(2)])?;
        std::thread::sleep(random.below(10) as u32 * MS);
    }
    pair.low.signal(Signal::SIGCONT)?;
    pair.high.signal(Signal::SIGSTOP)?;
    let (high, low) = used_by(&pair.high, &pair.low, 5000 * MS)?;
    if high > 0.02 || low < 4.5 {
        bail!("with the urgent task stopped {high:.2} s beside {low:.2} s in 5 s");
    }
    pair.high.signal(Signal::SIGCONT)?;
    let numbers = pair.tiers_hold()?;
    pair.all_run()?;
    witness.ufs_stayed(ufs)?;
    Ok(format!(
        "seed {SEED:#x}, 200 signals, then 5 s stopped; {numbers}"
    ))
}

/// One request of ptrace(2) without an address.
fn trace(request: libc::c_uint, pid: i32) -> Result<()> {
    // SAFETY: these requests read and write no memory of ours.
    let done = unsafe { libc::ptrace(request, pid, 0, 0) };
    if done < 0 {
        return Err(std::io::Error::last_os_error()).context("ptrace");
    }
    Ok(())
}

/// A debugger comes and goes, a hundred times for each task.
pub(crate) fn traced(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let pair = Pair::new(&[])?;
    let more = burners(&pair.background, &[], nr_cpus())?;
    let mut longest = Duration::ZERO;
    for round in 0..200 {
        let worker = [&pair.low, &pair.high][round % 2];
        trace(libc::PTRACE_ATTACH, worker.pid())?;
        let took = wait_until("a traced task stops", LONGEST_WAIT, || {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
            let status = waitpid(Pid::from_raw(worker.pid()), Some(flags));
            matches!(status, Ok(WaitStatus::Stopped(..)))
        })?;
        longest = longest.max(took);
        trace(libc::PTRACE_DETACH, worker.pid())?;
    }
    pair.all_run()?;
    all_run(&more.iter().collect::<Vec<_>>(), LONGEST_WAIT)?;
    drop(more);
    let mut first = CpuSet::new();
    first.set(0)?;
    for worker in [&pair.low, &pair.high] {
        sched_setaffinity(Pid::from_raw(worker.pid()), &first)?;
    }
    let numbers = pair.tiers_hold()?;
    witness.ufs_stayed(ufs)?;
    Ok(format!(
        "200 times, the task stopped after {} ms at most; {numbers}",
        longest.as_millis()
    ))
}

/// Cgroups frozen and thawed, while urgent work keeps theirs from the CPU and
/// while it does not.
pub(crate) fn frozen(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let pair = Pair::new(&[0])?;
    let mut longest = Duration::ZERO;
    for round in 0..20 {
        let (group, worker) = match round % 2 {
            0 => (&pair.background, &pair.low),
            _ => (&pair.sensitive, &pair.high),
        };
        group.set("cgroup.freeze", "1")?;
        let took = wait_until("a cgroup freezes", LONGEST_WAIT, || {
            group.get("cgroup.events", "frozen").is_ok_and(|is| is == 1)
        })?;
        longest = longest.max(took);
        // Once for longer than the kernel lets a runnable task wait.
        let span = if round == 10 { 5000 * MS } else { 20 * MS };
        let before = worker.seconds()?;
        std::thread::sleep(span);
        if worker.seconds()? > before {
            bail!("a frozen task has run");
        }
        group.set("cgroup.freeze", "0")?;
    }
    let numbers = pair.tiers_hold()?;
    pair.all_run()?;
    witness.ufs_stayed(ufs)?;
    Ok(format!(
        "20 times, after {} ms at most; {numbers}",
        longest.as_millis()
    ))
}

/// Turns of a task's policy, niceness, weight and place that may come at any
/// time: each takes effect, and what is changed back is as before.
pub(crate) fn live_changes(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let pair = Pair::new(&[])?;
    let low = &pair.low;
    pair.top.set("cgroup.subtree_control", "+cpuset")?;
    for group in [&pair.background, &pair.sensitive] {
        group.set("cpuset.cpus", "0")?;
    }
    let both = |span| used_by(&pair.high, low, span);
    let mut told = vec![pair.tiers_hold()?];
    for policy in ["-b", "-i", "-f", "-o"] {
        set_policy(low.pid(), &[policy])?;
        if policy == "-f" {
            let (_, real_time) = both(300 * MS)?;
            if real_time < 0.2 {
                bail!("a background task made real-time used {real_time:.2} s of 0.3 s");
            }
            continue;
        }
        pair.tiers_hold()
            .with_context(|| format!("after chrt {policy}"))?;
    }
    for nice in [-20, 19, 0] {
        // SAFETY: plain numbers.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, low.pid() as u32, nice) };
        pair.tiers_hold()
            .with_context(|| format!("at nice {nice}"))?;
    }
    for (weight, other) in [(10_000, 1), (100, 100)] {
        pair.background.set_weight(weight)?;
        pair.sensitive.set_weight(other)?;
        pair.tiers_hold()
            .with_context(|| format!("at weight {weight}"))?;
    }
    // With the other gone to another CPU it has this one at once.
    pair.sensitive.set("cpuset.cpus", "1")?;
    let (a, b) = both(500 * MS)?;
    told.push(format!("on CPUs of their own {a:.2} s and {b:.2} s"));
    if a < 0.4 || b < 0.4 {
        bail!("{}", told.join(", "));
    }
    pair.sensitive.set("cpuset.cpus", "0")?;
    pair.tiers_hold().context("on one CPU again")?;
    // Among time-sensitive work it is an equal, and comes back as what it was.
    pair.sensitive.set("cgroup.procs", &low.pid().to_string())?;
    let (a, b) = both(500 * MS)?;
    told.push(format!("in one tier {a:.2} s and {b:.2} s"));
    if (a - b).abs() > 0.1 {
        bail!("{}", told.join(", "));
    }
    pair.background
        .set("cgroup.procs", &low.pid().to_string())?;
    told.push(pair.tiers_hold().context("back in the background")?);
    witness.ufs_stayed(ufs)?;
    Ok(told.join(", "))
}
