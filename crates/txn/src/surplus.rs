//! Garbage that slots could not free in time, for any slot to free.
//!
//! A transaction that ends frees what its slot keeps, as far as no open snapshot
//! needs it. A purge leaves more than its end can free, and an old snapshot can
//! hold back all of it. If that stayed in the slot, it would wait for the slot's
//! next transactions, while others met the limit on garbage and could not free it.
//! So what is too much for a slot goes here, and every transaction that ends frees
//! some of it, about twice as much as it has made itself, or more if it has the time
//! (`Inner::tidy`).
//!
//! ```text
//!  slot's limbo ──too long, or asked for──► surplus ──► freed by any slot
//!     stamps ascend                         a heap of limbos, the least stamp first
//! ```
//!
//! - **X1** Within a limbo stamps ascend, so if its first piece is held back by a
//!   snapshot, all of it is; and if the first piece of the first limbo is, all of
//!   the surplus is. (Asserted in `TxnContext::seal`.)
//! - **X2** The lock is held in regions only (R1), for as long as it takes to look at
//!   the slots and to move [`AT_ONCE`] pieces. Nothing is freed under it. (Not asserted:
//!   `leave` and `take` open the region themselves.)
//! - **X3** Who the oldest open transaction is, is asked under the lock. All pieces there
//!   were stamped before, so E1 holds for them. An answer from before says nothing of a
//!   transaction that has begun since, nor of what another has unlinked under it. (Not
//!   asserted; the model `nothing_of_the_surplus_is_freed_under_a_reader` finds it.)

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::preemption;
use crate::sync::{AtomicBool, AtomicU64, Mutex, PoisonError, Relaxed};
use crate::txn_context::Retired;

/// Pieces that are taken at a time.
pub(crate) const AT_ONCE: usize = 512;
/// Pieces of a limbo here at most: what is left of a longer one would keep all of its
/// memory.
pub(crate) const LIMBO: usize = 8 * AT_ONCE;

/// What waits to be freed, each with its stamp.
pub(crate) type Limbo = VecDeque<(u64, Retired)>;

/// What anybody may free.
#[derive(Default)]
pub(crate) struct Surplus {
    limbos: Mutex<BinaryHeap<Ranked>>,
    /// Whether there is anything, for a look without the lock.
    some: AtomicBool,
    /// Bytes that will come free.
    bytes: AtomicU64,
    /// Bytes of memory that the limbos have.
    lists: AtomicU64,
}

/// A limbo that is not empty.
struct Ranked(Limbo);

// SAFETY: what is in it was retired, and whoever takes it frees it alone (E1).
unsafe impl Send for Ranked {}

impl Surplus {
    /// Takes over a limbo of which this many bytes will come free.
    pub(crate) fn leave(&self, mut limbo: Limbo, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        while limbo.len() > LIMBO {
            let last = limbo.split_off(limbo.len() - LIMBO);
            self.push(last);
        }
        if !limbo.is_empty() {
            limbo.shrink_to_fit();
            self.push(limbo);
        }
    }

    fn push(&self, limbo: Limbo) {
        let _region = preemption::region();
        self.lists.fetch_add(memory(&limbo), Relaxed);
        let mut limbos = self.limbos.lock().unwrap_or_else(PoisonError::into_inner);
        limbos.push(Ranked(limbo));
        self.some.store(true, Relaxed);
    }

    /// Moves at most this many pieces into a list, of those that were stamped before the
    /// `oldest` transaction began, which is asked for (X3); how many there were.
    pub(crate) fn take(
        &self,
        oldest: impl FnOnce() -> u64,
        most: usize,
        list: &mut Vec<Retired>,
    ) -> usize {
        let _region = preemption::region();
        let mut limbos = self.limbos.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = oldest();
        let mut taken = 0;
        while taken < most
            && let Some(first) = limbos.peek()
            && first.stamp() < oldest
        {
            let mut limbo = limbos.pop().expect("there is a first").0;
            while taken < most
                && let Some((_, piece)) = limbo.pop_front_if(|(stamp, _)| *stamp < oldest)
            {
                list.push(piece);
                taken += 1;
            }
            match limbo.is_empty() {
                true => _ = self.lists.fetch_sub(memory(&limbo), Relaxed),
                false => limbos.push(Ranked(limbo)),
            }
        }
        self.some.store(!limbos.is_empty(), Relaxed);
        taken
    }

    /// The least stamp there is. A transaction that published a later era holds nothing
    /// of the surplus back (E1).
    pub(crate) fn first(&self) -> Option<u64> {
        let _region = preemption::region();
        let limbos = self.limbos.lock().unwrap_or_else(PoisonError::into_inner);
        limbos.peek().map(Ranked::stamp)
    }

    /// So many bytes of what was taken are free.
    pub(crate) fn freed(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Bytes that will come free.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes of memory that it takes itself.
    pub(crate) fn lists(&self) -> u64 {
        self.lists.load(Relaxed)
    }

    /// Whether there may be anything.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Relaxed)
    }
}

/// Bytes of memory that a limbo has.
pub(crate) fn memory(limbo: &Limbo) -> u64 {
    (limbo.capacity() * size_of::<(u64, Retired)>()) as u64
}

impl Drop for Surplus {
    fn drop(&mut self) {
        let limbos = self
            .limbos
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for (_, retired) in limbos.drain().flat_map(|ranked| ranked.0) {
            // SAFETY: the database is gone, and its transactions before it.
            unsafe { retired.free(None) };
        }
    }
}

impl Ranked {
    fn stamp(&self) -> u64 {
        self.0.front().expect("it is not empty").0
    }
}

impl Ord for Ranked {
    /// The greatest is the earliest.
    fn cmp(&self, other: &Ranked) -> Ordering {
        other.stamp().cmp(&self.stamp())
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.stamp() == other.stamp()
    }
}

impl Eq for Ranked {}
