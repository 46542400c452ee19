//! Keys between tables. There are none here, and clients that draw diagrams ask for
//! them all the same: they get an empty list rather than an error.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// No keys.
pub(super) fn none(columns: &SchemaRef) -> RecordBatch {
    RecordBatch::new_empty(Arc::clone(columns))
}

/// The columns of a list of primary keys.
pub(super) static PRIMARY: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("key_name", DataType::Utf8, true),
    ]))
});

/// The columns of a list of foreign keys.
pub(super) static FOREIGN: LazyLock<SchemaRef> = LazyLock::new(|| {
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        fields.extend([
            Field::new(format!("{side}_catalog_name"), DataType::Utf8, true),
            Field::new(format!("{side}_db_schema_name"), DataType::Utf8, true),
            Field::new(format!("{side}_table_name"), DataType::Utf8, false),
            Field::new(format!("{side}_column_name"), DataType::Utf8, false),
        ]);
    }
    fields.extend([
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]);
    Arc::new(Schema::new(fields))
});
