//! The latch of an index node: writers lock it, readers never do.
//!
//! ```text
//! word: version (62 bits) │ LOCKED │ OBSOLETE
//!
//!   reader: v = word, not LOCKED ── read fields ── word still v? else restart
//!   writer: CAS v → v|LOCKED ── write fields ── word = v+1, not LOCKED
//! ```
//!
//! Invariants, which the tree cites:
//!
//! - **L1** Fields that a latch protects are atomics. They are written only by
//!   the thread whose compare-and-swap set `LOCKED`. (Asserted in `tree::node`:
//!   the latch of a node that changes is locked.)
//! - **L2** A reader that gets the same word before and after reading fields has
//!   read a state in which no writer was in between. (Not asserted: readers keep
//!   no copy to compare; the model `readers_of_a_latch_see_whole_states`.)
//! - **L3** `OBSOLETE` is final: the node has left the tree, and is never locked or
//!   read again. (Asserted in `upgrade`.)
//! - **L4** A latch is held inside a non-preemptible region only (R1). The guard
//!   holds the region, so waiting for a latch never means waiting for a paused
//!   context. (Asserted when the guard is dropped.)
//!
//! Why the fences: a writer's compare-and-swap alone does not keep its later
//! relaxed stores from becoming visible before `LOCKED` does, so a release fence
//! follows it; a reader that sees any of these stores then also sees `LOCKED`
//! after its acquire fence. This is the seqlock of Boehm, "Can seqlocks get along
//! with programming language memory models?" (MSPC 2012).

use crate::preemption::{self, Region};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, Wait, fence};

const OBSOLETE: u64 = 1;
const LOCKED: u64 = 2;
const VERSION: u64 = 4;

/// An optimistic latch. Zeroed memory is an unlocked one.
pub(crate) struct Latch(AtomicU64);

/// The word of a latch while it was not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Latch {
    #[cfg(test)]
    pub(crate) fn new() -> Latch {
        Latch(AtomicU64::new(0))
    }

    /// Begins a read; waits for a writer. `None` if the node is obsolete.
    #[inline]
    pub(crate) fn read(&self) -> Option<Seen> {
        let mut word = self.0.load(Acquire);
        if word & LOCKED != 0 {
            let mut wait = Wait::new();
            while word & LOCKED != 0 {
                wait.step();
                preemption::poll_point();
                word = self.0.load(Acquire);
            }
        }
        (word & OBSOLETE == 0).then_some(Seen(word))
    }

    /// Whether no writer has locked the latch since.
    #[inline]
    #[must_use]
    pub(crate) fn validate(&self, seen: Seen) -> bool {
        // Pairs with the fence in `upgrade`.
        fence(Acquire);
        self.0.load(Relaxed) == seen.0
    }

    /// Locks the latch if no writer has since.
    #[inline]
    pub(crate) fn upgrade(&self, seen: Seen) -> Option<Guard<'_>> {
        let region = preemption::region();
        debug_assert_eq!(seen.0 & (LOCKED | OBSOLETE), 0, "L3");
        let locked = seen.0 | LOCKED;
        self.0
            .compare_exchange(seen.0, locked, Acquire, Relaxed)
            .ok()?;
        // Pairs with the fence in `validate`.
        fence(Release);
        Some(Guard {
            latch: self,
            unlocked: seen.0 + VERSION,
            _region: region,
        })
    }

    /// Whether a writer holds it. For assertions.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Relaxed) & LOCKED != 0
    }

    /// Whether the node has left the tree.
    #[inline]
    pub(crate) fn is_obsolete(&self) -> bool {
        self.0.load(Acquire) & OBSOLETE != 0
    }
}

/// A held latch; dropping it unlocks.
pub(crate) struct Guard<'a> {
    latch: &'a Latch,
    unlocked: u64,
    /// Left after the latch, since fields are dropped after `drop`.
    _region: Region,
}

impl Guard<'_> {
    /// Unlocks; what the latch shows from then on.
    #[inline]
    pub(crate) fn unlock(self) -> Seen {
        Seen(self.unlocked)
    }

    /// Marks the node as gone for good.
    pub(crate) fn make_obsolete(&mut self) {
        self.unlocked |= OBSOLETE;
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        debug_assert!(preemption::in_region(), "L4");
        self.latch.0.store(self.unlocked, Release);
    }
}
