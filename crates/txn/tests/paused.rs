//! An urgent transaction meets the version of the one that it has preempted, on
//! the only worker there is. Trying again does not help, nor does waiting: it
//! must let the other go on.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use giveway_preempt::{Delivery, Policy, Pool, RegionAlloc};
use giveway_tier::Tier;
use giveway_txn::{Database, Error, Options, Schema, TxnOptions, Type};

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
