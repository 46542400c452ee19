//! One measurement as it is stored.

use std::collections::BTreeMap;

#[cfg(feature = "engines")]
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::harness::words::words;

words! {
    /// One of YCSB's core workloads.
    pub(crate) OltpWorkload("workload") {
        /// Reads and updates.
        #[default]
        A = "A",
        /// Reads and a few updates.
        B = "B",
        /// Reads.
        C = "C",
        /// Reads of the newest rows, and a few inserts.
        D = "D",
        /// Scans and a few inserts.
        E = "E",
        /// Reads, and reads that are followed by an update.
        F = "F",
    }
}

words! {
    /// Whose storage is measured.
    pub(crate) OltpEngine("engine") {
        /// Ours.
        #[default]
        Giveway = "giveway",
        /// LMDB, by the crate heed.
        Lmdb = "lmdb",
        /// redb.
        Redb = "redb",
        /// fjall.
        Fjall = "fjall",
        /// sled.
        Sled = "sled",
        /// RocksDB, by its C interface.
        Rocksdb = "rocksdb",
        /// SQLite.
        Sqlite = "sqlite",
    }
}

words! {
    /// What is done with a row, or some.
    pub(crate) Operation("operation") {
        /// All columns of a row.
        #[default]
        Read = "read",
        /// One column of a row.
        Update = "update",
        /// A new row.
        Insert = "insert",
        /// All columns of up to 100 rows in the order of keys.
        Scan = "scan",
        /// All columns of a row, then one of them written.
        ReadModifyWrite = "modify",
    }
}

/// A workload on an engine, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OltpRow {
    /// Whose.
    pub engine: OltpEngine,
    /// The engine's version.
    pub version: String,
    /// What is done.
    pub workload: OltpWorkload,
    /// Columns of a row, which has 1000 bytes beside its key.
    pub columns: u32,
    /// Threads of the client.
    pub threads: u32,
    /// Rows that were loaded.
    pub rows: u64,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the operations.
    pub seed: u64,
    /// Length of a turn in seconds.
    pub seconds: f64,
    /// Turns that count.
    pub turns: u32,
    /// Operations per second and thread, times the threads, by the time that the
    /// operations took.
    pub per_s: f64,
    /// Latencies by operation.
    pub latency: BTreeMap<Operation, Latency>,
    /// CPU time of the engine's process in its turns, per second of them: above the
    /// threads' number where it works in the background.
    pub cpus: f64,
    /// Memory of the process after the turns, in MiB, with what it has on tmpfs.
    pub memory_mib: u64,
    /// What of it the process sees by huge pages, in MiB.
    pub huge_mib: u64,
}

/// Latencies of one operation in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

#[cfg(feature = "engines")]
impl Latency {
    /// Of a histogram in ns that is not empty.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let us = |ns: f64| ns.round() / 1e3;
        let at = |share: f64| us(histogram.value_at_quantile(share) as f64);
        Latency {
            count: histogram.len(),
            mean_us: us(histogram.mean()),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max() as f64),
        }
    }
}
