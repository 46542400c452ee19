//! The locks as `lock_api` wants them.
//!
//! A guard stays with its thread:
//!
//! ```compile_fail,E0277
//! static LOCK: giveway_locks::Mutex<()> = giveway_locks::Mutex::new(());
//! let guard = LOCK.lock();
//! std::thread::spawn(move || drop(guard));
//! ```

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::options::Profile;
use crate::raw::{Core, Extra, HoldStart, Kind, LockRef};
use crate::state::METERED;
use crate::stats::ThreadShare;
use giveway_machine::futex::Deadline;

/// What a guard carries: the start of its hold. A hold is its thread's, which is charged
/// for it, so guards are not [`Send`].
#[derive(Debug)]
pub struct Hold {
    start: HoldStart,
    of_one_thread: PhantomData<*const ()>,
}

// SAFETY: nothing can be done with a reference to it.
unsafe impl Sync for Hold {}

impl Hold {
    fn from(start: HoldStart) -> Hold {
        Hold {
            start,
            of_one_thread: PhantomData,
        }
    }
}

macro_rules! raw_lock {
    ($(#[$meta:meta])* $name:ident, $kind:expr) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Default)]
        pub struct $name {
            core: Core,
            extra: Extra,
        }

        impl $name {
            /// An unlocked lock with the default profile.
            pub const fn new() -> Self {
                $name {
                    core: Core::new(),
                    extra: Extra::new(),
                }
            }

            /// An unlocked lock with this profile.
            pub const fn with_profile(profile: Profile) -> Self {
                $name {
                    core: Core::in_state(if profile.metered() { METERED } else { 0 }),
                    extra: Extra::with_profile(profile.index()),
                }
            }

            /// The lock as C would see it.
            #[inline]
            pub fn as_ref(&self) -> LockRef<'_> {
                LockRef::new(&self.core, &self.extra)
            }

            /// What each living thread has had of this lock; see
            /// [`LockRef::shares`].
            pub fn shares(&self) -> Vec<ThreadShare> {
                self.as_ref().shares()
            }
        }

        // SAFETY: a lock is held by at most one thread: it is acquired only by
        // the compare-exchange that sets LOCKED where it was clear, and LOCKED
        // is cleared only by a release. Acquire and release order the data.
        unsafe impl lock_api::RawMutex for $name {
            #[allow(clippy::declare_interior_mutable_const)]
            const INIT: Self = $name::new();

            type Guard = Hold;

            #[inline]
            fn lock(&self) -> Hold {
                Hold::from(self.as_ref().lock($kind))
            }

            #[inline]
            fn try_lock(&self) -> Option<Hold> {
                self.as_ref().try_lock($kind).map(Hold::from)
            }

            #[inline]
            unsafe fn unlock(&self, guard: Hold) {
                // SAFETY: the caller holds the lock and got `guard` for it, in this
                // thread, which it cannot leave.
                unsafe { self.as_ref().unlock(guard.start) }
            }

            #[inline]
            fn is_locked(&self) -> bool {
                self.as_ref().is_locked()
            }
        }

        // SAFETY: as above; a timed acquisition that fails leaves no trace that
        // the holder could meet.
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_for(&self, timeout: Duration) -> Option<Hold> {
                let start = match Deadline::after(timeout) {
                    Some(deadline) => self.as_ref().lock_until($kind, deadline),
                    // Centuries.
                    None => Some(self.as_ref().lock($kind)),
                };
                start.map(Hold::from)
            }

            fn try_lock_until(&self, timeout: Instant) -> Option<Hold> {
                self.try_lock_for(timeout.saturating_duration_since(Instant::now()))
            }
        }
    };
}

raw_lock! {
    /// The CFL mutex (Section 3.3): spins, then sleeps. 24 bytes.
    RawMutex, Kind::Mutex
}

raw_lock! {
    /// The CFL spinlock (Section 3.2): never sleeps, but offers its CPU to
    /// others. First in line acquires, so it is the fairer of the two over a
    /// few holds, and slow when threads outnumber CPUs. 24 bytes.
    RawSpinlock, Kind::Spin
}
