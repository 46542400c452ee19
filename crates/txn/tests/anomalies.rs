//! Isolation, anomaly by anomaly: what each level refuses, and what it allows.
//!
//! Each scenario is the smallest interleaving that has the anomaly, after
//! Berenson et al. (SIGMOD '95), Fekete et al. (the read-only anomaly, SIGMOD
//! Record 2004) and Adya (the long fork). It says whether the anomaly came out,
//! for each level. What a level allows is asserted as well: a level that refuses
//! more than it should would make others' programs fail for nothing.
//!
//! A scenario runs in one thread, with several transactions open.

use giveway_txn::Direction::Forward;
use giveway_txn::Isolation::{ReadCommitted, Serializable, Snapshot};
use giveway_txn::{
    Database, Error, Isolation, KeyRange, Options, Result, Schema, Table, Transaction, TxnOptions,
    Type,
};

const X: i32 = 1;
const Y: i32 = 2;

struct World {
    db: Database,
    table: Table,
    level: Isolation,
}

impl World {
    /// Rows X and Y, with 0 in each.
    fn new(level: Isolation) -> World {
        let db = Database::in_memory(Options::default());
        let schema = Schema::builder("t")
            .column("id", Type::I32)
            .column("value", Type::I64)
            .primary_key(["id"])
            .index("by_value", ["value"])
            .build();
        let table = db.create_table(schema.unwrap()).unwrap();
        let world = World { db, table, level };
        let txn = world.begin();
        for id in [X, Y] {
            world.insert(&txn, id, 0).unwrap();
        }
        txn.commit().unwrap();
        world
    }

    fn begin(&self) -> Transaction<'_> {
        let options = TxnOptions {
            isolation: self.level,
            ..TxnOptions::default()
        };
        self.db.begin(options).unwrap()
    }

    fn insert(&self, txn: &Transaction<'_>, id: i32, value: i64) -> Result<()> {
        let mut row = self.table.row();
        row.set_i32(0, id).set_i64(1, value);
        txn.insert(&self.table, &row)
    }

    fn read(&self, txn: &Transaction<'_>, id: i32) -> Option<i64> {
        let row = txn.get(&self.table, id).unwrap();
        row.map(|row| row.i64(1))
    }

    fn write(&self, txn: &Transaction<'_>, id: i32, value: i64) -> Result<()> {
        txn.update(&self.table, id, |row| {
            row.set_i64(1, value);
        })
    }

    fn scan(&self, txn: &Transaction<'_>) -> Vec<i64> {
        let rows = txn.scan(&self.table, KeyRange::all(), Forward).unwrap();
        rows.map(|row| row.unwrap().i64(1)).collect()
    }

    fn by_value(&self, txn: &Transaction<'_>, value: i64) -> usize {
        let index = self.table.index("by_value").unwrap();
        let count = txn.scan_index(&index, KeyRange::prefix(value), Forward);
        count.unwrap().filter(|row| row.is_ok()).count()
    }
}

/// Runs a scenario at every level; at those given, the anomaly must come out, at
/// the others not.
fn check(scenario: fn(&World) -> bool, allowed: &[Isolation]) {
    for level in [ReadCommitted, Snapshot, Serializable] {
        let came_out = scenario(&World::new(level));
        assert_eq!(came_out, allowed.contains(&level), "under {level:?}");
    }
}

/// G0: two transactions' writes to X and Y are mixed.
#[test]
fn dirty_write() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            world.write(&one, X, 1).unwrap();
            let mixed = world.write(&two, X, 2);
            assert_eq!(mixed, Err(Error::Conflict { below: false }));
            // It can only be aborted now.
            assert_eq!(world.write(&two, Y, 2), mixed);
            assert_eq!(two.commit().map(drop), mixed);
            world.write(&one, Y, 1).unwrap();
            one.commit().unwrap();
            world.scan(&world.begin()) != [1, 1]
        },
        &[],
    );
}

/// G1a, G1b: what is read was never, or not yet, committed.
#[test]
fn dirty_read() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            world.write(&one, X, 1).unwrap();
            let before = world.read(&two, X);
            world.write(&one, X, 2).unwrap();
            let between = world.read(&two, X);
            one.abort();
            let after = world.read(&two, X);
            two.commit().unwrap();
            [before, between, after] != [Some(0); 3]
        },
        &[],
    );
}

/// G1c: two transactions read each other's writes.
#[test]
fn circular_information_flow() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            world.write(&one, X, 1).unwrap();
            world.write(&two, Y, 2).unwrap();
            let (y, x) = (world.read(&one, Y), world.read(&two, X));
            let _ = (one.commit(), two.commit());
            y == Some(2) && x == Some(1)
        },
        &[],
    );
}

/// P2: the same row read twice is not the same.
#[test]
fn fuzzy_read() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            let first = world.read(&one, X);
            world.write(&two, X, 1).unwrap();
            two.commit().unwrap();
            let second = world.read(&one, X);
            one.commit().unwrap();
            first != second
        },
        &[ReadCommitted],
    );
}

/// G-single: X from before a transaction, Y from after it.
#[test]
fn read_skew() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            let x = world.read(&one, X);
            world.write(&two, X, 1).unwrap();
            world.write(&two, Y, 1).unwrap();
            two.commit().unwrap();
            let y = world.read(&one, Y);
            one.commit().unwrap();
            (x, y) == (Some(0), Some(1))
        },
        &[ReadCommitted],
    );
}

/// P3: the same scan twice does not find the same rows.
#[test]
fn phantom() {
    let scenario = |scan: fn(&World, &Transaction<'_>) -> usize| {
        move |world: &World| {
            let (one, two) = (world.begin(), world.begin());
            let first = scan(world, &one);
            world.insert(&two, 3, 0).unwrap();
            two.commit().unwrap();
            let second = scan(world, &one);
            one.commit().unwrap();
            first != second
        }
    };
    for level in [ReadCommitted, Snapshot, Serializable] {
        let allowed = level == ReadCommitted;
        let rows = scenario(|world, txn| world.scan(txn).len());
        assert_eq!(rows(&World::new(level)), allowed, "rows under {level:?}");
        let index = scenario(|world, txn| world.by_value(txn, 0));
        assert_eq!(index(&World::new(level)), allowed, "index under {level:?}");
    }
}

/// P4: two transactions add to what they both read, and one addition is gone.
#[test]
fn lost_update() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            let (a, b) = (world.read(&one, X).unwrap(), world.read(&two, X).unwrap());
            world.write(&one, X, a + 1).unwrap();
            one.commit().unwrap();
            let second = world.write(&two, X, b + 1).and_then(|()| two.commit());
            let lost = world.read(&world.begin(), X) == Some(1) && second.is_ok();
            assert!(lost || second == Err(Error::Conflict { below: false }));
            lost
        },
        &[ReadCommitted],
    );
}

/// G2-item: each writes what the other has read.
#[test]
fn write_skew() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            let sum = |txn: &Transaction<'_>| world.scan(txn).iter().sum::<i64>();
            assert_eq!((sum(&one), sum(&two)), (0, 0));
            world.write(&one, X, 1).unwrap();
            world.write(&two, Y, 1).unwrap();
            one.commit().unwrap();
            let second = two.commit();
            assert!(second.is_ok() || second == Err(Error::Serialization));
            second.is_ok()
        },
        &[ReadCommitted, Snapshot],
    );
}

/// G2: as write skew, but by rows that the other has not found. In the four ways
/// in which rows can be looked for.
#[test]
fn write_skew_by_phantoms() {
    type Look = fn(&World, &Transaction<'_>) -> usize;
    let looks: [Look; 4] = [
        |world, txn| world.scan(txn).len() - 2,
        |world, txn| world.by_value(txn, 7),
        |world, txn| [3, 4].iter().filter_map(|&id| world.read(txn, id)).count(),
        |world, txn| {
            [3, 4]
                .iter()
                .filter(|&&id| txn.delete(&world.table, id).is_ok())
                .count()
        },
    ];
    for level in [ReadCommitted, Snapshot, Serializable] {
        for (way, look) in looks.iter().enumerate() {
            let world = World::new(level);
            let (one, two) = (world.begin(), world.begin());
            assert_eq!((look(&world, &one), look(&world, &two)), (0, 0));
            world.insert(&one, 3, 7).unwrap();
            world.insert(&two, 4, 7).unwrap();
            one.commit().unwrap();
            let both = two.commit().is_ok();
            assert_eq!(both, level != Serializable, "way {way} under {level:?}");
        }
    }
}

/// The same with rows that were there once: records that are tombstones, or dead
/// and gone from the index.
#[test]
fn write_skew_by_phantoms_that_were_deleted() {
    for level in [ReadCommitted, Snapshot, Serializable] {
        for collected in [false, true] {
            let world = World::new(level);
            let txn = world.begin();
            world.insert(&txn, 3, 7).unwrap();
            world.insert(&txn, 4, 7).unwrap();
            txn.commit().unwrap();
            let txn = world.begin();
            txn.delete(&world.table, 3).unwrap();
            txn.delete(&world.table, 4).unwrap();
            txn.commit().unwrap();
            let (one, two) = (world.begin(), world.begin());
            let look = |txn: &Transaction<'_>| world.read(txn, 3).or(world.read(txn, 4));
            assert_eq!((look(&one), look(&two)), (None, None));
            if collected {
                world.db.collect();
            }
            world.insert(&one, 3, 7).unwrap();
            world.insert(&two, 4, 7).unwrap();
            one.commit().unwrap();
            assert_eq!(
                two.commit().is_ok(),
                level != Serializable,
                "under {level:?}"
            );
        }
    }
}

/// Fekete, O'Neil and O'Neil: two transactions that are serializable alone are
/// not, because of what a third that writes nothing has seen.
#[test]
fn read_only_anomaly() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            // Two: the fee of 1 for overdrawing depends on X and Y.
            let sum = world.read(&two, X).unwrap() + world.read(&two, Y).unwrap();
            // One: 20 into Y.
            world.write(&one, Y, 20).unwrap();
            one.commit().unwrap();
            // Three sees the 20, and that nothing was withdrawn.
            let three = world.begin();
            let seen = (world.read(&three, X), world.read(&three, Y));
            three.commit().unwrap();
            assert_eq!(seen, (Some(0), Some(20)));
            // Two withdraws 10 and pays the fee, as if the 20 were not there.
            let fee = if sum - 10 < 0 { 1 } else { 0 };
            let second = world.write(&two, X, -10 - fee).and_then(|()| two.commit());
            second.is_ok()
        },
        &[ReadCommitted, Snapshot],
    );
}

/// Two writers, of X and of Y; two readers that see them in different orders.
#[test]
fn long_fork() {
    check(
        |world| {
            let (one, two) = (world.begin(), world.begin());
            world.write(&one, X, 1).unwrap();
            world.write(&two, Y, 1).unwrap();
            let mut seen = Vec::new();
            let early = world.begin();
            one.commit().unwrap();
            let middle = world.begin();
            seen.push((world.read(&middle, X), world.read(&middle, Y)));
            two.commit().unwrap();
            for reader in [&early, &middle, &world.begin()] {
                seen.push((world.read(reader, X), world.read(reader, Y)));
            }
            let only = |x, y| seen.contains(&(Some(x), Some(y)));
            only(1, 0) && only(0, 1)
        },
        &[],
    );
}

/// What a transaction has written itself, it sees, and others do not.
#[test]
fn own_writes() {
    for level in [ReadCommitted, Snapshot, Serializable] {
        let world = World::new(level);
        let (one, two) = (world.begin(), world.begin());
        world.insert(&one, 3, 7).unwrap();
        world.write(&one, X, 7).unwrap();
        world.write(&one, X, 8).unwrap();
        one.delete(&world.table, Y).unwrap();
        assert_eq!(world.scan(&one), [8, 7]);
        assert_eq!(
            [
                world.by_value(&one, 7),
                world.by_value(&one, 8),
                world.by_value(&one, 0)
            ],
            [1, 1, 0]
        );
        assert_eq!(world.scan(&two), [0, 0]);
        assert_eq!([world.by_value(&two, 7), world.by_value(&two, 0)], [0, 2]);
        world.insert(&one, Y, 9).unwrap();
        assert_eq!(world.scan(&one), [8, 9, 7]);
        one.commit().unwrap();
        drop(two);
        assert_eq!(world.scan(&world.begin()), [8, 9, 7]);
    }
}

/// An aborted transaction was never there.
#[test]
fn abort() {
    for level in [ReadCommitted, Snapshot, Serializable] {
        let world = World::new(level);
        let one = world.begin();
        world.insert(&one, 3, 7).unwrap();
        world.write(&one, X, 7).unwrap();
        one.delete(&world.table, Y).unwrap();
        drop(one);
        let two = world.begin();
        assert_eq!(world.scan(&two), [0, 0]);
        assert_eq!([world.by_value(&two, 7), world.by_value(&two, 0)], [0, 2]);
        world.insert(&two, 3, 1).unwrap();
        two.delete(&world.table, X).unwrap();
        two.commit().unwrap();
        // On top of a tombstone, too.
        let three = world.begin();
        world.insert(&three, X, 5).unwrap();
        three.abort();
        assert_eq!(world.scan(&world.begin()), [0, 1]);
    }
}
