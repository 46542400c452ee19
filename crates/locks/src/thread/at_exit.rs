//! The end of a thread, which frees its slot.
//!
//! Registering the destructor of a thread-local variable allocates, and the lock
//! may be the allocator's. So it is a `pthread_key`'s: the C library calls it
//! with the value that the thread has set, after the destructors of variables,
//! and perhaps before those of other keys. A thread that locks after that gets a
//! temporary slot.
//!
//! ```text
//! NONE ── first contention ──► key ── the program needs all keys ──► WITHOUT
//!   └──── no key is left, or only one for which the C library would allocate ──┘
//! ```
//!
//! A process has 1024 keys. The program is to have all of them, so a key is made
//! only when threads contend, and given back when the program is refused one
//! ([`give_back`]). Without a key the ends of threads go unnoticed, and slots of
//! threads that the kernel does not know any more are freed from time to time.
//!
//! - **E1** After `give_back` has returned true no thread uses the key: a thread that
//!   is about to is counted in `ARMING` before it reads `KEY`. (Not asserted: a key
//!   that was deleted cannot be told from another.)

use super::{LATE, SLOT, free_slot};
use giveway_machine::futex::{self, Deadline};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// The key plus 1, or one of these.
static KEY: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const WITHOUT: u32 = u32::MAX;
/// Threads that are about to use the key.
static ARMING: AtomicU32 = AtomicU32::new(0);
/// The keys whose values glibc keeps in the thread itself. For others it
/// allocates.
const KEYS_IN_THREAD: u32 = 32;

/// Notices the end of the current thread.
pub(super) fn arm(index: u32) {
    ARMING.fetch_add(1, SeqCst);
    if let Some(key) = key() {
        let value = std::ptr::without_provenance::<c_void>(index as usize);
        // SAFETY: the key is not deleted while this thread is counted (E1).
        // Failure means that the slot is not freed, which is all it can mean.
        unsafe { libc::pthread_setspecific(key, value) };
    }
    ARMING.fetch_sub(1, SeqCst);
}

/// Whether the ends of threads are not noticed.
pub(super) fn is_blind() -> bool {
    KEY.load(Relaxed) == WITHOUT
}

/// Gives the key back, for a program that has been refused one. False if there
/// is none to give. From then on the ends of threads are not noticed.
pub(crate) fn give_back() -> bool {
    let key = KEY.load(SeqCst);
    if matches!(key, NONE | WITHOUT)
        || (KEY.compare_exchange(key, WITHOUT, SeqCst, SeqCst)).is_err()
    {
        return false;
    }
    while ARMING.load(SeqCst) != 0 {
        // Asleep, because a thread that arms may need this CPU. It wakes nobody:
        // it is through in less than the time given.
        let nap = Deadline::after(Duration::from_millis(1));
        futex::wait(&KEY, WITHOUT, nap);
    }
    // SAFETY: the key was made here, and nobody uses it any more (E1).
    unsafe { libc::pthread_key_delete(key - 1) };
    true
}

/// In the child of a fork: nobody else arms.
pub(super) fn after_fork() {
    ARMING.store(0, SeqCst);
}

/// The key, made if need be. The caller is counted in `ARMING`.
fn key() -> Option<libc::pthread_key_t> {
    loop {
        match KEY.load(SeqCst) {
            NONE => {}
            WITHOUT => return None,
            key => return Some(key - 1),
        }
        let made = make();
        let new = made.map_or(WITHOUT, |key| key + 1);
        let other = KEY.compare_exchange(NONE, new, SeqCst, SeqCst).is_err();
        if let (true, Some(made)) = (other, made) {
            // SAFETY: nobody else knows this key.
            unsafe { libc::pthread_key_delete(made) };
        }
    }
}

/// A key for which the C library does not allocate.
fn make() -> Option<libc::pthread_key_t> {
    let mut made: libc::pthread_key_t = 0;
    // SAFETY: `made` is a valid place for the key, and `end` is sound to
    // call with any value.
    if unsafe { libc::pthread_key_create(&mut made, Some(end)) } != 0 {
        return None;
    }
    if made >= KEYS_IN_THREAD {
        // SAFETY: nobody else knows this key.
        unsafe { libc::pthread_key_delete(made) };
        return None;
    }
    Some(made)
}

extern "C" fn end(_value: *mut c_void) {
    let index = SLOT.with(|slot| slot.replace(LATE));
    if index & !LATE != 0 {
        free_slot(index & !LATE);
    }
}
