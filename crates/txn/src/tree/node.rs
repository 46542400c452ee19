//! Nodes: sorted slots, each with the first 16 bytes of its key beside it.
//!
//! ```text
//!  Node   latch │ count │ inserts │ level │ first[…] │ object[…]
//!  Inner  Node                                                │ child[…]
//! ```
//!
//! `first` is the first 16 bytes of the key as two big-endian numbers, padded with
//! zeros, in one cache line: it decides nearly every comparison without leaving the
//! node. When they are equal, the whole keys do; those lie behind the objects: in a
//! leaf the entries, in an inner node separators, which are keys and nothing else.
//! Child `i` has the keys below separator `i` and not below `i - 1`.
//!
//! Invariants:
//!
//! - **T1** A pointer that was read from slot `i` of a node, with `i` below a
//!   `count` read before, points to an object that was in the tree at that time
//!   or later, also if the node has changed meanwhile: slots are never cleared,
//!   and what lies beyond `count` was in the tree as long as it was counted. The
//!   reader began before that, so the object is alive (E1). The same holds for
//!   child pointers. (Asserted in `entry` and `separator`: the slot was filled.)
//! - **T2** Every field is an atomic and written under the node's latch (L1),
//!   or before the node is published. (Asserted where entries are put, moved and
//!   taken, and where insertions are counted.)

use std::alloc::Layout;
use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use super::target::{Target, shortest_between};
use crate::heap::{self, Pool};
use crate::latch::Latch;
use crate::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::thin::{self, Thick, Thin};

/// Slots of a node. Small in this crate's own tests, so that nodes split and
/// vanish all the time.
pub(crate) const FANOUT: usize = if cfg!(test) { 4 } else { 48 };

/// A key and nothing else.
pub(super) type Separator = Thin<()>;

/// The first 16 bytes of a key. The halves are read apart; who reads them while
/// they change finds out by the latch (L2).
#[repr(C, align(16))]
struct First {
    high: AtomicU64,
    low: AtomicU64,
}

impl First {
    #[inline]
    fn get(&self) -> u128 {
        u128::from(self.high.load(Relaxed)) << 64 | u128::from(self.low.load(Relaxed))
    }

    /// Whether it is below another. In halves, because Rust 1.95 makes a branch on
    /// x86-64 of what is chosen by a comparison of 128 bits.
    #[inline]
    fn is_below(&self, other: u128) -> bool {
        let (high, low) = (self.high.load(Relaxed), self.low.load(Relaxed));
        let (other_high, other_low) = ((other >> 64) as u64, other as u64);
        (high < other_high) | ((high == other_high) & (low < other_low))
    }

    #[inline]
    fn set(&self, first: u128) {
        self.high.store((first >> 64) as u64, Relaxed);
        self.low.store(first as u64, Relaxed);
    }
}

/// What leaves and inner nodes have in common.
#[repr(C, align(64))]
pub(crate) struct Node {
    latch: Latch,
    count: AtomicU64,
    /// In a leaf: how often a key was added, or keys left for another leaf.
    /// Removals do not count: see `commit`, C2.
    inserts: AtomicU64,
    /// 0 for a leaf, and one more than its children have for an inner node.
    level: u32,
    first: [First; FANOUT],
    object: [AtomicPtr<()>; FANOUT],
}

#[repr(C)]
struct Inner {
    node: Node,
    child: [AtomicPtr<Node>; FANOUT + 1],
}

/// A pointer to a node of a tree of `E`s, used only while it is certain that the
/// node is not freed (E1).
pub(crate) struct NodeRef<E>(*mut Node, PhantomData<*mut E>);

impl<E> Clone for NodeRef<E> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for NodeRef<E> {}
impl<E> PartialEq for NodeRef<E> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<E> Deref for NodeRef<E> {
    type Target = Node;
    #[inline]
    fn deref(&self) -> &Node {
        // SAFETY: the pointer is from `new` or was read from the tree by a
        // transaction that is still open (T1).
        unsafe { &*self.0 }
    }
}

impl<E> NodeRef<E> {
    pub(super) fn layout(is_inner: bool) -> Layout {
        if is_inner {
            Layout::new::<Inner>()
        } else {
            Layout::new::<Node>()
        }
    }

    /// Bytes that a node takes.
    pub(super) fn size(is_inner: bool) -> usize {
        NodeRef::<E>::layout(is_inner).size()
    }

    /// An empty node of a level, in memory of its layout that nobody else has.
    pub(super) fn new(memory: NonNull<u8>, level: u32) -> NodeRef<E> {
        let layout = NodeRef::<E>::layout(level > 0);
        let pointer = memory.as_ptr().cast::<Node>();
        // SAFETY: zeros are an unlocked, empty leaf with null pointers, and
        // nobody else has the pointer yet.
        unsafe {
            memory.write_bytes(0, layout.size());
            (*pointer).level = level;
        }
        NodeRef(pointer, PhantomData)
    }

    pub(super) fn from_ptr(pointer: *mut Node) -> NodeRef<E> {
        NodeRef(pointer, PhantomData)
    }

    pub(crate) fn as_ptr(self) -> *mut Node {
        self.0
    }

    /// Its memory, and how it was allocated.
    fn memory(self) -> (NonNull<u8>, Layout) {
        let layout = NodeRef::<E>::layout(self.is_inner());
        let memory = NonNull::new(self.0.cast());
        (memory.expect("nodes are somewhere"), layout)
    }

    /// Frees the node, not what is in it.
    ///
    /// # Safety
    /// Nobody uses the node any more, and the pool is of its heap.
    pub(super) unsafe fn free_in(self, pool: &mut Pool) {
        let (memory, layout) = self.memory();
        // SAFETY: by the caller.
        unsafe { pool.give(memory, layout) };
    }

    /// Frees the node as far as its heap, which goes away, does not.
    ///
    /// # Safety
    /// Nobody uses the node any more, nor a pool of the heap.
    pub(super) unsafe fn abandon(self) {
        let (memory, layout) = self.memory();
        // SAFETY: by the caller.
        unsafe { heap::abandon(memory, layout) };
    }

    /// The node's latch.
    #[inline]
    pub(super) fn latch<'a>(self) -> &'a Latch {
        // SAFETY: the node is alive (T1); the callers keep the reference no longer
        // than their transaction.
        unsafe { &(*self.0).latch }
    }

    #[inline]
    pub(super) fn is_inner(self) -> bool {
        self.level > 0
    }

    /// How many levels are below it.
    #[inline]
    pub(super) fn level(self) -> u32 {
        self.level
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        // Pairs with `set_count`: who sees a count sees the slots below it.
        self.count.load(Acquire) as usize
    }

    pub(super) fn is_full(self) -> bool {
        self.count() == FANOUT
    }

    #[inline]
    fn set_count(self, count: usize) {
        self.count.store(count as u64, Release);
    }

    #[inline]
    pub(super) fn inserts(self) -> u64 {
        self.inserts.load(Relaxed)
    }

    /// Counts an addition. Latched.
    pub(super) fn count_insert(self) {
        debug_assert!(self.latch().is_locked(), "T2");
        self.inserts.store(self.inserts() + 1, Relaxed);
    }

    #[inline]
    fn children(self) -> &'static [AtomicPtr<Node>; FANOUT + 1] {
        debug_assert!(self.is_inner());
        // SAFETY: inner nodes are allocated as `Inner`, and alive (T1); the
        // callers keep the reference no longer than the node.
        unsafe { &(*self.0.cast::<Inner>()).child }
    }

    /// The child at `index`, which is at most a count read before.
    #[inline]
    pub(super) fn child(self, index: usize) -> NodeRef<E> {
        NodeRef::from_ptr(self.children()[index].load(Acquire))
    }

    /// Makes an inner node that has been made just now a root over one child.
    pub(super) fn set_only_child(self, child: NodeRef<E>) {
        self.children()[0].store(child.0, Release);
    }

    /// The entry in slot `index` of a leaf.
    #[inline]
    pub(super) fn entry(self, index: usize) -> Thin<E> {
        let pointer = self.object[index].load(Acquire).cast::<Thick<E>>();
        // SAFETY: leaves hold entries, put there by `put`.
        unsafe { Thin::from_ptr(pointer) }.expect("a counted slot was filled (T1)")
    }

    /// The separator in slot `index` of an inner node.
    #[inline]
    pub(super) fn separator(self, index: usize) -> Separator {
        let pointer = self.object[index].load(Acquire).cast::<Thick<()>>();
        // SAFETY: inner nodes hold separators, put there by `put`.
        unsafe { Thin::from_ptr(pointer) }.expect("a counted slot was filled (T1)")
    }

    /// The key in slot `index`.
    #[inline]
    pub(super) fn key(self, index: usize) -> &'static [u8] {
        // SAFETY: the object is alive (T1); the callers use the key while they
        // are in the transaction.
        unsafe {
            if self.is_inner() {
                self.separator(index).bytes()
            } else {
                self.entry(index).bytes()
            }
        }
    }

    /// Asks for the lines that a search will read, all at once: they are mostly
    /// far away, and the search would wait for one after the other.
    #[inline]
    pub(super) fn prefetch(self) {
        let node: *const Node = self.0;
        thin::prefetch(node.cast(), offset_of!(Node, object));
    }

    /// A slot whose key begins like this, if there is any: what a search that
    /// looks at no object can tell.
    #[inline]
    pub(super) fn likely(self, first: u128) -> Option<usize> {
        let (at, count) = self.lower_bound_of_first(first);
        (at < count && self.first(at) == first).then_some(at)
    }

    /// The first bytes of the key in slot `index`, as one number.
    #[inline]
    fn first(self, index: usize) -> u128 {
        self.first[index].get()
    }

    /// The first slot whose key is not below the target, and whether it is the
    /// target.
    #[inline]
    pub(super) fn lower_bound(self, target: &Target<'_>) -> (usize, bool) {
        let (at, count) = self.lower_bound_of_first(target.first);
        if at == count || self.first(at) != target.first {
            return (at, false);
        }
        match self.key(at).cmp(target.key) {
            Ordering::Equal => (at, true),
            Ordering::Greater => (at, false),
            Ordering::Less => self.lower_bound_of_equals(at + 1, count, target),
        }
    }

    /// Whether the key in a slot is above the target.
    #[inline]
    pub(super) fn is_above(self, index: usize, target: &Target<'_>) -> bool {
        match self.first(index).cmp(&target.first) {
            Ordering::Equal => self.key(index) > target.key,
            order => order == Ordering::Greater,
        }
    }

    /// Whether a key belongs into this slot, by its neighbours. For assertions.
    pub(super) fn is_place(self, index: usize, key: &[u8]) -> bool {
        (index == 0 || self.key(index - 1) < key)
            && (index >= self.count() || key < self.key(index))
    }

    /// The first slot whose key does not begin with less than this, and the node's
    /// count.
    #[inline]
    fn lower_bound_of_first(self, first: u128) -> (usize, usize) {
        let count = self.count();
        if count == 0 {
            return (0, 0);
        }
        let slots = &self.first[..count.min(FANOUT)];
        // A branch that depends on keys would be mispredicted half of the time, at
        // more cost than all the comparisons; so none is asked for.
        let (mut base, mut size) = (0, slots.len());
        while size > 1 {
            let half = size / 2;
            // SAFETY: `base + size` is at most the number of slots.
            let below = unsafe { slots.get_unchecked(base + half) }.is_below(first);
            base = select_unpredictable(below, base + half, base);
            size -= half;
        }
        (base + usize::from(slots[base].is_below(first)), count)
    }

    /// The same among the slots from `low`, behind one that begins as the target
    /// does and is below it.
    fn lower_bound_of_equals(
        self,
        mut low: usize,
        mut high: usize,
        target: &Target<'_>,
    ) -> (usize, bool) {
        while low < high {
            let middle = (low + high) / 2;
            let first = self.first(middle).cmp(&target.first);
            match first.then_with(|| self.key(middle).cmp(target.key)) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// The child for a key.
    #[inline]
    pub(super) fn child_of(self, target: &Target<'_>) -> usize {
        let (index, equal) = self.lower_bound(target);
        index + usize::from(equal)
    }

    fn copy_slot(self, from: usize, to: NodeRef<E>, index: usize) {
        to.first[index].set(self.first[from].get());
        to.object[index].store(self.object[from].load(Relaxed), Release);
    }

    fn put(self, index: usize, key: &[u8], object: *mut ()) {
        let target = Target::new(key);
        let count = self.count();
        for from in (index..count).rev() {
            self.copy_slot(from, self, from + 1);
        }
        self.first[index].set(target.first);
        self.object[index].store(object, Release);
        self.set_count(count + 1);
    }

    /// Puts an entry into a leaf that is not full. Latched.
    pub(super) fn put_entry(self, index: usize, entry: Thin<E>) {
        debug_assert!(self.latch().is_locked(), "T2");
        // SAFETY: the entry is the caller's, hence alive.
        let key = unsafe { entry.bytes() };
        self.put(index, key, entry.as_ptr().cast());
    }

    /// Puts a separator, and the child to its right, into an inner node that is
    /// not full. Latched.
    pub(super) fn put_child(self, separator: Separator, right: NodeRef<E>) {
        // SAFETY: the separator is the caller's, hence alive.
        let key = unsafe { separator.bytes() };
        let (index, _) = self.lower_bound(&Target::new(key));
        let children = self.children();
        for from in (index + 1..=self.count()).rev() {
            children[from + 1].store(children[from].load(Relaxed), Release);
        }
        children[index + 1].store(right.0, Release);
        self.put(index, key, separator.as_ptr().cast());
    }

    /// Takes a slot out. Latched.
    pub(super) fn take(self, index: usize) {
        debug_assert!(self.latch().is_locked(), "T2");
        let count = self.count();
        for from in index + 1..count {
            self.copy_slot(from, self, from - 1);
        }
        self.set_count(count - 1);
    }

    /// Takes a child and a separator beside it out; its neighbour has its keys
    /// from now on. Latched.
    pub(super) fn take_child(self, index: usize) -> Separator {
        let children = self.children();
        let slot = index.saturating_sub(1);
        let separator = self.separator(slot);
        for from in index + 1..=self.count() {
            children[from - 1].store(children[from].load(Relaxed), Release);
        }
        self.take(slot);
        separator
    }

    /// Moves the upper half to `right`, which is new, and returns what separates
    /// the two. Room is wanted at `index`: if that is the end, `right` gets as
    /// little as possible, because more will probably follow there. Latched.
    pub(super) fn move_upper(self, right: NodeRef<E>, index: usize) -> Separator {
        debug_assert!(self.latch().is_locked(), "T2");
        let count = self.count();
        let half = match (index == count, self.is_inner()) {
            (false, _) => count / 2,
            (true, false) => count - 1,
            // The one in the middle leaves, and `right` needs one, too.
            (true, true) => count - 2,
        };
        if !self.is_inner() {
            for from in half..count {
                self.copy_slot(from, right, from - half);
            }
            right.set_count(count - half);
            self.set_count(half);
            return Thin::new((), 0, shortest_between(self.key(half - 1), right.key(0)));
        }
        // The middle separator goes up, not to either side.
        let middle = self.separator(half);
        for from in half + 1..count {
            self.copy_slot(from, right, from - half - 1);
        }
        for from in half + 1..=count {
            let child = self.children()[from].load(Relaxed);
            right.children()[from - half - 1].store(child, Release);
        }
        right.set_count(count - half - 1);
        self.set_count(half);
        middle
    }
}
