//! What a table looks like: typed columns, a primary key, secondary indexes.
//!
//! A schema is checked once, when it is built, so that the rest of the crate
//! may rely on it: names are unique, a primary key exists and is never NULL,
//! indexes name columns that exist.

use std::fmt;
use std::sync::Arc;

use crate::column::{Column, Type};
use crate::error::SchemaError;
use crate::layout::Layout;

/// A table has at most this many columns.
pub const MAX_COLUMNS: usize = 1024;

/// A secondary index, which need not be unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSchema {
    /// Its name, unique in the table.
    pub name: String,
    /// Positions of its columns.
    pub columns: Vec<usize>,
}

/// Some columns of a table, and perhaps more: those from number 63 on are not
/// told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns(u64);

impl Columns {
    pub(crate) const NONE: Columns = Columns(0);
    pub(crate) const ALL: Columns = Columns(u64::MAX);

    #[inline]
    pub(crate) fn add(&mut self, column: usize) {
        self.0 |= 1 << column.min(63);
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

    /// Whether it is the very same, and not only alike.
    #[inline]
    pub(crate) fn is(&self, other: &Schema) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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
    indexes: Vec<(String, Vec<String>)>,
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
        self.indexes.push((name.into(), columns));
        self
    }

    /// Checks the schema.
    pub fn build(self) -> Result<Schema, SchemaError> {
        if self.name.is_empty() {
            return Err(SchemaError::Nameless { what: "a table" });
        }
        if self.columns.len() > MAX_COLUMNS {
            return Err(SchemaError::TooManyColumns {
                table: self.name,
                count: self.columns.len(),
                limit: MAX_COLUMNS,
            });
        }
        distinct("a column", self.columns.iter().map(|column| &column.name))?;
        distinct("an index", self.indexes.iter().map(|(name, _)| name))?;
        let primary_key = self.positions(&self.primary_key)?;
        if primary_key.is_empty() {
            return Err(SchemaError::NoPrimaryKey { table: self.name });
        }
        if let Some(&at) = primary_key.iter().find(|&&at| self.columns[at].nullable) {
            return Err(SchemaError::NullablePrimaryKey {
                column: self.columns[at].name.clone(),
            });
        }
        let mut indexes = Vec::new();
        for (name, columns) in &self.indexes {
            if columns.is_empty() {
                return Err(SchemaError::EmptyIndex {
                    index: name.clone(),
                });
            }
            indexes.push(IndexSchema {
                name: name.clone(),
                columns: self.positions(columns)?,
            });
        }
        Ok(Schema(Arc::new(Inner {
            layout: Layout::new(&self.columns),
            name: self.name.into(),
            columns: self.columns,
            primary_key,
            indexes,
        })))
    }

    fn positions(&self, names: &[String]) -> Result<Vec<usize>, SchemaError> {
        distinct("a key's column", names.iter())?;
        let find = |name: &String| {
            position(&self.columns, name, |column| &column.name).ok_or_else(|| {
                let known = self.columns.iter().map(|column| column.name.as_str());
                unknown("column", name, &self.name, known)
            })
        };
        names.iter().map(find).collect()
    }
}

fn distinct<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), SchemaError> {
    let mut names: Vec<&String> = names.collect();
    names.sort();
    if names.first().is_some_and(|name| name.is_empty()) {
        return Err(SchemaError::Nameless { what });
    }
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(SchemaError::Twice {
            what,
            name: pair[0].clone(),
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
    fn positions_follow_declaration() {
        let schema = base().primary_key(["a"]).index("i", ["b", "a"]).build();
        let schema = schema.unwrap();
        assert_eq!(schema.column("b"), Ok(1));
        assert_eq!(schema.primary_key(), [0]);
        assert_eq!(schema.indexes()[0].columns, [1, 0]);
        assert!(schema.column("z").is_err());
    }
}
