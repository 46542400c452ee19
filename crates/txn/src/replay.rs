//! Filling a database that is not in use yet from a log.
//!
//! Operations may come in any order, each with the timestamp of its commit: of
//! each key the latest wins. Each is a small transaction of its own, whose
//! version is stamped with the given time instead of a drawn one.
//!
//! Nothing is refused for `memory_limit`: it was accepted before, and a database that
//! cannot be opened is worse than one that has a little more. What later operations
//! replace is freed as in any transaction, so replay needs no more than the database did.

use std::sync::Arc;

use crate::database::Database;
use crate::error::Result;
use crate::hook::{CommitSink, ReplayOp};
use crate::key::KeyBuf;
use crate::limits::Request;
use crate::record::{self, Begin, Head, Record, RecordHead, Version};
use crate::table::{IndexInner, IndexSet, TableId};
use crate::tree::Spot;
use crate::txn::{Transaction, TxnOptions};
use crate::txn_context::{Ended, TxnContext};

impl Database {
    /// Makes the database be as if this had been committed at `ts`, unless
    /// something later has. The table exists; row bytes are checked.
    pub(crate) fn replay(&self, table: TableId, op: ReplayOp<'_>, ts: u64) -> Result<()> {
        let table = self.table_with_id(table)?;
        let mut key = KeyBuf::new();
        let row = match op {
            ReplayOp::Delete(bytes) => {
                key.push(bytes);
                None
            }
            ReplayOp::Put(bytes) => {
                table.check_row_bytes(bytes)?;
                table.inner.key.of_row(bytes, &mut key);
                Some(bytes)
            }
        };
        let txn = self.begin(TxnOptions::default())?;
        txn.replay(table.inner.set(), key.as_slice(), row, ts);
        Ok(())
    }

    /// Ends the replay: the next commit is the one after `clock`.
    pub(crate) fn finish_replay(&self, clock: u64) {
        self.inner().epochs.set(clock);
        self.collect();
    }

    /// From now on, commits go through `sink`. Once, before any commit.
    pub(crate) fn attach(&self, sink: Arc<dyn CommitSink>) {
        let fresh = self.inner().sink.set(sink).is_ok();
        assert!(fresh, "a database has one log");
    }
}

impl Transaction<'_> {
    fn replay(&self, set: &IndexSet, key: &[u8], row: Option<&[u8]>, ts: u64) {
        let table = set.table();
        let version = Version::size(row.unwrap_or_default().len());
        let request = Request::record(version, Record::size(key.len()));
        self.with(|txn_context| {
            self.db.make_room(self.slot, txn_context, request);
            let spot = table.primary.spot(key, None);
            match spot.entry {
                Some(record) => replace(txn_context, set, record, row, ts),
                None => add(txn_context, set, &spot, key, row, ts),
            }
            txn_context.seal(&self.db.epochs);
        });
    }
}

fn add(
    txn_context: &mut TxnContext,
    set: &IndexSet,
    spot: &Spot<RecordHead>,
    key: &[u8],
    row: Option<&[u8]>,
    ts: u64,
) {
    let version = new_version(txn_context, ts, row);
    let record = record::new_record(&mut txn_context.pool, key, version);
    txn_context.allocated(Record::size(key.len()));
    // SAFETY: records are removed before they are retired.
    let added = unsafe { set.table().primary.insert(record, spot, txn_context) };
    assert!(added.is_ok(), "a key is replayed by one thread at a time");
    put(txn_context, set, record, row);
}

fn new_version(txn_context: &mut TxnContext, ts: u64, row: Option<&[u8]>) -> Version {
    txn_context.allocated(Version::size(row.unwrap_or_default().len()));
    record::committed_version(&mut txn_context.pool, ts, None, row)
}

/// What a new version leads to.
fn put(txn_context: &mut TxnContext, set: &IndexSet, record: Record, row: Option<&[u8]>) {
    match row {
        Some(row) => {
            for index in &set.indexes {
                let key = span_key(index, record, row);
                txn_context.begin_span(index, record, key.as_slice());
            }
        }
        None => {
            record::hold(record);
            txn_context.retire_tombstone(set.table(), record);
        }
    }
}

fn replace(
    txn_context: &mut TxnContext,
    set: &IndexSet,
    record: Record,
    row: Option<&[u8]>,
    ts: u64,
) {
    let Head::Version(base) = record::head_of(record) else {
        unreachable!("nothing is removed while nobody collects");
    };
    let Begin::Committed(before) = record::begin_of(base) else {
        unreachable!("nobody else uses the database");
    };
    if before >= ts {
        return;
    }
    let version = new_version(txn_context, ts, row);
    record::replace_alone(record, version);
    if let Some(old) = record::row_of(base) {
        for index in &set.indexes {
            let key = span_key(index, record, old);
            let entry = index.tree.lookup(key.as_slice()).entry;
            record::hold(record);
            txn_context.retire_span(Ended {
                index: &raw const **index,
                entry: entry.expect("rows have entries"),
                record,
            });
        }
    }
    put(txn_context, set, record, row);
    txn_context.retire_version(base);
}

fn span_key(index: &IndexInner, record: Record, row: &[u8]) -> KeyBuf {
    let mut key = KeyBuf::new();
    index.key.of_row(row, &mut key);
    // SAFETY: nobody removes the record.
    key.push(unsafe { record.bytes() });
    key
}
