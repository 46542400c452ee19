//! The schema changes while transactions go on: what they see of it, and what is left
//! of it after a restart.

use std::path::Path;

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Database, DurabilityOptions, Error, KeyRange, Options, Result, Schema, Table, Transaction,
    TxnOptions, Type,
};

fn people() -> Schema {
    let schema = Schema::builder("people")
        .column("id", Type::I32)
        .column("name", Type::Text)
        .nullable("photo", Type::Bytes)
        .primary_key(["id"])
        .index("by_name", ["name"]);
    schema.build().unwrap()
}

fn insert(txn: &Transaction<'_>, table: &Table, id: i32, name: &str) -> Result<()> {
    let mut row = table.row();
    row.set_i32(0, id).set_text(1, name);
    txn.insert(table, &row)
}

/// A database with people of these names, numbered from 0.
fn with_people(db: &Database, names: &[&str]) -> Table {
    let table = db.create_table(people()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        let mut names = (0..).zip(names);
        names.try_for_each(|(id, name)| insert(txn, &table, id, name))
    })
    .unwrap();
    table
}

fn open(directory: &Path) -> Database {
    let durability = DurabilityOptions::new().checkpoint_bytes(None);
    Database::open(directory, Options::default(), durability).unwrap()
}

fn names(db: &Database) -> Vec<String> {
    let table = db.table("people").unwrap();
    let by_name = table.index("by_name").unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let rows = txn.scan_index(&by_name, KeyRange::all(), Forward).unwrap();
    rows.map(|row| row.unwrap().text(1).to_owned()).collect()
}

fn dropped() -> Error {
    Error::TableDropped {
        table: "people".into(),
    }
}

#[test]
fn a_dropped_table_is_gone_and_its_name_is_free() {
    let db = Database::in_memory(Options::default());
    let old = with_people(&db, &["anna", "bea"]);
    db.drop_table("people").unwrap();
    let error = db.drop_table("people").unwrap_err().to_string();
    assert!(error.contains("has no table 'people'"), "{error}");
    assert!(db.table("people").is_err() && db.tables().is_empty());
    let txn = db.begin(TxnOptions::default()).unwrap();
    assert_eq!(txn.get(&old, 0).unwrap_err(), dropped());
    assert!(!dropped().is_retryable());
    drop(txn);
    let new = with_people(&db, &["carl"]);
    assert!(new.id() > old.id());
    assert_eq!(names(&db), ["carl"]);
    let txn = db.begin(TxnOptions::default()).unwrap();
    assert_eq!(insert(&txn, &old, 7, "zoe").unwrap_err(), dropped());
}

#[test]
fn an_open_transaction_fails_when_it_touches_a_dropped_table() {
    let db = Database::in_memory(Options::default());
    let many = vec!["anna"; 500];
    let table = with_people(&db, &many);
    let by_name = table.index("by_name").unwrap();
    let begin = || db.begin(TxnOptions::default()).unwrap();
    let txns: [_; 6] = std::array::from_fn(|_| begin());
    let [reads, scans, by_index, updates, inserts, deletes] = &txns;
    let mut scan = scans.scan(&table, KeyRange::all(), Forward).unwrap();
    let mut index_scan = by_index.scan_index(&by_name, KeyRange::all(), Forward);
    let index_scan = index_scan.as_mut().unwrap();
    assert!(scan.next().unwrap().is_ok() && index_scan.next().unwrap().is_ok());
    let kept = reads.get(&table, 1).unwrap().unwrap();
    db.drop_table("people").unwrap();
    // What it has got stays.
    assert_eq!(kept.text(1), "anna");
    assert_eq!(reads.get(&table, 1).unwrap_err(), dropped());
    for scan in [&mut scan, index_scan] {
        let rows: Vec<_> = scan.collect();
        assert!(rows.len() < 100, "{} more rows", rows.len());
        assert_eq!(*rows.last().unwrap().as_ref().unwrap_err(), dropped());
    }
    assert_eq!(insert(inserts, &table, 999, "zoe").unwrap_err(), dropped());
    let updated = updates.update(&table, 1, |_| unreachable!());
    assert_eq!(updated.unwrap_err(), dropped());
    assert_eq!(deletes.delete(&table, 1).unwrap_err(), dropped());
    for txn in txns {
        assert_eq!(txn.commit().unwrap_err(), dropped());
    }
}

#[test]
fn what_was_written_to_a_table_is_committed_before_its_end_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let table = with_people(&db, &["anna"]);
    let others = Schema::builder("others")
        .column("id", Type::I32)
        .primary_key(["id"]);
    let others = db.create_table(others.build().unwrap()).unwrap();
    let other = |txn: &Transaction<'_>, others: &Table| {
        let mut row = others.row();
        row.set_i32(0, 1);
        txn.insert(others, &row)
    };
    let both = db.begin(TxnOptions::default()).unwrap();
    other(&both, &others).unwrap();
    both.update(&table, 0, |row| {
        row.set_text(1, "zoe");
    })
    .unwrap();
    let added = db.begin(TxnOptions::default()).unwrap();
    insert(&added, &table, 1, "bea").unwrap();
    db.drop_table("people").unwrap();
    assert_eq!(both.commit().unwrap_err(), dropped());
    assert_eq!(added.commit().unwrap_err(), dropped());
    // Nothing of it is in the log, which would not make sense.
    drop((db, table));
    let db = open(directory.path());
    assert_eq!(db.tables().len(), 1);
    let txn = db.begin(TxnOptions::default()).unwrap();
    other(&txn, &db.table("others").unwrap()).unwrap();
    txn.commit().unwrap();
}

#[test]
fn the_memory_of_a_dropped_table_comes_back_when_no_transaction_needs_it() {
    let db = Database::in_memory(Options::default());
    let beside = Schema::builder("beside")
        .column("id", Type::I32)
        .primary_key(["id"]);
    let beside = db.create_table(beside.build().unwrap()).unwrap();
    let empty = db.stats().memory_bytes;
    let write = |id| {
        db.run(TxnOptions::default(), |txn| {
            let mut row = beside.row();
            row.set_i32(0, id);
            txn.insert(&beside, &row)?;
            txn.delete(&beside, id)
        })
        .unwrap();
    };
    for held_back in [false, true] {
        let names = vec!["somebody with a long name"; 5000];
        let table = with_people(&db, &names);
        // Garbage that leads to its records and entries.
        db.run(TxnOptions::default(), |txn| {
            (0..1000).try_for_each(|id| match id % 2 {
                0 => txn.delete(&table, id),
                _ => txn.update(&table, id, |row| {
                    row.set_text(1, "another");
                }),
            })
        })
        .unwrap();
        let full = db.stats().memory_bytes;
        assert!(full > empty + 500_000, "{full}");
        let reader = held_back.then(|| db.begin(TxnOptions::read_only()).unwrap());
        let row = reader.as_ref().map(|txn| txn.get(&table, 8).unwrap());
        db.drop_table("people").unwrap();
        if held_back {
            // What is in use stays, whoever else comes and goes.
            (0..500).for_each(write);
            assert!(db.stats().memory_bytes > empty + 500_000);
            assert!(row.flatten().is_none());
            drop(reader);
            // Each transaction frees a part.
            (0..2000).for_each(write);
        }
        let left = db.stats().memory_bytes;
        assert!(left < empty + 100_000, "{left} of {full}");
        (0..3).for_each(|_| db.collect());
        assert_eq!(db.stats().garbage_bytes, 0);
        // Of a table without rows nothing is freed.
        drop(table);
    }
}

#[test]
fn a_drop_lasts_from_the_log_and_from_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut last = None;
    for checkpoint in [false, true, false] {
        let db = open(directory.path());
        let first = with_people(&db, &["anna"]);
        db.drop_table("people").unwrap();
        with_people(&db, &["bea"]);
        if checkpoint {
            db.checkpoint().unwrap();
        }
        drop((db, first));
        let db = open(directory.path());
        assert_eq!(names(&db), ["bea"]);
        assert_eq!(db.recovery().unwrap().tables, 1);
        db.drop_table("people").unwrap();
        if checkpoint {
            // One of its records goes with the next one.
            db.checkpoint().unwrap();
            db.checkpoint().unwrap();
        }
        drop(db);
        let db = open(directory.path());
        assert!(db.tables().is_empty());
        // The number of a table is never used again.
        let table = db.create_table(people()).unwrap();
        assert!(Some(table.id()) > last, "{:?} after {last:?}", table.id());
        last = Some(table.id());
        db.drop_table("people").unwrap();
    }
}

#[test]
fn a_checkpoint_has_the_schema_as_of_its_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let db = open(directory.path());
        std::thread::scope(|scope| {
            let checkpoints = scope.spawn(|| (0..3).try_for_each(|_| db.checkpoint().map(drop)));
            for _ in 0..5 {
                if round > 0 || !db.tables().is_empty() {
                    db.drop_table("people").unwrap();
                }
                with_people(&db, &vec!["anna"; 300]);
            }
            checkpoints.join().unwrap().unwrap();
        });
        drop(db);
        assert_eq!(names(&open(directory.path())).len(), 300);
    }
}

#[test]
fn garbage_that_waits_does_not_lead_to_what_is_gone_with_its_table() {
    let db = Database::in_memory(Options::default());
    let beside = Schema::builder("beside")
        .column("id", Type::I32)
        .primary_key(["id"]);
    let beside = db.create_table(beside.build().unwrap()).unwrap();
    let write = |id| {
        db.run(TxnOptions::default(), |txn| {
            let mut row = beside.row();
            row.set_i32(0, id);
            txn.insert(&beside, &row)?;
            txn.delete(&beside, id)
        })
        .unwrap();
    };
    for _ in 0..20 {
        let table = with_people(&db, &["anna"; 200]);
        // The reader has the first slot, and this thread leaves in the second what
        // waits for it. That is too little to be looked at soon.
        let reader = db.begin(TxnOptions::read_only()).unwrap();
        db.run(TxnOptions::default(), |txn| {
            (0..8).try_for_each(|id| txn.delete(&table, id))
        })
        .unwrap();
        db.drop_table("people").unwrap();
        drop(reader);
        // Another thread has the first slot now and frees all of the table.
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(write));
        });
        // And this one comes to what waits.
        (0..200).for_each(write);
    }
    (0..3).for_each(|_| db.collect());
    assert_eq!(db.stats().garbage_bytes, 0);
}

/// Files as the version before wrote them, in which a new table has no timestamp: two
/// tables, the second later than the checkpoint.
#[test]
fn a_database_of_format_2_is_read_and_goes_on() {
    for without_checkpoint in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-2");
        for file in std::fs::read_dir(files).unwrap() {
            let file = file.unwrap();
            let name = file.file_name();
            if !(without_checkpoint && name.to_str().unwrap().starts_with("checkpoint")) {
                std::fs::copy(file.path(), directory.path().join(name)).unwrap();
            }
        }
        let db = open(directory.path());
        assert_eq!(names(&db), ["bea", "carl"]);
        assert_eq!(db.tables().len(), 2);
        db.drop_table("empty").unwrap();
        drop(db);
        let db = open(directory.path());
        assert_eq!((names(&db).len(), db.tables().len()), (2, 1));
        db.checkpoint().unwrap();
        drop(db);
        assert_eq!(names(&open(directory.path())), ["bea", "carl"]);
    }
}
