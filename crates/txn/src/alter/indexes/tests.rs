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
        (0..ROWS).try_for_each(|id| insert(txn, &table, id, 1))
    })
    .unwrap();
    (db, table)
}

fn build(db: &Database) -> Build<'_> {
    build_unique(db, false)
}

fn new(db: &Database, unique: bool) -> Build<'_> {
    let wanted = Wanted {
        name: "i".to_owned(),
        unique,
        columns: vec!["value".to_owned()],
    };
    Build::new(db, "t", wanted).unwrap()
}

fn build_unique(db: &Database, unique: bool) -> Build<'_> {
    let build = new(db, unique);
    build.take_marks().unwrap();
    build.begin().unwrap();
    build
}

fn insert(txn: &Transaction<'_>, table: &Table, id: i32, value: i64) -> Result<()> {
    let mut row = table.row();
    row.set_i32(0, id).set_i64(1, value);
    txn.insert(table, &row)
}

fn set(txn: &Transaction<'_>, table: &Table, id: i32, value: i64) -> Result<()> {
    txn.update(table, id, |row| {
        row.set_i64(1, value);
    })
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
        db.run(TxnOptions::default(), |txn| set(txn, &table, id, value))
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
        db.run(TxnOptions::default(), |txn| insert(txn, &table, id, 1))
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

/// Whatever a transaction has not compared, since not all rows were covered, it does
/// not commit when they are.
#[test]
fn who_has_written_before_all_rows_were_covered_does_not_commit_after_the_check() {
    let (db, table) = table();
    db.run(TxnOptions::default(), |txn| {
        (0..ROWS).try_for_each(|id| set(txn, &table, id, id.into()))
    })
    .unwrap();
    let build = build_unique(&db, true);
    let txn = db.begin(TxnOptions::default()).unwrap();
    insert(&txn, &table, ROWS, 7).unwrap();
    build.cover().unwrap();
    let late = db.begin(TxnOptions::default()).unwrap();
    insert(&late, &table, ROWS + 1, 8).unwrap();
    // An entry that only older snapshots need is no second row.
    let old = db.begin(TxnOptions::default()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        set(txn, &table, ROWS - 1, ROWS.into())
    })
    .unwrap();
    build.enforce().unwrap();
    build.check_unique().unwrap();
    drop(old);
    let changed = Err(table.inner.changed());
    assert_eq!(txn.commit(), changed);
    assert_eq!(late.commit(), changed);
    // From now on they would be told.
    let txn = db.begin(TxnOptions::default()).unwrap();
    let refused = insert(&txn, &table, ROWS, 7);
    assert!(matches!(refused, Err(Error::UniqueViolation { .. })));
    let index = build.finish().unwrap();
    drop(txn);
    (0..3).for_each(|_| db.collect());
    assert_eq!(spans(&db, &index), vec![1; ROWS as usize]);
}

/// At the end of a step of the check, too.
#[test]
fn two_rows_with_the_same_key_are_found_wherever_it_is() {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .column("value", Type::I64)
        .primary_key(["id"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    let rows = 5 * (LEAVES * crate::tree::FANOUT) as i32 / 2;
    let txn = db.begin(TxnOptions::default()).unwrap();
    (0..rows).for_each(|id| insert(&txn, &table, id, id.into()).unwrap());
    txn.commit().unwrap();
    for twice in 0..rows {
        let txn = db.begin(TxnOptions::default()).unwrap();
        insert(&txn, &table, -1, twice.into()).unwrap();
        txn.commit().unwrap();
        let refused = new(&db, true).run().map(drop);
        assert!(
            matches!(refused, Err(Error::Schema(_))),
            "{twice}: {refused:?}"
        );
        let txn = db.begin(TxnOptions::default()).unwrap();
        txn.delete(&table, -1).unwrap();
        txn.commit().unwrap();
    }
    new(&db, true).run().unwrap();
}
