//! The commit clock, and the era of reclamation.
//!
//! An open transaction holds a slot, in which it has published the era in which it
//! began. Memory that has been unlinked is stamped with the era that it ends: the next
//! one begins with the stamp. It is freed when every published era is later: when all
//! transactions that might have found it are over.
//!
//! ```text
//!  begin:   publish b = era │ fence │ snapshot s = clock
//!  commit:  c = clock + 1 │ make visible │ unlink what was replaced
//!  unlink:  take out of reach │ fence │ r = era, era + 1
//!  free:    oldest = min(published) │ free what has r < oldest
//! ```
//!
//! Why not the clock for both: it moves with commits only. What the last commit retired
//! would be held back by every transaction that begins after it, though none of them can
//! find it, until somebody else commits; and where memory has run out, nobody does. The two
//! lie in one cache line, since who begins reads both, and who commits writes both.
//!
//! Invariants:
//!
//! - **E1** What was unlinked with stamp `r` is not reachable for a transaction
//!   that begins after it was freed, nor for one that published `b > r`. The latter has
//!   read an era that this stamp or a later one began, with acquire, and all stamps are
//!   read-modify-writes that release, so the unlinking happened before it began. For the
//!   former, order the two fences (both are sequentially consistent): if the
//!   transaction's comes before that of the unlinking, the collector, which comes
//!   after the latter, sees what it published, and does not free unless `b > r`. If it
//!   comes after, the transaction sees the unlinking. (Not asserted: Miri and the
//!   models `nothing_is_freed_under_a_reader` and
//!   `no_version_is_freed_under_a_snapshot_that_needs_it` find a use of freed memory.)
//! - **E2** A slot's private part belongs to the transaction that claimed it, until
//!   released.
//!   (Asserted in `private`, `renew` and `release`.)
//! - **E3** A version superseded at `c` is reachable only through versions that
//!   are newer than `c`, which only snapshots below `c` pass. It is retired after `c` was
//!   drawn. A transaction with such a snapshot read the clock after it published `b`. So
//!   `b <= r`, or the drawing of `c` would have happened before it began, and it would have
//!   read at least `c`; and its fence comes before that of the unlinking, for the same
//!   reason. So E1 keeps the version for it. Its successor's `next` is left dangling
//!   when it is freed; no reader follows it. (Asserted in `commit::settle`: a
//!   version's predecessor is older.)
//! - **E4** When something with stamp `r` is freed or processed, all open snapshots have
//!   each commit that was drawn before `r` by the same transaction: one that published
//!   `b > r`, and one that the collector did not see, began after the unlinking, as E1 has
//!   it. So a tombstone is processed when no open snapshot is older than it. (Not
//!   asserted: the second of these models.)
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

/// The clock, the era and the open transactions. `P` is what a slot keeps for its holder.
pub(crate) struct Epochs<P> {
    time: CachePadded<Time>,
    /// Slots at this index and above were never used.
    used: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<Slot<P>>]>,
}

struct Time {
    /// The last commit timestamp drawn.
    clock: AtomicU64,
    era: AtomicU64,
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
            time: CachePadded::new(Time {
                clock: AtomicU64::new(0),
                era: AtomicU64::new(0),
            }),
            used: CachePadded::new(AtomicU64::new(0)),
            slots: (0..SLOTS).map(slot).collect(),
        }
    }

    /// The last timestamp drawn.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.time.clock.load(Acquire)
    }

    /// Draws a commit timestamp.
    #[inline]
    pub(crate) fn draw(&self) -> u64 {
        self.time.clock.fetch_add(1, SeqCst) + 1
    }

    /// Sets the clock, before the database is used.
    pub(crate) fn set(&self, now: u64) {
        self.time.clock.store(now, Release);
    }

    /// The era, for who begins.
    #[inline]
    fn era(&self) -> u64 {
        self.time.era.load(Acquire)
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
                .compare_exchange(FREE, self.era(), Acquire, Relaxed)
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

    /// The era that the holder of a slot has published.
    #[inline]
    pub(crate) fn published(&self, index: usize) -> u64 {
        self.slots[index].published.load(Relaxed)
    }

    /// Claims a slot that the caller has anew, as if it had been released: nothing
    /// is held back any more for what was found with it.
    #[inline]
    pub(crate) fn renew(&self, index: usize) {
        debug_assert!(MODEL || self.is_claimed(index), "E2");
        self.slots[index].published.store(self.era(), Release);
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

    /// The stamp of what the caller has just unlinked (E1). It ends the era, so who begins
    /// from now on holds none of it back. No stamp is given twice.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        fence(SeqCst);
        self.time.era.fetch_add(1, SeqCst)
    }

    /// Memory stamped with less than this can be freed; with it, the slot of the
    /// transaction that began first and its published era. The slot `but` does not count:
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
