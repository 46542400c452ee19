//! Rows of RocksDB results.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Locks and priorities of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Setting {
    /// The C library's mutexes, all threads alike ("Stock_wo_prio").
    Flat,
    /// The C library's mutexes, background threads with low priority
    /// ("Stock").
    Pthread,
    /// The same with CFL's mutexes and groups by thread name.
    Cfl,
}

impl Setting {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Setting::Flat => "pthread, no priority",
            Setting::Pthread => "pthread",
            Setting::Cfl => "cfl, groups",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RocksRow {
    /// Locks and priorities.
    pub setting: Setting,
    /// The workload of `db_bench`.
    pub workload: String,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the keys.
    pub seed: u64,
    /// Foreground threads.
    pub threads: u32,
    /// Background jobs at most.
    pub background: u32,
    /// Length in seconds, as measured.
    pub seconds: f64,
    /// Operations per second, of all foreground threads.
    pub ops_per_s: f64,
    /// Latencies by kind of operation.
    pub operations: Vec<Operation>,
    /// What the interposer reported, to the line.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub preload_report: Vec<String>,
}

impl RocksRow {
    /// The kind of operation that there was most of.
    pub(crate) fn main_operation(&self) -> Option<&Operation> {
        self.operations
            .iter()
            .max_by_key(|operation| operation.count)
    }
}

/// Latencies of one kind of operation, in µs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// `read`, `write`, `update`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}
