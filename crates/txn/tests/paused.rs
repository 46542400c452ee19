//! An urgent transaction meets the version of the one that it has preempted, on
//! the only worker there is. Trying again does not help, nor does waiting: it
//! must let the other go on. A change of the schema meets nothing: it waits for no
//! transaction. And an index that is built gives way.

use std::alloc::System;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use giveway_preempt::{Delivery, Policy, Pool, RegionAlloc};
use giveway_tier::Tier;
use giveway_txn::Direction::Forward;
use giveway_txn::{Database, Error, KeyRange, Options, Schema, Table, TxnOptions, Type};

#[global_allocator]
static ALLOC: RegionAlloc<System> = RegionAlloc(System);

#[test]
fn the_urgent_transaction_lets_the_paused_one_end() {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .column("value", Type::I64)
        .primary_key(["id"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    let add = {
        let table = table.clone();
        move |txn: &giveway_txn::Transaction<'_>, amount: i64| {
            txn.update(&table, 1, |row| {
                row.set_i64(1, row.i64(1) + amount);
            })
        }
    };
    db.run(TxnOptions::default(), |txn| {
        let mut row = table.row();
        row.set_i32(0, 1).set_i64(1, 0);
        txn.insert(&table, &row)
    })
    .unwrap();
    let pool = Pool::builder().workers(1).policy(Policy::Preempt {
        delivery: Delivery::Signal,
    });
    let pool = pool.build().unwrap();

    // 1: the background transaction holds its version. 2: the urgent one has met
    // it.
    let stage = Arc::new(AtomicU32::new(0));
    let background = {
        let (db, add, table, stage) = (db.clone(), add.clone(), table.clone(), stage.clone());
        pool.submit(Tier::Background, move || {
            let txn = db.begin(TxnOptions::snapshot())?;
            add(&txn, 1)?;
            stage.store(1, SeqCst);
            let patience = Instant::now() + Duration::from_secs(20);
            while stage.load(SeqCst) < 2 && Instant::now() < patience {
                txn.get(&table, 1)?;
            }
            txn.commit()
        })
    };
    let Ok(background) = background else {
        panic!("an empty queue has room");
    };
    while stage.load(SeqCst) < 1 {
        std::thread::yield_now();
    }
    let urgent = {
        let (db, stage) = (db.clone(), stage.clone());
        pool.submit(Tier::TimeSensitive, move || {
            let deadline = Instant::now() + Duration::from_secs(10);
            let mut met = 0;
            let done = db.run(TxnOptions::snapshot().deadline(deadline), |txn| {
                let added = add(txn, 10);
                if added == Err(Error::Conflict { below: true }) {
                    met += 1;
                    stage.store(2, SeqCst);
                }
                added
            });
            (done, met)
        })
    };
    let Ok(urgent) = urgent else {
        panic!("an empty queue has room");
    };
    let (done, met) = urgent.wait().unwrap();
    assert_eq!(done, Ok(()));
    assert!(met > 0, "the transactions have not met");
    background.wait().unwrap().unwrap();
    let txn = db.begin(TxnOptions::read_only()).unwrap();
    assert_eq!(txn.get(&table, 1).unwrap().unwrap().i64(1), 11);
}

/// The writer is on another thread, and goes on by itself: nothing is gained by letting
/// what is paused here run to its end, which has nothing to do with it.
#[test]
fn the_urgent_transaction_lets_nobody_else_end() {
    let (db, table) = with_rows(2);
    let pool = Pool::builder().workers(1).policy(Policy::Preempt {
        delivery: Delivery::Signal,
    });
    let pool = pool.build().unwrap();
    let writer = db.begin(TxnOptions::snapshot()).unwrap();
    writer.delete(&table, 1).unwrap();
    // 1: the background task runs. 2: the urgent transaction has ended.
    let stage = Arc::new(AtomicU32::new(0));
    let background = {
        let stage = stage.clone();
        pool.submit(Tier::Background, move || {
            stage.store(1, SeqCst);
            let patience = Instant::now() + Duration::from_secs(20);
            while stage.load(SeqCst) < 2 && Instant::now() < patience {
                std::hint::spin_loop();
            }
            stage.load(SeqCst) == 2
        })
    };
    let Ok(background) = background else {
        panic!("an empty queue has room");
    };
    while stage.load(SeqCst) < 1 {
        std::thread::yield_now();
    }
    let attempts = Arc::new(AtomicU32::new(0));
    let urgent = {
        let (db, stage, attempts) = (db.clone(), stage.clone(), attempts.clone());
        pool.submit(Tier::TimeSensitive, move || {
            let done = db.run(TxnOptions::snapshot(), |txn| {
                attempts.fetch_add(1, SeqCst);
                let deleted = txn.delete(&table, 1);
                assert_ne!(deleted, Err(Error::Conflict { below: true }));
                deleted
            });
            stage.store(2, SeqCst);
            done
        })
    };
    let Ok(urgent) = urgent else {
        panic!("an empty queue has room");
    };
    while attempts.load(SeqCst) < 10 && !background.is_done() {
        std::thread::yield_now();
    }
    writer.abort();
    assert_eq!(urgent.wait().unwrap(), Ok(()));
    assert!(background.wait().unwrap(), "it had to end first");
}

fn with_rows(count: i32) -> (Database, Table) {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("t")
        .column("id", Type::I32)
        .column("value", Type::I64)
        .primary_key(["id"])
        .index("by_value", ["value"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    db.run(TxnOptions::default(), |txn| {
        (0..count).try_for_each(|id| {
            let mut row = table.row();
            row.set_i32(0, id).set_i64(1, i64::from(-id));
            txn.insert(&table, &row)
        })
    })
    .unwrap();
    (db, table)
}

#[test]
fn a_paused_transaction_holds_no_change_of_the_schema_back() {
    type Change = fn(&Database) -> Result<(), Error>;
    let changes: [Change; 4] = [
        |db| db.add_index("t", "second", ["value"]).map(drop),
        |db| db.drop_index("t", "by_value"),
        |db| db.drop_column("t", "value").map(drop),
        |db| db.drop_table("t"),
    ];
    let pool = Pool::builder().workers(1).policy(Policy::Preempt {
        delivery: Delivery::Signal,
    });
    let pool = pool.build().unwrap();
    let (db, table) = with_rows(100);
    for (at, change) in changes.into_iter().enumerate() {
        let stage = Arc::new(AtomicU32::new(0));
        let background = {
            let (db, stage) = (db.clone(), stage.clone());
            let table = db.table("t").unwrap();
            pool.submit(Tier::Background, move || {
                let txn = db.begin(TxnOptions::snapshot())?;
                txn.delete(&table, at as i32)?;
                stage.store(1, SeqCst);
                let patience = Instant::now() + Duration::from_secs(20);
                while stage.load(SeqCst) < 2 && Instant::now() < patience {
                    std::hint::spin_loop();
                }
                txn.commit()
            })
        };
        while stage.load(SeqCst) < 1 {
            std::thread::yield_now();
        }
        let urgent = {
            let (db, stage) = (db.clone(), stage.clone());
            pool.submit(Tier::TimeSensitive, move || {
                let changed = change(&db);
                stage.store(2, SeqCst);
                changed
            })
        };
        let (Ok(background), Ok(urgent)) = (background, urgent) else {
            panic!("an empty queue has room");
        };
        assert_eq!(urgent.wait().unwrap(), Ok(()));
        let ended = background.wait().unwrap().map(drop);
        let table = "t".into();
        let expected = match at {
            0 | 1 => Err(Error::SchemaChanged { table }),
            2 => Ok(()),
            _ => Err(Error::TableDropped { table }),
        };
        assert_eq!(ended, expected, "change {at}");
        if at == 1 {
            // It was in no column's way any more.
            db.drop_index("t", "second").unwrap();
        }
    }
    drop(table);
}

/// On one worker, urgent transactions come through while an index is built, and it is
/// whole afterwards.
#[test]
fn an_index_that_is_built_in_the_background_gives_way() {
    const ROWS: i32 = 20_000;
    let often = NonZeroU32::new(100).unwrap();
    let delivery = Delivery::Signal;
    for policy in [
        Policy::Cooperative { every: often },
        Policy::Preempt { delivery },
    ] {
        let (db, table) = with_rows(ROWS);
        let pool = Pool::builder().workers(1).policy(policy).build().unwrap();
        let stage = Arc::new(AtomicU32::new(0));
        let background = {
            let (db, stage) = (db.clone(), stage.clone());
            pool.submit(Tier::Background, move || {
                stage.store(1, SeqCst);
                db.add_index("t", "second", ["value"]).map(drop)?;
                stage.store(2, SeqCst);
                Ok::<_, Error>(())
            })
        };
        let Ok(background) = background else {
            panic!("an empty queue has room");
        };
        while stage.load(SeqCst) < 1 {
            std::thread::yield_now();
        }
        let mut beside = 0;
        for round in 0.. {
            let urgent = {
                let (db, table, stage) = (db.clone(), table.clone(), stage.clone());
                pool.submit(Tier::TimeSensitive, move || {
                    db.run(TxnOptions::serializable(), |txn| {
                        let id = round * 37 % ROWS;
                        txn.update(&table, id, |row| {
                            row.set_i64(1, i64::from(round));
                        })
                    })?;
                    // It is seen when it is whole.
                    if let Ok(second) = table.index("second") {
                        let txn = db.begin(TxnOptions::default())?;
                        let rows = txn.scan_index(&second, KeyRange::all(), Forward)?;
                        assert_eq!(rows.count(), ROWS as usize);
                    }
                    Ok::<_, Error>(stage.load(SeqCst))
                })
            };
            let Ok(urgent) = urgent else {
                panic!("an empty queue has room");
            };
            match urgent.wait().unwrap().unwrap() {
                1 => beside += 1,
                _ => break,
            }
        }
        background.wait().unwrap().unwrap();
        assert!(beside > 10, "{beside} transactions beside the build");
        let second = table.index("second").unwrap();
        let txn = db.begin(TxnOptions::read_only()).unwrap();
        let rows = txn.scan_index(&second, KeyRange::all(), Forward).unwrap();
        let values: Vec<i64> = rows.map(|row| row.unwrap().i64(1)).collect();
        assert!(values.is_sorted() && values.len() == ROWS as usize);
    }
}
