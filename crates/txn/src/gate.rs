//! A gate that is closed once, and who has passed it.
//!
//! ```text
//!  who passes:   inside += 1 │ fence │ closed? then inside -= 1 … inside -= 1
//!  who closes:   closed      │ fence │ waits for inside = 0
//! ```
//!
//! - **J1** When closing has returned, nobody is inside, and nobody comes in any more.
//!   Order the two fences (both are sequentially consistent): if the passing one comes
//!   first, whoever closes sees it inside; else it sees that the gate is closed. (Not
//!   asserted: `inside` may be more than zero for a moment whenever somebody tries; the
//!   model `nobody_is_inside_a_gate_that_was_closed`.)
//! - **J2** Who is inside is in a region (R1), so closing never waits for a paused
//!   context. (Asserted when it leaves.)

use crate::preemption::{self, Region};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, SeqCst, Wait, fence};

/// A gate.
pub(crate) struct Gate {
    closed: AtomicU64,
    inside: AtomicU64,
}

/// Somebody inside.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    /// Left after the gate, since fields are dropped after `drop`.
    _region: Region,
}

impl Gate {
    pub(crate) fn open() -> Gate {
        Gate {
            closed: AtomicU64::new(0),
            inside: AtomicU64::new(0),
        }
    }

    pub(crate) fn closed() -> Gate {
        Gate {
            closed: AtomicU64::new(1),
            ..Gate::open()
        }
    }

    /// Passes the gate, unless it is closed.
    pub(crate) fn pass(&self) -> Option<Inside<'_>> {
        let inside = Inside {
            _region: preemption::region(),
            gate: self,
        };
        self.inside.fetch_add(1, Relaxed);
        // Pairs with the fence in `close`.
        fence(SeqCst);
        (self.closed.load(Relaxed) == 0).then_some(inside)
    }

    /// Closes the gate, and waits until nobody is inside.
    pub(crate) fn close(&self) {
        self.closed.store(1, Relaxed);
        // Pairs with the fence in `pass`.
        fence(SeqCst);
        let mut wait = Wait::new();
        while self.inside.load(Acquire) != 0 {
            wait.step();
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        debug_assert!(preemption::in_region(), "J2");
        self.gate.inside.fetch_sub(1, Release);
    }
}
