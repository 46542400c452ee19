//! Processes that do something simple in a cgroup: this program, started again.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};

use crate::cgroup::Cgroup;

/// A worker; dropping it kills it.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(
        group: &Cgroup,
        cpus: &[usize],
        kind: &str,
        args: &[String],
    ) -> Result<Self> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu)?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(format!("--worker={kind}"))
            .args(args)
            .stdout(Stdio::piped());
        group.admit(&mut command);
        if !cpus.is_empty() {
            // SAFETY: between fork and exec of a process with one thread.
            unsafe {
                command.pre_exec(move || Ok(sched_setaffinity(Pid::from_raw(0), &set)?));
            }
        }
        Ok(Self(command.spawn().context("cannot start a worker")?))
    }

    /// Burns CPU time for ever. `cpus`: where it may run; empty means anywhere.
    pub(crate) fn burner(group: &Cgroup, cpus: &[usize]) -> Result<Self> {
        Self::start(group, cpus, "burn", &[])
    }

    /// Burns `busy` after each sleep of `sleep`, `rounds` times, and prints how
    /// late each sleep ended.
    pub(crate) fn sleeper(
        group: &Cgroup,
        cpus: &[usize],
        sleep: Duration,
        busy: Duration,
        rounds: u32,
    ) -> Result<Self> {
        let args = [
            sleep.as_nanos().to_string(),
            busy.as_nanos().to_string(),
            rounds.to_string(),
        ];
        Self::start(group, cpus, "sleep", &args)
    }

    /// The same for `span`, whatever number of rounds that is.
    pub(crate) fn sleeper_for(
        group: &Cgroup,
        sleep: Duration,
        busy: Duration,
        span: Duration,
    ) -> Result<Self> {
        let args = [sleep, busy, span].map(|time| time.as_nanos().to_string());
        Self::start(group, &[], "sleep-for", &args)
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut byte = [0];
        let out = self.0.stdout.as_mut()?;
        while out.read(&mut byte).ok()? == 1 && byte[0] != b'\n' {
            text.push(byte[0].into());
        }
        (!text.is_empty()).then_some(text)
    }

    /// CPU time used so far, in seconds.
    pub(crate) fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid()))?;
        let ns: f64 = text.split(' ').next().unwrap_or_default().parse()?;
        Ok(ns / 1e9)
    }

    /// What the kernel says it does: R, S, T, Z and so on.
    pub(crate) fn state(&self) -> Result<char> {
        self.stat(3)?.chars().next().context("no state in stat")
    }

    /// The CPU that it runs on, or ran on last.
    pub(crate) fn cpu(&self) -> Result<usize> {
        Ok(self.stat(39)?.parse()?)
    }

    /// The field of `/proc/PID/stat` that proc(5) gives this number, 3 or more.
    fn stat(&self, number: usize) -> Result<String> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // Behind the name, which ends at the last parenthesis.
        let field = text
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(number - 3));
        Ok(field.context("stat is too short")?.to_owned())
    }

    /// Its number; that of its first thread.
    pub(crate) fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// Gives it another scheduling policy, one without a priority.
    pub(crate) fn set_policy(&self, policy: i32) -> Result<()> {
        let none = nix::libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure lives for as long as the call.
        let result = unsafe { nix::libc::sched_setscheduler(self.pid(), policy, &none) };
        nix::errno::Errno::result(result)?;
        Ok(())
    }

    /// Gives it another nice value.
    pub(crate) fn set_nice(&self, nice: i32) -> Result<()> {
        // SAFETY: the call takes numbers only.
        let result = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, self.0.id(), nice) };
        nix::errno::Errno::result(result)?;
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// Waits for a sleeper's end; its delays, sorted, in nanoseconds.
    pub(crate) fn delays_ns(mut self) -> Result<Vec<u64>> {
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut text)?;
        }
        let mut delays = text
            .lines()
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()?;
        if delays.is_empty() {
            bail!("a sleeper measured nothing");
        }
        delays.sort_unstable();
        Ok(delays)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `count` burners.
pub(crate) fn burners(group: &Cgroup, cpus: &[usize], count: usize) -> Result<Vec<Worker>> {
    (0..count).map(|_| Worker::burner(group, cpus)).collect()
}

/// Waits until each burner has begun to burn, by its own word: no CPU time says so, since
/// starting takes more of it the larger the program is.
///
/// One that is still starting sleeps in the kernel when it needs a page that another
/// one is bringing in. If that one's cgroup is throttled meanwhile, both stand still
/// for as long as that lasts, and neither waits for a CPU (throttle_queue.bpf.h, WEAKNESSES).
pub(crate) fn until_they_burn(workers: &mut [Worker]) -> Result<()> {
    for worker in workers {
        worker.line().context("a burner did not begin")?;
    }
    Ok(())
}

/// CPU time that each of two workers used in `span`, in seconds.
pub(crate) fn used_by(a: &Worker, b: &Worker, span: Duration) -> Result<(f64, f64)> {
    let before = (a.seconds()?, b.seconds()?);
    std::thread::sleep(span);
    Ok((a.seconds()? - before.0, b.seconds()? - before.1))
}

/// The `percent`-th percentile of sorted numbers.
pub(crate) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// The CPUs of this machine.
pub(crate) fn nr_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

pub(crate) fn burn_for(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

/// Sleeps and burns as long as `goes_on`, and prints how late each sleep ended.
fn rounds_of(sleep: &str, busy: &str, goes_on: impl Fn(usize, Duration) -> bool) -> Result<()> {
    let (sleep, busy) = (
        Duration::from_nanos(sleep.parse()?),
        Duration::from_nanos(busy.parse()?),
    );
    let began = Instant::now();
    let mut delays = String::new();
    for round in 0.. {
        if !goes_on(round, began.elapsed()) {
            break;
        }
        let start = Instant::now();
        std::thread::sleep(sleep);
        let late = start.elapsed().saturating_sub(sleep);
        delays.push_str(&format!("{}\n", late.as_nanos()));
        burn_for(busy);
    }
    print!("{delays}");
    Ok(())
}

/// What a worker does.
pub(crate) fn main(kind: &str, args: &[String]) -> Result<()> {
    match (kind, args) {
        ("burn", _) => {
            burn_for(Duration::from_millis(1));
            println!("burning");
            loop {
                burn_for(Duration::from_secs(1));
            }
        }
        ("bomb", _) => loop {
            // SAFETY: a process with one thread. Whoever comes out of it goes on.
            if let Ok(ForkResult::Parent { .. }) = unsafe { fork() } {
                burn_for(Duration::from_millis(1));
            }
        },
        ("sleep", [sleep, busy, rounds]) => {
            let rounds: usize = rounds.parse()?;
            rounds_of(sleep, busy, |round, _| round < rounds)
        }
        ("sleep-for", [sleep, busy, span]) => {
            let span = Duration::from_nanos(span.parse()?);
            rounds_of(sleep, busy, |_, elapsed| elapsed < span)
        }
        ("relay", _) => crate::debts::relay(),
        ("hand-over", _) => crate::handing::hand_over(),
        ("holds-anew", _) => crate::handing::hold_anew(),
        ("borrow", [tier, forks]) => crate::rights::borrow(tier.parse()?, forks.parse()?),
        ("burn-as", [id]) => crate::rights::burn_as(id.parse()?),
        ("forge", [id, victims @ ..]) => {
            let victims = victims.iter().map(|tid| Ok(tid.parse()?));
            crate::rights::forge(id.parse()?, &victims.collect::<Result<Vec<u32>>>()?)
        }
        ("revoked", _) => crate::rights::lose_the_right(),
        ("family", [tier, id]) => crate::inherited::family(tier.parse()?, id.parse()?),
        _ => crate::hinted::main(kind, args),
    }
}
