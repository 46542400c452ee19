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

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use quanta::Clock;

use super::arrivals::{self, Arrived};
use super::lock::BenchLock;
use super::numa::Numa;
use super::scenario::{Scenario, Set};
use super::turn::{Field, STOP, Tally, WARM_UP, WINDOW, turn};
use super::usage::Usage;
use super::work::{Desk, Ledger, steps_for};
use crate::harness::error::{Error, Result};

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
