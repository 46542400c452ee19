//! The schema changes while transactions go on: what they see of it, and what is left
//! of it after a restart.

use std::path::Path;

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Column, Database, DurabilityOptions, Error, KeyRange, Options, Result, Schema, SchemaError,
    Table, Transaction, TxnOptions, Type, Value,
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

fn column(name: &str, ty: Type, nullable: bool) -> Column {
    let name = name.to_owned();
    Column { name, ty, nullable }
}

fn begin(db: &Database) -> Transaction<'_> {
    db.begin(TxnOptions::default()).unwrap()
}

/// The values of all rows, in the order of their keys.
fn rows(db: &Database, table: &Table) -> Vec<Vec<Value>> {
    let txn = begin(db);
    let rows = txn.scan(table, KeyRange::all(), Forward).unwrap();
    rows.map(|row| row.unwrap().values()).collect()
}

#[test]
fn rows_have_the_default_of_a_column_that_is_added_and_old_handles_go_on() {
    let db = Database::in_memory(Options::default());
    let old = with_people(&db, &["anna", "bea"]);
    let open = begin(&db);
    let age = db.add_column("people", column("age", Type::I64, false), 30);
    let age = age.unwrap();
    let note = db.add_column("people", column("note", Type::Text, true), Value::Null);
    let new = note.unwrap();
    let row = |id: i32, name: &str, age: i64, note: Value| {
        let first = [id.into(), name.into(), Value::Null];
        first
            .into_iter()
            .chain([age.into(), note])
            .collect::<Vec<_>>()
    };
    let bea = row(1, "bea", 30, Value::Null);
    assert_eq!(
        rows(&db, &new),
        [row(0, "anna", 30, Value::Null), bea.clone()]
    );
    // A transaction that began before does, too: the schema is not in its snapshot.
    assert_eq!(open.get(&new, 1).unwrap().unwrap().values(), bea);
    open.update(&new, 1, |row| {
        row.set_i64(3, row.i64(3) + 1).set_text(4, "é");
    })
    .unwrap();
    // A handle of before sees what it knows, and what it does not know stays.
    insert(&open, &old, 2, "carl").unwrap();
    open.update(&old, 1, |row| {
        assert_eq!(row.values().len(), 3);
        row.set_text(1, "a much longer name");
    })
    .unwrap();
    open.commit().unwrap();
    let now = [
        row(0, "anna", 30, Value::Null),
        row(1, "a much longer name", 31, "é".into()),
        row(2, "carl", 30, Value::Null),
    ];
    assert_eq!(rows(&db, &new), now);
    assert_eq!(rows(&db, &age)[2], now[2][..4]);
    assert_eq!(rows(&db, &old)[1], now[1][..3]);
    // A row is of the schema that it was made for.
    let txn = begin(&db);
    let mut stray = old.row();
    stray.set_i32(0, 9).set_text(1, "zoe");
    let error = txn.insert(&new, &stray).unwrap_err().to_string();
    assert!(error.contains("Table::row"), "{error}");
    // And the new column is as strict as others.
    let error = insert(&txn, &new, 9, "zoe").unwrap_err().to_string();
    assert!(
        error.contains("column 'age' of 'people' must have a value"),
        "{error}"
    );
    let copy = txn.get(&new, 0).unwrap().unwrap().to_owned();
    txn.delete(&new, 0).unwrap();
    txn.insert(&new, &copy).unwrap();
    txn.commit().unwrap();
    assert_eq!(rows(&db, &new), now);
}

#[test]
fn a_column_that_cannot_be_added_or_dropped_is_refused_with_what_to_do() {
    let db = Database::in_memory(Options::default());
    with_people(&db, &["anna"]);
    let says = |result: Result<Table>, text: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    let add = |name, nullable, default: Value| {
        db.add_column("people", column(name, Type::I32, nullable), default)
    };
    says(add("age", false, Value::Null), "give a default");
    says(add("name", true, Value::Null), "'name' exists already");
    says(add("", true, Value::Null), "needs a name");
    says(add("age", true, "x".into()), "'age' is an i32");
    says(add("age", true, i64::MAX.into()), "does not fit");
    says(
        db.add_column("pets", column("a", Type::I32, true), 1),
        "no table 'pets'",
    );
    says(db.drop_column("people", "id"), "it is in the primary key");
    says(
        db.drop_column("people", "name"),
        "index 'by_name': drop that first",
    );
    says(db.drop_column("people", "age"), "no column 'age'");
    assert_eq!(db.table("people").unwrap().schema(), &people());
    // Columns that were dropped count, as rows keep their places.
    let failed = (0..).find_map(|_| {
        let added = add("age", true, Value::Null);
        let dropped = added.and_then(|_| db.drop_column("people", "age"));
        dropped.err()
    });
    let error = failed.unwrap().to_string();
    assert!(error.contains("has 1025 columns"), "{error}");
}

#[test]
fn a_dropped_column_is_gone_and_handles_that_know_it_are_refused() {
    let db = Database::in_memory(Options::default());
    let first = with_people(&db, &["anna", "bea"]);
    let old = db.add_column("people", column("age", Type::I64, false), 30);
    let old = old.unwrap();
    let open = begin(&db);
    let mut scan = open.scan(&old, KeyRange::all(), Forward).unwrap();
    assert_eq!(scan.next().unwrap().unwrap().i64(3), 30);
    open.update(&old, 1, |row| {
        row.set_i64(3, 31);
    })
    .unwrap();
    let new = db.drop_column("people", "photo").unwrap();
    let refused: Error = SchemaError::OldHandle {
        table: "people".into(),
    }
    .into();
    let reader = begin(&db);
    for handle in [&old, &first] {
        assert_eq!(reader.get(handle, 0).unwrap_err(), refused);
        let scan = reader.scan(handle, KeyRange::all(), Forward);
        assert_eq!(scan.err(), Some(refused.clone()));
        assert_eq!(open.delete(handle, 0).unwrap_err(), refused);
    }
    assert!(refused.to_string().contains("Database::table"));
    // The transaction goes on with another handle, and what it did is committed.
    open.update(&new, 0, |row| {
        row.set_i64(2, 29);
    })
    .unwrap();
    open.commit().unwrap();
    let expected: [Vec<Value>; 2] = [
        vec![0.into(), "anna".into(), 29i64.into()],
        vec![1.into(), "bea".into(), 31i64.into()],
    ];
    assert_eq!(rows(&db, &new), expected);
    assert_eq!(new.column("age"), Ok(2));
    // The name is free for another column, with values of its own.
    let again = db.add_column("people", column("photo", Type::Bool, false), true);
    let again = again.unwrap();
    assert_eq!(rows(&db, &again)[0][3], Value::Bool(true));
    assert_eq!(rows(&db, &new), expected);
    assert_eq!(names(&db), ["anna", "bea"]);
}

#[test]
fn columns_last_from_the_log_and_from_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let old = with_people(&db, &["anna", "bea"]);
    db.add_column("people", column("age", Type::I64, false), 30)
        .unwrap();
    let txn = begin(&db);
    insert(&txn, &old, 2, "carl").unwrap();
    txn.commit().unwrap();
    db.drop_column("people", "photo").unwrap();
    let table = db.add_column("people", column("note", Type::Text, false), "none");
    let table = table.unwrap();
    db.run(TxnOptions::default(), |txn| {
        txn.update(&table, 1, |row| {
            row.set_i64(2, 5).set_text(3, "some");
        })
    })
    .unwrap();
    let before = rows(&db, &table);
    assert_eq!(before[1][2..], [Value::I64(5), "some".into()]);
    let schema = table.schema().clone();
    drop((db, table, old));
    for _ in 0..3 {
        let db = open(directory.path());
        let table = db.table("people").unwrap();
        assert_eq!(
            (rows(&db, &table), table.schema()),
            (before.clone(), &schema)
        );
        assert_eq!(names(&db).len(), 3);
        db.checkpoint().unwrap();
    }
}

/// What an index leads to, in its order.
fn by(db: &Database, table: &str, index: &str) -> Vec<Vec<Value>> {
    let index = db.table(table).unwrap().index(index).unwrap();
    let txn = begin(db);
    let rows = txn.scan_index(&index, KeyRange::all(), Forward).unwrap();
    rows.map(|row| row.unwrap().values()).collect()
}

/// The index of `people` on this column has each row of the table once.
fn check_index(db: &Database, index: &str, column: usize) {
    let table = db.table("people").unwrap();
    let mut expected = rows(db, &table);
    expected.sort_by_key(|row| format!("{:?}", row[column]));
    assert_eq!(by(db, "people", index), expected);
}

fn changed() -> Error {
    Error::SchemaChanged {
        table: "people".into(),
    }
}

#[test]
fn an_index_is_added_to_a_table_with_rows_and_dropped() {
    let db = Database::in_memory(Options::default());
    let old = with_people(&db, &["carl", "anna", "bea"]);
    db.drop_index("people", "by_name").unwrap();
    assert!(old.index("by_name").is_err());
    assert!(db.table("people").unwrap().schema().indexes().is_empty());
    let by_name = db.add_index("people", "by_name", ["name"]).unwrap();
    assert_eq!(by_name.table().schema(), &people());
    assert_eq!(names(&db), ["anna", "bea", "carl"]);
    // Handles of before go on, and find it.
    let txn = begin(&db);
    insert(&txn, &old, 3, "dora").unwrap();
    txn.delete(&old, 1).unwrap();
    txn.commit().unwrap();
    assert!(old.index("by_name").is_ok());
    assert_eq!(names(&db), ["bea", "carl", "dora"]);
    // A row that was made with one handle fits the other.
    let txn = begin(&db);
    let mut row = old.row();
    row.set_i32(0, 4).set_text(1, "emil");
    txn.insert(by_name.table(), &row).unwrap();
    txn.commit().unwrap();
    check_index(&db, "by_name", 1);

    let says = |result: Result<giveway_txn::Index>, text: &str| {
        let error = result.map(drop).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(
        db.add_index("people", "by_name", ["id"]),
        "'by_name' exists",
    );
    says(db.add_index("people", "by_age", ["age"]), "no column 'age'");
    says(
        db.add_index("people", "none", [] as [&str; 0]),
        "on no column",
    );
    says(db.add_index("pets", "by_age", ["age"]), "no table 'pets'");
    let error = db.drop_index("people", "by_age").unwrap_err().to_string();
    assert!(error.contains("it has by_name"), "{error}");
    // On a column that rows lack.
    let table = db.add_column("people", column("age", Type::I64, false), 30);
    db.add_index("people", "by_age", ["age"]).unwrap();
    db.run(TxnOptions::default(), |txn| {
        insert(txn, &old, 9, "zoe")?;
        txn.update(table.as_ref().unwrap(), 4, |row| {
            row.set_i64(3, 15);
        })
    })
    .unwrap();
    check_index(&db, "by_age", 3);
    assert_eq!(by(&db, "people", "by_age")[0][0], Value::I32(4));
    check_index(&db, "by_name", 1);
}

#[test]
fn a_transaction_that_wrote_before_an_index_changed_runs_again() {
    let db = Database::in_memory(Options::default());
    let table = with_people(&db, &["anna", "bea"]);
    let write = |txn: &Transaction<'_>, id| {
        txn.update(&table, id, |row| {
            let name = format!("{} and more", row.text(1));
            row.set_text(1, &name);
        })
    };
    for add in [true, false] {
        let (commits, goes_on) = (begin(&db), begin(&db));
        write(&commits, 0).unwrap();
        write(&goes_on, 1).unwrap();
        let reads = begin(&db);
        assert!(reads.get(&table, 0).unwrap().is_some());
        match add {
            true => drop(db.add_index("people", "second", ["name"]).unwrap()),
            false => db.drop_index("people", "second").unwrap(),
        }
        assert_eq!(commits.commit().unwrap_err(), changed());
        // Of its own row it learns at once.
        assert_eq!(write(&goes_on, 1).unwrap_err(), changed());
        assert_eq!(goes_on.commit().unwrap_err(), changed());
        assert!(changed().is_retryable());
        // Who has only read may write now.
        insert(&reads, &table, 10 + i32::from(add), "carl").unwrap();
        reads.commit().unwrap();
        let mut attempts = 0;
        db.run(TxnOptions::default(), |txn| {
            attempts += 1;
            write(txn, 0)?;
            if attempts == 1 {
                db.add_index("people", "third", ["id"])?;
                db.drop_index("people", "third")?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(attempts, 2);
        check_index(&db, "by_name", 1);
    }
}

#[test]
fn an_index_is_read_from_its_completion_to_its_end() {
    let db = Database::in_memory(Options::default());
    let table = with_people(&db, &vec!["anna"; 300]);
    let old = begin(&db);
    assert!(old.get(&table, 0).unwrap().is_some());
    // So that the clock moves on.
    let txn = begin(&db);
    txn.delete(&table, 0).unwrap();
    txn.commit().unwrap();
    let index = db.add_index("people", "second", ["name"]).unwrap();
    // It has no entry for what only older snapshots see.
    let scan = old.scan_index(&index, KeyRange::all(), Forward);
    assert_eq!(scan.err(), Some(changed()));
    let committed = TxnOptions::read_committed();
    let (now, later) = (begin(&db), db.begin(committed).unwrap());
    let scan = now.scan_index(&index, KeyRange::all(), Forward).unwrap();
    assert_eq!(scan.count(), 299);
    let mut scan = later.scan_index(&index, KeyRange::all(), Forward).unwrap();
    assert!(scan.next().unwrap().is_ok());
    db.drop_index("people", "second").unwrap();
    let dropped: Error = SchemaError::IndexDropped {
        index: "second".into(),
        table: "people".into(),
    }
    .into();
    assert_eq!(scan.last().unwrap().unwrap_err(), dropped);
    let scan = later.scan_index(&index, KeyRange::all(), Forward);
    assert_eq!(scan.err(), Some(dropped));
    assert!(later.get(&table, 1).unwrap().is_some());
}

/// A phantom that an index cannot tell of any more.
#[test]
fn a_serializable_transaction_that_has_read_a_dropped_index_is_not_certified() {
    let db = Database::in_memory(Options::default());
    let table = with_people(&db, &["anna"]);
    let by_name = table.index("by_name").unwrap();
    let pets = Schema::builder("pets")
        .column("id", Type::I32)
        .primary_key(["id"]);
    let pets = db.create_table(pets.build().unwrap()).unwrap();
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    let found = txn.scan_index(&by_name, KeyRange::prefix("zoe"), Forward);
    assert_eq!(found.unwrap().count(), 0);
    db.drop_index("people", "by_name").unwrap();
    let other = begin(&db);
    insert(&other, &table, 1, "zoe").unwrap();
    other.commit().unwrap();
    let mut row = pets.row();
    row.set_i32(0, 1);
    txn.insert(&pets, &row).unwrap();
    assert_eq!(txn.commit().unwrap_err(), Error::Serialization);
}

/// Everything that may happen to a row while an index is built, again and again, from
/// several threads. Some builds are abandoned.
#[test]
fn an_index_that_is_built_beside_writers_is_what_the_table_is() {
    use rand::{Rng, SeedableRng};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const IDS: i32 = 600;
    let db = Database::in_memory(Options::default());
    let text = |number: i32| format!("name {}", number % 50);
    let names: Vec<String> = (0..IDS).map(text).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let table = with_people(&db, &names);
    let done = AtomicBool::new(false);
    let again = std::sync::atomic::AtomicU64::new(0);
    let live = std::thread::scope(|scope| {
        for seed in 0..3 {
            let (db, table, done, again) = (&db, &table, &done, &again);
            scope.spawn(move || {
                let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
                while !done.load(Relaxed) {
                    let options = match random.random_range(0..3) {
                        0 => TxnOptions::read_committed(),
                        1 => TxnOptions::snapshot(),
                        _ => TxnOptions::serializable(),
                    };
                    let (rows, give_up) = (random.random_range(1..6), random.random_bool(0.3));
                    let written = db.begin(options).and_then(|txn| {
                        for _ in 0..rows {
                            let (id, name) = (random.random_range(0..IDS), text(random.random()));
                            let there = txn.get(table, id)?.is_some();
                            match random.random_range(0..4) {
                                0 if there => txn.delete(table, id)?,
                                _ if !there => insert(&txn, table, id, &name)?,
                                // The key stays.
                                1 => txn.update(table, id, |row| {
                                    row.set_bytes(2, &[1, 2]);
                                })?,
                                _ => txn.update(table, id, |row| {
                                    row.set_text(1, &name);
                                })?,
                            }
                        }
                        match give_up {
                            true => Ok(0),
                            false => txn.commit(),
                        }
                    });
                    match written {
                        Ok(_) | Err(Error::DuplicateKey { .. } | Error::NotFound { .. }) => {}
                        Err(error) if error == changed() => {
                            again.fetch_add(1, Relaxed);
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            });
        }
        let mut live = 0;
        for round in 0..60 {
            db.add_index("people", "second", ["name", "photo"]).unwrap();
            // Live and still written to, then compared as of one snapshot.
            let txn = begin(&db);
            let found = table.index("second").unwrap();
            let found = txn.scan_index(&found, KeyRange::all(), Forward).unwrap();
            let mut found: Vec<i32> = found.map(|row| row.unwrap().i32(0)).collect();
            found.sort_unstable();
            let rows = txn.scan(&table, KeyRange::all(), Forward).unwrap();
            let rows: Vec<i32> = rows.map(|row| row.unwrap().i32(0)).collect();
            assert_eq!(found, rows, "round {round}");
            live += 1;
            drop(txn);
            db.drop_index("people", "second").unwrap();
        }
        done.store(true, Relaxed);
        live
    });
    println!("{live} indexes, {again:?} transactions had to run again");
    check_index(&db, "by_name", 1);
    // What was dropped is gone, and what was counted, counted once.
    db.add_index("people", "second", ["name"]).unwrap();
    check_index(&db, "second", 1);
    db.run(TxnOptions::default(), |txn| {
        let rows = txn.scan(&table, KeyRange::all(), Forward)?;
        let ids: Vec<i32> = rows.map(|row| Ok(row?.i32(0))).collect::<Result<_>>()?;
        ids.into_iter().try_for_each(|id| txn.delete(&table, id))
    })
    .unwrap();
    (0..3).for_each(|_| db.collect());
    assert_eq!(by(&db, "people", "second"), [[]; 0]);
    let stats = db.stats();
    assert_eq!(stats.garbage_bytes, 0);
    // Not one entry is left, so none was counted twice.
    assert_eq!(stats.memory_bytes, 0);
}

#[test]
fn an_index_for_which_there_is_no_memory_is_abandoned() {
    let limit = 8 << 20;
    let options = Options {
        memory_limit: limit,
        ..Options::default()
    };
    let db = Database::in_memory(options);
    let name = "a name that is so long that an index of it needs as much as the table";
    let table = with_people(&db, &vec![name; 22_000]);
    let before = db.stats().held_bytes;
    assert!((limit / 2..limit).contains(&before), "{before}");
    let failed = db.add_index("people", "second", ["name"]).map(drop);
    assert!(
        matches!(failed, Err(Error::OutOfMemory { .. })),
        "{failed:?}"
    );
    assert!(table.index("second").is_err());
    db.collect();
    let after = db.stats().held_bytes;
    // At most 16 free chunks of 64 KiB are kept.
    assert!(after < before + (1 << 20), "{after} of {before}");
    // The table is as before, and with fewer rows there is room.
    db.run(TxnOptions::default(), |txn| {
        (0..17_000).try_for_each(|id| txn.delete(&table, id))
    })
    .unwrap();
    db.collect();
    db.add_index("people", "second", ["name"]).unwrap();
    assert_eq!(by(&db, "people", "second").len(), 5_000);
    assert_eq!(names(&db).len(), 5_000);
}

#[test]
fn one_index_of_a_table_is_built_at_a_time_and_its_table_may_be_dropped() {
    let building: Error = SchemaError::Building {
        table: "people".into(),
    }
    .into();
    let db = Database::in_memory(Options::default());
    let mut seen = (false, false);
    for _ in 0..100 {
        if seen == (true, true) {
            break;
        }
        with_people(&db, &vec!["anna"; 4000]);
        let begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let build = scope.spawn(|| {
                begun.wait();
                db.add_index("people", "second", ["photo"]).map(drop)
            });
            begun.wait();
            let other = db.drop_column("people", "photo").map(drop);
            if other.is_ok() {
                // It was first: the build finds no column.
                assert!(build.join().unwrap().is_err());
                return;
            }
            if other == Err(building.clone()) {
                seen.0 = true;
                assert_eq!(db.add_index("people", "third", ["id"]).map(drop), other);
                db.drop_table("people").unwrap();
                let ended = build.join().unwrap();
                seen.1 |= ended == Err(dropped());
                assert!(ended.is_ok() || ended == Err(dropped()), "{ended:?}");
            }
        });
        if db.table("people").is_ok() {
            db.drop_table("people").unwrap();
        }
    }
    assert!(seen.0 && seen.1, "{seen:?}");
    (0..3).for_each(|_| db.collect());
    assert_eq!(db.stats().memory_bytes, 0);
}

#[test]
fn indexes_last_from_the_log_and_from_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let table = with_people(&db, &["carl", "anna", "bea"]);
    db.drop_index("people", "by_name").unwrap();
    db.add_index("people", "by_photo", ["photo", "name"])
        .unwrap();
    db.run(TxnOptions::default(), |txn| {
        insert(txn, &table, 3, "dora")?;
        txn.delete(&table, 1)?;
        txn.update(&table, 2, |row| {
            row.set_bytes(2, &[1]);
        })
    })
    .unwrap();
    let before = by(&db, "people", "by_photo");
    assert_eq!(before.len(), 3);
    drop((db, table));
    for _ in 0..3 {
        let db = open(directory.path());
        assert_eq!(by(&db, "people", "by_photo"), before);
        assert!(db.table("people").unwrap().index("by_name").is_err());
        db.checkpoint().unwrap();
    }
}
