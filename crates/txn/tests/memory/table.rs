//! The table of the tests of memory.

use giveway_txn::{Database, Schema, Table, Type};

/// A table of numbers and bytes.
pub(crate) fn table(db: &Database) -> Table {
    let schema = Schema::builder("t")
        .column("id", Type::I64)
        .column("data", Type::Bytes)
        .primary_key(["id"])
        .build();
    db.create_table(schema.unwrap()).unwrap()
}
