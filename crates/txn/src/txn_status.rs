//! The status of a transaction, which readers of its versions look at.
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
//! - **F1** A transaction is `preparing` before it draws its timestamp. So a reader
//!   whose limit was read from the clock, and that sees `active`, knows that the
//!   timestamp will be above its limit: if it had been drawn before, reading the
//!   clock would have made `preparing` visible. (Asserted in `prepare` and
//!   `prepare_at`; that the draw comes between them, by the model
//!   `a_snapshot_does_not_change`.)
//! - **F2** The steps from `preparing` to the end are one region (R1), so waiting
//!   for them never means waiting for a paused context. (Asserted in `prepare`,
//!   `commit` and `abort`.) A preparing transaction waits only for transactions
//!   with smaller timestamps, so waits have no cycle. (Not asserted: it is the
//!   condition under which `committed_by` waits.)
//! - **F3** The one store of `committed` makes all of the transaction's versions
//!   visible. (Asserted in `commit`.)

use crate::preemption::{self, Writer};
use crate::sync::{Acquire, AtomicU64, MODEL, Relaxed, Release, Wait};

const ACTIVE: u64 = 0;
const PREPARING: u64 = 1;
const COMMITTED: u64 = 2;
const ABORTED: u64 = 3;
const STATE: u64 = 3;
const TS_SHIFT: u32 = 2;

/// The status word, which all versions of the transaction point to.
///
/// Aligned, so that a pointer to it can be told from a timestamp.
#[repr(align(8))]
pub(crate) struct TxnStatus {
    word: AtomicU64,
    /// The context that the transaction runs in.
    writer: Writer,
}

/// The status as a writer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not begun to commit.
    Active,
    /// It committed at this timestamp.
    Committed(u64),
    /// It did not commit, and is about to take its versions back.
    Aborted,
}

impl TxnStatus {
    pub(crate) fn new(writer: Writer) -> TxnStatus {
        TxnStatus {
            word: AtomicU64::new(ACTIVE),
            writer,
        }
    }

    pub(crate) fn writer(&self) -> Writer {
        self.writer
    }

    /// Before the timestamp is drawn (F1). In a region.
    pub(crate) fn prepare(&self) {
        debug_assert!(preemption::in_region(), "F2");
        debug_assert!(MODEL || self.word.load(Relaxed) == ACTIVE, "F1");
        self.word.store(PREPARING, Release);
    }

    /// The timestamp, once drawn.
    pub(crate) fn prepare_at(&self, ts: u64) {
        debug_assert!(MODEL || self.word.load(Relaxed) == PREPARING, "F1");
        self.word.store(PREPARING | ts << TS_SHIFT, Release);
    }

    /// Makes everything visible (F3).
    pub(crate) fn commit(&self, ts: u64) {
        let prepared = PREPARING | ts << TS_SHIFT;
        debug_assert!(MODEL || self.word.load(Relaxed) == prepared, "F3");
        debug_assert!(preemption::in_region(), "F2");
        self.word.store(COMMITTED | ts << TS_SHIFT, Release);
    }

    /// Makes sure that nothing ever is.
    pub(crate) fn abort(&self) {
        let state = || self.word.load(Relaxed) & STATE;
        debug_assert!(MODEL || matches!(state(), ACTIVE | PREPARING), "F3");
        debug_assert!(preemption::in_region(), "F2");
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

    /// Whether it has not begun to end. Does not wait.
    pub(crate) fn is_active(&self) -> bool {
        self.word.load(Acquire) & STATE == ACTIVE
    }

    /// Whether it has committed by now. Does not wait; for assertions.
    pub(crate) fn is_committed(&self) -> bool {
        self.word.load(Acquire) & STATE == COMMITTED
    }

    /// The outcome of the transaction. Waits while it prepares (F2).
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
