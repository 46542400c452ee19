//! The redo log: what makes commits last.
//!
//! Everything is in memory; what survives is this log and the checkpoints that
//! shorten it. A committing transaction leaves its record in a slot of its own
//! context and becomes visible; one thread writes the records of all slots, in
//! the order of commit timestamps, and says how far they are durable; the commit
//! returns when that has reached its timestamp.
//!
//! ```text
//!  worker            ┌──────┐
//!  commit: append ──▶│ slot │──┐                                  frontier
//!  worker            ├──────┤  │ by timestamp   batch, sync          │
//!  commit: append ──▶│ slot │──┼──────────────▶ segments on disk ────┤
//!     │              ├──────┤  │    (writer)                         ▼
//!     │              │  …   │──┘                        acknowledgement
//!     └──────────────┴──────┴──── waits, or leaves a function ◀──────┘
//! ```
//!
//! The order of the log is the order of timestamps, and not merely one that
//! respects dependencies: any prefix is then exactly the database as of one
//! timestamp, so recovery needs no undo and no graph, a torn end costs nothing
//! but the end, and a checkpoint, which is a snapshot at a timestamp, fits
//! between two records. Getting the order is cheap (see `slots`).
//!
//! A transaction is visible before it is durable, since otherwise every
//! conflict would last as long as a sync. What a transaction read may therefore
//! be lost in a crash, but then the transaction is lost as well, being later in
//! the log. One that wrote nothing has nothing in the log: it waits for its
//! snapshot to be durable
//! ([`reads_wait`](options::DurabilityOptions::reads_wait)).
//!
//! | module | question |
//! | --- | --- |
//! | `disk`, `error`, `options` | What do we stand on, what can go wrong, what is chosen? |
//! | `limits`, `format`, `record` | What do the bytes mean? |
//! | `slots`, `doorbell`, `frontier`, `shared` | How do transactions and the writer meet? |
//! | `segment`, `writer`, `stats`, `alarm` | How is it written? |
//! | `reader` | How is it read, and what is damage? |
//!
//! Departure: the paper's engine keeps a log buffer per thread, found through
//! context-local storage (Section 4.3). So do we; what it writes when, it leaves
//! open.

mod alarm;
mod disk;
mod doorbell;
mod error;
pub(crate) mod format;
mod frontier;
mod limits;
mod options;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod segment;
mod shared;
mod slots;
mod stats;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Instant;

use giveway_locks::Mutex;

pub(crate) use alarm::Alarm;
pub use disk::{Directory, Disk, DiskFile};
pub use error::{DurabilityError, Failure, Flaw};
pub(crate) use frontier::Callback;
pub use options::{DurabilityOptions, SyncPolicy};
pub use stats::LogStats;
pub(crate) use writer::text;

use crate::checkpoint::file::CheckpointHeader;
use crate::preemption;
use doorbell::Doorbell;
use format::{RECORD_MAX, SegmentHeader, VERSION, segment_number};
use frontier::Frontier;
use record::Change;
use segment::{Closed, Segment};
use shared::{Files, Shared};
use slots::Slots;
use stats::Counters;
use writer::{Writer, segment_room};

/// An open log. Dropping it writes what is there and closes it.
pub(crate) struct Log {
    shared: Arc<Shared>,
    database: u64,
    writer: Option<JoinHandle<()>>,
}

/// Where a log goes on, as recovery found it.
pub(crate) struct Start {
    /// The header of the segment to begin.
    pub(crate) header: SegmentHeader,
    /// The timestamp of the last transaction.
    pub(crate) last: u64,
    /// The segments before it.
    pub(crate) closed: Vec<Closed>,
}

impl Log {
    /// Begins a new segment, and the thread that writes it.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn start(
        disk: Arc<dyn Disk>,
        options: DurabilityOptions,
        start: Start,
    ) -> Result<Log, DurabilityError> {
        let room = segment_room(&options);
        let segment = Segment::create(Arc::clone(&disk), start.header, room)?;
        let shared = Arc::new(Shared {
            disk,
            options,
            slots: Slots::new(),
            frontier: Frontier::new(start.last),
            doorbell: Doorbell::new(),
            files: Mutex::new(Files {
                closed: start.closed,
                current: start.header.first,
            }),
            counters: Counters::default(),
            alarm: Arc::default(),
            urgent: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let writer = Writer::new(Arc::clone(&shared), segment);
        let writer = thread::Builder::new()
            .name("giveway-log".to_owned())
            .spawn(move || writer.run())
            .map_err(DurabilityError::io("starting", "the log's writer"))?;
        Ok(Log {
            shared,
            database: start.header.database,
            writer: Some(writer),
        })
    }

    /// Lets a transaction commit that has written: waits while the backlog is
    /// over its limit.
    ///
    /// # Errors
    /// [`ReadOnly`](DurabilityError::ReadOnly) after a failure,
    /// [`Backlog`](DurabilityError::Backlog) when the deadline has passed.
    pub(crate) fn admit(&self, deadline: Option<Instant>) -> Result<(), DurabilityError> {
        let shared = &self.shared;
        let limit = shared.options.backlog_bytes_max;
        let settled = || match shared.frontier.failure() {
            Some(failure) => Some(Err(DurabilityError::ReadOnly(Arc::clone(failure)))),
            None => (shared.slots.backlog() <= limit).then_some(Ok(())),
        };
        // The usual case asks no clock.
        if let Some(settled) = settled() {
            return settled;
        }
        shared.ring_urgently();
        shared
            .frontier
            .wait_for(deadline, settled)
            .unwrap_or_else(|_| {
                let backlog = shared.slots.backlog();
                Err(DurabilityError::Backlog { backlog })
            })
    }

    /// Appends the record of a transaction that commits with this timestamp:
    /// `changes`, which take `bytes` together. The caller is in a region, and
    /// makes the transaction visible only afterwards.
    ///
    /// # Errors
    /// [`TooLarge`](DurabilityError::TooLarge): the transaction cannot commit,
    /// and its timestamp is skipped.
    pub(crate) fn append<'a>(
        &self,
        timestamp: u64,
        bytes: usize,
        changes: impl Iterator<Item = Change<'a>>,
    ) -> Result<(), DurabilityError> {
        if bytes > RECORD_MAX {
            self.skip(timestamp);
            return Err(DurabilityError::TooLarge(bytes));
        }
        self.shared.slots.append(timestamp, |body| {
            body.reserve(bytes);
            changes.for_each(|change| change.encode(body));
        });
        self.shared.doorbell.ring();
        Ok(())
    }

    /// The same for a record of which the caller has the body, which is not longer
    /// than a record may be.
    pub(crate) fn append_encoded(&self, timestamp: u64, body: &[u8]) {
        self.shared.slots.append(timestamp, |record| {
            record.extend_from_slice(body);
        });
        self.shared.doorbell.ring();
    }

    /// Nobody commits with this timestamp. The caller is in a region.
    pub(crate) fn skip(&self, timestamp: u64) {
        self.shared.slots.append(timestamp, |_| {});
        // Later ones may wait for this one.
        self.shared.doorbell.ring();
    }

    /// Waits until everything up to this timestamp is durable.
    ///
    /// # Errors
    /// [`InDoubt`](DurabilityError::InDoubt) after a failure,
    /// [`NotYet`](DurabilityError::NotYet) when the deadline has passed.
    pub(crate) fn wait(
        &self,
        timestamp: u64,
        deadline: Option<Instant>,
    ) -> Result<(), DurabilityError> {
        self.shared.doorbell.ring();
        self.shared.frontier.wait(timestamp, deadline)
    }

    /// As [`wait`](Self::wait) for a transaction that wrote nothing, if the
    /// options say that it waits.
    ///
    /// # Errors
    /// [`ReadInDoubt`](DurabilityError::ReadInDoubt) after a failure,
    /// [`NotYet`](DurabilityError::NotYet) when the deadline has passed.
    pub(crate) fn wait_read(
        &self,
        snapshot: u64,
        deadline: Option<Instant>,
    ) -> Result<(), DurabilityError> {
        match self.shared.options.reads_wait {
            true => self.wait(snapshot, deadline).map_err(read),
            false => Ok(()),
        }
    }

    /// Has a function called when the timestamp is durable, or in doubt: at
    /// once, or by the writer, for which it should be short.
    pub(crate) fn when_durable(&self, timestamp: u64, callback: Callback) {
        self.shared.doorbell.ring();
        self.shared.frontier.when_settled(timestamp, callback);
    }

    /// As [`when_durable`](Self::when_durable) for a transaction that wrote
    /// nothing, at once if the options say that it does not wait.
    pub(crate) fn when_read(&self, snapshot: u64, callback: Callback) {
        match self.shared.options.reads_wait {
            true => {
                let callback = move |settled: Result<(), _>| callback(settled.map_err(read));
                self.when_durable(snapshot, Box::new(callback));
            }
            false => callback(Ok(())),
        }
    }

    /// The last timestamp that will ever be durable; `None` while the log is
    /// written.
    #[inline]
    pub(crate) fn end(&self) -> Option<u64> {
        let frontier = &self.shared.frontier;
        // The failure first: it is set after the last move (W2).
        frontier.failure().map(|_| frontier.reached())
    }

    /// Bytes that wait to be written, and how many may.
    ///
    /// # Errors
    /// [`ReadOnly`](DurabilityError::ReadOnly) after a failure.
    pub(crate) fn backlog(&self) -> Result<(u64, u64), DurabilityError> {
        match self.shared.frontier.failure() {
            Some(failure) => Err(DurabilityError::ReadOnly(Arc::clone(failure))),
            None => {
                let limit = self.shared.options.backlog_bytes_max;
                Ok((self.shared.slots.backlog(), limit))
            }
        }
    }

    /// As [`wait`](Self::wait), without waiting for the policy's interval.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn flush(&self, timestamp: u64) -> Result<(), DurabilityError> {
        self.shared
            .frontier
            .wait_urgently(timestamp, || self.shared.ring_urgently())
    }

    /// What a checkpoint of this snapshot says of itself.
    pub(crate) fn plan_checkpoint(&self, snapshot: u64) -> CheckpointHeader {
        let _region = preemption::region();
        let files = self.shared.files.lock();
        let needed = files.closed.iter().find(|closed| closed.through > snapshot);
        CheckpointHeader {
            version: VERSION,
            database: self.database,
            snapshot,
            first_needed: needed.map_or(files.current, |closed| closed.first),
        }
    }

    /// Bytes that the next segment takes of the disk at once (G5).
    pub(crate) fn segment_room(&self) -> u64 {
        segment_room(&self.shared.options)
    }

    /// Where the log is.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.shared.disk
    }

    /// Removes the segments before the one with this first batch, also those that were
    /// left over when the log was opened (H1).
    ///
    /// # Errors
    /// What could not be done. It is done by the next checkpoint.
    pub(crate) fn truncate(&self, first_needed: u64) -> Result<(), DurabilityError> {
        let disk = &self.shared.disk;
        let names = disk.names();
        let names = names.map_err(DurabilityError::io("listing", disk.describe("")))?;
        let obsolete = |name: &&String| segment_number(name).is_some_and(|n| n < first_needed);
        for name in names.iter().filter(obsolete) {
            let removed = disk.remove(name);
            removed.map_err(DurabilityError::io("removing", disk.describe(name)))?;
        }
        {
            let _region = preemption::region();
            let mut files = self.shared.files.lock();
            files.closed.retain(|closed| closed.first >= first_needed);
        }
        let named = disk.sync_names();
        named.map_err(DurabilityError::io("syncing", disk.describe("")))
    }

    /// Tells when the log has grown.
    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.shared.alarm)
    }

    /// The thread that writes.
    pub(crate) fn writer(&self) -> ThreadId {
        let writer = self.writer.as_ref().expect("it ends with the log");
        writer.thread().id()
    }

    /// How the log is doing.
    pub(crate) fn stats(&self) -> LogStats {
        let shared = &self.shared;
        let (closed, bytes) = {
            let _region = preemption::region();
            let files = shared.files.lock();
            let bytes = files.closed.iter().map(|closed| closed.bytes).sum::<u64>();
            (files.closed.len() as u64, bytes)
        };
        LogStats {
            backlog_bytes: shared.slots.backlog(),
            bytes: shared.alarm.bytes(),
            durable: shared.frontier.reached(),
            segments: closed + 1,
            log_bytes: bytes + shared.counters.current(),
            failure: shared.frontier.failure().map(ToString::to_string),
            ..shared.counters.snapshot()
        }
    }
}

/// What an error of waiting means to a transaction that wrote nothing.
fn read(error: DurabilityError) -> DurabilityError {
    match error {
        DurabilityError::InDoubt(failure) => DurabilityError::ReadInDoubt(failure),
        other => other,
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.ring_urgently();
        let writer = self.writer.take().expect("it is dropped once");
        // A function that the writer calls may be the last to know the log. The
        // writer then ends by itself.
        if writer.thread().id() != thread::current().id() {
            // It catches its panics.
            let _ = writer.join();
        }
    }
}
