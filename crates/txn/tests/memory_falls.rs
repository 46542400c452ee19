//! What the process holds after most rows are gone, with nobody who calls `collect`. In
//! steps of one test, since the system tells of whole processes only.

use std::time::Duration;

use giveway_tier::Tier;
use giveway_txn::{Database, Options, Table, Transaction, TxnOptions};

#[path = "memory/resident.rs"]
mod resident;
#[path = "memory/rows.rs"]
mod rows;
#[path = "memory/table.rs"]
mod table;

use resident::resident;
use rows::insert;
use table::table;

const LIVING: i64 = 6_000;
const PURGED: i64 = 30_000;
const BYTES: usize = 1000;

fn purge(db: &Database, table: &Table) {
    db.run(TxnOptions::snapshot(), |txn| {
        (LIVING..LIVING + PURGED).try_for_each(|id| txn.delete(table, id))
    })
    .unwrap();
}

fn reader(db: &Database, tier: Tier) -> Transaction<'_> {
    db.begin(TxnOptions::read_only().tier(tier)).unwrap()
}

#[test]
fn memory_falls_unasked_when_most_rows_are_gone() {
    let db = Database::in_memory(Options::default());
    let table = table(&db);
    let before = resident();
    insert(&db, &table, 0..LIVING, BYTES);
    let living = resident() - before;
    // Beside that, free chunks and lists are kept that do not grow with what lives.
    let bound = living * 13 / 10 + (10 << 20);
    let check = |what: &str| {
        let left = resident() - before;
        assert!(
            left <= bound,
            "{what}: {left} bytes, {living} live: {:?}",
            db.stats()
        );
    };
    let fill = || {
        insert(&db, &table, LIVING..LIVING + PURGED, BYTES);
        let full = resident() - before;
        assert!(
            full > 3 * living && full > bound,
            "{full} and {living} bytes"
        );
    };

    fill();
    purge(&db, &table);
    check("nobody else was there");

    // An older snapshot holds all of it back. At its end, if it is of the background:
    fill();
    let old = reader(&db, Tier::Background);
    purge(&db, &table);
    assert!(resident() - before > 3 * living);
    old.commit().unwrap();
    check("a reader of the background was there");

    // Else it goes on for an eighth of the time that it was open, and whatever ends next in
    // the background frees the rest.
    fill();
    let old = reader(&db, Tier::TimeSensitive);
    purge(&db, &table);
    std::thread::sleep(Duration::from_millis(200));
    let held_back = db.stats().garbage_bytes;
    assert!(held_back > (PURGED as usize * BYTES) as u64);
    old.commit().unwrap();
    let freed = held_back - db.stats().garbage_bytes;
    assert!(freed > 200 * BYTES as u64, "{freed} of {held_back} bytes");
    reader(&db, Tier::Background).commit().unwrap();
    check("something of the background has ended since");
}
