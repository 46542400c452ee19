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

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result, SchemaError};
use crate::heap::Heap;
use crate::key::KeySpec;
use crate::record::{EntryHead, Head, RecordHead, head_of};
use crate::row::RowBuf;
use crate::schema::{Schema, unknown};
use crate::sync::{Acquire, Release, SeqCst};
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
    /// Where its records and versions are (H1).
    _heap: Arc<Heap>,
}

/// The indexes of a table for some time.
pub(crate) struct IndexSet {
    /// Its table, which owns it.
    table: *const TableInner,
    pub(crate) indexes: Vec<Arc<IndexInner>>,
    /// Commits when another set takes its place: whoever has written under this one
    /// cannot commit later (K1).
    pub(crate) until: TxnStatus,
}

pub(crate) struct IndexInner {
    name: Arc<str>,
    /// Its table, which owns it.
    table: *const TableInner,
    /// The index columns, without the primary key that follows them.
    pub(crate) key: KeySpec,
    pub(crate) tree: Tree<EntryHead>,
    /// What waits to be freed must not look at its entries any more (K4).
    torn: AtomicBool,
}

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
            primary: Tree::new(),
            floor: AtomicU32::new(0),
            torn: AtomicBool::new(false),
            set: AtomicPtr::default(),
            sets: Mutex::default(),
            _heap: Arc::clone(heap),
        });
        let index = |index: &crate::IndexSchema| {
            Arc::new(IndexInner {
                name: index.name.as_str().into(),
                table: Arc::as_ptr(&inner),
                key: KeySpec::new(&index.name, &schema, &index.columns),
                tree: Tree::new(),
                torn: AtomicBool::new(false),
            })
        };
        let indexes = schema.indexes().iter().map(index).collect();
        inner.replace_set(indexes);
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
        let indexes = &self.inner.set().indexes;
        match indexes.iter().find(|index| *index.name == *name) {
            Some(inner) => Ok(Index {
                table: self.clone(),
                inner: Arc::clone(inner),
            }),
            None => {
                let known = indexes.iter().map(|index| &*index.name);
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

    /// Has writers maintain other indexes. The caller has the catalog locked, or
    /// nobody else knows the table.
    fn replace_set(&self, indexes: Vec<Arc<IndexInner>>) {
        let set = Arc::new(IndexSet {
            table: self,
            indexes,
            until: TxnStatus::new(0),
        });
        self.set.store(Arc::as_ptr(&set).cast_mut(), Release);
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.push(set);
    }

    /// Refuses all handles from now on (K3).
    pub(crate) fn refuse_all(&self) {
        self.floor.store(DROPPED, Release);
    }

    /// The error of a transaction that has written under a set that was replaced.
    #[cold]
    pub(crate) fn changed(&self) -> Error {
        assert_eq!(self.floor.load(Acquire), DROPPED, "K1");
        Error::TableDropped {
            table: Arc::clone(&self.name),
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
