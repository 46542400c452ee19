//! A made-up kernel with made-up schedulers, for tests.
//!
//! Time passes only in [`Host::rest`]. Schedulers behave as their [`Conduct`]
//! says, which a test may change while they run. The kernel refuses a second
//! scheduler, as the real one does, and fails the test if it is asked to start a
//! process where that could make two.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use giveway_machine::sched_ext::State;

use crate::host::{Child, End, Host};
use crate::scheduler::Scheduler;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A row named `name` whose ops is the name.
pub(crate) fn row(name: &str) -> Scheduler {
    Scheduler {
        name: name.into(),
        command: vec![name.into()],
        ops: name.into(),
        ..Scheduler::eevdf()
    }
}

/// How a scheduler behaves.
#[derive(Clone, Debug)]
pub(crate) struct Conduct {
    /// How long it takes to load; none: for ever.
    pub(crate) loads_after: Option<Duration>,
    /// It ends instead of loading.
    pub(crate) refused: bool,
    /// It does not hear SIGINT.
    pub(crate) deaf: bool,
    /// Others wait from when it is loaded.
    pub(crate) starves: bool,
    /// It cannot even be executed.
    pub(crate) missing: bool,
}

impl Default for Conduct {
    fn default() -> Self {
        Conduct {
            loads_after: Some(ms(100)),
            refused: false,
            deaf: false,
            starves: false,
            missing: false,
        }
    }
}

/// How one that was asked to end did so; or it waits.
const ASKED: &str = "exit status: 0";

struct Process {
    name: String,
    since: Duration,
    ends_at: Option<(Duration, &'static str)>,
    ended: bool,
    has_loaded: bool,
    can_wait: bool,
}

#[derive(Default)]
pub(crate) struct Fake {
    now: Duration,
    pub(crate) conduct: HashMap<String, Conduct>,
    process: Option<Process>,
    /// The loaded scheduler, and whether it is ours.
    loaded: Option<(String, bool)>,
    loaded_since: Duration,
    /// Nothing can be loaded before this.
    leaves_until: Duration,
    pub(crate) spawned: Vec<String>,
    pub(crate) unsupported: bool,
    /// What each cgroup demands: how many CPUs.
    pub(crate) demand: HashMap<PathBuf, f64>,
    demanded: HashMap<PathBuf, f64>,
    /// What is loaded and waits.
    pub(crate) ready: Vec<String>,
    /// Time under any loaded scheduler of ours.
    pub(crate) in_force: HashMap<String, Duration>,
}

impl Fake {
    pub(crate) fn conduct(&mut self, name: &str) -> &mut Conduct {
        self.conduct.entry(name.to_owned()).or_default()
    }

    /// Another program loads a scheduler.
    pub(crate) fn load_foreign(&mut self, ops: &str) {
        assert!(self.loaded.is_none(), "the kernel says EBUSY");
        self.loaded = Some((ops.to_owned(), false));
    }

    /// The loaded scheduler goes, its process stays.
    pub(crate) fn throw_out(&mut self) {
        self.loaded = None;
        self.leaves_until = self.now + ms(5);
    }

    /// Our process reloads its scheduler, as after a hotplug.
    pub(crate) fn load_again(&mut self) {
        let name = self.process.as_ref().unwrap().name.clone();
        self.loaded = Some((name, true));
    }

    /// The process dies.
    pub(crate) fn kill_process(&mut self) {
        self.end(End::Kill);
    }

    fn settle(&mut self) {
        let Some(process) = &mut self.process else {
            return;
        };
        if process.ended {
            return;
        }
        let conduct = self.conduct.entry(process.name.clone()).or_default();
        if let Some((at, _)) = process.ends_at
            && self.now >= at
        {
            process.ended = true;
            if self.loaded.as_ref().is_some_and(|(_, ours)| *ours) {
                self.throw_out();
            }
            return;
        }
        let due = conduct.loads_after.map(|after| process.since + after);
        if !process.has_loaded && due.is_some_and(|due| self.now >= due) {
            if conduct.refused || self.loaded.is_some() {
                process.ends_at = Some((self.now, "exit status: 1"));
                process.ended = true;
                return;
            }
            process.has_loaded = true;
            self.loaded = Some((process.name.clone(), true));
            self.loaded_since = self.now;
        }
    }
}

impl Host for Fake {
    fn now(&self) -> Duration {
        self.now
    }

    fn rest(&mut self, duration: Duration) {
        if let Some((name, true)) = &self.loaded {
            *self.in_force.entry(name.clone()).or_default() += duration;
        }
        for (group, cpus) in &self.demand {
            let seconds = cpus * duration.as_secs_f64();
            *self.demanded.entry(group.clone()).or_default() += seconds;
        }
        self.now += duration;
        self.settle();
    }

    fn state(&mut self) -> State {
        match &self.loaded {
            _ if self.unsupported => State::Unsupported,
            Some((ops, _)) => State::Enabled(format!("{ops}_1.0")),
            None if self.now < self.leaves_until => State::Changing("disabling".into()),
            None => State::Disabled,
        }
    }

    fn spawn(&mut self, scheduler: &Scheduler) -> Result<(), String> {
        assert!(self.process.is_none(), "V1: a second process");
        assert_eq!(self.state(), State::Disabled, "V1: a second scheduler");
        if self.conduct(&scheduler.name).missing {
            return Err("no such file".into());
        }
        self.spawned.push(scheduler.name.clone());
        self.ready.retain(|name| *name != scheduler.name);
        self.process = Some(Process {
            name: scheduler.name.clone(),
            since: self.now,
            ends_at: None,
            ended: false,
            has_loaded: false,
            can_wait: !scheduler.standby.is_empty(),
        });
        Ok(())
    }

    fn keep_ready(&mut self, schedulers: &[&Scheduler]) {
        let in_force = self.process.as_ref().map(|process| &process.name);
        let can_wait = schedulers.iter().filter(|s| !s.standby.is_empty());
        self.ready = can_wait.map(|s| s.name.clone()).collect();
        assert!(
            in_force.is_none_or(|name| !self.ready.contains(name)),
            "it runs"
        );
    }

    fn child(&mut self) -> Child {
        match &self.process {
            None => Child::None,
            Some(process) if process.ended => {
                let (_, how) = process.ends_at.expect("it ended somehow");
                Child::Ended(how.to_owned())
            }
            Some(_) => Child::Running,
        }
    }

    fn end(&mut self, how: End) {
        let Some(process) = &mut self.process else {
            return;
        };
        let deaf = self
            .conduct
            .get(&process.name)
            .is_some_and(|conduct| conduct.deaf);
        match how {
            End::Ask if deaf => {}
            End::Ask => {
                let at = self.now + ms(20);
                process.ends_at.get_or_insert((at, ASKED));
            }
            End::Kill => process.ends_at = Some((self.now, "killed by signal 9")),
        }
        self.settle();
    }

    fn reap(&mut self) -> String {
        let process = self.process.take().expect("a process to reap");
        assert!(process.ended, "V2: reaped while it runs");
        if process.can_wait && process.ends_at.is_some_and(|(_, how)| how == ASKED) {
            self.ready.push(process.name.clone());
        }
        format!("words of {}", process.name)
    }

    fn demanded(&mut self, cgroups: &[PathBuf]) -> Vec<f64> {
        let of = |group| self.demanded.get(group).copied().unwrap_or_default();
        cgroups.iter().map(of).collect()
    }

    fn starved(&mut self) -> Duration {
        match &self.loaded {
            Some((name, true)) if self.conduct.get(name).is_some_and(|c| c.starves) => {
                self.now - self.loaded_since
            }
            _ => Duration::ZERO,
        }
    }
}

/// The made-up kernel, and a supervisor's step whenever time has passed.
pub(crate) struct Watched {
    pub(crate) fake: Fake,
    pub(crate) look: Box<dyn FnMut(&mut Fake)>,
}

impl Host for Watched {
    fn now(&self) -> Duration {
        self.fake.now()
    }
    fn rest(&mut self, duration: Duration) {
        self.fake.rest(duration);
        (self.look)(&mut self.fake);
    }
    fn state(&mut self) -> State {
        self.fake.state()
    }
    fn spawn(&mut self, scheduler: &Scheduler) -> std::result::Result<(), String> {
        self.fake.spawn(scheduler)
    }
    fn keep_ready(&mut self, schedulers: &[&Scheduler]) {
        self.fake.keep_ready(schedulers);
    }
    fn child(&mut self) -> Child {
        self.fake.child()
    }
    fn end(&mut self, how: End) {
        self.fake.end(how);
    }
    fn reap(&mut self) -> String {
        self.fake.reap()
    }
    fn demanded(&mut self, cgroups: &[PathBuf]) -> Vec<f64> {
        self.fake.demanded(cgroups)
    }
    fn starved(&mut self) -> Duration {
        self.fake.starved()
    }
}
