//! A run under contention: threads, a window, what each of them got.
//!
//! ```text
//!   start        warm-up          window                     stop
//!     │─ barrier ───│────────────────│──────────────────────────│─ join
//!   every thread:  ask ─wait─► lock, count the turn, work, unlock, think
//! ```
//!
//! A turn counts if it began in the window. A wait counts if it ended in the
//! window, or began in it and ended later, with its whole length: a thread that
//! starved to the end must not vanish from the distribution.
//!
//! *Bypass*: how many turns others took between the moment a thread asked and
//! its own turn. A FIFO lock with n threads has n - 1 at most (and the turn that was
//! being taken); what is bounded here is fairness in order, whatever time does.
//!
//! The time of a turn is measured with two readings of the clock inside the
//! critical section's bounds, the same for all locks. The lock sees them too, as
//! part of what it was held for, so they must be short: the CPU's cycle counter
//! where it can be trusted. A system clock's microsecond per turn would favour
//! short turns over long ones by some percent.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use quanta::Clock;

use super::arrivals::{self, Arrived};
use super::lock::{BenchLock, LockHandle};
use super::numa::{Handovers, Numa};
use super::scenario::{Scenario, Set};
use super::usage::Usage;
use super::work::{Desk, Ledger, steps_for};
use crate::harness::error::{Error, Result};

/// The run's phases, in order.
const WARM_UP: u8 = 0;
const WINDOW: u8 = 1;
const STOP: u8 = 2;

/// What all threads of a run see.
pub(crate) struct Field<'l, L> {
    pub(crate) lock: &'l L,
    pub(crate) ledger: Ledger,
    /// Where hand-overs are counted.
    numa: Option<Numa>,
    phase: AtomicU8,
    clock: Clock,
    /// In units of the clock.
    begun: u64,
}

impl<L> Field<'_, L> {
    pub(crate) fn in_window(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == WINDOW
    }

    pub(crate) fn stopped(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == STOP
    }

    /// Time since the run began.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.delta_as_nanos(self.begun, self.clock.raw())
    }
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The window's length, as measured.
    pub(crate) seconds: f64,
    /// For each set, for each of its threads.
    pub(crate) sets: Vec<Vec<Tally>>,
    pub(crate) arrived: Option<Arrived>,
    /// What the process used in the window.
    pub(crate) usage: Usage,
    /// NUMA nodes, as the lock library sees them.
    pub(crate) nodes: u32,
}

/// What one thread got.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) turns: u64,
    pub(crate) held_ns: u64,
    pub(crate) wait_ns: Histogram<u64>,
    pub(crate) bypass_max: u64,
    /// With more than one NUMA node.
    pub(crate) handovers: Handovers,
    /// Turns at any time, for the check of exclusion.
    turns_ever: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            turns: 0,
            held_ns: 0,
            wait_ns: waits(),
            bypass_max: 0,
            handovers: Handovers::default(),
            turns_ever: 0,
        }
    }

    pub(crate) fn turns_ever(&self) -> u64 {
        self.turns_ever
    }
}

/// An empty distribution of waits, in ns with 1 % error, up to 1000 s.
pub(crate) fn waits() -> Histogram<u64> {
    let mut waits =
        Histogram::new_with_bounds(1, 1_000_000_000_000, 2).expect("the bounds are in order");
    waits.auto(false);
    waits
}

/// One turn as its thread saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) asked_ns: u64,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) bypass: u64,
    pub(crate) handovers: Handovers,
}

/// Asks for the lock, works `steps` steps and gives it back.
#[inline]
pub(crate) fn turn<L: BenchLock>(
    field: &Field<'_, L>,
    handle: &mut L::Handle<'_>,
    steps: u32,
) -> Turn {
    let asked_ns = field.now_ns();
    let turns = field.ledger.turns();
    handle.lock();
    let began_ns = field.now_ns();
    let handovers = field.numa.as_ref().map(Numa::count);
    // SAFETY: the lock is held from here to `unlock`.
    let before = unsafe { field.ledger.turn(steps) };
    let ended_ns = field.now_ns();
    // SAFETY: it was taken through this handle.
    unsafe { handle.unlock() };
    Turn {
        asked_ns,
        began_ns,
        ended_ns,
        // Less than zero only if turns were lost, which the end of the run
        // finds out.
        bypass: before.saturating_sub(turns),
        handovers: handovers.unwrap_or_default(),
    }
}

impl Tally {
    /// Counts a turn. `began_inside`: in the window.
    pub(crate) fn count(&mut self, turn: &Turn, began_inside: bool, stopped: bool) {
        self.turns_ever += 1;
        if began_inside {
            self.turns += 1;
            self.held_ns += turn.ended_ns - turn.began_ns;
            self.handovers.add(turn.handovers);
        }
        if began_inside || stopped {
            self.wait_ns
                .saturating_record(turn.began_ns - turn.asked_ns);
            self.bypass_max = self.bypass_max.max(turn.bypass);
        }
    }
}

/// Runs the scenario on a lock.
pub(crate) fn run<L: BenchLock>(lock: &L, scenario: &Scenario) -> Result<Outcome> {
    let clock = Clock::new();
    let field = Field {
        lock,
        ledger: Ledger::new(),
        numa: Numa::of_machine(),
        phase: AtomicU8::new(WARM_UP),
        begun: clock.raw(),
        clock,
    };
    let members = scenario.sets.iter().map(|set| set.threads).sum::<u32>() as usize;
    let ready = Barrier::new(members + 1);
    let outcome = std::thread::scope(|scope| {
        let sets: Vec<Vec<_>> = scenario
            .sets
            .iter()
            .map(|set| {
                (0..set.threads)
                    .map(|_| scope.spawn(|| member(&field, set, &ready)))
                    .collect()
            })
            .collect();
        ready.wait();
        std::thread::sleep(Duration::from_secs_f64(scenario.warmup_s));
        let usage = Usage::now();
        let begun_ns = field.now_ns();
        field.phase.store(WINDOW, Ordering::Relaxed);
        let arrived = match &scenario.arrivals {
            Some(arrivals) => Some(arrivals::run(&field, arrivals, scenario)),
            None => {
                std::thread::sleep(Duration::from_secs_f64(scenario.seconds));
                None
            }
        };
        field.phase.store(STOP, Ordering::Relaxed);
        let ended_ns = field.now_ns();
        let usage = Usage::now().since(&usage);
        let sets = sets
            .into_iter()
            .map(|set| set.into_iter().map(join).collect())
            .collect();
        Outcome {
            seconds: (ended_ns - begun_ns) as f64 / 1e9,
            sets,
            arrived,
            usage,
            nodes: field.numa.as_ref().map_or(1, Numa::nodes),
        }
    });
    let counted: u64 = outcome.sets.iter().flatten().map(Tally::turns_ever).sum();
    let counted = counted + outcome.arrived.as_ref().map_or(0, |arrived| arrived.turns);
    match field.ledger.turns() {
        seen if seen == counted => Ok(outcome),
        seen => Err(Error::NotExclusive {
            lock: "this lock".to_owned(),
            turns: counted,
            seen,
        }),
    }
}

/// A thread of a set, from the start to the end of the run.
fn member<L: BenchLock>(field: &Field<'_, L>, set: &Set, ready: &Barrier) -> Tally {
    let (inside, outside) = (steps_for(set.inside_ns), steps_for(set.outside_ns));
    let mut desk = Desk::new();
    let mut tally = Tally::new();
    if let Some(numa) = &field.numa {
        numa.settle();
    }
    let mut handle = field.lock.join(&set.member());
    ready.wait();
    while !field.stopped() {
        let turn = turn(field, &mut handle, inside);
        tally.count(&turn, field.in_window(), field.stopped());
        desk.work(outside);
    }
    tally
}

/// A thread that panics takes the run with it.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
