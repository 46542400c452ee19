//! The queue of a condition variable: its waiters, and how they are woken and leave.
//!
//! ```text
//! byte  0  lock      generation << 2 | free, held or contended
//!       4  pins      signalled waiters that have not seen it yet; the top bit is
//!                    set while a thread waits to destroy
//!       8  first     the waiter that has waited longest, or null
//!      16  last
//!      24  flags     four words, of which the one where glibc has its flags has
//!                    them here too: 1 shared between processes, 2 CLOCK_MONOTONIC
//!      40  tickets   waiters that ever came
//! ```
//!
//! Which word that is, is found out when the library is loaded (`layout.rs`):
//! byte 36 up to glibc 2.40, byte 28 since.
//!
//! All zero is an empty condition variable, so static initialisers work. The
//! queue is made of `Waiter`s on the stacks of those who wait:
//!
//! ```text
//! WAITING --signal---------> SIGNALLED   out of the queue; holds a pin
//!    |------broadcast------> RELEASED    out of the queue
//!    '------timeout, cancel-> LEAVING    still queued; takes itself out
//! ```
//!
//! Invariants:
//!
//! 1. The queue is read and changed only with `lock` held. (Asserted in `join` and
//!    `is_being_destroyed`.)
//! 2. A waiter in the queue is WAITING or LEAVING, and its frame is alive: it
//!    returns only after it was made SIGNALLED or RELEASED, or took itself out.
//!    (Asserted in `take`.)
//! 3. The thread that makes a waiter SIGNALLED or RELEASED does not touch it
//!    afterwards, except to wake the address, which needs no memory there. (Not
//!    asserted: nothing marks a frame that is gone.)
//! 4. A RELEASED waiter does not touch the condition variable, so that may be
//!    destroyed as soon as a broadcast returns. For waiters that are LEAVING or
//!    hold a pin, destroying waits, asleep; they are on their way out. (Not asserted,
//!    as 3; the test `destroying_sleeps_until_all_have_left_and_seen`.)
//! 5. A waiter that was signalled and is cancelled passes the signal on, and
//!    holds its pin until it has. (Not asserted: `abandon` does both in this order.)
//! 6. While DESTROYING is set, every waiter in the queue holds a pin, too: so the
//!    pins are all that is waited for. The thread that drops the last one touches
//!    nothing afterwards and wakes the address. (Asserted in `unpin`: as many pins
//!    were held.)
//! 7. A thread that holds `lock` cannot be cancelled and runs a bounded number of
//!    steps. (Not asserted: no cancellation point is called under it.)
//!
//! Fork: the child has the queue but not the threads in it, whose stacks glibc
//! reuses. The lock therefore carries the generation, a count of forks
//! (`fork.rs`); a thread that finds another one empties the queue and drops the pins.
//!
//! Weakness: a broadcast wakes with one system call per waiter.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use giveway_machine::futex;
use libc::{pthread_cond_t, pthread_mutex_t};

use crate::{fork, layout};

/// Bits of `flags`.
pub(crate) const SHARED: u32 = 1;
pub(crate) const MONOTONIC: u32 = 2;

/// Values of `lock` below the generation.
const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const GENERATION_SHIFT: u32 = 2;

/// Values of `Waiter::state`.
pub(super) const WAITING: u32 = 0;
const SIGNALLED: u32 = 1;
const LEAVING: u32 = 2;
const RELEASED: u32 = 3;

/// In `pins`: a thread sleeps until there are no pins left.
const DESTROYING: u32 = 1 << 31;

/// Addresses that a broadcast collects before it wakes them.
const BATCH: usize = 32;
/// Looks at a held lock before sleeping; it is held for some ten instructions.
const SPINS: u32 = 50;

/// A condition variable: see the module's drawing.
#[repr(C)]
pub(super) struct Cond {
    lock: AtomicU32,
    pins: AtomicU32,
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
    flags: [AtomicU32; 4],
    tickets: AtomicU64,
}

const _: () = assert!(size_of::<Cond>() <= size_of::<pthread_cond_t>());
const _: () = assert!(align_of::<Cond>() <= align_of::<pthread_cond_t>());

/// The first of the words that glibc may have its flags in.
const FLAGS_WORD: usize = std::mem::offset_of!(Cond, flags) / 4;

/// Whether glibc may have its flags in this 32-bit word.
pub(crate) fn leaves_free(word: usize) -> bool {
    (FLAGS_WORD..FLAGS_WORD + 4).contains(&word)
}

/// One thread that waits. All atomic: others read it while its thread does.
pub(super) struct Waiter {
    state: AtomicU32,
    /// Its place in the order of coming.
    ticket: AtomicU64,
    next: AtomicPtr<Waiter>,
    previous: AtomicPtr<Waiter>,
    cond: *const Cond,
    mutex: *mut pthread_mutex_t,
}

impl Waiter {
    pub(super) fn new(cond: &Cond, mutex: *mut pthread_mutex_t) -> Waiter {
        Waiter {
            state: AtomicU32::new(WAITING),
            ticket: AtomicU64::new(0),
            next: AtomicPtr::default(),
            previous: AtomicPtr::default(),
            cond,
            mutex,
        }
    }

    /// Whether it has not been woken.
    pub(super) fn is_waiting(&self) -> bool {
        self.state.load(Acquire) == WAITING
    }

    /// What the waiter sleeps on.
    pub(super) fn word(&self) -> &AtomicU32 {
        &self.state
    }

    pub(super) fn cond(&self) -> *const Cond {
        self.cond
    }

    /// The mutex to be locked again.
    pub(super) fn mutex(&self) -> *mut pthread_mutex_t {
        self.mutex
    }
}

impl Cond {
    /// Where glibc has its flags.
    fn flags_place(&self) -> &AtomicU32 {
        // The remainder is for the compiler: `layout` accepts these four only.
        &self.flags[layout::cond_flags_word().wrapping_sub(FLAGS_WORD) % 4]
    }

    pub(super) fn flags(&self) -> u32 {
        self.flags_place().load(Relaxed)
    }

    pub(super) fn set_flags(&self, flags: u32) {
        self.flags_place().store(flags, Relaxed);
    }

    /// Sleeps until no thread touches the memory any more (4). No thread may be
    /// waiting, so those still there are on their way out.
    pub(super) fn await_unused(&self) {
        self.lock();
        let mut queued = 0;
        let mut next = self.first.load(Relaxed);
        // SAFETY: the lock is held (1), so what the queue leads to is alive (2).
        while let Some(waiter) = unsafe { next.as_ref() } {
            queued += 1;
            next = waiter.next.load(Relaxed);
        }
        self.pins.fetch_add(queued | DESTROYING, Relaxed);
        self.unlock();
        loop {
            // Pairs with the release of the last pin.
            let pins = self.pins.load(Acquire);
            if pins == DESTROYING {
                break;
            }
            futex::wait(&self.pins, pins, None);
        }
        self.pins.store(0, Relaxed);
    }

    /// Whether somebody waits to destroy. The lock is held (1).
    fn is_being_destroyed(&self) -> bool {
        debug_assert!(self.is_locked(), "1");
        self.pins.load(Relaxed) & DESTROYING != 0
    }

    /// Drops pins. The last touch of the condition variable.
    fn unpin(&self, pins: u32) {
        let address: *const AtomicU32 = &self.pins;
        let before = self.pins.fetch_sub(pins, Release);
        debug_assert!(before & !DESTROYING >= pins, "6");
        if before == DESTROYING | pins {
            futex::wake(address, 1);
        }
    }

    fn lock(&self) {
        let generation = fork::generation() << GENERATION_SHIFT;
        let mut spins = 0;
        // A thread that has slept cannot know whether others still do.
        let mut taken = HELD;
        loop {
            let word = self.lock.load(Relaxed);
            if word & !0b11 != generation {
                // The queue is of threads that this process does not have, or
                // of no threads at all.
                let won = self
                    .lock
                    .compare_exchange(word, generation | HELD, Acquire, Relaxed);
                if won.is_ok() {
                    self.first.store(ptr::null_mut(), Relaxed);
                    self.last.store(ptr::null_mut(), Relaxed);
                    self.pins.store(0, Relaxed);
                    return;
                }
            } else if word & 0b11 == FREE {
                let won = self
                    .lock
                    .compare_exchange(word, generation | taken, Acquire, Relaxed);
                if won.is_ok() {
                    return;
                }
            } else if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                let contended = generation | CONTENDED;
                if word == contended
                    || (self
                        .lock
                        .compare_exchange(word, contended, Relaxed, Relaxed))
                    .is_ok()
                {
                    futex::wait(&self.lock, contended, None);
                    taken = CONTENDED;
                }
            }
        }
    }

    /// Whether some thread holds `lock`. For assertions.
    fn is_locked(&self) -> bool {
        self.lock.load(Relaxed) & 0b11 != FREE
    }

    fn unlock(&self) {
        let generation = fork::generation() << GENERATION_SHIFT;
        if self.lock.swap(generation | FREE, Release) & 0b11 == CONTENDED {
            futex::wake(&self.lock, 1);
        }
    }

    /// Appends `waiter`, which stays where it is until it has left.
    pub(super) fn enqueue(&self, waiter: &Waiter) {
        self.lock();
        let ticket = self.tickets.load(Relaxed);
        self.tickets.store(ticket + 1, Relaxed);
        waiter.ticket.store(ticket, Relaxed);
        let last = self.last.load(Relaxed);
        waiter.previous.store(last, Relaxed);
        let waiter = ptr::from_ref(waiter).cast_mut();
        // SAFETY: the lock is held (1), so `last` is a live waiter (2).
        match unsafe { last.as_ref() } {
            Some(last) => last.next.store(waiter, Relaxed),
            None => self.first.store(waiter, Relaxed),
        }
        self.last.store(waiter, Relaxed);
        if self.is_being_destroyed() {
            self.pins.fetch_add(1, Relaxed);
        }
        self.unlock();
    }

    /// Closes the gap between two neighbours. The lock is held (1).
    fn join(&self, previous: *mut Waiter, next: *mut Waiter) {
        debug_assert!(self.is_locked(), "1");
        // SAFETY: both are in the queue, hence alive (2).
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.store(next, Relaxed),
                None => self.first.store(next, Relaxed),
            }
            match next.as_ref() {
                Some(next) => next.previous.store(previous, Relaxed),
                None => self.last.store(previous, Relaxed),
            }
        }
    }

    /// The waiter gives up. Whether it did: if not, it was woken before.
    pub(super) fn leave(&self, waiter: &Waiter) -> bool {
        // From here on it is not woken, and destroying waits for it (4).
        let left = waiter
            .state
            .compare_exchange(WAITING, LEAVING, Acquire, Acquire);
        if left.is_ok() {
            self.lock();
            self.join(waiter.previous.load(Relaxed), waiter.next.load(Relaxed));
            let pinned = self.is_being_destroyed();
            self.unlock();
            if pinned {
                self.unpin(1);
            }
        }
        left.is_ok()
    }

    /// The waiter, woken, knows it. The last touch of the condition variable.
    pub(super) fn see(&self, waiter: &Waiter) {
        if waiter.state.load(Relaxed) == SIGNALLED {
            self.unpin(1);
        }
    }

    /// The waiter gives up and does not want a signal either (5).
    pub(super) fn abandon(&self, waiter: &Waiter) {
        if !self.leave(waiter) && waiter.state.load(Relaxed) == SIGNALLED {
            self.signal();
            self.see(waiter);
        }
    }

    /// Wakes the first waiter, if there is one.
    pub(super) fn signal(&self) {
        // An empty queue needs no lock: a waiter that the caller has to wake
        // queued itself before it unlocked the mutex under which the caller
        // changed what it waits for.
        if self.first.load(Acquire).is_null() {
            return;
        }
        let mut woken = [ptr::null()];
        if self.take(&mut woken, u64::MAX, SIGNALLED) == 1 {
            futex::wake(woken[0], 1);
        }
    }

    /// Wakes those who wait now.
    pub(super) fn broadcast(&self) {
        if self.first.load(Acquire).is_null() {
            return;
        }
        // Those who come while this goes on are not meant.
        let newest = self.tickets.load(Relaxed);
        loop {
            let mut woken = [ptr::null(); BATCH];
            let count = self.take(&mut woken, newest, RELEASED);
            for address in &woken[..count] {
                futex::wake(*address, 1);
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// Makes the waiters that came first, and before the ticket `newest`,
    /// SIGNALLED or RELEASED; stores the addresses that wake them, and returns
    /// how many.
    fn take(&self, woken: &mut [*const AtomicU32], newest: u64, as_state: u32) -> usize {
        let mut count = 0;
        self.lock();
        // Signalled waiters hold a pin; all do that are queued (6).
        let (has_pin, keeps_pin) = (self.is_being_destroyed(), as_state == SIGNALLED);
        let mut next = self.first.load(Relaxed);
        // SAFETY: the lock is held (1), so what the queue leads to is alive (2).
        while let Some(waiter) = unsafe { next.as_ref() } {
            if count == woken.len() || waiter.ticket.load(Relaxed) >= newest {
                break;
            }
            // Read now: once woken, the waiter's frame may be gone (3).
            let previous = waiter.previous.load(Relaxed);
            next = waiter.next.load(Relaxed);
            let address: *const AtomicU32 = &waiter.state;
            if keeps_pin && !has_pin {
                // Before the waiter can see that it has one.
                self.pins.fetch_add(1, Relaxed);
            }
            let won = (waiter.state).compare_exchange(WAITING, as_state, Release, Relaxed);
            if won.is_ok() {
                self.join(previous, next);
                woken[count] = address;
                count += 1;
                continue;
            }
            // It takes itself out.
            debug_assert_eq!(won, Err(LEAVING), "2");
            if keeps_pin && !has_pin {
                self.pins.fetch_sub(1, Relaxed);
            }
        }
        self.unlock();
        if has_pin && !keeps_pin && count > 0 {
            self.unpin(count as u32);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cond() -> Cond {
        // SAFETY: all zero is an empty condition variable.
        unsafe { std::mem::zeroed() }
    }

    /// Three waiters, queued in this order.
    fn three(cond: &Cond) -> [Box<Waiter>; 3] {
        let waiters = [(); 3].map(|()| Box::new(Waiter::new(cond, ptr::null_mut())));
        for waiter in &waiters {
            cond.enqueue(waiter);
        }
        waiters
    }

    fn states(waiters: &[Box<Waiter>]) -> Vec<u32> {
        (waiters.iter())
            .map(|waiter| waiter.state.load(Relaxed))
            .collect()
    }

    /// Whether destroying would wait.
    fn is_in_use(cond: &Cond) -> bool {
        !cond.first.load(Relaxed).is_null() || cond.pins.load(Relaxed) != 0
    }

    #[test]
    fn destroying_sleeps_until_all_have_left_and_seen() {
        let cond = cond();
        let waiters = three(&cond);
        cond.signal();
        // Between giving up and taking itself out of the queue.
        waiters[1].state.store(LEAVING, Relaxed);
        std::thread::scope(|scope| {
            let destroyer = scope.spawn(|| cond.await_unused());
            while cond.pins.load(Relaxed) & DESTROYING == 0 {
                std::thread::yield_now();
            }
            assert_eq!(cond.pins.load(Relaxed), DESTROYING | 3);
            waiters[1].state.store(WAITING, Relaxed);
            assert!(cond.leave(&waiters[1]));
            // Not allowed any more, but what is in the queue is waited for.
            cond.signal();
            let late = Waiter::new(&cond, ptr::null_mut());
            cond.enqueue(&late);
            cond.broadcast();
            cond.see(&waiters[0]);
            assert_eq!(cond.pins.load(Relaxed), DESTROYING | 1);
            assert!(!destroyer.is_finished());
            cond.see(&waiters[2]);
        });
        assert!(!is_in_use(&cond));
    }

    #[test]
    fn a_signal_wakes_the_longest_waiter_and_a_broadcast_the_rest() {
        let cond = cond();
        let waiters = three(&cond);
        cond.signal();
        assert_eq!(states(&waiters), [SIGNALLED, WAITING, WAITING]);
        cond.broadcast();
        assert_eq!(states(&waiters), [SIGNALLED, RELEASED, RELEASED]);
        assert!(cond.first.load(Relaxed).is_null() && cond.last.load(Relaxed).is_null());
        // Nobody waits: nothing is remembered.
        cond.signal();
        let late = Waiter::new(&cond, ptr::null_mut());
        cond.enqueue(&late);
        assert!(late.is_waiting() && cond.leave(&late));
    }

    #[test]
    fn more_waiters_than_a_batch_are_woken_and_none_that_came_later() {
        let cond = cond();
        let waiters: Vec<_> = (0..2 * BATCH + 3)
            .map(|_| Box::new(Waiter::new(&cond, ptr::null_mut())))
            .collect();
        for waiter in &waiters {
            cond.enqueue(waiter);
        }
        cond.broadcast();
        assert!(states(&waiters).iter().all(|state| *state == RELEASED));
        let [first, second, third] = three(&cond);
        let mut woken = [ptr::null(); BATCH];
        assert_eq!(
            cond.take(&mut woken, third.ticket.load(Relaxed), RELEASED),
            2
        );
        assert_eq!(
            states(&[first, second, third]),
            [RELEASED, RELEASED, WAITING]
        );
    }

    #[test]
    fn a_leaving_waiter_is_skipped_and_keeps_the_memory_in_use() {
        let cond = cond();
        let waiters = three(&cond);
        // Between giving up and taking itself out of the queue.
        waiters[0].state.store(LEAVING, Relaxed);
        cond.signal();
        assert_eq!(states(&waiters), [LEAVING, SIGNALLED, WAITING]);
        cond.broadcast();
        assert_eq!(states(&waiters), [LEAVING, SIGNALLED, RELEASED]);
        cond.see(&waiters[1]);
        assert!(is_in_use(&cond));
        waiters[0].state.store(WAITING, Relaxed);
        assert!(cond.leave(&waiters[0]));
        assert!(!is_in_use(&cond));
    }

    #[test]
    fn signalled_waiters_pin_the_memory_and_released_ones_do_not() {
        let cond = cond();
        let waiters = three(&cond);
        cond.signal();
        cond.broadcast();
        assert!(is_in_use(&cond));
        assert!(!cond.leave(&waiters[0]) && !cond.leave(&waiters[1]));
        cond.see(&waiters[1]);
        assert!(is_in_use(&cond));
        cond.see(&waiters[0]);
        assert!(!is_in_use(&cond));
    }

    #[test]
    fn a_signal_to_a_cancelled_waiter_passes_to_the_next() {
        let cond = cond();
        let waiters = three(&cond);
        cond.signal();
        cond.abandon(&waiters[0]);
        assert_eq!(states(&waiters), [SIGNALLED, SIGNALLED, WAITING]);
        // One that was not signalled takes nobody's place.
        cond.abandon(&waiters[2]);
        assert_eq!(states(&waiters), [SIGNALLED, SIGNALLED, LEAVING]);
        cond.see(&waiters[1]);
        assert!(!is_in_use(&cond));
    }

    #[test]
    fn a_queue_from_before_a_fork_is_emptied_even_if_locked() {
        let cond = cond();
        let stack = three(&cond);
        cond.signal();
        let earlier = fork::generation().wrapping_sub(1) << GENERATION_SHIFT;
        cond.lock.store(earlier | CONTENDED, Relaxed);
        // Reused for something else.
        drop(stack);
        cond.signal();
        assert!(!is_in_use(&cond));
        let waiter = Waiter::new(&cond, ptr::null_mut());
        cond.enqueue(&waiter);
        cond.signal();
        assert_eq!(waiter.state.load(Relaxed), SIGNALLED);
    }
}
