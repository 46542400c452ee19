//! What the protocols stand on: atomics, waiting, and how many slots there are.
//!
//! `tests/models.rs` puts others in their place and runs `latch`, `txn_status`, `epoch`
//! and `surplus` as they are under a model checker of weak memory.

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, PoisonError};

/// Whether a model checker runs the protocols. Assertions that read atomics are left
/// out there: every access multiplies what it has to explore.
pub(crate) const MODEL: bool = false;

/// Transactions that can be open at a time.
pub(crate) const SLOTS: usize = if cfg!(miri) { 16 } else { 1024 };

/// Waiting for another thread that is inside a non-preemptible region, and
/// therefore soon done unless the kernel took its CPU away. In that case waiting threads
/// must not stay runnable: under a scheduler with tiers a time-sensitive one would keep
/// the CPU from a background one, for which it waits, since offering a CPU offers it to
/// equals only. So they sleep at last.
///
/// Known weakness: who waits tells the scheduler of nobody, and a thread of the
/// background that was stopped inside a region is not raised.
pub(crate) struct Wait {
    spins: u32,
}

/// So often a waiter looks again before it offers its CPU to the kernel.
const SPINS: u32 = if cfg!(miri) { 0 } else { 128 };
/// So often it offers its CPU before it sleeps.
const YIELDS: u32 = 1000;
/// For how long it sleeps in one piece.
const NAP: std::time::Duration = std::time::Duration::from_micros(50);

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait { spins: 0 }
    }

    /// One step of waiting.
    #[cold]
    pub(crate) fn step(&mut self) {
        self.spins = self.spins.saturating_add(1);
        if self.spins < SPINS {
            std::hint::spin_loop();
        } else if self.spins < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
