//! Garbage beyond its limit: who frees it, and who is ended for it.

use std::time::{Duration, Instant};

use giveway_txn::{Database, Error, Options, Table, Transaction, TxnOptions};

#[path = "memory/table.rs"]
mod table;

use table::table;

const LIMIT: u64 = 1 << 20;
const ROWS: i64 = 4000;

fn database() -> (Database, Table) {
    let db = Database::in_memory(Options {
        garbage_limit: LIMIT,
        ..Options::default()
    });
    let table = table(&db);
    let txn = db.begin(TxnOptions::default()).unwrap();
    for id in 0..ROWS {
        txn.insert_with(&table, |row| {
            row.set_i64(0, id).set_bytes(1, &[1; 900]);
        })
        .unwrap();
    }
    txn.commit().unwrap();
    (db, table)
}

/// Deletes all rows but the first hundred: three times the limit.
fn purge(txn: &Transaction<'_>, table: &Table) {
    (100..ROWS).for_each(|id| txn.delete(table, id).unwrap());
}

/// So many transactions of ten updates; how often each had to be tried.
fn updates(db: &Database, table: &Table, count: i64) -> Vec<u32> {
    let transaction = |number: i64| {
        let mut attempts = 0;
        let deadline = Instant::now() + Duration::from_secs(10);
        db.run(TxnOptions::default().deadline(deadline), |txn| {
            attempts += 1;
            (0..10).try_for_each(|row| {
                txn.update(table, (number + row) % 100, |row| {
                    row.set_bytes(1, &[3; 900]);
                })
            })
        })
        .unwrap_or_else(|error| panic!("transaction {number}, attempt {attempts}: {error}"));
        attempts
    };
    (0..count).map(transaction).collect()
}

#[test]
fn writers_continue_after_a_purge_with_no_open_transaction() {
    let (db, table) = database();
    // An older snapshot, so that the purge cannot free anything itself.
    let old = db.begin(TxnOptions::read_only()).unwrap();
    let purging = db.begin(TxnOptions::default()).unwrap();
    purge(&purging, &table);
    purging.commit().unwrap();
    let left = db.stats().garbage_bytes;
    assert!(left > 3 * LIMIT, "{left}");
    old.commit().unwrap();
    assert!(updates(&db, &table, 200).iter().all(|&times| times == 1));
    // And it has become less by that alone.
    let left = db.stats().garbage_bytes;
    assert!(left < LIMIT, "{left}");
}

#[test]
fn a_transaction_that_holds_back_no_garbage_is_not_aborted() {
    let (db, table) = database();
    let old = db.begin(TxnOptions::read_only()).unwrap();
    let purging = db.begin(TxnOptions::default()).unwrap();
    purge(&purging, &table);
    purging.commit().unwrap();
    old.commit().unwrap();
    // It began after the purge, and nothing was committed in between.
    let reader = db.begin(TxnOptions::read_only()).unwrap();
    assert!(updates(&db, &table, 20).iter().all(|&times| times == 1));
    assert!(reader.get(&table, 0).unwrap().is_some());
    reader.commit().unwrap();
}

#[test]
fn a_purge_frees_its_own_garbage() {
    let (db, table) = database();
    let purging = db.begin(TxnOptions::default()).unwrap();
    purge(&purging, &table);
    purging.commit().unwrap();
    let left = db.stats().garbage_bytes;
    assert!(left < LIMIT / 2, "{left}");
}

#[test]
fn a_transaction_above_the_garbage_limit_is_aborted_and_no_other() {
    let (db, table) = database();
    let reader = db.begin(TxnOptions::read_only()).unwrap();
    let greedy = db.begin(TxnOptions::default()).unwrap();
    let error = (0..10_000).find_map(|_| {
        let update = greedy.update(&table, 1, |row| {
            row.set_bytes(1, &[4; 900]);
        });
        update.err()
    });
    assert!(
        matches!(error, Some(Error::TooMuchGarbage { .. })),
        "{error:?}"
    );
    drop(greedy);
    assert!(reader.get(&table, 1).unwrap().is_some());
    reader.commit().unwrap();
}

/// Readers that began after a purge see nothing of what it removed, so it comes free
/// although there is always one, and nobody else commits.
#[test]
fn memory_comes_free_beside_readers_that_overlap() {
    let db = Database::in_memory(Options {
        memory_limit: 8 << 20,
        ..Options::default()
    });
    let table = table(&db);
    let insert = |id: i64| {
        let txn = db.begin(TxnOptions::default())?;
        txn.insert_with(&table, |row| {
            row.set_i64(0, id).set_bytes(1, &[1; 900]);
        })?;
        txn.commit()
    };
    let rows = (0..).find(|&id| insert(id).is_err()).unwrap();
    let full = db.stats().held_bytes;
    let old = db.begin(TxnOptions::read_only()).unwrap();
    let purging = db.begin(TxnOptions::default()).unwrap();
    (0..rows).for_each(|id| purging.delete(&table, id).unwrap());
    purging.commit().unwrap();
    let mut reader = db.begin(TxnOptions::read_only()).unwrap();
    old.commit().unwrap();
    for id in 0..200 {
        reader = db.begin(TxnOptions::read_only()).unwrap();
        insert(rows + id).unwrap_or_else(|error| panic!("row {id}: {error}"));
    }
    let held = db.stats().held_bytes;
    // Half of it or more, depending on which chunks are wholly free by then.
    assert!(held < full / 4 * 3, "{held} of {full} bytes");
    reader.commit().unwrap();
}

#[test]
fn a_transaction_that_makes_too_much_garbage_itself_is_not_repeated() {
    let (db, table) = database();
    let mut attempts = 0;
    let options = TxnOptions::default().deadline(Instant::now() + Duration::from_secs(10));
    let greedy = db.run(options, |txn| {
        attempts += 1;
        (0..10_000).try_for_each(|_| {
            txn.update(&table, 1, |row| {
                row.set_bytes(1, &[4; 900]);
            })
        })
    });
    assert!(
        matches!(greedy, Err(Error::TooMuchGarbage { limit: LIMIT, own }) if own > LIMIT / 2),
        "{greedy:?}"
    );
    assert_eq!(attempts, 1);
}

#[test]
fn a_transaction_that_is_ended_each_time_is_not_repeated_for_ever() {
    let (db, table) = database();
    let mut attempts = 0;
    let options = TxnOptions::read_only().deadline(Instant::now() + Duration::from_secs(10));
    let report = db.run(options, |txn| {
        attempts += 1;
        loop {
            updates(&db, &table, 10);
            txn.get(&table, 0)?;
        }
        #[expect(unreachable_code, reason = "the type of the result")]
        Ok(())
    });
    assert_eq!((report, attempts), (Err(Error::SnapshotTooOld), 3));
}
