//! Sleeping so that no message is missed.
//!
//! A waiter sleeps on its own word, in which it first sets `PARKED`: a message
//! that comes before keeps it awake, one that comes after finds the bit. The
//! head waits for the lock to be free, which is not in its word, so it also names
//! itself in the lock; the release that clears `HEAD_PARKED` wakes it.

use super::{Waiter, spin};
use crate::node::PARKED;
use crate::state::{self, LOCKED, WATCHED};
use crate::sync::{AcqRel, Acquire, Relaxed};
use giveway_machine::futex;

use crate::clock;

impl Waiter<'_> {
    /// Sleeps as a follower or head (`base`) until something changes. False if
    /// something had changed before.
    pub(super) fn sleep(&mut self, base: u32) -> bool {
        let parked = base | PARKED;
        let word = &self.node.word;
        if word
            .compare_exchange(base, parked, AcqRel, Acquire)
            .is_err()
        {
            return false;
        }
        self.count(|counters| &counters.parks);
        // The loop looks at the deadline itself.
        futex::wait(word, parked, self.deadline);
        self.node.untell(PARKED);
        true
    }

    /// Sleeps as the head, after it has spun in vain or not at all. False if the
    /// lock is free.
    pub(super) fn sleep_as_head(&mut self, spun: bool) -> bool {
        let core = self.policy.lock.core;
        self.node.parked_at.store(clock::now(), Relaxed);
        let word = self.node.tell(PARKED) | PARKED;
        let mut state = core.load();
        loop {
            if state & LOCKED == 0 {
                self.node.untell(PARKED);
                return false;
            }
            let learnt = if spun { spin::in_vain(state) } else { state };
            let new = state::with_parked_head(learnt, self.me) & !WATCHED;
            // Acquire and release: the holder that sees the flag sees PARKED.
            match core
                .state
                .compare_exchange_weak(state, new, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.count(|counters| &counters.parks);
        futex::wait(&self.node.word, word, self.deadline);
        self.node.untell(PARKED);
        true
    }
}
