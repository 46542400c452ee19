//! Lowering workers that run background work in the kernel's scheduler.
//!
//! The kernel schedules a worker as one thread, whatever it runs. A worker that has
//! run only background work for a while should be lowered, so that urgent threads
//! of the machine need not share a CPU with it. How a thread is lowered is up to
//! [`Lowering`]; a pool without one does nothing. [`HintSlot`] is the one for UFS.
//!
//! ```text
//!            a background task begins, and for `after` nothing was urgent
//!   raised ──────────────────────────────────────────────────────────────▶ lowered
//!     ▲                                                                      │
//!     └──── urgent work: by its submitter, or by the worker that goes up ────┘
//! ```
//!
//! The submitter raises it too: a thread that is lowered may have to wait for a CPU
//! before it can be interrupted at all.
//!
//! Protocol, as in `presence`: the worker says that it is lowered, lowers itself,
//! *fences*, looks at its higher queues; the submitter pushes, *fences*, looks
//! whether the worker is lowered. So either the submitter sees it and raises the
//! worker, after it was lowered; or the worker sees the push, and raises itself
//! whatever the submitter has done meanwhile.

#[cfg(not(loom))]
mod hint_slot;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use giveway_tier::Weight;

use crate::sync::{AtomicBool, AtomicU64, Relaxed, SeqCst, fence};

#[cfg(not(loom))]
pub use hint_slot::HintSlot;

/// One worker's way to tell the kernel what it is for. Given to
/// [`PoolBuilder::lowering`](crate::PoolBuilder::lowering), which makes one on
/// each worker's thread.
///
/// Both are called inside regions, by the worker and by those who submit, often
/// at once: they must be short, wait for nothing, and leave the state that was
/// asked for last.
pub trait Lowering: Send + Sync {
    /// The worker runs nothing but background work, of this weight now. Called on
    /// the worker's thread, also if it is lowered and the weight has changed.
    fn lower(&self, weight: Weight);

    /// The worker has, or is about to get, urgent work. Called on the worker's
    /// thread or on that of a submitter.
    fn raise(&self);
}

/// How the workers of a pool get theirs.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) after: Duration,
    pub(crate) make: Arc<Make>,
}

/// Makes a worker's, on its thread.
pub(crate) type Make = dyn Fn(usize) -> Box<dyn Lowering> + Send + Sync;

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// Whether a worker is lowered.
pub(crate) struct Standing {
    /// Set before the worker takes tasks, if the pool has any.
    attached: OnceLock<Attached>,
    lowered: AtomicBool,
    /// The weight it is lowered with; the worker's own.
    weight: AtomicU64,
    /// When something was urgent last, ns; the worker's own.
    urgent_at: AtomicU64,
}

struct Attached {
    after_ns: u64,
    lowering: Box<dyn Lowering>,
}

impl Standing {
    pub(crate) fn new() -> Standing {
        Standing {
            attached: OnceLock::new(),
            lowered: AtomicBool::new(false),
            weight: AtomicU64::new(0),
            urgent_at: AtomicU64::new(0),
        }
    }

    /// On the worker's thread, once, before it takes tasks.
    pub(crate) fn attach(&self, lowering: Box<dyn Lowering>, after: Duration, now: u64) {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.urgent_at.store(now, Relaxed);
        let first = self.attached.set(Attached { after_ns, lowering });
        assert!(first.is_ok(), "a worker is attached once");
    }

    /// The worker is about to run a background task. `urgent` tells whether there
    /// is urgent work for it.
    pub(crate) fn background(&self, weight: Weight, now: u64, urgent: impl FnOnce() -> bool) {
        let Some(Attached { after_ns, lowering }) = self.attached.get() else {
            return;
        };
        let calm_ns = now.saturating_sub(self.urgent_at.load(Relaxed));
        let share = u64::from(weight.get());
        let is_said = self.lowered.load(Relaxed) && self.weight.load(Relaxed) == share;
        if calm_ns < *after_ns || is_said {
            return;
        }
        self.weight.store(share, Relaxed);
        self.lowered.store(true, Relaxed);
        lowering.lower(weight);
        fence(SeqCst);
        if urgent() {
            self.lowered.store(false, Relaxed);
            lowering.raise();
        }
    }

    /// The worker is about to run urgent work.
    pub(crate) fn urgent(&self, now: u64) {
        self.urgent_at.store(now, Relaxed);
        self.raise();
    }

    /// Urgent work was pushed, and a sequentially consistent fence has followed.
    pub(crate) fn raise(&self) {
        // Looking first: most workers are not lowered.
        if self.lowered.load(Relaxed)
            && self.lowered.swap(false, Relaxed)
            && let Some(Attached { lowering, .. }) = self.attached.get()
        {
            lowering.raise();
        }
    }
}
