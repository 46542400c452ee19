//! The allocator, and how long it keeps freed memory.
//!
//! Queries free and allocate gigabytes per second. glibc returns large blocks to the
//! kernel at once, and the kernel clears the pages for the next query: 30 % of the CPU
//! time of a busy server on a virtual machine, where a page takes 4 to 10 us. If glibc is
//! told to keep everything, each thread's heap keeps its own maximum.
//!
//! mimalloc's threads share free memory, so the process keeps the most that was in use at
//! one time, which the engine limits. mimalloc returns all free memory together, ten
//! minutes (`KEPT_MS`) after the first of it was freed. With a delay of 10 s, the kernel
//! had 28 % of a busy server's CPU time (`docs/findings.md`). `MIMALLOC_PURGE_DELAY`, in
//! ms, overrides the delay; -1 keeps memory for good.
//!
//! Known weakness: the delay is checked only when memory is allocated or freed, so a
//! server that gets no further query stays as large as it was.

use std::ffi::c_long;

use libmimalloc_sys::mi_option_t;

/// For `#[global_allocator]`.
pub use mimalloc::MiMalloc;

/// How long freed memory is kept, ms.
const KEPT_MS: c_long = 600_000;

/// `mi_option_purge_delay` of mimalloc.h, for which the bindings have no name.
const PURGE_DELAY: mi_option_t = 15;

/// Sets the delay, unless the environment does. Call it before much is freed.
pub fn keep_what_is_freed() {
    // SAFETY: it sets a number under a number below `_mi_option_last`, unless the
    // environment has.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, KEPT_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another release of mimalloc may number its options differently.
    #[test]
    fn purge_delay_has_the_option_number_of_mimalloc() {
        // SAFETY: options may be read at any time.
        let now = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(now(), 1000, "mimalloc's default for a purge's delay, in ms");
        keep_what_is_freed();
        assert_eq!(now(), KEPT_MS);
    }
}
