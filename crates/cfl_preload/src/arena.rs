//! Memory for the library itself, never the program's `malloc`.
//!
//! Problem: a program's first lock may be taken inside its allocator (jemalloc
//! and tcmalloc lock pthread mutexes), and that is when the settings are read.
//! If reading them allocated through `malloc`, the allocator would be entered
//! a second time by a thread that already holds its locks.
//!
//! So this crate's global allocator hands out pieces of one reserved range of
//! addresses, by adding to an offset. Only the block given out last can be
//! given back or grown in place, which is what a growing `String` needs; all
//! else stays until the process ends. What is allocated is a few pages: the
//! settings once, a few lines of text per report.
//!
//! Invariants:
//!
//! 1. `[base, base + offset)` has been given out, the rest has not; `offset`
//!    changes by compare-and-swap only, so no byte is given out twice. (Not
//!    asserted: an allocator must not panic; the unit tests compare blocks.)
//! 2. There is no lock, so a fork in the middle of an allocation costs the
//!    child at most that allocation. (Not asserted: it is the absence of something.)
//!
//! Weakness: a caller that allocates without end reaches the end of the range,
//! and the process aborts. Nothing here allocates on a lock's path.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

/// Address space reserved, in bytes. Pages are used as they are touched.
const RESERVED: usize = 64 << 20;

/// The arena: see the module's text.
pub(crate) struct Arena {
    base: AtomicPtr<u8>,
    offset: AtomicUsize,
}

impl Arena {
    pub(crate) const fn new() -> Arena {
        Arena {
            base: AtomicPtr::new(ptr::null_mut()),
            offset: AtomicUsize::new(0),
        }
    }

    /// The reserved range, reserving it at the first call. Null if the
    /// kernel has no such range to give.
    fn base(&self) -> *mut u8 {
        let base = self.base.load(Acquire);
        if !base.is_null() {
            return base;
        }
        // SAFETY: an anonymous mapping at an address of the kernel's choice
        // touches nothing that exists.
        let fresh = unsafe {
            libc::mmap(
                ptr::null_mut(),
                RESERVED,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if fresh == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        match (self.base).compare_exchange(ptr::null_mut(), fresh.cast(), AcqRel, Acquire) {
            Ok(_) => fresh.cast(),
            Err(earlier) => {
                // SAFETY: the range just mapped, which nobody has seen.
                unsafe { libc::munmap(fresh, RESERVED) };
                earlier
            }
        }
    }

    /// Moves the end of the last block from `from` to `to`, if `from` is still
    /// the end.
    fn resize_last(&self, from: usize, to: usize) -> bool {
        to <= RESERVED && (self.offset.compare_exchange(from, to, AcqRel, Acquire)).is_ok()
    }
}

// SAFETY: blocks are disjoint (1), aligned as asked (the base is page-aligned
// and layouts that want more are refused), and mapped readable and writable.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let base = self.base();
        if base.is_null() || layout.align() > 4096 {
            return ptr::null_mut();
        }
        let mut from = self.offset.load(Acquire);
        loop {
            let start = from.next_multiple_of(layout.align());
            let Some(end) = start
                .checked_add(layout.size())
                .filter(|end| *end <= RESERVED)
            else {
                return ptr::null_mut();
            };
            match self.offset.compare_exchange(from, end, AcqRel, Acquire) {
                // SAFETY: `end <= RESERVED`, so the block lies in the mapping.
                Ok(_) => return unsafe { base.add(start) },
                Err(now) => from = now,
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let start = block.addr() - self.base.load(Acquire).addr();
        let _was_last = self.resize_last(start + layout.size(), start);
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let start = block.addr() - self.base.load(Acquire).addr();
        if start
            .checked_add(size)
            .is_some_and(|end| self.resize_last(start + layout.size(), end))
        {
            return block;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        // SAFETY: the caller's promises about `size` are alloc's about `wanted`.
        let fresh = unsafe { self.alloc(wanted) };
        if !fresh.is_null() {
            // SAFETY: both blocks are at least this long, and disjoint (1).
            unsafe { ptr::copy_nonoverlapping(block, fresh, layout.size().min(size)) };
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_disjoint_and_aligned_and_the_last_one_grows_in_place() {
        let arena = Arena::new();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        // SAFETY: the layouts have sizes above zero and are passed back as they
        // were, and only live blocks are written.
        unsafe {
            let a = arena.alloc(layout(3, 1));
            let b = arena.alloc(layout(64, 64));
            assert_eq!(b.addr() % 64, 0);
            assert!(a.addr() + 3 <= b.addr());
            b.write_bytes(7, 64);
            assert_eq!(arena.realloc(b, layout(64, 64), 100), b);
            let c = arena.realloc(a, layout(3, 1), 10);
            assert!(c.addr() >= b.addr() + 100);
            arena.dealloc(c, layout(10, 1));
            assert_eq!(arena.alloc(layout(10, 1)), c);
            assert_eq!(*b.add(63), 7);
        }
    }

    #[test]
    fn the_end_of_the_range_is_an_error_and_not_an_overlap() {
        let arena = Arena::new();
        let layout = Layout::from_size_align(RESERVED / 2 + 1, 8).unwrap();
        // SAFETY: the layout has a size above zero.
        unsafe {
            assert!(!arena.alloc(layout).is_null());
            assert!(arena.alloc(layout).is_null());
        }
    }
}
