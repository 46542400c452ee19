//! Acquiring without a queue: because there is none, or before its waiters.
//!
//! A thread that finds the lock free takes it if there is no queue; if there is one,
//! it must be allowed to steal (Section 3.3), and the head must not have claimed the
//! lock. Where
//! spinning pays it looks for about as long as a switch would take, then queues.
//!
//! Deciding whether a thread may go first takes longer than a short critical
//! section. So a thread that has acquired without a queue gets a *lease*: while its
//! holds go unmeasured (see [`release`](crate::release)), for 8 µs at most, it
//! acquires by one exchange if the lock is free and no thread has queued since, nor
//! has the head woken up or fallen asleep.

use super::spin::{self, Backoff};
use crate::criteria::Policy;
use crate::fork;
use crate::node::Standing;
use crate::raw::{HoldStart, Kind, LockRef};
use crate::state::{ALONE, CLAIMED, LEASED_WITH, LOCKED, TAIL, WATCHED};
use crate::sync::{Acquire, MODEL, Relaxed, cpus, give_cpu};
use crate::thread::{self, Thread};
use giveway_machine::futex::Deadline;

/// The start of a hold that met no queue, measured or not.
pub(super) fn sampled_start(thread: Option<&Thread>) -> HoldStart {
    if thread.is_some_and(Thread::skips_measuring) {
        HoldStart::SKIPPED
    } else {
        HoldStart::now()
    }
}

/// Acquires if nobody holds the lock and nobody waits for it, or if the thread may
/// go before those that wait, as [`contended`](super::contended) has it. A thread that
/// only tries would otherwise go first for ever: it releases, and tries again before
/// the head has woken up.
#[cold]
pub(crate) fn try_once(lock: LockRef<'_>, kind: Kind) -> Option<HoldStart> {
    fork::check(lock);
    if take_unwanted(lock).is_some() {
        return Some(HoldStart::now());
    }
    if lock.core.load() & (LOCKED | CLAIMED) != 0 {
        return None;
    }
    let Some(thread) = thread::current() else {
        return take_unclaimed(lock);
    };
    let policy = Policy::of(lock);
    let standing = policy.standing(thread);
    let entitled = !policy.settings.strict() || policy.left(standing, thread.weight()) >= 0;
    let barging = policy.settings.barging(kind == Kind::Mutex);
    let passes = barging && entitled;
    let taken = passes && steal(&policy, standing, thread.weight(), false).is_some();
    taken.then(HoldStart::now)
}

/// Acquires if nobody holds the lock and no waiter has claimed it.
fn take_unclaimed(lock: LockRef<'_>) -> Option<HoldStart> {
    let mut state = lock.core.load();
    while state & (LOCKED | CLAIMED) == 0 {
        match try_set(lock, state, state | LOCKED) {
            Ok(_) => return Some(HoldStart::now()),
            Err(now) => state = now,
        }
    }
    None
}

/// Acquires a free lock without a queue. Returns the state that it was in.
pub(super) fn take_unwanted(lock: LockRef<'_>) -> Option<u64> {
    let mut state = lock.core.load();
    while state & (LOCKED | TAIL) == 0 {
        match try_set(lock, state, state | LOCKED) {
            Ok(_) => return Some(state),
            Err(now) => state = now,
        }
    }
    None
}

/// Lets a thread that has acquired the lock in this state, without a queue, do so
/// again without asking ([`LockRef::take_leased`]).
pub(super) fn lease(policy: &Policy<'_>, thread: &Thread, state: u64) {
    // Statistics are to count every steal.
    if policy.settings.barging(true) && !policy.settings.statistics() {
        thread.set_lease(policy.lock.key(), state & LEASED_WITH);
    }
}

/// Strict guarantee: whether the thread has idled here for nobody, and still
/// nobody else has come. Who comes says so by this very question.
pub(super) fn alone(lock: LockRef<'_>, thread: &Thread) -> bool {
    if lock.core.load() & ALONE == 0 {
        return false;
    }
    let alone = thread.was_alone_at(lock.key());
    if !alone {
        lock.core.state.fetch_and(!ALONE, Relaxed);
    }
    alone
}

pub(super) fn try_set(lock: LockRef<'_>, from: u64, to: u64) -> Result<u64, u64> {
    lock.core.state.compare_exchange(from, to, Acquire, Relaxed)
}

/// Barging (Section 3.3): acquires although others wait, or, if it is `patient`, waits
/// a moment for the chance. Returns the state that the lock was in.
pub(super) fn steal(
    policy: &Policy<'_>,
    standing: Standing,
    weight: u32,
    patient: bool,
) -> Option<u64> {
    let lock = policy.lock;
    let mut backoff = Backoff::new();
    loop {
        let state = lock.core.load();
        let wanted = state & TAIL != 0;
        let watched = state & WATCHED != 0;
        if wanted && (state & CLAIMED != 0 || !policy.may_steal(standing, weight, watched)) {
            return None;
        }
        if state & LOCKED == 0 {
            if try_set(lock, state, state | LOCKED).is_ok() {
                if wanted && policy.settings.statistics() {
                    policy.settings.counters.steals.fetch_add(1, Relaxed);
                }
                return Some(state);
            }
            continue;
        }
        if !patient || MODEL || cpus() == 1 || backoff.is_longest() || !spin::pays(state) {
            return None;
        }
        backoff.pause();
    }
}

/// For a thread without a slot or a node: all of thousands are taken.
pub(super) fn beside_the_queue(lock: LockRef<'_>, deadline: Option<Deadline>) -> Option<HoldStart> {
    loop {
        if let Some(start) = take_unclaimed(lock) {
            return Some(start);
        }
        if deadline.is_some_and(Deadline::passed) {
            return None;
        }
        give_cpu();
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::node::{SLAB, node};
    use crate::options::Options;
    use crate::raw::{Core, Extra};
    use crate::state::{self, METERED, Verdict};

    /// Whether a thread that has had so much may take the free lock, at which one
    /// waits that has had nothing.
    fn gets(vlht: u64, kind: Kind, options: Option<Options>) -> bool {
        std::thread::scope(|scope| {
            let tries = scope.spawn(|| {
                let (core, extra) = (Core::in_state(METERED), Extra::new());
                let lock = LockRef::new(&core, &extra);
                if let Some(options) = options {
                    lock.set_profile(options.register("tries").expect("few profiles"));
                }
                let waiter = SLAB.take().expect("few nodes are in use");
                node(waiter).prepare(lock.key(), Standing::default());
                let queued = |state| Some(state::with_tail(state, waiter));
                let _ = core.state.fetch_update(Acquire, Relaxed, queued);
                core.set_verdict(Verdict { avg: 0, sid: 0 });
                let thread = thread::current().expect("few slots are in use");
                let account = thread.account_for(lock.key(), Policy::of(lock).scope);
                account.charge(vlht, 0);
                let got = lock.try_lock(kind).is_some();
                node(waiter).retire();
                SLAB.give(waiter);
                got
            });
            tries.join().expect("it does not panic")
        })
    }

    #[test]
    fn who_tries_passes_waiters_within_its_slice_only() {
        let second = 1_000_000_000;
        assert!(gets(0, Kind::Mutex, None));
        assert!(!gets(second, Kind::Mutex, None));
        // Barging is off.
        assert!(!gets(0, Kind::Spin, None));
        let in_order = Options::default().barging(false);
        assert!(!gets(0, Kind::Mutex, Some(in_order)));
        let strict = Options::default().strict_guarantee(true);
        assert!(!gets(second, Kind::Mutex, Some(strict)));
    }
}
