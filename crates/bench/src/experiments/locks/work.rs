//! Critical sections of a known length in instructions.
//!
//! A critical section updates memory that the lock protects, in a chain of
//! dependent steps: its length is a number of steps, not a time, so a faster
//! lock cannot shorten it and a slower clock cannot stretch it. Steps are
//! calibrated once per process; rows carry the result.
//!
//! The protected memory also proves exclusion: [`Ledger::turn`] counts turns by
//! a load before the work and a store after it. Two threads inside at once lose
//! a count, and the run is refused.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;

/// Words of protected memory: 4 KiB, which stays in the nearest cache.
const WORDS: usize = 512;
/// Words from one step to the next: a cache line.
const STRIDE: usize = 8;

/// Memory that a lock protects.
#[derive(Debug)]
pub(crate) struct Ledger {
    words: CachePadded<UnsafeCell<[u64; WORDS]>>,
    /// On a line of its own: waiters read it.
    turns: CachePadded<AtomicU64>,
}

// SAFETY: `words` is touched by `turn` only, whose caller holds the lock.
unsafe impl Sync for Ledger {}

impl Ledger {
    pub(crate) fn new() -> Self {
        Ledger {
            words: CachePadded::new(UnsafeCell::new([1; WORDS])),
            turns: CachePadded::default(),
        }
    }

    /// Turns taken so far; may be read by anybody.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// A critical section of so many steps; returns how many turns there were
    /// before. The count is read at its begin and written at its end, so that
    /// turns that overlap are counted once.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(crate) unsafe fn turn(&self, steps: u32) -> u64 {
        let before = self.turns.load(Ordering::Relaxed);
        // SAFETY: nobody else touches the words while the caller holds the
        // lock.
        walk(unsafe { &mut *self.words.get() }, steps);
        self.turns.store(before + 1, Ordering::Relaxed);
        before
    }
}

/// Work outside the lock, on memory of the thread's own.
#[derive(Debug)]
pub(crate) struct Desk(Box<[u64; WORDS]>);

impl Desk {
    pub(crate) fn new() -> Self {
        Desk(Box::new([1; WORDS]))
    }

    pub(crate) fn work(&mut self, steps: u32) {
        walk(&mut self.0, steps);
    }
}

/// Every step reads a word, mixes it into the one before, and writes it back.
#[inline(never)]
fn walk(words: &mut [u64; WORDS], steps: u32) {
    let mut value = 1;
    let mut index = 0;
    for _ in 0..steps {
        value = (words[index] ^ value)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
        words[index] = value;
        index = (index + STRIDE) % WORDS;
    }
    black_box(value);
}

/// How long a step takes on this machine, in ns: the shortest of many tries,
/// since everything that disturbs one makes it longer.
pub(crate) fn step_ns() -> f64 {
    static STEP_NS: OnceLock<f64> = OnceLock::new();
    *STEP_NS.get_or_init(|| {
        const STEPS: u32 = 20_000;
        let mut desk = Desk::new();
        let mut try_ns = || {
            let begun = Instant::now();
            desk.work(STEPS);
            begun.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        (0..50).map(|_| try_ns()).fold(f64::INFINITY, f64::min)
    })
}

/// Steps that take `ns` nanoseconds.
pub(crate) fn steps_for(ns: f64) -> u32 {
    // A float becomes the nearest integer it can.
    (ns / step_ns()).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_changes_another_word() {
        let changed = |steps| {
            let mut desk = Desk::new();
            desk.work(steps);
            desk.0.iter().filter(|word| **word != 1).count()
        };
        assert_eq!([0, 1, 50].map(changed), [0, 1, 50]);
        // Then it comes round.
        assert_eq!(changed(WORDS as u32), WORDS / STRIDE);
    }

    #[test]
    fn a_length_becomes_steps() {
        let ns = step_ns();
        assert!((0.3..100.0).contains(&ns), "{ns} ns a step");
        assert_eq!(steps_for(0.0), 0);
        assert_eq!(steps_for(ns * 1000.0), 1000);
    }
}
