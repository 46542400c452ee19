//! Inserting, updating, deleting: putting a version above the newest one.
//!
//! ```text
//!  look the key up ─► head of the record? ─► make a version ─► compare-and-swap
//!        ▲              │ running transaction's: conflict          │ lost: again
//!        │              │ committed after the snapshot: conflict   ▼
//!        └── dead ◄─────┘                                  into the list of writes,
//!                                                          then index spans
//! ```
//!
//! A write that is refused for its contents is an error after which the transaction goes
//! on: for a unique key, a NULL, the primary key, a row that is there. Its program has
//! then learned something and nothing was written, so C3 does not cover it: for the
//! certifier it was a read ([`Unwritten`], `note_key`, `note_free`).
//!
//! Nobody waits here, so nothing needs a region but the latches of the indexes:
//! a transaction that is paused with versions in place makes others fail, not
//! hang, and one on the same worker can let it go on (`Database::run`).

use std::sync::Arc;

use crate::claims::Claimed;
use crate::error::{Error, Result, SchemaError};
use crate::key::{Key, KeyBuf};
use crate::limits::Request;
use crate::preemption::{self, Writer};
use crate::record::{self, Head, Record, RecordHead, Version, View, Writable};
use crate::row::RowBuf;
use crate::sync::Wait;
use crate::table::{IndexInner, IndexSet, Table, TableInner};
use crate::tree::Spot;
use crate::txn::{Isolation, Transaction};
use crate::txn_context::{SpanChange, TxnContext, Write};
use crate::txn_status::TxnStatus;

/// A version that may be written over.
enum Base {
    /// The record is no more.
    Dead,
    /// Somebody's, committed at this time.
    Committed(Version, u64),
    /// The transaction's own.
    Own(Version),
}

impl Base {
    fn version(&self) -> Option<Version> {
        match *self {
            Base::Dead => None,
            Base::Committed(version, _) | Base::Own(version) => Some(version),
        }
    }

    /// The version, if it is a row.
    fn row(&self) -> Option<Version> {
        let is_row = |version: &Version| !record::is_tombstone(*version);
        self.version().filter(is_row)
    }
}

/// A row that is about to be changed. Its program sees it, so it counts as read unless
/// it was [`written`](Unwritten::written): the change may be refused, or panic.
struct Unwritten<'a, 'db> {
    txn: &'a Transaction<'db>,
    record: Record,
    base: &'a Base,
}

impl Unwritten<'_, '_> {
    /// The row was changed: no other transaction can have changed it meanwhile (C3).
    #[inline]
    fn written(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unwritten<'_, '_> {
    fn drop(&mut self) {
        self.txn.note_base(self.record, self.base);
    }
}

impl Transaction<'_> {
    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::DuplicateKey`] if there is one with its primary key. Beyond
    /// that, as all writes: [`Error::Conflict`], [`Error::OutOfMemory`] and what
    /// every operation may meet.
    pub fn insert(&self, table: &Table, row: &RowBuf<'_>) -> Result<()> {
        self.insert_row(table, row)
    }

    /// Adds a row: the function gets it all NULL and fills it. As
    /// [`insert`](Transaction::insert), in memory that the transaction has for
    /// this.
    ///
    /// # Errors
    /// As [`insert`](Transaction::insert).
    pub fn insert_with(&self, table: &Table, fill: impl FnOnce(&mut RowBuf<'_>)) -> Result<()> {
        let buffer = self.with(|txn_context| std::mem::take(&mut txn_context.row));
        let mut row = RowBuf::new_in(&table.schema, buffer);
        fill(&mut row);
        let done = self.insert_row(table, &row);
        self.with(|txn_context| txn_context.row = row.into_buffer());
        done
    }

    #[inline]
    fn insert_row(&self, table: &Table, row: &RowBuf<'_>) -> Result<()> {
        let set = self.begin_write(table)?;
        check_row_is_of(table, row)?;
        row.check_nulls()?;
        let table = set.table();
        let mut key = KeyBuf::new();
        table.key.of_row(row.raw(), &mut key);
        let done = self.insert_with_key(set, key.as_slice(), row);
        if let Err(Error::UniqueViolation { .. }) = done {
            // It tells that there is no row with the primary key.
            self.note_key(table, key.as_slice());
        }
        done
    }

    #[inline]
    fn insert_with_key(&self, set: &IndexSet, key: &[u8], row: &RowBuf<'_>) -> Result<()> {
        let table = set.table();
        let mut wait = Wait::new();
        loop {
            let spot = self.with(|txn_context| txn_context.spot(table, key));
            let Some(record) = spot.entry else {
                if self.insert_new(set, &spot, key, row)? {
                    return Ok(());
                }
                continue;
            };
            let base = self.base(record)?;
            let Some(version) = base.version() else {
                // It is being removed, in a region.
                wait.step();
                continue;
            };
            if !record::is_tombstone(version) {
                self.note_base(record, &base);
                return Err(Error::DuplicateKey {
                    table: Arc::clone(&table.name),
                });
            }
            if let Some(claimed) = self.put(set, record, &base, None, Some(row.raw()))? {
                self.begin_spans(set, record, row.raw());
                drop(claimed);
                return Ok(());
            }
        }
    }

    /// Changes a row: the function gets it as it is, and leaves it as it shall
    /// be. It may be called again if another transaction interferes, or if it
    /// writes the row itself.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such row, and as
    /// [`insert`](Transaction::insert).
    pub fn update(
        &self,
        table: &Table,
        key: impl Key,
        mut change: impl FnMut(&mut RowBuf<'_>),
    ) -> Result<()> {
        let set = self.begin_write(table)?;
        let mut bytes = KeyBuf::new();
        table.inner.key.whole(&key, &mut bytes)?;
        loop {
            let (record, base, version) = self.existing(set.table(), bytes.as_slice())?;
            let before = record::row_of(version).expect("an existing row");
            let unwritten = Unwritten {
                txn: self,
                record,
                base: &base,
            };
            let buffer = self.with(|txn_context| std::mem::take(&mut txn_context.row));
            let mut row = RowBuf::to_change(&table.schema, buffer, before);
            change(&mut row);
            let done = check_update(table, &row, bytes.as_slice())
                .and_then(|()| self.put(set, record, &base, Some(before), Some(row.raw())));
            if let Ok(Some(_)) = done {
                unwritten.written();
                self.cover(set, record, &base, before);
                self.move_spans(set, record, before, &row);
            }
            // Gives up what was claimed, too.
            let done = done.map(|put| put.is_some());
            self.with(|txn_context| txn_context.row = row.into_buffer());
            if done? {
                return Ok(());
            }
        }
    }

    /// Removes a row.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such row, and as
    /// [`insert`](Transaction::insert).
    pub fn delete(&self, table: &Table, key: impl Key) -> Result<()> {
        let set = self.begin_write(table)?;
        let mut bytes = KeyBuf::new();
        table.inner.key.whole(&key, &mut bytes)?;
        loop {
            let (record, base, version) = self.existing(set.table(), bytes.as_slice())?;
            let before = record::row_of(version).expect("an existing row");
            if self.put(set, record, &base, Some(before), None)?.is_some() {
                self.cover(set, record, &base, before);
                self.end_spans(set, record, before);
                return Ok(());
            }
        }
    }

    /// Before every write: the indexes that it has to maintain.
    #[inline]
    fn begin_write<'t>(&self, table: &'t Table) -> Result<&'t IndexSet> {
        self.check(table)?;
        self.check_writes()?;
        Ok(table.inner.set())
    }

    /// The record with this key and its newest version, which is a row and may be
    /// written over.
    fn existing(&self, table: &TableInner, key: &[u8]) -> Result<(Record, Base, Version)> {
        preemption::record_read();
        if let Some(record) = self.prefetched(table, key) {
            let base = self.base(record)?;
            if let Some(version) = base.row() {
                return Ok((record, base, version));
            }
        }
        let found = table.primary.lookup(key);
        if let Some(record) = found.entry {
            let base = self.base(record)?;
            if let Some(version) = base.row() {
                return Ok((record, base, version));
            }
            self.note_base(record, &base);
        }
        self.note_absent(table, found.leaf, key);
        Err(Error::NotFound {
            table: Arc::clone(&table.name),
        })
    }

    /// Remembers that a record was looked at to be written, and was not.
    fn note_base(&self, record: Record, base: &Base) {
        self.note_doubt(record);
        let view = View {
            version: base.row(),
            own: matches!(base, Base::Own(_)),
        };
        self.note_read(record, view);
    }

    /// What may be written over: first updater wins.
    fn base(&self, record: Record) -> Result<Base> {
        match record::writable(record, self.status.get()) {
            Writable::Dead => Ok(Base::Dead),
            Writable::Own(version) => Ok(Base::Own(version)),
            Writable::Committed(version, ts) => {
                if self.isolation != Isolation::ReadCommitted && ts > self.snapshot() {
                    return Err(self.fail(Error::Conflict { below: false }));
                }
                Ok(Base::Committed(version, ts))
            }
            Writable::Busy { writer } => Err(self.fail(Error::Conflict {
                below: writer.is_below(),
            })),
        }
    }

    /// The transaction's status, from its first write on.
    fn status(&self) -> *mut TxnStatus {
        if self.status.get().is_null() {
            let status = Box::into_raw(Box::new(TxnStatus::new(Writer::here())));
            self.status.set(status);
            self.with(|txn_context| txn_context.allocated(size_of::<TxnStatus>()));
        }
        self.status.get()
    }

    /// Whether there is memory for a version of this row, and for its record if its key is
    /// new. For a tombstone there always is: deleting is the way to get memory back.
    fn reserve(&self, row: Option<&[u8]>, new_key: Option<&[u8]>) -> Result<()> {
        let version = Version::size(row.unwrap_or_default().len());
        let record = new_key.map_or(0, |key| Record::size(key.len()));
        let request = match new_key {
            Some(_) => Request::record(version, record),
            None => Request::version(version),
        };
        let reserved = self.with(|txn_context| {
            if row.is_some() {
                self.db.may_grow(self.slot, txn_context, request)?;
            }
            txn_context.allocated(version + record);
            Ok(())
        });
        reserved.map_err(|error| self.fail(error))
    }

    /// Adds a record. False if somebody else has, meanwhile.
    fn insert_new(
        &self,
        set: &IndexSet,
        spot: &Spot<RecordHead>,
        key: &[u8],
        row: &RowBuf<'_>,
    ) -> Result<bool> {
        let bytes = Version::size(row.raw().len()) + Record::size(key.len());
        self.reserve(Some(row.raw()), Some(key))?;
        let claimed = match set.enforced.is_empty() {
            true => None,
            false => self.claim_reserved(set, key, None, row.raw(), bytes)?,
        };
        let (table, status) = (set.table(), self.status());
        let inserted = self.with(|txn_context| {
            let (pool, index) = (&mut txn_context.pool, txn_context.writes.len());
            let version = record::new_version(pool, status, None, index, Some(row.raw()));
            let record = record::new_record(pool, key, version);
            // SAFETY: records are removed before they are retired.
            let inserted = unsafe { table.primary.insert(record, spot, txn_context) };
            let Ok(finger) = inserted else {
                // SAFETY: nobody has seen them.
                unsafe {
                    version.free_in(&mut txn_context.pool);
                    record.free_in(&mut txn_context.pool);
                }
                txn_context.freed(bytes);
                return None;
            };
            txn_context.finger = finger.map(|finger| (std::ptr::from_ref(table), finger));
            txn_context.writes.push(Write {
                set,
                record,
                base: None,
                new: version,
            });
            Some(record)
        });
        if let Some(record) = inserted {
            self.begin_spans(set, record, row.raw());
        }
        drop(claimed);
        Ok(inserted.is_some())
    }

    /// Claims the unique keys of a row for which so many bytes are reserved.
    #[cold]
    fn claim_reserved<'t>(
        &self,
        set: &'t IndexSet,
        key: &[u8],
        before: Option<&[u8]>,
        row: &[u8],
        bytes: usize,
    ) -> Result<Option<Claimed<'t>>> {
        let claimed = self.claim(set, key, before, row);
        if claimed.is_err() {
            self.with(|txn_context| txn_context.freed(bytes));
        }
        claimed
    }

    /// Puts a version above the record's newest one, `before`, if that is a row; without
    /// a row, a tombstone. With it come the claims to its keys, to be kept until the
    /// indexes have them. `None` if another version is the newest by now.
    fn put<'t>(
        &self,
        set: &'t IndexSet,
        record: Record,
        base: &Base,
        before: Option<&[u8]>,
        row: Option<&[u8]>,
    ) -> Result<Option<Option<Claimed<'t>>>> {
        if let Base::Own(old) = *base {
            self.check_own(set, old)?;
        }
        self.reserve(row, None)?;
        let claimed = match row {
            Some(row) if !set.enforced.is_empty() => {
                // SAFETY: found while the transaction is open (T1).
                let key = unsafe { record.bytes() };
                self.claim_reserved(set, key, before, row, Version::size(row.len()))?
            }
            _ => None,
        };
        let status = self.status();
        let done = self.with(|txn_context| match *base {
            Base::Dead => unreachable!("dead records are looked up again"),
            // An update's function has written the row, too.
            Base::Own(old) if record::head_of(record) != Head::Version(old) => false,
            Base::Own(old) => {
                let index = record::write_index(old);
                let version = record::new_version(
                    &mut txn_context.pool,
                    status,
                    record::next_of(old),
                    index,
                    row,
                );
                record::replace_own(record, version);
                txn_context.writes[index].new = version;
                txn_context.retire_version(old);
                true
            }
            Base::Committed(base, _) => {
                let index = txn_context.writes.len();
                let version =
                    record::new_version(&mut txn_context.pool, status, Some(base), index, row);
                let on_tombstone = record::is_tombstone(base);
                if on_tombstone {
                    record::hold(record);
                }
                if !record::push(record, base, version) {
                    if on_tombstone {
                        record::unhold(record);
                    }
                    // SAFETY: nobody has seen it.
                    unsafe { version.free_in(&mut txn_context.pool) };
                    txn_context.freed(Version::size(row.unwrap_or_default().len()));
                    return false;
                }
                txn_context.writes.push(Write {
                    set,
                    record,
                    base: Some(base),
                    new: version,
                });
                true
            }
        });
        Ok(done.then_some(claimed))
    }

    /// Fails if the transaction has written this version of its own under another set:
    /// it may lack spans, and could not be committed (K1).
    fn check_own(&self, set: &IndexSet, own: Version) -> Result<()> {
        let until = self.with(|txn_context| {
            let write = &txn_context.writes[record::write_index(own)];
            Arc::as_ptr(&write.set().until)
        });
        match std::ptr::eq(until, Arc::as_ptr(&set.until)) {
            true => Ok(()),
            false => Err(self.fail(set.table().changed())),
        }
    }

    /// After a row was written over: it is in the index that is being built (K5).
    #[inline]
    fn cover(&self, set: &IndexSet, record: Record, base: &Base, row: &[u8]) {
        if let Some(index) = &set.covering
            && let Base::Committed(_, ts) = *base
            && index.is_older(ts)
        {
            self.with(|txn_context| txn_context.cover(index, record, row));
        }
    }

    /// The spans of a row that there was not before.
    fn begin_spans(&self, set: &IndexSet, record: Record, row: &[u8]) {
        for index in &set.indexes {
            self.with(|txn_context| change_span(txn_context, index, record, row, true));
        }
    }

    /// The spans of a row that there is no more.
    fn end_spans(&self, set: &IndexSet, record: Record, row: &[u8]) {
        for index in &set.indexes {
            self.with(|txn_context| change_span(txn_context, index, record, row, false));
        }
    }

    /// The spans of a row that was changed.
    #[inline]
    fn move_spans(&self, set: &IndexSet, record: Record, before: &[u8], row: &RowBuf<'_>) {
        let after = row.raw();
        for index in &set.indexes {
            if index.key.is_kept(row.touched()) {
                continue;
            }
            let (mut old, mut new) = (KeyBuf::new(), KeyBuf::new());
            index.key.of_row(before, &mut old);
            index.key.of_row(after, &mut new);
            if old.as_slice() != new.as_slice() {
                self.with(|txn_context| {
                    change_span(txn_context, index, record, before, false);
                    change_span(txn_context, index, record, after, true);
                });
            }
        }
    }
}

/// Begins or ends the span of a row in an index.
fn change_span(
    txn_context: &mut TxnContext,
    index: &IndexInner,
    record: Record,
    row: &[u8],
    begins: bool,
) {
    let mut key = KeyBuf::new();
    index.key.of_row(row, &mut key);
    // SAFETY: the record is part of the open transaction.
    key.push(unsafe { record.bytes() });
    let entry = if begins {
        txn_context.begin_span(index, record, key.as_slice())
    } else if let Some(entry) = index.tree.lookup(key.as_slice()).entry {
        entry
    } else {
        // Written by somebody who knew that the index was dropped. This transaction
        // cannot commit (K1).
        assert!(
            !index.ended.is_active(),
            "a row has its index entries until no snapshot needs them"
        );
        return;
    };
    txn_context.spans.push(SpanChange {
        index,
        entry,
        begins,
    });
}

fn check_row_is_of(table: &Table, row: &RowBuf<'_>) -> Result<()> {
    if row.schema().has_rows_of(&table.schema) {
        return Ok(());
    }
    Err(SchemaError::OtherTable {
        expected: table.name().to_owned(),
        given: row.schema().name().to_owned(),
    }
    .into())
}

fn check_update(table: &Table, row: &RowBuf<'_>, key: &[u8]) -> Result<()> {
    check_row_is_of(table, row)?;
    row.check_nulls()?;
    let spec = &table.inner.key;
    if spec.is_kept(row.touched()) {
        return Ok(());
    }
    let mut after = KeyBuf::new();
    spec.of_row(row.raw(), &mut after);
    if after.as_slice() == key {
        return Ok(());
    }
    Err(SchemaError::PrimaryKeyChanged {
        table: table.schema.name().to_owned(),
    }
    .into())
}
