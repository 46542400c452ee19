//! How an idle worker waits, and how a pusher finds out whether the worker has to
//! be woken, has to be preempted, or will look at its queues by itself.
//!
//! ```text
//!            nothing to do              patience is over
//!   AWAKE ─────────────────▶ IDLE ─────────────────────────▶ ASLEEP
//!     ▲                       │ ▲                               │
//!     └───────────────────────┘ └───────────────────────────────┘
//!          found something          woken by a pusher, or spuriously
//! ```
//!
//! | the pusher finds | so the worker | the pusher |
//! | --- | --- | --- |
//! | `AWAKE` | runs a task, or is about to choose one | requests a preemption |
//! | `IDLE` | looks at its queues again before it sleeps or chooses | does nothing |
//! | `ASLEEP` | sleeps, or is about to | sets `IDLE` and wakes it |
//!
//! Spinning first keeps the wake-up, some 50 µs on a busy machine, out of the
//! way of work that comes at short intervals.
//!
//! Protocol. Both sides write, then look, with a sequentially consistent fence
//! between (Dekker), so at least one sees what the other wrote:
//!
//! 1. The pusher pushes, *fences*, reads the state.
//! 2. The worker sets `ASLEEP`, *fences*, looks at its queues, sleeps only if
//!    they are empty. So either the pusher sees `ASLEEP` and wakes it, or the
//!    worker sees the push and does not sleep.
//! 3. The worker sets `AWAKE`, *fences*, chooses among what its queues have.
//!    So either the pusher sees `AWAKE` and requests a preemption, or the
//!    worker sees the push when it chooses. Without that fence an urgent task
//!    could be taken for one that the worker will look at, while the worker has
//!    already chosen a long one.

use std::time::Duration;

use crate::level::Level;
use crate::sync::{AtomicU32, Relaxed, SeqCst, Word, fence, relax};

const AWAKE: u32 = 0;
const IDLE: u32 = 1;
const ASLEEP: u32 = 2;

/// Whether a worker sleeps, and what it sleeps on.
pub(crate) struct Parking {
    state: Word,
}

/// What a push has found the worker doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a worker that is busy may have to be preempted"]
pub(crate) enum Presence {
    /// The worker is in the middle of something.
    Busy,
    /// The worker will look at its queues by itself.
    Idle,
}

impl Parking {
    /// The parking of a worker that is awake.
    pub(crate) fn new() -> Parking {
        Parking {
            state: Word::new(AWAKE),
        }
    }

    /// Waits until `ready`. The worker's side; it spins as long as `patient`
    /// says so, and sleeps then.
    pub(crate) fn idle(&self, ready: impl Fn() -> bool, mut patient: impl FnMut() -> bool) {
        self.state.value.store(IDLE, Relaxed);
        while !ready() {
            if patient() {
                relax();
                continue;
            }
            self.state.value.store(ASLEEP, Relaxed);
            // Step 2.
            fence(SeqCst);
            if ready() {
                break;
            }
            self.state.sleep_while(ASLEEP, None);
        }
        self.state.value.store(AWAKE, Relaxed);
        // Step 3.
        fence(SeqCst);
    }

    /// Makes sure that the worker learns of what was pushed, unless it is busy.
    /// The pusher's side.
    pub(crate) fn notify(&self) -> Presence {
        // Step 1.
        fence(SeqCst);
        match self.state.value.load(Relaxed) {
            AWAKE => Presence::Busy,
            ASLEEP => {
                let word = &self.state.value;
                if word
                    .compare_exchange(ASLEEP, IDLE, Relaxed, Relaxed)
                    .is_ok()
                {
                    self.state.wake();
                }
                // If the exchange failed, the worker has woken by itself, and
                // looks at its queues: 2.
                Presence::Idle
            }
            _ => Presence::Idle,
        }
    }

    /// Whether the worker is waiting for work. The answer may be out of date.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.value.load(Relaxed) != AWAKE
    }
}

/// Which levels' contexts are at work, and will look at their queue again before
/// they stop: a push to one of those needs no request.
///
/// The same protocol as above, with the same argument: the pusher pushes,
/// fences, looks at the set; the context takes itself out of the set, fences,
/// looks at its queue.
pub(crate) struct Serving {
    levels: AtomicU32,
}

impl Serving {
    pub(crate) fn new() -> Serving {
        Serving {
            levels: AtomicU32::new(0),
        }
    }

    /// The context of `level` is at work. The worker's side, like
    /// [`end`](Self::end): only its thread changes the set.
    pub(crate) fn begin(&self, level: Level) {
        let levels = self.levels.load(Relaxed);
        self.levels.store(levels | level.bit(), Relaxed);
    }

    /// The context of `level` is about to stop. It looks at its queue once more
    /// after this.
    pub(crate) fn end(&self, level: Level) {
        let levels = self.levels.load(Relaxed);
        debug_assert_ne!(levels & level.bit(), 0, "P2");
        self.levels.store(levels & !level.bit(), Relaxed);
        fence(SeqCst);
    }

    /// Whether no level's context is at work. The worker's side.
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.load(Relaxed) == 0
    }

    /// Whether what has just been pushed will be found without a request. The
    /// pusher's side, after [`Parking::notify`], whose fence it relies on.
    pub(crate) fn will_look(&self, level: Level) -> bool {
        self.levels.load(Relaxed) & level.bit() != 0
    }
}

/// Spins for a while, and says when the while is over.
pub(crate) struct Patience {
    spin: Duration,
    since: Option<std::time::Instant>,
    left: u32,
}

/// Spins between two looks at the clock, which costs as much as a dozen.
const SPINS_PER_LOOK: u32 = 32;

impl Patience {
    pub(crate) fn new(spin: Duration) -> Patience {
        Patience {
            spin,
            since: None,
            left: 0,
        }
    }

    /// Whether to spin once more.
    pub(crate) fn lasts(&mut self) -> bool {
        if self.spin.is_zero() {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        self.left = SPINS_PER_LOOK;
        let since = *self.since.get_or_insert_with(std::time::Instant::now);
        since.elapsed() < self.spin
    }
}
