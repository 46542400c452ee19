//! The word in which the scheduling thread requests levels of a worker.
//!
//! ```text
//!  31            16 15             0
//! ┌────────────────┬────────────────┐   one bit per level in each half
//! │   requested    │      due       │
//! └────────────────┴────────────────┘
//!     │ post_for_handler   ▲ ▲ post
//!     └──── open (handler) ┘ │
//!                            └─ taken by a poll point, a region's exit, or the handler
//! ```
//!
//! A request that a handler is to take goes into the upper half, where poll
//! points do not look. The handler opens it, which makes it due, and takes it if
//! the gates let it. What it may not take stays due, so no request is lost. (The
//! published code drops interrupts there.)
//!
//! At most one signal per worker is under way, but for one that replaces a user interrupt
//! (O4): each does the same, so one too many does no harm. Sender and handler each do two
//! things, in this order:
//!
//! ```text
//! sender                          handler
//! 1 post_for_handler (RMW)        1 landed (RMW on in_flight)
//! 2 take_off (RMW on in_flight)   2 open (RMW on the word)
//!   sends if it was down
//! ```
//!
//! Invariants, which the rest of the crate cites:
//!
//! - **M1** A request is in the word until it is taken or acknowledged. `requested`
//!   counts changes of a level from absent to present, `taken` and `acknowledged`
//!   count changes back: at rest, requested = taken + acknowledged + outstanding.
//!   (Not asserted: no code knows that all senders are at rest; tests do, and
//!   compare.)
//! - **M2** A request in the upper half is followed by an `open`. If the sender
//!   found `in_flight` up, its exchange comes before that of a `landed`, which
//!   therefore reads it (or a later one) and sees the request; if it found it
//!   down, it sends, and the handler comes later. (Not asserted: it is about what
//!   comes later; the test `every_order_of_steps_opens_every_request`.)
//! - **M3** A worker that takes a level sees all that the requester did before. (Not
//!   asserted: an ordering of memory; the model
//!   `a_worker_that_takes_a_level_sees_what_its_requester_did`.)

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::gate::Gate;
use crate::level::{Level, Levels};
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicU32, Relaxed};

const DUE: u32 = 0xffff;
const REQUESTED_SHIFT: u32 = 16;

/// What a request resulted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    /// It is the only one for its level.
    New,
    /// One for the same level has not been taken yet; both will be taken as one.
    Merged,
    /// The worker has left, or has no such level: give the work to another one.
    Gone,
}

/// The word, the flag, and what has happened to them. Two cache lines: the
/// worker looks at the first at every poll point. The tally orders nothing, so
/// it is not among what models watch.
#[repr(align(64))]
pub(crate) struct Mail {
    word: AtomicU32,
    in_flight: AtomicBool,
    tally: Tally,
}

#[repr(align(64))]
struct Tally {
    requested: AtomicU64,
    merged: AtomicU64,
    taken: AtomicU64,
    acknowledged: AtomicU64,
    interrupts: AtomicU64,
    deferred: [AtomicU64; Gate::COUNT],
    yields: AtomicU64,
    panics: AtomicU64,
    replaced: AtomicU64,
}

/// What has happened between a worker and those that send it requests.
///
/// While nobody is in the middle of a request, `requested` is `taken` +
/// `acknowledged` + the number of levels outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests that were new for their level.
    pub requested: u64,
    /// Requests that joined one not yet taken.
    pub merged: u64,
    /// Requests for which the worker went to their level.
    pub taken: u64,
    /// Requests withdrawn because their level was about to look for work.
    pub acknowledged: u64,
    /// Signals and user interrupts that reached the worker.
    pub interrupts: u64,
    /// Of these, those that found the worker inside a region.
    pub deferred_by_region: u64,
    /// Those that found it at the requested level, or above.
    pub deferred_by_level: u64,
    /// Those that found it in code that is not the engine's.
    pub deferred_by_text: u64,
    /// Those that found it with little stack left, or on another stack than its own.
    pub deferred_by_stack: u64,
    /// How often a level let a lower one run to its next boundary.
    pub yields: u64,
    /// Panics that reached the root of a context, or, in a pool, that came from a task's
    /// waker or from dropping a task or its result.
    pub panics: u64,
    /// User interrupts that had not arrived after 10 ms, so that a signal was sent in
    /// their place: they were lost, or the worker did not run or was in a system call.
    #[serde(default)]
    pub replaced: u64,
}

impl Mail {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Mail {
        Mail::with(AtomicU32::new(0), AtomicBool::new(false))
    }

    /// As above; the model checker's atomics are not constants.
    #[cfg(loom)]
    pub(crate) fn new() -> Mail {
        Mail::with(AtomicU32::new(0), AtomicBool::new(false))
    }

    const fn with(word: AtomicU32, in_flight: AtomicBool) -> Mail {
        Mail {
            word,
            in_flight,
            tally: Tally {
                requested: AtomicU64::new(0),
                merged: AtomicU64::new(0),
                taken: AtomicU64::new(0),
                acknowledged: AtomicU64::new(0),
                interrupts: AtomicU64::new(0),
                deferred: [const { AtomicU64::new(0) }; Gate::COUNT],
                yields: AtomicU64::new(0),
                panics: AtomicU64::new(0),
                replaced: AtomicU64::new(0),
            },
        }
    }

    /// Requests a level in sight of poll points.
    pub(crate) fn post(&self, level: Level) -> Requested {
        self.put(level.bit(), level)
    }

    /// Requests a level where only a handler looks; the caller sends one unless
    /// [`take_off`](Self::take_off) says that one is under way (M2).
    pub(crate) fn post_for_handler(&self, level: Level) -> Requested {
        self.put(level.bit() << REQUESTED_SHIFT, level)
    }

    fn put(&self, bit: u32, level: Level) -> Requested {
        // Release: M3. Acquire orders it before `take_off`: M2.
        if self.word.fetch_or(bit, AcqRel) & both(level) == 0 {
            self.tally.requested.fetch_add(1, Relaxed);
            Requested::New
        } else {
            self.tally.merged.fetch_add(1, Relaxed);
            Requested::Merged
        }
    }

    /// For the sender: whether it has to send a signal.
    pub(crate) fn take_off(&self) -> bool {
        !self.in_flight.swap(true, AcqRel)
    }

    /// The next request needs a signal of its own: this one has arrived, or could
    /// not be sent.
    pub(crate) fn landed(&self) {
        self.in_flight.swap(false, AcqRel);
    }

    /// For who watches it: an interrupt that has been sent and has not arrived, as the
    /// number of those that have. It stays the same until this one arrives.
    pub(crate) fn under_way(&self) -> Option<u64> {
        let arrivals = self.tally.interrupts.load(Relaxed);
        self.in_flight.load(Acquire).then_some(arrivals)
    }

    /// What a handler does, in this order (M2). The test of all orders takes it
    /// from here, step by step.
    const ARRIVAL: [fn(&Mail); 2] = [Mail::landed, Mail::open];

    /// For the handler: makes due what was requested, and asks for a signal of
    /// its own for the next request.
    #[inline]
    pub(crate) fn arrive(&self) {
        Mail::ARRIVAL.iter().for_each(|step| step(self));
    }

    /// Makes due what was requested.
    fn open(&self) {
        self.tally.interrupts.fetch_add(1, Relaxed);
        let opened = |word: u32| Some((word & DUE) | word >> REQUESTED_SHIFT);
        let _ = self.word.fetch_update(AcqRel, Acquire, opened);
    }

    /// The levels that are due; the upper half is the caller's to mask out.
    #[inline(always)]
    pub(crate) fn due(&self, ordering: Ordering) -> u32 {
        self.word.load(ordering)
    }

    /// The worker goes to this level.
    #[inline]
    pub(crate) fn take(&self, level: Level) {
        if self.remove(level) {
            self.tally.taken.fetch_add(1, Relaxed);
        }
    }

    /// The worker is at this level and about to look for work.
    #[inline]
    pub(crate) fn acknowledge(&self, level: Level) {
        if self.remove(level) {
            self.tally.acknowledged.fetch_add(1, Relaxed);
        }
    }

    #[inline]
    fn remove(&self, level: Level) -> bool {
        // Looking first saves a voluntary switch the exchange. Acquire: M3.
        self.word.load(Relaxed) & both(level) != 0
            && self.word.fetch_and(!both(level), Acquire) & both(level) != 0
    }

    /// What is requested or due.
    pub(crate) fn outstanding(&self) -> Levels {
        let word = self.word.load(Acquire);
        Levels((word | word >> REQUESTED_SHIFT) & DUE)
    }

    pub(crate) fn count_deferral(&self, gate: Gate) {
        self.tally.deferred[gate as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_yield(&self) {
        self.tally.yields.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_panic(&self) {
        self.tally.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_replaced(&self) {
        self.tally.replaced.fetch_add(1, Relaxed);
    }

    pub(crate) fn counters(&self) -> Counters {
        let tally = &self.tally;
        let deferred = |gate: Gate| tally.deferred[gate as usize].load(Relaxed);
        Counters {
            requested: tally.requested.load(Relaxed),
            merged: tally.merged.load(Relaxed),
            taken: tally.taken.load(Relaxed),
            acknowledged: tally.acknowledged.load(Relaxed),
            interrupts: tally.interrupts.load(Relaxed),
            deferred_by_region: deferred(Gate::Region),
            deferred_by_level: deferred(Gate::Level),
            deferred_by_text: deferred(Gate::Text),
            deferred_by_stack: deferred(Gate::Stack),
            yields: tally.yields.load(Relaxed),
            panics: tally.panics.load(Relaxed),
            replaced: tally.replaced.load(Relaxed),
        }
    }
}

/// A level's bits in both halves.
#[inline]
fn both(level: Level) -> u32 {
    level.bit() | level.bit() << REQUESTED_SHIFT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HIGH: Level = Level::new(1);
    const TOP: Level = Level::new(2);

    #[test]
    fn poll_points_see_a_handlers_request_once_it_is_opened() {
        let mail = Mail::new();
        assert_eq!(mail.post_for_handler(HIGH), Requested::New);
        assert_eq!(mail.due(Relaxed) & Level::BASE.above(), 0);
        assert!(mail.take_off());
        mail.arrive();
        assert_eq!(mail.due(Relaxed) & Level::BASE.above(), HIGH.bit());
        mail.take(HIGH);
        assert!(mail.outstanding().is_empty());
    }

    #[test]
    fn a_voluntary_switch_takes_a_request_not_yet_opened() {
        let mail = Mail::new();
        mail.post_for_handler(HIGH);
        mail.take(HIGH);
        assert!(mail.outstanding().is_empty());
        mail.arrive();
        assert_eq!(mail.due(Relaxed), 0);
    }

    #[test]
    fn at_most_one_signal_is_in_flight() {
        let mail = Mail::new();
        assert!(mail.take_off());
        assert!(!mail.take_off());
        mail.landed();
        assert!(mail.take_off());
    }

    #[test]
    fn every_request_is_accounted_for() {
        let mail = Mail::new();
        assert_eq!(mail.post(HIGH), Requested::New);
        assert_eq!(mail.post_for_handler(HIGH), Requested::Merged);
        assert_eq!(mail.post(TOP), Requested::New);
        mail.take(TOP);
        mail.take(TOP);
        mail.open();
        mail.acknowledge(HIGH);
        mail.acknowledge(HIGH);
        assert_eq!(mail.post(TOP), Requested::New);
        let counters = mail.counters();
        let gone = counters.taken + counters.acknowledged;
        assert_eq!(counters.requested, gone + mail.outstanding().len() as u64);
        assert_eq!(
            (
                counters.requested,
                counters.merged,
                counters.taken,
                counters.acknowledged
            ),
            (3, 1, 1, 1)
        );
    }

    /// One schedule of two senders and the handlers they cause; `pick` chooses
    /// among those that can take a step. What is left in the upper half.
    fn schedule(mut pick: impl FnMut(usize) -> usize) -> u32 {
        let mail = Mail::new();
        let levels = [HIGH, TOP];
        let mut sender_steps = [0, 0];
        let (mut signal, mut handler_step) = (false, 0);
        loop {
            let mut ready: Vec<usize> = (0..2).filter(|s| sender_steps[*s] < 2).collect();
            if signal || handler_step > 0 {
                ready.push(2);
            }
            if ready.is_empty() {
                return mail.due(Relaxed) >> REQUESTED_SHIFT;
            }
            match ready[pick(ready.len())] {
                2 => {
                    signal &= handler_step != 0;
                    Mail::ARRIVAL[handler_step](&mail);
                    handler_step = (handler_step + 1) % Mail::ARRIVAL.len();
                }
                sender if sender_steps[sender] == 0 => {
                    mail.post_for_handler(levels[sender]);
                    sender_steps[sender] = 1;
                }
                sender => {
                    signal |= mail.take_off();
                    sender_steps[sender] = 2;
                }
            }
        }
    }

    #[test]
    fn every_order_of_steps_opens_every_request() {
        // Counts through all schedules, as an odometer does.
        let mut choices: Vec<(usize, usize)> = Vec::new();
        let mut schedules = 0;
        loop {
            let mut depth = 0;
            let left = schedule(|ready| {
                if depth == choices.len() {
                    choices.push((0, ready));
                }
                depth += 1;
                choices[depth - 1].0
            });
            assert_eq!(left, 0, "{choices:?}");
            schedules += 1;
            while let Some((choice, ready)) = choices.pop() {
                if choice + 1 < ready {
                    choices.push((choice + 1, ready));
                    break;
                }
            }
            if choices.is_empty() {
                break;
            }
        }
        assert!(schedules > 20, "{schedules}");
    }
}
