//! What the process holds, beside what the limit says. Alone in its program, since
//! the system tells of whole processes only.

use giveway_txn::{Database, Error, Options, Table, TxnOptions};

#[path = "memory/resident.rs"]
mod resident;
#[path = "memory/table.rs"]
mod table;

use resident::resident;
use table::table;

const LIMIT: u64 = 48 << 20;

fn insert(db: &Database, table: &Table, from: i64, row: &[u8]) -> Result<(), Error> {
    db.run(TxnOptions::snapshot(), |txn| {
        (from..from + 500).try_for_each(|id| {
            txn.insert_with(table, |new| {
                new.set_i64(0, id).set_bytes(1, row);
            })
        })
    })
}

fn delete(db: &Database, table: &Table, from: i64) {
    db.run(TxnOptions::snapshot(), |txn| {
        (from..from + 500).try_for_each(|id| txn.delete(table, id))
    })
    .unwrap();
}

/// Rows of one size after another, so that memory has to change its size.
#[test]
fn the_process_holds_no_more_than_the_limit_whatever_sizes_rows_have() {
    let db = Database::in_memory(Options {
        memory_limit: LIMIT,
        ..Options::default()
    });
    let table = table(&db);
    let before = resident();
    for bytes in [60, 150, 250, 350, 450, 550, 650, 750, 850, 950] {
        let rows = ((24 << 20) / (bytes as i64 + 100)) / 500 * 500;
        let row = vec![1; bytes];
        for from in (0..rows).step_by(500) {
            insert(&db, &table, from, &row).unwrap_or_else(|error| panic!("{bytes}: {error}"));
        }
        let held = db.stats().held_bytes;
        assert!(held <= LIMIT, "rows of {bytes}: {held}");
        for from in (0..rows).step_by(500) {
            delete(&db, &table, from);
        }
        (0..3).for_each(|_| db.collect());
        let stats = db.stats();
        assert!(stats.held_bytes < LIMIT / 3, "rows of {bytes}: {stats:?}");
        let resident = resident() - before;
        assert!(resident < LIMIT, "rows of {bytes}: {resident}, {stats:?}");
    }
    // What does not fit is refused, and the process has not grown beyond it.
    let error = (0..).find_map(|batch| insert(&db, &table, batch * 500, &[1; 100]).err());
    let Some(Error::OutOfMemory { used, limit, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(limit == LIMIT && used <= LIMIT + (1 << 20), "{used}");
    let resident = resident() - before;
    assert!(resident < LIMIT * 5 / 4, "{resident}");
}
