//! Atomics, locks, threads and cells of the protocols: either the real ones or a model
//! checker's.
//!
//! The protocols are checked by running the real code under model checkers, so
//! everything that they must see or must decide goes through this module:
//!
//! | built with | atomics, locks, threads | the scheduler is |
//! | --- | --- | --- |
//! | nothing | `std` | the kernel |
//! | `--cfg loom` | `loom` | exhaustive, weak memory, 2 to 3 threads |
//! | `--cfg shuttle` | `shuttle` | random, sequentially consistent, whole pools |
//!
//! Time is a parameter (`clock`), and virtual in a model. Counters that no
//! decision depends on are plain [`std`] atomics: to a checker they would only be more
//! interleavings.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::thread;

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Locks. No code of a caller runs under a lock of this crate, so none is poisoned.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under this lock")
}

/// Waits; the lock is held again afterwards. It may end without a reason.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("nothing panics under this lock")
}

/// Whether a value may still be used, where a checker can see it: uses of a value
/// and its end must not meet. Under shuttle, a use must not come after the end.
/// Nothing outside of models.
#[derive(Debug)]
pub(crate) struct Life(
    #[cfg(loom)] loom::cell::UnsafeCell<()>,
    #[cfg(shuttle)] std::sync::atomic::AtomicBool,
);

// SAFETY: no thread writes through it; loom checks what this claims.
#[cfg(loom)]
unsafe impl Sync for Life {}

impl Life {
    pub(crate) fn new() -> Life {
        Life(
            #[cfg(loom)]
            loom::cell::UnsafeCell::new(()),
            #[cfg(shuttle)]
            std::sync::atomic::AtomicBool::new(false),
        )
    }

    /// The value is used.
    #[inline(always)]
    pub(crate) fn used(&self) {
        #[cfg(loom)]
        self.0.with(|_| ());
        #[cfg(shuttle)]
        assert!(!self.0.load(SeqCst), "used after its end");
    }

    /// The value ends, or belongs to one thread alone.
    #[inline(always)]
    pub(crate) fn over(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
        #[cfg(shuttle)]
        self.0.store(true, SeqCst);
    }
}
