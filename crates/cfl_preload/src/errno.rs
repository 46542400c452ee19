//! The calling thread's `errno`, to be put back: programs read it after
//! unlocking, and the pthread functions of glibc leave it alone.

use std::ffi::c_int;

pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn save() -> Errno {
        // SAFETY: always valid in the thread that asks.
        Errno(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn restore(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
