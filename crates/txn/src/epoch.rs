//! The commit clock, which is also the clock of reclamation.
//!
//! An open transaction holds a slot, in which it has published what the clock
//! showed when it began. Memory that has been unlinked is stamped with what the
//! clock shows then, and freed when every published number is larger: when all
//! transactions that might have found it are over. One clock serves visibility
//! and reclamation, so the oldest snapshot and its holder are found in one pass.
//!
//! ```text
//!  begin:   publish b = clock │ fence │ snapshot s = clock      (b <= s)
//!  unlink:  take out of reach │ fence │ r = clock
//!  free:    oldest = min(published) │ free what has r < oldest
//! ```
//!
//! Invariants:
//!
//! - **E1** What was unlinked with stamp `r` is not reachable for a transaction
//!   that begins after it was freed, nor for one that published `b > r`. Order
//!   the two fences (both are sequentially consistent): if the transaction's
//!   comes before that of the unlinking, then `b` was read no later than `r`, so
//!   `b <= r`; and the collector, which comes after the latter, sees `b` and does
//!   not free. If it comes after, the transaction sees the unlinking. (Asserted
//!   in `Transaction::begin`: `b <= s`. Not asserted: reachability; Miri and the
//!   model `nothing_is_freed_under_a_reader` find a use of freed memory.)
//! - **E2** A slot's private part belongs to the transaction that claimed it, until
//!   released.
//!   (Asserted in `private`, `renew` and `release`.)
//! - **E3** A version superseded at `c` is reachable only through versions that
//!   are newer than `c`, which only snapshots below `c` pass. Such transactions
//!   published before `c` was drawn, so the version is retired after they
//!   began, and E1 keeps it for them. Its successor's `next` is left dangling
//!   when it is freed; no reader follows it. (Asserted in `commit::settle`: a
//!   version's predecessor is older.)
//!
//! Known weakness: one old snapshot, of a paused reader for instance, keeps
//! everything retired since it began, also what no snapshot needs. What it
//! keeps is counted, reported with its holder, and capped (`garbage_limit`).

use std::cell::UnsafeCell;

use crossbeam_utils::CachePadded;

use crate::sync::{Acquire, AtomicU64, MODEL, Relaxed, Release, SLOTS, SeqCst, fence};

/// What a free slot publishes.
const FREE: u64 = u64::MAX;

/// One transaction's place.
pub(crate) struct Slot<P> {
    published: AtomicU64,
    private: UnsafeCell<P>,
}

/// The clock and the open transactions. `P` is what a slot keeps for its holder.
pub(crate) struct Epochs<P> {
    clock: CachePadded<AtomicU64>,
    /// Slots at this index and above were never used.
    used: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<Slot<P>>]>,
}

// SAFETY: all but the private parts is atomic; those go from one holder to the
// next through `published` (E2).
unsafe impl<P: Send> Sync for Epochs<P> {}

impl<P> Epochs<P> {
    /// No transaction is open; `private` makes what slots keep.
    pub(crate) fn new(private: impl Fn() -> P) -> Epochs<P> {
        let slot = |_| {
            CachePadded::new(Slot {
                published: AtomicU64::new(FREE),
                private: UnsafeCell::new(private()),
            })
        };
        Epochs {
            clock: CachePadded::new(AtomicU64::new(0)),
            used: CachePadded::new(AtomicU64::new(0)),
            slots: (0..SLOTS).map(slot).collect(),
        }
    }

    /// The last timestamp drawn.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Acquire)
    }

    /// Draws a commit timestamp.
    #[inline]
    pub(crate) fn draw(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    /// Sets the clock, before the database is used.
    pub(crate) fn set(&self, now: u64) {
        self.clock.store(now, Release);
    }

    /// Claims a slot, the one at `hint` if it is free: its index, and the
    /// snapshot that its holder may read. `None` if all are taken. One that was used before
    /// comes before one that was not: each keeps memory for the next transaction there, and
    /// is looked at by whoever asks for the oldest.
    #[inline]
    pub(crate) fn claim(&self, hint: usize) -> Option<(usize, u64)> {
        self.try_claim(hint)
            .then_some(hint)
            .or_else(|| self.claim_other(hint))
            .map(|index| (index, self.now()))
    }

    /// Claims another slot.
    #[cold]
    fn claim_other(&self, hint: usize) -> Option<usize> {
        let used = self.used();
        (hint + 1..used)
            .chain(0..hint.min(used))
            .chain(used..SLOTS)
            .find(|&index| self.try_claim(index))
    }

    /// Claims this slot if it is free.
    #[inline]
    pub(crate) fn try_claim(&self, index: usize) -> bool {
        let published = &self.slots[index].published;
        if published.load(Relaxed) != FREE
            || published
                .compare_exchange(FREE, self.now(), Acquire, Relaxed)
                .is_err()
        {
            return false;
        }
        if self.used.load(Relaxed) <= index as u64 {
            self.used.fetch_max(index as u64 + 1, Relaxed);
        }
        // Before anything is read (E1).
        fence(SeqCst);
        true
    }

    /// What the holder of a slot has published.
    #[inline]
    pub(crate) fn published(&self, index: usize) -> u64 {
        self.slots[index].published.load(Relaxed)
    }

    /// Claims a slot that the caller has anew, as if it had been released: nothing
    /// is held back any more for what was found with it.
    #[inline]
    pub(crate) fn renew(&self, index: usize) {
        debug_assert!(MODEL || self.is_claimed(index), "E2");
        self.slots[index].published.store(self.now(), Release);
        // Before anything is read (E1).
        fence(SeqCst);
    }

    /// Ends the claim.
    #[inline]
    pub(crate) fn release(&self, index: usize) {
        debug_assert!(MODEL || self.is_claimed(index), "E2");
        self.slots[index].published.store(FREE, Release);
    }

    /// The private part of a claimed slot.
    #[inline]
    pub(crate) fn private(&self, index: usize) -> &UnsafeCell<P> {
        debug_assert!(MODEL || self.is_claimed(index), "E2");
        &self.slots[index].private
    }

    /// The stamp of what the caller has just unlinked (E1).
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        fence(SeqCst);
        self.now()
    }

    /// Memory stamped with less than this can be freed; with it, the slot that has
    /// the oldest snapshot and its published number. The slot `but` does not count:
    /// its holder will not use what it has found. For memory that was stamped before this
    /// is called, and the caller knows it (E1): not for what others unlink meanwhile.
    pub(crate) fn oldest(&self, but: Option<usize>) -> (u64, Option<(usize, u64)>) {
        // Needs no fence: the caller has the stamps from `stamp`, directly or
        // through a slot or the lock of the surplus, and that has one.
        let mut oldest = None;
        for index in 0..self.used() {
            let published = self.slots[index].published.load(Acquire);
            if but != Some(index) && published < oldest.map_or(FREE, |(_, least)| least) {
                oldest = Some((index, published));
            }
        }
        (oldest.map_or(FREE, |(_, published)| published), oldest)
    }

    /// Slots from this index on were never used.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed) as usize
    }

    /// Whether the slot is claimed now.
    pub(crate) fn is_claimed(&self, index: usize) -> bool {
        self.slots[index].published.load(Relaxed) != FREE
    }
}
