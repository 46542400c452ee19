//! Rows for the tests of memory.

use std::ops::Range;

use giveway_txn::{Database, Table, TxnOptions};

/// Inserts rows with these numbers and so many bytes each, a thousand in a transaction.
pub(crate) fn insert(db: &Database, table: &Table, ids: Range<i64>, bytes: usize) {
    for from in ids.clone().step_by(1000) {
        db.run(TxnOptions::snapshot(), |txn| {
            (from..(from + 1000).min(ids.end)).try_for_each(|id| {
                txn.insert_with(table, |row| {
                    row.set_i64(0, id).set_bytes(1, &vec![1; bytes]);
                })
            })
        })
        .unwrap();
    }
}
