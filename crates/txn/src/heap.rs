//! Memory for records and versions: taken and given back by one transaction at a
//! time, without a lock and mostly without a cache miss.
//!
//! ```text
//!  Pool, one a slot      list[16] ─► free ─► free        objects of 16 bytes
//!                        list[32] ─► free                of 32 bytes, …
//!                        chunk    ▒▒▒▒▒▒░░░░             what no object has had yet
//!                          ▲                │ a batch of one size too many
//!          64 KiB, a batch │                ▼
//!  Heap, one a database  block ▒▒▒▒░░░░  batches by size
//!                        2 MiB each, in huge pages where the system has them
//! ```
//!
//! Every update makes a version and, a little later, frees one of about the same
//! size: a list for each size, used from its newest end, gives out memory that is
//! still in the cache, in three instructions. What one slot frees and others
//! allocate moves in batches through the heap.
//!
//! A general allocator does the same at three times the cost, because it cannot
//! know that nobody else is in the list, must find out sizes, merges neighbours
//! that will be parted again, and has to be entered in a region.
//!
//! Invariants:
//!
//! - **H1** What a pool hands out lies in a block, and blocks live as long as the
//!   heap, which the database and each of its tables hold. Objects above
//!   [`LARGEST`] are the global allocator's.
//! - **H2** A free object is in one list, of its size, and in use by nobody (E1).
//! - **H3** A pool is used by who holds its slot (E2); batches pass from one to
//!   another under the heap's lock, which is held in regions only (R1).
//!
//! Known weakness: memory of one size never becomes memory of another, and goes
//! back to the system with the database only.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::preemption;

/// Sizes are multiples of this, and objects so aligned.
const GRAIN: usize = 16;
/// Objects above this many bytes are the global allocator's. So are all under
/// Miri, which then sees uses of what was freed.
const LARGEST: usize = if cfg!(miri) { 0 } else { 1024 };
/// Lists of a pool.
const CLASSES: usize = LARGEST / GRAIN + 1;
/// Free objects that change owners together; a pool keeps up to twice as many.
const BATCH: usize = if cfg!(test) { 4 } else { 256 };
/// What a pool takes of a block.
const CHUNK: usize = 64 << 10;
/// A huge page.
const LARGEST_BLOCK: usize = 2 << 20;

/// A free object.
struct Free {
    next: Option<NonNull<Free>>,
}

/// Free objects of one size.
#[derive(Default)]
struct List {
    first: Option<NonNull<Free>>,
    length: usize,
}

// SAFETY: nobody uses what is in it (H2).
unsafe impl Send for List {}

impl List {
    #[inline]
    fn push(&mut self, object: NonNull<u8>) {
        let object = object.cast::<Free>();
        let next = self.first.replace(object);
        // SAFETY: the object is free, and large enough and aligned for this (H2).
        unsafe { object.write(Free { next }) };
        self.length += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let first = self.first?;
        // SAFETY: it is in the list, hence free, and was written by `push` (H2).
        self.first = unsafe { first.as_ref() }.next;
        self.length -= 1;
        Some(first.cast())
    }
}

/// Memory that nobody has had yet.
#[derive(Clone, Copy)]
struct Fresh {
    next: NonNull<u8>,
    bytes: usize,
}

// SAFETY: nobody else has it.
unsafe impl Send for Fresh {}

impl Fresh {
    const NONE: Fresh = Fresh {
        next: NonNull::dangling(),
        bytes: 0,
    };

    /// Takes bytes from the beginning, if there are so many.
    #[inline]
    fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let rest = self.bytes.checked_sub(bytes)?;
        let taken = self.next;
        self.bytes = rest;
        // SAFETY: at most one past the end of the block it is from.
        self.next = unsafe { taken.add(bytes) };
        Some(taken)
    }
}

/// The memory of a database.
#[derive(Default)]
pub(crate) struct Heap(Mutex<Shared>);

struct Shared {
    blocks: Vec<(NonNull<u8>, Layout)>,
    fresh: Fresh,
    /// By class.
    batches: [Vec<List>; CLASSES],
}

// SAFETY: the blocks are its own.
unsafe impl Send for Shared {}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            blocks: Vec::new(),
            fresh: Fresh::NONE,
            batches: [const { Vec::new() }; CLASSES],
        }
    }
}

impl Shared {
    fn chunk(&mut self) -> Fresh {
        let next = self.fresh.take(CHUNK).unwrap_or_else(|| {
            self.fresh = self.block();
            self.fresh.take(CHUNK).expect("a block has a chunk")
        });
        Fresh { next, bytes: CHUNK }
    }

    /// A new block, as large as all before together, up to a huge page.
    fn block(&mut self) -> Fresh {
        let had: usize = self.blocks.iter().map(|(_, layout)| layout.size()).sum();
        let bytes = had.next_power_of_two().clamp(CHUNK, LARGEST_BLOCK);
        let layout = Layout::from_size_align(bytes, bytes).expect("powers of two");
        // SAFETY: the layout is not empty.
        let Some(next) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        if bytes == LARGEST_BLOCK {
            // SAFETY: advice about memory that is ours. If it is not taken, pages
            // are small.
            unsafe { libc::madvise(next.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        self.blocks.push((next, layout));
        Fresh { next, bytes }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for &(block, layout) in &self.blocks {
            // SAFETY: allocated with this layout; nobody uses what is in it, since
            // database and tables are gone (H1).
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}

impl Heap {
    fn with<R>(&self, work: impl FnOnce(&mut Shared) -> R) -> R {
        let _region = preemption::region();
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The memory of a slot.
pub(crate) struct Pool {
    heap: Arc<Heap>,
    /// By class; none before the first use, since most slots are never used.
    lists: Vec<List>,
    fresh: Fresh,
}

impl Pool {
    pub(crate) fn new(heap: &Arc<Heap>) -> Pool {
        Pool {
            heap: Arc::clone(heap),
            lists: Vec::new(),
            fresh: Fresh::NONE,
        }
    }

    /// Memory for an object, aligned for what is behind a [`Thin`](crate::thin::Thin).
    #[inline]
    pub(crate) fn take(&mut self, layout: Layout) -> NonNull<u8> {
        if layout.size() > LARGEST {
            return large(layout);
        }
        debug_assert!(layout.align() <= GRAIN);
        let class = layout.size().div_ceil(GRAIN);
        if let Some(list) = self.lists.get_mut(class)
            && let Some(object) = list.pop()
        {
            return object;
        }
        match self.fresh.take(class * GRAIN) {
            Some(object) => object,
            None => self.refill(class),
        }
    }

    /// An object of a class of which there is none, nor a fresh one.
    #[cold]
    fn refill(&mut self, class: usize) -> NonNull<u8> {
        self.make_lists();
        if let Some(batch) = self.heap.with(|shared| shared.batches[class].pop()) {
            self.lists[class] = batch;
        } else {
            let rest = self.fresh.bytes / GRAIN;
            if rest > 0 && rest < CLASSES {
                let object = self.fresh.take(rest * GRAIN);
                self.lists[rest].push(object.expect("the rest is there"));
            }
            self.fresh = self.heap.with(Shared::chunk);
        }
        let object = self.lists[class].pop();
        object
            .or_else(|| self.fresh.take(class * GRAIN))
            .expect("one or the other was refilled")
    }

    fn make_lists(&mut self) {
        if self.lists.is_empty() {
            self.lists.resize_with(CLASSES, List::default);
        }
    }

    /// Gives an object back.
    ///
    /// # Safety
    /// It is from [`take`](Pool::take) of a pool of the same heap, with this
    /// layout, and nobody uses it any more (H2).
    #[inline]
    pub(crate) unsafe fn give(&mut self, object: NonNull<u8>, layout: Layout) {
        if layout.size() > LARGEST {
            // SAFETY: by the caller.
            return unsafe { dealloc(object.as_ptr(), layout) };
        }
        let class = layout.size().div_ceil(GRAIN);
        match self.lists.get_mut(class) {
            Some(list) if list.length < 2 * BATCH => list.push(object),
            _ => self.give_far(object, class),
        }
    }

    /// The same where there is no list yet, or one that is too long.
    #[cold]
    fn give_far(&mut self, object: NonNull<u8>, class: usize) {
        self.make_lists();
        let list = &mut self.lists[class];
        list.push(object);
        if list.length > 2 * BATCH {
            let mut batch = List::default();
            for _ in 0..BATCH {
                batch.push(list.pop().expect("it is longer than that"));
            }
            self.heap.with(|shared| shared.batches[class].push(batch));
        }
    }
}

/// Frees an object of a heap that goes away itself.
///
/// # Safety
/// As [`Pool::give`]; and no pool of the heap is used any more.
pub(crate) unsafe fn abandon(object: NonNull<u8>, layout: Layout) {
    if layout.size() > LARGEST {
        // SAFETY: by the caller.
        unsafe { dealloc(object.as_ptr(), layout) };
    }
}

#[cold]
fn large(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "objects are not empty");
    // SAFETY: as asserted.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Objects that are in use do not overlap and keep what was written to them,
    /// while two pools take from and give to each other.
    #[test]
    fn what_is_in_use_is_nobody_elses() {
        let heap = Arc::default();
        let mut pools = [Pool::new(&heap), Pool::new(&heap)];
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut used: BTreeMap<usize, (NonNull<u8>, usize, u8)> = BTreeMap::new();
        let steps = if cfg!(miri) { 300 } else { 30_000 };
        for step in 0..steps {
            let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
            if used.len() < 500 && random.random_bool(0.6) {
                let bytes = random.random_range(1..=LARGEST + 200);
                // One of them allocates more than the other.
                let object = pools[usize::from(random.random_bool(0.2))].take(layout(bytes));
                assert!(object.addr().get().is_multiple_of(GRAIN));
                let mark = step as u8;
                // SAFETY: it has so many bytes.
                unsafe { object.write_bytes(mark, bytes) };
                let at = object.addr().get();
                if let Some((before, &(_, length, _))) = used.range(..at).next_back() {
                    assert!(before + length <= at, "it begins inside another");
                }
                if let Some((after, _)) = used.range(at..).next() {
                    assert!(at + bytes <= *after, "it ends inside another");
                }
                used.insert(at, (object, bytes, mark));
            } else if let Some((&at, _)) = used.range(random.random_range(0..=usize::MAX)..).next()
                && let Some((object, bytes, mark)) = used.remove(&at)
            {
                // SAFETY: in use by this test, until given back.
                unsafe {
                    let written = std::slice::from_raw_parts(object.as_ptr(), bytes);
                    assert!(written.iter().all(|&byte| byte == mark));
                    // And the other one frees more.
                    pools[usize::from(random.random_bool(0.8))].give(object, layout(bytes));
                }
            } else if let Some((_, (object, bytes, _))) = used.pop_first() {
                // SAFETY: as above.
                unsafe { pools[0].give(object, layout(bytes)) };
            }
        }
        for (object, bytes, _) in used.into_values() {
            // SAFETY: as above.
            unsafe { abandon(object, Layout::from_size_align(bytes, 8).unwrap()) };
        }
    }

    /// One slot allocates and another frees, for ever, in bounded memory.
    #[test]
    fn what_one_frees_another_gets() {
        let heap: Arc<Heap> = Arc::default();
        let (mut one, mut other) = (Pool::new(&heap), Pool::new(&heap));
        let layout = Layout::from_size_align(512, 8).unwrap();
        for _ in 0..10_000 {
            let objects = [(); 10].map(|()| one.take(layout));
            for object in objects {
                // SAFETY: taken above, with this layout.
                unsafe { other.give(object, layout) };
            }
        }
        let blocks = heap.with(|shared| shared.blocks.len());
        assert!(blocks <= 2, "{blocks} blocks for a hundred objects");
    }
}
