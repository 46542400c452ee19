//! The kernel's queue of sleepers on a word.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, at most for `limit`; may return early.
pub(super) fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        // Limits here are shorter than a minute.
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    // SAFETY: the word outlives the call, and the time is null or a local.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit.as_ref().map_or(ptr::null(), ptr::from_ref),
        );
    }
}

/// Wakes one sleeper. The word may be gone by now: the kernel uses only the
/// address, and a sleeper on a new word there takes the wake-up for an early
/// return.
pub(super) fn wake_one(word: *const AtomicU32) {
    // SAFETY: the kernel does not follow the address beyond looking it up.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
    }
}
