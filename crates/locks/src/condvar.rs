//! A condition variable for any of the locks.
//!
//! A sequence number that every notification changes is what waiters sleep on.
//! A waiter reads it while it holds the lock, releases, and sleeps unless the
//! number has changed: a notification in between is not lost, because its
//! notifier changed the number after the waiter's release.
//!
//! Waiters are woken by the kernel in the order of their sleep and queue at the
//! lock like all threads, so the order in which they go on is the lock's.
//! `notify_all` wakes all at once; with many waiters they meet at the lock.
//!
//! Waits may end without a reason: by a signal, or by a notification that was for another
//! one while this one was on its way into its sleep. So, as `lock_api` wants it then,
//! notifications do not tell whom they have met.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::sync::{AcqRel, AtomicU32, Relaxed};
use giveway_machine::futex::{self, Deadline, WaitResult};

/// The condition variable of locks of the type `R`. 8 bytes.
///
/// There may be spurious wake-ups: `notify_one` returns `false` and `notify_all` 0, always.
/// If the lock panics while a wait gives it back or takes it again, the process aborts.
pub struct RawCondvar<R> {
    sequence: AtomicU32,
    waiters: AtomicU32,
    lock: PhantomData<fn(&R)>,
}

impl<R> RawCondvar<R> {
    /// Nobody waits.
    pub const fn new() -> Self {
        RawCondvar {
            sequence: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            lock: PhantomData,
        }
    }

    fn notify(&self, count: u32) {
        self.sequence.fetch_add(1, AcqRel);
        // A waiter counts itself while it holds the lock. Who notifies without
        // the lock may miss one that is about to wait, as with any condition
        // variable.
        if self.waiters.load(Relaxed) != 0 {
            futex::wake(&self.sequence, count);
        }
    }
}

impl<R> Default for RawCondvar<R> {
    fn default() -> Self {
        RawCondvar::new()
    }
}

/// While a wait has given its guard away: a caller that caught a panic would have one
/// without the lock.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<R: lock_api::RawMutex> RawCondvar<R> {
    /// True if the wait ended by its deadline.
    ///
    /// # Safety
    /// The current thread holds `mutex` by `guard`.
    unsafe fn sleep(&self, mutex: &R, guard: &mut R::Guard, deadline: Option<Deadline>) -> bool {
        self.waiters.fetch_add(1, Relaxed);
        let sequence = self.sequence.load(Relaxed);
        let no_guard = AbortOnUnwind;
        // SAFETY: the caller holds the mutex by this guard. The guard is moved
        // out here and a new one moved in below; nothing in between unwinds, though a
        // lock of another crate might.
        unsafe { mutex.unlock(std::ptr::read(guard)) };
        let result = futex::wait(&self.sequence, sequence, deadline);
        self.waiters.fetch_sub(1, Relaxed);
        let again = mutex.lock();
        // SAFETY: the old value was moved out above.
        unsafe { std::ptr::write(guard, again) };
        std::mem::forget(no_guard);
        result == WaitResult::TimedOut
    }
}

// SAFETY: `wait` releases and re-acquires the mutex by the guard it was given.
unsafe impl<R: lock_api::RawMutex> lock_api::RawCondvar for RawCondvar<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawCondvar::new();

    type RawMutex = R;

    unsafe fn wait(&self, mutex: &R, guard: &mut R::Guard) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.sleep(mutex, guard, None) };
    }

    fn notify_one(&self) -> bool {
        self.notify(1);
        false
    }

    fn notify_all(&self) -> usize {
        self.notify(u32::MAX);
        0
    }
}

// SAFETY: as above.
unsafe impl<R> lock_api::RawCondvarTimed for RawCondvar<R>
where
    R: lock_api::RawMutexTimed<Duration = Duration, Instant = Instant>,
{
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        Instant::now().checked_add(*timeout)
    }

    unsafe fn wait_until(&self, mutex: &R, guard: &mut R::Guard, timeout: &Instant) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.sleep(mutex, guard, Deadline::at(*timeout)) }
    }
}
