//! Where a program's memory comes from, and for how long what is freed is kept.
//!
//! Queries free and allocate gigabytes a second. glibc gives large blocks back to the
//! kernel at once, which clears them anew for the next query: 30 % of the CPU time of
//! a busy server on a virtual machine, where a page takes 4 to 10 us. Told to keep
//! everything, glibc keeps the most that each thread's heap has ever had.
//!
//! mimalloc's threads share what is free, so that the process has what was once in
//! use at a time, which the engine limits. All that is free goes back to the kernel
//! together, ten minutes (`KEPT_MS`) after the first of it was freed: with 10 s a busy server
//! spent half of its time on getting it again, with minutes it does not notice.
//! `MIMALLOC_PURGE_DELAY`, in ms, says otherwise; -1 keeps it for good.
//!
//! Known weakness: only who allocates or frees looks at the clock, so a server that
//! gets no further query stays as large as it was.

use std::ffi::c_long;

use libmimalloc_sys::mi_option_t;

/// For `#[global_allocator]`.
pub use mimalloc::MiMalloc;

/// For how long freed memory is kept.
const KEPT_MS: c_long = 600_000;

/// `mi_option_purge_delay` of mimalloc.h, for which the bindings have no name.
const PURGE_DELAY: mi_option_t = 15;

/// To be called before there is much to free.
pub fn keep_what_is_freed() {
    // SAFETY: it sets a number under a number below `_mi_option_last`, unless the
    // environment has.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEPT_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another release may number its options otherwise.
    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: options may be read at any time.
        let now = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(now(), 1000, "mimalloc's default for a purge's delay, in ms");
        keep_what_is_freed();
        assert_eq!(now(), KEPT_MS);
    }
}
