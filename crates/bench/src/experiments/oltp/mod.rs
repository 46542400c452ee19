//! YCSB's core workloads A to F on our transaction engine and on six others.
//!
//! ```text
//!   cli ─► cells ─► run ─► process ─┬─► turn ─► store ─► giveway-txn, LMDB, redb, fjall,
//!                                   │    ▲               sled, RocksDB, SQLite
//!                                   │   ycsb: operations and rows
//!                                   └─► OltpRow ─► report
//! ```
//!
//! | module | question |
//! | --- | --- |
//! | `ycsb` | which operation comes next, on which row? |
//! | `store` | how does each engine do it? |
//! | `turn` | how long does it take? |
//! | `process` | who runs, while others are stopped? |
//! | `run` | who has a turn when? |
//! | `row` | what is kept? |
//!
//! All keep their rows in memory or on tmpfs, and none waits for a disk. Each process has
//! one engine, since some compact in the background. Without the feature `engines` there
//! is nothing to measure, without `rivals` there are no LMDB and fjall; RocksDB is loaded
//! from the system's library.
//!
//! Known weaknesses. The loop is closed: an engine that stalls is asked less while it
//! does, so its p99 is that of what was asked. What others write is met only with several
//! threads. What an engine's files cost beyond memory is not seen on tmpfs.

pub(crate) mod cli;
#[cfg(feature = "engines")]
mod process;
pub(crate) mod report;
mod row;
#[cfg(feature = "engines")]
mod run;
#[cfg(feature = "engines")]
mod store;
#[cfg(feature = "engines")]
mod turn;
#[cfg(feature = "engines")]
mod ycsb;

/// The name of the experiment.
pub(crate) const NAME: &str = "oltp";
