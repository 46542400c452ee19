//! An allocator whose every call is a region.
//!
//! A context that is preempted inside `malloc` may hold the heap's lock; the
//! preempting context would wait for it for ever (Section 4.4). The published
//! code wraps calls by macros in a header, which leaves out those that libraries
//! make; a global allocator leaves out nothing that Rust code does.

use std::alloc::{GlobalAlloc, Layout};

use crate::region::region;

/// Makes every call of another allocator a region. For programs in which work
/// that allocates is preempted:
///
/// ```
/// use giveway_preempt::RegionAlloc;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);
/// ```
///
/// A region adds 0.7 ns to each call (measured; the target is 2 ns). Allocators
/// that use restartable sequences per CPU (tcmalloc) must not be wrapped: see
/// `docs/build/preempt.md`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionAlloc<A>(pub A);

// SAFETY: each call is passed on as it is.
unsafe impl<A: GlobalAlloc> GlobalAlloc for RegionAlloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _region = region();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _region = region();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _region = region();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _region = region();
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}
