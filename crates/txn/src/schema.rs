//! What a table looks like: typed columns, a primary key, secondary indexes.
//!
//! A schema is checked once, when it is built, so that the rest of the crate
//! may rely on it: names are unique, a primary key exists and is never NULL,
//! indexes name columns that exist.
//!
//! A schema never changes. A table that is changed gets another one, made of this one's
//! [`Parts`]. Programs name columns by their positions among those that there are; the
//! engine keeps numbers, of all that there ever were.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::column::{Column, Type};
use crate::error::SchemaError;
use crate::layout::{Layout, Stored};

/// A table has at most this many columns.
pub const MAX_COLUMNS: usize = 1024;

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSchema {
    /// Its name, unique in the table.
    pub name: String,
    /// Whether no two rows may have the same key. Keys with a NULL are equal to none.
    pub unique: bool,
    /// Positions of its columns.
    pub columns: Vec<usize>,
}

/// Some columns of a table, by their numbers, and perhaps more: those from number 63 on
/// are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns(u64);

impl Columns {
    pub(crate) const NONE: Columns = Columns(0);
    pub(crate) const ALL: Columns = Columns(u64::MAX);

    #[inline]
    pub(crate) fn add(&mut self, number: usize) {
        self.0 |= 1 << number.min(63);
    }

    /// Whether a column may be in both.
    #[inline]
    pub(crate) fn meet(self, other: Columns) -> bool {
        self.0 & other.0 != 0
    }
}

/// A table's schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    columns: Vec<Column>,
    primary_key: Vec<usize>,
    indexes: Vec<IndexSchema>,
    layout: Layout,
    /// Tells layouts apart.
    layout_id: u64,
}

/// A schema as it is kept: by the numbers of its columns, which never change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) name: Arc<str>,
    /// All columns there ever were.
    pub(crate) stored: Vec<Stored>,
    /// So many of them were there from the beginning.
    pub(crate) base: usize,
    pub(crate) primary_key: Vec<usize>,
    /// Indexes by the numbers of their columns.
    pub(crate) indexes: Vec<IndexSchema>,
}

impl Schema {
    /// Begins the schema of the table with this name.
    pub fn builder(name: impl Into<String>) -> SchemaBuilder {
        SchemaBuilder {
            name: name.into(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The columns, in the order of their positions.
    pub fn columns(&self) -> &[Column] {
        &self.0.columns
    }

    /// Positions of the primary key's columns.
    pub fn primary_key(&self) -> &[usize] {
        &self.0.primary_key
    }

    /// The secondary indexes.
    pub fn indexes(&self) -> &[IndexSchema] {
        &self.0.indexes
    }

    /// Whether rows of one are rows of the other, and not only alike.
    #[inline]
    pub(crate) fn has_rows_of(&self, other: &Schema) -> bool {
        self.0.layout_id == other.0.layout_id
    }

    /// The numbers of columns at these positions.
    pub(crate) fn numbers(&self, positions: &[usize]) -> Vec<usize> {
        let places = &self.0.layout.places;
        positions
            .iter()
            .map(|&at| places[at].number.into())
            .collect()
    }

    /// The schema by the numbers of its columns.
    pub(crate) fn parts(&self) -> Parts {
        let (stored, base) = self.0.layout.stored();
        let index = |index: &IndexSchema| IndexSchema {
            columns: self.numbers(&index.columns),
            ..index.clone()
        };
        Parts {
            name: self.shared_name(),
            stored: stored.to_vec(),
            base,
            primary_key: self.numbers(&self.0.primary_key),
            indexes: self.0.indexes.iter().map(index).collect(),
        }
    }

    /// The same with other indexes, given by the numbers of columns. Rows of one are rows
    /// of the other.
    pub(crate) fn with_indexes(&self, indexes: Vec<IndexSchema>) -> Result<Schema, SchemaError> {
        let parts = Parts {
            indexes,
            ..self.parts()
        };
        let inner = Arc::into_inner(parts.build()?.0).expect("just made");
        Ok(Schema(Arc::new(Inner {
            layout_id: self.0.layout_id,
            ..inner
        })))
    }

    /// Whether rows of the other schema are rows of this one, which is later.
    pub(crate) fn can_follow(&self, earlier: &Schema) -> bool {
        let (now, before) = (self.parts(), earlier.parts());
        let same = |(now, before): (&Stored, &Stored)| {
            let dropped = now.dropped || !before.dropped;
            dropped && (&now.column, &now.initial) == (&before.column, &before.initial)
        };
        (now.name, now.base, now.primary_key) == (before.name, before.base, before.primary_key)
            && now.stored.len() >= before.stored.len()
            && now.stored.iter().zip(&before.stored).all(same)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The position of a column.
    pub fn column(&self, name: &str) -> Result<usize, SchemaError> {
        position(&self.0.columns, name, |column| &column.name).ok_or_else(|| {
            unknown(
                "column",
                name,
                self.name(),
                self.0.columns.iter().map(|column| column.name.as_str()),
            )
        })
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("name", &self.name())
            .field("columns", &self.columns())
            .field("primary_key", &self.primary_key())
            .field("indexes", &self.indexes())
            .finish()
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.0.name == other.0.name
            && self.0.columns == other.0.columns
            && self.0.primary_key == other.0.primary_key
            && self.0.indexes == other.0.indexes
    }
}

fn position<T>(things: &[T], name: &str, of: impl Fn(&T) -> &String) -> Option<usize> {
    things.iter().position(|thing| of(thing) == name)
}

/// The error that names what there is, beside what there is not.
pub(crate) fn unknown<'a>(
    what: &'static str,
    name: &str,
    within: &str,
    known: impl Iterator<Item = &'a str>,
) -> SchemaError {
    let known: Vec<&str> = known.collect();
    SchemaError::Unknown {
        what,
        name: name.to_owned(),
        within: within.to_owned(),
        known: if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        },
    }
}

/// A schema that is being written down; see [`Schema::builder`].
#[derive(Clone, Debug)]
pub struct SchemaBuilder {
    name: String,
    columns: Vec<Column>,
    primary_key: Vec<String>,
    indexes: Vec<(String, bool, Vec<String>)>,
}

impl SchemaBuilder {
    /// Adds a column that always has a value.
    #[must_use]
    pub fn column(self, name: impl Into<String>, ty: Type) -> SchemaBuilder {
        self.with(name.into(), ty, false)
    }

    /// Adds a column that may be NULL.
    #[must_use]
    pub fn nullable(self, name: impl Into<String>, ty: Type) -> SchemaBuilder {
        self.with(name.into(), ty, true)
    }

    fn with(mut self, name: String, ty: Type, nullable: bool) -> SchemaBuilder {
        self.columns.push(Column { name, ty, nullable });
        self
    }

    /// Names the primary key's columns, in the order in which rows are sorted.
    #[must_use]
    pub fn primary_key<S: Into<String>>(
        mut self,
        columns: impl IntoIterator<Item = S>,
    ) -> SchemaBuilder {
        self.primary_key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a secondary index. Rows with equal index columns are in the order
    /// of their primary keys.
    #[must_use]
    pub fn index<S: Into<String>>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> SchemaBuilder {
        let columns = columns.into_iter().map(Into::into).collect();
        self.indexes.push((name.into(), false, columns));
        self
    }

    /// Adds a secondary index in which no two rows may have the same key; one with a
    /// NULL in it is equal to none.
    #[must_use]
    pub fn unique_index<S: Into<String>>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = S>,
    ) -> SchemaBuilder {
        let columns = columns.into_iter().map(Into::into).collect();
        self.indexes.push((name.into(), true, columns));
        self
    }

    /// Checks the schema.
    pub fn build(self) -> Result<Schema, SchemaError> {
        let primary_key = self.positions(&self.primary_key)?;
        let mut indexes = Vec::new();
        for (name, unique, columns) in &self.indexes {
            indexes.push(IndexSchema {
                name: name.clone(),
                unique: *unique,
                columns: self.positions(columns)?,
            });
        }
        let stored = self.columns.into_iter().map(|column| Stored {
            column,
            dropped: false,
            initial: Vec::new(),
        });
        let stored: Vec<_> = stored.collect();
        let parts = Parts {
            name: self.name.into(),
            base: stored.len(),
            stored,
            primary_key,
            indexes,
        };
        parts.build()
    }

    fn positions(&self, names: &[String]) -> Result<Vec<usize>, SchemaError> {
        let find = |name: &String| {
            position(&self.columns, name, |column| &column.name).ok_or_else(|| {
                let known = self.columns.iter().map(|column| column.name.as_str());
                unknown("column", name, &self.name, known)
            })
        };
        names.iter().map(find).collect()
    }
}

impl Parts {
    /// Whether what was read can be a schema: columns that were added have initial
    /// values, and those of the base do not need any.
    pub(crate) fn fits(&self) -> bool {
        self.base <= self.stored.len()
            && self
                .stored
                .iter()
                .enumerate()
                .all(|(number, stored)| match number < self.base {
                    true => stored.initial.is_empty(),
                    false => stored.is_whole_part(&stored.initial),
                })
    }

    /// Checks the schema.
    pub(crate) fn build(self) -> Result<Schema, SchemaError> {
        static NEXT_LAYOUT: AtomicU64 = AtomicU64::new(0);
        if self.name.is_empty() {
            return Err(SchemaError::Nameless { what: "a table" });
        }
        if self.stored.len() > MAX_COLUMNS {
            return Err(SchemaError::TooManyColumns {
                table: self.name.to_string(),
                count: self.stored.len(),
                limit: MAX_COLUMNS,
            });
        }
        let live = || self.stored.iter().filter(|stored| !stored.dropped);
        distinct("a column", live().map(|stored| stored.column.name.as_str()))?;
        distinct("an index", self.indexes.iter().map(|index| &*index.name))?;
        if self.primary_key.is_empty() {
            return Err(SchemaError::NoPrimaryKey {
                table: self.name.to_string(),
            });
        }
        let primary_key = self.key(&self.primary_key)?;
        let column = |&number: &usize| &self.stored[number].column;
        if let Some(column) = self.primary_key.iter().map(column).find(|key| key.nullable) {
            return Err(SchemaError::NullablePrimaryKey {
                column: column.name.clone(),
            });
        }
        let mut indexes = Vec::new();
        for index in &self.indexes {
            if index.columns.is_empty() {
                return Err(SchemaError::EmptyIndex {
                    index: index.name.clone(),
                });
            }
            indexes.push(IndexSchema {
                columns: self.key(&index.columns)?,
                ..index.clone()
            });
        }
        Ok(Schema(Arc::new(Inner {
            columns: live().map(|stored| stored.column.clone()).collect(),
            layout: Layout::new(self.stored, self.base),
            name: self.name,
            primary_key,
            indexes,
            layout_id: NEXT_LAYOUT.fetch_add(1, Relaxed),
        })))
    }

    /// The positions of the columns with these numbers, which are a key's.
    fn key(&self, numbers: &[usize]) -> Result<Vec<usize>, SchemaError> {
        let names = numbers
            .iter()
            .map(|&number| &*self.stored[number].column.name);
        distinct("a key's column", names)?;
        let before = |&number: &usize| {
            let before = self.stored[..number].iter();
            before.filter(|stored| !stored.dropped).count()
        };
        Ok(numbers.iter().map(before).collect())
    }
}

fn distinct<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), SchemaError> {
    let mut names: Vec<&str> = names.collect();
    names.sort();
    if names.first().is_some_and(|name| name.is_empty()) {
        return Err(SchemaError::Nameless { what });
    }
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SchemaError::Twice {
            what,
            name: pair[0].to_owned(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> SchemaBuilder {
        Schema::builder("t")
            .column("a", Type::I32)
            .nullable("b", Type::Text)
    }

    #[test]
    fn a_schema_is_refused_with_what_is_wrong() {
        let says = |builder: SchemaBuilder, text: &str| {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        says(base(), "add .primary_key");
        says(base().primary_key(["b"]), "cannot be nullable");
        says(base().primary_key(["c"]), "it has a, b");
        says(base().primary_key(["a", "a"]), "exists already");
        says(
            base().column("a", Type::I64).primary_key(["a"]),
            "'a' exists",
        );
        says(base().primary_key(["a"]).index("i", ["x"]), "'x'");
        says(
            base().primary_key(["a"]).index("i", [] as [&str; 0]),
            "on no column",
        );
        says(
            base()
                .primary_key(["a"])
                .index("i", ["a"])
                .index("i", ["b"]),
            "'i' exists",
        );
        says(
            Schema::builder("")
                .column("a", Type::I32)
                .primary_key(["a"]),
            "needs a name",
        );
    }

    #[test]
    fn only_a_schema_that_reads_all_rows_may_follow() {
        let with = |schema: &Schema, initial: u8| {
            let mut parts = schema.parts();
            parts.stored.push(Stored {
                column: Column {
                    name: "c".to_owned(),
                    ty: Type::Bool,
                    nullable: true,
                },
                dropped: false,
                initial: vec![0, initial],
            });
            parts.build().unwrap()
        };
        let first = base().primary_key(["a"]).build().unwrap();
        let added = with(&first, 1);
        let mut parts = added.parts();
        parts.stored[1].dropped = true;
        let dropped = parts.build().unwrap();
        assert!(added.can_follow(&first) && dropped.can_follow(&added));
        assert!(dropped.can_follow(&first) && first.can_follow(&first));
        // The other way round a column would come back, or be unknown.
        assert!(!first.can_follow(&added) && !added.can_follow(&dropped));
        assert!(!with(&first, 0).can_follow(&added));
        let declared = base().nullable("c", Type::Bool).primary_key(["a"]).build();
        assert!(!declared.unwrap().can_follow(&first));
        let key = base().column("c", Type::I32).primary_key(["c"]).build();
        let same = base().column("c", Type::I32).primary_key(["a"]).build();
        assert!(!key.unwrap().can_follow(&same.unwrap()));
    }

    #[test]
    fn positions_follow_declaration() {
        let schema = base().primary_key(["a"]).index("i", ["b", "a"]).build();
        let schema = schema.unwrap();
        assert_eq!(schema.column("b"), Ok(1));
        assert_eq!(schema.primary_key(), [0]);
        assert_eq!(schema.indexes()[0].columns, [1, 0]);
        assert!(schema.column("z").is_err());
    }
}
