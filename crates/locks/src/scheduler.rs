//! The lock scheduler's work: census, relinking, giving way (Section 3.2.2).
//!
//! ```text
//! head …  p ── p ── LS ── M ── M ── · ── · ── q ── · ── tail
//!         reverse    │    moved      │  ↑      qualifies: unlinked here,
//!         traversal ←┘    before     └──┘      linked behind the last M
//! ```
//!
//! Functions here are called by the waiter that has the role (N4), on its own
//! node `me`. They may then read every node behind `me` for certain, because
//! those stay linked (N3), and write the links among them.
//!
//! Departures from the paper, with reasons:
//!
//! - The census comes before relinking, not after: a waiter is judged by an
//!   average that includes it, and the first pass over a new queue already has
//!   one. (In Figure 4 `avg_vLHT` is 0 until then, and no waiter is below it.)
//! - There are two averages. Waiters are compared with each other, by the mean
//!   of the census. Threads that steal are compared with what is published, and
//!   that advances by no more than was held since the census before (at this
//!   lock, or at all of them, as the accounts are): the
//!   waiters at one moment may all be over-served, while threads that are owed
//!   time run and steal. A published average that jumped to the waiters' would
//!   let the others steal on for too long.
//! - The average is of the favoured group's and socket's waiters, for the reason
//!   given in [`socket`].
//! - The average counts a waiter no further ahead of the lowest than
//!   [`sched_latency_ns`]. One thread of weight 1 after a long hold would
//!   otherwise lift the average so far that it tells the others nothing.
//! - The tail can be moved too: it is first replaced in the lock's word by its
//!   predecessor. ShflLock leaves it in place, and with few waiters the tail is
//!   often the one that should go first.
//! - A head that is itself over-served gives way to the waiters moved behind
//!   it. In the paper the head always acquires.
//!
//! Known weakness: a head takes a census whenever the tail has changed, which looks at
//! all waiters three to five times, while the lock may be free. With a thousand waiters
//! that is some thousand cache lines per hand-over.

use crate::criteria::Policy;
use crate::links::{link_behind, unlink};
use crate::node::{self, ABANDONED, NODES, Standing, node};
use crate::options::{Criteria, sched_latency_ns};
use crate::socket;
use crate::state::{self, LOCKED, Verdict};
use crate::sync::{Acquire, Relaxed};
use crate::topology::SOCKETS;

/// What a walk that relinks has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// The last waiter in the run of qualifying ones behind the scheduler, or
    /// the scheduler itself.
    pub(crate) last: u32,
    /// The last waiter looked at, for the next scheduler (Section 3.4.1).
    pub(crate) checked: u32,
    /// Waiters moved.
    pub(crate) moved: u32,
}

/// What a census has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    pub(crate) waiters: u32,
    /// The average vLHT of those that count.
    pub(crate) mean: u64,
    /// Whether another group or socket has its turn now, so that those who were
    /// passed over must be looked at again (Section 3.4.1).
    pub(crate) turned: bool,
}

/// Averages the waiters and publishes the verdict.
pub(crate) fn census(policy: &Policy<'_>, me: u32, weight: u32, is_head: bool) -> Census {
    let core = policy.lock.core;
    let key = policy.lock.key();
    let own = node(me).standing();
    let mut min_gid = own.gid;
    let mut same_group = true;
    if policy.by_group() {
        let before = state::min_gid(core.load());
        // A group that runs and does not wait still competes.
        if policy.active_lately(before) {
            min_gid = before;
        }
        // A group of which nothing is known is the last to be favoured.
        let vlht_of = |gid| policy.group_vlht(gid).unwrap_or(u64::MAX);
        let mut lowest = vlht_of(min_gid);
        let mut seen = min_gid;
        for_each_waiter(key, me, is_head, |waiter| {
            if waiter.gid != seen {
                seen = waiter.gid;
                let vlht = vlht_of(seen);
                if vlht < lowest {
                    (lowest, min_gid) = (vlht, seen);
                }
            }
        });
        core.set_min_gid(min_gid);
        same_group = min_gid == before;
    }
    let of_group = |waiter: &Standing| !policy.by_group() || waiter.gid == min_gid;

    // All relative to one waiter, so that sums do not overflow.
    let relative = |waiter: &Standing| waiter.vlht.wrapping_sub(own.vlht) as i64;
    let before = core.verdict();
    let mut sid = 0;
    if policy.by_socket() {
        let mut sockets = [Tally::default(); SOCKETS];
        for_each_waiter(key, me, is_head, |waiter| {
            if of_group(&waiter) {
                sockets[waiter.sid as usize % SOCKETS].add(relative(&waiter));
            }
        });
        sid = socket::favoured(policy, &sockets.map(|tally| tally.mean()));
    }
    let same_turn = same_group && before.is_some_and(|before| before.sid == sid);
    let of_socket = |waiter: &Standing| !policy.by_socket() || waiter.sid == sid;
    let counts = |waiter: &Standing| of_group(waiter) && of_socket(waiter);

    let mut all = 0;
    let (mut lowest, mut highest) = (i64::MAX, i64::MIN);
    for_each_waiter(key, me, is_head, |waiter| {
        all += 1;
        if counts(&waiter) {
            lowest = lowest.min(relative(&waiter));
            highest = highest.max(relative(&waiter));
        }
    });
    if lowest > highest {
        // The favoured group runs and does not wait.
        return Census {
            waiters: all,
            mean: 0,
            turned: !same_group,
        };
    }
    let cap = lowest.saturating_add(sched_latency_ns() as i64);
    let mut total = Tally::default();
    for_each_waiter(key, me, is_head, |waiter| {
        if counts(&waiter) {
            total.add(relative(&waiter).min(cap));
        }
    });
    let alone_and_ahead = all == 1 && policy.settings.strict() && policy.left(own, weight) < 0;
    let mean = own.vlht.wrapping_add_signed(total.mean().unwrap_or(0));
    if !alone_and_ahead {
        let credit = policy.take_credit() + policy.least_credit();
        let avg = match before {
            Some(before) if same_turn && !policy.settings.strict() => mean.min(before.avg + credit),
            _ => mean,
        };
        core.set_verdict(Verdict { avg, sid });
    }
    Census {
        waiters: all,
        mean,
        turned: !same_turn,
    }
}

#[derive(Clone, Copy, Default)]
struct Tally {
    sum: i128,
    count: u32,
}

impl Tally {
    fn add(&mut self, vlht: i64) {
        self.sum += i128::from(vlht);
        self.count += 1;
    }

    fn mean(&self) -> Option<i64> {
        (self.count > 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }
}

/// Calls `look` for every waiter: from `me` to the tail for certain, from `me`
/// towards the head as far as the hints lead (N1).
fn for_each_waiter(key: usize, me: u32, is_head: bool, mut look: impl FnMut(Standing)) {
    let mut at = me;
    while at != 0 {
        let waiter = node(at);
        if waiter.word.load(Relaxed) & ABANDONED == 0 {
            look(waiter.standing());
        }
        at = waiter.next.load(Acquire);
    }
    if is_head {
        return;
    }
    at = node(me).prev.load(Relaxed);
    // Stale hints can form a circle.
    for _ in 0..NODES {
        if at == 0 || at == me {
            return;
        }
        let waiter = node(at);
        let Some((standing, before)) = waiter.glimpse(key) else {
            return;
        };
        look(standing);
        if waiter.word.load(Relaxed) & node::HEAD != 0 {
            return;
        }
        at = before;
    }
}

/// Moves waiters that qualify by this average behind `me`, in order, and unlinks
/// abandoned ones. Starts behind `memo` if there is one. Stops early when `me`
/// could acquire.
pub(crate) fn relink(policy: &Policy<'_>, me: u32, memo: u32, avg: u64, is_head: bool) -> Walk {
    let mut walk = Walk {
        last: me,
        checked: if memo == 0 { me } else { memo },
        moved: 0,
    };
    let mut steps = 0_u32;
    loop {
        let at = node(walk.checked).next.load(Acquire);
        if at == 0 {
            return walk;
        }
        steps += 1;
        let acquirable = is_head && policy.lock.core.load() & LOCKED == 0;
        if steps.is_multiple_of(16) && acquirable {
            return walk;
        }
        let waiter = node(at);
        if waiter.word.load(Acquire) & ABANDONED != 0 {
            if unlink(policy, walk.checked, at) {
                node::free_abandoned(at);
            }
        } else if !policy.qualifies(waiter.standing(), avg) {
            walk.checked = at;
        } else if walk.checked == walk.last {
            // Already where it would be moved to.
            walk.last = at;
            walk.checked = at;
        } else if unlink(policy, walk.checked, at) {
            link_behind(walk.last, at);
            walk.last = at;
            walk.moved += 1;
        }
    }
}

/// Whether several criteria must be met at once, so that it is worth counting when
/// no waiter meets them.
pub(crate) fn is_conjunction(policy: &Policy<'_>) -> bool {
    policy.criteria != Criteria::VLHT && (policy.by_group() || policy.by_socket())
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::account::DEFAULT_WEIGHT;
    use crate::held;
    use crate::raw::{Core, Extra, LockRef};
    use crate::sync::LooseU32;
    use proptest::prelude::*;

    /// Queues a node of this vLHT behind `before`.
    fn queue(lock: LockRef<'_>, before: u32, vlht: u64, abandoned: bool) -> u32 {
        let at = node::SLAB.take().expect("few nodes are in use");
        let standing = Standing {
            vlht,
            sid: 0,
            gid: 0,
        };
        node(at).prepare(lock.key(), standing);
        if abandoned {
            node(at).tell(ABANDONED);
        }
        if before != 0 {
            node(at).prev.store(before, Relaxed);
            node(before).next.store(at, Relaxed);
        }
        let set = |word| Some(state::with_tail(word, at));
        let _ = lock.core.state.fetch_update(Relaxed, Relaxed, set);
        at
    }

    /// A lock that is contended now and then, as a cache's locks are. If the
    /// average that it has published fell behind what its visitors have had of
    /// other locks, all of them would be over-served, nobody could steal, and
    /// each meeting would end in the queue.
    #[test]
    fn the_average_keeps_up_with_what_is_held_elsewhere() {
        let (core, extra) = (Core::in_state(LOCKED), Extra::new());
        let lock = LockRef::new(&core, &extra);
        let policy = Policy::of(lock);
        let average_with = |vlht| {
            let me = queue(lock, 0, vlht, false);
            census(&policy, me, DEFAULT_WEIGHT, true);
            node(me).retire();
            node::SLAB.give(me);
            core.verdict().map(|verdict| verdict.avg)
        };
        const LATER: u64 = 10_000_000;
        assert_eq!(average_with(LATER), Some(LATER));
        let held_meanwhile = LATER;
        held::add(&LooseU32::new(0), held_meanwhile);
        assert_eq!(average_with(2 * LATER), Some(2 * LATER));
        // But not by more than that: see the departures above.
        let far = average_with(1_000 * LATER).unwrap();
        assert!(far < 3 * LATER, "{far}");
    }

    proptest! {
        /// Whoever waited still waits, once; who qualifies is in front, in order;
        /// the abandoned are gone; the tail is the tail.
        #[test]
        fn relinking_permutes_the_queue(
            waiters in proptest::collection::vec((0_u64..100, 0_u32..10), 0..40),
            avg in 0_u64..100,
        ) {
            let (core, extra) = (Core::in_state(LOCKED), Extra::new());
            let lock = LockRef::new(&core, &extra);
            let policy = Policy::of(lock);
            let me = queue(lock, 0, 50, false);
            let mut last = me;
            let mut living = Vec::new();
            for (vlht, fate) in waiters {
                last = queue(lock, last, vlht, fate == 0);
                if fate != 0 {
                    living.push((last, vlht));
                }
            }
            let moved_to_front = living.iter().filter(|(_, vlht)| *vlht <= avg);
            let others = living.iter().filter(|(_, vlht)| *vlht > avg);
            let expected: Vec<u32> = moved_to_front.chain(others).map(|(at, _)| *at).collect();

            relink(&policy, me, 0, avg, true);

            let mut found = Vec::new();
            let mut at = node(me).next.load(Relaxed);
            let mut before = me;
            while at != 0 {
                prop_assert!(found.len() <= living.len(), "a circle");
                prop_assert_eq!(node(at).prev.load(Relaxed), before);
                found.push(at);
                before = at;
                at = node(at).next.load(Relaxed);
            }
            prop_assert_eq!(state::tail(core.load()), before);
            prop_assert_eq!(&found, &expected);
            for at in found.into_iter().chain([me]) {
                node(at).retire();
                node::SLAB.give(at);
            }
        }
    }
}
