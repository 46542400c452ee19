//! Editing the queue: its links, and the tail in the lock.
//!
//! A node's `next` has one writer at a time (N3): the thread that has just
//! replaced it as the tail, once, and from then on the lock scheduler. The two
//! meet at the tail only. Whoever moves or unlinks it therefore first makes its
//! predecessor look like a tail, then replaces it in the lock's word by one
//! exchange; if that fails, a thread has queued behind it, and its link comes at
//! once, unless that thread has just lost its CPU. After a moment the wait for it is a
//! sleep: the waiting thread may be the one that keeps it from a CPU, by real-time
//! priority. The sleep ends by a deadline, not by a wake-up, so that queueing does
//! not pay for this rare case.
//!
//! Functions here are called with the role (N4), but for [`replace_tail`] and
//! [`wait_for_next`], which a head that leaves the queue calls on its own node.

use std::time::Duration;

use crate::criteria::Policy;
use crate::node::node;
use crate::state;
use crate::sync::{AcqRel, Acquire, MODEL, Relaxed, Release, relax};
use giveway_machine::futex::{self, Deadline};

/// Looks at a link that is about to be written, before sleeping.
const LINK_SPINS: u32 = 256;

/// Sleep between looks at a link whose writer is not running.
const LINK_NAP: Duration = Duration::from_micros(50);

/// Takes `at`, which follows `before`, out of the queue. False if it must be
/// tried again, because `at` has just got a successor.
///
/// Both are behind the scheduler or `before` is the scheduler, so nobody else
/// writes their links, with one exception: `at.next` while `at` is the tail (N3).
pub(crate) fn unlink(policy: &Policy<'_>, before: u32, at: u32) -> bool {
    let next = node(at).next.load(Acquire);
    if next != 0 {
        node(before).next.store(next, Release);
        node(next).prev.store(before, Relaxed);
        return true;
    }
    // `before` must look like a tail before it is one: who replaces it as the
    // tail writes its `next` at once.
    node(before).next.store(0, Relaxed);
    if replace_tail(policy, at, before) {
        return true;
    }
    node(before).next.store(at, Release);
    wait_for_next(at);
    false
}

/// Makes `to` the tail if `from` is.
pub(crate) fn replace_tail(policy: &Policy<'_>, from: u32, to: u32) -> bool {
    let core = policy.lock.core;
    let mut word = core.load();
    while state::tail(word) == from {
        let new = state::with_tail(word, to);
        match core.state.compare_exchange_weak(word, new, AcqRel, Relaxed) {
            Ok(_) => return true,
            Err(now) => word = now,
        }
    }
    false
}

/// The successor of a node that is not the tail. Its thread writes it right
/// after it has become the tail.
pub(crate) fn wait_for_next(at: u32) -> u32 {
    let mut spins = 0_u32;
    loop {
        let next = node(at).next.load(Acquire);
        if next != 0 {
            return next;
        }
        spins += 1;
        if spins < LINK_SPINS || MODEL {
            relax();
        } else {
            futex::wait(&node(at).next, 0, Deadline::after(LINK_NAP));
        }
    }
}

/// Puts `at`, which is in no queue, behind `before`, which is not the tail.
pub(crate) fn link_behind(before: u32, at: u32) {
    let next = node(before).next.load(Acquire);
    debug_assert_ne!(next, 0, "N3");
    node(at).next.store(next, Relaxed);
    node(at).prev.store(before, Relaxed);
    node(next).prev.store(at, Relaxed);
    node(before).next.store(at, Release);
}

/// Puts the head `me` behind `last`, and returns who is first now. The caller
/// must make that one the head.
pub(crate) fn step_behind(policy: &Policy<'_>, me: u32, last: u32) -> u32 {
    let first = node(me).next.load(Acquire);
    let behind = node(last).next.load(Acquire);
    node(me).prev.store(last, Relaxed);
    if behind == 0 {
        node(me).next.store(0, Relaxed);
        if replace_tail(policy, last, me) {
            node(last).next.store(me, Release);
            return first;
        }
    }
    let behind = wait_for_next(last);
    node(me).next.store(behind, Relaxed);
    node(behind).prev.store(me, Relaxed);
    node(last).next.store(me, Release);
    first
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::node::SLAB;

    fn cpu_time() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is a place for the time of a clock that always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    #[test]
    fn waiting_for_a_link_sleeps_while_its_writer_has_no_cpu() {
        let at = SLAB.take().expect("few nodes are in use");
        node(at).next.store(0, Relaxed);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let before = cpu_time();
                (wait_for_next(at), cpu_time() - before)
            });
            std::thread::sleep(Duration::from_millis(300));
            node(at).next.store(7, Release);
            let (next, used) = waiting.join().expect("it does not panic");
            assert_eq!(next, 7);
            // Spinning, it would be what a CPU does in 300 ms. Asleep it is that of
            // thousands of short sleeps: 53 ms have been seen on a busy machine.
            assert!(used < Duration::from_millis(150), "{used:?}");
        });
        SLAB.give(at);
    }
}
