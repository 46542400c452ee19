//! The locks for `lock_api` 0.4, whose guards carry no data.
//!
//! The start of the hold lies beside the lock instead, 8 bytes more; the holder
//! alone reads and writes it.

use std::time::{Duration, Instant};

use lock_api_04 as lock_api;

use crate::raw::{Core, Extra, HoldStart, Kind, LockRef};
use crate::sync::{AtomicU64, Relaxed};
use giveway_machine::futex::Deadline;

macro_rules! raw_lock {
    ($(#[$meta:meta])* $name:ident, $kind:expr) => {
        $(#[$meta])*
        #[repr(C)]
        pub struct $name {
            core: Core,
            extra: Extra,
            start: AtomicU64,
        }

        impl $name {
            fn lock_ref(&self) -> LockRef<'_> {
                LockRef::new(&self.core, &self.extra)
            }

            fn begin(&self, start: HoldStart) {
                self.start.store(start.to_bits(), Relaxed);
            }
        }

        // SAFETY: a lock is held by at most one thread: it is acquired only by
        // the compare-exchange that sets LOCKED where it was clear, and LOCKED
        // is cleared only by a release. Acquire and release order the data.
        unsafe impl lock_api::RawMutex for $name {
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: Self = $name {
                core: Core::new(),
                extra: Extra::new(),
                start: AtomicU64::new(0),
            };

            type GuardMarker = lock_api::GuardNoSend;

            #[inline]
            fn lock(&self) {
                self.begin(self.lock_ref().lock($kind));
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.lock_ref().try_lock($kind).map(|start| self.begin(start)).is_some()
            }

            #[inline]
            unsafe fn unlock(&self) {
                let start = HoldStart::from_bits(self.start.load(Relaxed));
                // SAFETY: the caller holds the lock, so `start` is its own.
                unsafe { self.lock_ref().unlock(start) }
            }

            fn is_locked(&self) -> bool {
                self.lock_ref().is_locked()
            }
        }

        // SAFETY: as above; a timed acquisition that fails leaves no trace that
        // the holder could meet.
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_for(&self, timeout: Duration) -> bool {
                let start = match Deadline::after(timeout) {
                    Some(deadline) => self.lock_ref().lock_until($kind, deadline),
                    // Centuries.
                    None => Some(self.lock_ref().lock($kind)),
                };
                start.map(|start| self.begin(start)).is_some()
            }

            fn try_lock_until(&self, timeout: Instant) -> bool {
                self.try_lock_for(timeout.saturating_duration_since(Instant::now()))
            }
        }
    };
}

raw_lock! {
    /// The CFL mutex. 32 bytes.
    RawMutex, Kind::Mutex
}

raw_lock! {
    /// The CFL spinlock. 32 bytes.
    RawSpinlock, Kind::Spin
}

/// A mutex whose waiters share hold time by weight.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// A spinlock whose waiters share hold time by weight.
pub type Spinlock<T> = lock_api::Mutex<RawSpinlock, T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_exclude_and_time_out() {
        let (mutex, spinlock) = (Mutex::new(0), Spinlock::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        *mutex.lock() += 1;
                        *spinlock.lock() += 1;
                    }
                });
            }
        });
        let guard = mutex.lock();
        assert_eq!((*guard, *spinlock.lock()), (6000, 6000));
        assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
    }
}
