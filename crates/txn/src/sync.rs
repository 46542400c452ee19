//! What the protocols stand on: atomics and waiting, real or modelled.
//!
//! Built with `--cfg loom`, the crate consists of the protocols alone (`latch`,
//! `epoch`, `fate`), and runs them under a model checker of weak memory.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Waiting for another thread that is inside a non-preemptible region, and
/// therefore soon done unless the kernel took its CPU away.
pub(crate) struct Wait {
    #[cfg(not(loom))]
    spins: u32,
}

/// So often a waiter looks again before it offers its CPU to the kernel.
#[cfg(not(loom))]
const SPINS: u32 = 128;

impl Wait {
    pub(crate) fn new() -> Wait {
        Wait {
            #[cfg(not(loom))]
            spins: 0,
        }
    }

    /// One step of waiting.
    #[cold]
    pub(crate) fn step(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            self.spins += 1;
            if self.spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
