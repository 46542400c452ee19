//! What a client does: loads rows, and asks for a time.
//!
//! ```text
//!   thread   [ next, key, value ] t0 [ operation ] t1 [ histogram ] [ next … ] t0 [ … ] t1
//! ```
//!
//! A closed loop: each thread begins an operation when its last one has ended. What the
//! client itself does lies between the operations and is in no latency. Throughput is of
//! the time inside operations, so it is what the engine could do for a client that takes
//! none. The counter is read between fences, so that no part of an operation is in flight.
//! A turn begins, when all threads have their sessions, with a warm-up, of which nothing is
//! kept: the process was stopped while others had their turns, and its rows have left the
//! caches.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use quanta::Clock;
use serde::{Deserialize, Serialize};

use super::row::{OltpWorkload, Operation};
use super::store::{Change, Failed, Outcome, ROW_BYTES, SCAN_ROWS_BYTES, Session, Size, Store};
use super::ycsb::{Inserted, Next, Operations, put_key};

/// A turn.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) workload: OltpWorkload,
    pub(super) warmup_s: f64,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// A table with the rows that were loaded.
pub(super) struct Loaded {
    store: Box<dyn Store>,
    size: Size,
    inserted: Inserted,
    clock: Clock,
}

/// Latencies in ns by operation, as values and how often they were seen.
pub(super) type Counts = BTreeMap<Operation, Vec<(u64, u64)>>;

/// What came of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Took {
    pub(super) counts: Counts,
    /// Operations per second inside of operations, all threads together.
    pub(super) per_s: f64,
}

/// What came of a thread's turn.
#[derive(Default)]
struct Log {
    latencies: BTreeMap<Operation, Histogram<u64>>,
    spent_ns: u64,
}

impl Loaded {
    /// Loads rows, in the order of their numbers: at random places of the tree. No work of
    /// the load is left.
    pub(super) fn new(store: Box<dyn Store>, size: Size, seed: u64) -> Outcome<Self> {
        let inserted = Inserted::new(size.rows, size.threads);
        let mut values = Operations::new(OltpWorkload::C, size.columns, (seed, 0), &inserted);
        store.with_session(&mut |session| {
            let (mut key, mut row) = (Vec::new(), vec![0; ROW_BYTES]);
            for number in 0..size.rows {
                put_key(number, &mut key);
                values.fill(&mut row);
                session.insert(&key, &row)?;
            }
            Ok(())
        })?;
        store.settle()?;
        Ok(Loaded {
            store,
            size,
            inserted,
            // Compared with the kernel's for up to a fifth of a second.
            clock: Clock::new(),
        })
    }

    /// Runs a turn to its end.
    pub(super) fn run(&self, turn: &Turn) -> Outcome<Took> {
        let ready = Barrier::new(self.size.threads);
        let logs = thread::scope(|scope| {
            let ready = &ready;
            let run = |thread| scope.spawn(move || self.run_thread(turn, thread, ready));
            let threads: Vec<_> = (0..self.size.threads).map(run).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Outcome<Log>>| {
                thread.join().expect("clients do not panic")
            };
            threads.into_iter().map(join).collect::<Outcome<Vec<Log>>>()
        })?;
        let mut all: BTreeMap<Operation, Histogram<u64>> = BTreeMap::new();
        let mut per_s = 0.0;
        for log in logs {
            let mut count = 0;
            for (operation, latencies) in log.latencies {
                count += latencies.len();
                *all.entry(operation).or_insert_with(histogram) += latencies;
            }
            // One that had no CPU in its turn has done nothing in no time.
            per_s += count as f64 * 1e9 / log.spent_ns.max(1) as f64;
        }
        let pairs = |latencies: Histogram<u64>| {
            let values = latencies.iter_recorded();
            let pair = |value: hdrhistogram::iterators::IterationValue<u64>| {
                (value.value_iterated_to(), value.count_at_value())
            };
            values.map(pair).collect()
        };
        let counts = all.into_iter().map(|(of, one)| (of, pairs(one)));
        Ok(Took {
            counts: counts.collect(),
            per_s,
        })
    }

    fn run_thread(&self, turn: &Turn, thread: usize, ready: &Barrier) -> Outcome<Log> {
        let columns = self.size.columns;
        let mut operations =
            Operations::new(turn.workload, columns, (turn.seed, thread), &self.inserted);
        let mut log = Log::default();
        let mut client = Client::new(columns);
        let mut is_ready = false;
        let done = self.store.with_session(&mut |session| {
            ready.wait();
            is_ready = true;
            let from = Instant::now() + Duration::from_secs_f64(turn.warmup_s);
            let to = from + Duration::from_secs_f64(turn.seconds);
            loop {
                let next = operations.next();
                client.prepare(&next, &mut operations);
                let begun = fenced(&self.clock);
                client.ask(session, &next)?;
                let ended = fenced(&self.clock);
                client.check(&next)?;
                if next.operation == Operation::Insert {
                    self.inserted.done(thread);
                }
                let now = Instant::now();
                if now >= to {
                    return Ok(());
                }
                if now >= from {
                    let ns = self.clock.delta_as_nanos(begun, ended);
                    log.spent_ns += ns;
                    let of = log.latencies.entry(next.operation);
                    of.or_insert_with(histogram).saturating_record(ns);
                }
            }
        });
        if !is_ready {
            // The others do not wait for a session that cannot begin.
            ready.wait();
        }
        done.map(|()| log)
    }
}

/// The cycle counter, read after all that comes before has ended and before what follows
/// begins.
#[inline]
fn fenced(clock: &Clock) -> u64 {
    fence();
    let raw = clock.raw();
    fence();
    raw
}

#[inline]
fn fence() {
    // SAFETY: SSE2, which every x86-64 has.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
}

/// Of latencies in ns: three digits, up to a minute.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds and digits are valid")
}

/// The memory of one thread's client.
struct Client {
    key: Vec<u8>,
    value: Vec<u8>,
    width: usize,
    answer: Vec<u8>,
    /// Rows that a scan has found.
    seen: usize,
}

impl Client {
    fn new(columns: usize) -> Self {
        Client {
            key: Vec::new(),
            value: vec![0; ROW_BYTES],
            width: ROW_BYTES / columns,
            answer: Vec::with_capacity(SCAN_ROWS_BYTES),
            seen: 0,
        }
    }

    /// Makes the key, and the value if one is written.
    fn prepare(&mut self, next: &Next, operations: &mut Operations<'_>) {
        put_key(next.number, &mut self.key);
        match next.operation {
            Operation::Insert => operations.fill(&mut self.value),
            Operation::Update | Operation::ReadModifyWrite => {
                operations.fill(&mut self.value[..self.width]);
            }
            Operation::Read | Operation::Scan => {}
        }
    }

    #[inline]
    fn ask(&mut self, session: &mut dyn Session, next: &Next) -> Outcome<()> {
        let change = Change {
            column: next.column,
            value: &self.value[..self.width],
        };
        let answer = &mut self.answer;
        match next.operation {
            Operation::Read => session.read(&self.key, answer),
            Operation::Update => session.update(&self.key, change),
            Operation::Insert => session.insert(&self.key, &self.value),
            Operation::ReadModifyWrite => session.read_and_update(&self.key, change, answer),
            Operation::Scan => {
                self.seen = session.scan(&self.key, next.count, answer)?;
                Ok(())
            }
        }
    }

    /// The answer is there, and is as long as what was asked for.
    fn check(&mut self, next: &Next) -> Outcome<()> {
        let rows = match next.operation {
            Operation::Read | Operation::ReadModifyWrite => 1,
            // It begins at a row that is there.
            Operation::Scan => self.seen.max(1),
            Operation::Update | Operation::Insert => return Ok(()),
        };
        match black_box(&self.answer).len() == rows * ROW_BYTES {
            true => Ok(()),
            false => Err(Failed::missing()),
        }
    }
}
