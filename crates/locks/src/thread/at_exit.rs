//! The end of a thread, which frees its slot.
//!
//! Registering the destructor of a thread-local variable allocates, and the lock
//! may be the allocator's. So it is a `pthread_key`'s: the C library calls it
//! with the value that the thread has set, after the destructors of variables,
//! and perhaps before those of other keys. A thread that locks after that gets a
//! temporary slot.

use super::{LATE, SLOT, free_slot};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};

/// The key plus 1; 0 before it is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes the key. Called early, because the C library keeps the first 32
/// keys' values in the thread itself and allocates for later ones.
pub(crate) fn prepare() -> Option<libc::pthread_key_t> {
    let key = KEY.load(Acquire);
    if key != 0 {
        return Some(key - 1);
    }
    let mut made: libc::pthread_key_t = 0;
    // SAFETY: `made` is a valid place for the key, and `end` is sound to
    // call with any value.
    if unsafe { libc::pthread_key_create(&mut made, Some(end)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, made + 1, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: nobody else knows this key.
            unsafe { libc::pthread_key_delete(made) };
            Some(other - 1)
        }
    }
}

/// Notices the end of the current thread.
pub(super) fn arm(index: u32) {
    if let Some(key) = prepare() {
        let value = std::ptr::without_provenance::<c_void>(index as usize);
        // SAFETY: the key was made above and is never deleted. Failure
        // means that the slot is not freed, which is all it can mean.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}

extern "C" fn end(_value: *mut c_void) {
    let index = SLOT.with(|slot| slot.replace(LATE));
    if index & !LATE != 0 {
        free_slot(index & !LATE);
    }
}
