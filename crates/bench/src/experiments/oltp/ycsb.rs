//! YCSB's core workloads: which operation comes next, and on which row.
//!
//! ```text
//!   A to C, F   rank ◄─ Zipf's law over 10^16 items ─► hash, modulo the rows    (scrambled)
//!   D           rank ◄─ Zipf's law over the rows there are ─► newest first      (latest)
//!   E           as A; 1 to 100 rows from there, each length as likely
//! ```
//!
//! Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (SoCC '10), Table 2, and
//! as the public implementation has it: exponent 0.99, ranks by Gray et al.'s method
//! (SIGMOD '94), keys and scrambling by the 64-bit FNV-1a hash of a number's bytes. Rows
//! are numbered in the order of their insertion; the hash makes the key, so neighbours in
//! the tree are strangers.
//!
//! Threads insert the numbers of their own residue class, so nobody waits for a number;
//! each reads what all have inserted ([`Inserted`]).
//!
//! Departures. E's scans begin at rows that were loaded, so that the popular ones stay the
//! same while others come. F's read and write are one transaction; YCSB's are two.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{Rng, RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::row::{OltpWorkload, Operation};

/// The exponent.
const THETA: f64 = 0.99;
/// The items over which ranks are drawn before they are scrambled, and a sum of
/// 1 / rank^0.99, both as YCSB has them. The sum is that over 10^10 items, which
/// YCSB once had. The skew is weak: the first 1000 ranks have a fifth.
const SCRAMBLED_ITEMS: f64 = 1e16;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;
/// Rows of the longest scan.
pub(super) const SCAN_MOST: usize = 100;

/// The workload's operations, each with its share in percent.
fn shares(workload: OltpWorkload) -> &'static [(Operation, u32)] {
    match workload {
        OltpWorkload::A => &[(Operation::Read, 50), (Operation::Update, 50)],
        OltpWorkload::B => &[(Operation::Read, 95), (Operation::Update, 5)],
        OltpWorkload::C => &[(Operation::Read, 100)],
        OltpWorkload::D => &[(Operation::Read, 95), (Operation::Insert, 5)],
        OltpWorkload::E => &[(Operation::Scan, 95), (Operation::Insert, 5)],
        OltpWorkload::F => &[(Operation::Read, 50), (Operation::ReadModifyWrite, 50)],
    }
}

/// The 64-bit FNV-1a hash of a number's bytes, without its sign.
pub(super) fn hash(number: u64) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211);
    let hash = number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, mix);
    hash.cast_signed().unsigned_abs()
}

/// The key of a row, as text.
pub(super) fn put_key(number: u64, key: &mut Vec<u8>) {
    key.clear();
    write!(key, "user{}", hash(number)).expect("memory takes all");
}

/// Ranks from 0 by Zipf's law.
#[derive(Clone, Debug)]
struct Zipf {
    items: f64,
    /// Sum of 1 / rank^theta over the items.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: f64, zeta: f64) -> Self {
        let of_two = 1.0 + 0.5_f64.powf(THETA);
        Zipf {
            items,
            zeta,
            eta: (1.0 - (2.0 / items).powf(1.0 - THETA)) / (1.0 - of_two / zeta),
        }
    }

    /// Over some items and no more.
    fn over(items: u64) -> Self {
        Zipf::new(items as f64, zeta(0, items))
    }

    /// Over more items than before.
    fn grow(&mut self, items: u64) {
        let before = self.items as u64;
        if items > before {
            *self = Zipf::new(items as f64, self.zeta + zeta(before, items));
        }
    }

    fn next(&self, random: &mut impl Rng) -> u64 {
        let share: f64 = random.random();
        match share * self.zeta {
            part if part < 1.0 => 0,
            part if part < 1.0 + 0.5_f64.powf(THETA) => 1,
            _ => {
                let base = self.eta * share - self.eta + 1.0;
                (self.items * base.powf(1.0 / (1.0 - THETA))) as u64
            }
        }
    }
}

/// The sum of 1 / rank^theta over the ranks after `from` to `to`.
fn zeta(from: u64, to: u64) -> f64 {
    (from..to)
        .map(|rank| ((rank + 1) as f64).powf(THETA).recip())
        .sum()
}

/// How many rows each thread has inserted.
pub(super) struct Inserted {
    loaded: u64,
    /// Over the rows that were loaded: a sum over them all, which no turn forms again.
    ranks: Zipf,
    by_thread: Vec<AtomicU64>,
}

impl Inserted {
    /// Nothing yet, beside the rows that were loaded.
    pub(super) fn new(loaded: u64, threads: usize) -> Self {
        Inserted {
            loaded,
            ranks: Zipf::over(loaded),
            by_thread: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The number of the thread's next row.
    fn next(&self, thread: usize) -> u64 {
        let own = self.by_thread[thread].load(Ordering::Relaxed);
        self.loaded + own * self.by_thread.len() as u64 + thread as u64
    }

    /// The thread has inserted its next row.
    pub(super) fn done(&self, thread: usize) {
        // Whoever reads the count finds the row.
        self.by_thread[thread].fetch_add(1, Ordering::Release);
    }

    /// Over the rows that are there.
    fn latest(&self) -> Zipf {
        let mut ranks = self.ranks.clone();
        ranks.grow(self.known());
        ranks
    }

    /// All rows with smaller numbers are there.
    pub(super) fn known(&self) -> u64 {
        let threads = self.by_thread.len() as u64;
        let missing = self.by_thread.iter().zip(0..).map(|(count, thread)| {
            // The thread's first row that is not there.
            count.load(Ordering::Acquire) * threads + thread
        });
        self.loaded + missing.min().unwrap_or(0)
    }
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) operation: Operation,
    /// The row's number.
    pub(super) number: u64,
    /// The column that is written.
    pub(super) column: usize,
    /// Rows to scan.
    pub(super) count: usize,
}

/// The operations of one thread.
pub(super) struct Operations<'i> {
    shares: &'static [(Operation, u32)],
    random: ChaCha8Rng,
    columns: usize,
    thread: usize,
    inserted: &'i Inserted,
    scrambled: Zipf,
    /// Of D alone.
    latest: Option<Zipf>,
}

impl<'i> Operations<'i> {
    /// Those of a thread.
    pub(super) fn new(
        workload: OltpWorkload,
        columns: usize,
        (seed, thread): (u64, usize),
        inserted: &'i Inserted,
    ) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(thread as u64);
        Operations {
            shares: shares(workload),
            random,
            columns,
            thread,
            inserted,
            scrambled: Zipf::new(SCRAMBLED_ITEMS, SCRAMBLED_ZETA),
            latest: (workload == OltpWorkload::D).then(|| inserted.latest()),
        }
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Next {
        let mut percent = self.random.random_range(0..100);
        let of = |(operation, share): &(Operation, u32)| {
            let is_it = percent < *share;
            percent = percent.wrapping_sub(*share);
            is_it.then_some(*operation)
        };
        let operation = self.shares.iter().find_map(of);
        let operation = operation.expect("shares are of a hundred");
        Next {
            operation,
            number: match operation {
                Operation::Insert => self.inserted.next(self.thread),
                _ => self.existing(),
            },
            column: self.random.random_range(0..self.columns),
            count: self.random.random_range(1..=SCAN_MOST),
        }
    }

    fn existing(&mut self) -> u64 {
        match &mut self.latest {
            None => hash(self.scrambled.next(&mut self.random)) % self.inserted.loaded,
            Some(latest) => {
                let known = self.inserted.known();
                latest.grow(known);
                // Rounding may bring the number of items itself.
                known - 1 - latest.next(&mut self.random).min(known - 1)
            }
        }
    }

    /// Bytes of a value.
    pub(super) fn fill(&mut self, value: &mut [u8]) {
        self.random.fill_bytes(value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ROWS: u64 = 10_000;

    fn draw(workload: OltpWorkload, count: usize) -> Vec<Next> {
        let inserted = Inserted::new(ROWS, 1);
        let mut operations = Operations::new(workload, 10, (7, 0), &inserted);
        let mut next = || {
            let next = operations.next();
            if next.operation == Operation::Insert {
                inserted.done(0);
            }
            next
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn keys_are_those_of_ycsb() {
        let key = |number| {
            let mut key = Vec::new();
            put_key(number, &mut key);
            String::from_utf8(key).unwrap()
        };
        assert_eq!(key(0), "user6284781860667377211");
        assert_eq!(key(1), "user8517097267634966620");
        assert_eq!(key(2), "user1820151046732198393");
    }

    #[test]
    fn ranks_follow_zipf_s_law() {
        let zipf = Zipf::over(1_000);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0_u32; 1_000];
        const DRAWN: u32 = 1_000_000;
        for _ in 0..DRAWN {
            counts[zipf.next(&mut random) as usize] += 1;
        }
        let share = |ranks: std::ops::Range<usize>| {
            f64::from(counts[ranks].iter().sum::<u32>()) / f64::from(DRAWN)
        };
        let sum = zeta(0, 1_000);
        // The first two are exact; beyond them the method is approximate.
        for (rank, near) in [(0, 0.01), (1, 0.02), (9, 0.25), (99, 0.25)] {
            let law = ((rank + 1) as f64).powf(-THETA) / sum;
            let ratio = share(rank..rank + 1) / law;
            assert!((ratio - 1.0).abs() < near, "rank {rank}: {ratio}");
        }
        for ranks in [10, 100, 500] {
            let law = zeta(0, ranks as u64) / sum;
            let ratio = share(0..ranks) / law;
            assert!((ratio - 1.0).abs() < 0.05, "first {ranks}: {ratio}");
        }
    }

    #[test]
    fn items_that_come_later_count_as_if_they_had_been_there() {
        let mut grown = Zipf::over(100);
        grown.grow(1_000);
        grown.grow(500);
        let whole = Zipf::over(1_000);
        assert!((grown.zeta - whole.zeta).abs() < 1e-9);
        assert!((grown.eta - whole.eta).abs() < 1e-9);
    }

    #[test]
    fn the_popular_rows_are_scattered_and_have_the_share_that_ycsb_gives_them() {
        let drawn = draw(OltpWorkload::C, 500_000);
        let mut counts = BTreeMap::new();
        for next in &drawn {
            *counts.entry(next.number).or_insert(0_u32) += 1;
        }
        let share = |number: u64| f64::from(counts[&number]) / drawn.len() as f64;
        // Of the ranks 0 and 1, and what else is hashed to the same rows.
        let (first, second) = (hash(0) % ROWS, hash(1) % ROWS);
        assert!((share(first) - 1.0 / SCRAMBLED_ZETA).abs() < 2e-3);
        assert!((share(second) - 0.5_f64.powf(THETA) / SCRAMBLED_ZETA).abs() < 2e-3);
        let most = counts.iter().max_by_key(|(_, count)| **count).unwrap();
        assert_eq!(*most.0, first);
        // No row is left out for long.
        assert!(counts.len() as u64 > ROWS * 9 / 10, "{}", counts.len());
    }

    #[test]
    fn operations_come_in_their_shares() {
        for workload in OltpWorkload::ALL {
            let drawn = draw(*workload, 100_000);
            for (operation, percent) in shares(*workload) {
                let count = drawn.iter().filter(|next| next.operation == *operation);
                let share = count.count() as f64 / 1e3;
                let off = (share - f64::from(*percent)).abs();
                assert!(off < 0.6, "{workload} {operation}: {share} %");
            }
        }
        let scans = draw(OltpWorkload::E, 10_000);
        let counts = scans.iter().map(|next| next.count);
        assert_eq!(
            counts.clone().min().zip(counts.clone().max()),
            Some((1, 100))
        );
        let mean = counts.sum::<usize>() as f64 / 1e4;
        assert!((mean - 50.5).abs() < 1.5, "{mean}");
    }

    #[test]
    fn d_reads_the_newest_rows_most_and_none_that_is_not_there() {
        let mut known = ROWS;
        let (mut newest, mut reads) = (0, 0);
        for next in draw(OltpWorkload::D, 200_000) {
            match next.operation {
                Operation::Insert => {
                    assert_eq!(next.number, known);
                    known += 1;
                }
                _ => {
                    assert!(next.number < known);
                    reads += 1;
                    newest += u64::from(next.number == known - 1);
                }
            }
        }
        assert!(known > ROWS + 9_000, "{known}");
        let share = newest as f64 / f64::from(reads);
        let law = 1.0 / zeta(0, ROWS * 3 / 2);
        assert!((share / law - 1.0).abs() < 0.1, "{share} beside {law}");
    }

    #[test]
    fn a_row_is_known_when_all_before_it_are_there() {
        let inserted = Inserted::new(100, 2);
        assert_eq!((inserted.next(0), inserted.next(1)), (100, 101));
        inserted.done(1);
        assert_eq!(inserted.known(), 100);
        inserted.done(0);
        assert_eq!(inserted.known(), 102);
        inserted.done(0);
        assert_eq!(inserted.known(), 103);
    }
}
