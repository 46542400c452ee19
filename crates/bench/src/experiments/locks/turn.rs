//! One turn of one thread at the lock, and what a thread's turns come to.
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

use std::sync::atomic::{AtomicU8, Ordering};

use hdrhistogram::Histogram;
use quanta::Clock;

use super::lock::{BenchLock, LockHandle};
use super::numa::{Handovers, Numa};
use super::work::Ledger;

/// The run's phases, in order.
pub(super) const WARM_UP: u8 = 0;
pub(super) const WINDOW: u8 = 1;
pub(super) const STOP: u8 = 2;

/// What all threads of a run see.
pub(crate) struct Field<'l, L> {
    pub(crate) lock: &'l L,
    pub(crate) ledger: Ledger,
    /// Where hand-overs are counted.
    pub(crate) numa: Option<Numa>,
    pub(crate) phase: AtomicU8,
    pub(crate) clock: Clock,
    /// In units of the clock.
    pub(crate) begun: u64,
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
