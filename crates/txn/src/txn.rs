//! A transaction: what it may see, and reading.
//!
//! | isolation | reads | refuses |
//! | --- | --- | --- |
//! | read committed | what is committed when each operation begins | dirty writes and reads |
//! | snapshot | what was committed when the transaction began | and fuzzy reads, phantoms, lost updates, long forks |
//! | serializable | the same, and it still is so when it commits | and write skew, the read-only anomaly |
//!
//! Writes are in `write`, the way out in `commit`. Every operation takes `&self`,
//! so that rows, which borrow the transaction, may be used while others are
//! written; a transaction therefore belongs to one context and is neither `Send`
//! nor `Sync`.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

use giveway_tier::Tier;

use crate::database::{Inner, coarse_ms, count};
use crate::error::{Error, Result, SchemaError};
use crate::key::{Key, KeyBuf};
use crate::limits::{CHECK_EVERY, Request};
use crate::log::DurabilityError;
use crate::node_set::{IndexRead, NodeSet};
use crate::preemption;
use crate::record::{self, Record, View};
use crate::row::Row;
use crate::schema::Schema;
use crate::sync::{Relaxed, SLOTS};
use crate::table::{Table, TableInner};
use crate::thin;
use crate::tree::LeafSeen;
use crate::txn_context::TxnContext;
use crate::txn_status::TxnStatus;

/// Deadlines are checked every so many operations.
const DEADLINE_EVERY: u32 = 32;

/// Bytes that a transaction may note of what it has read, however short memory is. So
/// reading what is to be deleted stays possible.
const NOTES_FREE: usize = 1 << 20;

/// In place of the last durable timestamp: the log goes on.
const ON: u64 = u64::MAX;

/// How much of a row that is read is asked for at once, in bytes: as many lines as a CPU
/// loads at a time.
const AHEAD_BYTES: usize = 1024;

/// So many rows are asked for at once.
const PREFETCH_GROUP: usize = 16;

/// Which anomalies a transaction accepts. `docs/build/txn.md` has the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each operation sees what is committed when it begins.
    ReadCommitted,
    /// All operations see what was committed when the transaction began, and
    /// the first to update a row wins.
    #[default]
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commit
    /// timestamps. Holds among serializable transactions.
    Serializable,
}

/// How a transaction runs.
#[derive(Clone, Debug)]
pub struct TxnOptions {
    /// Which anomalies it accepts.
    pub isolation: Isolation,
    /// Its tier, shown where the oldest snapshot is reported. One of the background
    /// frees at its end whatever nobody can see any more. The level it runs on is the
    /// caller's choice.
    pub tier: Tier,
    /// Abort after this instant; checked every 32 operations.
    pub deadline: Option<Instant>,
    /// It promises to write nothing. A serializable one then reads its snapshot
    /// without being certified: all others are in the order of their timestamps,
    /// so the snapshot is a state between two of them.
    pub read_only: bool,
    /// What it calls itself in [`Stats`](crate::Stats).
    pub label: &'static &'static str,
}

impl Default for TxnOptions {
    /// Snapshot isolation, time-sensitive, no deadline.
    fn default() -> TxnOptions {
        TxnOptions {
            isolation: Isolation::Snapshot,
            tier: Tier::DEFAULT,
            deadline: None,
            read_only: false,
            label: &"",
        }
    }
}

impl TxnOptions {
    fn with(isolation: Isolation) -> TxnOptions {
        TxnOptions {
            isolation,
            ..TxnOptions::default()
        }
    }

    /// Read committed.
    pub fn read_committed() -> TxnOptions {
        TxnOptions::with(Isolation::ReadCommitted)
    }

    /// Snapshot isolation.
    pub fn snapshot() -> TxnOptions {
        TxnOptions::with(Isolation::Snapshot)
    }

    /// Serializable.
    pub fn serializable() -> TxnOptions {
        TxnOptions::with(Isolation::Serializable)
    }

    /// A snapshot that nothing is written in.
    pub fn read_only() -> TxnOptions {
        TxnOptions {
            read_only: true,
            ..TxnOptions::default()
        }
    }

    /// With this tier.
    #[must_use]
    pub fn tier(self, tier: Tier) -> TxnOptions {
        TxnOptions { tier, ..self }
    }

    /// With this deadline.
    #[must_use]
    pub fn deadline(self, deadline: Instant) -> TxnOptions {
        TxnOptions {
            deadline: Some(deadline),
            ..self
        }
    }

    /// With this name in statistics: `.label(&"stock level")`.
    #[must_use]
    pub fn label(self, label: &'static &'static str) -> TxnOptions {
        TxnOptions { label, ..self }
    }
}

/// An open transaction. Dropping it aborts it.
pub struct Transaction<'db> {
    pub(crate) db: &'db Inner,
    pub(crate) slot: usize,
    /// The last commit that it sees.
    snapshot: Cell<u64>,
    /// The era that it published (E1); names it in its slot's `doomed`.
    published: u64,
    /// Made with the first write.
    pub(crate) status: Cell<*mut TxnStatus>,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    pub(crate) tier: Tier,
    pub(crate) deadline: Option<Instant>,
    operations: Cell<u32>,
    failed: RefCell<Option<Error>>,
    /// If the log had failed when it began: the last timestamp that is durable.
    durable: u64,
    /// Whether it has seen something later than that.
    in_doubt: Cell<bool>,
    _of_one_context: PhantomData<*mut ()>,
}

thread_local! {
    /// The slot that this context had last.
    static HINT: Cell<usize> = const { Cell::new(0) };
}

impl<'db> Transaction<'db> {
    #[inline]
    pub(crate) fn begin(db: &'db Inner, options: TxnOptions) -> Result<Transaction<'db>> {
        let hint = HINT.with(Cell::get);
        let Some((slot, snapshot)) = db.epochs.claim(hint) else {
            return Err(Error::TooManyTransactions { limit: SLOTS });
        };
        if slot != hint {
            HINT.with(|hint| hint.set(slot));
        }
        let shared = db.shared(slot);
        shared
            .label
            .store(ptr::from_ref(options.label).cast_mut(), Relaxed);
        shared.doomed.store(0, Relaxed);
        shared.tier.store(options.tier as u8, Relaxed);
        shared.since_ms.store(coarse_ms(), Relaxed);
        shared.snapshot.store(snapshot, Relaxed);
        let published = db.epochs.published(slot);
        let sink = db.sink.get();
        Ok(Transaction {
            db,
            slot,
            snapshot: Cell::new(snapshot),
            published,
            status: Cell::new(ptr::null_mut()),
            isolation: options.isolation,
            read_only: options.read_only || sink.is_some_and(|sink| sink.is_read_only()),
            tier: options.tier,
            deadline: options.deadline,
            operations: Cell::new(0),
            failed: RefCell::new(None),
            durable: sink.and_then(|sink| sink.end()).unwrap_or(ON),
            in_doubt: Cell::new(false),
            _of_one_context: PhantomData,
        })
    }

    /// The txn_context. The function must not use the transaction.
    #[inline]
    pub(crate) fn with<R>(&self, function: impl FnOnce(&mut TxnContext) -> R) -> R {
        // SAFETY: the slot is this transaction's (E2), which belongs to one
        // context; calls do not nest, as nothing called from here comes back.
        function(unsafe { &mut *self.db.epochs.private(self.slot).get() })
    }

    /// The timestamp of the last commit that the transaction sees.
    pub fn snapshot(&self) -> u64 {
        self.snapshot.get()
    }

    /// Whether what it reads must still hold when it commits.
    #[inline]
    pub(crate) fn is_certified(&self) -> bool {
        self.isolation == Isolation::Serializable && !self.read_only
    }

    /// Before anything of a table is looked at: the slot holds back only what its own
    /// database frees (E1).
    #[inline]
    fn assert_own(&self, table: &Table) {
        assert!(
            table.inner.database == self.db.id,
            "table '{}' belongs to another database",
            table.name()
        );
    }

    /// Before every operation: whether the transaction can go on.
    #[inline]
    pub(crate) fn check(&self, table: &Table) -> Result<()> {
        self.assert_own(table);
        let operations = self.operations.get().wrapping_add(1);
        self.operations.set(operations);
        if self.failed.borrow().is_some() || self.db.shared(self.slot).doomed.load(Relaxed) != 0 {
            self.check_failed()?;
        }
        if operations.is_multiple_of(DEADLINE_EVERY) {
            self.check_deadline()?;
            self.check_notes()?;
        }
        if self.isolation == Isolation::ReadCommitted {
            self.snapshot.set(self.db.epochs.now());
        }
        self.check_served(table)
    }

    /// Whether the table is there, for a handle that may be older.
    #[inline]
    pub(crate) fn check_served(&self, table: &Table) -> Result<()> {
        if table.is_served() {
            return Ok(());
        }
        Err(self.end_with(table.refused()))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// For every row of a scan, which may be long: whether the transaction can go
    /// on.
    #[inline]
    pub(crate) fn check_scan(&self) -> Result<()> {
        let operations = self.operations.get().wrapping_add(1);
        self.operations.set(operations);
        if operations.is_multiple_of(DEADLINE_EVERY) {
            self.check_failed()?;
            self.check_deadline()?;
            self.check_notes()?;
        }
        Ok(())
    }

    /// Whether there is memory for what the transaction notes of its reads.
    fn check_notes(&self) -> Result<()> {
        if !self.is_certified() {
            return Ok(());
        }
        let checked = self.with(|txn_context| {
            let due = txn_context.unchecked >= CHECK_EVERY && txn_context.notes() > NOTES_FREE;
            let more = Request::beside(txn_context.unchecked.min(CHECK_EVERY));
            match due {
                true => self.db.check_limits(self.slot, txn_context, more),
                false => Ok(()),
            }
        });
        checked.map_err(|error| self.fail(error))
    }

    pub(crate) fn check_failed(&self) -> Result<()> {
        if let Some(error) = &*self.failed.borrow() {
            return Err(error.clone());
        }
        // Somebody else's doom, left in the slot, names another era. Who is doomed holds
        // back something that was stamped since, so whoever came after has a later one.
        if self.db.shared(self.slot).doomed.load(Relaxed) == self.published + 1 {
            return Err(self.fail(Error::SnapshotTooOld));
        }
        Ok(())
    }

    pub(crate) fn check_deadline(&self) -> Result<()> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(self.fail(Error::Timeout)),
            _ => Ok(()),
        }
    }

    /// The error of a schema that has changed, after which the transaction can only be
    /// aborted unless its program is wrong.
    #[cold]
    pub(crate) fn end_with(&self, error: Error) -> Error {
        match error {
            Error::Schema(_) => error,
            error => self.fail(error),
        }
    }

    /// From now on the transaction can only be aborted.
    #[cold]
    pub(crate) fn fail(&self, error: Error) -> Error {
        if matches!(error, Error::Conflict { .. }) {
            count(&self.db.shared(self.slot).conflicts);
        }
        *self.failed.borrow_mut() = Some(error.clone());
        error
    }

    /// The row with this primary key.
    #[inline]
    pub fn get<'t>(&'t self, table: &'t Table, key: impl Key) -> Result<Option<Row<'t>>> {
        self.check(table)?;
        let (table, schema) = (&*table.inner, &table.schema);
        let mut bytes = KeyBuf::new();
        table.key.whole(&key, &mut bytes)?;
        preemption::record_read();
        if let Some(record) = self.prefetched(table, bytes.as_slice()) {
            let view = record::view(record, self.snapshot.get(), self.status.get(), true);
            if let Some(row) = self.row(schema, view) {
                self.note_doubt(record);
                self.note_read(record, view);
                return Ok(Some(row));
            }
        }
        let view = self.note_key(table, bytes.as_slice());
        Ok(view.and_then(|view| self.row(schema, view)))
    }

    /// Looks a primary key up and remembers what it saw of it.
    #[inline]
    pub(crate) fn note_key(&self, table: &TableInner, key: &[u8]) -> Option<View> {
        let found = table.primary.lookup(key);
        let view = found.entry.map(|record| self.see(record));
        if view.is_none_or(|view| view.version.is_none()) {
            self.note_absent(table, found.leaf, key);
        }
        view
    }

    /// Prefetches the rows with these keys, which will be read or changed soon, in
    /// any order: their cache lines are loaded in parallel. It changes only how
    /// long that takes. It pays for many rows that are not in the cache, and costs
    /// some 50 ns for each that is. Keys without a row, or that do not fit the
    /// table, do no harm, and neither does a table that was dropped.
    ///
    /// # Panics
    /// If the table is of another database.
    pub fn prefetch<K: Key>(&self, table: &Table, keys: impl IntoIterator<Item = K>) {
        self.assert_own(table);
        if !table.is_served() {
            return;
        }
        let table = &*table.inner;
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            // All leaves are asked for before the first is looked at, then all
            // records, then all versions: so the processor waits for each kind
            // once, and not for every one in turn.
            let mut leaves = [const { None }; PREFETCH_GROUP];
            for (leaf, key) in leaves.iter_mut().zip(keys.by_ref()) {
                let mut bytes = KeyBuf::new();
                if table.key.whole(&key, &mut bytes).is_ok() {
                    *leaf = table.primary.approach(bytes.as_slice());
                }
            }
            let records = leaves.map(|leaf| leaf.and_then(|leaf| leaf.entry()));
            self.with(|txn_context| {
                for record in records.into_iter().flatten() {
                    record::prefetch_version(record, record::USUAL_BYTES);
                    txn_context.prefetched.add(table, record);
                }
            });
        }
    }

    /// The record with this key, if [`prefetch`](Transaction::prefetch) has found
    /// it.
    #[inline]
    pub(crate) fn prefetched(&self, table: &TableInner, key: &[u8]) -> Option<Record> {
        self.with(|txn_context| txn_context.prefetched.find(table, key))
    }

    #[inline]
    pub(crate) fn row<'t>(&self, schema: &'t Schema, view: View) -> Option<Row<'t>> {
        let bytes = view.version.and_then(record::row_of)?;
        // Whoever reads column by column would wait for each line of memory in turn.
        thin::prefetch(bytes.as_ptr(), bytes.len().min(AHEAD_BYTES));
        Some(Row::new(schema, bytes))
    }

    /// NodeSet at a record, and remembers what it saw.
    #[inline]
    pub(crate) fn see(&self, record: Record) -> View {
        let view = record::view(record, self.snapshot.get(), self.status.get(), true);
        self.note_doubt(record);
        self.note_read(record, view);
        view
    }

    /// Remembers that it has looked at something that may be lost.
    #[inline]
    pub(crate) fn note_doubt(&self, record: Record) {
        if self.durable != ON
            && record::seen_at(record, self.snapshot.get()).is_some_and(|ts| ts > self.durable)
        {
            self.in_doubt.set(true);
        }
    }

    /// What has to be durable before a transaction that wrote nothing may say what
    /// it has seen: its snapshot; or, if no more will be durable than is, that, as
    /// long as it has seen nothing later.
    pub(crate) fn seen(&self) -> u64 {
        match self.in_doubt.get() {
            true => self.snapshot(),
            false => self.snapshot().min(self.durable),
        }
    }

    /// Remembers what was seen of a record.
    #[inline]
    pub(crate) fn note_read(&self, record: Record, view: View) {
        if self.is_certified() && !view.own {
            self.with(|txn_context| txn_context.note_read(record, view.version));
        }
    }

    /// Remembers that a key was looked for and no row found. Also if there was a
    /// record: it may leave the index, and another take its place.
    #[inline]
    pub(crate) fn note_absent(&self, table: &TableInner, leaf: LeafSeen, key: &[u8]) {
        if self.is_certified() {
            let index = IndexRead::Primary(table);
            self.with(|txn_context| {
                txn_context.unchecked += NodeSet::entry_bytes(2 * key.len());
                txn_context.node_set.add_absent(index, leaf, key);
            });
        }
    }

    /// Remembers that a part of a leaf was scanned.
    #[inline]
    pub(crate) fn note_scanned(
        &self,
        index: IndexRead,
        leaf: LeafSeen,
        from: &[u8],
        to: Option<&[u8]>,
    ) {
        if self.is_certified() {
            self.with(|txn_context| {
                let bounds = from.len() + to.map_or(0, <[u8]>::len);
                txn_context.unchecked += NodeSet::entry_bytes(bounds);
                txn_context.node_set.add_range(index, leaf, from, to);
            });
        }
    }

    /// Fails for a transaction that promised not to write, or whose database was opened
    /// for reading only.
    #[inline]
    pub(crate) fn check_writes(&self) -> Result<()> {
        match self.read_only {
            true => Err(self.refused_write()),
            false => Ok(()),
        }
    }

    #[cold]
    fn refused_write(&self) -> Error {
        let sink = self.db.sink.get();
        match sink.is_some_and(|sink| sink.is_read_only()) {
            true => DurabilityError::OpenedReadOnly.into(),
            false => SchemaError::ReadOnlyTransaction.into(),
        }
    }
}
