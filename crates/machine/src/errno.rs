//! System calls inside functions that leave `errno` alone.
//!
//! Locks are taken and released inside functions of the C library, whose callers look
//! at `errno` afterwards. What a lock does meanwhile must not show in it.

/// Makes a call that may change `errno`, to which it gets the address.
pub fn preserving<R>(call: impl FnOnce(*mut libc::c_int) -> R) -> R {
    // SAFETY: the C library returns the address of this thread's `errno`,
    // which is valid as long as the thread runs.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = call(errno);
        *errno = before;
        result
    }
}
