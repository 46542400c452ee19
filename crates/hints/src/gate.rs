//! Who may still write a slot that its thread is about to give back.
//!
//! A slot is its thread's, and goes with it. Others may write it meanwhile, from
//! inside the gate, and never afterwards: by then it may be a stranger's.
//!
//! ```text
//!   another thread                       the slot's thread
//!   ──────────────                       ─────────────────
//!   enter: one more inside               close: CLOSED, from now on
//!     └ CLOSED? leave, write nothing            wait until nobody is inside
//!   write                                       give the slot back
//!   leave: one less inside
//! ```
//!
//! Invariants:
//! 1. Who is counted inside and has seen no `CLOSED` is waited for, and what it
//!    wrote happens before `close` returns.
//! 2. Entering and leaving wait for nothing.
//!
//! Known weakness: a writer that loses its CPU inside is waited for until it has
//! one again. It is inside for a few stores.

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
        self.0.fetch_sub(INSIDE, Release);
        done
    }

    /// Returns when nobody is inside, and nobody will be.
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
    fn nobody_writes_behind_a_closed_gate() {
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
