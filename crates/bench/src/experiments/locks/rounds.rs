//! Rounds of uncontended pairs, by the thread that is a lock's only user.

use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use super::lock::{BenchLock, LockHandle, Member};

/// Pairs of lock and unlock in a sample: about 0.1 ms, which is short beside a
/// time slice and long beside a reading of the clock.
pub(super) const PAIRS: u32 = 5_000;

/// Rounds as a lock's thread is asked for them.
#[derive(Debug)]
pub(crate) struct Rounds {
    pub(super) asked: Receiver<()>,
    pub(super) ns: Sender<u64>,
}

impl Rounds {
    /// Measures a round whenever one is asked for, until nobody asks any more.
    pub(super) fn serve<L: BenchLock>(&self, lock: &L) {
        let mut handle = lock.join(&Member::EQUAL);
        while self.asked.recv().is_ok() {
            let begun = Instant::now();
            for _ in 0..PAIRS {
                handle.lock();
                // SAFETY: the lock was taken through this handle just now.
                unsafe { handle.unlock() };
            }
            // Rounds are shorter than 584 years.
            let ns = begun.elapsed().as_nanos() as u64;
            if self.ns.send(ns).is_err() {
                break;
            }
        }
    }
}
