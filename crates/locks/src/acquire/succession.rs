//! How the head of the queue is succeeded.
//!
//! There is exactly one head, or a waiter that is making the next one (N5). It
//! passes its place on when it has acquired or gives up; and to the waiters moved
//! behind it, when it has held the lock for longer than they. The new head sees it
//! in its word. If it sleeps it is woken, at once or, when the holder says so, by
//! the next release.
//!
//! For the latter the holder names the sleeper in the lock *before* it makes it the
//! head. Until then there is no head (N5), so nobody else writes that field. Named
//! afterwards it could replace a later head: the sleeper may have woken up by itself
//! (deadline, signal), left or given way, and the next one may sleep already. The
//! release would then wake the wrong node, and nobody would ever wake the head. A name
//! that comes too early does no harm: it wakes a thread that looks around.

use super::{End, Waiter};
use crate::links::{replace_tail, step_behind, wait_for_next};
use crate::node::{ABANDONED, HEAD, PARKED, free_abandoned, node};
use crate::options::Criteria;
use crate::release;
use crate::state::{self, CLAIMED, WATCHED};
use crate::sync::{Acquire, Relaxed, Release};

impl Waiter<'_> {
    /// Makes the next waiter the head, freeing abandoned nodes on the way (N2).
    /// With `later`, which only the holder may say, a sleeping one is woken by
    /// the next release.
    pub(super) fn pass_head(&mut self, later: bool) {
        let mut next = wait_for_next(self.me);
        loop {
            let named = later && node(next).word.load(Relaxed) & PARKED != 0;
            if named {
                self.name_parked_head(next);
            }
            let word = node(next).tell(HEAD);
            debug_assert_eq!(word & HEAD, 0, "N5");
            if word & ABANDONED == 0 {
                if word & PARKED != 0 && !named {
                    self.wake_head(next);
                }
                return;
            }
            let gone = next;
            // An abandoned node's links are written by nobody else now: the
            // scheduler, if there is one, is a living waiter behind it.
            if node(gone).next.load(Acquire) == 0 && replace_tail(&self.policy, gone, 0) {
                free_abandoned(gone);
                return;
            }
            next = wait_for_next(gone);
            free_abandoned(gone);
        }
    }

    /// Has the next release wake the waiter that is about to be made head.
    fn name_parked_head(&self, next: u32) {
        let core = self.policy.lock.core;
        let set = |state| Some(state::with_parked_head(state, next));
        let _ = core.state.fetch_update(Release, Relaxed, set);
    }

    fn wake_head(&self, head: u32) {
        if release::wake(head) {
            self.count(|counters| &counters.wakes);
        }
    }

    /// Whether the head has held the lock so long that those behind it should go
    /// first.
    /// It is compared with what they are compared with: who qualifies is below
    /// the mean, so no two heads give way to each other.
    pub(super) fn may_give_way(&self) -> bool {
        let ahead = if !self.policy.favours_socket_of(self.standing) {
            true
        } else if self.policy.favours_group_of(self.standing) {
            let lead = self.standing.vlht.wrapping_sub(self.mean) as i64;
            let tolerance = self.policy.tolerance(self.weight());
            self.policy.criteria.contains(Criteria::VLHT) && lead > tolerance
        } else {
            self.left() < 0
        };
        self.last != 0 && !self.claimed && ahead
    }

    /// Lets the waiters that qualify go first.
    pub(super) fn give_way(&mut self) -> End {
        self.count(|counters| &counters.gave_way);
        let first = step_behind(&self.policy, self.me, self.last);
        self.last = 0;
        self.stop_watching();
        self.node.untell(HEAD);
        self.drop_role();
        self.make_head(first);
        End::GaveWay
    }

    /// Makes `first` the head, or whoever comes behind it if it has gone.
    fn make_head(&mut self, first: u32) {
        let mut next = first;
        loop {
            let word = node(next).tell(HEAD);
            debug_assert_eq!(word & HEAD, 0, "N5");
            if word & ABANDONED == 0 {
                if word & PARKED != 0 {
                    self.wake_head(next);
                }
                return;
            }
            // This waiter is behind, so there is a successor.
            let gone = next;
            next = wait_for_next(gone);
            free_abandoned(gone);
        }
    }

    /// The waiter is no longer head: others need not let it go first.
    pub(super) fn stop_watching(&mut self) {
        self.claimed = false;
        let state = &self.policy.lock.core.state;
        state.fetch_and(!(CLAIMED | WATCHED), Relaxed);
    }
}
