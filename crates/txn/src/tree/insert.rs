//! Insertions: where a key is not, and what puts it there.
//!
//! ```text
//!   spot(key) ──► insert ──► Finger ──► spot(next key): behind the last one?
//!      │             │ full, or changed meanwhile          │ no
//!      │             └──► from the root, with splits       │
//!      └──────────────────────◄────────────────────────────┘
//! ```
//!
//! Rows are often added in the order of their keys, such as the lines of an order.
//! A transaction that keeps a finger on what it inserted last puts the next key
//! behind it without going down the tree.
//!
//! - **T3** While a leaf's latch shows what it showed when an entry was inserted,
//!   a key above that entry belongs into the slot behind it if it is below what is
//!   there; or, where nothing is, below the separator that bounded the leaf. What
//!   takes keys from a leaf, or takes the leaf away, locks it. A leaf may get keys
//!   from its right neighbour without being locked, which moves the bound up only.
//!   (Asserted in `insert`: the keys beside the slot enclose the new one.)

use super::node::Separator;
use super::{Keeper, NodeRef, Path, Target, Tree};
use crate::latch::Seen;
use crate::sync::Release;
use crate::thin::Thin;

/// Where a key would be put, or the entry that has it.
pub(crate) struct Spot<E> {
    /// The entry with the key, if there is one.
    pub(crate) entry: Option<Thin<E>>,
    leaf: NodeRef<E>,
    /// What the leaf's latch showed: an insertion that finds it so needs no other
    /// search.
    seen: Seen,
    index: usize,
    /// The separator that bounds the leaf above, if any does.
    fence: Option<Separator>,
}

/// Where an entry was put. Good while the transaction is open (E1).
pub(crate) struct Finger<E> {
    entry: Thin<E>,
    leaf: NodeRef<E>,
    /// The latch as the insertion left it.
    seen: Seen,
    /// The slot behind the entry.
    index: usize,
    fence: Option<Separator>,
}

impl<E> Finger<E> {
    /// Where a key would be put, if that is right behind the entry (T3).
    #[inline]
    pub(super) fn spot(&self, key: &[u8]) -> Option<Spot<E>> {
        let Finger {
            leaf,
            seen,
            index,
            fence,
            ..
        } = *self;
        // SAFETY: entry and separator were in the tree in this transaction (T1).
        let (entry, fence_key) = unsafe { (self.entry.bytes(), fence.map(|key| key.bytes())) };
        let is_here = leaf.latch().validate(seen)
            && entry < key
            && match index < leaf.count() {
                true => leaf.is_above(index, &Target::new(key)),
                false => fence_key.is_none_or(|fence| key < fence),
            };
        // If the latch moves on from here, the insertion finds out, and whoever
        // comes again with this finger searches.
        is_here.then_some(Spot {
            entry: None,
            leaf,
            seen,
            index,
            fence,
        })
    }
}

impl<E> Tree<E> {
    /// NodeSet for the place of a key that is to be inserted. It may be right behind
    /// what this transaction inserted last.
    #[inline]
    pub(crate) fn spot(&self, key: &[u8], last: Option<&Finger<E>>) -> Spot<E> {
        if let Some(spot) = last.and_then(|finger| finger.spot(key)) {
            return spot;
        }
        let target = Target::new(key);
        Tree::<E>::retry(|| {
            let mut fence = None;
            let (leaf, seen) = self.descend(
                |node| node.child_of(&target),
                |node, _, index| {
                    if index < node.count() {
                        fence = Some(node.separator(index));
                    }
                },
            )?;
            let (index, equal) = leaf.lower_bound(&target);
            let spot = Spot {
                entry: equal.then(|| leaf.entry(index)),
                leaf,
                seen,
                index,
                fence,
            };
            leaf.latch().validate(seen).then_some(spot)
        })
    }

    /// Adds an entry, unless there is one with its key, which is returned. The
    /// spot is from this transaction and had no such entry: mostly it still has
    /// none, and there is room. Then there is a finger on it.
    ///
    /// # Safety
    /// The entry is alive and stays so while it is in the tree, and as long as
    /// E1 asks after it was removed.
    #[inline]
    pub(crate) unsafe fn insert(
        &self,
        entry: Thin<E>,
        spot: &Spot<E>,
        keeper: &mut impl Keeper,
    ) -> Result<Option<Finger<E>>, Thin<E>> {
        debug_assert!(spot.entry.is_none());
        let &Spot {
            leaf,
            seen,
            index,
            fence,
            ..
        } = spot;
        if !leaf.is_full()
            && let Some(latched) = leaf.latch().upgrade(seen)
        {
            // SAFETY: the entry is the caller's, hence alive.
            debug_assert!(leaf.is_place(index, unsafe { entry.bytes() }), "T3");
            leaf.put_entry(index, entry);
            leaf.count_insert();
            return Ok(Some(Finger {
                entry,
                leaf,
                seen: latched.unlock(),
                index: index + 1,
                fence,
            }));
        }
        // SAFETY: by the caller.
        unsafe { self.insert_from_root(entry, keeper) }.map(|()| None)
    }

    /// The same for a leaf that is full, or has changed meanwhile.
    ///
    /// # Safety
    /// As [`insert`](Tree::insert).
    #[cold]
    unsafe fn insert_from_root(
        &self,
        entry: Thin<E>,
        keeper: &mut impl Keeper,
    ) -> Result<(), Thin<E>> {
        // SAFETY: by the caller.
        let target = Target::new(unsafe { entry.bytes() });
        Tree::<E>::retry(|| {
            let mut path = Path::new();
            let (leaf, seen) = self.descend(
                |node| node.child_of(&target),
                |node, seen, index| path.push(node, seen, index),
            )?;
            let (index, equal) = leaf.lower_bound(&target);
            if equal {
                let existing = leaf.entry(index);
                return leaf.latch().validate(seen).then_some(Err(existing));
            }
            if leaf.is_full() {
                path.push(leaf, seen, index);
                self.split(&path, keeper);
                return None;
            }
            let latched = leaf.latch().upgrade(seen)?;
            leaf.put_entry(index, entry);
            leaf.count_insert();
            drop(latched);
            Some(Ok(()))
        })
    }

    /// Splits the highest node of a path that must be split to make room in its
    /// leaf. Does nothing if somebody interferes, which may have made room in the leaf
    /// itself since it was found to be full.
    pub(super) fn split(&self, path: &Path<E>, keeper: &mut impl Keeper) -> Option<()> {
        let room = (0..path.length).rfind(|&at| !path.get(at).0.is_full());
        let below = room.map_or(0, |at| at + 1);
        if below == path.length {
            return None;
        }
        let (node, seen, index) = path.get(below);
        let parent = match room {
            Some(at) => {
                let (parent, seen, _) = path.get(at);
                Some((parent, parent.latch().upgrade(seen)?))
            }
            None => None,
        };
        let latched = node.latch().upgrade(seen)?;
        if parent.is_none() && self.root() != node {
            return None;
        }
        let right = new_node(node.level(), keeper);
        let separator = node.move_upper(right, index);
        if !node.is_inner() {
            // SAFETY: it has just been made.
            keeper.grew(Thin::<()>::size(unsafe { separator.bytes() }.len()));
            node.count_insert();
        }
        match &parent {
            Some((parent, _)) => parent.put_child(separator, right),
            None => {
                let root = new_node::<E>(node.level() + 1, keeper);
                root.set_only_child(node);
                root.put_child(separator, right);
                self.root.store(root.as_ptr(), Release);
            }
        }
        drop(latched);
        drop(parent);
        Some(())
    }
}

fn new_node<E>(level: u32, keeper: &mut impl Keeper) -> NodeRef<E> {
    NodeRef::new(keeper.node(NodeRef::<E>::layout(level > 0)), level)
}
