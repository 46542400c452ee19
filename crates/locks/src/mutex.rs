//! The locks as `lock_api` wants them.

use std::time::{Duration, Instant};

use crate::options::Profile;
use crate::raw::{Core, Extra, HoldStart, Kind, LockRef};
use crate::state::METERED;
use crate::stats::ThreadShare;
use giveway_machine::futex::Deadline;

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

            type Guard = HoldStart;

            #[inline]
            fn lock(&self) -> HoldStart {
                self.as_ref().lock($kind)
            }

            #[inline]
            fn try_lock(&self) -> Option<HoldStart> {
                self.as_ref().try_lock($kind)
            }

            #[inline]
            unsafe fn unlock(&self, guard: HoldStart) {
                // SAFETY: the caller holds the lock and got `guard` for it.
                unsafe { self.as_ref().unlock(guard) }
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

            fn try_lock_for(&self, timeout: Duration) -> Option<HoldStart> {
                match Deadline::after(timeout) {
                    Some(deadline) => self.as_ref().lock_until($kind, deadline),
                    // Centuries.
                    None => Some(self.as_ref().lock($kind)),
                }
            }

            fn try_lock_until(&self, timeout: Instant) -> Option<HoldStart> {
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
