//! Queue nodes, and the word that carries all messages to a waiter.
//!
//! A node belongs to its thread, then to the queue while the thread waits. One
//! 32-bit word carries every message to the waiter and is what it sleeps on, so
//! a message cannot slip in unseen between looking and sleeping.
//!
//! | bit | meaning | set by | cleared by |
//! | --- | --- | --- | --- |
//! | `HEAD` | it is the head of the queue | the head before it | itself, when it gives way |
//! | `ROLE` | it is the lock scheduler | the scheduler before it, or itself | itself |
//! | `PARKED` | it sleeps, or is about to | itself | itself, or the thread that wakes it |
//! | `ABANDONED` | it has left for good | itself | not cleared: the node is freed |
//!
//! Invariants, which the rest of the crate cites:
//!
//! - **N1** Nodes are slots of a slab (S1): reading one is always allowed, and
//!   what is read from a node that is not known to be queued is a hint. (Not
//!   asserted: by the type of the slab.)
//! - **N2** A node is in at most one queue. Its thread links it only while it
//!   owns it, and owns it again once it was head and has acquired or left. A
//!   node marked `ABANDONED` belongs to the queue, and is freed by the thread that
//!   unlinks it. (Asserted in `retire`.)
//! - **N3** `next` of the last node is written once, by the thread that
//!   replaced it as the tail. `next` of a node with a successor is written by
//!   the lock scheduler alone, and only at or behind its own node. A node
//!   therefore stays linked until its thread is head, or until it is abandoned.
//!   (Asserted in `enqueue`, when `next` is written, and in `link_behind`.)
//! - **N4** At most one node of a queue has `ROLE`, and then `LS_TAKEN` is set.
//!   No waiter leaves the queue or sleeps with the role, but for the head,
//!   which may sleep with it. (Asserted in `take_role`, `give_role` and `schedule`;
//!   that no follower sleeps with it, by the exchange in `sleep`.)
//! - **N5** Exactly one waiter of a non-empty queue is head, or is about to be
//!   made head by the one before it. No other waiter acquires from the queue.
//!   (Asserted in `pass_head`, `make_head` and `acquire`.)
//!
//! `prev`, and the numbers of a node that lies ahead, are read by a scheduler
//! that walks towards the head while those nodes may acquire, leave and queue
//! anew. `seq` is odd while a node is queued and changes on the way in and out,
//! so a reading that straddles a change is recognised and dropped.

use crate::slab::{Slab, Slot};
use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, fence};

/// Message bits; see above.
pub(crate) const HEAD: u32 = 1;
pub(crate) const ROLE: u32 = 2;
pub(crate) const PARKED: u32 = 4;
pub(crate) const ABANDONED: u32 = 8;

/// As many threads can wait at the same time, in the whole process.
pub(crate) const NODES: usize = if cfg!(loom) {
    5
} else if cfg!(any(shuttle, miri)) {
    64
} else {
    16384
};

crate::sync::model_static! {
    pub(crate) static SLAB: Slab<Node, NODES> = Slab::new();
}

/// One waiter. 56 bytes, alone in a cache line.
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) word: AtomicU32,
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// With the role: the last node that the scheduler before looked at.
    pub(crate) memo: AtomicU32,
    /// When the head went to sleep, in ticks.
    pub(crate) parked_at: AtomicU64,
    vlht: AtomicU64,
    lock: AtomicUsize,
    /// Socket in the lower half, group in the upper.
    sid_gid: AtomicU32,
    seq: AtomicU32,
    link: AtomicU32,
}

/// What the scheduling criteria look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Virtual lock hold time, ns.
    pub(crate) vlht: u64,
    pub(crate) sid: u32,
    pub(crate) gid: u32,
}

macro_rules! node {
    () => {
        Node {
            word: AtomicU32::new(0),
            next: AtomicU32::new(0),
            prev: AtomicU32::new(0),
            memo: AtomicU32::new(0),
            parked_at: AtomicU64::new(0),
            vlht: AtomicU64::new(0),
            lock: AtomicUsize::new(0),
            sid_gid: AtomicU32::new(0),
            seq: AtomicU32::new(0),
            link: AtomicU32::new(0),
        }
    };
}

impl Slot for Node {
    #[cfg(not(any(loom, shuttle)))]
    const ZERO: Node = node!();
    #[cfg(any(loom, shuttle))]
    fn zero() -> Node {
        node!()
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Frees an abandoned node that the caller has unlinked (N2).
pub(crate) fn free_abandoned(index: u32) {
    node(index).leave();
    SLAB.give(index);
}

/// How many nodes are in the queue of the lock at this address, or about to be
/// linked. Looks at every node of the process.
pub(crate) fn queued_at(lock: usize) -> usize {
    let waits = |node: &Node| node.is_queued() && node.lock.load(Relaxed) == lock;
    SLAB.known().filter(|(_, node)| waits(node)).count()
}

/// The node with this index.
#[inline]
pub(crate) fn node(index: u32) -> &'static Node {
    SLAB.get(index)
}

impl Node {
    /// Makes the node ready for the queue of the lock at this address. The
    /// caller owns it (N2) and publishes it by linking it.
    pub(crate) fn prepare(&self, lock: usize, standing: Standing) {
        self.word.store(0, Relaxed);
        self.next.store(0, Relaxed);
        self.prev.store(0, Relaxed);
        let away = self.seq.load(Relaxed);
        debug_assert_eq!(away & 1, 0, "N2");
        // Pairs with the fence of a reader: who sees a new number also sees
        // that `seq` has changed.
        fence(Release);
        self.vlht.store(standing.vlht, Relaxed);
        self.sid_gid
            .store(standing.sid | standing.gid << 16, Relaxed);
        self.lock.store(lock, Relaxed);
        // Who sees this sees the new numbers.
        self.seq.store(away | 1, Release);
    }

    /// Ends the node's time in a queue. The caller owns it (N2).
    pub(crate) fn retire(&self) {
        let seq = self.seq.load(Relaxed);
        debug_assert_eq!(seq & 1, 1, "N2");
        self.seq.store(seq.wrapping_add(1) & !1, Relaxed);
    }

    /// Ends the stay of a node whose thread has gone from the queue without
    /// [`retire`](Self::retire), or that had none: it was abandoned, or belonged to
    /// another thread than the one that forked.
    pub(crate) fn leave(&self) {
        let seq = self.seq.load(Relaxed);
        self.seq.store(seq.wrapping_add(seq & 1), Relaxed);
    }

    /// Whether the node is in a queue; a hint for all but its owner (N1).
    pub(crate) fn is_queued(&self) -> bool {
        self.seq.load(Relaxed) & 1 == 1
    }

    /// The standing of a node known to be queued.
    #[inline]
    pub(crate) fn standing(&self) -> Standing {
        let sid_gid = self.sid_gid.load(Relaxed);
        Standing {
            vlht: self.vlht.load(Relaxed),
            sid: sid_gid & 0xffff,
            gid: sid_gid >> 16,
        }
    }

    /// The standing, and the node before, of a node that may have left; `None`
    /// if it was seen not to wait for this lock.
    pub(crate) fn glimpse(&self, lock: usize) -> Option<(Standing, u32)> {
        let before = self.seq.load(Acquire);
        let seen = (self.standing(), self.prev.load(Relaxed));
        let lock_seen = self.lock.load(Relaxed);
        // Pairs with the fence in `prepare`.
        fence(Acquire);
        let after = self.seq.load(Relaxed);
        (before == after && before & 1 == 1 && lock_seen == lock).then_some(seen)
    }

    /// Sends a message; returns the word as it was.
    #[inline]
    pub(crate) fn tell(&self, bits: u32) -> u32 {
        self.word.fetch_or(bits, AcqRel)
    }

    /// Takes bits back; returns the word as it was.
    #[inline]
    pub(crate) fn untell(&self, bits: u32) -> u32 {
        self.word.fetch_and(!bits, AcqRel)
    }
}

/// Fills all nodes' links with numbers that mean trouble to who reads them
/// before [`Node::prepare`] is visible to it.
#[cfg(loom)]
pub fn soil_for_test() {
    for index in 0..NODES as u32 {
        node(index).next.store(NODES as u32 - 1, Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_freed_node_is_in_no_queue() {
        let index = SLAB.take().expect("a node is free");
        node(index).prepare(1, Standing::default());
        assert_eq!(queued_at(1), 1);
        free_abandoned(index);
        assert!(!node(index).is_queued());
        assert_eq!(queued_at(1), 0);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// A glimpse of a node that leaves one queue and enters another is all of
    /// one stay, or nothing.
    #[test]
    fn a_glimpse_never_mixes_two_stays() {
        let standing = |number: u32| Standing {
            vlht: number.into(),
            sid: number,
            gid: number,
        };
        for stay in [1, 2] {
            crate::sync::check(move || {
                let shared = Arc::new(Node::zero());
                shared.prepare(1, standing(1));
                let looks = loom::thread::spawn({
                    let shared = shared.clone();
                    move || shared.glimpse(stay)
                });
                let moves = loom::thread::spawn({
                    let shared = shared.clone();
                    move || {
                        shared.retire();
                        shared.prepare(2, standing(2));
                    }
                });
                moves.join().unwrap();
                if let Some((seen, _)) = looks.join().unwrap() {
                    assert_eq!(seen, standing(stay as u32));
                }
            });
        }
    }
}
