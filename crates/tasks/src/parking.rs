//! How a worker without work sleeps, and is woken.
//!
//! Protocol. Both sides write, then read, with a sequentially consistent fence
//! between (Dekker), so at least one sees what the other wrote:
//!
//! 1. A thread that has something for the worker pushes it into a mask, *fences*,
//!    reads `asleep`, and wakes the worker if it is set.
//! 2. The worker sets `asleep`, *fences*, reads its masks, and sleeps only if
//!    they are empty.
//!
//! Without the fences each side could read before its own write is seen, and the
//! worker would sleep with work in its masks. The lock covers the time between
//! the worker's check and its sleep: a waker that has cleared `asleep` notifies
//! under it.
//!
//! Not asserted: a push may come at any time after the worker's check, so neither
//! side can tell a lost wake-up from a late push. `models` finds lost ones.

use crate::sync::{AtomicBool, Condvar, Mutex, Relaxed, SeqCst, fence, lock, wait};

pub(crate) struct Parking {
    asleep: AtomicBool,
    lock: Mutex<()>,
    condvar: Condvar,
}

impl Parking {
    pub(crate) fn new() -> Parking {
        Parking {
            asleep: AtomicBool::new(false),
            lock: Mutex::new(()),
            condvar: Condvar::new(),
        }
    }

    /// Sleeps until `ready`. The worker's side.
    pub(crate) fn sleep(&self, ready: impl Fn() -> bool) {
        let mut guard = lock(&self.lock);
        loop {
            self.asleep.store(true, Relaxed);
            // Step 2.
            fence(SeqCst);
            if ready() {
                break;
            }
            guard = wait(&self.condvar, guard);
        }
        self.asleep.store(false, Relaxed);
    }

    /// Wakes the worker if it sleeps; what it is woken for has been written.
    pub(crate) fn wake(&self) {
        // Step 1.
        fence(SeqCst);
        if self.asleep.load(Relaxed) {
            let _guard = lock(&self.lock);
            self.asleep.store(false, Relaxed);
            self.condvar.notify_one();
        }
    }
}
