//! Memory for records, versions and index nodes: taken and given back by one
//! transaction at a time, without a lock and mostly without a cache miss.
//!
//! ```text
//!  Pool, one a slot      list[16] ─► free ─► free        objects of 16 bytes
//!                        list[32] ─► free                of 32 bytes, …
//!                        fresh[32] ▒▒▒▒░░░░░░            never in an object yet
//!                          ▲                │ some of one size too many
//!         a chunk, or what │                ▼
//!         is free of one   │
//!  Heap, one a database  chunk │size│▒▒░▒░▒▒▒│           64 KiB, objects of one size
//!                        chunk │    │░░░░░░░░│           wholly free: of any size next,
//!                        block, 2 MiB, in huge pages     or given back to the system
//! ```
//!
//! Every update makes a version and, a little later, frees one of about the same
//! size: a list for each size, used from its newest end, gives out memory that is
//! still in the cache, in three instructions. What one slot frees and others
//! allocate moves through the heap, which keeps what is free of each chunk in the
//! chunk. So it sees when all of a chunk is: then the chunk may serve any size, and
//! if there are many of those, the system gets the memory back, at once and whatever the
//! program's allocator does with what it is given.
//!
//! A general allocator takes three times as long, because its lists may be shared,
//! it has to find out sizes, it merges neighbours that will be split again, and it
//! has to be entered in a region.
//!
//! Invariants:
//!
//! - **H1** What a pool hands out lies in a block, and blocks live as long as the
//!   heap, which the database and each of its tables hold. Objects above
//!   [`LARGEST`] are the global allocator's. (Asserted in `Shared::give`.)
//! - **H2** A free object is in one list, of its size, and not in use (E1). (Asserted
//!   in `List::push` and `Shared::give`, which find an object freed twice if the
//!   second time is the next, or the chunk would have more than all objects.)
//! - **H3** A pool is used by the holder of its slot (E2); objects pass from one to
//!   another under the heap's lock, which is held in regions only (R1). (The first is
//!   asserted as E2. Not asserted: the second, since `with` opens the region.)
//! - **H4** A chunk begins at a multiple of its size, with its header, which is
//!   read under the lock. It is in its size's list of partial chunks while it
//!   has free objects and is not wholly free. (Asserted in `begin` and
//!   `Shared::give`.)
//!
//! Memory goes back a chunk at a time, so a block that has given some back is no huge
//! page until all of its chunks are used again.
//!
//! Known weakness: one object in use keeps its chunk for its size, and so do the
//! few that each pool holds back, until memory is short (`trim`). Addresses are unmapped only when the database
//! ends.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::preemption;

/// Sizes are multiples of this, and objects so aligned. Those of a size that is a
/// multiple of more are aligned to that, up to [`HEADER`].
const GRAIN: usize = 16;
/// Objects above this many bytes are the global allocator's. So are all under
/// Miri and AddressSanitizer, which then see uses of what was freed.
const LARGEST: usize = if cfg!(any(miri, asan)) { 0 } else { 2048 };
/// Lists of a pool.
const CLASSES: usize = LARGEST / GRAIN + 1;
/// What a pool takes of a block.
const CHUNK: usize = 64 << 10;
/// What of it the header takes.
const HEADER: usize = 64;
/// A huge page.
const LARGEST_BLOCK: usize = 2 << 20;
/// Wholly free chunks that the heap keeps at least, and one more for so many in use.
const KEPT: (usize, usize) = (16, 16);

/// Where objects of this layout are.
#[inline]
fn class(layout: Layout) -> usize {
    let (size, align) = (layout.size(), layout.align());
    debug_assert!(align <= GRAIN || align <= HEADER && size.is_multiple_of(align));
    class_of(size)
}

/// Where objects of so many bytes are.
#[inline]
fn class_of(bytes: usize) -> usize {
    bytes.div_ceil(GRAIN)
}

/// Free objects of a class that change owners together, half a chunk at most; a pool
/// keeps up to twice as many.
const fn batch(class: usize) -> usize {
    let objects = CHUNK / 2 / (if class == 0 { 1 } else { class } * GRAIN);
    match objects {
        _ if cfg!(test) => 4,
        256.. => 256,
        objects => objects,
    }
}

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
        debug_assert_ne!(self.first, Some(object), "H2");
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

/// Memory that was never in an object.
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

/// What a chunk begins with (H4).
#[repr(C, align(64))]
struct Chunk {
    /// Its free objects that no pool has.
    free: List,
    /// How many objects it has in all.
    capacity: u32,
    class: u16,
    /// Its place among the partial chunks of its class.
    at: u32,
}

const _: () = assert!(size_of::<Chunk>() <= HEADER);

/// A chunk, by its address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChunkAt(NonNull<u8>);

// SAFETY: who has it is the heap, or a pool, under the rules of H3.
unsafe impl Send for ChunkAt {}

impl ChunkAt {
    /// The one with this object.
    fn of(object: NonNull<u8>) -> ChunkAt {
        let chunk = object.as_ptr().map_addr(|address| address & !(CHUNK - 1));
        ChunkAt(NonNull::new(chunk).expect("no block is at 0"))
    }

    /// # Safety
    /// The chunk has been begun, the heap is locked by the caller (H4), and it has no
    /// other reference to the header.
    unsafe fn header<'a>(self) -> &'a mut Chunk {
        // SAFETY: by the caller.
        unsafe { self.0.cast::<Chunk>().as_mut() }
    }

    /// Lets the chunk have objects of this class, all of which are with the caller.
    ///
    /// # Safety
    /// Nobody else has the chunk.
    unsafe fn begin(self, class: usize) -> Fresh {
        debug_assert!(self.0.addr().get().is_multiple_of(CHUNK), "H4");
        let bytes = (CHUNK - HEADER) / (class * GRAIN) * (class * GRAIN);
        let header = Chunk {
            free: List::default(),
            capacity: (bytes / (class * GRAIN)) as u32,
            class: class as u16,
            at: 0,
        };
        // SAFETY: a chunk has room for its header, and is so aligned.
        unsafe { self.0.cast::<Chunk>().write(header) };
        Fresh {
            // SAFETY: within the chunk.
            next: unsafe { self.0.add(HEADER) },
            bytes,
        }
    }
}

/// The memory of a database.
#[derive(Default)]
pub(crate) struct Heap {
    shared: Mutex<Shared>,
    /// Bytes of memory that it holds of the system.
    held: AtomicU64,
}

struct Shared {
    blocks: Vec<(NonNull<u8>, Layout)>,
    /// Of the last block, what was no chunk yet.
    fresh: Fresh,
    /// Chunks that are wholly free and have memory.
    warm: Vec<ChunkAt>,
    /// Those whose memory the system has.
    cold: Vec<ChunkAt>,
    /// How many of these each block has that is a huge page, by its address.
    holes: BTreeMap<usize, u32>,
    /// Chunks that have objects.
    used: usize,
    /// By class, those with free objects.
    partial: [Vec<ChunkAt>; CLASSES],
}

// SAFETY: the blocks are its own.
unsafe impl Send for Shared {}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            blocks: Vec::new(),
            fresh: Fresh::NONE,
            warm: Vec::new(),
            cold: Vec::new(),
            holes: BTreeMap::new(),
            used: 0,
            partial: [const { Vec::new() }; CLASSES],
        }
    }
}

impl Shared {
    /// A free chunk.
    fn chunk(&mut self) -> ChunkAt {
        self.used += 1;
        if let Some(chunk) = self.warm.pop() {
            return chunk;
        }
        if let Some(chunk) = self.cold.pop() {
            self.warmed(chunk);
            return chunk;
        }
        ChunkAt(self.fresh.take(CHUNK).unwrap_or_else(|| {
            self.fresh = self.block();
            self.fresh.take(CHUNK).expect("a block has a chunk")
        }))
    }

    /// A new block, as large as all before together, up to a huge page.
    fn block(&mut self) -> Fresh {
        let had: usize = self.blocks.iter().map(|(_, layout)| layout.size()).sum();
        let bytes = had.next_power_of_two().clamp(CHUNK, LARGEST_BLOCK);
        let layout = Layout::from_size_align(bytes, bytes).expect("powers of two");
        let next = match bytes {
            LARGEST_BLOCK => map_block(),
            // SAFETY: the layout is not empty.
            _ => NonNull::new(unsafe { alloc(layout) }),
        };
        let next = next.unwrap_or_else(|| handle_alloc_error(layout));
        if bytes == LARGEST_BLOCK {
            advise(next, bytes, libc::MADV_HUGEPAGE);
            self.holes.insert(next.addr().get(), 0);
        }
        self.blocks.push((next, layout));
        Fresh { next, bytes }
    }

    /// What is free of a partial chunk of this class.
    fn take(&mut self, class: usize) -> Option<List> {
        let chunk = self.partial[class].pop()?;
        // SAFETY: the heap is locked, and partial chunks are begun (H4).
        Some(std::mem::take(unsafe { &mut chunk.header().free }))
    }

    /// An object of this class, without a pool.
    fn take_one(&mut self, class: usize) -> NonNull<u8> {
        if self.partial[class].is_empty() {
            let chunk = self.chunk();
            // SAFETY: nobody has the chunk.
            let mut fresh = unsafe { chunk.begin(class) };
            // SAFETY: the heap is locked, and it has just been begun (H4).
            let header = unsafe { chunk.header() };
            while let Some(object) = fresh.take(class * GRAIN) {
                header.free.push(object);
            }
            self.partial[class].push(chunk);
        }
        let partial = &mut self.partial[class];
        let chunk = partial.last().expect("there is one now");
        // SAFETY: the heap is locked, and partial chunks are begun (H4).
        let header = unsafe { chunk.header() };
        let object = header.free.pop().expect("partial chunks have some");
        if header.free.length == 0 {
            partial.pop();
        }
        object
    }

    /// Takes an object back.
    fn give(&mut self, object: NonNull<u8>) {
        debug_assert!(self.has(object), "H1");
        let chunk = ChunkAt::of(object);
        // SAFETY: the heap is locked, and a chunk with an object is begun (H4).
        let header = unsafe { chunk.header() };
        header.free.push(object);
        debug_assert!(header.free.length <= header.capacity as usize, "H2");
        let partial = &mut self.partial[usize::from(header.class)];
        if header.free.length == header.capacity as usize {
            // It has been among them since its first: a chunk has several.
            let at = header.at as usize;
            let removed = partial.swap_remove(at);
            debug_assert!(removed == chunk, "H4");
            if let Some(moved) = partial.get(at) {
                // SAFETY: as above; it is another one.
                unsafe { moved.header() }.at = at as u32;
            }
            self.empty(chunk);
        } else if header.free.length == 1 {
            header.at = partial.len() as u32;
            partial.push(chunk);
        }
    }

    /// Whether an object lies in one of the blocks. For assertions.
    fn has(&self, object: NonNull<u8>) -> bool {
        let offset = |block: NonNull<u8>| object.addr().get().wrapping_sub(block.addr().get());
        let mut blocks = self.blocks.iter();
        blocks.any(|(block, layout)| offset(*block) < layout.size())
    }

    /// A chunk is wholly free.
    fn empty(&mut self, chunk: ChunkAt) {
        self.used -= 1;
        self.warm.push(chunk);
        self.cool(KEPT.0 + self.used / KEPT.1);
    }

    /// Gives the system the memory of all wholly free chunks but so many.
    fn cool(&mut self, but: usize) {
        while self.warm.len() > but {
            let chunk = self.warm.swap_remove(0);
            if let Some((block, holes)) = self.holes_beside(chunk) {
                *holes += 1;
                if *holes == 1 {
                    // Or the system would fill the hole, to make the page huge again.
                    advise(block, LARGEST_BLOCK, libc::MADV_NOHUGEPAGE);
                }
            }
            // Nobody uses what is in it; it reads as zeros afterwards, and is written
            // before it is read.
            advise(chunk.0, CHUNK, libc::MADV_DONTNEED);
            self.cold.push(chunk);
        }
    }

    /// A cold chunk is used again.
    fn warmed(&mut self, chunk: ChunkAt) {
        if let Some((block, holes)) = self.holes_beside(chunk) {
            *holes -= 1;
            if *holes == 0 {
                advise(block, LARGEST_BLOCK, libc::MADV_HUGEPAGE);
            }
        }
    }

    /// The block of a chunk, if that is a huge page, and how many cold chunks it has.
    fn holes_beside(&mut self, chunk: ChunkAt) -> Option<(NonNull<u8>, &mut u32)> {
        let block = chunk.0.as_ptr();
        let block = NonNull::new(block.map_addr(|address| address & !(LARGEST_BLOCK - 1)))?;
        Some((block, self.holes.get_mut(&block.addr().get())?))
    }

    /// Bytes that it holds.
    fn held(&self) -> u64 {
        ((self.used + self.warm.len()) * CHUNK) as u64
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for &(block, layout) in &self.blocks {
            match layout.size() {
                // SAFETY: mapped as such; nobody uses what is in it, since database and
                // tables are gone (H1).
                LARGEST_BLOCK => unsafe { unmap(block.as_ptr(), LARGEST_BLOCK) },
                // SAFETY: allocated with this layout; nobody uses it, as above.
                _ => unsafe { dealloc(block.as_ptr(), layout) },
            }
        }
    }
}

impl Heap {
    fn with<R>(&self, work: impl FnOnce(&mut Shared) -> R) -> R {
        let _region = preemption::region();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut shared);
        self.held.store(shared.held(), Relaxed);
        result
    }

    /// Memory for an object, for those who have no pool and are few.
    pub(crate) fn take(&self, layout: Layout) -> NonNull<u8> {
        if layout.size() > LARGEST {
            return large(layout);
        }
        self.with(|shared| shared.take_one(class(layout)))
    }

    /// Whether there is memory for an object of this class in chunks that it holds.
    fn has_room(&self, class: usize) -> bool {
        self.with(|shared| !shared.partial[class].is_empty() || !shared.warm.is_empty())
    }

    /// Gives the system all memory that is not in use.
    pub(crate) fn cool(&self) {
        self.with(|shared| shared.cool(0));
    }

    /// Bytes of memory that it holds of the system, whether in use or not.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

/// Free objects of a class.
struct Stock {
    list: List,
    fresh: Fresh,
}

/// The memory of a slot.
pub(crate) struct Pool {
    heap: Arc<Heap>,
    /// By class; none before the first use, since most slots are never used.
    stocks: Vec<Stock>,
    /// Bytes of objects of the heap taken, less those given back, since
    /// [`growth`](Pool::growth) was called.
    taken: i64,
}

impl Pool {
    pub(crate) fn new(heap: &Arc<Heap>) -> Pool {
        Pool {
            heap: Arc::clone(heap),
            stocks: Vec::new(),
            taken: 0,
        }
    }

    /// By how many bytes the objects of the heap that are in use have become more
    /// since the last call, on account of this pool.
    pub(crate) fn growth(&mut self) -> i64 {
        std::mem::take(&mut self.taken)
    }

    /// Memory for an object.
    #[inline]
    pub(crate) fn take(&mut self, layout: Layout) -> NonNull<u8> {
        if layout.size() > LARGEST {
            return large(layout);
        }
        self.taken += layout.size() as i64;
        let class = class(layout);
        if let Some(stock) = self.stocks.get_mut(class) {
            if let Some(object) = stock.list.pop() {
                return object;
            }
            if let Some(object) = stock.fresh.take(class * GRAIN) {
                return object;
            }
        }
        self.refill(class)
    }

    /// An object of a class of which there is none, nor a fresh one.
    #[cold]
    fn refill(&mut self, class: usize) -> NonNull<u8> {
        self.make_stocks();
        let stock = &mut self.stocks[class];
        self.heap.with(|shared| match shared.take(class) {
            Some(list) => stock.list = list,
            // SAFETY: nobody has the chunk.
            None => stock.fresh = unsafe { shared.chunk().begin(class) },
        });
        let object = stock.list.pop();
        object
            .or_else(|| stock.fresh.take(class * GRAIN))
            .expect("one or the other was refilled")
    }

    fn make_stocks(&mut self) {
        if self.stocks.is_empty() {
            let empty = || Stock {
                list: List::default(),
                fresh: Fresh::NONE,
            };
            self.stocks.resize_with(CLASSES, empty);
        }
    }

    /// Gives an object back.
    ///
    /// # Safety
    /// It is from the same heap or a pool of it, with this layout, and nobody uses it
    /// any more (H2).
    #[inline]
    pub(crate) unsafe fn give(&mut self, object: NonNull<u8>, layout: Layout) {
        if layout.size() > LARGEST {
            // SAFETY: by the caller.
            return unsafe { dealloc(object.as_ptr(), layout) };
        }
        self.taken -= layout.size() as i64;
        let class = class(layout);
        match self.stocks.get_mut(class) {
            Some(stock) if stock.list.length < 2 * batch(class) => stock.list.push(object),
            _ => self.give_far(object, class),
        }
    }

    /// The same where there is no list yet, or one that is too long.
    #[cold]
    fn give_far(&mut self, object: NonNull<u8>, class: usize) {
        self.make_stocks();
        let list = &mut self.stocks[class].list;
        list.push(object);
        if list.length > 2 * batch(class) {
            self.heap.with(|shared| {
                for _ in 0..batch(class) {
                    shared.give(list.pop().expect("it is longer than that"));
                }
            });
        }
    }

    /// Whether it has an object of so many bytes at hand, or room for one.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        let class = class_of(bytes);
        let stock = self.stocks.get(class);
        bytes == 0
            || bytes <= LARGEST
                && stock.is_some_and(|stock| {
                    stock.list.length > 0 || stock.fresh.bytes >= class * GRAIN
                })
    }

    /// Bytes that the heap would hold more of the system for an object of so many bytes:
    /// those of a chunk, or none if there is room in those that it holds. Others may take
    /// that first. Of an object that is too large for the heap, its own.
    pub(crate) fn needs(&self, bytes: usize) -> usize {
        match bytes {
            _ if bytes > LARGEST => bytes,
            _ if self.has(bytes) || self.heap.has_room(class_of(bytes)) => 0,
            _ => CHUNK,
        }
    }

    /// Gives the heap back what the pool keeps of chunks that others may want: objects
    /// that are free, and what was never in an object, as objects. A batch at a time, so
    /// that nobody waits long for the heap.
    pub(crate) fn trim(&mut self) {
        for (class, stock) in self.stocks.iter_mut().enumerate() {
            let mut next = || {
                let object = stock.list.pop();
                object.or_else(|| stock.fresh.take(class * GRAIN).filter(|_| class > 0))
            };
            while let Some(first) = next() {
                self.heap.with(|shared| {
                    shared.give(first);
                    let rest = std::iter::from_fn(&mut next).take(batch(class));
                    rest.for_each(|object| shared.give(object));
                });
            }
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

/// A block of the size of a huge page, and aligned to it. From the system: an allocator may
/// write to what it gives, and what was written to before the advice is no huge page.
fn map_block() -> Option<NonNull<u8>> {
    let bytes = 2 * LARGEST_BLOCK;
    let (read_write, own) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, where the system likes.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read_write, own, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let mapped = mapped.cast::<u8>();
    let before = mapped.addr().next_multiple_of(LARGEST_BLOCK) - mapped.addr();
    let block = mapped.wrapping_add(before);
    // SAFETY: the ends of the new mapping, which nobody has.
    unsafe {
        unmap(mapped, before);
        unmap(block.wrapping_add(LARGEST_BLOCK), LARGEST_BLOCK - before);
    }
    NonNull::new(block)
}

/// Gives mapped memory back; none, perhaps.
///
/// # Safety
/// It is a mapping's, and nobody uses it.
unsafe fn unmap(from: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's.
        let status = unsafe { libc::munmap(from.cast(), bytes) };
        debug_assert_eq!(status, 0);
    }
}

/// Advises the system about memory of a block. If it does not take the advice, more
/// memory is held, or pages are small.
fn advise(memory: NonNull<u8>, bytes: usize, advice: i32) {
    // SAFETY: the memory is a block's or a part of it; where its contents are given up,
    // nobody uses it.
    unsafe { libc::madvise(memory.as_ptr().cast(), bytes, advice) };
}

#[cold]
fn large(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "objects are not empty");
    // SAFETY: as asserted.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Objects that are in use do not overlap and keep what was written to them,
    /// while two pools take from and give to each other.
    #[test]
    fn objects_in_use_do_not_overlap() {
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
    fn memory_freed_in_one_pool_is_reused_by_another() {
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

    /// A pool that gives back what it keeps gives back all of it: also the rest of a chunk
    /// of which it has used little.
    #[test]
    fn a_pool_that_is_trimmed_keeps_no_chunk() {
        if LARGEST == 0 {
            // All objects are the global allocator's.
            return;
        }
        let heap: Arc<Heap> = Arc::default();
        let (mut pool, mut other) = (Pool::new(&heap), Pool::new(&heap));
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        let sizes = (16..=1024).step_by(16);
        let objects: Vec<_> = sizes
            .clone()
            .map(|bytes| pool.take(layout(bytes)))
            .collect();
        let full = heap.held();
        pool.trim();
        // What it does not use of its chunks is room for others.
        assert!(
            sizes
                .clone()
                .all(|bytes| !pool.has(bytes) && other.needs(bytes) == 0)
        );
        let more: Vec<_> = sizes
            .clone()
            .map(|bytes| other.take(layout(bytes)))
            .collect();
        assert_eq!(heap.held(), full);
        for ((one, two), bytes) in objects.into_iter().zip(more).zip(sizes) {
            // SAFETY: taken above, with this layout.
            unsafe {
                pool.give(one, layout(bytes));
                other.give(two, layout(bytes));
            }
        }
        pool.trim();
        other.trim();
        heap.cool();
        assert_eq!(heap.held(), 0);
        assert_eq!(pool.needs(100), CHUNK);
        assert_eq!(pool.needs(0), 0);
        assert_eq!(pool.needs(LARGEST + 1), LARGEST + 1);
    }

    /// What one size no longer needs, another gets, and the system what is too much.
    #[test]
    fn chunks_that_are_wholly_free_serve_other_sizes_and_go_back() {
        let heap: Arc<Heap> = Arc::default();
        let mut pool = Pool::new(&heap);
        for bytes in (32..=1024).step_by(32) {
            let layout = Layout::from_size_align(bytes, 8).unwrap();
            let objects: Vec<_> = (0..(8 << 20) / bytes).map(|_| pool.take(layout)).collect();
            let full = heap.held();
            assert!((8 << 20..12 << 20).contains(&full), "{bytes}: {full} held");
            for object in objects {
                // SAFETY: taken above, with this layout.
                unsafe { pool.give(object, layout) };
            }
            pool.trim();
            assert_eq!(pool.growth(), 0);
            let empty = heap.held();
            assert!(empty < full / 2, "{bytes}: {empty} of {full} held");
        }
        let blocks = heap.with(|shared| shared.blocks.len());
        assert!(blocks < 16, "{blocks} blocks");
    }
}
