//! What an index has counted while it was built, entry by entry.

use super::*;
use crate::column::Type;
use crate::database::Options;
use crate::sync::Relaxed;

const ROWS: i32 = 2000;

fn table() -> (Database, Table) {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .column("value", Type::I64)
        .primary_key(["id"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        (0..ROWS).try_for_each(|id| {
            let mut row = table.row();
            row.set_i32(0, id).set_i64(1, 1);
            txn.insert(&table, &row)
        })
    })
    .unwrap();
    (db, table)
}

fn build(db: &Database) -> Build<'_> {
    let build = Build::new(db, "t", "i".to_owned(), vec!["value".to_owned()]).unwrap();
    build.take_marks().unwrap();
    build.begin().unwrap();
    build
}

/// The spans that each entry counts.
fn spans(db: &Database, index: &Index) -> Vec<u32> {
    let txn = db.begin(TxnOptions::default()).unwrap();
    let mut scan = LeafScan::new(Span::new(&[], None), Direction::Forward);
    let mut spans = Vec::new();
    while scan.next_leaf(&index.inner.tree, |_, _, _| {}) {
        while let Some(entry) = scan.next_here() {
            // SAFETY: found in an open transaction (T1).
            spans.push(unsafe { entry.note() }.load(Relaxed));
        }
    }
    drop(txn);
    spans
}

#[test]
fn of_two_who_cover_each_row_at_the_same_time_one_counts() {
    let (db, _) = table();
    for _ in 0..5 {
        let build = build(&db);
        let index = Arc::clone(build.index());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let txn = db.begin(TxnOptions::default()).unwrap();
                    let inner = &*db.table("t").unwrap().inner;
                    let mut scan = scan_all();
                    while let Some(records) = next_leaf(&mut scan, inner) {
                        for record in records {
                            let (row, _) = record::committed_row(record, txn.snapshot()).unwrap();
                            let row = record::row_of(row).unwrap();
                            txn.cover_record(&index, record, row).unwrap();
                        }
                    }
                });
            }
        });
        let index = build.finish().unwrap();
        assert_eq!(spans(&db, &index), vec![1; ROWS as usize]);
        db.drop_index("t", "i").unwrap();
    }
}

#[test]
fn what_was_written_since_the_beginning_is_counted_by_its_writer_alone() {
    let (db, table) = table();
    let build = build(&db);
    let set = |id, value| {
        db.run(TxnOptions::default(), |txn| {
            txn.update(&table, id, |row| {
                row.set_i64(1, value);
            })
        })
        .unwrap();
    };
    // Twice, with another key, with the same, and back; before it is covered and after.
    for id in [0, 1, 2, 3] {
        set(id, if id < 2 { 2 } else { 1 });
        set(id, 1);
        if id == 1 {
            build.cover().unwrap();
        }
    }
    // Rows that were not there before: their writers have counted them.
    let insert = |id| {
        db.run(TxnOptions::default(), |txn| {
            let mut row = table.row();
            row.set_i32(0, id).set_i64(1, 1);
            txn.insert(&table, &row)
        })
        .unwrap();
    };
    (ROWS..ROWS + 3).for_each(insert);
    set(ROWS, 1);
    set(ROWS + 1, 7);
    db.run(TxnOptions::default(), |txn| {
        [5, 6, ROWS + 2]
            .into_iter()
            .try_for_each(|id| txn.delete(&table, id))
    })
    .unwrap();
    insert(5);
    build.cover().unwrap();
    let index = build.finish().unwrap();
    (0..3).for_each(|_| db.collect());
    assert_eq!(spans(&db, &index), vec![1; ROWS as usize + 1]);
}
