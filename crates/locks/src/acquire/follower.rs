//! In the queue, behind its head.
//!
//! A follower links itself behind the tail (N3) and then looks at nothing but
//! its own word, which says when it is head and when it has the role. If its
//! deadline passes it marks itself abandoned, unless it has become head in that
//! moment: one exchange decides (N5). The node stays behind, for the scheduler
//! or a head to free (N2).

use super::role::Seen;
use super::{End, Waiter};
use crate::node::{ABANDONED, HEAD, ROLE, node};
use crate::raw::Kind;
use crate::state::{self, METERED};
use crate::sync::{AcqRel, Acquire, MODEL, Relaxed, Release, cpus, give_cpu, relax};
use giveway_machine::futex::Deadline;

/// Looks of a follower at its word before it sleeps, with CPUs to spare.
const FOLLOWER_SPINS: u32 = if MODEL { 0 } else { 128 };

impl Waiter<'_> {
    pub(super) fn enqueue(&mut self) -> End {
        let core = self.policy.lock.core;
        self.node.prepare(self.policy.lock.key(), self.standing);
        let mut state = core.load();
        loop {
            let new = state::with_tail(state, self.me) | METERED;
            match core
                .state
                .compare_exchange_weak(state, new, AcqRel, Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        match state::tail(state) {
            0 => {
                self.node.tell(HEAD);
                End::IsHead
            }
            before => {
                self.node.prev.store(before, Relaxed);
                // N3: this thread has replaced `before` as the tail.
                debug_assert!(MODEL || node(before).next.load(Relaxed) == 0, "N3");
                node(before).next.store(self.me, Release);
                End::GaveWay
            }
        }
    }

    /// Waits to be made the head.
    pub(super) fn as_follower(&mut self) -> End {
        let spare = cpus() > 2 || self.kind == Kind::Spin;
        let mut spins = if spare { FOLLOWER_SPINS } else { 0 };
        let mut seen = Seen::default();
        loop {
            let word = self.node.word.load(Acquire);
            if word & HEAD != 0 {
                return End::IsHead;
            }
            if word & ROLE != 0 {
                self.schedule(&mut seen, false);
            }
            if spins > 0 {
                spins -= 1;
                relax();
                continue;
            }
            if self.deadline.is_some_and(Deadline::passed) && self.abandon() {
                return End::TimedOut;
            }
            if self.kind == Kind::Spin {
                give_cpu();
                spins = FOLLOWER_SPINS;
                continue;
            }
            // N4: no follower sleeps with the role.
            self.drop_role();
            if !self.sleep(0) {
                continue;
            }
            spins = if spare { FOLLOWER_SPINS } else { 0 };
        }
    }

    /// Leaves the queue as a follower. False if the waiter has become the head.
    fn abandon(&mut self) -> bool {
        loop {
            self.drop_role();
            match self
                .node
                .word
                .compare_exchange(0, ABANDONED, AcqRel, Acquire)
            {
                Ok(_) => {
                    self.thread.lose_node();
                    return true;
                }
                Err(word) if word & HEAD != 0 => return false,
                // The role was given once more.
                Err(_) => {}
            }
        }
    }
}
