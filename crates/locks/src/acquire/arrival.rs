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
use crate::raw::{HoldStart, LockRef};
use crate::state::{ALONE, CLAIMED, LEASED_WITH, LOCKED, TAIL, WATCHED};
use crate::sync::{Acquire, MODEL, Relaxed, cpus, give_cpu};
use crate::thread::Thread;
use giveway_machine::futex::Deadline;

/// The start of a hold that met no queue, measured or not.
pub(super) fn sampled_start(thread: Option<&Thread>) -> HoldStart {
    if thread.is_some_and(Thread::skips_measuring) {
        HoldStart::SKIPPED
    } else {
        HoldStart::now()
    }
}

/// Acquires if nobody holds the lock and no waiter has claimed it.
#[cold]
pub(crate) fn try_once(lock: LockRef<'_>) -> Option<HoldStart> {
    fork::check(lock);
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

/// Barging (Section 3.3): acquires although others wait, or waits a moment for
/// the chance. Returns the state that the lock was in.
pub(super) fn steal(policy: &Policy<'_>, standing: Standing, weight: u32) -> Option<u64> {
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
        if MODEL || cpus() == 1 || backoff.is_longest() || !spin::pays(state) {
            return None;
        }
        backoff.pause();
    }
}

/// For a thread without a slot or a node: all of thousands are taken.
pub(super) fn beside_the_queue(lock: LockRef<'_>, deadline: Option<Deadline>) -> Option<HoldStart> {
    loop {
        if let Some(start) = try_once(lock) {
            return Some(start);
        }
        if deadline.is_some_and(Deadline::passed) {
            return None;
        }
        give_cpu();
    }
}
