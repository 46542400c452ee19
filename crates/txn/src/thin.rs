//! Objects followed by bytes, in one allocation, behind one thin pointer.
//!
//! Versions, records, index entries and separators all are a few words and a
//! run of bytes of any length. One pointer of one word can be put into an atomic;
//! one allocation costs one cache miss.
//!
//! - **P1** A [`Thin`] points to an allocation of [`Thin::layout`]'s size, whose
//!   first part is initialised, followed by `length` initialised bytes. Neither
//!   `length` nor the bytes ever change. (Not asserted: only `write` makes one, and
//!   there is no way to change it.)
//! - **P2** It is freed once, after no transaction can reach it any more. Where that is
//!   other than by ownership, E1 says so. (Not asserted here: `heap` asserts H2 of what
//!   it allocates; Miri.)

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, slice_from_raw_parts};
use std::sync::atomic::AtomicU32;

use crate::heap::{self, Pool};

/// The allocation's first part.
pub(crate) struct Thick<H> {
    length: u32,
    /// A number beside `length`, where alignment would leave a hole.
    note: AtomicU32,
    head: H,
}

/// A pointer to an object of type `H` with bytes behind it.
pub(crate) struct Thin<H>(NonNull<Thick<H>>);

impl<H> Clone for Thin<H> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for Thin<H> {}
impl<H> PartialEq for Thin<H> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<H> Eq for Thin<H> {}

impl<H> Thin<H> {
    fn layout(length: usize) -> Layout {
        let size = size_of::<Thick<H>>() + length;
        Layout::from_size_align(size, align_of::<Thick<H>>()).expect("an object's size")
    }

    /// Bytes that an object with this many bytes behind it takes.
    #[inline]
    pub(crate) fn size(length: usize) -> usize {
        size_of::<Thick<H>>() + length
    }

    /// Makes an object in the global allocator's memory.
    #[inline]
    pub(crate) fn new(head: H, note: u32, bytes: &[u8]) -> Thin<H> {
        let layout = Thin::<H>::layout(bytes.len());
        // SAFETY: the layout is not empty, as a `Thick` is not.
        let Some(memory) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the memory is new, and as large as asked for.
        unsafe { Thin::write(memory, head, note, bytes) }
    }

    /// Makes an object in a pool's memory, which is freed by
    /// [`free_in`](Thin::free_in) or [`abandon`](Thin::abandon).
    #[inline]
    pub(crate) fn new_in(pool: &mut Pool, head: H, note: u32, bytes: &[u8]) -> Thin<H> {
        let memory = pool.take(Thin::<H>::layout(bytes.len()));
        // SAFETY: as above.
        unsafe { Thin::write(memory, head, note, bytes) }
    }

    /// # Safety
    /// The memory is the caller's, of this object's layout.
    #[inline]
    unsafe fn write(memory: NonNull<u8>, head: H, note: u32, bytes: &[u8]) -> Thin<H> {
        let pointer = memory.cast::<Thick<H>>();
        let thick = Thick {
            length: u32::try_from(bytes.len()).expect("objects are below 4 GiB"),
            note: AtomicU32::new(note),
            head,
        };
        // SAFETY: there is room for both parts (P1), by the caller.
        unsafe {
            pointer.write(thick);
            let tail = pointer.as_ptr().add(1).cast::<u8>();
            tail.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Thin(pointer)
    }

    /// Frees the object.
    ///
    /// # Safety
    /// It is from [`new`](Thin::new), and nobody uses it any more (P2).
    pub(crate) unsafe fn free(self) {
        // SAFETY: by the caller; the layout is that of `new`.
        unsafe {
            let (memory, layout) = self.clear();
            dealloc(memory.as_ptr(), layout);
        }
    }

    /// Takes the object out of its memory.
    ///
    /// # Safety
    /// Nobody uses it any more (P2).
    #[inline]
    unsafe fn clear(self) -> (NonNull<u8>, Layout) {
        // SAFETY: the object is alive until now.
        unsafe {
            let layout = Thin::<H>::layout(self.bytes().len());
            self.0.drop_in_place();
            (self.0.cast(), layout)
        }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// It is from [`new_in`](Thin::new_in) and a pool of the same heap, and nobody
    /// uses it any more (P2).
    #[inline]
    pub(crate) unsafe fn free_in(self, pool: &mut Pool) {
        // SAFETY: by the caller; the layout is that of `new_in`.
        unsafe {
            let (memory, layout) = self.clear();
            pool.give(memory, layout);
        }
    }

    /// Frees the object as far as its heap, which goes away, does not.
    ///
    /// # Safety
    /// As [`free_in`](Thin::free_in); and no pool of the heap is used any more.
    pub(crate) unsafe fn abandon(self) {
        // SAFETY: by the caller.
        unsafe {
            let (memory, layout) = self.clear();
            heap::abandon(memory, layout);
        }
    }

    /// The object's first part.
    ///
    /// # Safety
    /// The object is alive, and stays so for `'a` (P2).
    #[inline]
    pub(crate) unsafe fn head<'a>(self) -> &'a H {
        // SAFETY: initialised (P1); alive, by the caller.
        unsafe { &(*self.0.as_ptr()).head }
    }

    /// The number beside it.
    ///
    /// # Safety
    /// As [`Thin::head`].
    #[inline]
    pub(crate) unsafe fn note<'a>(self) -> &'a AtomicU32 {
        // SAFETY: initialised (P1); alive, by the caller.
        unsafe { &(*self.0.as_ptr()).note }
    }

    /// The bytes behind it.
    ///
    /// # Safety
    /// As [`Thin::head`].
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: `length` bytes follow and never change (P1); alive, by the
        // caller.
        unsafe {
            let length = (*self.0.as_ptr()).length as usize;
            let tail = self.0.as_ptr().add(1).cast::<u8>();
            &*slice_from_raw_parts(tail, length)
        }
    }

    /// The pointer, for an atomic.
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut Thick<H> {
        self.0.as_ptr()
    }

    /// The object that an atomic pointed to; `None` for null.
    ///
    /// # Safety
    /// The pointer came from [`Thin::as_ptr`].
    #[inline]
    pub(crate) unsafe fn from_ptr(pointer: *mut Thick<H>) -> Option<Thin<H>> {
        NonNull::new(pointer).map(Thin)
    }
}

/// Asks for memory that will be read soon, at least the line that an address is
/// in. Nothing has to be there.
#[inline]
pub(crate) fn prefetch(memory: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and does not fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(offset).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (memory, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_bytes_are_read_back() {
        for length in [0, 1, 7, 8, 1000] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let thin = Thin::new(String::from("head"), 9, &bytes);
            // SAFETY: made above, freed below.
            unsafe {
                assert_eq!(thin.head(), "head");
                assert_eq!(thin.bytes(), &bytes[..]);
                assert_eq!(thin.note().load(std::sync::atomic::Ordering::Relaxed), 9);
                thin.free();
            }
        }
    }
}
