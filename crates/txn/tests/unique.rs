//! Unique indexes: who gets a key, and who is told what.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use giveway_txn::Direction::Forward;
use giveway_txn::Isolation::{ReadCommitted, Serializable, Snapshot};
use giveway_txn::{
    Database, DurabilityOptions, Error, Isolation, KeyRange, Options, Result, Schema, SchemaError,
    Table, Transaction, TxnOptions, Type,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LEVELS: [Isolation; 3] = [ReadCommitted, Snapshot, Serializable];

fn schema(unique: bool) -> Schema {
    let schema = Schema::builder("people")
        .column("id", Type::I32)
        .column("group", Type::I32)
        .nullable("mail", Type::Text)
        .primary_key(["id"]);
    let schema = match unique {
        true => schema.unique_index("by_mail", ["group", "mail"]),
        false => schema,
    };
    schema.build().unwrap()
}

fn new(unique: bool) -> (Database, Table) {
    let db = Database::in_memory(Options::default());
    let table = db.create_table(schema(unique)).unwrap();
    (db, table)
}

/// A row in group 1; without mail if it is empty.
fn insert(txn: &Transaction<'_>, table: &Table, id: i32, mail: &str) -> Result<()> {
    let mut row = table.row();
    row.set_i32(0, id).set_i32(1, 1);
    if !mail.is_empty() {
        row.set_text(2, mail);
    }
    txn.insert(table, &row)
}

fn set(txn: &Transaction<'_>, table: &Table, id: i32, mail: &str) -> Result<()> {
    txn.update(table, id, |row| {
        row.set_text(2, mail);
    })
}

fn begin(db: &Database, isolation: Isolation) -> Transaction<'_> {
    let options = TxnOptions {
        isolation,
        ..TxnOptions::default()
    };
    db.begin(options).unwrap()
}

fn violation() -> Error {
    Error::UniqueViolation {
        table: "people".into(),
        index: "by_mail".into(),
    }
}

const CONFLICT: Error = Error::Conflict { below: false };

#[test]
fn a_key_that_a_row_has_is_refused_and_the_transaction_goes_on() {
    for level in LEVELS {
        let (db, table) = new(true);
        let txn = begin(&db, level);
        insert(&txn, &table, 1, "anna").unwrap();
        insert(&txn, &table, 2, "bea").unwrap();
        // Its own rows count.
        assert_eq!(insert(&txn, &table, 3, "anna"), Err(violation()));
        assert_eq!(set(&txn, &table, 2, "anna"), Err(violation()));
        txn.commit().unwrap();

        let txn = begin(&db, level);
        assert_eq!(insert(&txn, &table, 3, "anna"), Err(violation()));
        assert_eq!(set(&txn, &table, 2, "anna"), Err(violation()));
        let text = violation().to_string();
        assert!(text.contains("'by_mail'") && text.contains("choose another key"));
        assert!(!violation().is_retryable());
        // As the row was: no key is changed, or only apparently.
        set(&txn, &table, 2, "bea").unwrap();
        txn.update(&table, 2, |row| {
            row.set_i32(1, 2).set_i32(1, 1);
        })
        .unwrap();
        // Another key in one column is another key; NULL is equal to none.
        txn.update(&table, 2, |row| {
            row.set_i32(1, 2).set_text(2, "anna");
        })
        .unwrap();
        insert(&txn, &table, 4, "").unwrap();
        insert(&txn, &table, 5, "").unwrap();
        // What it gives up itself is free at once.
        set(&txn, &table, 1, "carl").unwrap();
        insert(&txn, &table, 6, "anna").unwrap();
        txn.delete(&table, 6).unwrap();
        set(&txn, &table, 1, "anna").unwrap();
        txn.delete(&table, 1).unwrap();
        insert(&txn, &table, 7, "anna").unwrap();
        txn.commit().unwrap();

        let txn = begin(&db, level);
        let index = table.index("by_mail").unwrap();
        let rows = txn.scan_index(&index, KeyRange::all(), Forward).unwrap();
        let ids: Vec<i32> = rows.map(|row| row.unwrap().i32(0)).collect();
        assert_eq!(ids, [4, 5, 7, 2]);
    }
}

/// What the second of two gets, while the first is open, after it has committed and
/// after it was taken back.
#[test]
fn of_two_transactions_the_first_gets_the_key() {
    type Take = fn(&Transaction<'_>, &Table) -> Result<()>;
    // The first one's way to touch the key of row 1, and whether it has it afterwards.
    let firsts: [(Take, bool); 4] = [
        (|txn, table| insert(txn, table, 10, "new"), true),
        (|txn, table| set(txn, table, 2, "new"), true),
        (|txn, table| set(txn, table, 1, "other"), false),
        (|txn, table| txn.delete(table, 1), false),
    ];
    type TakeThis = fn(&Transaction<'_>, &Table, &str) -> Result<()>;
    let seconds: [TakeThis; 2] = [
        |txn, table, mail| insert(txn, table, 20, mail),
        |txn, table, mail| set(txn, table, 3, mail),
    ];
    for level in LEVELS {
        for (first_takes, takes) in firsts {
            for second_takes in seconds {
                for commits in [true, false] {
                    let (db, table) = new(true);
                    let txn = begin(&db, level);
                    for (id, mail) in [(1, "old"), (2, "bea"), (3, "carl")] {
                        insert(&txn, &table, id, mail).unwrap();
                    }
                    txn.commit().unwrap();
                    let mail = if takes { "new" } else { "old" };
                    let (first, second, late) =
                        (begin(&db, level), begin(&db, level), begin(&db, level));
                    assert!(late.get(&table, 1).unwrap().is_some());
                    first_takes(&first, &table).unwrap();
                    assert_eq!(second_takes(&second, &table, mail), Err(CONFLICT));
                    assert_eq!(second.commit().map(drop), Err(CONFLICT));
                    match commits {
                        true => drop(first.commit().unwrap()),
                        false => first.abort(),
                    }
                    // Who began before it: as if it were still there, but for read
                    // committed.
                    let has_it = takes == commits;
                    let now = if has_it { Err(violation()) } else { Ok(()) };
                    let then = match commits && level != ReadCommitted {
                        true => Err(CONFLICT),
                        false => now.clone(),
                    };
                    assert_eq!(second_takes(&late, &table, mail), then);
                    drop(late);
                    let again = begin(&db, level);
                    assert_eq!(second_takes(&again, &table, mail), now, "{level:?}");
                    again.commit().unwrap();
                }
            }
        }
    }
}

/// A transaction that was refused a key has read the row that has it.
#[test]
fn who_was_refused_is_certified_for_it() {
    for changes in [true, false] {
        let (db, table) = new(true);
        let txn = begin(&db, Snapshot);
        insert(&txn, &table, 1, "anna").unwrap();
        txn.commit().unwrap();
        let txn = begin(&db, Serializable);
        assert_eq!(insert(&txn, &table, 2, "anna"), Err(violation()));
        if changes {
            let other = begin(&db, Serializable);
            other.delete(&table, 1).unwrap();
            other.commit().unwrap();
        }
        insert(&txn, &table, 3, "somebody had it").unwrap();
        let committed = txn.commit().map(drop);
        let expected = if changes {
            Err(Error::Serialization)
        } else {
            Ok(())
        };
        assert_eq!(committed, expected);
    }
}

/// Two unique keys, of which `first` comes first.
fn two_keys() -> (Database, Table) {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("people")
        .column("id", Type::I32)
        .column("balance", Type::I32)
        .nullable("first", Type::I32)
        .nullable("second", Type::I32)
        .primary_key(["id"])
        .unique_index("by_first", ["first"])
        .unique_index("by_second", ["second"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    let txn = begin(&db, Snapshot);
    for id in [1, 2] {
        let mut row = table.row();
        row.set_i32(0, id).set_i32(1, 100);
        txn.insert(&table, &row).unwrap();
    }
    let mut row = table.row();
    row.set_i32(0, 3).set_i32(1, 0).set_i32(3, 7);
    txn.insert(&table, &row).unwrap();
    txn.commit().unwrap();
    (db, table)
}

/// Whoever has seen a row in the function of an update that was refused has read it. Two
/// such transactions would each empty a row because of what the other one has.
#[test]
fn an_update_that_was_refused_has_read_the_row() {
    type Refuse = fn(&mut giveway_txn::RowBuf<'_>);
    let refused: [(&str, Refuse); 3] = [
        ("UniqueViolation", |row| {
            row.set_i32(3, 7);
        }),
        ("PrimaryKeyChanged", |row| {
            row.set_i32(0, 9);
        }),
        ("panic", |_| panic!("on purpose")),
    ];
    for (how, refuse) in refused {
        let (db, table) = two_keys();
        let one = begin(&db, Serializable);
        let mut seen = 0;
        let update = || {
            one.update(&table, 1, |row| {
                seen = row.i32(1);
                refuse(row);
            })
        };
        let updated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(update));
        assert!(updated.is_ok_and(|done| done.is_err()) || how == "panic");
        assert_eq!(seen, 100);
        let two = begin(&db, Serializable);
        assert_eq!(two.get(&table, 2).unwrap().unwrap().i32(1), 100);
        two.update(&table, 1, |row| {
            row.set_i32(1, 0);
        })
        .unwrap();
        two.commit().unwrap();
        one.update(&table, 2, |row| {
            row.set_i32(1, 0);
        })
        .unwrap();
        assert_eq!(one.commit(), Err(Error::Serialization), "{how}");
    }
}

/// A refused key tells that the primary key, and the unique keys before it, are free.
#[test]
fn a_key_that_was_refused_tells_that_others_are_free() {
    type Refused = fn(&Transaction<'_>, &Table) -> Result<()>;
    let refused: [Refused; 3] = [
        |txn, table| {
            let mut row = table.row();
            row.set_i32(0, 4).set_i32(1, 0).set_i32(3, 7);
            txn.insert(table, &row)
        },
        |txn, table| {
            let mut row = table.row();
            row.set_i32(0, 9).set_i32(1, 0);
            row.set_i32(2, 5).set_i32(3, 7);
            txn.insert(table, &row)
        },
        |txn, table| {
            txn.update(table, 1, |row| {
                row.set_i32(2, 5).set_i32(3, 7);
            })
        },
    ];
    for (at, refused) in refused.into_iter().enumerate() {
        // Where there never was such a row, where one was deleted, and undisturbed.
        for (was_there, comes) in [(false, true), (true, true), (true, false)] {
            let (db, table) = two_keys();
            let come = || {
                db.run(TxnOptions::serializable(), |txn| {
                    let mut row = table.row();
                    row.set_i32(0, 4).set_i32(1, 0).set_i32(2, 5);
                    txn.insert(&table, &row)
                })
                .unwrap();
            };
            let old = begin(&db, Snapshot);
            if was_there {
                come();
                db.run(TxnOptions::default(), |txn| txn.delete(&table, 4))
                    .unwrap();
            }
            let one = begin(&db, Serializable);
            let error = refused(&one, &table).unwrap_err();
            assert!(
                matches!(&error, Error::UniqueViolation { index, .. } if **index == *"by_second")
            );
            if comes {
                come();
            }
            one.update(&table, 2, |row| {
                row.set_i32(1, 0);
            })
            .unwrap();
            let expected = if comes {
                Err(Error::Serialization)
            } else {
                Ok(())
            };
            assert_eq!(one.commit().map(drop), expected, "{at} {was_there}");
            drop(old);
        }
    }
}

/// Each attempt is one transaction: whoever loses is told, and nobody else loses.
#[test]
fn of_threads_that_race_for_a_key_exactly_one_gets_it() {
    const KEYS: i32 = 2000;
    const THREADS: i32 = 2;
    let (db, table) = new(true);
    let wins: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    // Spinning, so that all begin at the same time if there is a CPU for each.
    let arrived = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, table, wins, arrived) = (&db, &table, &wins, &arrived);
            scope.spawn(move || {
                for key in 0..KEYS {
                    let level = LEVELS[((key + thread) % 3) as usize];
                    arrived.fetch_add(1, SeqCst);
                    while arrived.load(SeqCst) < ((key + 1) * THREADS) as u64 {
                        std::thread::yield_now();
                    }
                    let txn = begin(db, level);
                    let mail = format!("{key}");
                    let done = insert(&txn, table, key * THREADS + thread, &mail);
                    match done.and_then(|()| txn.commit()) {
                        Ok(_) => drop(wins[key as usize].fetch_add(1, Relaxed)),
                        Err(error) => {
                            assert!(error == violation() || error.is_retryable(), "{error}")
                        }
                    }
                }
            });
        }
    });
    let wins: Vec<u64> = wins.into_iter().map(AtomicU64::into_inner).collect();
    assert_eq!(wins, vec![1; KEYS as usize]);
}

#[test]
fn an_index_that_rows_contradict_is_refused_with_a_key_and_what_to_do() {
    let (db, table) = new(false);
    let txn = begin(&db, Snapshot);
    for id in 0..2000 {
        insert(&txn, &table, id, &format!("mail {id}")).unwrap();
    }
    insert(&txn, &table, 2001, "mail 1234").unwrap();
    insert(&txn, &table, 2002, "").unwrap();
    insert(&txn, &table, 2003, "").unwrap();
    txn.commit().unwrap();
    let add = || db.add_unique_index("people", "by_mail", ["group", "mail"]);
    let error = add().map(drop).unwrap_err();
    let expected = SchemaError::NotUnique {
        index: "by_mail".to_owned(),
        table: "people".to_owned(),
        key: "1, mail 1234".to_owned(),
    };
    assert_eq!(error, expected.into());
    assert!(error.to_string().contains("delete all but one of them"));
    assert!(table.index("by_mail").is_err());
    // It is not enforced either.
    let txn = begin(&db, Snapshot);
    insert(&txn, &table, 2004, "mail 7").unwrap();
    drop(txn);
    db.run(TxnOptions::default(), |txn| txn.delete(&table, 1234))
        .unwrap();
    add().unwrap();
    let txn = begin(&db, Snapshot);
    assert_eq!(insert(&txn, &table, 1234, "mail 1234"), Err(violation()));
    assert_eq!(insert(&txn, &table, 2004, "mail 7"), Err(violation()));
}

/// Keys with a long history: more entries than a step of the check has, of one row.
#[test]
fn a_key_that_many_rows_have_had_is_unique_if_one_has_it() {
    let (db, table) = new(false);
    let txn = begin(&db, Snapshot);
    (0..1500).for_each(|id| insert(&txn, &table, id, "same").unwrap());
    txn.commit().unwrap();
    let old = begin(&db, Snapshot);
    let change = |from: i32, to: i32| {
        db.run(TxnOptions::default(), |txn| {
            (from..to).try_for_each(|id| set(txn, &table, id, &format!("{id}")))
        })
        .unwrap();
    };
    let add = || {
        db.add_unique_index("people", "by_mail", ["group", "mail"])
            .map(drop)
    };
    change(0, 700);
    assert!(matches!(add(), Err(Error::Schema(_))));
    change(701, 1500);
    add().unwrap();
    drop(old);
}

fn clear(db: &Database, table: &Table) {
    db.run(TxnOptions::default(), |txn| {
        let rows = txn.scan(table, KeyRange::all(), Forward)?;
        let ids: Vec<i32> = rows.map(|row| Ok(row?.i32(0))).collect::<Result<_>>()?;
        ids.into_iter().try_for_each(|id| txn.delete(table, id))
    })
    .unwrap();
}

#[test]
fn a_unique_index_that_is_built_beside_writers_is_unique_or_refused() {
    const IDS: i32 = 400;
    let (db, table) = new(false);
    let (done, keys) = (AtomicBool::new(false), AtomicU64::new(1000));
    let mail = |random: &mut ChaCha8Rng| format!("{}", random.random_range(0..keys.load(Relaxed)));
    let (mut built, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (db, table, done, mail) = (&db, &table, &done, &mail);
            scope.spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(seed);
                while !done.load(Relaxed) {
                    let txn = begin(db, LEVELS[random.random_range(0..3)]);
                    for _ in 0..random.random_range(1..4) {
                        let (id, mail) = (random.random_range(0..IDS), mail(&mut random));
                        let written = match random.random_range(0..3) {
                            0 => txn.delete(table, id),
                            1 => set(&txn, table, id, &mail),
                            _ => insert(&txn, table, id, &mail),
                        };
                        if written.is_err_and(|error| error.is_retryable()) {
                            break;
                        }
                    }
                    // Now and then a build goes on meanwhile.
                    if random.random_ratio(1, 8) {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                    }
                    let _ = txn.commit();
                }
            });
        }
        for round in 0..40 {
            if round % 2 == 0 {
                // No two rows have the same key, and soon hardly two.
                keys.store(1_000_000, Relaxed);
                clear(&db, &table);
            } else {
                // Any two may.
                keys.store(300, Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            match db.add_unique_index("people", "by_mail", ["group", "mail"]) {
                Ok(index) => {
                    built += 1;
                    keys.store(300, Relaxed);
                    for _ in 0..5 {
                        let txn = begin(&db, Snapshot);
                        let rows = txn.scan_index(&index, KeyRange::all(), Forward).unwrap();
                        let mails: Vec<String> =
                            rows.map(|row| row.unwrap().text(2).to_owned()).collect();
                        let rows = txn.scan(&table, KeyRange::all(), Forward).unwrap();
                        assert_eq!(mails.len(), rows.count());
                        assert!(mails.is_sorted_by(|a, b| a < b), "{mails:?}");
                    }
                    db.drop_index("people", "by_mail").unwrap();
                }
                Err(Error::Schema(error)) => {
                    assert!(matches!(*error, SchemaError::NotUnique { .. }), "{error}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        done.store(true, Relaxed);
    });
    println!("{built} built, {refused} refused");
    assert!(built > 5 && refused > 0, "{built} built, {refused} refused");
}

#[test]
fn uniqueness_lasts() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let durability = DurabilityOptions::new().checkpoint_bytes(None);
        Database::open(directory.path(), Options::default(), durability).unwrap()
    };
    let db = open();
    let table = db.create_table(schema(false)).unwrap();
    let txn = begin(&db, Snapshot);
    insert(&txn, &table, 1, "anna").unwrap();
    txn.commit().unwrap();
    db.add_unique_index("people", "by_mail", ["group", "mail"])
        .unwrap();
    let schema = db.table("people").unwrap().schema().clone();
    assert!(schema.indexes()[0].unique);
    drop((db, table));
    for id in 2..5 {
        let db = open();
        let table = db.table("people").unwrap();
        assert_eq!(table.schema(), &schema);
        let txn = begin(&db, Snapshot);
        assert_eq!(insert(&txn, &table, id, "anna"), Err(violation()));
        drop(txn);
        db.checkpoint().unwrap();
    }
}
