//! What can be seen of the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A look at the log. Counters begin when the database is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Bytes of committed transactions that wait to be written.
    pub backlog_bytes: u64,
    /// Commits up to this timestamp are durable.
    pub durable: u64,
    /// Transactions and new tables written.
    pub records: u64,
    /// Batches written. `records` per batch is how well commits share a write.
    pub batches: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs, without those at the end of a segment.
    pub syncs: u64,
    /// Time they took together.
    pub sync_time: Duration,
    /// Time the longest took.
    pub sync_time_max: Duration,
    /// Files of the log.
    pub segments: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Why the last checkpoint in the background failed, if it did.
    pub checkpoint_failure: Option<String>,
    /// Why the database is read-only, if it is.
    pub failure: Option<String>,
}

/// Written by the writer alone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    records: AtomicU64,
    batches: AtomicU64,
    /// Bytes of the segment that is being written.
    current: AtomicU64,
    syncs: AtomicU64,
    sync_ns: AtomicU64,
    sync_ns_max: AtomicU64,
}

impl Counters {
    pub(crate) fn record(&self) {
        self.records.fetch_add(1, Relaxed);
    }

    /// A batch, which made the segment so long.
    pub(crate) fn batch(&self, current: u64) {
        self.batches.fetch_add(1, Relaxed);
        self.current.store(current, Relaxed);
    }

    pub(crate) fn sync(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Relaxed);
        self.sync_ns.fetch_add(ns, Relaxed);
        self.sync_ns_max.fetch_max(ns, Relaxed);
    }

    /// Bytes of the segment that is being written.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Relaxed)
    }

    /// Fills in what is counted here.
    pub(crate) fn snapshot(&self) -> LogStats {
        LogStats {
            records: self.records.load(Relaxed),
            batches: self.batches.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            sync_time: Duration::from_nanos(self.sync_ns.load(Relaxed)),
            sync_time_max: Duration::from_nanos(self.sync_ns_max.load(Relaxed)),
            ..LogStats::default()
        }
    }
}
