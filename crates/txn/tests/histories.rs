//! Random concurrent transactions, judged by the checker in `history`: in one
//! thread that runs several transactions by turns, in several threads, and on
//! workers whose background transactions are preempted.
//!
//! `GIVEWAY_TXN_SEED` repeats a run (exactly, where there is one thread), and
//! `GIVEWAY_TXN_ROUNDS` makes it longer.

mod history;

use std::alloc::System;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use giveway_preempt::{Policy, Pool, RegionAlloc};
use giveway_tier::Tier;
use giveway_txn::Isolation::{ReadCommitted, Serializable, Snapshot};
use giveway_txn::{
    Database, Direction, Error, Isolation, KeyRange, Options, Result, Schema, Table, Transaction,
    TxnOptions, Type,
};
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use history::Anomaly::{self, G2, GSingle, LongFork};
use history::{Key, Op, Txn};

#[global_allocator]
static ALLOC: RegionAlloc<System> = RegionAlloc(System);

/// Lists; few, so that transactions meet.
const KEYS: Key = 6;

/// Who has the mark that nobody else gets; beyond all ranges that are read.
const MARKED: Key = -1;

/// A list is a row; one that is empty is no row at all. So reading it and then
/// appending to it is a phantom.
///
/// Writes that are refused are reads: every row but one is refused the mark. The error
/// also says whether another list is empty, whose `twin` it would have taken first.
struct Lists {
    db: Database,
    table: Table,
    level: Isolation,
    next: AtomicU32,
    clock: AtomicU64,
}

impl Lists {
    fn new(level: Isolation) -> Lists {
        let db = Database::in_memory(Options::default());
        let schema = Schema::builder("lists")
            .column("id", Type::I32)
            .column("half", Type::I32)
            .column("list", Type::Bytes)
            .nullable("twin", Type::I32)
            .nullable("mark", Type::I32)
            .primary_key(["id"])
            .index("by_half", ["half", "id"])
            .unique_index("by_twin", ["twin"])
            .unique_index("by_mark", ["mark"])
            .build();
        let table = db.create_table(schema.unwrap()).unwrap();
        db.run(TxnOptions::default(), |txn| {
            let mut row = table.row();
            row.set_i32(0, MARKED).set_i32(1, 2).set_bytes(2, &[]);
            row.set_i32(4, 0);
            txn.insert(&table, &row)
        })
        .unwrap();
        Lists {
            table,
            db,
            level,
            next: AtomicU32::new(1),
            clock: AtomicU64::new(1),
        }
    }

    fn begin(&self) -> (Transaction<'_>, Txn) {
        let began = self.clock.fetch_add(1, SeqCst);
        let options = TxnOptions {
            isolation: self.level,
            ..TxnOptions::default()
        };
        let record = Txn {
            began,
            ..Txn::default()
        };
        (self.db.begin(options).unwrap(), record)
    }

    fn end(&self, txn: Option<Transaction<'_>>, mut record: Txn) -> Txn {
        record.committed = txn.is_some_and(|txn| txn.commit().is_ok());
        record.ended = self.clock.fetch_add(1, SeqCst);
        record
    }

    fn decode(bytes: &[u8]) -> Vec<u32> {
        let numbers = bytes.chunks_exact(4);
        numbers
            .map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    fn append(&self, txn: &Transaction<'_>, record: &mut Txn, key: Key) -> Result<()> {
        let element = self.next.fetch_add(1, SeqCst);
        let updated = txn.update(&self.table, key, |row| {
            let list = [row.bytes(2), &element.to_le_bytes()].concat();
            row.set_bytes(2, &list);
        });
        match updated {
            Err(Error::NotFound { .. }) => {
                let mut row = self.table.row();
                row.set_i32(0, key).set_i32(1, key % 2);
                row.set_bytes(2, &element.to_le_bytes());
                row.set_i32(3, key);
                // Under read committed it may have come into being meanwhile.
                txn.insert(&self.table, &row)?;
            }
            other => other?,
        }
        record.ops.push(Op::Append(key, element));
        Ok(())
    }

    /// Reads a list in an update that is refused, and whether another one is empty.
    fn update_in_vain(
        &self,
        txn: &Transaction<'_>,
        record: &mut Txn,
        key: Key,
        twin: Key,
    ) -> Result<()> {
        let mut list = Vec::new();
        let updated = txn.update(&self.table, key, |row| {
            list = Lists::decode(row.bytes(2));
            row.set_i32(3, twin).set_i32(4, 0);
        });
        let free = match updated {
            Err(Error::NotFound { .. }) => false,
            Err(Error::UniqueViolation { index, .. }) => *index == *"by_mark" && twin != key,
            Err(error) => return Err(error),
            Ok(()) => panic!("two rows have the mark"),
        };
        record.ops.push(Op::Read(key, list));
        if free {
            record.ops.push(Op::Read(twin, Vec::new()));
        }
        Ok(())
    }

    /// Learns that a list is empty from how inserting it is refused.
    fn insert_in_vain(&self, txn: &Transaction<'_>, record: &mut Txn, key: Key) -> Result<()> {
        let inserted = txn.insert_with(&self.table, |row| {
            row.set_i32(0, key).set_i32(1, key % 2).set_bytes(2, &[]);
            row.set_i32(4, 0);
        });
        match inserted {
            Err(Error::DuplicateKey { .. }) => {}
            Err(Error::UniqueViolation { .. }) => record.ops.push(Op::Read(key, Vec::new())),
            Err(error) => return Err(error),
            Ok(()) => panic!("two rows have the mark"),
        }
        Ok(())
    }

    /// One operation of a transaction, chosen by chance.
    fn step(&self, txn: &Transaction<'_>, record: &mut Txn, random: &mut ChaCha8Rng) -> Result<()> {
        let key = random.random_range(0..KEYS);
        if record.ops.len() % 4 == 1 {
            txn.prefetch(&self.table, 0..KEYS);
        }
        match random.random_range(0..13) {
            10 | 11 => self.update_in_vain(txn, record, key, random.random_range(0..KEYS)),
            12 => self.insert_in_vain(txn, record, key),
            0..5 => self.append(txn, record, key),
            5..8 => {
                let row = txn.get(&self.table, key)?;
                let list = row.map_or(Vec::new(), |row| Lists::decode(row.bytes(2)));
                record.ops.push(Op::Read(key, list));
                Ok(())
            }
            8 => {
                let range = KeyRange::at_least(key);
                let keys: Vec<Key> = (key..KEYS).collect();
                let direction =
                    [Direction::Forward, Direction::Backward][random.random_range(0..2)];
                let scan = txn.scan(&self.table, range, direction)?;
                Lists::note(record, &keys, scan)
            }
            _ => {
                let index = self.table.index("by_half")?;
                let keys: Vec<Key> = (0..KEYS).filter(|other| other % 2 == key % 2).collect();
                let scan = txn.scan_index(&index, KeyRange::prefix(key % 2), Direction::Forward)?;
                Lists::note(record, &keys, scan)
            }
        }
    }

    /// Notes what a scan has found of these lists; those not found are empty.
    fn note(record: &mut Txn, keys: &[Key], scan: giveway_txn::Scan<'_>) -> Result<()> {
        let mut lists: BTreeMap<Key, Vec<u32>> =
            keys.iter().map(|&key| (key, Vec::new())).collect();
        for row in scan {
            let row = row?;
            let list = lists.get_mut(&row.i32(0)).expect("a row of the range");
            assert!(list.is_empty(), "a row was found twice");
            *list = Lists::decode(row.bytes(2));
        }
        let reads = lists.into_iter().map(|(key, list)| Op::Read(key, list));
        record.ops.extend(reads);
        Ok(())
    }

    /// A transaction from begin to end.
    fn run(&self, length: usize, random: &mut ChaCha8Rng) -> Txn {
        let (txn, mut record) = self.begin();
        for _ in 0..length {
            if self.step(&txn, &mut record, random).is_err() {
                return self.end(None, record);
            }
        }
        self.end(Some(txn), record)
    }

    fn finals(&self) -> BTreeMap<Key, Vec<u32>> {
        let txn = self.db.begin(TxnOptions::read_only()).unwrap();
        let rows = txn
            .scan(&self.table, KeyRange::at_least(0), Direction::Forward)
            .unwrap();
        rows.map(|row| {
            let row = row.unwrap();
            (row.i32(0), Lists::decode(row.bytes(2)))
        })
        .collect()
    }

    /// The anomalies of a history, after what no level may have was seen not to
    /// be there.
    fn judge(&self, history: &[Txn], seed: u64) -> BTreeSet<Anomaly> {
        let found = history::check(history, &self.finals());
        let forbidden: &[Anomaly] = match self.level {
            ReadCommitted => &[],
            Snapshot => &[GSingle, LongFork],
            Serializable => &[GSingle, LongFork, G2],
        };
        for anomaly in history::FORBIDDEN_ALWAYS.iter().chain(forbidden) {
            assert!(
                !found.contains(anomaly),
                "{anomaly:?} under {:?}: GIVEWAY_TXN_SEED={seed}",
                self.level
            );
        }
        found
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

/// Calls `history` with a number of seeds per level, judges what it returns, and
/// checks that what a level allows has come out at least once.
fn judge_all(rounds: u64, history: impl Fn(&Arc<Lists>, u64) -> Vec<Txn>) {
    let first = number("GIVEWAY_TXN_SEED", 1);
    let rounds = number("GIVEWAY_TXN_ROUNDS", rounds);
    for level in [ReadCommitted, Snapshot, Serializable] {
        let mut found = BTreeSet::new();
        let (mut committed, mut all) = (0, 0);
        for seed in first..first + rounds {
            let lists = Arc::new(Lists::new(level));
            let history = history(&lists, seed);
            committed += history.iter().filter(|txn| txn.committed).count();
            all += history.len();
            found.extend(lists.judge(&history, seed));
            lists.db.collect();
            assert_eq!(lists.db.stats().garbage_bytes, 0, "seed {seed}");
        }
        println!("{level:?}: {committed} of {all} committed, {found:?}");
        assert!(committed * 10 > all, "hardly anything committed");
        if rounds >= 20 {
            let allowed: &[Anomaly] = match level {
                ReadCommitted => &[GSingle],
                Snapshot => &[G2],
                Serializable => &[],
            };
            for anomaly in allowed {
                assert!(
                    found.contains(anomaly),
                    "{level:?} has never had {anomaly:?}"
                );
            }
        }
    }
}

#[test]
fn by_turns() {
    judge_all(200, |lists, seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut history = Vec::new();
        let mut open: Vec<(Transaction<'_>, Txn)> = Vec::new();
        for _ in 0..150 {
            if open.len() < 2 || (open.len() < 5 && random.random_bool(0.2)) {
                open.push(lists.begin());
            }
            let at = random.random_range(0..open.len());
            let (txn, record) = &mut open[at];
            if random.random_bool(0.25) {
                let (txn, record) = open.swap_remove(at);
                history.push(lists.end(Some(txn), record));
            } else if lists.step(txn, record, &mut random).is_err() {
                let (_, record) = open.swap_remove(at);
                history.push(lists.end(None, record));
            }
        }
        let rest = open
            .into_iter()
            .map(|(txn, record)| lists.end(Some(txn), record));
        history.extend(rest);
        history
    });
}

#[test]
fn in_threads() {
    judge_all(12, |lists, seed| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let lists = Arc::clone(lists);
                std::thread::spawn(move || {
                    let mut random = ChaCha8Rng::seed_from_u64(seed << 8 | thread);
                    let run = |_| {
                        let length = random.random_range(1..6);
                        lists.run(length, &mut random)
                    };
                    (0..80).map(run).collect::<Vec<Txn>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
}

/// Two workers; long background transactions, preempted by short urgent ones
/// while they read, write and hold versions.
fn preempted_under(policy: Policy, rounds: u64) {
    judge_all(rounds, |lists, seed| {
        let pool = Pool::builder()
            .workers(2)
            .capacity(giveway_preempt::Level::new(0), 4)
            .capacity(giveway_preempt::Level::new(1), 8)
            .policy(policy)
            .build()
            .expect("a pool");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut tickets = Vec::new();
        let mut submitted = 0;
        while submitted < 250 {
            let urgent = random.random_bool(0.7);
            let (tier, length) = match urgent {
                true => (Tier::TimeSensitive, random.random_range(1..4)),
                false => (Tier::Background, random.random_range(4..40)),
            };
            let mut task_random = ChaCha8Rng::seed_from_u64(seed << 16 | submitted);
            let lists = Arc::clone(lists);
            match pool.submit(tier, move || lists.run(length, &mut task_random)) {
                Ok(ticket) => {
                    tickets.push(ticket);
                    submitted += 1;
                }
                // Full: let the workers work.
                Err(_) => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
        let history = tickets
            .into_iter()
            .map(|ticket| ticket.wait().expect("no task fails"));
        let history: Vec<Txn> = history.collect();
        history
    });
}

#[test]
fn preempted_by_signals() {
    preempted_under(
        Policy::Preempt {
            delivery: giveway_preempt::Delivery::Signal,
        },
        6,
    );
}

#[test]
fn preempted_by_flags_and_signals() {
    preempted_under(Policy::best(), 6);
}

#[test]
fn preempted_at_poll_points() {
    preempted_under(
        Policy::Preempt {
            delivery: giveway_preempt::Delivery::Poll,
        },
        6,
    );
}

#[test]
fn yielding_after_every_record() {
    preempted_under(
        Policy::Cooperative {
            every: std::num::NonZeroU32::MIN,
        },
        6,
    );
}
