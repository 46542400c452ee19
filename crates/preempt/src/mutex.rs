//! A mutex that the contexts of one worker may share.
//!
//! With any other lock, a context that is preempted while it holds the lock,
//! and the context that preempts it and wants the same lock, wait for each
//! other for ever: they are one thread. Here the holder is inside a region from
//! before the acquisition until after the release, so that the contexts of one
//! worker never meet at the lock; only different threads do.
//!
//! The word: 0 free, 1 held, 2 held and a waiter may sleep. A waiter spins, then
//! sleeps; it is inside its region while it waits, so waits must be short.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use rustix::thread::futex;

use crate::region::{Region, region};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a waiter looks before it sleeps: about 2 µs, a few times what such
/// locks are held for.
const SPINS: u32 = 100;

/// A mutex whose guard is a region; see [`RawRegionMutex`].
pub type RegionMutex<T> = lock_api::Mutex<RawRegionMutex, T>;
/// The guard of a [`RegionMutex`]: the context is not preempted while it lives.
pub type RegionMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawRegionMutex, T>;

/// The lock of a [`RegionMutex`].
#[derive(Debug)]
pub struct RawRegionMutex {
    word: AtomicU32,
}

// SAFETY: the word leaves FREE only by a compare-exchange or exchange of one
// thread, which is then the holder, and returns to it by that holder's release.
// Acquire and release order the data. Contexts of one thread never meet here.
unsafe impl lock_api::RawMutex for RawRegionMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawRegionMutex {
        word: AtomicU32::new(FREE),
    };

    type Guard = Region;

    #[inline]
    fn lock(&self) -> Region {
        let region = region();
        if !self.take() {
            self.wait();
        }
        region
    }

    #[inline]
    fn try_lock(&self) -> Option<Region> {
        let region = region();
        self.take().then_some(region)
    }

    #[inline]
    unsafe fn unlock(&self, region: Region) {
        if self.word.swap(FREE, Release) == CONTENDED {
            // A failed wake-up is none that was needed: the address is ours.
            let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        }
        // Only now: whoever preempts here must find the lock free.
        drop(region);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != FREE
    }
}

impl RawRegionMutex {
    #[inline]
    fn take(&self) -> bool {
        self.word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.word.load(Relaxed) == FREE && self.take() {
                return;
            }
            std::hint::spin_loop();
        }
        // From here on the lock is taken as CONTENDED: there may be sleepers.
        while self.word.swap(CONTENDED, Acquire) != FREE {
            // Whatever ends the sleep, the word decides.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, CONTENDED, None);
        }
    }
}
