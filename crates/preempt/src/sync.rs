//! What mail, queues, parking and tickets stand on: atomics, cells and a futex,
//! either the real ones or a model checker's.
//!
//! The protocols are checked by running the real code under loom, so everything
//! that loom must see goes through this module. The mechanism between (contexts,
//! signals) is not part of any model and uses `std` directly.

use std::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// A cell whose accesses loom can watch.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `access` with the place of the value; what may be done with it is
    /// for the caller to know.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// A word that threads sleep on until it changes.
///
/// A wait may end without a reason; who waits looks again. No wake-up is lost
/// as long as the word is changed before it: the kernel compares under its own
/// lock before it lets anybody sleep.
pub(crate) struct Word {
    pub(crate) value: AtomicU32,
    /// What the kernel's lock is in the model.
    #[cfg(loom)]
    kernel: (loom::sync::Mutex<()>, loom::sync::Condvar),
}

impl Word {
    pub(crate) fn new(value: u32) -> Word {
        Word {
            value: AtomicU32::new(value),
            #[cfg(loom)]
            kernel: (loom::sync::Mutex::new(()), loom::sync::Condvar::new()),
        }
    }

    /// Sleeps while the word is `expected`, but no longer than `timeout`.
    #[cfg(not(loom))]
    pub(crate) fn sleep_while(&self, expected: u32, timeout: Option<Duration>) {
        // What no timespec can hold is for ever.
        let timeout = timeout.and_then(|timeout| futex::Timespec::try_from(timeout).ok());
        // Whatever ends the sleep, the caller looks at the word again.
        let _ = futex::wait(
            &self.value,
            futex::Flags::PRIVATE,
            expected,
            timeout.as_ref(),
        );
    }

    /// Wakes all who sleep.
    #[cfg(not(loom))]
    pub(crate) fn wake(&self) {
        // A failed wake-up is none that was needed: the address is ours.
        let _ = futex::wake(&self.value, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    /// As above; time does not pass in a model.
    #[cfg(loom)]
    pub(crate) fn sleep_while(&self, expected: u32, _timeout: Option<Duration>) {
        let kernel = self.kernel.0.lock().unwrap();
        if self.value.load(Relaxed) == expected {
            drop(self.kernel.1.wait(kernel).unwrap());
        }
    }

    /// As above.
    #[cfg(loom)]
    pub(crate) fn wake(&self) {
        let _kernel = self.kernel.0.lock().unwrap();
        self.kernel.1.notify_all();
    }
}

/// One step of waiting for another thread that is running.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
