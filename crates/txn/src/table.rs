//! Tables and indexes: trees over records, and the handles that name them.
//!
//! ```text
//!  Table, a handle ─► TableInner ─► primary index
//!    schema, edition    │   floor: handles of a lower edition are refused
//!                       └─► IndexSet ─► IndexInner ─► secondary index
//!                             what writers maintain, until the next set
//! ```
//!
//! A table's indexes change as a whole: a set of them is never changed, but another
//! takes its place. How the schema changes is in `alter`.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use crate::claims::Claims;
use crate::error::{Error, Result, SchemaError};
use crate::gate::Gate;
use crate::heap::Heap;
use crate::key::KeySpec;
use crate::preemption::Writer;
use crate::record::{EntryHead, Head, RecordHead, head_of};
use crate::row::RowBuf;
use crate::schema::{IndexSchema, Schema, unknown};
use crate::sync::{Acquire, Relaxed, Release, SeqCst};
use crate::tree::Tree;
use crate::txn_status::TxnStatus;

/// Names a table in the log and in checkpoints. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// The floor of a table that was dropped, and the edition that is served even then.
const DROPPED: u32 = u32::MAX;

/// A table of a database. Cheap to clone. `docs/build/txn.md` says what becomes of it
/// when the schema changes.
#[derive(Clone)]
pub struct Table {
    pub(crate) inner: Arc<TableInner>,
    /// As it was when the handle was got.
    pub(crate) schema: Schema,
    edition: u32,
}

pub(crate) struct TableInner {
    pub(crate) id: TableId,
    /// Which database it belongs to.
    pub(crate) database: u64,
    pub(crate) name: Arc<str>,
    pub(crate) key: KeySpec,
    pub(crate) primary: Tree<RecordHead>,
    /// Handles of a lower edition are refused (K3).
    floor: AtomicU32,
    /// What waits to be freed must not look at its records any more (K4).
    torn: AtomicBool,
    /// What writers maintain.
    set: AtomicPtr<IndexSet>,
    /// All sets there were, since transactions point to them; the current one last.
    sets: Mutex<Vec<Arc<IndexSet>>>,
    /// Who writes a key of a unique index.
    pub(crate) claims: Claims,
    /// Whether an index is being built (K6). Changed with the catalog locked.
    pub(crate) building: AtomicBool,
    /// Whether an index was built before, so that records may be marked (K6).
    pub(crate) marked: AtomicBool,
    /// Where its records, versions and nodes are (H1).
    heap: Arc<Heap>,
}

/// The indexes of a table for some time.
pub(crate) struct IndexSet {
    /// Its table, which owns it.
    table: *const TableInner,
    pub(crate) indexes: Vec<Arc<IndexInner>>,
    /// The one of them that is being built: rows from before it have to be covered (K5).
    pub(crate) covering: Option<Arc<IndexInner>>,
    /// Those whose keys nobody else may have.
    pub(crate) enforced: Vec<Arc<IndexInner>>,
    /// Commits when a set with other duties takes its place: whoever has written under
    /// this one cannot commit later (K1). Sets with the same duties share it.
    pub(crate) until: Arc<TxnStatus>,
}

pub(crate) struct IndexInner {
    pub(crate) name: Arc<str>,
    unique: bool,
    /// Its table, which owns it.
    table: *const TableInner,
    /// The index columns, without the primary key that follows them.
    pub(crate) key: KeySpec,
    pub(crate) tree: Tree<EntryHead>,
    /// Versions that were committed later have spans by their writers (K5).
    begun: AtomicU64,
    /// The first snapshot that finds all its rows in it.
    live_from: AtomicU64,
    /// Through it goes who covers rows from before (K6).
    pub(crate) gate: Gate,
    /// Commits when it is dropped.
    pub(crate) ended: TxnStatus,
    /// What waits to be freed must not look at its entries any more (K4).
    torn: AtomicBool,
    /// Where its nodes are (H1).
    _heap: Arc<Heap>,
}

/// The first snapshot of an index that is being built.
const NOT_YET: u64 = u64::MAX;

// SAFETY: all but the pointer are shared by their types, and that is to the owner.
unsafe impl Send for IndexSet {}
// SAFETY: as above.
unsafe impl Sync for IndexSet {}
// SAFETY: as above.
unsafe impl Send for IndexInner {}
// SAFETY: as above.
unsafe impl Sync for IndexInner {}

/// A secondary index of a table. Cheap to clone.
#[derive(Clone)]
pub struct Index {
    pub(crate) table: Table,
    pub(crate) inner: Arc<IndexInner>,
}

impl Table {
    pub(crate) fn new(id: TableId, database: u64, heap: &Arc<Heap>, schema: Schema) -> Table {
        let inner = Arc::new(TableInner {
            id,
            database,
            name: schema.shared_name(),
            key: KeySpec::new(schema.name(), &schema, schema.primary_key()),
            primary: Tree::new(heap),
            floor: AtomicU32::new(0),
            torn: AtomicBool::new(false),
            set: AtomicPtr::default(),
            sets: Mutex::default(),
            claims: Claims::new(),
            building: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            heap: Arc::clone(heap),
        });
        let index = |index: &IndexSchema| inner.new_index(&schema, index, false);
        let indexes = schema.indexes().iter().map(index).collect();
        inner.replace_set(indexes, None, Arc::new(TxnStatus::new(Writer::ELSEWHERE)));
        Table {
            inner,
            schema,
            edition: 0,
        }
    }

    /// The table's number.
    pub fn id(&self) -> TableId {
        self.inner.id
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.schema.name()
    }

    /// The table's schema when this handle was got.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The position of a column.
    pub fn column(&self, name: &str) -> Result<usize> {
        Ok(self.schema.column(name)?)
    }

    /// A secondary index.
    pub fn index(&self, name: &str) -> Result<Index> {
        match self.inner.live_index(name) {
            Some(inner) => Ok(Index {
                table: self.clone(),
                inner,
            }),
            None => {
                let live = || {
                    self.inner
                        .set()
                        .indexes
                        .iter()
                        .filter(|index| index.is_live())
                };
                let known = live().map(|index| &*index.name);
                Err(unknown("index", name, self.name(), known).into())
            }
        }
    }

    /// A new row, all NULL.
    pub fn row(&self) -> RowBuf<'_> {
        RowBuf::new(&self.schema)
    }

    /// Whether these bytes, from [`Row::raw`](crate::Row::raw), are a row of this
    /// table.
    pub fn check_row_bytes(&self, bytes: &[u8]) -> Result<()> {
        let schema = &self.schema;
        let checked = schema.layout().check(bytes);
        checked.map_err(|reason| {
            SchemaError::Malformed {
                table: self.name().to_owned(),
                length: bytes.len(),
                reason,
            }
            .into()
        })
    }

    /// A handle of the same table with a later schema; with a column less, of a higher
    /// edition.
    pub(crate) fn with_schema(&self, schema: Schema, fewer_columns: bool) -> Table {
        Table {
            inner: Arc::clone(&self.inner),
            schema,
            edition: self.edition + u32::from(fewer_columns),
        }
    }

    /// Refuses all handles of editions before this one's from now on (K3).
    pub(crate) fn refuse_older(&self) {
        self.inner.floor.store(self.edition, Release);
    }

    /// The error about a handle that is not served.
    #[cold]
    pub(crate) fn refused(&self) -> Error {
        match self.inner.floor.load(Acquire) {
            DROPPED => Error::TableDropped {
                table: Arc::clone(&self.inner.name),
            },
            _ => SchemaError::OldHandle {
                table: self.name().to_owned(),
            }
            .into(),
        }
    }

    /// The same handle, which is never refused: for reading what was there before a
    /// change.
    pub(crate) fn unrefused(&self) -> Table {
        Table {
            edition: DROPPED,
            ..self.clone()
        }
    }

    /// Whether the handle may be used still (K3).
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        self.inner.floor.load(Acquire) <= self.edition
    }
}

impl TableInner {
    /// What writers maintain now.
    #[inline]
    pub(crate) fn set(&self) -> &IndexSet {
        // SAFETY: it points into `sets`, from which nothing is removed.
        unsafe { &*self.set.load(Acquire) }
    }

    /// An index that this table does not have yet, and that is empty; whether it is to
    /// be built while the table is in use.
    pub(crate) fn new_index(
        self: &Arc<Self>,
        schema: &Schema,
        index: &IndexSchema,
        is_built: bool,
    ) -> Arc<IndexInner> {
        Arc::new(IndexInner {
            name: index.name.as_str().into(),
            unique: index.unique,
            table: Arc::as_ptr(self),
            key: KeySpec::new(&index.name, schema, &index.columns),
            tree: Tree::new(&self.heap),
            begun: AtomicU64::new(0),
            live_from: AtomicU64::new(if is_built { NOT_YET } else { 0 }),
            gate: if is_built {
                Gate::open()
            } else {
                Gate::closed()
            },
            ended: TxnStatus::new(Writer::ELSEWHERE),
            torn: AtomicBool::new(false),
            _heap: Arc::clone(&self.heap),
        })
    }

    /// The index with this name, if it can be read.
    pub(crate) fn live_index(&self, name: &str) -> Option<Arc<IndexInner>> {
        let mut indexes = self.set().indexes.iter();
        let found = indexes.find(|index| *index.name == *name && index.is_live());
        found.cloned()
    }

    /// Has writers maintain other indexes. The caller has the catalog locked, or
    /// nobody else knows the table.
    pub(crate) fn replace_set(
        &self,
        indexes: Vec<Arc<IndexInner>>,
        covering: Option<Arc<IndexInner>>,
        until: Arc<TxnStatus>,
    ) {
        // Until all rows are covered, not all that have a key are found.
        let is_covering = |index: &Arc<IndexInner>| {
            let mut covering = covering.iter();
            covering.any(|covering| Arc::ptr_eq(covering, index))
        };
        let enforced = indexes
            .iter()
            .filter(|index| index.unique && !is_covering(index));
        let set = Arc::new(IndexSet {
            table: self,
            enforced: enforced.cloned().collect(),
            indexes,
            covering,
            until,
        });
        self.set.store(Arc::as_ptr(&set).cast_mut(), Release);
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.push(set);
    }

    /// Has writers maintain this index no more. The caller has the catalog locked.
    pub(crate) fn leave(&self, index: &Arc<IndexInner>) {
        let others = |other: &&Arc<IndexInner>| !Arc::ptr_eq(other, index);
        let set = self.set();
        let indexes = set.indexes.iter().filter(others).cloned().collect();
        let covering = set.covering.iter().find(others).cloned();
        self.replace_set(
            indexes,
            covering,
            Arc::new(TxnStatus::new(Writer::ELSEWHERE)),
        );
    }

    /// Fails while an index is being built. The catalog is locked.
    pub(crate) fn check_not_building(&self) -> Result<()> {
        match self.building.load(Relaxed) {
            false => Ok(()),
            true => Err(SchemaError::Building {
                table: self.name.to_string(),
            }
            .into()),
        }
    }

    /// Refuses all handles from now on (K3).
    pub(crate) fn refuse_all(&self) {
        self.floor.store(DROPPED, Release);
    }

    /// Whether it was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.floor.load(Acquire) == DROPPED
    }

    /// The error of a transaction that has written under a set that was replaced.
    #[cold]
    pub(crate) fn changed(&self) -> Error {
        let table = Arc::clone(&self.name);
        match self.is_dropped() {
            true => Error::TableDropped { table },
            false => Error::SchemaChanged { table },
        }
    }

    /// From now on nothing that waits to be freed looks at the records; false if that
    /// was so before (K4).
    pub(crate) fn tear(&self) -> bool {
        !self.torn.swap(true, SeqCst)
    }

    /// Whether the records are not to be looked at.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        self.torn.load(Acquire)
    }
}

impl IndexSet {
    /// The table whose indexes they are.
    #[inline]
    pub(crate) fn table(&self) -> &TableInner {
        // SAFETY: the table owns the set.
        unsafe { &*self.table }
    }
}

impl IndexInner {
    /// Its table.
    pub(crate) fn table(&self) -> &TableInner {
        // SAFETY: the table owns it.
        unsafe { &*self.table }
    }

    /// Whether it is the one that is declared like this.
    pub(crate) fn is(&self, schema: &Schema, declared: &IndexSchema) -> bool {
        *self.name == *declared.name
            && self.unique == declared.unique
            && self.key.numbers().eq(schema.numbers(&declared.columns))
    }

    /// Begins to be built: writers that commit later than `ts` maintain it.
    pub(crate) fn begin(&self, ts: u64) {
        self.begun.store(ts, Relaxed);
    }

    /// Whether a version that was committed at `ts` may lack its span (K5).
    pub(crate) fn is_older(&self, ts: u64) -> bool {
        ts < self.begun.load(Relaxed)
    }

    /// Can be read from the snapshot at `ts` on.
    pub(crate) fn go_live(&self, ts: u64) {
        self.live_from.store(ts, Release);
    }

    fn is_live(&self) -> bool {
        self.live_from.load(Acquire) != NOT_YET
    }

    /// Whether a transaction may read it at this snapshot.
    #[inline]
    pub(crate) fn check_read(&self, snapshot: u64) -> Result<()> {
        if self.live_from.load(Acquire) > snapshot {
            return Err(self.table().changed());
        }
        self.check_there()
    }

    /// Whether it was not dropped.
    #[inline]
    pub(crate) fn check_there(&self) -> Result<()> {
        // Before writers leave it, this shows.
        match self.ended.is_active() {
            true => Ok(()),
            false => Err(SchemaError::IndexDropped {
                index: self.name.to_string(),
                table: self.table().name.to_string(),
            }
            .into()),
        }
    }

    /// As [`TableInner::tear`], for the entries.
    pub(crate) fn tear(&self) -> bool {
        !self.torn.swap(true, SeqCst)
    }

    /// Whether the entries are not to be looked at.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        self.torn.load(Acquire)
    }
}

impl Index {
    /// The table that it is an index of.
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.name()).finish()
    }
}

impl Drop for TableInner {
    fn drop(&mut self) {
        // Nobody uses the table any more. What has left its trees is in the
        // database's limbo and freed there.
        self.primary.for_each(|record| {
            if let Head::Version(version) = head_of(record) {
                // SAFETY: reachable from here alone.
                unsafe { version.abandon() };
            }
            // SAFETY: as above.
            unsafe { record.abandon() };
        });
    }
}

impl Drop for IndexInner {
    fn drop(&mut self) {
        // SAFETY: as above.
        self.tree.for_each(|entry| unsafe { entry.free() });
    }
}
