//! Releasing (Section 3.2.1, Figure 3 lines 27 to 31).
//!
//! First the hold is entered in the accounts, then one write to the lock makes
//! it free, then a sleeping head is woken. After the write the lock is not
//! touched (see [`crate::state`]): the head's node is known from the
//! word that was replaced, and a node is always there (N1).
//!
//! An uncontended lock is not metered: reading a clock twice would cost
//! more than locking. The first thread that queues turns metering on. It is
//! turned off again by chance, with each uncontended hold, once in
//! [`COOL_DOWN`] on average. With it goes all else in the lock's state that is left of
//! contention, the favoured group too: the fast path takes a state of 0 only. The
//! verdict is about that group, so it is forgotten as well.
//!
//! A contended lock with very short critical sections would still spend more
//! time on clocks than on work. So after a hold shorter than 500 ns a thread
//! skips measuring for a number of holds, drawn at random, that last 8 µs at
//! most if they are as short (and are 127 at most), as long as they meet no
//! queue. The hold measured next counts for them too, each as 500 ns at most:
//! were they as long as one during which the thread lost its CPU, that would be
//! charged for each of them.
//!
//! A hold that is not measured and turns out long is noticed by the head of
//! the queue: it watches, then sleeps, and notes when. The release that has to
//! wake it charges the time since then. What stays uncounted is the head's
//! watching, 50 µs unless changed, of a long hold that follows a short one.
//!
//! Known weakness: that is so for each of the up to 127 holds that are skipped. Where
//! 98 % of a thread's holds take 60 ns and 2 % take 45 µs, the latter are skipped mostly,
//! and it is charged an eleventh of what it holds.

use crate::account::Hold;
use crate::criteria::Policy;
use crate::group;
use crate::node::{PARKED, node};
use crate::options::Scope;
use crate::raw::{HoldStart, LockRef};
use crate::state::{
    self, ALONE, HEAD_PARKED, LEVEL, LOCKED, METERED, MIN_GID, PARKED_HEAD, TAIL, Verdict,
};
use crate::sync::{Acquire, Relaxed, Release, fence};
use giveway_machine::futex;

use crate::{clock, options, thread};

/// Uncontended holds until metering ends, on average.
const COOL_DOWN: u32 = 64;

/// Enters a metered hold. The caller still holds the lock.
#[inline(never)]
pub(crate) fn settle(lock: LockRef<'_>, start: HoldStart) {
    let policy = Policy::of(lock);
    let now = clock::now();
    let measured_ns = clock::held_ns(start.to_bits(), now);
    let Some(thread) = thread::current() else {
        return;
    };
    let statistics = policy.settings.statistics();
    let (ns, holds) = thread.sampled(measured_ns, now, statistics);
    let hold = Hold {
        lock: lock.key(),
        scope: policy.scope,
        ns,
        holds,
        now,
    };
    if statistics {
        let counters = &policy.settings.counters;
        counters.acquisitions.fetch_add(holds, Relaxed);
        counters.hold_ns.fetch_add(hold.ns, Relaxed);
    }
    let charge = thread.charge(&hold, statistics);
    if !policy.settings.strict() && policy.scope == Scope::Lock {
        lock.extra.add_credit(charge, now);
    }
    if policy.by_group() {
        group::charge(thread.gid(), &hold);
    }
    let state = lock.core.load();
    if state & TAIL == 0 {
        advance_alone(&policy, thread, charge);
    }
    let cools = clock::draw(now).is_multiple_of(COOL_DOWN);
    if state & TAIL == 0 && cools && !policy.settings.always_metered() {
        cool_down(lock, state);
    }
}

/// Ends the metering of a lock that nobody waits for in this state, unless somebody has
/// come. The caller still holds it.
fn cool_down(lock: LockRef<'_>, state: u64) {
    let cool = state & !(METERED | LEVEL | MIN_GID);
    let cooled = (lock.core.state).compare_exchange(state, cool, Relaxed, Relaxed);
    if cooled.is_ok() && state & MIN_GID != 0 {
        // One that a waiter which has just come publishes may be lost: its next walk
        // publishes again.
        lock.core.forget_verdict();
    }
}

/// With nobody waiting there is no census, so the average follows the one
/// thread that holds the lock: by its own charge and never beyond its vLHT, as
/// CFS lets `min_vruntime` follow a lone task. Else a thread that comes back
/// would be owed all the time that it was not there.
fn advance_alone(policy: &Policy<'_>, thread: &thread::Thread, charge: u64) {
    let core = policy.lock.core;
    if policy.by_group() && thread.gid() != state::min_gid(core.load()) {
        return;
    }
    let own = thread.account_for(policy.lock.key(), policy.scope).vlht();
    let before = match core.verdict() {
        None => Verdict { avg: own, sid: 0 },
        // Under the strict guarantee a thread waits for others, unless it has
        // done so in vain.
        Some(_) if policy.settings.strict() && core.load() & ALONE == 0 => return,
        Some(before) => before,
    };
    let avg = (before.avg + charge).min(own);
    if avg >= before.avg {
        core.set_verdict(Verdict { avg, ..before });
    }
}

/// Makes the lock free, and wakes the head if it sleeps.
#[inline]
pub(crate) fn release(lock: LockRef<'_>, start: HoldStart) {
    let state = &lock.core.state;
    let held = match start {
        HoldStart::UNMETERED => LOCKED,
        // No thread in its last destructors skips a measurement: its slot is
        // too short-lived.
        HoldStart::SKIPPED => lock.core.load(),
        _ => return release_watched(lock, start),
    };
    let unwatched = held & HEAD_PARKED == 0
        && state
            .compare_exchange(held, held & !LOCKED, Release, Relaxed)
            .is_ok();
    if !unwatched {
        release_watched(lock, start);
    }
}

#[inline(never)]
fn release_watched(lock: LockRef<'_>, start: HoldStart) {
    let settings = options::settings(lock.extra.profile());
    let mut state = lock.core.load();
    if state & HEAD_PARKED != 0 && !start.is_metered() {
        // Pairs with the release of the flag by the head, which has noted the
        // time before.
        fence(Acquire);
        let since = node(state::parked_head(state)).parked_at.load(Relaxed);
        settle(lock, HoldStart::from_bits(since));
    }
    while let Err(now) = lock.core.state.compare_exchange_weak(
        state,
        state & !(LOCKED | PARKED_HEAD),
        Release,
        Relaxed,
    ) {
        state = now;
    }
    // From here on only `state`, a copy, is looked at, and the static settings.
    if state & HEAD_PARKED != 0 && wake(state::parked_head(state)) && settings.statistics() {
        settings.counters.wakes.fetch_add(1, Relaxed);
    }
    thread::end_of_turn();
}

/// Wakes the waiter of this node, if it sleeps. A waiter that should not have
/// been woken looks around and sleeps again.
pub(crate) fn wake(at: u32) -> bool {
    let sleeps = node(at).untell(PARKED) & PARKED != 0;
    if sleeps {
        futex::wake(&node(at).word, 1);
    }
    sleeps
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::raw::{Core, Extra, Kind};

    /// A lock that was contended, whose head has slept and whose favoured group was not
    /// the root, is taken by one exchange again once nobody contends any more.
    #[test]
    fn contention_leaves_nothing_behind() {
        let (core, extra) = (Core::new(), Extra::new());
        let lock = LockRef::new(&core, &extra);
        let hold = || {
            let start = lock.lock(Kind::Mutex);
            // SAFETY: acquired just now with this start.
            unsafe { lock.unlock(start) };
        };
        std::thread::scope(|scope| {
            let start = lock.lock(Kind::Mutex);
            scope.spawn(hold);
            while core.load() & HEAD_PARKED == 0 {
                std::thread::yield_now();
            }
            core.set_min_gid(3);
            // SAFETY: acquired above with this start.
            unsafe { lock.unlock(start) };
        });
        // As many as make a chance of one in COOL_DOWN certain.
        let holds = (0..100_000)
            .take_while(|_| core.load() != 0)
            .map(|_| hold());
        assert!(holds.count() < 100_000, "{:#x}", core.load());
        assert!(lock.take_uncontended());
    }
}
