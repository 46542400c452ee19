//! Scans: rows in key order, as one transaction sees them.
//!
//! A scan of a secondary index looks at the record of each entry, and drops it
//! unless the version that the transaction sees has the entry's key: entries
//! stay while any version needs them.
//!
//! Rows that the transaction writes while it scans show up if they lie ahead.

use crate::error::Result;
use crate::key::{Key, KeyBuf, KeyRange};
use crate::node_set::IndexRead;
use crate::preemption;
use crate::record::{EntryHead, IndexEntry, Record, RecordHead};
use crate::row::Row;
use crate::table::{Index, Table};
use crate::tree::{Direction, LeafScan};
use crate::txn::Transaction;

/// The rows of a range: an iterator, from [`Transaction::scan`] and
/// [`Transaction::scan_index`].
pub struct Scan<'t> {
    txn: &'t Transaction<'t>,
    table: &'t Table,
    source: Source<'t>,
    done: bool,
}

enum Source<'t> {
    Primary(LeafScan<RecordHead>),
    Index(&'t Index, LeafScan<EntryHead>),
}

impl<'db> Transaction<'db> {
    /// Rows by primary key.
    #[inline]
    pub fn scan<'t, L: Key, U: Key>(
        &'t self,
        table: &'t Table,
        range: KeyRange<L, U>,
        direction: Direction,
    ) -> Result<Scan<'t>> {
        self.check(table)?;
        let span = range.encode(&table.inner.key)?;
        Ok(Scan::new(
            self,
            table,
            Source::Primary(LeafScan::new(span, direction)),
        ))
    }

    /// Rows by the columns of an index, those with equal ones by primary key.
    #[inline]
    pub fn scan_index<'t, L: Key, U: Key>(
        &'t self,
        index: &'t Index,
        range: KeyRange<L, U>,
        direction: Direction,
    ) -> Result<Scan<'t>> {
        let table = &index.table;
        self.check(table)?;
        let there = index.inner.check_read(self.snapshot());
        there.map_err(|error| self.end_with(error))?;
        let span = range.encode(&index.inner.key)?;
        Ok(Scan::new(
            self,
            table,
            Source::Index(index, LeafScan::new(span, direction)),
        ))
    }
}

impl<'t> Scan<'t> {
    #[inline]
    fn new(txn: &'t Transaction<'t>, table: &'t Table, source: Source<'t>) -> Scan<'t> {
        Scan {
            txn,
            table,
            source,
            done: false,
        }
    }

    /// The next record, with the index entry that led to it.
    #[inline]
    fn next_record(&mut self) -> Result<Option<(Record, Option<IndexEntry>)>> {
        let table = &*self.table.inner;
        loop {
            let found = match &mut self.source {
                Source::Primary(scan) => scan.next_here().map(|record| (record, None)),
                Source::Index(_, scan) => scan.next_here().map(|entry| {
                    // SAFETY: found while the transaction is open (T1).
                    (unsafe { entry.head() }.record, Some(entry))
                }),
            };
            if found.is_some() {
                return Ok(found);
            }
            let txn = self.txn;
            txn.check_served(self.table)?;
            let more = match &mut self.source {
                Source::Primary(scan) => scan.next_leaf(&table.primary, |leaf, from, to| {
                    txn.note_scanned(IndexRead::Primary(table), leaf, from, to);
                }),
                Source::Index(index, scan) => {
                    let index = &*index.inner;
                    index.check_there()?;
                    scan.next_leaf(&index.tree, |leaf, from, to| {
                        txn.note_scanned(IndexRead::Index(index), leaf, from, to);
                    })
                }
            };
            if !more {
                return Ok(None);
            }
        }
    }

    /// Whether the row has the key by which it was found.
    fn is_found_by(&self, row: Row<'_>, entry: IndexEntry) -> bool {
        let Source::Index(index, _) = &self.source else {
            return true;
        };
        let mut key = KeyBuf::new();
        index.inner.key.of_row(row.raw(), &mut key);
        // SAFETY: found while the transaction is open (T1). The primary key,
        // which follows, is the record's in any case.
        unsafe { entry.bytes() }.starts_with(key.as_slice())
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Row<'t>>> {
        let table: &'t Table = self.table;
        while let Some((record, entry)) = self.next_record()? {
            preemption::record_read();
            self.txn.check_scan()?;
            let view = self.txn.see(record);
            let Some(row) = self.txn.row(table.schema(), view) else {
                continue;
            };
            if entry.is_none_or(|entry| self.is_found_by(row, entry)) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

impl<'t> Iterator for Scan<'t> {
    type Item = Result<Row<'t>>;

    #[inline]
    fn next(&mut self) -> Option<Result<Row<'t>>> {
        if self.done {
            return None;
        }
        let next = self.step().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}
