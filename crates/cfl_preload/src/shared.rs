//! Condition variables that stay glibc's: those shared between processes, and
//! all of them when the program runs on glibc's locks.
//!
//! The other process may not have this library, so what is shared must look as
//! glibc leaves it. A mutex of glibc's goes with that as it is. A mutex of ours
//! is legal too, if all that wait are threads of this process; but glibc cannot
//! unlock it. Then a mutex of glibc's stands in:
//!
//! ```text
//! wait:    lock stand-in; unlock mutex; glibc's wait(cond, stand-in); unlock stand-in; lock mutex
//! signal:  lock stand-in; glibc's signal(cond); unlock stand-in
//! ```
//!
//! No signal is missed between unlocking the mutex and waiting, because the
//! signaller needs the stand-in. A thread that holds a stand-in waits for `cond`
//! only, so the order in which both are taken cannot deadlock. A
//! stand-in serves all condition variables whose addresses fall to it.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{PTHREAD_MUTEX_INITIALIZER, pthread_cond_t, pthread_mutex_t};

use crate::cond::Until;
use crate::{glibc, mode, mutex};

/// How many stand-ins there are.
const COUNT: usize = 64;

struct StandIns([UnsafeCell<pthread_mutex_t>; COUNT]);

// SAFETY: a pthread mutex is made to be used by many threads, and only glibc's
// functions touch these.
unsafe impl Sync for StandIns {}

static STAND_INS: StandIns =
    StandIns([const { UnsafeCell::new(PTHREAD_MUTEX_INITIALIZER) }; COUNT]);

fn stand_in(cond: *mut pthread_cond_t) -> *mut pthread_mutex_t {
    STAND_INS.0[cond.addr() / size_of::<pthread_cond_t>() % COUNT].get()
}

/// A wait with a stand-in, while it goes on.
struct StandInWait {
    cond: *mut pthread_cond_t,
    stand_in: *mut pthread_mutex_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
}

unsafe extern "C-unwind" {
    /// `cancel.c`.
    fn giveway_cfl_wait_shared(
        cancelled: unsafe extern "C" fn(*mut c_void),
        wait: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
        waiter: *mut c_void,
    ) -> c_int;
}

/// # Safety
///
/// As for glibc's `pthread_cond_wait`, `_timedwait` and `_clockwait`.
unsafe fn glibc_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
) -> c_int {
    // SAFETY: by the caller.
    unsafe {
        match until {
            Until::Signalled => glibc::pthread_cond_wait(cond, mutex),
            Until::Time(time) => glibc::pthread_cond_timedwait(cond, mutex, time),
            Until::ClockTime(clock, time) => {
                glibc::pthread_cond_clockwait(cond, mutex, clock, time)
            }
        }
    }
}

/// # Safety
///
/// As for `pthread_cond_wait`, with a condition variable of glibc's.
pub(crate) unsafe fn wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
) -> c_int {
    // SAFETY: by the caller; the mutex is glibc's where it is given to glibc.
    // No frame from here to glibc's wait has anything to drop, so a cancelled
    // thread's stack can be unwound through them.
    unsafe {
        if mutex::is_glibcs(mutex) {
            return glibc_wait(cond, mutex, until);
        }
        let mut waiter = StandInWait {
            cond,
            stand_in: stand_in(cond),
            mutex,
            until,
        };
        glibc::pthread_mutex_lock(waiter.stand_in);
        let unlocked = mutex::unlock(mutex);
        if unlocked != 0 {
            glibc::pthread_mutex_unlock(waiter.stand_in);
            return unlocked;
        }
        let waiter: *mut c_void = ptr::from_mut(&mut waiter).cast();
        let result = giveway_cfl_wait_shared(leave_stand_in, stand_in_wait, waiter);
        leave_stand_in(waiter);
        result
    }
}

unsafe extern "C-unwind" fn stand_in_wait(waiter: *mut c_void) -> c_int {
    // SAFETY: what `wait` passed, and holds the stand-in for.
    unsafe {
        let waiter = waiter.cast::<StandInWait>();
        glibc_wait((*waiter).cond, (*waiter).stand_in, (*waiter).until)
    }
}

/// After the wait, also while the stack of a cancelled thread is unwound;
/// `cancel.c`.
unsafe extern "C" fn leave_stand_in(waiter: *mut c_void) {
    // SAFETY: the waiter of `wait`, whose frame is still there. glibc's wait
    // has locked the stand-in again.
    unsafe {
        let waiter = waiter.cast::<StandInWait>();
        glibc::pthread_mutex_unlock((*waiter).stand_in);
        mutex::lock((*waiter).mutex);
    }
}

/// # Safety
///
/// As for `pthread_cond_signal`, with a condition variable of glibc's.
pub(crate) unsafe fn signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    unsafe { with_stand_in(cond, |cond| glibc::pthread_cond_signal(cond)) }
}

/// # Safety
///
/// As for `pthread_cond_broadcast`, with a condition variable of glibc's.
pub(crate) unsafe fn broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    unsafe { with_stand_in(cond, |cond| glibc::pthread_cond_broadcast(cond)) }
}

/// # Safety
///
/// As for `wake`.
unsafe fn with_stand_in(
    cond: *mut pthread_cond_t,
    wake: impl FnOnce(*mut pthread_cond_t) -> c_int,
) -> c_int {
    if !mode::is_cfl() {
        return wake(cond);
    }
    let stand_in = stand_in(cond);
    // SAFETY: a mutex of glibc's, locked and unlocked here.
    unsafe {
        glibc::pthread_mutex_lock(stand_in);
        let result = wake(cond);
        glibc::pthread_mutex_unlock(stand_in);
        result
    }
}
