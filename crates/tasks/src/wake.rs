//! How workers come back to a task set that had work, but no lane for them.
//!
//! The paper knows task sets with work and task sets without. An engine also has
//! those whose remaining work is all in lanes that others hold, or that wait for
//! something: neither exhausted nor runnable by this worker.
//!
//! Protocol, per task set, with a mask `missed` over the workers:
//!
//! 1. A worker that finds no lane pushes its bit, *fences*, and checks once more;
//!    if there still is none, it disables its slot.
//! 2. A worker that leaves a lane frees it, *fences*, pulls the mask, and sets the
//!    return bit of each worker in it.
//!
//! So either the second check sees the lane, or the pull sees the worker's bit
//! (Dekker). A return bit that is no longer needed makes a worker check a slot in
//! vain, and does no harm.
//!
//! Not asserted: neither side knows what the other has read. `models` finds a lane
//! that is missed.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use crate::mask::UpdateMask;
use crate::shared::Shared;
use crate::sync::{SeqCst, fence};

/// Brings workers back to a task set. Cheap to clone; may be kept for as long as
/// one likes, and woken from any thread.
#[derive(Clone)]
pub struct LaneWaker(Arc<Target>);

struct Target {
    shared: Weak<Shared>,
    slot: usize,
    missed: UpdateMask,
}

impl LaneWaker {
    pub(crate) fn new(shared: &Weak<Shared>, slot: usize, workers: usize) -> LaneWaker {
        LaneWaker(Arc::new(Target {
            shared: Weak::clone(shared),
            slot,
            missed: UpdateMask::new(workers),
        }))
    }

    /// Step 1, up to the fence: the worker is told when a lane becomes free.
    pub(crate) fn register(&self, worker: usize) {
        self.0.missed.push(worker);
        fence(SeqCst);
    }

    /// A lane has become free: workers that found none look again.
    pub fn wake(&self) {
        self.0.wake_workers();
    }
}

impl Target {
    /// Step 2.
    fn wake_workers(&self) {
        fence(SeqCst);
        if self.missed.is_empty() {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            self.missed
                .pull(|worker| shared.call_back(worker, self.slot));
        }
    }
}

impl Wake for Target {
    fn wake(self: Arc<Self>) {
        self.wake_workers();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_workers();
    }
}

/// For pipelines that poll futures.
impl From<&LaneWaker> for Waker {
    fn from(waker: &LaneWaker) -> Waker {
        Waker::from(Arc::clone(&waker.0))
    }
}
