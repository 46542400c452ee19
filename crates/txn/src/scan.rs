//! Scans: rows in key order, as one transaction sees them.
//!
//! A scan of a secondary index looks at the record of each entry, and drops it
//! unless the version that the transaction sees has the entry's key: entries
//! stay while any version needs them.
//!
//! Rows that the transaction writes while it scans show up if they lie ahead.
//!
//! Neighbours in a leaf lie anywhere in memory, so a scan would wait for each record and
//! then for each row. It asks for them ahead instead:
//!
//! ```text
//!  entries of a leaf   i      i + ROWS_AHEAD            i + RECORDS_AHEAD
//!                      read   head of the record read,  record asked for
//!                             row asked for
//! ```
//!
//! - **S1** Asking ahead reads nothing but entries of the leaf, as they were when it was
//!   read and validated, and the heads of their records. Both were in the tree while the
//!   transaction was open, so they are alive (T1, E1), whatever has become of the leaf.
//!   Memory is asked for by a prefetch, which does nothing if it is gone. What the
//!   transaction sees of a row is decided when its turn comes, from the record's head of
//!   then. (Not asserted, as T1; `tests/churn.rs` scans beside rows that come and go.)
//!
//! Known weakness: a scan that its caller ends early has asked for a few rows in vain. The
//! first rows of each leaf are asked for when it is read, and waited for.

use crate::error::Result;
use crate::key::{Key, KeyBuf, KeyRange};
use crate::node_set::IndexRead;
use crate::preemption;
use crate::record::{self, EntryHead, IndexEntry, Record, RecordHead, Version};
use crate::row::Row;
use crate::table::{Index, Table};
use crate::thin::{self, Thin};
use crate::tree::{Direction, LeafScan};
use crate::txn::Transaction;

/// How far ahead a row is asked for. Measured with rows of 1 KiB: 1 is too few, 4 and more
/// gain nothing.
const ROWS_AHEAD: usize = 2;

/// How far ahead the record is asked for that leads to the row.
const RECORDS_AHEAD: usize = 2 * ROWS_AHEAD;

/// How far ahead the entry of a secondary index is asked for that leads to the record.
const ENTRIES_AHEAD: usize = 3 * ROWS_AHEAD;

/// How much of a row is asked for ahead, in bytes: as many lines as a CPU loads at a time,
/// less those that the row being read needs. Measured: with 512 and with 1024 a scan of
/// rows of 1 KiB takes a tenth longer.
const ROW_AHEAD_BYTES: usize = 768;

/// The rows of a range: an iterator, from [`Transaction::scan`] and
/// [`Transaction::scan_index`].
pub struct Scan<'t> {
    txn: &'t Transaction<'t>,
    table: &'t Table,
    source: Source<'t>,
    /// How much of the next rows to ask for: as much as the last one had.
    ahead_bytes: usize,
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
            ahead_bytes: record::USUAL_BYTES,
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

    /// Asks for what comes next in the leaf (S1).
    #[inline]
    fn ask_ahead(&self) {
        match &self.source {
            Source::Primary(scan) => ask_ahead(scan, self.ahead_bytes, |record| record),
            Source::Index(_, scan) => {
                for entry in ahead(scan, ENTRIES_AHEAD) {
                    thin::prefetch(entry.as_ptr().cast(), 1);
                }
                ask_ahead(scan, self.ahead_bytes, |entry| {
                    // SAFETY: alive (S1).
                    unsafe { entry.head() }.record
                });
            }
        }
    }

    #[inline]
    fn step(&mut self) -> Result<Option<Row<'t>>> {
        let table: &'t Table = self.table;
        while let Some((record, entry)) = self.next_record()? {
            preemption::record_read();
            self.ask_ahead();
            self.txn.check_scan()?;
            let view = self.txn.see(record);
            let Some(row) = self.txn.row(table.schema(), view) else {
                continue;
            };
            self.ahead_bytes = Version::size(row.raw().len()).min(ROW_AHEAD_BYTES);
            if entry.is_none_or(|entry| self.is_found_by(row, entry)) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// The entry that has come within `distance` of the next one; when the leaf has just been
/// read, all within.
#[inline]
fn ahead<E>(scan: &LeafScan<E>, distance: usize) -> impl Iterator<Item = Thin<E>> {
    let from = if scan.is_at_first() { 0 } else { distance - 1 };
    (from..distance).filter_map(|distance| scan.ahead(distance))
}

/// Asks for records and rows to which entries ahead lead (S1).
#[inline]
fn ask_ahead<E>(scan: &LeafScan<E>, bytes: usize, record_of: impl Fn(Thin<E>) -> Record) {
    for entry in ahead(scan, RECORDS_AHEAD) {
        thin::prefetch(record_of(entry).as_ptr().cast(), 1);
    }
    for entry in ahead(scan, ROWS_AHEAD) {
        record::prefetch_version(record_of(entry), bytes);
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
