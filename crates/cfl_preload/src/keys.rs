//! Thread-specific data: the program has all keys of the process.
//!
//! The core takes one key when threads first contend, to notice their ends. A
//! program that is refused a key gets the core's, so it can have as many as
//! without this library. Keys themselves are glibc's.

use std::ffi::c_int;

use giveway_locks::raw;
use libc::pthread_key_t;

use crate::glibc::{self, Destructor};

/// # Safety
///
/// As for `pthread_key_create`.
pub(crate) unsafe fn create(key: *mut pthread_key_t, destructor: Option<Destructor>) -> c_int {
    // SAFETY: passed on as it came.
    let create = || unsafe { glibc::pthread_key_create(key, destructor) };
    match create() {
        libc::EAGAIN if raw::give_back_key() => create(),
        result => result,
    }
}

/// # Safety
///
/// As for `tss_create`.
pub(crate) unsafe fn tss_create(key: *mut pthread_key_t, destructor: Option<Destructor>) -> c_int {
    // SAFETY: passed on as it came.
    let create = || unsafe { glibc::tss_create(key, destructor) };
    match create() {
        0 => 0,
        _ if raw::give_back_key() => create(),
        refused => refused,
    }
}
