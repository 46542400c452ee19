//! What happens at the edges: of memory, of garbage, of time, of what the
//! schema allows.

use std::time::{Duration, Instant};

use giveway_tier::Tier;
use giveway_txn::{
    Database, Direction, Error, KeyRange, Options, Schema, SchemaError, Table, TxnOptions, Type,
    Value,
};

fn database(options: Options) -> (Database, Table) {
    let db = Database::in_memory(options);
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .column("data", Type::Text)
        .nullable("note", Type::Text)
        .primary_key(["id"])
        .build();
    let table = db.create_table(schema.unwrap()).unwrap();
    (db, table)
}

fn insert(db: &Database, table: &Table, id: i32, data: &str) -> Result<(), Error> {
    db.run(TxnOptions::default(), |txn| {
        let mut row = table.row();
        row.set_i32(0, id).set_text(1, data);
        txn.insert(table, &row)
    })
}

fn set(db: &Database, table: &Table, id: i32, data: &str) -> Result<(), Error> {
    db.run(TxnOptions::default(), |txn| {
        txn.update(table, id, |row| {
            row.set_text(1, data);
        })
    })
}

#[test]
fn memory_ends_with_an_error_and_nothing_else() {
    let limit = 4 << 20;
    let (db, table) = database(Options {
        memory_limit: limit,
        ..Options::default()
    });
    let data = "x".repeat(1000);
    let mut rows = 0;
    let error = loop {
        match insert(&db, &table, rows, &data) {
            Ok(()) => rows += 1,
            Err(error) => break error,
        }
    };
    let Error::OutOfMemory {
        used, limit: told, ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(used <= limit && told == limit && !error.is_retryable());
    assert!(
        (3000..4200).contains(&rows),
        "{rows} rows of 1 KiB in 4 MiB"
    );
    // All that was committed is there, and deleting makes room.
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let scan = txn
        .scan(&table, KeyRange::all(), Direction::Forward)
        .unwrap();
    assert_eq!(
        scan.map(|row| row.unwrap().i32(0)).collect::<Vec<_>>(),
        (0..rows).collect::<Vec<_>>()
    );
    drop(txn);
    let txn = db.begin(TxnOptions::default()).unwrap();
    for id in 0..rows / 2 {
        txn.delete(&table, id).unwrap();
    }
    txn.commit().unwrap();
    (0..2).for_each(|_| db.collect());
    for id in 0..rows / 3 {
        insert(&db, &table, id, &data).unwrap();
    }
}

/// So does deleting every second row, which leaves no chunk of memory wholly free.
#[test]
fn rows_that_are_deleted_here_and_there_make_room() {
    let limit = 4 << 20;
    let (db, table) = database(Options {
        memory_limit: limit,
        ..Options::default()
    });
    let data = "x".repeat(1000);
    let rows = (0..).find(|&id| insert(&db, &table, id, &data).is_err());
    let rows = rows.unwrap();
    let txn = db.begin(TxnOptions::default()).unwrap();
    for id in (0..rows).step_by(2) {
        txn.delete(&table, id).unwrap();
    }
    txn.commit().unwrap();
    (0..2).for_each(|_| db.collect());
    for id in (0..rows).step_by(2).take(rows as usize / 3) {
        insert(&db, &table, id, &data).unwrap_or_else(|error| panic!("row {id}: {error}"));
    }
    for id in (1..rows).step_by(2) {
        set(&db, &table, id, &data).unwrap_or_else(|error| panic!("row {id}: {error}"));
    }
    let held = db.stats().held_bytes;
    assert!(held <= limit + limit / 16, "{held}");
    // It ends all the same.
    let more = (rows..2 * rows).find_map(|id| insert(&db, &table, id, &data).err());
    assert!(matches!(more, Some(Error::OutOfMemory { .. })), "{more:?}");
    let held = db.stats().held_bytes;
    assert!(held <= limit + limit / 16, "{held}");
}

/// Also if it is larger than all that the database may have.
#[test]
fn a_row_that_does_not_fit_is_refused_and_a_smaller_one_is_not() {
    let limit = 16 << 20;
    let (db, table) = database(Options {
        memory_limit: limit,
        ..Options::default()
    });
    let large = insert(&db, &table, 1, &"x".repeat(64 << 20));
    assert!(matches!(large, Err(Error::OutOfMemory { .. })), "{large:?}");
    insert(&db, &table, 1, &"x".repeat(1000)).unwrap();
    // A row of a third of it can be changed again and again, since what was replaced goes.
    for _ in 0..5 {
        set(&db, &table, 1, &"x".repeat(5 << 20)).unwrap();
    }
    let larger = set(&db, &table, 1, &"x".repeat(12 << 20));
    assert!(
        matches!(larger, Err(Error::OutOfMemory { .. })),
        "{larger:?}"
    );
}

/// However few they are.
#[test]
fn large_rows_that_were_replaced_are_freed_at_once() {
    const ROW: usize = 4 << 20;
    let (db, table) = database(Options::default());
    insert(&db, &table, 1, "").unwrap();
    for _ in 0..10 {
        set(&db, &table, 1, &"x".repeat(ROW)).unwrap();
        let held = db.stats().held_bytes;
        assert!(held < 3 * ROW as u64, "{held}");
    }
}

/// What transactions had is given to others that need it, once they have ended.
#[test]
fn slots_without_a_transaction_hold_no_memory_that_others_need() {
    const THREADS: i32 = 16;
    let (db, table) = database(Options {
        memory_limit: 80 << 20,
        ..Options::default()
    });
    let all_are_open = std::sync::Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table, all_are_open) = (&db, &table, &all_are_open);
            scope.spawn(move || {
                let txn = db.begin(TxnOptions::default()).unwrap();
                // Of forty sizes; then long lists.
                let sizes = (0..40).map(|size| 50 * size).chain([8; 5000]);
                for (id, bytes) in sizes.enumerate() {
                    let mut row = table.row();
                    row.set_i32(0, thread * 10_000 + id as i32)
                        .set_text(1, &"x".repeat(bytes));
                    txn.insert(table, &row).unwrap();
                }
                all_are_open.wait();
            });
        }
    });
    let data = "x".repeat(1000);
    for id in 0..50_000 {
        insert(&db, &table, id, &data).unwrap_or_else(|error| panic!("row {id}: {error}"));
    }
}

/// Before writers are refused for what it holds back, if it goes on.
#[test]
fn a_reader_that_holds_back_memory_is_ended_whatever_garbage_limit_says() {
    let (db, table) = database(Options {
        memory_limit: 8 << 20,
        ..Options::default()
    });
    for id in 0..100 {
        insert(&db, &table, id, "").unwrap();
    }
    let mut reader = Some(db.begin(TxnOptions::read_only()).unwrap());
    let data = "x".repeat(1000);
    for round in 0..300 {
        for id in 0..100 {
            set(&db, &table, id, &data).unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        if let Some(txn) = &reader
            && let Err(error) = txn.get(&table, 1)
        {
            assert_eq!(error, Error::SnapshotTooOld);
            reader = None;
        }
    }
    assert!(reader.is_none());
    // One that does not go on keeps what it has, and is ended when it does.
    let reader = db.begin(TxnOptions::read_only()).unwrap();
    let refused = (0..20_000).find_map(|round| set(&db, &table, round % 100, &data).err());
    assert!(
        matches!(refused, Some(Error::OutOfMemory { .. })),
        "{refused:?}"
    );
    assert_eq!(reader.get(&table, 1).err(), Some(Error::SnapshotTooOld));
    drop(reader);
    set(&db, &table, 1, &data).unwrap();
}

#[test]
fn the_oldest_snapshot_is_reported_and_then_aborted() {
    let (db, table) = database(Options {
        garbage_limit: 1 << 20,
        ..Options::default()
    });
    insert(&db, &table, 1, "a").unwrap();
    let options = TxnOptions::read_only().tier(Tier::Background);
    let old = db.begin(options.label(&"monthly report")).unwrap();
    assert_eq!(old.get(&table, 1).unwrap().unwrap().text(1), "a");
    let data = "x".repeat(1000);
    for _ in 0..500 {
        set(&db, &table, 1, &data).unwrap();
    }
    let stats = db.stats();
    assert!(stats.garbage_bytes > 400_000, "{stats:?}");
    let oldest = stats.oldest.unwrap();
    assert_eq!(
        (oldest.label, oldest.tier),
        ("monthly report", Tier::Background)
    );
    assert_eq!(oldest.snapshot, old.snapshot());
    assert_eq!(old.get(&table, 1).unwrap().unwrap().text(1), "a");
    for _ in 0..1000 {
        set(&db, &table, 1, &data).unwrap();
    }
    assert_eq!(old.get(&table, 1).err(), Some(Error::SnapshotTooOld));
    assert!(Error::SnapshotTooOld.is_retryable());
    assert_eq!(old.commit(), Err(Error::SnapshotTooOld));
    (0..2).for_each(|_| db.collect());
    assert_eq!(db.stats().garbage_bytes, 0);
}

#[test]
fn a_scan_notices_that_it_was_ended() {
    let (db, table) = database(Options {
        garbage_limit: 1 << 20,
        ..Options::default()
    });
    for id in 0..1000 {
        insert(&db, &table, id, "a").unwrap();
    }
    let old = db.begin(TxnOptions::read_only()).unwrap();
    let mut scan = old
        .scan(&table, KeyRange::all(), Direction::Forward)
        .unwrap();
    assert!(scan.next().unwrap().is_ok());
    let data = "x".repeat(1000);
    for _ in 0..1500 {
        set(&db, &table, 1, &data).unwrap();
    }
    assert_eq!(scan.find_map(Result::err), Some(Error::SnapshotTooOld));
}

#[test]
fn a_deadline_aborts_the_transaction() {
    let (db, table) = database(Options::default());
    insert(&db, &table, 1, "a").unwrap();
    let past = TxnOptions::default().deadline(Instant::now());
    let late = db.run(past.clone(), |txn| {
        txn.update(&table, 1, |row| {
            row.set_text(1, "b");
        })
    });
    assert_eq!(late, Err(Error::Timeout));
    let txn = db.begin(past).unwrap();
    let error = (0..100).find_map(|_| txn.get(&table, 1).err());
    assert_eq!(error, Some(Error::Timeout));
    // Retries end with the deadline, too.
    let holder = db.begin(TxnOptions::default()).unwrap();
    holder.update(&table, 1, |_| {}).unwrap();
    let attempts = |within: Duration| {
        let start = Instant::now();
        let mut attempts = 0;
        let soon = TxnOptions::default().deadline(start + within);
        let never = db.run(soon, |txn| {
            attempts += 1;
            txn.update(&table, 1, |_| {})
        });
        assert_eq!(never, Err(Error::Timeout));
        assert!(start.elapsed() >= within);
        attempts
    };
    // On a machine that is busy, only a longer time is enough for several.
    let mut times = (0..10).map(|power| Duration::from_millis(20 << power));
    assert!(times.any(|within| attempts(within) > 3));
}

#[test]
fn requests_that_do_not_fit_are_refused_and_change_nothing() {
    let (db, table) = database(Options::default());
    insert(&db, &table, 1, "a").unwrap();
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    let says = |result: Result<(), Error>, text: &str| {
        let error = result.unwrap_err();
        assert!(
            error.to_string().contains(text) && !error.is_retryable(),
            "{error}"
        );
    };
    let mut row = table.row();
    row.set_i32(0, 1);
    says(txn.insert(&table, &row), "'data' of 't' must have a value");
    row.set_text(1, "b");
    says(txn.insert(&table, &row), "has a row with this primary key");
    says(txn.delete(&table, 2), "no row with this primary key");
    says(
        txn.update(&table, 2, |_| {}),
        "no row with this primary key",
    );
    says(txn.get(&table, "x").map(drop), "'id' is an i32");
    says(txn.get(&table, (1, 2)).map(drop), "1 columns, 2 were given");
    says(
        txn.update(&table, 1, |row| {
            row.set_i32(0, 2);
        }),
        "changes the primary key",
    );
    says(
        txn.update(&table, 1, |row| {
            row.set_null(1);
        }),
        "must have a value",
    );
    let (_, other) = database(Options::default());
    says(txn.insert(&table, &other.row()), "a row of 't' was given");
    says(db.table("u").map(drop), "it has t");
    says(table.index("i").map(drop), "it has none");
    says(
        db.create_table(table.schema().clone()).map(drop),
        "'t' exists already",
    );
    txn.update(&table, 1, |row| {
        row.set(2, Value::from("still usable")).unwrap();
    })
    .unwrap();
    txn.commit().unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    let row = txn.get(&table, 1).unwrap().unwrap();
    assert_eq!((row.text(1), row.text(2)), ("a", "still usable"));
    let refused = txn.delete(&table, 1);
    assert_eq!(refused, Err(SchemaError::ReadOnlyTransaction.into()));
}

/// An update in an update of the same row: nothing is lost, nothing freed twice.
#[test]
fn an_update_may_write_its_row_itself() {
    let (db, table) = database(Options::default());
    insert(&db, &table, 1, "a").unwrap();
    let txn = db.begin(TxnOptions::default()).unwrap();
    for _ in 0..2 {
        let mut inner = 0;
        let outer = txn.update(&table, 1, |row| {
            if inner < 2 {
                inner += 1;
                txn.update(&table, 1, |row| {
                    row.set_text(1, &format!("{}i", row.text(1)));
                })
                .unwrap();
            }
            row.set_text(1, &format!("{}o", row.text(1)));
        });
        outer.unwrap();
    }
    assert_eq!(txn.get(&table, 1).unwrap().unwrap().text(1), "aiioiio");
    txn.commit().unwrap();
    (0..2).for_each(|_| db.collect());
    assert_eq!(db.stats().garbage_bytes, 0);
}

#[test]
#[should_panic(expected = "belongs to another database")]
fn tables_of_other_databases_are_a_bug() {
    let (db, _table) = database(Options::default());
    let (_other, table) = database(Options::default());
    let _ = db.begin(TxnOptions::default()).unwrap().get(&table, 1);
}

#[test]
#[should_panic(expected = "belongs to another database")]
fn prefetching_tables_of_other_databases_is_a_bug() {
    let (db, _table) = database(Options::default());
    let (_other, table) = database(Options::default());
    db.begin(TxnOptions::default())
        .unwrap()
        .prefetch(&table, [1]);
}

/// Prefetching rows does not read them: it finds what is there, minds nothing that is
/// not, and does not make a transaction depend on them.
#[test]
fn prefetched_rows_are_not_read() {
    let (db, table) = database(Options::default());
    for id in 0..40 {
        insert(&db, &table, id, "a").unwrap();
    }
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    txn.prefetch(&table, -3..45);
    txn.prefetch(&table, ["no", "number"]);
    txn.prefetch(&table, [(1, 2)]);
    set(&db, &table, 7, "b").unwrap();
    insert(&db, &table, 41, "c").unwrap();
    assert_eq!(txn.get(&table, 8).unwrap().unwrap().text(1), "a");
    txn.update(&table, 9, |row| {
        row.set_text(1, "d");
    })
    .unwrap();
    txn.commit().unwrap();
}

/// A row that was prefetched is read as any other: as of the snapshot, and what was
/// read must still hold at the commit.
#[test]
fn prefetched_rows_are_read_as_of_the_snapshot() {
    let (db, table) = database(Options::default());
    for id in 0..3 {
        insert(&db, &table, id, "a").unwrap();
    }
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    txn.prefetch(&table, 0..3);
    set(&db, &table, 0, "b").unwrap();
    assert_eq!(txn.get(&table, 0).unwrap().unwrap().text(1), "a");
    txn.update(&table, 1, |row| {
        row.set_text(1, "c");
    })
    .unwrap();
    assert_eq!(txn.get(&table, 1).unwrap().unwrap().text(1), "c");
    txn.delete(&table, 2).unwrap();
    assert!(txn.get(&table, 2).unwrap().is_none());
    assert!(matches!(txn.commit(), Err(Error::Serialization)));
    let txn = db.begin(TxnOptions::snapshot()).unwrap();
    txn.prefetch(&table, 0..3);
    set(&db, &table, 0, "d").unwrap();
    let late = txn.update(&table, 0, |_| ());
    assert!(matches!(late, Err(Error::Conflict { .. })));
}

/// A row that was prefetched may have gone, and another have taken its place.
#[test]
fn prefetched_rows_that_were_removed_are_looked_up_again() {
    let (db, table) = database(Options::default());
    let begin = |options| db.begin(options).unwrap();
    let txn = begin(TxnOptions::read_committed());
    let undecided = begin(TxnOptions::default());
    for id in 0..2 {
        let mut row = table.row();
        row.set_i32(0, id).set_text(1, "never");
        undecided.insert(&table, &row).unwrap();
    }
    txn.prefetch(&table, 0..2);
    assert!(txn.get(&table, 0).unwrap().is_none());
    undecided.abort();
    assert!(txn.get(&table, 0).unwrap().is_none());
    for id in 0..2 {
        insert(&db, &table, id, "another").unwrap();
    }
    assert_eq!(txn.get(&table, 0).unwrap().unwrap().text(1), "another");
    txn.update(&table, 1, |row| {
        row.set_text(1, "changed");
    })
    .unwrap();
    txn.commit().unwrap();
    let txn = begin(TxnOptions::read_only());
    assert_eq!(txn.get(&table, 1).unwrap().unwrap().text(1), "changed");
}

/// A row that is filled in place begins with nothing in it, whatever was in the
/// memory before.
#[test]
fn a_filled_row_is_new() {
    let (db, table) = database(Options::default());
    let txn = db.begin(TxnOptions::default()).unwrap();
    for id in 1..=2 {
        let data = "x".repeat(30 / id as usize);
        txn.insert_with(&table, |row| {
            assert!((0..3).all(|column| row.is_null(column)));
            row.set_i32(0, id).set_text(1, &data);
            if id == 1 {
                row.set_text(2, "noted");
            }
        })
        .unwrap();
    }
    let second = txn.get(&table, 2).unwrap().unwrap();
    table.check_row_bytes(second.raw()).unwrap();
    assert_eq!(
        (second.text(1), second.is_null(2)),
        (&*"x".repeat(15), true)
    );
    let again = txn.insert_with(&table, |row| {
        row.set_i32(0, 2).set_text(1, "");
    });
    assert!(matches!(again, Err(Error::DuplicateKey { .. })));
    let forgotten = txn.insert_with(&table, |row| {
        row.set_i32(0, 3);
    });
    assert!(forgotten.unwrap_err().to_string().contains("'data'"));
}

#[test]
fn a_copy_of_a_row_outlives_its_transaction_and_its_table() {
    let (db, table) = database(Options::default());
    insert(&db, &table, 1, "a").unwrap();
    let copy = {
        let table = db.table("t").unwrap();
        let txn = db.begin(TxnOptions::read_only()).unwrap();
        let copy = txn.get(&table, 1).unwrap().unwrap().to_owned();
        txn.commit().unwrap();
        copy
    };
    let mut copy = std::thread::spawn(move || copy).join().unwrap();
    assert_eq!((copy.i32(0), copy.text(1)), (1, "a"));
    assert_eq!(copy.schema().name(), "t");
    copy.set_i32(0, 2).set_text(1, "b");
    db.run(TxnOptions::default(), |txn| txn.insert(&table, &copy))
        .unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    assert_eq!(txn.get(&table, 2).unwrap().unwrap().text(1), "b");
}

/// Keys and indexes follow changes of any column, also of those behind number 63,
/// which are not told apart.
#[test]
fn indexes_on_late_columns_follow_their_changes() {
    let db = Database::in_memory(Options::default());
    let mut schema = Schema::builder("wide");
    for column in 0..70 {
        schema = schema.column(format!("c{column}"), Type::I32);
    }
    let schema = schema.primary_key(["c66"]).index("by", ["c3", "c68"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    let by = table.index("by").unwrap();
    let txn = db.begin(TxnOptions::default()).unwrap();
    txn.insert_with(&table, |row| {
        (0..70).for_each(|column| {
            row.set_i32(column, 1);
        });
    })
    .unwrap();
    let count = |three: i32, late: i32| {
        let range = KeyRange::prefix((three, late));
        txn.scan_index(&by, range, Direction::Forward)
            .unwrap()
            .count()
    };
    for (column, now) in [(68, (1, 5)), (3, (5, 5)), (69, (5, 5))] {
        txn.update(&table, 1, |row| {
            row.set_i32(column, 5);
        })
        .unwrap();
        assert_eq!(
            (count(1, 1), count(now.0, now.1)),
            (0, 1),
            "column {column}"
        );
    }
    let moved = txn.update(&table, 1, |row| {
        row.set_i32(66, 2);
    });
    assert!(moved.unwrap_err().to_string().contains("primary key"));
}

/// What a serializable transaction notes of its reads counts, and is limited.
#[test]
fn a_serializable_transaction_that_reads_on_and_on_runs_out_of_memory() {
    const LIMIT: u64 = 16 << 20;
    let db = Database::in_memory(Options {
        memory_limit: LIMIT,
        ..Options::default()
    });
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .primary_key(["id"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        (0..1000).try_for_each(|id| {
            txn.insert_with(&table, |row| {
                row.set_i32(0, id);
            })
        })
    })
    .unwrap();
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    let read = |round: i32| match round % 2 {
        // Rows and keys that are not there.
        0 => (0..1000).try_for_each(|id| txn.get(&table, id).map(drop)),
        _ => (1000..2000).try_for_each(|id| txn.get(&table, id).map(drop)),
    };
    let error = (0..10_000).find_map(|round| read(round).err());
    assert!(
        matches!(error, Some(Error::OutOfMemory { .. })),
        "{error:?}"
    );
    let held = db.stats().held_bytes;
    assert!(held < LIMIT * 5 / 4 + (8 << 20), "{held}");
    drop(txn);
    // A row that is read again and again is noted once.
    let txn = db.begin(TxnOptions::serializable()).unwrap();
    for _ in 0..2_000_000 {
        txn.get(&table, 1).unwrap();
    }
    txn.commit().unwrap();
}
