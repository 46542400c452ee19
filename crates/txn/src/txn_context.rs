//! The context of a transaction: its lists, and memory that waits to be freed.
//!
//! It lives in the transaction's slot and passes to the next transaction there
//! (E2), so a transaction allocates only what it stores.
//!
//! Memory that was unlinked goes through two lists:
//!
//! ```text
//!  retire() ─► fresh ──seal()──► limbo, stamped ──collect()──► freed
//!                                  └─ too long ─► surplus ─► freed by any slot
//! ```
//!
//! Tombstones and spans go through the same lists, but are not freed at the end:
//! they say that a record or an index entry may have lost its last reader, and
//! what they lead to is retired again.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::database::Shared;
use crate::epoch::Epochs;
use crate::heap::{Heap, Pool};
use crate::hook;
use crate::key::KeyBuf;
use crate::node_set::NodeSet;
use crate::preemption;
use crate::prefetch_cache::PrefetchCache;
use crate::record::{self, Head, IndexEntry, Record, RecordHead, Version};
use crate::surplus::{self, Limbo, Surplus};
use crate::sync::{AcqRel, Acquire, Relaxed};
use crate::table::{IndexInner, IndexSet, TableInner};
use crate::thin::Thin;
use crate::tree::{self, Finger, Keeper, Node, Spot};
use crate::txn_status::TxnStatus;

/// How much the end of a transaction frees at least, if it is there. One that has
/// made more frees more, so that garbage shrinks.
const COLLECT_AT_LEAST: usize = 512;
/// How much of the surplus the end of a transaction frees at least.
const SURPLUS_AT_LEAST: usize = 64;
/// So many pieces must wait before it is worth looking, unless they are large.
const COLLECT_FROM: usize = 64;
/// What a slot keeps at most when its transaction has ended: pieces and bytes.
const KEPT_AT_MOST: (usize, usize) = (512, 256 << 10);

/// Elements that a list keeps room for when its transaction has ended.
pub(crate) const LIST_KEPT: usize = 16 << 10;

/// Forgets what is in a list, and gives back its memory if that is much.
fn clear<T>(list: &mut Vec<T>) {
    list.clear();
    list.shrink_to(LIST_KEPT);
}

/// One row that the transaction writes.
pub(crate) struct Write {
    /// The indexes that were maintained. Sets live as long as their table (K4).
    pub(crate) set: *const IndexSet,
    pub(crate) record: Record,
    /// The committed version under the new one; `None` if the record is new.
    pub(crate) base: Option<Version>,
    /// The version that becomes visible.
    pub(crate) new: Version,
}

impl Write {
    pub(crate) fn set(&self) -> &IndexSet {
        // SAFETY: tables live as long as their database (K4), and so do these contexts.
        unsafe { &*self.set }
    }

    /// Whether there is no row before and none after.
    pub(crate) fn is_nothing(&self) -> bool {
        self.base.is_none_or(record::is_tombstone) && record::is_tombstone(self.new)
    }

    pub(crate) fn image<'a>(&self) -> hook::Write<'a> {
        hook::Write {
            table: self.set().table().id,
            // SAFETY: the transaction is open (E1).
            key: unsafe { self.record.bytes() },
            after: record::row_of(self.new),
        }
    }
}

/// A span of an index that the transaction begins or ends.
#[derive(Clone, Copy)]
pub(crate) struct SpanChange {
    /// Indexes live as long as their table (K4).
    pub(crate) index: *const IndexInner,
    pub(crate) entry: IndexEntry,
    pub(crate) begins: bool,
}

/// What is to be freed, or looked at, when no open transaction can find it.
pub(crate) enum Retired {
    Version(Version),
    Record(Record),
    Entry(IndexEntry),
    Node(*mut Node),
    Separator(Thin<()>),
    Status(*mut TxnStatus),
    /// A committed tombstone of this record.
    Tombstone(*const TableInner, Record),
    /// The end of a span of this record, with a hold on it.
    Span(Ended),
    /// A table that was dropped.
    Table(*const TableInner),
    /// An index that was dropped.
    Index(*const IndexInner),
}

/// The end of a span.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) index: *const IndexInner,
    pub(crate) entry: IndexEntry,
    /// The entry's, which may be gone with its index.
    pub(crate) record: Record,
}

impl Retired {
    /// Bytes that will come free.
    fn bytes(&self) -> usize {
        // SAFETY: what is retired is alive until it is freed.
        unsafe {
            match *self {
                Retired::Version(version) => Version::size(version.bytes().len()),
                Retired::Record(record) => Record::size(record.bytes().len()),
                Retired::Entry(entry) => IndexEntry::size(entry.bytes().len()),
                Retired::Node(node) => tree::node_size(node),
                Retired::Separator(key) => Thin::<()>::size(key.bytes().len()),
                Retired::Status(_) => size_of::<TxnStatus>(),
                Retired::Tombstone(..)
                | Retired::Span(..)
                | Retired::Table(_)
                | Retired::Index(_) => 0,
            }
        }
    }

    /// Frees it; what was a pool's, to this one, or to none any more.
    ///
    /// # Safety
    /// Nobody can find it any more (E1). With no pool, the heap goes away.
    #[inline]
    pub(crate) unsafe fn free(self, pool: Option<&mut Pool>) {
        if let Retired::Record(record) = &self {
            debug_assert!(record::has_no_holds(*record), "V4");
        }
        // SAFETY: by the caller.
        unsafe {
            match (self, pool) {
                (Retired::Version(version), Some(pool)) => version.free_in(pool),
                (Retired::Version(version), None) => version.abandon(),
                (Retired::Record(record), Some(pool)) => record.free_in(pool),
                (Retired::Record(record), None) => record.abandon(),
                (Retired::Node(node), pool) => tree::free_node(node, pool),
                (retired, _) => retired.free_global(),
            }
        }
    }

    /// Frees what is not a pool's.
    ///
    /// # Safety
    /// As [`free`](Retired::free).
    unsafe fn free_global(self) {
        // SAFETY: by the caller.
        unsafe {
            match self {
                Retired::Version(_) | Retired::Record(_) | Retired::Node(_) => {
                    unreachable!("a pool's")
                }
                Retired::Entry(entry) => entry.free(),
                Retired::Separator(key) => key.free(),
                Retired::Status(status) => drop(Box::from_raw(status)),
                Retired::Tombstone(..)
                | Retired::Span(..)
                | Retired::Table(_)
                | Retired::Index(_) => {}
            }
        }
    }
}

/// The private part of a transaction's slot.
pub(crate) struct TxnContext {
    /// Memory for records and versions.
    pub(crate) pool: Pool,
    /// What a serializable transaction has read: which version, or that there
    /// was none.
    pub(crate) reads: Vec<(Record, Option<Version>)>,
    /// The ranges that it has scanned.
    pub(crate) node_set: NodeSet,
    /// Records that `prefetch` has found.
    pub(crate) prefetched: PrefetchCache,
    /// The row that it has inserted last, in which table.
    pub(crate) finger: Option<(*const TableInner, Finger<RecordHead>)>,
    pub(crate) writes: Vec<Write>,
    pub(crate) spans: Vec<SpanChange>,
    /// For rows that are being changed.
    pub(crate) row: Vec<u8>,
    /// Bytes allocated or noted since the memory limit was last looked at.
    pub(crate) unchecked: usize,
    /// Whether that was near, so that every request is looked at.
    pub(crate) tight: bool,
    /// Bytes allocated and freed since the slot's counters were last updated.
    allocated: i64,
    garbage: i64,
    fresh: Vec<Retired>,
    limbo: Limbo,
    /// Bytes that will come free of what is in `fresh`, and in `limbo`.
    fresh_bytes: usize,
    limbo_bytes: usize,
    /// Pieces that the transaction has retired.
    made: usize,
    /// Pieces of the surplus that are being freed.
    taken: Vec<Retired>,
    /// Tables and indexes of which a part was torn down, for the surplus.
    pub(crate) torn: Vec<Retired>,
}

// SAFETY: its pointers are to shared objects, or to what its holder alone may
// free, whichever thread that is.
unsafe impl Send for TxnContext {}

impl Keeper for TxnContext {
    fn node(&mut self, layout: Layout) -> NonNull<u8> {
        self.grew(layout.size());
        self.pool.take(layout)
    }
    fn retire_node(&mut self, node: *mut Node) {
        self.retire(Retired::Node(node));
    }
    fn retire_separator(&mut self, separator: Thin<()>) {
        self.retire(Retired::Separator(separator));
    }
    fn grew(&mut self, bytes: usize) {
        self.unchecked += bytes;
        self.allocated += bytes as i64;
    }
}

impl TxnContext {
    pub(crate) fn new(heap: &Arc<Heap>) -> TxnContext {
        TxnContext {
            pool: Pool::new(heap),
            reads: Vec::new(),
            node_set: NodeSet::default(),
            prefetched: PrefetchCache::new(),
            finger: None,
            writes: Vec::new(),
            spans: Vec::new(),
            row: Vec::new(),
            unchecked: 0,
            tight: false,
            allocated: 0,
            garbage: 0,
            fresh: Vec::new(),
            limbo: Limbo::new(),
            fresh_bytes: 0,
            limbo_bytes: 0,
            made: 0,
            taken: Vec::new(),
            torn: Vec::new(),
        }
    }

    /// Where a key of this table would be put.
    #[inline]
    pub(crate) fn spot(&self, table: &TableInner, key: &[u8]) -> Spot<RecordHead> {
        let last = self
            .finger
            .as_ref()
            .filter(|(of, _)| std::ptr::eq(*of, table));
        table.primary.spot(key, last.map(|(_, finger)| finger))
    }

    /// Forgets the transaction, and keeps what waits.
    pub(crate) fn clear(&mut self) {
        clear(&mut self.reads);
        self.node_set.clear();
        self.prefetched.clear();
        self.finger = None;
        clear(&mut self.writes);
        clear(&mut self.spans);
        clear(&mut self.row);
        self.fresh.shrink_to(LIST_KEPT);
    }

    /// Gives back the memory of the lists beyond what is in them, and what the pool keeps
    /// of chunks.
    pub(crate) fn shrink(&mut self) {
        self.reads.shrink_to_fit();
        self.node_set.shrink();
        self.writes.shrink_to_fit();
        self.spans.shrink_to_fit();
        self.row.shrink_to_fit();
        self.fresh.shrink_to_fit();
        self.limbo.shrink_to_fit();
        self.taken.shrink_to_fit();
        self.pool.trim();
    }

    /// Notes that a record was read; once, if it was just read.
    #[inline]
    pub(crate) fn note_read(&mut self, record: Record, version: Option<Version>) {
        let read = (record, version);
        if self.reads.last() != Some(&read) {
            self.unchecked += size_of_val(&read);
            self.reads.push(read);
        }
    }

    /// Bytes of memory for what the transaction has noted of its reads.
    pub(crate) fn notes(&self) -> usize {
        self.reads.capacity() * size_of::<(Record, Option<Version>)>() + self.node_set.bytes()
    }

    /// Bytes of memory that the lists have.
    fn lists(&self) -> usize {
        fn bytes<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        self.notes()
            + bytes(&self.writes)
            + bytes(&self.spans)
            + bytes(&self.row)
            + bytes(&self.fresh)
            + bytes(&self.taken)
            + surplus::memory(&self.limbo) as usize
    }

    /// Bytes that the open transaction has retired itself. It alone can give them up.
    pub(crate) fn own_garbage(&self) -> usize {
        self.fresh_bytes
    }

    /// Bytes were allocated.
    #[inline]
    pub(crate) fn allocated(&mut self, bytes: usize) {
        self.allocated += bytes as i64;
    }

    /// Bytes were freed without having been retired.
    pub(crate) fn freed(&mut self, bytes: usize) {
        self.allocated -= bytes as i64;
    }

    /// Hands over a version.
    #[inline]
    pub(crate) fn retire_version(&mut self, version: Version) {
        self.retire(Retired::Version(version));
    }

    /// Hands over something that has just become unreachable.
    pub(crate) fn retire(&mut self, retired: Retired) {
        let bytes = retired.bytes();
        self.garbage += bytes as i64;
        self.fresh_bytes += bytes;
        self.made += 1;
        self.fresh.push(retired);
    }

    /// Stamps what was retired.
    pub(crate) fn seal(&mut self, epochs: &Epochs<TxnContext>) {
        if !self.fresh.is_empty() {
            let stamp = epochs.stamp();
            let last = self.limbo.back().map(|(stamp, _)| *stamp);
            debug_assert!(last.is_none_or(|last| last <= stamp), "X1");
            let stamped = self.fresh.drain(..).map(|retired| (stamp, retired));
            self.limbo.extend(stamped);
            self.limbo_bytes += std::mem::take(&mut self.fresh_bytes);
        }
    }

    /// Tells the slot's counters what has changed.
    pub(crate) fn account(&mut self, shared: &Shared) {
        let add = |counter: &std::sync::atomic::AtomicI64, change: i64| {
            if change != 0 {
                counter.store(counter.load(Relaxed) + change, Relaxed);
            }
        };
        add(&shared.allocated, std::mem::take(&mut self.allocated));
        add(&shared.garbage, std::mem::take(&mut self.garbage));
        add(&shared.pooled, self.pool.growth());
        shared.lists.store(self.lists() as i64, Relaxed);
    }

    /// Whether enough waits to make looking worthwhile, by number or by size.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.limbo.len() >= COLLECT_FROM || self.limbo_bytes > KEPT_AT_MOST.1
    }

    /// At the end of a transaction: frees what no transaction can find any more, so much
    /// in proportion to what this one has made that garbage shrinks, first of the slot's
    /// own, then of the surplus; then more while there is `time`; and leaves to the
    /// surplus what is too much to keep. The caller holds the slot, and nothing that it
    /// found with it.
    pub(crate) fn tidy(
        &mut self,
        surplus: &Surplus,
        epochs: &Epochs<TxnContext>,
        slot: usize,
        time: impl Fn() -> bool,
    ) {
        let made = std::mem::take(&mut self.made);
        // Of each row that is gone: tombstone and version, then record and tombstone,
        // and its part of a node.
        self.collect(epochs, slot, (3 * made).max(COLLECT_AT_LEAST));
        if surplus.has_some() {
            self.collect_surplus(surplus, epochs, Some(slot), 2 * made + SURPLUS_AT_LEAST);
        }
        if time() {
            self.collect_all(surplus, epochs, slot, time);
        }
        if self.limbo.len() > KEPT_AT_MOST.0 || self.limbo_bytes > KEPT_AT_MOST.1 {
            self.leave(surplus);
        }
        self.limbo.shrink_to(LIST_KEPT);
        self.pass_on(surplus, epochs);
        self.made = 0;
    }

    /// Frees all that no transaction can find any more, of the slot's own and of the
    /// surplus, while there is `time`. It ends, since those who end meanwhile free more
    /// than they make. The caller holds the slot, and nothing that it found with it.
    pub(crate) fn collect_all(
        &mut self,
        surplus: &Surplus,
        epochs: &Epochs<TxnContext>,
        slot: usize,
        time: impl Fn() -> bool,
    ) {
        loop {
            let mut is_more = self.collect(epochs, slot, surplus::AT_ONCE);
            self.pass_on(surplus, epochs);
            if !is_more && surplus.has_some() {
                epochs.renew(slot);
                is_more = self.collect_surplus(surplus, epochs, Some(slot), surplus::AT_ONCE) > 0;
            }
            if !is_more || !time() {
                return;
            }
        }
    }

    /// Frees of the slot's own, at most so many pieces; whether there is more. The caller
    /// holds the slot, and nothing that it found with it.
    pub(crate) fn collect(
        &mut self,
        epochs: &Epochs<TxnContext>,
        slot: usize,
        most: usize,
    ) -> bool {
        let mut left = most;
        while left > 0 && !self.limbo.is_empty() {
            preemption::poll_point();
            // Anew now and then, since others come and go. Nothing that they unlink has
            // to be kept for this slot.
            epochs.renew(slot);
            let (oldest, _) = epochs.oldest(Some(slot));
            let some = left.min(surplus::AT_ONCE);
            let mut freed = 0;
            while freed < some
                && let Some((_, retired)) = self.limbo.pop_front_if(|(stamp, _)| *stamp < oldest)
            {
                self.limbo_bytes -= self.free(retired);
                freed += 1;
            }
            // What they led to.
            self.seal(epochs);
            left -= freed;
            if freed < some {
                return false;
            }
        }
        !self.limbo.is_empty()
    }

    /// Frees of the surplus what no transaction can find any more, but for that of the
    /// slot `but`, at most so many pieces; how many there were. The caller has an open
    /// transaction, or holds a slot.
    pub(crate) fn collect_surplus(
        &mut self,
        surplus: &Surplus,
        epochs: &Epochs<TxnContext>,
        but: Option<usize>,
        most: usize,
    ) -> usize {
        // What an open transaction has retired itself stays apart until its end: it would
        // hold that back, and be taken for a part of what others do.
        let own = std::mem::take(&mut self.fresh);
        let own_bytes = std::mem::take(&mut self.fresh_bytes);
        let mut count = 0;
        while count < most {
            let some = (most - count).min(surplus::AT_ONCE);
            let mut taken = std::mem::take(&mut self.taken);
            let found = surplus.take(|| epochs.oldest(but).0, some, &mut taken);
            let bytes = taken.drain(..).map(|retired| self.free(retired)).sum();
            self.taken = taken;
            surplus.freed(bytes);
            // What they led to.
            self.seal(epochs);
            count += found;
            if found < some {
                break;
            }
        }
        (self.fresh, self.fresh_bytes) = (own, own_bytes);
        count
    }

    /// Leaves everything that is sealed to the surplus.
    pub(crate) fn leave(&mut self, surplus: &Surplus) {
        let bytes = std::mem::take(&mut self.limbo_bytes);
        surplus.leave(std::mem::take(&mut self.limbo), bytes);
    }

    /// Frees a piece that no transaction can find any more, or processes what it
    /// leads to; how many bytes were freed.
    #[inline]
    fn free(&mut self, retired: Retired) -> usize {
        match retired {
            Retired::Tombstone(table, record) => {
                self.bury(table, record);
                0
            }
            Retired::Span(ended) => {
                // SAFETY: indexes live as long as their database (K4).
                let index = unsafe { &*ended.index };
                if !index.is_torn() {
                    self.end_span(index, ended.entry);
                }
                self.bury(index.table(), ended.record);
                0
            }
            Retired::Table(table) => {
                self.tear_table(table);
                0
            }
            Retired::Index(index) => {
                self.tear_index(index);
                0
            }
            retired => {
                let bytes = retired.bytes();
                self.garbage -= bytes as i64;
                self.allocated -= bytes as i64;
                // SAFETY: stamped before the oldest open transaction (E1).
                unsafe { retired.free(Some(&mut self.pool)) };
                bytes
            }
        }
    }

    /// Retires a tombstone that has become a record's head, with the hold on the
    /// record that its writer has.
    pub(crate) fn retire_tombstone(&mut self, table: *const TableInner, record: Record) {
        self.retire(Retired::Tombstone(table, record));
    }

    /// Retires the end of a span, with a hold on its record that the caller has
    /// taken before its tombstone, if any, became visible.
    pub(crate) fn retire_span(&mut self, ended: Ended) {
        self.retire(Retired::Span(ended));
    }

    /// Gives up a hold on a record, now that no open snapshot is older than the
    /// tombstone, or the end of a span, that it was for. If it was the
    /// last, and a tombstone is the record's head, the record is removed.
    fn bury(&mut self, table: *const TableInner, record: Record) {
        // SAFETY: tables live as long as their database (K4).
        let table = unsafe { &*table };
        if table.is_torn() {
            return;
        }
        let _region = preemption::region();
        // The head first: while the hold is still ours, a writer that makes
        // another tombstone the head has a hold too (V4).
        let head = record::head_of(record);
        if record::unhold(record) != 1 {
            return;
        }
        let Head::Version(tombstone) = head else {
            return;
        };
        let committed = matches!(record::begin_of(tombstone), record::Begin::Committed(_));
        if !committed || !record::is_tombstone(tombstone) || !record::kill(record, tombstone) {
            return;
        }
        let removed = table.primary.remove(record, self);
        assert!(removed, "a record is in the index until it is dead (V3)");
        self.retire(Retired::Version(tombstone));
        self.retire(Retired::Record(record));
    }

    /// One span less for an index entry, which goes with its last one. In a
    /// region, since a writer that begins a span waits for that.
    pub(crate) fn end_span(&mut self, index: *const IndexInner, entry: IndexEntry) {
        let _region = preemption::region();
        // SAFETY: the entry lives while it has spans.
        if unsafe { entry.note() }.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: indexes live as long as their database (K4).
            let index = unsafe { &*index };
            let removed = index.tree.remove(entry, self);
            assert!(removed, "an entry is in the index while it has spans");
            self.retire(Retired::Entry(entry));
        }
    }

    /// Makes sure that the row that a record was when an index began has its span there
    /// (K5): somebody else may do so at the same time, and one span is left (K6).
    pub(crate) fn cover(&mut self, index: &IndexInner, record: Record, row: &[u8]) {
        if record::is_covered(record) {
            return;
        }
        let Some(_inside) = index.gate.pass() else {
            return;
        };
        let mut key = KeyBuf::new();
        index.key.of_row(row, &mut key);
        // SAFETY: the record was found in an open transaction.
        key.push(unsafe { record.bytes() });
        let entry = self.begin_span(index, record, key.as_slice());
        if !record::cover(record) {
            self.end_span(index, entry);
        }
    }

    /// Begins a span: finds or makes the record's entry with this key.
    pub(crate) fn begin_span(
        &mut self,
        index: &IndexInner,
        record: Record,
        key: &[u8],
    ) -> IndexEntry {
        let mut wait = crate::sync::Wait::new();
        let new = || Thin::new(record::EntryHead { record }, 1, key);
        let mut fresh: Option<IndexEntry> = None;
        loop {
            let spot = index.tree.spot(key, None);
            let existing = match spot.entry {
                Some(existing) => existing,
                None => {
                    let entry = *fresh.get_or_insert_with(new);
                    // SAFETY: the entry is removed before it is retired.
                    match unsafe { index.tree.insert(entry, &spot, self) } {
                        Ok(_) => {
                            self.grew(IndexEntry::size(key.len()));
                            return entry;
                        }
                        Err(existing) => existing,
                    }
                }
            };
            // SAFETY: found in an open transaction.
            let spans = unsafe { existing.note() };
            let one_more = |count| (count > 0).then(|| count + 1);
            if spans.fetch_update(AcqRel, Acquire, one_more).is_ok() {
                if let Some(unused) = fresh {
                    // SAFETY: nobody has seen it.
                    unsafe { unused.free() };
                }
                return existing;
            }
            // It has had its last span and is being removed, in a region.
            wait.step();
        }
    }
}

impl Drop for TxnContext {
    fn drop(&mut self) {
        let limbo = self.limbo.drain(..).map(|(_, retired)| retired);
        for retired in self.fresh.drain(..).chain(limbo) {
            // SAFETY: the database is gone, and its transactions before it.
            unsafe { retired.free(None) };
        }
    }
}
