//! Who is let in, and what the others are told.
//!
//! A queue that is full empties as fast as its workers work, so the time after
//! which it is worth coming back is what a transaction of the level usually takes,
//! divided by the workers: a moving average, kept without locks. It is a hint and
//! no promise.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use giveway_preempt::Level;

use crate::error::{Error, Result};
use crate::log::DurabilityError;

/// The hint before anything was measured, and its bounds.
const USUAL: Duration = Duration::from_micros(100);
const LEAST: Duration = Duration::from_micros(20);
const MOST: Duration = Duration::from_secs(1);

/// A transaction that was not admitted: its function comes back.
pub struct Refused<F> {
    /// The function.
    pub body: F,
    /// What to do about it.
    pub why: NotAdmitted,
}

impl<F> std::fmt::Debug for Refused<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused")
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl<F> std::fmt::Display for Refused<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.why.fmt(f)
    }
}

impl<F> std::error::Error for Refused<F> {}

/// Why a transaction was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The queues of its level are full. Try again after about so long.
    #[error("the queues are full: try again in {retry_after:?}")]
    Busy {
        /// When a place may be free.
        retry_after: Duration,
    },
    /// Background transactions have waited so long that urgent ones have to.
    /// Try again after about so long.
    #[error("background transactions have waited too long: try again in {retry_after:?}")]
    Starved {
        /// When a background transaction may have ended.
        retry_after: Duration,
    },
    /// The disk does not keep up. Try again after about so long.
    #[error("the log is {backlog} bytes behind: try again in {retry_after:?}")]
    LogBehind {
        /// Bytes that wait to be written.
        backlog: u64,
        /// When it may have caught up.
        retry_after: Duration,
    },
    /// Its deadline has passed already.
    #[error("the transaction's deadline has passed")]
    Late,
    /// The database takes no more writes.
    #[error(transparent)]
    ReadOnly(DurabilityError),
    /// The executor is shutting down.
    #[error("the executor is shutting down: submit to another one")]
    Closed,
}

impl NotAdmitted {
    /// When to try again; `None` if there is no sense in it.
    pub fn retry_after(&self) -> Option<Duration> {
        match *self {
            NotAdmitted::Busy { retry_after }
            | NotAdmitted::Starved { retry_after }
            | NotAdmitted::LogBehind { retry_after, .. } => Some(retry_after),
            NotAdmitted::Late | NotAdmitted::ReadOnly(_) | NotAdmitted::Closed => None,
        }
    }
}

/// What an executor has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutorStats {
    /// Transactions admitted.
    pub admitted: u64,
    /// Transactions refused.
    pub refused: u64,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions whose deadline passed, in the queue or on the way.
    pub expired: u64,
    /// Transactions that ended with another error.
    pub failed: u64,
    /// What a transaction usually takes, for each level; zero before the first.
    pub usual: Vec<Duration>,
}

/// The books.
pub(super) struct Admission {
    admitted: AtomicU64,
    refused: AtomicU64,
    committed: AtomicU64,
    expired: AtomicU64,
    failed: AtomicU64,
    /// Moving averages, ns.
    usual_ns: Box<[AtomicU64]>,
}

impl Admission {
    pub(super) fn new(levels: usize) -> Admission {
        Admission {
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            usual_ns: (0..levels).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn admitted(&self) {
        self.admitted.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Runs a transaction and enters what became of it. The time includes that
    /// for which it was preempted: that is how long its place was taken.
    pub(super) fn timed<T>(&self, level: Level, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let result = run();
        self.took(level, began.elapsed());
        let counter = match &result {
            Ok(_) => &self.committed,
            Err(Error::Timeout) => &self.expired,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
        result
    }

    fn took(&self, level: Level, time: Duration) {
        let usual = &self.usual_ns[usize::from(level.get())];
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        // A lost update costs an average nothing.
        let old = usual.load(Relaxed);
        let new = match old {
            0 => time,
            _ => old - old / 8 + time / 8,
        };
        usual.store(new.max(1), Relaxed);
    }

    /// After how long a place may be free.
    pub(super) fn retry_after(&self, level: Level, workers: usize) -> Duration {
        match self.usual_ns[usize::from(level.get())].load(Relaxed) {
            0 => USUAL,
            ns => Duration::from_nanos(ns / workers as u64).clamp(LEAST, MOST),
        }
    }

    pub(super) fn stats(&self) -> ExecutorStats {
        let usual = self.usual_ns.iter();
        ExecutorStats {
            admitted: self.admitted.load(Relaxed),
            refused: self.refused.load(Relaxed),
            committed: self.committed.load(Relaxed),
            expired: self.expired.load(Relaxed),
            failed: self.failed.load(Relaxed),
            usual: usual
                .map(|ns| Duration::from_nanos(ns.load(Relaxed)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_follows_what_transactions_take() {
        let admission = Admission::new(2);
        let top = Level::new(1);
        assert_eq!(admission.retry_after(top, 2), USUAL);
        for _ in 0..100 {
            admission.took(top, Duration::from_millis(8));
        }
        let hint = admission.retry_after(top, 2);
        assert!(hint > Duration::from_micros(3900) && hint < Duration::from_micros(4100));
        assert_eq!(admission.retry_after(Level::BASE, 2), USUAL);
        admission.took(Level::BASE, Duration::from_secs(100));
        assert_eq!(admission.retry_after(Level::BASE, 2), MOST);
    }

    #[test]
    fn outcomes_of_transactions_are_counted() {
        let admission = Admission::new(2);
        assert_eq!(admission.timed(Level::BASE, || Ok(5)), Ok(5));
        let late: Result<()> = admission.timed(Level::BASE, || Err(Error::Timeout));
        let failed: Result<()> = admission.timed(Level::BASE, || Err(Error::Serialization));
        assert!(late.is_err() && failed.is_err());
        let stats = admission.stats();
        assert_eq!((stats.committed, stats.expired, stats.failed), (1, 1, 1));
        assert!(stats.usual[0] > Duration::ZERO && stats.usual[1].is_zero());
    }
}
