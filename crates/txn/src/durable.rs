//! A database with files: the engine, its log and its checkpoints put together.
//!
//! The engine knows of durability what [`CommitSink`] says; log, checkpoints and
//! recovery know nothing of tables and rows but their bytes. This module is where
//! the two meet: commits become records, and records rows.

mod background;
mod read_only;
mod schema;

use std::any::Any;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::time::{Duration, Instant};

use crate::checkpoint;
use crate::commit::Committed;
use crate::database::{CHECKPOINT, Database, Options};
use crate::error::{Error, Result};
use crate::hook::{CommitSink, ReplayOp, SchemaChange, Writes};
use crate::key::KeyRange;
use crate::log::format::RECORD_MAX;
use crate::log::record::Change;
use crate::log::{
    Callback, Directory, Disk, DurabilityError, DurabilityOptions, Flaw, Log, LogStats,
};
use crate::preemption;
use crate::recovery::{self, Check, RecoveryReport, Target};
use crate::table::TableId;
use crate::tree::Direction;
use crate::txn::TxnOptions;
use giveway_tier::Tier;

pub(crate) use background::Background;
use read_only::ReadOnly;

/// How often who waits for its turn to make a checkpoint looks again.
const TURN: Duration = Duration::from_millis(1);

/// What makes a database last.
pub(crate) struct Durable {
    log: Log,
    report: RecoveryReport,
    /// Whether a checkpoint is being made: one at a time.
    checkpointing: AtomicBool,
}

/// The right to make a checkpoint.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// A checkpoint that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The database as of this commit timestamp is in it.
    pub timestamp: u64,
    /// Its size.
    pub bytes: u64,
}

impl Database {
    /// Opens the database in this directory, which is made if it is missing, for
    /// this process alone. The database is as it was after the last commit that
    /// was acknowledged, or a later one. With
    /// [`read_only`](DurabilityOptions::read_only) the directory must be there, nothing in
    /// it changes, and others may read it meanwhile.
    ///
    /// # Errors
    /// [`Error::Durability`] if the directory is open elsewhere or damaged, or if
    /// the system refuses something. Never [`Error::OutOfMemory`]: a database that
    /// has more than [`Options::memory_limit`] is opened, and rows can be deleted.
    pub fn open(
        directory: impl AsRef<Path>,
        options: Options,
        durability: DurabilityOptions,
    ) -> Result<Database> {
        let path = directory.as_ref();
        let opened = match durability.read_only {
            true => Directory::open_read_only(path),
            false => Directory::open(path),
        };
        let disk = opened.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => DurabilityError::InUse {
                directory: path.display().to_string(),
            },
            ErrorKind::NotFound if durability.read_only => DurabilityError::NoDatabase {
                directory: path.display().to_string(),
            },
            _ => DurabilityError::io("opening", path.display().to_string())(error),
        })?;
        Database::open_on(Arc::new(disk), options, durability)
    }

    /// As [`open`](Self::open), with files that somebody else keeps.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        durability: DurabilityOptions,
    ) -> Result<Database> {
        let db = Database::in_memory(options);
        let mut engine = Engine { db: &db };
        let (start, report) = recovery::recover(&disk, &durability, &mut engine)?;
        db.finish_replay(report.durable);
        if durability.read_only {
            if report.segments == 0 && report.checkpoint.is_none() {
                let directory = disk.describe("");
                return Err(DurabilityError::NoDatabase { directory }.into());
            }
            db.attach(Arc::new(ReadOnly::new(report, disk)));
            return Ok(db);
        }
        let checkpoint_bytes = durability.checkpoint_bytes;
        let log = Log::start(disk, durability, start)?;
        let (alarm, read) = ((log.alarm(), log.writer()), report.log_bytes);
        db.attach(Arc::new(Durable {
            log,
            report,
            checkpointing: AtomicBool::new(false),
        }));
        Ok(match checkpoint_bytes {
            Some(growth) => db.with_background(Background::start(db.clone(), alarm, growth, read)?),
            None => db,
        })
    }

    /// What makes the database last, if anything does.
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.sink()
    }

    /// What takes the database's commits, if it is a `T`.
    fn sink<T: Any>(&self) -> Option<&T> {
        let sink: &dyn Any = &**self.inner().sink.get()?;
        sink.downcast_ref()
    }

    /// Has a function called once a visible transaction is as durable as the
    /// options ask for.
    pub(crate) fn when_committed(&self, committed: Committed, callback: Callback) {
        match self.durable() {
            Some(durable) if committed.wrote => {
                durable.log.when_durable(committed.awaits, callback);
            }
            Some(durable) => durable.log.when_read(committed.awaits, callback),
            None => callback(Ok(())),
        }
    }

    /// What opening the database came to; `None` if it is in memory only.
    pub fn recovery(&self) -> Option<&RecoveryReport> {
        let read_only = || self.sink().map(ReadOnly::report);
        let durable = self.durable().map(|durable| &durable.report);
        durable.or_else(read_only)
    }

    /// How the log is doing; `None` if there is none.
    pub fn log_stats(&self) -> Option<LogStats> {
        let durable = self.durable()?;
        Some(LogStats {
            checkpoint_failure: self.background().and_then(Background::failure),
            ..durable.log.stats()
        })
    }

    /// Returns once everything that is visible now is durable, without waiting
    /// for the sync policy's interval. In memory, at once.
    ///
    /// # Errors
    /// [`Error::Durability`] if the log cannot be written.
    pub fn flush(&self) -> Result<()> {
        match self.durable() {
            Some(durable) => Ok(durable.log.flush(self.inner().epochs.now())?),
            None => Ok(()),
        }
    }

    /// Writes the database as of now into a file, while transactions go on, so
    /// that recovery takes less time and the log less space. It happens by itself
    /// if the options say so.
    ///
    /// # Errors
    /// [`Error::Durability`] if there are no files, or they cannot be written;
    /// [`Error::SnapshotTooOld`] if what only its snapshot needs does not fit
    /// [`Options::memory_limit`]. The database goes on as before.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.checkpoint_unless(|| false)
    }

    /// Makes a checkpoint, unless it is to be given up.
    fn checkpoint_unless(&self, give_up: impl Fn() -> bool) -> Result<Checkpoint> {
        let durable = self.durable().ok_or_else(|| match self.sink() {
            Some(ReadOnly { .. }) => DurabilityError::OpenedReadOnly,
            None => DurabilityError::InMemory,
        })?;
        let _turn = durable.turn(&give_up)?;
        let options = TxnOptions::read_only().tier(Tier::Background);
        let options = options.label(&CHECKPOINT);
        let (txn, tables, last) = self.begin_with_tables(options)?;
        let timestamp = txn.snapshot();
        let bytes = checkpoint::write::<Error>(&durable.log, timestamp, |add| {
            for table in &tables {
                add(Change::Table {
                    table: table.id().0,
                    schema: &schema::encode(table.schema()),
                })?;
            }
            // The number of a table that was dropped is not used again.
            if let Some(last) = last.filter(|last| tables.iter().all(|table| table.id() != *last)) {
                add(Change::Drop { table: last.0 })?;
            }
            for table in &tables {
                for row in txn.scan(table, KeyRange::all(), Direction::Forward)? {
                    if give_up() {
                        return Err(Error::Timeout);
                    }
                    let (table, row) = (table.id().0, row?.raw());
                    add(Change::Put { table, row })?;
                }
            }
            Ok(())
        })?;
        Ok(Checkpoint { timestamp, bytes })
    }
}

impl Durable {
    /// The log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Waits for its turn to make a checkpoint, unless it is to be given up. No lock:
    /// who makes one may be paused below the caller (R1), and then goes on.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it was given up.
    fn turn(&self, give_up: impl Fn() -> bool) -> Result<Turn<'_>> {
        while self.checkpointing.swap(true, Acquire) {
            if give_up() {
                return Err(Error::Timeout);
            }
            if preemption::in_region() || !preemption::yield_below() {
                std::thread::sleep(TURN);
                preemption::poll_point();
            }
        }
        Ok(Turn(&self.checkpointing))
    }
}

impl CommitSink for Durable {
    fn admit(&self, deadline: Option<Instant>) -> Result<()> {
        Ok(self.log.admit(deadline)?)
    }

    fn append(&self, ts: u64, writes: &Writes<'_>) -> Result<()> {
        debug_assert!(preemption::in_region());
        let changes = || {
            writes.iter().map(|write| match write.after {
                Some(row) => Change::Put {
                    table: write.table.0,
                    row,
                },
                None => Change::Delete {
                    table: write.table.0,
                    key: write.key,
                },
            })
        };
        let bytes = changes().map(|change| change.encoded_len()).sum();
        Ok(self.log.append(ts, bytes, changes())?)
    }

    fn skip(&self, ts: u64) {
        self.log.skip(ts);
    }

    fn wait_durable(&self, ts: u64, deadline: Option<Instant>) -> Result<()> {
        Ok(self.log.wait(ts, deadline)?)
    }

    fn wait_read(&self, snapshot: u64, deadline: Option<Instant>) -> Result<()> {
        Ok(self.log.wait_read(snapshot, deadline)?)
    }

    fn end(&self) -> Option<u64> {
        self.log.end()
    }

    fn encode_change(&self, change: &SchemaChange<'_>) -> Result<Vec<u8>> {
        let (schema, mut record);
        let change = match *change {
            SchemaChange::Table { id, schema: of } => {
                schema = schema::encode(of);
                Change::Table {
                    table: id.0,
                    schema: &schema,
                }
            }
            SchemaChange::Drop { id } => Change::Drop { table: id.0 },
        };
        let bytes = change.encoded_len();
        if bytes > RECORD_MAX {
            return Err(DurabilityError::TooLarge(bytes).into());
        }
        record = Vec::with_capacity(bytes);
        change.encode(&mut record);
        Ok(record)
    }

    fn append_change(&self, ts: u64, record: &[u8]) {
        debug_assert!(preemption::in_region());
        self.log.append_encoded(ts, record);
    }
}

/// The engine, as recovery sees it.
struct Engine<'a> {
    db: &'a Database,
}

impl Engine<'_> {
    fn replay(&self, ts: u64, table: u32, op: ReplayOp<'_>) -> Result<Check> {
        match self.db.replay(TableId(table), op, ts) {
            // What the table cannot hold was never in it.
            Err(Error::Schema(_)) => Ok(Err(Flaw::Contents)),
            Err(other) => Err(other),
            Ok(()) => Ok(Ok(())),
        }
    }
}

impl Target for Engine<'_> {
    type Error = Error;

    fn table(&mut self, table: u32, schema: &[u8]) -> Result<Check> {
        let schema = match schema::decode(schema) {
            Some(schema) => schema,
            None => return Ok(Err(Flaw::Contents)),
        };
        match self.db.replay_table(TableId(table), schema) {
            Err(Error::Schema(_)) => Ok(Err(Flaw::Contents)),
            Err(other) => Err(other),
            Ok(()) => Ok(Ok(())),
        }
    }

    fn drop(&mut self, table: u32) -> Result<()> {
        self.db.replay_drop(TableId(table));
        Ok(())
    }

    fn put(&mut self, ts: u64, table: u32, row: &[u8]) -> Result<Check> {
        self.replay(ts, table, ReplayOp::Put(row))
    }

    fn delete(&mut self, ts: u64, table: u32, key: &[u8]) -> Result<Check> {
        self.replay(ts, table, ReplayOp::Delete(key))
    }
}
