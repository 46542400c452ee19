//! What becomes of a transaction, for those that meet its versions.
//!
//! ```text
//!            ┌───────────► aborted
//!  active ───┤                ▲ (not certified, not logged)
//!            └─► preparing ─► preparing at ts ─► committed at ts
//!                └──────── one region, never paused ────────┘
//! ```
//!
//! Invariants:
//!
//! - **F1** A transaction is `preparing` before it draws its timestamp. So who
//!   holds a limit that was read from, or drawn on, the clock, and sees
//!   `active`, knows that the timestamp will be above the limit: had it been
//!   drawn before the limit, reading the clock would have made `preparing`
//!   visible.
//! - **F2** The way from `preparing` to the end is one region (R1), so waiting
//!   for it never means waiting for a paused context. A preparing transaction
//!   waits only for transactions with smaller timestamps, so waits have no cycle.
//! - **F3** The one store of `committed` makes all of the transaction's versions
//!   visible.

use crate::preemption;
use crate::sync::{Acquire, AtomicU64, Release, Wait};

const ACTIVE: u64 = 0;
const PREPARING: u64 = 1;
const COMMITTED: u64 = 2;
const ABORTED: u64 = 3;
const STATE: u64 = 3;
const TS_SHIFT: u32 = 2;

/// A transaction's state, shared with those that meet its versions.
///
/// Aligned, so that a pointer to it can be told from a timestamp.
#[repr(align(8))]
pub(crate) struct Fate {
    word: AtomicU64,
    /// The level of the context the transaction runs in.
    level: u8,
}

/// What a writer has to know of a version's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not begun to commit.
    Active,
    /// It committed at this timestamp.
    Committed(u64),
    /// It did not commit, and is about to take its versions back.
    Aborted,
}

impl Fate {
    pub(crate) fn new(level: u8) -> Fate {
        Fate {
            word: AtomicU64::new(ACTIVE),
            level,
        }
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Before the timestamp is drawn (F1). In a region.
    pub(crate) fn prepare(&self) {
        self.word.store(PREPARING, Release);
    }

    /// The timestamp, once drawn.
    pub(crate) fn prepare_at(&self, ts: u64) {
        self.word.store(PREPARING | ts << TS_SHIFT, Release);
    }

    /// Makes everything visible (F3).
    pub(crate) fn commit(&self, ts: u64) {
        self.word.store(COMMITTED | ts << TS_SHIFT, Release);
    }

    /// Makes sure that nothing ever is.
    pub(crate) fn abort(&self) {
        self.word.store(ABORTED, Release);
    }

    /// Whether the transaction committed at `limit` or before. Waits for one
    /// that may yet (F2). The limit is at most what the clock has shown to the
    /// caller (F1).
    #[inline]
    pub(crate) fn committed_by(&self, limit: u64) -> bool {
        let mut wait = Wait::new();
        loop {
            let word = self.word.load(Acquire);
            let ts = word >> TS_SHIFT;
            match word & STATE {
                COMMITTED => return ts <= limit,
                PREPARING if ts == 0 || ts <= limit => {}
                _ => return false,
            }
            wait.step();
            preemption::poll_point();
        }
    }

    /// What became of the transaction. Waits for one that prepares (F2).
    pub(crate) fn outcome(&self) -> Outcome {
        let mut wait = Wait::new();
        loop {
            let word = self.word.load(Acquire);
            match word & STATE {
                ACTIVE => return Outcome::Active,
                COMMITTED => return Outcome::Committed(word >> TS_SHIFT),
                ABORTED => return Outcome::Aborted,
                _ => {}
            }
            wait.step();
            preemption::poll_point();
        }
    }
}
