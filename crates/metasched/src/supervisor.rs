//! Swaps schedulers, and makes sure that the machine always has one.
//!
//! The kernel takes one scheduler at a time, and its own schedules between two of them.
//! Stock schedulers load and attach in one go, so a swap is: ask the old scheduler's
//! process to end, wait until the kernel says that nothing is loaded, start the new
//! one's process, wait until the kernel names its scheduler. Only the kernel says
//! whether a scheduler is attached; the state of its process is a hint.
//!
//! ```text
//!            want X, X not barred, nothing loaded
//!   ┌─────┐ ───────────────────────────────────────► ┌──────────┐
//!   │ Idle│                                          │ Starting │
//!   └─────┘ ◄────────────────────────┐               └──────────┘
//!      ▲     nothing loaded and      │  ended, late, or  │  │ the kernel names X
//!      │     the process reaped      │  not wanted now   │  ▼
//!      │                        ┌──────────┐ ◄──────────┘ ┌─────────┐
//!   another program's           │ Stopping │              │ Running │
//!   scheduler: wait             └──────────┘ ◄─────────── └─────────┘
//!                        SIGINT, then SIGKILL   ended, detached, starves
//!                                               tasks, or not wanted now
//! ```
//!
//! A [`Fault`] bars a scheduler for a time that doubles with each fault in a row;
//! Linux's own scheduler runs instead of a barred one. After [`Limits::proven`] of
//! running without a fault the count of faults starts again at 0.
//!
//! Numbered invariants:
//!
//! - **V1** A process is started, or a loaded one on standby attached, in `Idle`
//!   only, when there is no other process and the kernel says that no scheduler is
//!   attached: never two schedulers (asserted in `start`).
//! - **V2** `Idle` is entered with the process reaped or on standby. A scheduler that
//!   is attached then is not ours and is left alone (asserted in `stopping`).
//! - **V3** Every phase leads to `Idle` within a bounded time, if the kernel reaps
//!   what was killed: the machine never waits for a scheduler. Until the next one is
//!   attached, Linux's own schedules (asserted in `assert_in_time`).
//! - **V4** `Running` is entered, and lasts, only while the kernel names the
//!   scheduler (entry asserted in `starting`, the rest in `assert_in_time`).
//!
//! Known weakness: if another program attaches a scheduler of the same name between
//! the start of ours and its attaching, ours is blamed for not loading.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use giveway_machine::sched_ext::State;
use serde::{Deserialize, Serialize};

use crate::host::{Child, End, Host};
use crate::scheduler::{EEVDF, Scheduler};

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of a process to its scheduler being loaded. Loading
    /// includes the verifier.
    pub start: Duration,
    /// From SIGINT to the end of the process and its scheduler; then SIGKILL.
    pub stop: Duration,
    /// How long an ordinary task may wait for a CPU before the scheduler is
    /// held to stall. The kernel's own watchdog takes up to 30 s.
    pub starved: Duration,
    /// How long a scheduler may be gone while its process runs: one that sees
    /// a CPU come or go reloads itself.
    pub reload: Duration,
    /// How long one is barred after the first fault.
    pub back_off: Duration,
    /// How long at most.
    pub back_off_max: Duration,
    /// After so long without a fault earlier ones are forgotten.
    pub proven: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            start: Duration::from_secs(30),
            stop: Duration::from_secs(5),
            starved: Duration::from_secs(5),
            reload: Duration::from_secs(1),
            back_off: Duration::from_secs(2),
            back_off_max: Duration::from_secs(600),
            proven: Duration::from_secs(60),
        }
    }
}

/// How often to look while something changes. A swap to a scheduler that is
/// ready takes some ten of these.
const POLL: Duration = Duration::from_millis(1);
/// How often to look while nothing does.
const WATCH: Duration = Duration::from_millis(100);

/// How a scheduler misbehaved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its process cannot be started.
    CannotRun(String),
    /// Its process ended before the scheduler was loaded: how, and last words.
    FailedToLoad(String),
    /// It was not loaded in time.
    LateToLoad(Duration),
    /// Its process ended while it was loaded: how, and last words.
    Exited(String),
    /// The kernel dropped it and its process went on.
    Detached,
    /// A task that wanted to run did not for so long.
    Starves(Duration),
    /// It did not stop when asked.
    IgnoredStop,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CannotRun(why) => write!(f, "cannot be started: {why}"),
            Fault::FailedToLoad(how) => write!(f, "failed to load: {how}"),
            Fault::LateToLoad(limit) => write!(f, "was not loaded within {limit:?}"),
            Fault::Exited(how) => write!(f, "exited: {how}"),
            Fault::Detached => write!(f, "was detached by the kernel"),
            Fault::Starves(wait) => write!(f, "stalled: a task has waited for {wait:?}"),
            Fault::IgnoredStop => write!(f, "did not stop when asked and was killed"),
        }
    }
}

/// What happened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A scheduler is attached, this long after its process was started.
    Started(String, Duration),
    /// A scheduler is detached, this long after it was asked to stop.
    Stopped(String, Duration),
    /// A scheduler had a fault and is barred for this long.
    Failed(String, Fault, Duration),
    /// Another program's scheduler, of this ops name, is attached.
    Aside(String),
    /// That is over.
    Resumed,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started(name, took) => write!(f, "{name} is attached (took {took:.0?})"),
            Event::Stopped(name, took) => write!(f, "{name} is detached (took {took:.0?})"),
            Event::Failed(name, fault, barred) => {
                write!(f, "{name} {fault}; not tried again for {barred:.1?}")
            }
            Event::Aside(ops) => write!(
                f,
                "{ops} was loaded by another program: waiting until it detaches"
            ),
            Event::Resumed => write!(
                f,
                "no other program's scheduler is loaded any more: resuming"
            ),
        }
    }
}

/// A cost that recurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// How often it was paid.
    pub count: u64,
    /// In sum.
    pub total: Duration,
    /// The highest.
    pub max: Duration,
}

impl Cost {
    fn pay(&mut self, amount: Duration) {
        self.count += 1;
        self.total += amount;
        self.max = self.max.max(amount);
    }

    /// On average; none if never paid.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.total.div_f64(self.count as f64))
    }
}

/// What swapping has cost so far (section 2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// From the start of a process to its scheduler being in force.
    pub start: Cost,
    /// From SIGINT to nothing being loaded.
    pub stop: Cost,
    /// From asking the old one to end to the new one being in force.
    pub switch: Cost,
}

/// The faults of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Faults in all.
    pub faults: u64,
    /// Faults in a row, as of the last one: without [`Limits::proven`] between.
    pub in_a_row: u32,
    /// The last fault.
    pub last: Option<Fault>,
    /// Not tried before this moment.
    pub barred_until: Duration,
    /// How long it has been in force since the last fault.
    ran: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Starting {
        scheduler: Scheduler,
        since: Duration,
    },
    Running {
        scheduler: Scheduler,
        since: Duration,
        /// Since when the kernel has not named it.
        missing: Option<Duration>,
    },
    Stopping {
        scheduler: Scheduler,
        since: Duration,
        killed: bool,
        /// Why it has to go, if it is its fault.
        fault: Option<Fault>,
    },
}

/// Which scheduler is attached, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase", content = "scheduler")]
pub enum Standing {
    /// Linux's own, and nothing else is on its way.
    Own,
    /// Linux's own, and this one is being started.
    Starting(String),
    /// This one.
    Running(String),
    /// This one or Linux's own: it is being stopped.
    Stopping(String),
    /// Another program's, of this ops name.
    Aside(String),
}

/// Sees to it that the wanted scheduler is in force.
#[derive(Debug)]
pub struct Supervisor {
    limits: Limits,
    phase: Phase,
    /// Another program's scheduler.
    aside: Option<String>,
    records: BTreeMap<String, Record>,
    costs: Costs,
    /// When the swap began that has not been completed.
    switch_since: Option<Duration>,
    events: VecDeque<Event>,
}

impl Supervisor {
    /// Of a machine with none of our processes.
    pub fn new(limits: Limits) -> Supervisor {
        Supervisor {
            limits,
            phase: Phase::Idle,
            aside: None,
            records: BTreeMap::new(),
            costs: Costs::default(),
            switch_since: None,
            events: VecDeque::new(),
        }
    }

    /// Goes by other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Looks, and does the next thing towards `wanted`. Call it again after the
    /// time that it answers with, at the latest.
    pub fn step(&mut self, wanted: &Scheduler, host: &mut impl Host) -> Duration {
        let begun = host.now();
        // The end of a stop and the start after it fall into one step.
        while self.turn(wanted, host) {}
        self.assert_in_time(begun);
        match self.phase {
            Phase::Running { missing: None, .. } => WATCH,
            Phase::Idle if self.is_settled(wanted, host.now()) => WATCH,
            _ => POLL,
        }
    }

    /// V3 and V4: no phase that had used up its time when the step began is left as it was.
    fn assert_in_time(&self, begun: Duration) {
        let lasts = |since: Duration| begun.saturating_sub(since);
        let limits = &self.limits;
        debug_assert!(
            match &self.phase {
                Phase::Idle => true,
                Phase::Starting { since, .. } => lasts(*since) < limits.start,
                Phase::Running { missing, .. } =>
                    missing.is_none_or(|missing| lasts(missing) < limits.reload),
                Phase::Stopping { since, killed, .. } => *killed || lasts(*since) < 2 * limits.stop,
            },
            "V3: {:?} outlasts its limit at {begun:?}",
            self.phase
        );
    }

    /// Whether nothing better can be had for `wanted` now: it is in force, or
    /// Linux's own is because it is barred, or another program's is.
    pub fn is_settled(&self, wanted: &Scheduler, now: Duration) -> bool {
        match &self.phase {
            Phase::Idle => {
                wanted.is_eevdf() || self.aside.is_some() || self.is_barred(&wanted.name, now)
            }
            Phase::Running {
                scheduler, missing, ..
            } => scheduler == wanted && missing.is_none(),
            _ => false,
        }
    }

    /// Whether a scheduler is not tried at this moment.
    pub fn is_barred(&self, name: &str, now: Duration) -> bool {
        self.records
            .get(name)
            .is_some_and(|record| now < record.barred_until)
    }

    /// What is in force.
    pub fn standing(&self) -> Standing {
        match (&self.phase, &self.aside) {
            (Phase::Idle, None) => Standing::Own,
            (Phase::Idle, Some(ops)) => Standing::Aside(ops.clone()),
            (Phase::Starting { scheduler, .. }, _)
            | (
                Phase::Running {
                    scheduler,
                    missing: Some(_),
                    ..
                },
                _,
            ) => Standing::Starting(scheduler.name.clone()),
            (Phase::Running { scheduler, .. }, _) => Standing::Running(scheduler.name.clone()),
            (Phase::Stopping { scheduler, .. }, _) => Standing::Stopping(scheduler.name.clone()),
        }
    }

    /// The faults of each scheduler.
    pub fn records(&self) -> &BTreeMap<String, Record> {
        &self.records
    }

    /// What swaps have cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// What has happened since this was last asked.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Unloads what is loaded and waits until it is gone, and ends what waits for
    /// a turn: the way out. Answers whether it is gone; not so if a killed process
    /// does not end within four times [`Limits::stop`].
    pub fn leave(&mut self, host: &mut impl Host) -> bool {
        let own = Scheduler::eevdf();
        let deadline = host.now() + self.limits.stop * 4;
        loop {
            let pause = self.step(&own, host);
            if self.phase == Phase::Idle || host.now() >= deadline {
                // The one that has left among them.
                host.keep_ready(&[]);
                return self.phase == Phase::Idle;
            }
            host.rest(pause);
        }
    }

    /// One look and at most one change of phase; whether there was one.
    fn turn(&mut self, wanted: &Scheduler, host: &mut impl Host) -> bool {
        let state = host.state();
        match self.phase.clone() {
            Phase::Idle => self.idle(wanted, state, host),
            Phase::Starting { scheduler, since } => {
                self.starting(scheduler, since, wanted, state, host)
            }
            Phase::Running {
                scheduler,
                since,
                missing,
            } => self.running(scheduler, (since, missing), wanted, state, host),
            Phase::Stopping {
                scheduler,
                since,
                killed,
                fault,
            } => self.stopping(scheduler, since, (killed, fault), state, host),
        }
    }

    fn idle(&mut self, wanted: &Scheduler, state: State, host: &mut impl Host) -> bool {
        let now = host.now();
        match state {
            State::Enabled(ops) => {
                self.switch_since = None;
                if self.aside.as_ref() != Some(&ops) {
                    self.events.push_back(Event::Aside(ops.clone()));
                    self.aside = Some(ops);
                }
                return false;
            }
            State::Changing(_) => return false,
            State::Disabled | State::Unsupported => {}
        }
        if self.aside.take().is_some() {
            self.events.push_back(Event::Resumed);
        }
        if wanted.is_eevdf() || self.is_barred(&wanted.name, now) {
            self.switch_since = None;
            return false;
        }
        self.start(wanted, &state, host);
        true
    }

    fn start(&mut self, wanted: &Scheduler, state: &State, host: &mut impl Host) {
        let now = host.now();
        let is_free = matches!(state, State::Disabled | State::Unsupported);
        assert!(
            is_free && self.phase == Phase::Idle && host.child() == Child::None,
            "V1: a start in {:?}, kernel {state:?}, process {:?}",
            self.phase,
            host.child()
        );
        let spawned = match state {
            State::Unsupported => Err("this kernel has no sched_ext".to_owned()),
            _ => host.spawn(wanted),
        };
        match spawned {
            Ok(()) => {
                self.phase = Phase::Starting {
                    scheduler: wanted.clone(),
                    since: now,
                }
            }
            Err(why) => self.record_fault(&wanted.name, Fault::CannotRun(why), now),
        }
    }

    fn starting(
        &mut self,
        scheduler: Scheduler,
        since: Duration,
        wanted: &Scheduler,
        state: State,
        host: &mut impl Host,
    ) -> bool {
        let now = host.now();
        let is_other = matches!(&state, State::Enabled(ops) if !scheduler.is_ops(ops));
        if is_other || wanted != &scheduler {
            // Another program attached first, or another scheduler is wanted: no fault.
            return self.stop(scheduler, None, host);
        }
        if let Child::Ended(how) = host.child() {
            return self.stop(scheduler, Some(Fault::FailedToLoad(how)), host);
        }
        if let State::Enabled(ops) = &state {
            debug_assert!(scheduler.is_ops(ops), "V4: the kernel names {ops}");
            let took = now - since;
            self.costs.start.pay(took);
            if let Some(since) = self.switch_since.take() {
                self.costs.switch.pay(now - since);
            }
            let name = scheduler.name.clone();
            self.events.push_back(Event::Started(name, took));
            self.phase = Phase::Running {
                scheduler,
                since: now,
                missing: None,
            };
            return true;
        }
        if now - since >= self.limits.start {
            let fault = Fault::LateToLoad(self.limits.start);
            return self.stop(scheduler, Some(fault), host);
        }
        false
    }

    fn running(
        &mut self,
        scheduler: Scheduler,
        (since, missing): (Duration, Option<Duration>),
        wanted: &Scheduler,
        state: State,
        host: &mut impl Host,
    ) -> bool {
        let now = host.now();
        if let Child::Ended(how) = host.child() {
            return self.stop(scheduler, Some(Fault::Exited(how)), host);
        }
        let is_there = match &state {
            State::Enabled(ops) if scheduler.is_ops(ops) => true,
            // Ours detached, and another program attached first.
            State::Enabled(_) => return self.stop(scheduler, None, host),
            _ => false,
        };
        let missing = (!is_there).then(|| missing.unwrap_or(now));
        if missing.is_some_and(|missing| now - missing >= self.limits.reload) {
            return self.stop(scheduler, Some(Fault::Detached), host);
        }
        let starved = host.starved();
        if starved >= self.limits.starved {
            return self.stop(scheduler, Some(Fault::Starves(starved)), host);
        }
        if wanted != &scheduler {
            self.switch_since = Some(now);
            return self.stop(scheduler, None, host);
        }
        self.phase = Phase::Running {
            scheduler,
            since,
            missing,
        };
        false
    }

    /// Begins a stop. A scheduler that starves tasks is killed at once: its own process
    /// may be starved, too, and could not answer.
    fn stop(&mut self, scheduler: Scheduler, fault: Option<Fault>, host: &mut impl Host) -> bool {
        if let Phase::Running { since, .. } = &self.phase
            && let Some(record) = self.records.get_mut(&scheduler.name)
        {
            record.ran += host.now() - *since;
        }
        let killed = matches!(fault, Some(Fault::Starves(_)));
        host.end(if killed { End::Kill } else { End::Ask });
        self.phase = Phase::Stopping {
            scheduler,
            since: host.now(),
            killed,
            fault,
        };
        true
    }

    fn stopping(
        &mut self,
        scheduler: Scheduler,
        since: Duration,
        (killed, fault): (bool, Option<Fault>),
        state: State,
        host: &mut impl Host,
    ) -> bool {
        let waited = host.now() - since;
        let has_ended = host.child() != Child::Running;
        let is_loaded = match &state {
            State::Enabled(ops) => scheduler.is_ops(ops),
            State::Changing(_) => true,
            State::Disabled | State::Unsupported => false,
        };
        // A scheduler that outlives its process is pinned: not ours to remove.
        if has_ended && (!is_loaded || waited >= 2 * self.limits.stop) {
            let words = host.reap();
            debug_assert_eq!(host.child(), Child::None, "V2");
            self.stopped(&scheduler.name, fault, &words, waited, host.now());
            return true;
        }
        if !has_ended && !killed && waited >= self.limits.stop {
            host.end(End::Kill);
            self.phase = Phase::Stopping {
                scheduler,
                since,
                killed: true,
                fault: fault.or(Some(Fault::IgnoredStop)),
            };
        }
        false
    }

    fn stopped(
        &mut self,
        name: &str,
        fault: Option<Fault>,
        words: &str,
        waited: Duration,
        now: Duration,
    ) {
        self.phase = Phase::Idle;
        match fault {
            None => {
                self.costs.stop.pay(waited);
                let stopped = Event::Stopped(name.to_owned(), waited);
                self.events.push_back(stopped);
            }
            Some(fault) => {
                let with_words = |how: String| match words {
                    "" => how,
                    _ => format!("{how}; last output: {words}"),
                };
                let fault = match fault {
                    Fault::FailedToLoad(how) => Fault::FailedToLoad(with_words(how)),
                    Fault::Exited(how) => Fault::Exited(with_words(how)),
                    other => other,
                };
                self.record_fault(name, fault, now);
            }
        }
    }

    /// Records a fault and bars the scheduler.
    fn record_fault(&mut self, name: &str, fault: Fault, now: Duration) {
        let record = self.records.entry(name.to_owned()).or_default();
        if record.ran >= self.limits.proven {
            record.in_a_row = 0;
        }
        let doubled = 1u32.checked_shl(record.in_a_row).unwrap_or(u32::MAX);
        let barred = self.limits.back_off.saturating_mul(doubled);
        let barred = barred.min(self.limits.back_off_max);
        record.faults += 1;
        record.in_a_row += 1;
        record.ran = Duration::ZERO;
        record.barred_until = now + barred;
        record.last = Some(fault.clone());
        let failed = Event::Failed(name.to_owned(), fault, barred);
        self.events.push_back(failed);
    }

    /// The name of ours that is in force, or [`EEVDF`].
    pub fn in_force(&self) -> &str {
        match &self.phase {
            Phase::Running {
                scheduler,
                missing: None,
                ..
            } => &scheduler.name,
            _ => EEVDF,
        }
    }
}

#[cfg(test)]
mod tests;
