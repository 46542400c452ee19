//! What a lock costs that nobody else wants.
//!
//! Locks take turns: a round measures every lock once, in an order that the
//! seed shuffles, so that a frequency change or a neighbour on the machine
//! meets all of them alike. A sample is the time of [`PAIRS`] pairs of lock and
//! unlock divided by their number; the row keeps every sample.

use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::lock::{BenchLock, Kind, LockHandle, Member};
use crate::Result;

/// Pairs of lock and unlock in a sample: about 0.1 ms, which is short beside a
/// time slice and long beside a reading of the clock.
pub(crate) const PAIRS: u32 = 5_000;

/// A lock with one user.
pub(crate) trait Alone {
    /// Nanoseconds of `pairs` pairs of lock and unlock.
    fn round_ns(&self, pairs: u32) -> u64;
}

impl<L: BenchLock> Alone for L {
    fn round_ns(&self, pairs: u32) -> u64 {
        let mut handle = self.join(&Member::EQUAL);
        let begun = Instant::now();
        for _ in 0..pairs {
            handle.lock();
            // SAFETY: the lock was taken through this handle just now.
            unsafe { handle.unlock() };
        }
        u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Samples of each lock in the order of `kinds`, in ns for a pair.
pub(crate) fn samples(kinds: &[&Kind], rounds: u32, seed: u64) -> Result<Vec<Vec<f64>>> {
    let locks = kinds
        .iter()
        .map(|kind| kind.measured.alone())
        .collect::<Result<Vec<_>>>()?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..locks.len()).collect();
    let mut samples = vec![Vec::new(); locks.len()];
    // The first round warms caches and makes per-thread state; it is not kept.
    for round in 0..=rounds {
        order.shuffle(&mut random);
        for &index in &order {
            let ns = locks[index].round_ns(PAIRS) as f64 / f64::from(PAIRS);
            if round > 0 {
                samples[index].push((ns * 1e3).round() / 1e3);
            }
        }
    }
    Ok(samples)
}
