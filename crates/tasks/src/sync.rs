//! What the protocols stand on: atomics, locks and cells, either the real ones
//! or a model checker's.
//!
//! The protocols are checked by running the real code under loom, so everything
//! that loom must see goes through this module. Counters that nobody decides by
//! are plain [`std`] atomics: to loom they would only be more interleavings.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Locks. No code of a caller runs under a lock of ours, so nobody panics there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under this lock")
}

/// Waits; the lock is held again afterwards. It may end without a reason.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("nothing panics under this lock")
}

/// Whether a value may still be used, where loom can see it: uses of a value
/// and its end must not meet. Nothing outside of models.
#[derive(Debug)]
pub(crate) struct Life(#[cfg(loom)] loom::cell::UnsafeCell<()>);

// SAFETY: nobody writes through it; loom checks what this claims.
#[cfg(loom)]
unsafe impl Sync for Life {}

impl Life {
    pub(crate) fn new() -> Life {
        Life(
            #[cfg(loom)]
            loom::cell::UnsafeCell::new(()),
        )
    }

    /// The value is used.
    #[inline(always)]
    pub(crate) fn used(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
    }

    /// The value ends, or belongs to one thread alone.
    #[inline(always)]
    pub(crate) fn over(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }
}

/// A value alone in its cache lines: two, because the prefetcher of x86-64
/// fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
