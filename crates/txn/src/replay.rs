//! Filling a database that is not in use yet from a log.
//!
//! Operations may come in any order, each with the timestamp of its commit: of
//! each key the latest wins. Each is a small transaction of its own, whose
//! version is stamped with the given time instead of a drawn one.

use std::sync::Arc;

use crate::database::Database;
use crate::error::{Result, SchemaError};
use crate::hook::{CommitSink, ReplayOp};
use crate::key::KeyBuf;
use crate::record::{self, Begin, Head, Record, RecordHead, Version};
use crate::row::Row;
use crate::table::{TableId, TableInner};
use crate::tree::Spot;
use crate::txn::{Transaction, TxnOptions};
use crate::txn_context::TxnContext;

impl Database {
    /// Makes the database be as if this had been committed at `ts`, unless
    /// something later has. The table exists; row bytes are checked.
    pub(crate) fn replay(&self, table: TableId, op: ReplayOp<'_>, ts: u64) -> Result<()> {
        let tables = self.tables();
        let found = tables.iter().find(|known| known.id() == table);
        let table = found.ok_or_else(|| SchemaError::Unknown {
            what: "table number",
            name: table.0.to_string(),
            within: "the database".to_owned(),
            known: format!("{} tables", tables.len()),
        })?;
        let mut key = KeyBuf::new();
        let row = match op {
            ReplayOp::Delete(bytes) => {
                key.push(bytes);
                None
            }
            ReplayOp::Put(bytes) => {
                table.check_row_bytes(bytes)?;
                let row = Row::new(table.schema(), bytes);
                table.0.key.of_row(row, &mut key);
                Some(bytes)
            }
        };
        let txn = self.begin(TxnOptions::default())?;
        txn.replay(&table.0, key.as_slice(), row, ts)
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
    fn replay(&self, table: &TableInner, key: &[u8], row: Option<&[u8]>, ts: u64) -> Result<()> {
        let beside = Record::size(key.len());
        self.with(|txn_context| {
            let bytes = Version::size(row.unwrap_or_default().len()) + beside;
            self.db.may_grow(self.slot, txn_context, bytes)?;
            let spot = table.primary.spot(key, None);
            match spot.entry {
                Some(record) => replace(txn_context, table, record, row, ts),
                None => add(txn_context, table, &spot, key, row, ts),
            }
            txn_context.seal(&self.db.epochs);
            Ok(())
        })
    }
}

fn add(
    txn_context: &mut TxnContext,
    table: &TableInner,
    spot: &Spot<RecordHead>,
    key: &[u8],
    row: Option<&[u8]>,
    ts: u64,
) {
    let version = record::committed_version(&mut txn_context.pool, ts, None, row);
    let record = record::new_record(&mut txn_context.pool, key, version);
    txn_context.allocated(Version::size(row.unwrap_or_default().len()) + Record::size(key.len()));
    // SAFETY: records are removed before they are retired.
    let added = unsafe { table.primary.insert(record, spot, txn_context) };
    assert!(added.is_ok(), "a key is replayed by one thread at a time");
    match row {
        Some(row) => begin_spans(txn_context, table, record, row),
        None => {
            record::hold(record);
            txn_context.retire_tombstone(table, record);
        }
    }
}

fn replace(
    txn_context: &mut TxnContext,
    table: &TableInner,
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
    let version = record::committed_version(&mut txn_context.pool, ts, None, row);
    txn_context.allocated(Version::size(row.unwrap_or_default().len()));
    record::replace_alone(record, version);
    if let Some(old) = record::row_of(base) {
        for (at, index) in table.indexes.iter().enumerate() {
            let key = span_key(table, index, record, old);
            let entry = index.tree.lookup(key.as_slice()).entry;
            record::hold(record);
            txn_context.retire_span(table, at, entry.expect("rows have entries"));
        }
    }
    match row {
        Some(row) => begin_spans(txn_context, table, record, row),
        None => {
            record::hold(record);
            txn_context.retire_tombstone(table, record);
        }
    }
    txn_context.retire_version(base);
}

fn begin_spans(txn_context: &mut TxnContext, table: &TableInner, record: Record, row: &[u8]) {
    for index in &table.indexes {
        let key = span_key(table, index, record, row);
        txn_context.begin_span(index, record, key.as_slice());
    }
}

fn span_key(
    table: &TableInner,
    index: &crate::table::IndexInner,
    record: Record,
    row: &[u8],
) -> KeyBuf {
    let mut key = KeyBuf::new();
    index.key.of_row(Row::new(&table.schema, row), &mut key);
    // SAFETY: nobody removes the record.
    key.push(unsafe { record.bytes() });
    key
}
