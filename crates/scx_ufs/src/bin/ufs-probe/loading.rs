//! Claims about loading UFS, and about attaching what is loaded.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;

use crate::cgroup::Cgroup;
use crate::ufs::{Ufs, state, wait_until};
use crate::worker::{Worker, burners, nr_cpus, used_by};

const LIMIT: Duration = Duration::from_secs(120);
/// Attaching takes less, and loading more.
const SOON: Duration = Duration::from_millis(500);
const WATCHED: Duration = Duration::from_millis(600);

/// Instructions that the verifier may go through, all callbacks together: half more than
/// it did when this was written. A helper that is verified anew wherever it is called
/// multiplies, and so does a loop that keeps several facts about what it has seen; either
/// once was too many for the kernel.
const VERIFIED_MAX: u64 = 150_000;

/// Machines that UFS is verified for: the smallest, those at the end of the first word of a
/// set of CPUs and behind it, and the largest.
const SIZES: [usize; 4] = [2, 64, 128, 1024];

/// The verifier's work, which is most of what loading takes, has a bound, and it is the
/// same for any number of CPUs.
pub(crate) fn verified(ufs: &mut Ufs) -> Result<String> {
    ufs.stop(Signal::SIGTERM)?;
    let mut verdicts = Vec::new();
    for cpus in SIZES {
        for placement in ["", "--flat"] {
            verdicts.push(verified_for(ufs, cpus, placement)?);
        }
    }
    Ok(verdicts.join("; "))
}

fn verified_for(ufs: &Ufs, cpus: usize, placement: &str) -> Result<String> {
    let size = cpus.to_string();
    let args: Vec<&str> = ["--verify-for", &size, placement]
        .into_iter()
        .filter(|arg| !arg.is_empty())
        .collect();
    let began = Instant::now();
    let (status, said) = ufs.run_another(&args)?;
    let took = began.elapsed().as_millis();
    let told = said.lines().find(|line| line.starts_with('{'));
    let Some(told) = told.filter(|_| status.success()) else {
        bail!("{args:?} after {took} ms, {status}: {}", said.trim());
    };
    let programs: BTreeMap<String, u64> = serde_json::from_str(told)?;
    let sum: u64 = programs.values().sum();
    let mut most: Vec<(&String, &u64)> = programs.iter().collect();
    most.sort_by_key(|(_, insns)| std::cmp::Reverse(**insns));
    let most: Vec<String> = most
        .iter()
        .map(|(name, insns)| format!("{name} {insns}"))
        .collect();
    let numbers = format!(
        "{} in {took} ms: {sum} instructions in {} callbacks: {}",
        args.join(" "),
        programs.len(),
        most.join(", ")
    );
    println!("{numbers}");
    if programs.is_empty() || sum > VERIFIED_MAX {
        bail!("{numbers}; wanted {VERIFIED_MAX} at most");
    }
    Ok(format!("{} {sum}", args.join(" ")))
}

/// Without statistics UFS schedules as ever, and nobody answers for it.
pub(crate) fn without_statistics(ufs: &mut Ufs) -> Result<String> {
    ufs.stop(Signal::SIGTERM)?;
    let mut quiet = ufs.start_another("quiet", &["--no-stats"])?;
    wait_until("loading UFS", LIMIT, || state() == "enabled")?;
    let top = Cgroup::top()?;
    let groups = [
        top.child("background", 100)?,
        top.child("time_sensitive", 100)?,
    ];
    let background = Worker::burner(&groups[0], &[0])?;
    let urgent = Worker::burner(&groups[1], &[0])?;
    std::thread::sleep(Duration::from_millis(200));
    let (low, high) = used_by(&background, &urgent, Duration::from_secs(1))?;
    let answer = ufs.stats();
    let said = quiet.said();
    let status = quiet.stop()?;
    let numbers = format!("background {low:.2} s beside {high:.2} s; {status}");
    if answer.is_ok() || low > 0.1 || high < 0.8 || !status.success() || said.contains("WARN") {
        bail!("{numbers}; statistics: {answer:?}; said {said}");
    }
    Ok(numbers)
}

/// A loader that attaches and detaches on command.
struct Standby {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Standby {
    /// Starts it; it is loaded and not attached.
    fn start(ufs: &Ufs, args: &[&str]) -> Result<Standby> {
        let mut child = Command::new(ufs.binary())
            .arg("--standby")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("its output is piped")?;
        let mut standby = Standby {
            child,
            said: BufReader::new(out),
        };
        standby.wait_ready()?;
        Ok(standby)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        match line.as_str() {
            "ready\n" => Ok(()),
            said => bail!("it said '{said}', not that it is ready"),
        }
    }

    fn command(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("its input is piped")?;
        Ok(input.write_all(b"now\n")?)
    }

    /// Has it attach; how long that took.
    fn attach(&mut self) -> Result<Duration> {
        self.command()?;
        wait_until("attaching", LIMIT, || state() == "enabled")
    }

    /// Has it detach, and waits until it is ready again.
    fn detach(&mut self) -> Result<()> {
        self.command()?;
        self.wait_ready()?;
        match state().as_str() {
            "disabled" => Ok(()),
            state => bail!("it is ready while the state is {state}"),
        }
    }

    /// Closes its input, at which it ends.
    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        match self.child.wait()? {
            status if status.success() => Ok(()),
            status => bail!("it ended with {status}"),
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A standby loader attaches several times, beside tasks and cgroups of which some
/// were there before, some have gone and some are new, with work queued whenever it
/// detaches. Each time it starts from fresh state: tiers, weights, limits and statistics
/// are those of now.
pub(crate) fn reattach(ufs: &mut Ufs) -> Result<String> {
    ufs.stop(Signal::SIGTERM)?;
    let mut standby = Standby::start(ufs, &[])?;
    let top = Cgroup::top()?;
    let urgent = top.child("time_sensitive", 100)?;
    let light = top.child("background-light", 100)?;
    let heavy = top.child("background-heavy", 300)?;
    let limited = top.child("limited", 100)?;
    let wish = Worker::burner(&urgent, &[0])?;
    let low = [
        Worker::burner(&light, &[0, 1])?,
        Worker::burner(&heavy, &[0, 1])?,
    ];
    let crowd = burners(&light, &[], 2 * nr_cpus())?;
    let hog = Worker::burner(&limited, &[0])?;
    let mut passing: Vec<Cgroup> = Vec::new();
    let mut said = Vec::new();
    for round in 0..4 {
        let is_limited = round % 2 == 0;
        limited.set_max(if is_limited { "10000 100000" } else { "max" })?;
        let began = Instant::now();
        let took = standby.attach()?;
        if took > SOON {
            bail!(
                "round {round}: attached {took:?} after the command, as late as if it was loaded for it"
            );
        }
        std::thread::sleep(Duration::from_millis(300));
        let (high, behind) = used_by(&wish, &low[0], Duration::from_millis(500))?;
        if behind > high / 4.0 {
            bail!("round {round}: {behind:.2} s in the background beside {high:.2} s urgent");
        }
        drop(passing.drain(..));
        for number in 0..20 {
            passing.push(top.child(&format!("background-{round}-{number}"), 100)?);
        }
        let before = limited.seconds()?;
        std::thread::sleep(WATCHED);
        let share = (limited.seconds()? - before) / WATCHED.as_secs_f64();
        if is_limited && share > 0.25 || !is_limited && share < 0.3 {
            bail!("round {round}: {share:.2} of a CPU, limited: {is_limited}");
        }
        // Urgent work has one CPU of two, all the time: what was counted of an earlier
        // turn would show.
        let (counted, in_force) = (ufs.tier_seconds("time_sensitive")?, began.elapsed());
        if counted > 1.3 * in_force.as_secs_f64() {
            bail!("round {round}: {counted:.1} s of urgent work within {in_force:?}");
        }
        said.push(format!("{}", took.as_millis()));
        standby.detach()?;
    }
    drop((crowd, hog, wish, low));
    // Another loader in between.
    ufs.load(&[])?;
    ufs.stop(Signal::SIGTERM)?;
    standby.attach()?;
    standby.detach()?;
    standby.end()?;
    Ok(format!("attached {} ms after the command", said.join(", ")))
}
