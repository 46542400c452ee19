//! Objects with bytes behind them, in one allocation, behind one thin pointer.
//!
//! Versions, records, index entries and separators all are a few words and a
//! run of bytes of any length. One pointer of one word can be put into an atomic;
//! one allocation costs one cache miss.
//!
//! - **P1** A [`Thin`] points to an allocation of [`Thin::layout`]'s size, whose
//!   first part is initialised, followed by `length` initialised bytes. Neither
//!   `length` nor the bytes ever change.
//! - **P2** It is freed once, after nobody can reach it any more. Where that is
//!   other than by ownership, E1 says so.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, slice_from_raw_parts};
use std::sync::atomic::AtomicU32;

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

    /// Makes an object.
    #[inline]
    pub(crate) fn new(head: H, note: u32, bytes: &[u8]) -> Thin<H> {
        let layout = Thin::<H>::layout(bytes.len());
        // SAFETY: the layout is not empty, as a `Thick` is not.
        let raw = unsafe { alloc(layout) }.cast::<Thick<H>>();
        let Some(pointer) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        let thick = Thick {
            length: u32::try_from(bytes.len()).expect("objects are below 4 GiB"),
            note: AtomicU32::new(note),
            head,
        };
        // SAFETY: the allocation is new, and has room for both parts (P1).
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
    /// Nobody uses it any more (P2).
    pub(crate) unsafe fn free(self) {
        // SAFETY: the object is alive until now; its layout is that of `new`.
        unsafe {
            let layout = Thin::<H>::layout(self.bytes().len());
            self.0.drop_in_place();
            dealloc(self.0.as_ptr().cast(), layout);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_come_back() {
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
