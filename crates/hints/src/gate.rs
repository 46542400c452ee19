//! Keeps other threads from writing a slot after its owner has released it.
//!
//! Other threads may write a slot only while they are inside its gate. The owner
//! closes the gate before it releases the slot, which another thread may then claim.
//!
//! ```text
//!   another thread                       the slot's thread
//!   ──────────────                       ─────────────────
//!   enter: one more inside               close: CLOSED, from now on
//!     └ CLOSED? leave, write nothing            wait until no writer is inside
//!   write                                       give the slot back
//!   leave: one less inside
//! ```
//!
//! Invariants:
//! 1. `close` waits for every writer that is counted inside and has not seen `CLOSED`;
//!    what the writer wrote happens before `close` returns. (asserted in `inside`: a
//!    writer is counted until it leaves; the order of the stores by loom)
//! 2. Entering and leaving never wait. (not asserted: neither has a loop)
//!
//! Known weakness: if a writer is preempted inside, `close` waits until the writer runs
//! again. A writer is inside for a few stores.

#[cfg(loom)]
use loom::{sync::atomic::AtomicU32, thread::yield_now};
#[cfg(not(loom))]
use std::{sync::atomic::AtomicU32, thread::yield_now};

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

const CLOSED: u32 = 1;
/// One writer inside.
const INSIDE: u32 = 2;

/// A slot's gate, open until it is closed for good.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU32);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(AtomicU32::new(0))
    }

    /// Does something inside; `None` if the gate is closed.
    pub(crate) fn inside<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let was = self.0.fetch_add(INSIDE, Acquire);
        let done = (was & CLOSED == 0).then(act);
        // Pairs with the look in `close` (invariant 1).
        let was = self.0.fetch_sub(INSIDE, Release);
        debug_assert!(was >= INSIDE, "a writer inside was not counted: {was}");
        done
    }

    /// Returns when no writer is inside, and none can enter.
    pub(crate) fn close(&self) {
        self.0.fetch_or(CLOSED, AcqRel);
        while self.0.load(Acquire) != CLOSED {
            yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;
    use std::sync::atomic::Ordering::Relaxed;

    /// What is written from inside is there when the gate is closed, and nothing
    /// is written after it.
    #[test]
    fn no_write_follows_a_closed_gate() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicU64::new(0)));
            let writers = [1, 2].map(|name| {
                let shared = shared.clone();
                thread::spawn(move || shared.0.inside(|| shared.1.store(name, Relaxed)).is_some())
            });
            shared.0.close();
            let left = shared.1.load(Relaxed);
            shared.1.store(3, Relaxed);
            let entered = writers.map(|writer| writer.join().unwrap());
            assert_eq!(
                shared.1.load(Relaxed),
                3,
                "a write after the gate was closed"
            );
            assert_eq!(
                left != 0,
                entered.contains(&true),
                "a write was not waited for"
            );
        });
    }
}
