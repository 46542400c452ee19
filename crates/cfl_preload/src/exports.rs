//! The symbols that stand in front of glibc's.
//!
//! All are unversioned, which satisfies references to any version of glibc's.
//! glibc also offers the five basic mutex operations under names that begin
//! with two underscores, to which old libraries are linked; both names must
//! lead to the same lock, so these are here too.
//!
//! `pthread_mutex_consistent`, `_getprioceiling` and `_setprioceiling` are not:
//! glibc's look at the kind, which is where glibc expects it, and refuse what
//! is not robust or not PRIO_PROTECT.
//!
//! The locking functions pass the address they were called from on to the
//! statistics. Only the machine language of a function's first instruction can
//! tell it, so those are a jump each.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};

use libc::{
    clockid_t, pthread_cond_t, pthread_condattr_t, pthread_key_t, pthread_mutex_t,
    pthread_mutexattr_t, pthread_t, timespec,
};

use crate::cond::{self, Until};
use crate::glibc::Destructor;
use crate::{c11, keys, mutex, threads};

/// Functions that only pass their arguments on to another of this crate.
macro_rules! exports {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? = $call:expr;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) $(-> $result)? {
            // SAFETY: the arguments are as this function of libc wants them.
            unsafe { $call }
        }
    )* };
}

/// Functions that pass on one argument and the address of their caller.
macro_rules! exports_with_site {
    ($($name:ident = $target:path;)*) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name(mutex: *mut pthread_mutex_t) -> c_int {
            #[cfg(target_arch = "x86_64")]
            // The call has just pushed it.
            naked_asm!("mov rsi, [rsp]", "jmp {}", sym $target);
            #[cfg(target_arch = "aarch64")]
            // The call has left it in the link register.
            naked_asm!("mov x1, x30", "b {}", sym $target);
        }
    )* };
}

exports_with_site! {
    pthread_mutex_lock = lock_from;
    __pthread_mutex_lock = lock_from;
    mtx_lock = mtx_lock_from;
}

unsafe extern "C-unwind" fn lock_from(mutex: *mut pthread_mutex_t, site: mutex::Site) -> c_int {
    // SAFETY: the mutex is as pthread_mutex_lock wants it.
    unsafe { mutex::lock_from(mutex, site) }
}

unsafe extern "C-unwind" fn mtx_lock_from(mutex: *mut pthread_mutex_t, site: mutex::Site) -> c_int {
    // SAFETY: the mutex is as mtx_lock wants it.
    unsafe { c11::mtx_lock_from(mutex, site) }
}

exports! {
    pthread_mutex_init(m: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int
        = mutex::init(m, attr);
    __pthread_mutex_init(m: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int
        = mutex::init(m, attr);
    pthread_mutex_destroy(m: *mut pthread_mutex_t) -> c_int = mutex::destroy(m);
    __pthread_mutex_destroy(m: *mut pthread_mutex_t) -> c_int = mutex::destroy(m);
    pthread_mutex_trylock(m: *mut pthread_mutex_t) -> c_int = mutex::trylock(m);
    __pthread_mutex_trylock(m: *mut pthread_mutex_t) -> c_int = mutex::trylock(m);
    pthread_mutex_timedlock(m: *mut pthread_mutex_t, until: *const timespec) -> c_int
        = mutex::timedlock(m, until);
    pthread_mutex_clocklock(
        m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec
    ) -> c_int = mutex::clocklock(m, clock, until);
    pthread_mutex_unlock(m: *mut pthread_mutex_t) -> c_int = mutex::unlock(m);
    __pthread_mutex_unlock(m: *mut pthread_mutex_t) -> c_int = mutex::unlock(m);

    pthread_cond_init(c: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int
        = cond::init(c, attr);
    pthread_cond_destroy(c: *mut pthread_cond_t) -> c_int = cond::destroy(c);
    pthread_cond_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int
        = cond::wait(c, m, Until::Signalled);
    pthread_cond_timedwait(
        c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: *const timespec
    ) -> c_int = cond::wait(c, m, Until::Time(until));
    pthread_cond_clockwait(
        c: *mut pthread_cond_t, m: *mut pthread_mutex_t, clock: clockid_t, until: *const timespec
    ) -> c_int = cond::wait(c, m, Until::ClockTime(clock, until));
    pthread_cond_signal(c: *mut pthread_cond_t) -> c_int = cond::signal(c);
    pthread_cond_broadcast(c: *mut pthread_cond_t) -> c_int = cond::broadcast(c);

    mtx_init(m: *mut pthread_mutex_t, kind: c_int) -> c_int = c11::mtx_init(m, kind);
    mtx_timedlock(m: *mut pthread_mutex_t, until: *const timespec) -> c_int
        = c11::mtx_timedlock(m, until);
    mtx_trylock(m: *mut pthread_mutex_t) -> c_int = c11::mtx_trylock(m);
    mtx_unlock(m: *mut pthread_mutex_t) -> c_int = c11::mtx_unlock(m);
    mtx_destroy(m: *mut pthread_mutex_t) = c11::mtx_destroy(m);
    cnd_init(c: *mut pthread_cond_t) -> c_int = c11::cnd_init(c);
    cnd_signal(c: *mut pthread_cond_t) -> c_int = c11::cnd_signal(c);
    cnd_broadcast(c: *mut pthread_cond_t) -> c_int = c11::cnd_broadcast(c);
    cnd_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int
        = c11::cnd_wait(c, m, Until::Signalled);
    cnd_timedwait(
        c: *mut pthread_cond_t, m: *mut pthread_mutex_t, until: *const timespec
    ) -> c_int = c11::cnd_wait(c, m, Until::Time(until));
    cnd_destroy(c: *mut pthread_cond_t) = c11::cnd_destroy(c);

    pthread_setname_np(thread: pthread_t, name: *const c_char) -> c_int
        = threads::set_name(thread, name);
    pthread_key_create(key: *mut pthread_key_t, destructor: Option<Destructor>) -> c_int
        = keys::create(key, destructor);
    __pthread_key_create(key: *mut pthread_key_t, destructor: Option<Destructor>) -> c_int
        = keys::create(key, destructor);
    tss_create(key: *mut pthread_key_t, destructor: Option<Destructor>) -> c_int
        = keys::tss_create(key, destructor);
}
