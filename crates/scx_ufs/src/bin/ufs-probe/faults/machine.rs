//! CPUs that come and go, clocks that jump, and work of other classes.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use nix::time::{ClockId, clock_gettime, clock_settime};

use super::{LONGEST_WAIT, MS, Witness, all_run, load_strict};
use crate::cgroup::Cgroup;
use crate::survival::Random;
use crate::ufs::{Ufs, enable_seq, state, wait_until};
use crate::worker::{Worker, burners, nr_cpus};

/// A CPU goes and comes faster than UFS can load. In the end UFS is in force
/// again, or its loader has ended and Linux's own scheduler is.
pub(crate) fn flapping_cpu(ufs: &mut Ufs) -> Result<String> {
    const SEED: u64 = 0xf1a9;
    ufs.load(&[])?;
    let witness = Witness::new()?;
    let last = nr_cpus() - 1;
    let online = format!("/sys/devices/system/cpu/cpu{last}/online");
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let sensitive = top.child("time_sensitive", 100)?;
    let mut workers = burners(&background, &[], 2)?;
    workers.push(Worker::burner(&background, &[last])?);
    workers.push(Worker::burner(&sensitive, &[last])?);
    let mut random = Random(SEED);
    for _ in 0..4 {
        for value in ["0", "1"] {
            fs::write(&online, value).with_context(|| format!("cannot write {online}"))?;
            sleep(random.below(600) as u32 * MS);
        }
    }
    let mut since = (enable_seq(), Instant::now());
    let mut goes_on = false;
    wait_until("an end of restarts", Duration::from_secs(120), || {
        goes_on = ufs.is_running();
        let settled = if goes_on { "enabled" } else { "disabled" };
        if enable_seq() != since.0 || state() != settled {
            since = (enable_seq(), Instant::now());
        }
        since.1.elapsed() > Duration::from_secs(1)
    })
    .with_context(|| ufs.log())?;
    let all: Vec<&Worker> = workers.iter().collect();
    // The floor's deadline is 5 s here.
    all_run(&all, 5 * LONGEST_WAIT)?;
    witness.no_harm()?;
    let again = ufs.log().matches("loading again").count();
    let loads = enable_seq() - witness.seq;
    let told = format!("seed {SEED:#x}: loaded again {again} times, {loads} of them to the end");
    if goes_on {
        return Ok(format!("{told}; UFS stays"));
    }
    let status = ufs.wait()?;
    if status.success() || !ufs.log().contains("Error") {
        bail!(
            "{told}; the loader ended with {status} and said: {}",
            ufs.log()
        );
    }
    Ok(format!(
        "{told}; its loader ended with {status}, Linux's scheduler stays"
    ))
}

/// The wall clock jumps; nothing that UFS does depends on it.
pub(crate) fn clock_jumps(ufs: &mut Ufs) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let sensitive = top.child("time_sensitive", 100)?;
    let starving = Worker::burner(&background, &[0])?;
    let burner = Worker::burner(&sensitive, &[0])?;
    // Asked before anybody watches: the loader, which answers, is time-sensitive too, and
    // takes milliseconds of the CPU that it would share with the watcher.
    let before = ufs.tier_seconds("time_sensitive")?;
    let watcher = Worker::sleeper(&sensitive, &[1], 5 * MS, MS / 10, 400)?;
    let start = (Instant::now(), clock_gettime(ClockId::CLOCK_REALTIME)?);
    let day = 24 * 3600;
    for seconds in [day, -2 * day, 20 * 365 * day, 1, -3600] {
        let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
        let there = now + TimeSpec::seconds(seconds);
        clock_settime(ClockId::CLOCK_REALTIME, there)?;
        sleep(300 * MS);
    }
    let delays = watcher.delays_ns()?;
    let back = start.1 + TimeSpec::from_duration(start.0.elapsed());
    clock_settime(ClockId::CLOCK_REALTIME, back)?;
    all_run(&[&starving, &burner], LONGEST_WAIT)?;
    let used = ufs.tier_seconds("time_sensitive")? - before;
    witness.ufs_stayed(ufs)?;
    let worst = delays[delays.len() - 1] / 1000;
    let numbers = format!(
        "days and decades to and fro: a watcher woke at most {worst} us late, time-sensitive \
         work used {used:.1} s of {:.1} s",
        start.0.elapsed().as_secs_f64()
    );
    // Two ticks; and one CPU's time at most, beside the watcher's 2 %.
    if worst > 8000 || used > 1.2 * start.0.elapsed().as_secs_f64() {
        bail!("{numbers}");
    }
    Ok(numbers)
}

/// Has `chrt` change the policy of a process, at priority 50 if it has any.
pub(super) fn set_policy(pid: i32, policy: &[&str]) -> Result<()> {
    let priority = if policy == ["-f"] { "50" } else { "0" };
    chrt(pid, policy, priority)
}

fn chrt(pid: i32, policy: &[&str], priority: &str) -> Result<()> {
    let output = Command::new("chrt")
        .args(policy)
        .args(["-p", priority])
        .arg(pid.to_string())
        .output()
        .context("chrt")?;
    if !output.status.success() {
        bail!(
            "chrt {policy:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Hogs of another class on every CPU for longer than the kernel lets a task
/// wait: no task starves for so long that UFS is ejected, and all goes on when
/// they have gone. `least`: of each CPU for the tasks of UFS.
fn hogs(ufs: &mut Ufs, policy: &[&str], least: f64) -> Result<String> {
    load_strict(ufs)?;
    let witness = Witness::new()?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let sensitive = top.child("time_sensitive", 100)?;
    let mut workers = burners(&sensitive, &[], nr_cpus())?;
    workers.push(Worker::sleeper(
        &sensitive,
        &[],
        5 * MS,
        MS / 10,
        1_000_000,
    )?);
    workers.extend(burners(&background, &[], nr_cpus())?);
    let others = top.child("hogs", 100)?;
    let hogs = burners(&others, &[], nr_cpus())?;
    // Above the hogs, to end them; whatever is started by us is not.
    let own = std::process::id() as i32;
    chrt(own, &["-R", "-f"], "60")?;
    let measure = || -> Result<(f64, f64)> {
        for hog in &hogs {
            set_policy(hog.pid(), policy)?;
        }
        let span = Duration::from_millis(4500);
        let before = (sensitive.seconds()?, background.seconds()?);
        sleep(span);
        let whole = span.as_secs_f64() * nr_cpus() as f64;
        let share = (sensitive.seconds()? - before.0) / whole;
        let low = (background.seconds()? - before.1) / whole;
        Ok((share, low))
    };
    let measured = measure();
    drop(hogs);
    set_policy(own, &["-o"])?;
    let (share, low) = measured?;
    let all: Vec<&Worker> = workers.iter().collect();
    let ran = all_run(&all, LONGEST_WAIT)?;
    witness.ufs_stayed(ufs)?;
    let numbers = format!(
        "beside hogs on every CPU time-sensitive work had {:.1} %, background work {:.1} %; \
         without them every task ran within {} ms",
        share * 100.0,
        low * 100.0,
        ran.as_millis()
    );
    if share < least {
        bail!(
            "{numbers}, time-sensitive work less than {:.0} %",
            least * 100.0
        );
    }
    Ok(numbers)
}

/// A real-time task takes the CPU of a time-sensitive one while the others run background
/// work: the time-sensitive task goes on there.
pub(crate) fn fifo_hog_of_one(ufs: &mut Ufs) -> Result<String> {
    const ROUNDS: u32 = 5;
    load_strict(ufs)?;
    let top = Cgroup::top()?;
    let background = top.child("background", 100)?;
    let sensitive = top.child("time_sensitive", 100)?;
    let others = top.child("hogs", 100)?;
    let burner = Worker::burner(&sensitive, &[])?;
    let _low = burners(&background, &[], nr_cpus())?;
    let own = std::process::id() as i32;
    let span = Duration::from_millis(200);
    let mut used = 0.0;
    for _ in 0..ROUNDS {
        let hog = Worker::burner(&others, &[burner.cpu()?])?;
        // Above the hog, to end it; what is started by us is not.
        chrt(own, &["-R", "-f"], "60")?;
        set_policy(hog.pid(), &["-f"])?;
        let before = burner.seconds()?;
        sleep(span);
        used += burner.seconds()? - before;
        drop(hog);
        set_policy(own, &["-o"])?;
    }
    let share = used / (span * ROUNDS).as_secs_f64();
    let back = ufs.stats()?["nr_handed_back"].as_u64().unwrap_or(0);
    let numbers = format!(
        "a time-sensitive task whose CPU a real-time task took had {:.0} % of a CPU; \
         {back} tasks were queued again",
        share * 100.0
    );
    if share < 0.9 {
        bail!("{numbers}, less than 90 %");
    }
    Ok(numbers)
}

/// The kernel keeps 5 % of a CPU from real-time tasks; the floor's part of
/// that, and what switches cost, go off.
pub(crate) fn fifo_hogs(ufs: &mut Ufs) -> Result<String> {
    hogs(ufs, &["-f"], 0.02)
}

/// Half of every CPU.
pub(crate) fn deadline_hogs(ufs: &mut Ufs) -> Result<String> {
    let half = [
        "-d",
        "--sched-runtime",
        "50000000",
        "--sched-deadline",
        "100000000",
        "--sched-period",
        "100000000",
    ];
    hogs(ufs, &half, 0.35)
}
