//! Rows that come and go: records, index entries, nodes and versions are made
//! and freed all the time, while readers count.
//!
//! Tokens lie in places, one row each. Movers take a token from one place to
//! another, or change its colour, which moves it in an index. Whoever looks, in
//! whatever way, finds as many tokens as there are.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use giveway_preempt::{Delivery, Policy, Pool, RegionAlloc};
use giveway_tier::Tier;
use giveway_txn::Direction::{Backward, Forward};
use giveway_txn::{Database, Error, Isolation, KeyRange, Options, Schema, Table, TxnOptions, Type};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[global_allocator]
static ALLOC: RegionAlloc<System> = RegionAlloc(System);

const PLACES: i32 = 400;
const TOKENS: i32 = 60;
const COLOURS: i32 = 7;

struct Board {
    db: Database,
    table: Table,
}

impl Board {
    fn new() -> Board {
        let db = Database::in_memory(Options::default());
        let schema = Schema::builder("board")
            .column("place", Type::I32)
            .column("colour", Type::I32)
            .column("text", Type::Text)
            .primary_key(["place"])
            .index("by_colour", ["colour"])
            .build();
        let table = db.create_table(schema.unwrap()).unwrap();
        let board = Board { db, table };
        let txn = board.db.begin(TxnOptions::default()).unwrap();
        for place in 0..TOKENS {
            let mut row = board.table.row();
            row.set_i32(0, place * (PLACES / TOKENS));
            row.set_i32(1, place % COLOURS).set_text(2, "token");
            txn.insert(&board.table, &row).unwrap();
        }
        txn.commit().unwrap();
        board
    }

    /// One change, or none if there is no token or no room.
    fn change(&self, isolation: Isolation, random: &mut ChaCha8Rng) {
        let options = TxnOptions {
            isolation,
            ..TxnOptions::default()
        };
        let (from, to) = (
            random.random_range(0..PLACES),
            random.random_range(0..PLACES),
        );
        let colour = random.random_range(0..COLOURS);
        let give_up = random.random_bool(0.2);
        let changed = self.db.run(options, |txn| {
            // The first token at or after the place.
            let range = KeyRange::at_least(from);
            let first = txn.scan(&self.table, range, Forward)?.next().transpose()?;
            let Some(token) = first.map(|row| row.to_owned()) else {
                return Ok(());
            };
            if from % 3 == 0 {
                txn.update(&self.table, token.i32(0), |row| {
                    row.set_i32(1, colour);
                })?;
            } else {
                txn.delete(&self.table, token.i32(0))?;
                let mut moved = token.clone();
                moved.set_i32(0, to);
                txn.insert(&self.table, &moved)?;
            }
            if give_up {
                return Err(Error::Timeout);
            }
            Ok(())
        });
        match changed {
            // The place is taken, or the change was given up.
            Ok(()) | Err(Error::DuplicateKey { .. } | Error::Timeout) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Counts in every way.
    fn look(&self) {
        let txn = self.db.begin(TxnOptions::read_only()).unwrap();
        let by_colour = self.table.index("by_colour").unwrap();
        for direction in [Forward, Backward] {
            let rows = txn.scan(&self.table, KeyRange::all(), direction).unwrap();
            let mut places: Vec<i32> = rows.map(|row| row.unwrap().i32(0)).collect();
            if direction == Backward {
                places.reverse();
            }
            assert!(places.is_sorted_by(|a, b| a < b));
            assert_eq!(places.len(), TOKENS as usize);
            for place in places {
                assert_eq!(
                    txn.get(&self.table, place).unwrap().unwrap().text(2),
                    "token"
                );
            }
            let rows = txn
                .scan_index(&by_colour, KeyRange::all(), direction)
                .unwrap();
            let keys: Vec<(i32, i32)> = rows
                .map(|row| row.unwrap())
                .map(|row| (row.i32(1), row.i32(0)))
                .collect();
            assert_eq!(keys.len(), TOKENS as usize);
            let sorted = match direction {
                Forward => keys.is_sorted_by(|a, b| a < b),
                Backward => keys.is_sorted_by(|a, b| a > b),
            };
            assert!(sorted);
        }
    }

    /// Everything that was replaced can be freed, and was counted right.
    fn settle(&self, before: u64) {
        self.look();
        (0..3).for_each(|_| self.db.collect());
        let stats = self.db.stats();
        assert_eq!(
            (stats.garbage_bytes, stats.active, stats.oldest),
            (0, 0, None)
        );
        // Nodes may be fuller or emptier than at the beginning.
        assert!(
            stats.memory_bytes < 2 * before + 200_000,
            "{} of {before}",
            stats.memory_bytes
        );
    }
}

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// The record of an insertion that is taken back is gone, and another one with its key
/// may come before the index entry that led to it is gone, too.
#[test]
fn an_insertion_that_is_taken_back_leaves_no_entry_to_the_next() {
    let db = Database::in_memory(Options::default());
    let schema = Schema::builder("board")
        .column("place", Type::I32)
        .column("colour", Type::I32)
        .primary_key(["place"])
        .index("by_colour", ["colour"]);
    let table = db.create_table(schema.build().unwrap()).unwrap();
    let by_colour = table.index("by_colour").unwrap();
    let insert = |place: i32, commit: bool| {
        db.run(TxnOptions::read_committed(), |txn| {
            let mut row = table.row();
            row.set_i32(0, place).set_i32(1, 7);
            txn.insert(&table, &row)?;
            match commit {
                true => Ok(()),
                false => Err(Error::Timeout),
            }
        })
    };
    const PLACES_IN_TURN: i32 = 5_000;
    let (now, mut wrong) = (AtomicI32::new(0), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while now.load(Relaxed) < PLACES_IN_TURN {
                assert!(insert(now.load(Relaxed), false).is_err());
            }
        });
        for place in 0..PLACES_IN_TURN {
            now.store(place, Relaxed);
            insert(place, true).unwrap();
            let txn = db.begin(TxnOptions::read_only()).unwrap();
            let rows = txn.scan_index(&by_colour, KeyRange::prefix(7), Forward);
            let places: Vec<i32> = rows.unwrap().map(|row| row.unwrap().i32(0)).collect();
            drop(txn);
            if places != [place] {
                wrong.push((place, places));
                break;
            }
            now.store(place + 1, Relaxed);
            db.run(TxnOptions::snapshot(), |txn| txn.delete(&table, place))
                .unwrap();
        }
        now.store(PLACES_IN_TURN, Relaxed);
    });
    assert_eq!(wrong, []);
}

#[test]
fn in_threads() {
    let board = Board::new();
    let before = board.db.stats().memory_bytes;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..3)
            .map(|mover| {
                let board = &board;
                scope.spawn(move || {
                    let mut random = ChaCha8Rng::seed_from_u64(mover);
                    for _ in 0..3000 {
                        board.change(LEVELS[mover as usize % 2 + 1], &mut random);
                    }
                })
            })
            .collect();
        let looker = scope.spawn(|| {
            while !done.load(Relaxed) {
                board.look();
            }
        });
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        done.store(true, Relaxed);
        looker.join().unwrap();
    });
    board.settle(before);
}

#[test]
fn preempted() {
    let board = Arc::new(Board::new());
    let before = board.db.stats().memory_bytes;
    let pool = Pool::builder().workers(2).policy(Policy::Preempt {
        delivery: Delivery::Signal,
    });
    let pool = pool.build().expect("a pool");
    let mut tickets = Vec::new();
    let mut random = ChaCha8Rng::seed_from_u64(9);
    while tickets.len() < 1500 {
        let mut own = ChaCha8Rng::seed_from_u64(tickets.len() as u64);
        let board = Arc::clone(&board);
        // Under read committed, a token may be moved twice: snapshots only.
        let level = LEVELS[random.random_range(1..3)];
        let submitted = match random.random_range(0..4) {
            0 => pool
                .submit(Tier::Background, move || board.look())
                .map_err(drop),
            1 => {
                let work = move || (0..10).for_each(|_| board.change(level, &mut own));
                pool.submit(Tier::Background, work).map_err(drop)
            }
            _ => {
                let work = move || board.change(level, &mut own);
                pool.submit(Tier::TimeSensitive, work).map_err(drop)
            }
        };
        match submitted {
            Ok(ticket) => tickets.push(ticket),
            Err(()) => std::thread::sleep(std::time::Duration::from_micros(100)),
        }
    }
    for ticket in tickets {
        ticket.wait().expect("no task fails");
    }
    drop(pool);
    board.settle(before);
}
