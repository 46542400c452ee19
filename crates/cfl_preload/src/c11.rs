//! C11's `mtx_*` and `cnd_*`, in terms of the pthread functions.
//!
//! glibc's are the same objects under another name, and call its pthread
//! functions inside, past this library. Interposing none of them would be safe
//! as well, since C11 does not let a program mix the two families; they are
//! interposed, all of them together, so that C11 programs are scheduled too.
//!
//! Sources: ISO C11 7.26.3 and 7.26.4; values from glibc's `<threads.h>`.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{pthread_cond_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

use crate::cond::{self, Until};
use crate::mutex::{self, Site};

/// `mtx_recursive`, the one bit of the type that matters, here as with glibc:
/// every mutex can be waited for with a time-out.
const RECURSIVE: c_int = 1;

/// `thrd_success` and so on.
const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

fn told(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// # Safety
///
/// As for `mtx_init`.
pub(crate) unsafe fn mtx_init(mutex: *mut pthread_mutex_t, kind: c_int) -> c_int {
    let kind = match kind & RECURSIVE {
        0 => libc::PTHREAD_MUTEX_NORMAL,
        _ => libc::PTHREAD_MUTEX_RECURSIVE,
    };
    let mut attr = MaybeUninit::<pthread_mutexattr_t>::uninit();
    // SAFETY: the attributes are initialised, used and destroyed here.
    unsafe {
        libc::pthread_mutexattr_init(attr.as_mut_ptr());
        libc::pthread_mutexattr_settype(attr.as_mut_ptr(), kind);
        let result = mutex::init(mutex, attr.as_ptr());
        libc::pthread_mutexattr_destroy(attr.as_mut_ptr());
        told(result)
    }
}

/// # Safety
///
/// As for `mtx_lock`.
pub(crate) unsafe fn mtx_lock_from(mutex: *mut pthread_mutex_t, site: Site) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { mutex::lock_from(mutex, site) })
}

/// # Safety
///
/// As for `mtx_timedlock`.
pub(crate) unsafe fn mtx_timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { mutex::timedlock(mutex, until) })
}

/// # Safety
///
/// As for `mtx_trylock`.
pub(crate) unsafe fn mtx_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { mutex::trylock(mutex) })
}

/// # Safety
///
/// As for `mtx_unlock`.
pub(crate) unsafe fn mtx_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { mutex::unlock(mutex) })
}

/// # Safety
///
/// As for `mtx_destroy`.
pub(crate) unsafe fn mtx_destroy(mutex: *mut pthread_mutex_t) {
    // SAFETY: by the caller. C11 has no answer to a mutex that is in use.
    unsafe { mutex::destroy(mutex) };
}

/// # Safety
///
/// As for `cnd_init`.
pub(crate) unsafe fn cnd_init(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { cond::init(cond, ptr::null()) })
}

/// # Safety
///
/// As for `cnd_signal`.
pub(crate) unsafe fn cnd_signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { cond::signal(cond) })
}

/// # Safety
///
/// As for `cnd_broadcast`.
pub(crate) unsafe fn cnd_broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { cond::broadcast(cond) })
}

/// # Safety
///
/// As for `cnd_wait` and `cnd_timedwait`.
pub(crate) unsafe fn cnd_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
) -> c_int {
    // SAFETY: by the caller.
    told(unsafe { cond::wait(cond, mutex, until) })
}

/// # Safety
///
/// As for `cnd_destroy`.
pub(crate) unsafe fn cnd_destroy(cond: *mut pthread_cond_t) {
    // SAFETY: by the caller.
    unsafe { cond::destroy(cond) };
}
