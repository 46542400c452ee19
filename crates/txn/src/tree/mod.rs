//! The ordered index: a B+tree under optimistic lock coupling.
//!
//! ```text
//!  reader                              writer
//!  ──────                              ──────
//!  v = latch of node                   descends as a reader
//!  child = …                           locks the leaf it found, at the version it
//!  w = latch of child                  saw, or starts over
//!  node still at v? else start over    changes it
//!  … down to the leaf                  unlocks it, at a new version
//! ```
//!
//! After Leis et al., "The ART of practical synchronization" (DaMoN 2016).
//! Readers write nothing at all: they can be preempted anywhere, and no thread
//! waits for them. Writers hold one latch, or two or a few along one path for
//! a split or the removal of a leaf, for tens of instructions, in a region.
//!
//! Differences, and why:
//!
//! - No links between leaves. A scan reads one leaf after the other, and finds
//!   the next by the separator above it, so both directions cost the same and a
//!   split has one place less to mend.
//! - Nodes are not merged when they are half empty, only taken out when a leaf
//!   is empty (Johnson and Shasha, "B-trees with inserts and deletes: why
//!   free-at-empty is better than merge-at-half", 1993).
//! - A full node is split when a key must go into it, not on the way down past
//!   it, one level at a time from the top. One that grows at its end is left
//!   nearly full, so that what is loaded in order lies dense.
//!
//! The tree stores pointers to entries and does not own them. Entries live at
//! least until all transactions end that might have found them (E1).

mod insert;
mod node;
mod scan;
mod target;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use crate::heap::{Heap, Pool};
use crate::latch::Seen;
use crate::preemption;
use crate::sync::{Acquire, Release, Wait};
use crate::thin::{self, Thin};

pub(crate) use insert::{Finger, Spot};
use node::Separator;
pub(crate) use node::{FANOUT, Node, NodeRef};
pub use scan::Direction;
pub(crate) use scan::LeafScan;
use target::Target;

/// A tree is never higher: 24 levels of two children hold more than memory does.
const MAX_HEIGHT: usize = 24;

/// An ordered set of entries of type `E`, by the bytes behind them.
pub(crate) struct Tree<E> {
    root: AtomicPtr<Node>,
    /// Entries are handed out to any thread.
    _entries: std::marker::PhantomData<Thin<E>>,
}

// SAFETY: everything behind the root is atomics (T2), and entries are shared.
unsafe impl<E: Sync> Sync for Tree<E> {}
// SAFETY: as above.
unsafe impl<E: Sync> Send for Tree<E> {}

/// A leaf, and how many additions it had seen.
pub(crate) struct LeafSeen {
    pub(crate) leaf: *mut Node,
    pub(crate) inserts: u64,
}

impl Clone for LeafSeen {
    fn clone(&self) -> Self {
        *self
    }
}
impl Copy for LeafSeen {}

impl LeafSeen {
    fn of<E>(leaf: NodeRef<E>) -> LeafSeen {
        LeafSeen {
            leaf: leaf.as_ptr(),
            inserts: leaf.inserts(),
        }
    }

    /// Whether no key was added where this leaf was, as far as one can know.
    /// The leaf's transaction is still open.
    pub(crate) fn is_unchanged(self) -> bool {
        let leaf = NodeRef::<()>::from_ptr(self.leaf);
        leaf.inserts() == self.inserts && !leaf.latch().is_obsolete()
    }
}

/// Where a key is.
pub(crate) struct Found<E> {
    /// The entry with the key, if there is one.
    pub(crate) entry: Option<Thin<E>>,
    /// The leaf that has it or would have it.
    pub(crate) leaf: LeafSeen,
}

/// A leaf that was asked for, and how the key begins that it is for: a hint.
pub(crate) struct Near<E> {
    leaf: NodeRef<E>,
    first: u128,
}

impl<E> Near<E> {
    /// Asks for the entry, if the leaf seems to have one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Thin<E>> {
        let slot = self.leaf.likely(self.first)?;
        // Whether or not the leaf has changed meanwhile (T1).
        let entry = self.leaf.entry(slot);
        thin::prefetch(entry.as_ptr().cast(), 1);
        Some(entry)
    }
}

/// Memory that a change made unreachable, to be freed later, and new memory.
pub(crate) trait Keeper {
    /// Memory for a node.
    fn node(&mut self, layout: Layout) -> NonNull<u8>;
    /// A node is not in the tree any more. `Thin<()>` is a separator.
    fn retire_node(&mut self, node: *mut Node);
    /// A separator is not in the tree any more.
    fn retire_separator(&mut self, separator: Thin<()>);
    /// The tree takes so many bytes more, beside nodes.
    fn grew(&mut self, bytes: usize);
}

/// Bytes that a leaf takes.
pub(crate) fn leaf_size() -> usize {
    NodeRef::<()>::size(false)
}

/// Bytes that a node takes.
///
/// # Safety
/// The node is alive.
pub(crate) unsafe fn node_size(node: *mut Node) -> usize {
    NodeRef::<()>::size(NodeRef::<()>::from_ptr(node).is_inner())
}

/// Frees a node that has left its tree; to this pool, or to none any more.
///
/// # Safety
/// Nobody can reach it any more (E1). The pool is of its heap; with none, that goes
/// away.
pub(crate) unsafe fn free_node(node: *mut Node, pool: Option<&mut Pool>) {
    let node = NodeRef::<()>::from_ptr(node);
    // SAFETY: by the caller.
    unsafe {
        match pool {
            Some(pool) => node.free_in(pool),
            None => node.abandon(),
        }
    }
}

/// The nodes from the root to a leaf, with what their latches showed and which
/// child was taken.
struct Path<E> {
    steps: [Option<(NodeRef<E>, Seen, usize)>; MAX_HEIGHT],
    length: usize,
}

impl<E> Path<E> {
    fn new() -> Path<E> {
        Path {
            steps: [None; MAX_HEIGHT],
            length: 0,
        }
    }

    #[inline]
    fn push(&mut self, node: NodeRef<E>, seen: Seen, index: usize) {
        self.steps[self.length] = Some((node, seen, index));
        self.length += 1;
    }

    fn get(&self, at: usize) -> (NodeRef<E>, Seen, usize) {
        self.steps[at].expect("a step below the length")
    }
}

impl<E> Tree<E> {
    /// An empty tree, with its nodes in this heap, which outlives it.
    pub(crate) fn new(heap: &Heap) -> Tree<E> {
        let root = NodeRef::<E>::new(heap.take(NodeRef::<E>::layout(false)), 0);
        Tree {
            root: AtomicPtr::new(root.as_ptr()),
            _entries: std::marker::PhantomData,
        }
    }

    #[inline]
    fn root(&self) -> NodeRef<E> {
        NodeRef::from_ptr(self.root.load(Acquire))
    }

    /// Goes down to a leaf: `pick` chooses the child, `step` learns of each node
    /// passed. `None`: somebody interfered, start over.
    #[inline]
    fn descend(
        &self,
        pick: impl Fn(NodeRef<E>) -> usize,
        mut step: impl FnMut(NodeRef<E>, Seen, usize),
    ) -> Option<(NodeRef<E>, Seen)> {
        let mut node = self.root();
        let mut seen = node.latch().read()?;
        if self.root() != node {
            return None;
        }
        while node.is_inner() {
            preemption::poll_point();
            let index = pick(node);
            let child = node.child(index);
            child.prefetch();
            // Only now is it certain that this was a child of this node.
            if !node.latch().validate(seen) {
                return None;
            }
            step(node, seen, index);
            let child_seen = child.latch().read()?;
            // And only now that the child still had the key when it was read.
            if !node.latch().validate(seen) {
                return None;
            }
            (node, seen) = (child, child_seen);
        }
        Some((node, seen))
    }

    /// Does again what was interfered with.
    #[inline]
    fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        if let Some(done) = attempt() {
            return done;
        }
        let mut wait = Wait::new();
        loop {
            wait.step();
            preemption::poll_point();
            if let Some(done) = attempt() {
                return done;
            }
        }
    }

    /// NodeSet for a key.
    #[inline]
    pub(crate) fn lookup(&self, key: &[u8]) -> Found<E> {
        let target = Target::new(key);
        Tree::<E>::retry(|| {
            let (leaf, seen) = self.descend(|node| node.child_of(&target), |_, _, _| {})?;
            let (index, equal) = leaf.lower_bound(&target);
            let found = Found {
                entry: equal.then(|| leaf.entry(index)),
                leaf: LeafSeen::of(leaf),
            };
            leaf.latch().validate(seen).then_some(found)
        })
    }

    /// Goes down towards a key and asks for the leaf, at which it does not look.
    /// `None`: somebody interfered.
    #[inline]
    pub(crate) fn approach(&self, key: &[u8]) -> Option<Near<E>> {
        let target = Target::new(key);
        let mut node = self.root();
        while node.is_inner() {
            let seen = node.latch().read()?;
            let child = node.child(node.child_of(&target));
            // Only now is it certain that this was a child of this node.
            if !node.latch().validate(seen) {
                return None;
            }
            let level = node.level();
            node = child;
            if level == 1 {
                break;
            }
        }
        node.prefetch();
        Some(Near {
            leaf: node,
            first: target.first,
        })
    }

    /// Removes an entry; false if it is not in the tree.
    pub(crate) fn remove(&self, entry: Thin<E>, keeper: &mut impl Keeper) -> bool {
        // SAFETY: the caller has found the entry in this transaction (T1).
        let target = Target::new(unsafe { entry.bytes() });
        let (removed, empty) = Tree::<E>::retry(|| {
            let (leaf, seen) = self.descend(|node| node.child_of(&target), |_, _, _| {})?;
            let (index, equal) = leaf.lower_bound(&target);
            if !equal || leaf.entry(index) != entry {
                return leaf.latch().validate(seen).then_some((false, false));
            }
            let latched = leaf.latch().upgrade(seen)?;
            leaf.take(index);
            drop(latched);
            Some((true, leaf.count() == 0))
        });
        if empty {
            // If somebody interferes, it is left to whoever empties it next.
            self.take_empty_leaf(&target, keeper);
        }
        removed
    }

    /// Takes the leaf for a key out of the tree if it is empty, with those above
    /// that would have no child left. `None`: it was not, or somebody interfered.
    fn take_empty_leaf(&self, target: &Target<'_>, keeper: &mut impl Keeper) -> Option<()> {
        let mut path = Path::new();
        let (leaf, seen) = self.descend(
            |node| node.child_of(target),
            |node, seen, index| path.push(node, seen, index),
        )?;
        if leaf.count() != 0 {
            return None;
        }
        path.push(leaf, seen, 0);
        // The lowest node that has another child, too.
        let anchor_at = (0..path.length).rfind(|&at| path.get(at).0.count() > 0)?;
        let (anchor, anchor_seen, index) = path.get(anchor_at);
        let mut anchor_latched = anchor.latch().upgrade(anchor_seen)?;
        let mut latched = Vec::new();
        for at in anchor_at + 1..path.length {
            let (node, seen, _) = path.get(at);
            latched.push(node.latch().upgrade(seen)?);
        }
        keeper.retire_separator(anchor.take_child(index));
        for (guard, at) in latched.iter_mut().zip(anchor_at + 1..) {
            guard.make_obsolete();
            keeper.retire_node(path.get(at).0.as_ptr());
        }
        if anchor.count() == 0 && self.root() == anchor {
            self.root.store(anchor.child(0).as_ptr(), Release);
            anchor_latched.make_obsolete();
            keeper.retire_node(anchor.as_ptr());
        }
        Some(())
    }

    /// Calls a function with every entry. Nobody else uses the tree.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(Thin<E>)) {
        self.each_node(&mut |node| {
            if !node.is_inner() {
                (0..node.count()).for_each(|index| visit(node.entry(index)));
            }
        });
    }

    /// Calls a function with every node, children first.
    fn each_node(&mut self, visit: &mut impl FnMut(NodeRef<E>)) {
        fn below<E>(node: NodeRef<E>, visit: &mut impl FnMut(NodeRef<E>)) {
            if node.is_inner() {
                (0..=node.count()).for_each(|index| below(node.child(index), visit));
            }
            visit(node);
        }
        below(self.root(), visit);
    }
}

impl<E> Drop for Tree<E> {
    fn drop(&mut self) {
        self.each_node(&mut |node| {
            if node.is_inner() {
                // SAFETY: the separators of a node are its own, and nobody else
                // uses the tree.
                (0..node.count()).for_each(|index| unsafe { node.separator(index).free() });
            }
            // SAFETY: as above; the parent, visited later, only reads pointers.
            unsafe { node.abandon() };
        });
    }
}

#[cfg(test)]
mod tests;
