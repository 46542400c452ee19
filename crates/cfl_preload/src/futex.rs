//! The futex system call, as much of it as the condition variables need, and
//! the times it takes.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicU32;

use libc::{clockid_t, timespec};

/// The calling thread's `errno`, to be put back: programs read it after
/// unlocking, and the pthread functions of glibc leave it alone.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn save() -> Errno {
        // SAFETY: always valid in the thread that asks.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn restore(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// How the futex call is told which clock a deadline is of; nothing for a
/// clock that cannot be waited for.
pub(crate) fn clock_flag(clock: clockid_t) -> Option<c_int> {
    match clock {
        libc::CLOCK_MONOTONIC => Some(0),
        libc::CLOCK_REALTIME => Some(libc::FUTEX_CLOCK_REALTIME),
        _ => None,
    }
}

/// Whether `time` is a time at all.
pub(crate) fn is_valid(time: &timespec) -> bool {
    (0..1_000_000_000).contains(&time.tv_nsec)
}

/// Sleeps while `*word` is `expected`; may return for no reason.
pub(crate) fn wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the kernel only reads the word, which lives during the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ptr::null::<timespec>(),
        );
    }
}

/// Wakes one thread that sleeps on the word at `word`, which need not be there
/// any more: the kernel compares addresses and reads nothing.
pub(crate) fn wake_one(word: *const AtomicU32) {
    // SAFETY: the kernel does not touch the memory of a private futex it wakes.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}
