//! What takes longer than a change can wait for: `make test-long`.
//!
//! Not among the tests that cargo runs unasked (`test = false` in Cargo.toml). Each is for a
//! process of its own, since the system tells of whole processes only.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use giveway_preempt::{Policy, Pool, RegionAlloc};
use giveway_tier::Tier;
use giveway_txn::Direction::Forward;
use giveway_txn::{Database, KeyRange, Options, Table, TxnOptions};

/// Where the simulated disk of the crate's own tests finds what it stands on.
mod log {
    pub(crate) use giveway_txn::{Disk, DiskFile};
}
mod power;
#[path = "memory/resident.rs"]
mod resident;
#[path = "memory/rows.rs"]
mod rows;
#[path = "memory/table.rs"]
mod table;

use resident::resident;
use rows::insert;
use table::table;

#[global_allocator]
static ALLOC: RegionAlloc<System> = RegionAlloc(System);

const LIVING: i64 = 200_000;
const PURGED: i64 = 1_200_000;
const URGENT: usize = 200;

/// How long urgent transactions took, one after the other, sorted; each has to succeed.
fn urgent(pool: &Pool, db: &Arc<Database>, table: &Table) -> Vec<Duration> {
    let mut took = Vec::with_capacity(URGENT);
    for number in 0..URGENT as i64 {
        // So that they meet a purge in all of its stages.
        std::thread::sleep(Duration::from_millis(2));
        let (db, table) = (Arc::clone(db), table.clone());
        let began = Instant::now();
        let submitted = pool.submit(Tier::TimeSensitive, move || {
            db.run(TxnOptions::snapshot(), |txn| {
                (0..10).try_for_each(|row| {
                    txn.update(&table, number * 900 + row, |row| {
                        row.set_bytes(1, &[2; 100]);
                    })
                })
            })
        });
        let ticket = submitted.unwrap_or_else(|_| panic!("there is a place for number {number}"));
        let done = ticket.wait().expect("no task fails");
        done.unwrap_or_else(|error| panic!("urgent transaction {number}: {error}"));
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took
}

/// Urgent transactions while `work` runs in the background, again and again if need be.
fn beside(
    pool: &Pool,
    db: &Arc<Database>,
    table: &Table,
    work: impl Fn(&Database, &Table) + Send + 'static,
) -> Vec<Duration> {
    let stop = Arc::new(AtomicBool::new(false));
    let background = pool.submit(Tier::Background, {
        let (db, table, stop) = (Arc::clone(db), table.clone(), Arc::clone(&stop));
        move || {
            while !stop.load(SeqCst) {
                work(&db, &table);
            }
        }
    });
    let took = urgent(pool, db, table);
    stop.store(true, SeqCst);
    let background = background.unwrap_or_else(|_| panic!("there is a place"));
    background.wait().expect("no task fails");
    took
}

/// A purge of old rows in one transaction, with the rows that live beside it in use. What
/// it frees goes back to the system unasked, and nobody who is urgent fails or waits for it.
/// It takes longer than the system does to look for small pages that it might make huge.
#[test]
fn a_purge_of_most_rows_gives_memory_back_and_delays_no_urgent_transaction() {
    let db = Arc::new(Database::in_memory(Options::default()));
    let table = table(&db);
    let before = resident();
    insert(&db, &table, 0..LIVING, 100);
    let living = resident() - before;
    insert(&db, &table, LIVING..LIVING + PURGED, 100);
    let full = resident() - before;
    assert!(full > 5 * living, "{full} and {living} bytes");
    let pool = Pool::builder().workers(1).policy(Policy::best()).build();
    let pool = pool.expect("a pool");

    let usual = beside(&pool, &db, &table, |db, table| {
        let txn = db.begin(TxnOptions::read_only()).unwrap();
        let rows = txn.scan(table, KeyRange::all(), Forward).unwrap();
        assert_eq!(rows.count() as i64, LIVING + PURGED);
    });
    let purged = Arc::new(AtomicBool::new(false));
    let during = beside(&pool, &db, &table, {
        let purged = Arc::clone(&purged);
        move |db, table| {
            if purged.load(SeqCst) {
                return;
            }
            db.run(TxnOptions::snapshot(), |txn| {
                (LIVING..LIVING + PURGED).try_for_each(|id| txn.delete(table, id))
            })
            .unwrap();
            purged.store(true, SeqCst);
        }
    });
    // Nobody has an older snapshot any more.
    urgent(&pool, &db, &table);
    let left = resident() - before;
    let held = db.stats().held_bytes;
    let percentiles = |took: &[Duration]| [50, 90, 99].map(|at| took[took.len() * at / 100]);
    println!(
        "{} MiB with all rows, {} MiB ({} MiB the engine's) after the purge, {} MiB live; p50, \
         p90, p99 of {URGENT} urgent transactions: {:?} beside scans, {:?} beside the purge",
        full >> 20,
        left >> 20,
        held >> 20,
        living >> 20,
        percentiles(&usual),
        percentiles(&during)
    );
    assert!(left as f64 <= 1.3 * living as f64, "{left} of {living}");
    let middle = |took: &[Duration]| took[took.len() / 2];
    assert!(middle(&during) <= 2 * middle(&usual));
}

/// `crash` does the same with less.
#[test]
fn of_a_thousand_power_failures_none_loses_what_was_acknowledged() {
    let summary = power::fail(power::setting("GIVEWAY_TXN_SEED", 1), 1000);
    assert_eq!(
        summary.in_flight.len(),
        8,
        "a kind of change was never in flight"
    );
    for (kind, (count, _)) in summary.in_flight {
        assert!(count >= 20, "{kind:?}: {count}");
    }
    assert!(summary.with_batches > summary.failures / 4);
}
