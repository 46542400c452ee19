//! glibc's own versions of what this library puts itself in front of.
//!
//! On x86-64 each is looked up with the version that current binaries bind to,
//! because `pthread_cond_*` exist twice there and the older set has another
//! layout. Other architectures have one set, and take the default version.
//!
//! Looking up is safe at any time, in any thread, however early: since
//! glibc 2.34 a successful `dlsym` neither allocates nor takes a lock that
//! goes through this library, and a second look-up finds the same address, so
//! no state has to be protected. A function that glibc lacks is a broken
//! installation; the process says so and ends.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{clockid_t, pthread_cond_t, pthread_key_t, pthread_mutex_t, pthread_t, timespec};

use crate::message;

/// What `pthread_key_create` has called at the end of a thread.
pub(crate) type Destructor = unsafe extern "C" fn(*mut c_void);

/// Finds `name` in the objects after this one.
fn find(name: &CStr, version: &CStr) -> *mut c_void {
    // SAFETY: both are terminated strings, and RTLD_NEXT needs nothing more.
    let found = unsafe {
        match cfg!(target_arch = "x86_64") {
            true => libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()),
            false => libc::dlsym(libc::RTLD_NEXT, name.as_ptr()),
        }
    };
    if found.is_null() {
        message::write(format_args!(
            "{} is missing: this needs glibc 2.34 or newer",
            name.to_string_lossy()
        ));
        // SAFETY: ends the process, as nothing sensible is left to do.
        unsafe { libc::abort() };
    }
    found
}

macro_rules! glibc {
    ($($name:ident $version:literal ($($argument:ident: $kind:ty),*);)*) => { $(
        #[doc = concat!("glibc's `", stringify!($name), "`.")]
        ///
        /// # Safety
        ///
        /// As for the function of that name.
        pub(crate) unsafe fn $name($($argument: $kind),*) -> c_int {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut found = FOUND.load(Relaxed);
            if found.is_null() {
                const NAME: &str = concat!(stringify!($name), "\0");
                const VERSION: &str = concat!($version, "\0");
                found = find(
                    CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap(),
                    CStr::from_bytes_with_nul(VERSION.as_bytes()).unwrap(),
                );
                FOUND.store(found, Relaxed);
            }
            // SAFETY: `found` is the C function of this name, whose signature
            // is the one written in the table below. It may be unwound through
            // (waiting is a cancellation point), hence "C-unwind".
            unsafe {
                let function: unsafe extern "C-unwind" fn($($kind),*) -> c_int =
                    mem::transmute(found);
                function($($argument),*)
            }
        }
    )* };
}

glibc! {
    pthread_mutex_init "GLIBC_2.2.5" (m: *mut pthread_mutex_t, a: *const libc::pthread_mutexattr_t);
    pthread_mutex_destroy "GLIBC_2.2.5" (m: *mut pthread_mutex_t);
    pthread_mutex_lock "GLIBC_2.2.5" (m: *mut pthread_mutex_t);
    pthread_mutex_trylock "GLIBC_2.34" (m: *mut pthread_mutex_t);
    pthread_mutex_timedlock "GLIBC_2.34" (m: *mut pthread_mutex_t, t: *const timespec);
    pthread_mutex_clocklock "GLIBC_2.34" (m: *mut pthread_mutex_t, c: clockid_t, t: *const timespec);
    pthread_mutex_unlock "GLIBC_2.2.5" (m: *mut pthread_mutex_t);
    pthread_cond_init "GLIBC_2.3.2" (c: *mut pthread_cond_t, a: *const libc::pthread_condattr_t);
    pthread_cond_destroy "GLIBC_2.3.2" (c: *mut pthread_cond_t);
    pthread_cond_wait "GLIBC_2.3.2" (c: *mut pthread_cond_t, m: *mut pthread_mutex_t);
    pthread_cond_timedwait "GLIBC_2.3.2" (c: *mut pthread_cond_t, m: *mut pthread_mutex_t, t: *const timespec);
    pthread_cond_clockwait "GLIBC_2.34" (c: *mut pthread_cond_t, m: *mut pthread_mutex_t, k: clockid_t, t: *const timespec);
    pthread_cond_signal "GLIBC_2.3.2" (c: *mut pthread_cond_t);
    pthread_cond_broadcast "GLIBC_2.3.2" (c: *mut pthread_cond_t);
    pthread_setname_np "GLIBC_2.34" (t: pthread_t, name: *const c_char);
    pthread_key_create "GLIBC_2.34" (k: *mut pthread_key_t, d: Option<Destructor>);
    tss_create "GLIBC_2.34" (k: *mut pthread_key_t, d: Option<Destructor>);
}
