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
/// therefore soon done unless the kernel took its CPU away.
pub(crate) struct Wait {
    spins: u32,
}

/// So often a waiter looks again before it offers its CPU to the kernel.
const SPINS: u32 = if cfg!(miri) { 0 } else { 128 };

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait { spins: 0 }
    }

    /// One step of waiting.
    #[cold]
    pub(crate) fn step(&mut self) {
        self.spins += 1;
        if self.spins < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}
