//! Tables and indexes: trees over records, and the handles that name them.

use std::sync::Arc;

use crate::error::{Result, SchemaError};
use crate::heap::Heap;
use crate::key::KeySpec;
use crate::record::{EntryHead, Head, RecordHead, head_of};
use crate::row::RowBuf;
use crate::schema::{Schema, unknown};
use crate::tree::Tree;

/// Names a table in the log and in checkpoints. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// A table of a database. Cheap to clone.
#[derive(Clone)]
pub struct Table(pub(crate) Arc<TableInner>);

pub(crate) struct TableInner {
    pub(crate) id: TableId,
    /// Which database it belongs to.
    pub(crate) database: u64,
    pub(crate) schema: Schema,
    pub(crate) key: KeySpec,
    pub(crate) primary: Tree<RecordHead>,
    pub(crate) indexes: Vec<IndexInner>,
    /// Where its records and versions are (H1).
    _heap: Arc<Heap>,
}

pub(crate) struct IndexInner {
    name: String,
    /// The index columns, without the primary key that follows them.
    pub(crate) key: KeySpec,
    pub(crate) tree: Tree<EntryHead>,
}

/// A secondary index of a table. Cheap to clone.
#[derive(Clone)]
pub struct Index {
    pub(crate) table: Table,
    pub(crate) at: usize,
}

impl Table {
    pub(crate) fn new(id: TableId, database: u64, heap: &Arc<Heap>, schema: Schema) -> Table {
        let index = |index: &crate::IndexSchema| IndexInner {
            name: index.name.clone(),
            key: KeySpec::new(&index.name, &schema, &index.columns),
            tree: Tree::new(),
        };
        Table(Arc::new(TableInner {
            id,
            database,
            key: KeySpec::new(schema.name(), &schema, schema.primary_key()),
            primary: Tree::new(),
            indexes: schema.indexes().iter().map(index).collect(),
            schema,
            _heap: Arc::clone(heap),
        }))
    }

    /// The table's number.
    pub fn id(&self) -> TableId {
        self.0.id
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        self.0.schema.name()
    }

    /// The table's schema.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// The position of a column.
    pub fn column(&self, name: &str) -> Result<usize> {
        Ok(self.0.schema.column(name)?)
    }

    /// A secondary index.
    pub fn index(&self, name: &str) -> Result<Index> {
        match self.0.indexes.iter().position(|index| index.name == name) {
            Some(at) => Ok(Index {
                table: self.clone(),
                at,
            }),
            None => {
                let known = self.0.indexes.iter().map(|index| &index.name);
                Err(unknown("index", name, self.name(), known).into())
            }
        }
    }

    /// A new row, all NULL.
    pub fn row(&self) -> RowBuf<'_> {
        RowBuf::new(&self.0.schema)
    }

    /// Whether these bytes, from [`Row::raw`](crate::Row::raw), are a row of this
    /// table.
    pub fn check_row_bytes(&self, bytes: &[u8]) -> Result<()> {
        let schema = &self.0.schema;
        let checked = schema.layout().check(schema.columns(), bytes);
        checked.map_err(|reason| {
            SchemaError::Malformed {
                table: self.name().to_owned(),
                length: bytes.len(),
                reason,
            }
            .into()
        })
    }
}

impl Index {
    /// The table that it is an index of.
    pub fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn inner(&self) -> &IndexInner {
        &self.table.0.indexes[self.at]
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
        for index in &mut self.indexes {
            // SAFETY: as above.
            index.tree.for_each(|entry| unsafe { entry.free() });
        }
    }
}
