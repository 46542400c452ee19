//! Schemas with a column more or less.

use crate::column::Column;
use crate::error::SchemaError;
use crate::layout::Stored;
use crate::row::RowBuf;
use crate::schema::Schema;
use crate::value::Value;

/// The schema with another column, in which rows that are there have this value.
pub(crate) fn with_column(
    schema: &Schema,
    column: Column,
    default: Value,
) -> Result<Schema, SchemaError> {
    if default == Value::Null && !column.nullable {
        return Err(SchemaError::NoDefault {
            table: schema.name().to_owned(),
            column: column.name,
        });
    }
    let mut parts = schema.parts();
    parts.stored.push(Stored {
        column,
        dropped: false,
        initial: Vec::new(),
    });
    // What the value is in bytes, a row of the new schema tells.
    let with = parts.clone().build()?;
    let mut row = RowBuf::new(&with);
    let added = schema.columns().len();
    row.set(added, default)?;
    let layout = with.layout();
    let part = layout.part_span(row.raw(), layout.places[added]);
    let (start, end) = part.expect("an added column has a part");
    let last = parts.stored.last_mut().expect("just pushed");
    last.initial = row.raw()[start..end].to_vec();
    parts.build()
}

/// The schema without this column.
pub(crate) fn without_column(schema: &Schema, name: &str) -> Result<Schema, SchemaError> {
    let at = schema.column(name)?;
    let in_use = |by: String| SchemaError::ColumnInUse {
        column: name.to_owned(),
        by,
    };
    if schema.primary_key().contains(&at) {
        return Err(in_use(format!("the primary key of '{}'", schema.name())));
    }
    let mut indexes = schema.indexes().iter();
    if let Some(index) = indexes.find(|index| index.columns.contains(&at)) {
        return Err(in_use(format!("index '{}': drop that first", index.name)));
    }
    let mut parts = schema.parts();
    parts.stored[schema.numbers(&[at])[0]].dropped = true;
    parts.build()
}
