//! Random changes for a given time, while invariants are checked.
//!
//! ```text
//!   make, end, stop, continue     a task, in either tier, hinted or not
//!   move, pin, re-nice            a task
//!   make, remove, re-weigh        a cgroup
//!   claim, hold, wait             a hint slot
//! ```
//!
//! INVARIANTS, each checked every 200 ms or every second:
//!   1. UFS stays attached without a break; the kernel does not complain. Its own limit
//!      for a task's wait is 4 s here. (checked in `Witness::ufs_stayed`)
//!   2. No task, dying ones included, is runnable for longer than
//!      [`LONGEST_WAIT`](super::LONGEST_WAIT) without using CPU time. (in `Waits::look`)
//!   3. The tiers have not used more time than there was, the cgroups not more
//!      than the tiers; no counter decreases. (in `Sample::check`)
//!
//! and in the end, when all tasks have gone:
//!   4. No slot has an owner. (in `quiet`)
//!   5. No task is counted as waiting: UFS's timer finds no reason to wake an idle CPU.
//!      (in `quiet`)
//!
//! UFS asserts its own invariants meanwhile: `Ufs::check_invariants` reads the counters.
//!
//! `GIVEWAY_STRESS_SECONDS` and `GIVEWAY_STRESS_SEED` say how long and with which
//! random numbers. On the lockstep clock a seed repeats itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use giveway_hints::slot::Table;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::invariants::{Sample, Waits};
use super::{MS, Witness, load_strict};
use crate::cgroup::Cgroup;
use crate::survival::Random;
use crate::ufs::Ufs;
use crate::worker::{Worker, nr_cpus};

const TASKS_MAX: usize = 12;
const GROUPS_MAX: usize = 24;
/// How often every task is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How often a run that takes longer says how far it is.
const NEWS: Duration = Duration::from_secs(60);

fn number_of(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name}={text}: write a whole number")),
        Err(_) => Ok(default),
    }
}

/// The tasks, cgroups and random numbers of a run.
struct Stress {
    random: Random,
    steps: u64,
    tasks: Vec<Worker>,
    /// Numbers of those that are stopped.
    stopped: Vec<i32>,
    groups: Vec<Cgroup>,
    /// Killed, and not yet gone: to die takes a CPU, for which they may wait.
    dying: (Vec<Worker>, Vec<Cgroup>),
    parents: Vec<Cgroup>,
    /// Where tasks start: in the background a start may wait for the floor, and
    /// we with it.
    nursery: Cgroup,
    _top: Cgroup,
}

impl Stress {
    fn new(seed: u64) -> Result<Self> {
        let top = Cgroup::top()?;
        let names = ["background", "time_sensitive", "plain"];
        let parents = names.map(|name| top.child(name, 100));
        Ok(Self {
            random: Random(seed),
            steps: 0,
            tasks: Vec::new(),
            stopped: Vec::new(),
            groups: Vec::new(),
            dying: (Vec::new(), Vec::new()),
            parents: parents.into_iter().collect::<Result<_>>()?,
            nursery: top.child("nursery", 10_000)?,
            _top: top,
        })
    }

    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        let weight = 1 + self.random.below(10_000) as u32;
        match self.random.below(10) {
            0 if self.groups.len() < GROUPS_MAX => {
                let parent = &self.parents[self.random.below(self.parents.len())];
                let group = parent.child(&format!("s{}", self.steps), weight)?;
                self.groups.push(group);
            }
            // With the tasks in it.
            1 if self.groups.len() > 8 => {
                let at = self.random.below(self.groups.len());
                let group = self.groups.swap_remove(at);
                group.set("cgroup.kill", "1")?;
                self.dying.1.push(group);
            }
            2 | 3 if !self.groups.is_empty() && self.tasks.len() < TASKS_MAX => {
                let at = self.random.below(self.groups.len());
                let task = self.new_task(at)?;
                self.tasks.push(task);
            }
            4 if self.tasks.len() > 4 => {
                let at = self.random.below(self.tasks.len());
                let task = self.tasks.swap_remove(at);
                self.stopped.retain(|&pid| pid != task.pid());
                task.signal(Signal::SIGKILL)?;
                self.dying.0.push(task);
            }
            5 if !self.groups.is_empty() => {
                self.groups[self.random.below(self.groups.len())].set_weight(weight)?;
            }
            choice if !self.tasks.is_empty() => self.change_task(choice)?,
            _ => {}
        }
        Ok(())
    }

    /// Buries the dead.
    fn bury(&mut self) {
        self.tasks
            .retain(|task| task.state().is_ok_and(|is| is != 'Z'));
        let (tasks, groups) = &mut self.dying;
        tasks.retain(|task| task.state().is_ok_and(|is| is != 'Z'));
        groups.retain(|group| {
            group
                .get("cgroup.events", "populated")
                .is_ok_and(|is| is > 0)
        });
    }

    fn new_task(&mut self, group: usize) -> Result<Worker> {
        let domain = [self.random.below(2).to_string()];
        let tier = ["background", "time_sensitive"][self.random.below(2)];
        let kind = self.random.below(6);
        let busy = Duration::from_micros(1 << self.random.below(13));
        let hinted = [tier, "200", "0"].map(str::to_owned);
        let start = |kind, args: &[String]| Worker::start(&self.nursery, &[], kind, args);
        let task = match kind {
            0 | 1 => start("burn", &[]),
            2 => Worker::sleeper(&self.nursery, &[], MS, busy, 1_000_000),
            3 => start("hinted", &hinted),
            4 => start("holder", &domain),
            _ => start("waiter", &domain),
        }?;
        self.groups[group].set("cgroup.procs", &task.pid().to_string())?;
        Ok(task)
    }

    /// The task may have gone with its cgroup: what cannot be done is not.
    fn change_task(&mut self, choice: usize) -> Result<()> {
        let pid = self.tasks[self.random.below(self.tasks.len())].pid();
        match choice {
            6 if !self.groups.is_empty() => {
                let group = &self.groups[self.random.below(self.groups.len())];
                let _ = group.set("cgroup.procs", &pid.to_string());
            }
            7 => {
                let mut set = CpuSet::new();
                set.set(self.random.below(nr_cpus()))?;
                set.set(self.random.below(nr_cpus()))?;
                let _ = sched_setaffinity(Pid::from_raw(pid), &set);
            }
            8 => {
                let nice = self.random.below(40) as i32 - 20;
                // SAFETY: plain numbers.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as u32, nice) };
            }
            _ => {
                let at = self.stopped.iter().position(|&stopped| stopped == pid);
                let signal = match at {
                    Some(at) => {
                        self.stopped.swap_remove(at);
                        Signal::SIGCONT
                    }
                    None => {
                        self.stopped.push(pid);
                        Signal::SIGSTOP
                    }
                };
                let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
            }
        }
        Ok(())
    }
}

pub(crate) fn stress(ufs: &mut Ufs) -> Result<String> {
    let seconds = number_of("GIVEWAY_STRESS_SECONDS", 20)?;
    let seed = number_of("GIVEWAY_STRESS_SEED", 0x5eed)?.max(1);
    load_strict(ufs)?;
    let mut stress = Stress::new(seed)?;
    let mut waits = Waits::default();
    let outcome = run(ufs, &mut stress, &mut waits, Duration::from_secs(seconds));
    let steps = stress.steps;
    let told = format!("seed {seed}, {seconds} s, {steps} steps");
    outcome.with_context(|| told.clone())?;
    // Before the cgroups, which would be removed with the tasks in them.
    stress.tasks.clear();
    drop(stress);
    let numbers = quiet(ufs).with_context(|| told.clone())?;
    Ok(format!(
        "{told}; longest wait {} ms; {numbers}",
        waits.longest.as_millis()
    ))
}

fn run(ufs: &Ufs, stress: &mut Stress, waits: &mut Waits, span: Duration) -> Result<()> {
    let mut witness = Witness::new()?;
    let start = Instant::now();
    let (mut looked, mut told) = (start, start);
    let mut sample = Sample::take(ufs)?;
    while start.elapsed() < span {
        stress.step()?;
        sleep(stress.random.below(20) as u32 * MS);
        if looked.elapsed() < LOOK {
            continue;
        }
        looked = Instant::now();
        stress.bury();
        waits.look(stress.tasks.iter().chain(&stress.dying.0))?;
        if sample.at.elapsed() > Duration::from_secs(1) {
            witness.ufs_stayed(ufs)?;
            // The kernel's log is as long as it is.
            witness = Witness::new()?;
            let now = Sample::take(ufs)?;
            now.check(&sample)?;
            sample = now;
        }
        if told.elapsed() > NEWS {
            told = Instant::now();
            println!(
                "after {} of {} s: {} steps, longest wait {} ms",
                start.elapsed().as_secs(),
                span.as_secs(),
                stress.steps,
                waits.longest.as_millis()
            );
        }
    }
    witness.ufs_stayed(ufs)
}

/// How long it may take until nothing is left of tasks that were killed.
const QUIET: Duration = Duration::from_secs(10);

/// Invariants 4 and 5.
fn quiet(ufs: &Ufs) -> Result<String> {
    // The kernel lets go of a thread a while after it has ended, on a host that has other
    // things to do in seconds.
    let (table, start) = (Table::open(None)?, Instant::now());
    let used = loop {
        sleep(500 * MS);
        let (used, _) = table.usage();
        if used == 0 || start.elapsed() > QUIET {
            break used;
        }
    };
    let kicks = || Ok::<_, anyhow::Error>(ufs.stats()?["nr_rescue_kicks"].as_u64().unwrap_or(0));
    let before = kicks()?;
    sleep(2000 * MS);
    let kicks = kicks()? - before;
    // The timer fires 40 times; now and then it may be just ahead of a CPU.
    if used > 0 || kicks > 4 {
        bail!("when all is over {used} slots have owners and {kicks} CPUs were woken for nothing");
    }
    Ok(format!("{kicks} idle CPUs woken when all was over"))
}
