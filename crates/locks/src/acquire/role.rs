//! The lock scheduler's role: how it is taken, used and passed on.
//!
//! ```text
//! vacant ── the head takes it ──► a waiter walks ── moved some ──► the last of them
//!    ▲                                 │ sleeps, leaves                 │
//!    └─────────────────────────────────┴──────── or it sleeps ──────────┘
//! ```
//!
//! `LS_TAKEN` in the lock is set from taking to dropping, `ROLE` in the word of
//! the waiter that has it (N4). All links that a scheduler writes are written before it
//! gives up either, and read after getting either: a release and an acquire on
//! that word.

use super::Waiter;
use crate::links::wait_for_next;
use crate::node::{ABANDONED, PARKED, ROLE, node};
use crate::raw::Kind;
use crate::release;
use crate::scheduler;
use crate::state::{self, LS_TAKEN};
use crate::sync::{AcqRel, Acquire, Relaxed, Release, cpus};

/// Looks at an unchanged queue after which groups are compared anew.
const GROUP_LOOKS: u32 = 64;

/// The queue as a scheduler last saw it.
#[derive(Default)]
pub(super) struct Seen {
    tail: u32,
    looks: u32,
}

impl Waiter<'_> {
    /// Whether the waiter has the role, taking it if it is vacant. Only the
    /// head takes a vacant role, so no two waiters can (N4).
    pub(super) fn take_role(&mut self) -> bool {
        if self.node.word.load(Relaxed) & ROLE != 0 {
            return true;
        }
        let core = self.policy.lock.core;
        if core.load() & LS_TAKEN != 0 || core.state.fetch_or(LS_TAKEN, AcqRel) & LS_TAKEN != 0 {
            return false;
        }
        self.node.memo.store(0, Relaxed);
        let word = self.node.tell(ROLE);
        debug_assert_eq!(word & ROLE, 0, "N4");
        true
    }

    /// Makes the role vacant, if the waiter has it.
    pub(super) fn drop_role(&mut self) {
        if self.node.untell(ROLE) & ROLE != 0 {
            self.policy.lock.core.state.fetch_and(!LS_TAKEN, Release);
        }
    }

    /// The scheduler's walk, if the queue has changed since the last one.
    /// Returns whether it walked.
    pub(super) fn schedule(&mut self, seen: &mut Seen, is_head: bool) -> bool {
        let state = self.policy.lock.core.load();
        debug_assert_ne!(state & LS_TAKEN, 0, "N4");
        let tail = state::tail(state);
        seen.looks += 1;
        // A group's vLHT moves while its threads wait.
        let stale = self.policy.by_group() && seen.looks.is_multiple_of(GROUP_LOOKS);
        if tail == seen.tail && !stale {
            return false;
        }
        seen.tail = tail;
        let mut memo = self.node.memo.swap(0, Relaxed);
        let mut waiters = 0;
        if memo == 0 || is_head {
            let census = scheduler::census(&self.policy, self.me, self.weight(), is_head);
            (waiters, self.mean) = (census.waiters, census.mean);
            // A head has a new mean for each walk, so it looks at all again, as after a
            // turn (Section 3.4.1). If it went on from the memo, who qualifies now would
            // be put right behind it, before those that it has found so far: last come,
            // first served.
            if census.turned || is_head {
                memo = 0;
            }
        } else if let Some(verdict) = self.policy.lock.core.verdict() {
            self.mean = verdict.avg;
        }
        let walk = scheduler::relink(&self.policy, self.me, memo, self.mean, is_head);
        self.last = if walk.last == self.me { 0 } else { walk.last };
        self.count(|counters| &counters.passes);
        self.add(|counters| &counters.reorders, walk.moved.into());
        if waiters > 1 && self.last == 0 && scheduler::is_conjunction(&self.policy) {
            self.count(|counters| &counters.nobody_matched);
        }
        if self.last != 0 {
            self.wake_early(walk.moved);
            if !is_head {
                self.give_role(self.last, walk.checked);
                self.last = 0;
            } else {
                self.node.memo.store(walk.checked, Relaxed);
            }
        }
        true
    }

    /// A waiter that was moved to the front will be needed soon (Section 3.3).
    /// With CPUs to spare it is woken to spin; without, it would only be in the
    /// way.
    fn wake_early(&self, moved: u32) {
        if moved > 0 && self.kind == Kind::Mutex && cpus() > 2 {
            let first = self.node.next.load(Acquire);
            if first != 0 && release::wake(first) {
                self.count(|counters| &counters.wakes);
            }
        }
    }

    /// Gives the role to a waiter behind, with the node from which to go on,
    /// unless that one sleeps or has gone: then the role is vacant.
    fn give_role(&mut self, to: u32, memo: u32) {
        if self.node.untell(ROLE) & ROLE == 0 {
            return;
        }
        let heir = node(to);
        heir.memo.store(if memo == to { 0 } else { memo }, Relaxed);
        let mut word = heir.word.load(Relaxed);
        while word & (PARKED | ABANDONED) == 0 {
            debug_assert_eq!(word & ROLE, 0, "N4");
            match heir
                .word
                .compare_exchange_weak(word, word | ROLE, AcqRel, Relaxed)
            {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.policy.lock.core.state.fetch_and(!LS_TAKEN, Release);
    }

    /// The head acquires: the role goes to the last waiter that it moved, or to
    /// the next one (Figure 4, lines 16 to 23).
    pub(super) fn hand_on_role(&mut self) {
        if self.node.word.load(Relaxed) & ROLE == 0 {
            return;
        }
        let memo = self.node.memo.load(Relaxed);
        match self.last {
            0 => {
                let next = wait_for_next(self.me);
                self.give_role(next, 0);
            }
            last => self.give_role(last, memo),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::criteria::Policy;
    use crate::node::{SLAB, Standing};
    use crate::raw::{Core, Extra, LockRef};
    use crate::state::LOCKED;
    use crate::thread;
    use proptest::prelude::*;

    /// Who has waited longer.
    const POOR: u64 = 0;
    const RICH: u64 = 1_000_000_000;

    fn head<'a>(lock: LockRef<'a>) -> Waiter<'a> {
        let me = SLAB.take().expect("few nodes are in use");
        let standing = Standing {
            vlht: RICH,
            ..Standing::default()
        };
        Waiter {
            policy: Policy::of(lock),
            kind: Kind::Spin,
            deadline: None,
            barging: false,
            thread: thread::current().expect("few slots are in use"),
            standing,
            me,
            node: node(me),
            mean: 0,
            last: 0,
            claimed: false,
        }
    }

    proptest! {
        /// Waiters that come while a head walks, some between two walks, are put
        /// into the order in which they came, as far as they qualify.
        #[test]
        fn later_walks_of_a_head_keep_the_order_of_arrival(
            arrivals in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..12),
        ) {
            let (core, extra) = (Core::in_state(LOCKED), Extra::new());
            let mut head = head(LockRef::new(&core, &extra));
            head.enqueue();
            let mut seen = Seen::default();
            prop_assert!(head.take_role());
            let (mut poor, mut rich) = (Vec::new(), Vec::new());
            for (is_poor, walks) in arrivals {
                let mut waiter = super::tests::head(head.policy.lock);
                waiter.standing.vlht = if is_poor { POOR } else { RICH };
                waiter.enqueue();
                (if is_poor { &mut poor } else { &mut rich }).push(waiter.me);
                if walks {
                    head.schedule(&mut seen, true);
                }
            }
            head.schedule(&mut seen, true);
            let found = std::iter::successors(Some(head.me), |&at| {
                Some(node(at).next.load(Relaxed)).filter(|&next| next != 0)
            });
            let found: Vec<u32> = found.collect();
            let expected: Vec<u32> = [head.me].into_iter().chain(poor).chain(rich).collect();
            for &at in &found {
                node(at).retire();
                SLAB.give(at);
            }
            prop_assert_eq!(found, expected);
        }
    }
}
