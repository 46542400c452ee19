//! Engines as YCSB sees them: a table of rows with a key and columns of bytes.
//!
//! ```text
//!   Store   one for the process ── with_session ──► Session   one for each thread
//! ```
//!
//! An operation is a transaction of its own and is serializable: two updates of one
//! row's columns lose neither. Who reads gets a copy of all columns in its own memory.
//! Stores are asked through a virtual call, which takes a hundredth of the fastest
//! operation.
//!
//! | module | engine | a row is |
//! | --- | --- | --- |
//! | `giveway` | giveway-txn | columns |
//! | `sqlite` | SQLite | columns |
//! | `lmdb`, `redb`, `fjall`, `sled`, `rocksdb` | key-value stores (`key_value`) | a value, its columns side by side |
//!
//! `docs/measure/oltp.md` has the settings of each with the reasons.

#[cfg(feature = "rivals")]
mod fjall;
mod giveway;
mod key_value;
#[cfg(feature = "rivals")]
mod lmdb;
mod redb;
mod rocksdb;
mod sled;
mod sqlite;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use super::row::OltpEngine;
use super::ycsb::SCAN_MOST;
use crate::harness::error::{Error, Result};

/// Bytes of a row's columns together.
pub(super) const ROW_BYTES: usize = 1_000;
/// Bytes of the longest scan.
pub(super) const SCAN_ROWS_BYTES: usize = SCAN_MOST * ROW_BYTES;
/// What log-structured engines gather before they sort it into a file.
const WRITE_BUFFER_BYTES: usize = 256 << 20;
/// Keys for each bucket of the hash index of their blocks.
const HASH_LOAD: f64 = 0.75;

/// The table that is loaded, and how many threads ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: u64,
    pub(super) columns: usize,
    pub(super) threads: usize,
}

impl Size {
    /// What engines that keep rows in a cache or a map are given: more than all rows take,
    /// with those that are added.
    fn memory_bytes(&self) -> usize {
        (4 << 30).max(self.rows as usize * 4096)
    }
}

/// A column and its new value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'v> {
    pub(super) column: usize,
    pub(super) value: &'v [u8],
}

impl Change<'_> {
    /// The row as it becomes, in `to`.
    fn made_to<'r>(&self, row: &[u8], to: &'r mut Vec<u8>) -> &'r [u8] {
        to.clear();
        to.extend_from_slice(row);
        self.put(to);
        to
    }

    /// Where the column is in a row of side by side columns.
    fn put(&self, row: &mut [u8]) {
        let from = self.column * self.value.len();
        row[from..from + self.value.len()].copy_from_slice(self.value);
    }

    /// Whether it is the whole row.
    fn is_whole(&self) -> bool {
        self.value.len() == ROW_BYTES
    }
}

/// What a thread does with its session.
pub(super) type Work<'w> = &'w mut dyn FnMut(&mut dyn Session) -> Outcome<()>;

/// A table that threads share.
pub(super) trait Store: Sync {
    /// Does some work in a session, which is the way of one thread to the table.
    fn with_session(&self, work: Work<'_>) -> Outcome<()>;

    /// Ends what the load has left to do in the background, or to whoever writes next.
    fn settle(&self) -> Outcome<()> {
        Ok(())
    }
}

/// What a thread asks. `row` holds columns side by side; whoever fills it empties it
/// first.
pub(super) trait Session {
    /// Adds a row; its key is new.
    fn insert(&mut self, key: &[u8], row: &[u8]) -> Outcome<()>;

    /// Reads a row.
    fn read(&mut self, key: &[u8], row: &mut Vec<u8>) -> Outcome<()>;

    /// Changes a column of a row.
    fn update(&mut self, key: &[u8], change: Change<'_>) -> Outcome<()>;

    /// Reads a row and changes a column of it.
    fn read_and_update(&mut self, key: &[u8], change: Change<'_>, row: &mut Vec<u8>)
    -> Outcome<()>;

    /// Reads up to `count` rows from a key on, one after the other into `rows`; answers
    /// with their number.
    fn scan(&mut self, from: &[u8], count: usize, rows: &mut Vec<u8>) -> Outcome<usize>;
}

/// Why an operation failed.
#[derive(Debug)]
pub(super) struct Failed(String);

pub(super) type Outcome<T> = std::result::Result<T, Failed>;

impl Failed {
    /// A row is not there that was inserted.
    pub(super) fn missing() -> Self {
        Failed("a row is missing that was inserted".to_owned())
    }

    /// The failure as this crate's error.
    pub(super) fn of(self, engine: OltpEngine) -> Error {
        Error::Queries {
            who: engine.name().to_owned(),
            reason: self.0,
        }
    }
}

/// Engines' errors are only told.
impl<E: fmt::Display> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed(error.to_string())
    }
}

/// An empty table. Engines with files have them in `dir`.
///
/// # Errors
/// The engine fails, or is not here.
pub(super) fn open(engine: OltpEngine, size: Size, dir: &Path) -> Result<(Box<dyn Store>, String)> {
    if let Some(absent) = absent(engine) {
        return Err(absent);
    }
    fn boxed<S: Store + 'static>(opened: Outcome<S>) -> Outcome<Box<dyn Store>> {
        opened.map(|store| Box::new(store) as Box<dyn Store>)
    }
    let opened = match engine {
        OltpEngine::Giveway => boxed(giveway::Giveway::new(size.columns)),
        #[cfg(feature = "rivals")]
        OltpEngine::Lmdb => boxed(lmdb::Lmdb::new(size, dir)),
        #[cfg(feature = "rivals")]
        OltpEngine::Fjall => boxed(fjall::Fjall::new(size, dir)),
        #[cfg(not(feature = "rivals"))]
        OltpEngine::Lmdb | OltpEngine::Fjall => unreachable!("absent, as was said above"),
        OltpEngine::Redb => boxed(redb::Redb::new(size)),
        OltpEngine::Sled => boxed(sled::Sled::new(size, dir)),
        OltpEngine::Rocksdb => boxed(rocksdb::Rocksdb::new(size, dir)),
        OltpEngine::Sqlite => boxed(sqlite::Sqlite::new(size, dir)),
    };
    let store = opened.map_err(|failed| failed.of(engine))?;
    Ok((store, version(engine)))
}

/// Why an engine cannot be measured by this program on this machine, if it cannot.
pub(super) fn absent(engine: OltpEngine) -> Option<Error> {
    match engine {
        OltpEngine::Lmdb | OltpEngine::Fjall if cfg!(not(feature = "rivals")) => {
            Some(Error::Config(format!(
                "this giveway-bench was built without {engine}: build it with `cargo build \
                 --release -p giveway-bench --features rivals`, or leave {engine} out of --engines"
            )))
        }
        OltpEngine::Rocksdb => rocksdb::absent().map(|reason| {
            Error::Config(format!(
                "RocksDB's library cannot be loaded ({reason}): install Debian's \
                 librocksdb-dev, or name the file in GIVEWAY_ROCKSDB, or leave rocksdb out of \
                 --engines"
            ))
        }),
        _ => None,
    }
}

/// Whether an engine has files.
pub(super) fn has_files(engine: OltpEngine) -> bool {
    !matches!(engine, OltpEngine::Giveway | OltpEngine::Redb)
}

/// Sets what engines have for a whole process.
///
/// # Safety
/// The process has one thread, and has asked no engine for anything.
pub(super) unsafe fn begin_process() {
    // SAFETY: as above.
    unsafe { sqlite::begin_process() }
}

/// The version of an engine that is here.
fn version(engine: OltpEngine) -> String {
    match engine {
        OltpEngine::Giveway => env!("CARGO_PKG_VERSION").to_owned(),
        #[cfg(feature = "rivals")]
        OltpEngine::Lmdb => lmdb::version(),
        OltpEngine::Sqlite => sqlite::version(),
        OltpEngine::Rocksdb => rocksdb::version(),
        // Their crates do not say: Cargo.lock has the whole of it.
        OltpEngine::Redb => "4".to_owned(),
        OltpEngine::Sled => "0.34".to_owned(),
        _ => "3".to_owned(),
    }
}
