//! Condition variables, in place in the bytes of `pthread_cond_t`.
//!
//! Problem: glibc's condition variables unlock and lock the mutex by calls
//! inside glibc, which would take our mutexes for its own. So waiting, waking
//! and destroying are all done here.
//!
//! A waiter queues itself (`queue.rs`), unlocks the mutex, and sleeps until it
//! is woken. Waiters are woken in the order of coming. Which of them then gets the
//! mutex is for the mutex to decide, by weight.
//!
//! A condition variable whose flags say that it is shared between processes
//! belongs to glibc (`shared.rs`); ours have their flags where glibc has them
//! (`layout.rs`).
//!
//! Waiting is a cancellation point (`cancel.c`): the stack is unwound from
//! inside `giveway_cfl_sleep`, after [`cancelled`] has been called. So no frame
//! from there to the program has anything to drop.

mod queue;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU32;

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};

use crate::errno::Errno;
use crate::{glibc, mode, mutex, shared, time};
use queue::{Cond, WAITING, Waiter};
pub(crate) use queue::{MONOTONIC, SHARED, leaves_free};

unsafe extern "C-unwind" {
    /// `cancel.c`.
    fn giveway_cfl_sleep(
        cancelled: unsafe extern "C" fn(*mut c_void),
        waiter: *mut c_void,
        state: *const AtomicU32,
        expected: u32,
        clock_flag: c_int,
        deadline: *const timespec,
    ) -> c_int;
}

/// `cond` as ours, or nothing if it belongs to glibc.
///
/// # Safety
///
/// `cond` points to an initialised condition variable.
unsafe fn ours<'a>(cond: *mut pthread_cond_t) -> Option<&'a Cond> {
    // SAFETY: by the caller; all fields are atomic, and any bytes are valid
    // values of them.
    let cond = unsafe { &*cond.cast::<Cond>() };
    (mode::is_cfl() && cond.flags() & SHARED == 0).then_some(cond)
}

/// # Safety
///
/// As for `pthread_cond_init`.
pub(crate) unsafe fn init(cond: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int {
    let (mut shared, mut clock) = (libc::PTHREAD_PROCESS_PRIVATE, libc::CLOCK_REALTIME);
    if !attr.is_null() {
        // SAFETY: by the caller, an initialised attribute object.
        unsafe {
            libc::pthread_condattr_getpshared(attr, &mut shared);
            libc::pthread_condattr_getclock(attr, &mut clock);
        }
    }
    if !mode::is_cfl() || shared == libc::PTHREAD_PROCESS_SHARED {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_cond_init(cond, attr) };
    }
    let flags = match clock {
        libc::CLOCK_MONOTONIC => MONOTONIC,
        _ => 0,
    };
    // SAFETY: by the caller, memory for a condition variable that nobody uses.
    unsafe {
        cond.write_bytes(0, 1);
        (*cond.cast::<Cond>()).set_flags(flags);
    }
    0
}

/// # Safety
///
/// As for `pthread_cond_destroy`.
pub(crate) unsafe fn destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(cond) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_cond_destroy(cond) };
    };
    ours.await_unused();
    0
}

/// # Safety
///
/// As for `pthread_cond_signal`.
pub(crate) unsafe fn signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(cond) } {
        Some(ours) => {
            ours.signal();
            0
        }
        // SAFETY: passed on as it came.
        None => unsafe { shared::signal(cond) },
    }
}

/// # Safety
///
/// As for `pthread_cond_broadcast`.
pub(crate) unsafe fn broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(cond) } {
        Some(ours) => {
            ours.broadcast();
            0
        }
        // SAFETY: passed on as it came.
        None => unsafe { shared::broadcast(cond) },
    }
}

/// How long to wait: for ever, or until a time of the condition variable's
/// clock or of a given one.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Signalled,
    Time(*const timespec),
    ClockTime(clockid_t, *const timespec),
}

/// # Safety
///
/// As for `pthread_cond_wait`, `_timedwait` and `_clockwait`.
pub(crate) unsafe fn wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(cond) }) else {
        // SAFETY: passed on as it came.
        return unsafe { shared::wait(cond, mutex, until) };
    };
    let (clock, deadline) = match until {
        Until::Signalled => (libc::CLOCK_MONOTONIC, ptr::null()),
        Until::Time(time) if ours.flags() & MONOTONIC != 0 => (libc::CLOCK_MONOTONIC, time),
        Until::Time(time) => (libc::CLOCK_REALTIME, time),
        Until::ClockTime(clock, time) => (clock, time),
    };
    let Some(clock_flag) = time::clock_flag(clock) else {
        return libc::EINVAL;
    };
    // SAFETY: by the caller, a time where it is not null.
    let end = unsafe { deadline.as_ref() };
    if end.is_some_and(|end| !time::is_valid(end)) {
        return libc::EINVAL;
    }

    let errno = Errno::save();
    let waiter = Waiter::new(ours, mutex);
    ours.enqueue(&waiter);
    // Queued before the mutex is unlocked, so that no signal is missed that is
    // sent with the mutex held.
    // SAFETY: by the caller, the thread's own mutex; if it is not, the mutex
    // says so where its kind can tell.
    let unlocked = unsafe { mutex::unlock(mutex) };
    if unlocked != 0 {
        ours.abandon(&waiter);
        errno.restore();
        return unlocked;
    }
    // A time before the epoch is one the kernel does not take.
    let mut timed_out = end.is_some_and(|end| end.tv_sec < 0);
    while !timed_out && waiter.is_waiting() {
        // SAFETY: the waiter and the deadline outlive the call. No frame
        // between here and the caller of this library has anything to drop, so
        // the stack can be unwound from inside.
        let woken = unsafe {
            giveway_cfl_sleep(
                cancelled,
                ptr::from_ref(&waiter).cast_mut().cast(),
                waiter.word(),
                WAITING,
                clock_flag,
                deadline,
            )
        };
        timed_out = woken == libc::ETIMEDOUT;
    }
    let result = match timed_out && ours.leave(&waiter) {
        true => libc::ETIMEDOUT,
        false => {
            ours.see(&waiter);
            0
        }
    };
    // SAFETY: as above.
    let locked = unsafe { mutex::lock(mutex) };
    errno.restore();
    match locked {
        0 => result,
        _ => locked,
    }
}

/// Called while the stack of a cancelled thread is unwound; `cancel.c`.
unsafe extern "C" fn cancelled(waiter: *mut c_void) {
    // SAFETY: the waiter that `wait` passed to `giveway_cfl_sleep`, whose frame
    // is still there; likewise its condition variable, whose user waits for it.
    unsafe {
        let waiter = &*waiter.cast::<Waiter>();
        (*waiter.cond()).abandon(waiter);
        // What is to be told if this fails goes to nobody: the thread ends.
        mutex::lock(waiter.mutex());
    }
}
