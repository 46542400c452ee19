//! Adding and dropping indexes of a table that is in use.
//!
//! ```text
//!            begun                        live            dropped
//!  nobody ─────┬── writers maintain it ─────┬── and read it ──┬── nobody
//!              └── a scan covers the rest ──┘                 └── torn (teardown)
//!               not logged: gone after a crash
//! ```
//!
//! An index entry counts the spans of its key, runs of versions of one record, so each
//! version that a snapshot may see has to be counted once: neither the scan that fills
//! an index nor a writer may count what the other has counted. What tells them apart is
//! when a version was committed:
//!
//! - **K5** Once an index has begun, each version that is committed has its span by its
//!   own writer, and none that was committed before: whoever has written without the
//!   index cannot commit any more (K1). So of each record there is at most one version
//!   whose span is missing, the last one before, and only while it is the newest: it
//!   has to be *covered*. The scan covers it, or whoever writes over it first, before
//!   it needs the span. (Not asserted: `tests/schema.rs` compares indexes with tables.)
//! - **K6** Covering counts the span, then marks the record; who finds the mark set
//!   takes the span back. So of all who cover a record one counts. The mark says nothing
//!   of another index: it is taken from all records before a build, when the gate of the
//!   one before is closed (J1) and no other is open, since a table has one build at a
//!   time. (Not asserted: the model `of_all_who_cover_a_record_one_counts`.)
//! - **K7** An index is read by snapshots from its completion on. A version that they
//!   see is covered, or later than the beginning. Who is older gets `SchemaChanged`.
//!   (Not asserted: `IndexInner::check_read` decides it.)
//!
//! - **K8** Writers keep a unique index so from when all rows are covered: then the set
//!   is replaced once more, and a version that is committed later was compared with all
//!   that the index has (`unique`). Two rows that have the same key at a snapshot from
//!   then on had it before, and the build fails. (Asserted in `finish`: the set
//!   was replaced.)
//!
//! When an index is dropped, or its build ends early, writers leave it at once, and
//! those that have maintained it cannot commit: they might end spans that others, who
//! do not maintain it any more, have not begun.
//!
//! The scan runs in the caller's context, in short transactions, and can be preempted
//! everywhere but where it changes the index. It waits for nobody.
//!
//! Known weakness: a transaction that has written to the table and is open when an index
//! begins or is dropped has to be run again; when the index is to be unique, also one
//! that is open when all rows are covered.

use std::cell::{Cell, OnceCell};
use std::result;
use std::sync::Arc;

use giveway_tier::Tier;

use crate::database::{Catalog, Database};
use crate::error::{Error, Result, SchemaError};
use crate::hook::SchemaChange;
use crate::key::{KeyBuf, Span};
use crate::limits::Request;
use crate::preemption::{self, Writer};
use crate::record::{self, IndexEntry, Record, RecordHead};
use crate::schema::{IndexSchema, Schema};
use crate::sync::{Relaxed, Release};
use crate::table::{Index, IndexInner, Table, TableInner};
use crate::tree::{Direction, LeafScan};
use crate::txn::{Transaction, TxnOptions};
use crate::txn_context::Retired;
use crate::txn_status::TxnStatus;
use crate::unique::unique_key;
use crate::value::Value;

/// Leaves that one transaction of a build looks at: short enough to hold back no
/// garbage that counts.
const LEAVES: usize = 8;

impl Database {
    /// Adds an index, and returns when it has all rows. Transactions go on meanwhile;
    /// those that have written to the table before must run again
    /// ([`Error::SchemaChanged`]), which [`run`](Self::run) does.
    ///
    /// The work is done by the caller: give it to a background task if it should give
    /// way. If it ends early, for instance because memory is short, or the process
    /// does, there is no index.
    ///
    /// # Errors
    /// [`SchemaError`] if the index does not fit the table, or another one is being
    /// built; [`Error::OutOfMemory`];
    /// [`Error::TableDropped`];
    /// [`Error::Durability`] if it cannot be logged, or is in
    /// doubt.
    pub fn add_index<S: Into<String>>(
        &self,
        table: &str,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Result<Index> {
        let wanted = Wanted::new(name, false, columns);
        Build::new(self, table, wanted)?.run()
    }

    /// Adds an index in which no two rows may have the same key, as
    /// [`add_index`](Self::add_index) does. Writers may get
    /// [`Error::UniqueViolation`] before it is there, and
    /// those that write while all rows are covered must run again once more.
    ///
    /// # Errors
    /// [`SchemaError::NotUnique`] if rows have the same key, and as
    /// [`add_index`](Self::add_index).
    pub fn add_unique_index<S: Into<String>>(
        &self,
        table: &str,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> Result<Index> {
        let wanted = Wanted::new(name, true, columns);
        Build::new(self, table, wanted)?.run()
    }

    /// Drops an index. Transactions that have written to the table must run again
    /// ([`Error::SchemaChanged`]); those that read the index get
    /// [`SchemaError::IndexDropped`]. The memory is freed when no transaction is open
    /// that began before.
    ///
    /// # Errors
    /// [`SchemaError::Unknown`] if there is no such table or index;
    /// [`Error::Durability`] if it cannot be logged, or is in
    /// doubt.
    pub fn drop_index(&self, table: &str, name: &str) -> Result<()> {
        self.inner().admit_change()?;
        let ts = {
            let _region = preemption::region();
            let mut catalog = self.inner().catalog();
            let before = catalog.find(table)?;
            let index = before.index(name)?.inner;
            let after = before.with_schema(without_index(&before.schema, name)?, false);
            let change = SchemaChange::Table {
                id: after.id(),
                schema: &after.schema,
            };
            let inner = &before.inner;
            let publish = |_| {
                inner.leave(&index);
                catalog.replace(after.clone());
            };
            let ends = [&*inner.set().until, &index.ended];
            let ts = self.inner().change(Some(&change), &ends, publish)?;
            self.inner().retire([Retired::Index(&raw const *index)]);
            ts
        };
        self.inner().wait_change(ts)?;
        self.collect();
        Ok(())
    }

    /// Makes a table's indexes be those of its schema, as a log says.
    pub(super) fn replay_indexes(&self, table: &Table) -> Result<()> {
        let (inner, schema) = (&table.inner, &table.schema);
        let kept = |index: &Arc<IndexInner>| {
            let mut indexes = schema.indexes().iter();
            indexes.any(|known| index.is(schema, known))
        };
        let before = inner.set().indexes.iter().cloned();
        let (mut indexes, dropped): (Vec<_>, Vec<_>) = before.partition(kept);
        let pieces = dropped
            .iter()
            .map(|index| Retired::Index(&raw const **index));
        self.inner().retire(pieces);
        let mut added = Vec::new();
        for known in schema.indexes() {
            if !indexes.iter().any(|index| index.is(schema, known)) {
                added.push(inner.new_index(schema, known, false));
            }
        }
        let txn = self.begin(TxnOptions::default())?;
        for index in &added {
            let mut scan = scan_all();
            while let Some(records) = next_leaf(&mut scan, inner) {
                for record in records {
                    txn.fill(index, record);
                }
            }
        }
        if dropped.is_empty() && added.is_empty() {
            return Ok(());
        }
        indexes.append(&mut added);
        inner.replace_set(indexes, None, Arc::new(TxnStatus::new(Writer::ELSEWHERE)));
        Ok(())
    }
}

/// An index as it was asked for.
struct Wanted {
    name: String,
    unique: bool,
    columns: Vec<String>,
}

impl Wanted {
    fn new<S: Into<String>>(
        name: impl Into<String>,
        unique: bool,
        columns: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            name: name.into(),
            unique,
            columns: columns.into_iter().map(Into::into).collect(),
        }
    }
}

/// An index that is being built, and is abandoned when this is dropped before its end.
struct Build<'a> {
    db: &'a Database,
    /// As it was at the beginning.
    table: Table,
    wanted: Wanted,
    /// Once it has begun.
    index: OnceCell<Arc<IndexInner>>,
    live: Cell<bool>,
}

impl<'a> Build<'a> {
    fn new(db: &'a Database, table: &str, wanted: Wanted) -> Result<Build<'a>> {
        let _region = preemption::region();
        let catalog = db.inner().catalog();
        let table = catalog.find(table)?;
        with_index(&table.schema, &wanted)?;
        table.inner.check_not_building()?;
        table.inner.building.store(true, Relaxed);
        Ok(Build {
            db,
            table,
            wanted,
            index: OnceCell::new(),
            live: Cell::new(false),
        })
    }

    fn run(self) -> Result<Index> {
        self.take_marks()?;
        self.begin()?;
        self.cover()?;
        if self.wanted.unique {
            self.enforce()?;
            self.check_unique()?;
        }
        self.finish()
    }

    /// Takes away the marks of a build before (K6).
    fn take_marks(&self) -> Result<()> {
        if !self.table.inner.marked.swap(true, Relaxed) {
            return Ok(());
        }
        self.each_record(|_, record| {
            record::uncover(record);
            Ok(())
        })
    }

    /// Has writers maintain the index (K5).
    fn begin(&self) -> Result<()> {
        self.db.inner().admit_change()?;
        let _region = preemption::region();
        let catalog = self.db.inner().catalog();
        let before = self.table_now(&catalog)?;
        let schema = with_index(&before.schema, &self.wanted)?;
        let declared = schema.indexes().last().expect("just added");
        let inner = &before.inner;
        let index = inner.new_index(&schema, declared, true);
        let mut indexes = inner.set().indexes.clone();
        indexes.push(Arc::clone(&index));
        let ends = [&*inner.set().until];
        self.db.inner().change(None, &ends, |ts| {
            index.begin(ts);
            let covering = Some(Arc::clone(&index));
            inner.replace_set(
                indexes,
                covering,
                Arc::new(TxnStatus::new(Writer::ELSEWHERE)),
            );
        })?;
        let fresh = self.index.set(index).is_ok();
        assert!(fresh, "a build begins once");
        Ok(())
    }

    /// The table as it is now, if it is still there.
    fn table_now(&self, catalog: &Catalog) -> Result<Table> {
        let found = catalog.with_id(self.table.id());
        found.cloned().ok_or_else(|| self.table.inner.changed())
    }

    fn index(&self) -> &Arc<IndexInner> {
        self.index.get().expect("the build has begun")
    }

    /// Covers all records (K5).
    fn cover(&self) -> Result<()> {
        let index = self.index();
        self.each_record(
            |txn, record| match record::committed_row(record, txn.snapshot()) {
                Some((version, ts)) if index.is_older(ts) => {
                    txn.cover_record(index, record, record::row_of(version).expect("a row"))
                }
                _ => Ok(()),
            },
        )
    }

    /// Has writers keep its keys unique (K8).
    fn enforce(&self) -> Result<()> {
        self.db.inner().admit_change()?;
        let _region = preemption::region();
        let catalog = self.db.inner().catalog();
        let inner = self.table_now(&catalog)?.inner;
        let set = inner.set();
        self.db.inner().change(None, &[&set.until], |_| {
            inner.replace_set(
                set.indexes.clone(),
                None,
                Arc::new(TxnStatus::new(Writer::ELSEWHERE)),
            );
        })?;
        Ok(())
    }

    /// Fails if two rows have the same key (K8).
    fn check_unique(&self) -> Result<()> {
        let index = self.index();
        let mut from = KeyBuf::new();
        loop {
            let txn = self.begin_batch()?;
            let mut scan = LeafScan::new(Span::new(from.as_slice(), None), Direction::Forward);
            let mut last: Option<KeyBuf> = None;
            let mut leaves = 0;
            // Not in the middle of a key that a row has: the next batch begins with it,
            // since it may be another one's until then.
            while leaves < LEAVES
                || last
                    .as_ref()
                    .is_some_and(|last| last.as_slice() == from.as_slice())
            {
                leaves += 1;
                if !scan.next_leaf(&index.tree, |_, _, _| {}) {
                    return Ok(());
                }
                while let Some(entry) = scan.next_here() {
                    preemption::record_read();
                    let Some((row, key)) = live_key(index, entry, txn.snapshot()) else {
                        continue;
                    };
                    if last.is_some_and(|last| last.as_slice() == key.as_slice()) {
                        return Err(self.not_unique(row));
                    }
                    last = Some(key);
                }
            }
            from = last.unwrap_or_else(|| KeyBuf::from(scan.rest_from()));
            txn.commit_visible()?;
        }
    }

    /// The error about a row with the same key as another.
    fn not_unique(&self, row: &[u8]) -> Error {
        let values = self.index().key.values(row);
        let values: Vec<_> = values.iter().map(Value::to_string).collect();
        SchemaError::NotUnique {
            index: self.wanted.name.clone(),
            table: self.table.name().to_owned(),
            key: values.join(", "),
        }
        .into()
    }

    /// Begins a short transaction, if the table is still there.
    fn begin_batch(&self) -> Result<Transaction<'_>> {
        let options = TxnOptions::read_only().tier(Tier::Background);
        let txn = self.db.begin(options.label(&"index build"))?;
        match self.table.inner.is_dropped() {
            false => Ok(txn),
            true => Err(self.table.inner.changed()),
        }
    }

    /// Calls a function with every record, in short transactions. Those that come
    /// meanwhile may be left out.
    fn each_record(&self, each: impl Fn(&Transaction<'_>, Record) -> Result<()>) -> Result<()> {
        let inner = &*self.table.inner;
        let mut scan = scan_all();
        loop {
            let txn = self.begin_batch()?;
            for _ in 0..LEAVES {
                let Some(records) = next_leaf(&mut scan, inner) else {
                    return Ok(());
                };
                for record in records {
                    preemption::record_read();
                    each(&txn, record)?;
                }
            }
            txn.commit_visible()?;
        }
    }

    /// Lets it be read (K7), and makes it last.
    fn finish(self) -> Result<Index> {
        self.db.inner().admit_change()?;
        let inner = Arc::clone(self.index());
        let (table, ts) = {
            let _region = preemption::region();
            let mut catalog = self.db.inner().catalog();
            let before = self.table_now(&catalog)?;
            let schema = with_index(&before.schema, &self.wanted)?;
            let after = before.with_schema(schema, false);
            let change = SchemaChange::Table {
                id: after.id(),
                schema: &after.schema,
            };
            let set = before.inner.set();
            let is_this = |enforced: &Arc<IndexInner>| Arc::ptr_eq(enforced, &inner);
            assert!(
                !self.wanted.unique || set.enforced.iter().any(is_this),
                "K8"
            );
            let (indexes, until) = (set.indexes.clone(), Arc::clone(&set.until));
            let publish = |ts| {
                inner.go_live(ts);
                // The same duties, but for covering: nobody has to run again.
                before.inner.replace_set(indexes, None, until);
                catalog.replace(after.clone());
            };
            let ts = self.db.inner().change(Some(&change), &[], publish)?;
            self.live.set(true);
            (after, ts)
        };
        let db = self.db;
        drop(self);
        db.inner().wait_change(ts)?;
        Ok(Index { table, inner })
    }

    /// Takes back an index that has begun and is not live.
    fn abandon(&self, index: &Arc<IndexInner>) {
        let _region = preemption::region();
        let catalog = self.db.inner().catalog();
        let Ok(table) = self.table_now(&catalog) else {
            // It was dropped, with this index.
            return;
        };
        let inner = &table.inner;
        let ends = [&*inner.set().until, &index.ended];
        let changed = self.db.inner().change(None, &ends, |_| inner.leave(index));
        changed.expect("what is not logged cannot fail");
        let piece = Retired::Index(&raw const **index);
        self.db.inner().retire([piece]);
    }
}

impl Drop for Build<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index.get() {
            if !self.live.get() {
                self.abandon(index);
            }
            // Before another build takes the marks away (K6).
            index.gate.close();
        }
        self.table.inner.building.store(false, Release);
    }
}

impl Transaction<'_> {
    /// Covers a record, if there is memory for it.
    fn cover_record(&self, index: &IndexInner, record: Record, row: &[u8]) -> Result<()> {
        self.with(|txn_context| {
            // SAFETY: found in this transaction (E1).
            let key = unsafe { record.bytes() };
            // No key is much longer than its row.
            let bytes = IndexEntry::size(row.len() + key.len());
            self.db
                .may_grow(self.slot, txn_context, Request::beside(bytes))?;
            txn_context.cover(index, record, row);
            txn_context.seal(&self.db.epochs);
            Ok(())
        })
    }

    /// Counts the row that a record is, while nothing else uses the database.
    fn fill(&self, index: &IndexInner, record: Record) {
        let Some((version, _)) = record::committed_row(record, u64::MAX >> 2) else {
            return;
        };
        let row = record::row_of(version).expect("a row");
        let mut key = KeyBuf::new();
        index.key.of_row(row, &mut key);
        // SAFETY: nobody removes the record.
        key.push(unsafe { record.bytes() });
        self.with(|txn_context| {
            let bytes = IndexEntry::size(key.as_slice().len());
            self.db
                .make_room(self.slot, txn_context, Request::beside(bytes));
            txn_context.begin_span(index, record, key.as_slice());
        });
    }
}

/// The row that an entry leads to at this snapshot, if it has the entry's key, and that
/// is equal to any.
fn live_key<'a>(
    index: &IndexInner,
    entry: IndexEntry,
    snapshot: u64,
) -> Option<(&'a [u8], KeyBuf)> {
    // SAFETY: found in an open transaction (T1).
    let (record, bytes) = unsafe { (entry.head().record, entry.bytes()) };
    let (version, _) = record::committed_row(record, snapshot)?;
    let row = record::row_of(version)?;
    let key = unique_key(index, row)?;
    bytes.starts_with(key.as_slice()).then_some((row, key))
}

fn scan_all() -> LeafScan<RecordHead> {
    LeafScan::new(Span::new(&[], None), Direction::Forward)
}

/// The records of the next leaf; `None` at the end.
fn next_leaf(scan: &mut LeafScan<RecordHead>, table: &TableInner) -> Option<Vec<Record>> {
    let more = scan.next_leaf(&table.primary, |_, _, _| {});
    more.then(|| std::iter::from_fn(|| scan.next_here()).collect())
}

/// The schema with another index.
fn with_index(schema: &Schema, wanted: &Wanted) -> result::Result<Schema, SchemaError> {
    let columns = wanted.columns.iter();
    let positions: result::Result<Vec<_>, _> = columns.map(|name| schema.column(name)).collect();
    let mut indexes = schema.parts().indexes;
    indexes.push(IndexSchema {
        name: wanted.name.clone(),
        unique: wanted.unique,
        columns: schema.numbers(&positions?),
    });
    schema.with_indexes(indexes)
}

/// The schema without this index.
fn without_index(schema: &Schema, name: &str) -> result::Result<Schema, SchemaError> {
    let mut indexes = schema.parts().indexes;
    indexes.retain(|index| index.name != name);
    schema.with_indexes(indexes)
}

#[cfg(test)]
mod tests;
