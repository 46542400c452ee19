//! Releasing (Section 3.2.1, Figure 3 lines 27 to 31).
//!
//! First the hold is entered in the accounts, then one write to the lock makes
//! it free, then a sleeping head is woken. After the write the lock is not
//! touched (see [`state`](crate::state)): the head's node is known from the
//! word that was replaced, and a node is always there (N1).
//!
//! A lock that nobody contends is not metered: reading a clock twice would cost
//! more than locking. The first thread that queues turns metering on, so the
//! hold that it meets is the one that is not counted. It is turned off again by
//! chance, with each hold that met nobody, once in [`COOL_DOWN`] on average.

use crate::criteria::Policy;
use crate::group;
use crate::node::{PARKED, node};
use crate::raw::{HoldStart, LockRef};
use crate::state::{self, HEAD_PARKED, LOCKED, METERED, TAIL, Verdict};
use crate::sync::{Relaxed, Release};
use crate::{clock, futex, thread};

/// Uncontended holds until metering ends, on average.
const COOL_DOWN: u64 = 64;

/// Enters a metered hold. The caller still holds the lock.
#[inline(never)]
pub(crate) fn settle(lock: LockRef<'_>, start: HoldStart) {
    let policy = Policy::of(lock);
    let now = clock::now();
    let held_ns = clock::ns(now.saturating_sub(start.to_bits()));
    let statistics = policy.settings.statistics();
    if statistics {
        let counters = &policy.settings.counters;
        counters.acquisitions.fetch_add(1, Relaxed);
        counters.hold_ns.fetch_add(held_ns, Relaxed);
    }
    let Some(thread) = thread::current() else {
        return;
    };
    let charge = thread.charge(lock.key(), policy.scope, held_ns, now, statistics);
    if policy.by_group() {
        group::charge(thread.gid(), lock.key(), policy.scope, held_ns, now);
    }
    let state = lock.core.load();
    if state & TAIL == 0 && !policy.settings.strict() {
        advance_alone(&policy, thread, charge);
    }
    if state & TAIL == 0 && now.is_multiple_of(COOL_DOWN) && !policy.settings.always_metered() {
        lock.core.state.fetch_and(!METERED, Relaxed);
    }
}

/// With nobody waiting there is no census, so the average follows the one
/// thread that holds the lock: by its own charge and never beyond its vLHT, as
/// CFS lets `min_vruntime` follow a lone task. Else a thread that comes back
/// would be owed all the time that it was not there.
fn advance_alone(policy: &Policy<'_>, thread: &thread::Thread, charge: u64) {
    let Some(verdict) = policy.lock.core.verdict() else {
        return;
    };
    if policy.by_group() && thread.gid() != state::min_gid(policy.lock.core.load()) {
        return;
    }
    let own = thread.account_for(policy.lock.key(), policy.scope).vlht();
    let avg = (verdict.avg + charge).min(own);
    if avg > verdict.avg {
        policy.lock.core.set_verdict(Verdict { avg, ..verdict });
    }
}

/// Makes the lock free, and wakes the head if it sleeps.
#[inline]
pub(crate) fn release(lock: LockRef<'_>) {
    if lock
        .core
        .state
        .compare_exchange(LOCKED, 0, Release, Relaxed)
        .is_err()
    {
        release_watched(lock);
    }
}

#[inline(never)]
fn release_watched(lock: LockRef<'_>) {
    let mut state = lock.core.load();
    while let Err(now) = lock.core.state.compare_exchange_weak(
        state,
        state & !(LOCKED | HEAD_PARKED),
        Release,
        Relaxed,
    ) {
        state = now;
    }
    // From here on only `state`, a copy, is looked at.
    if state & HEAD_PARKED != 0 {
        wake(state::parked_head(state));
    }
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
