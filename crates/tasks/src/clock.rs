//! Time as a parameter: the machine's, or one that a simulation sets.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Where the scheduler reads the time.
pub(crate) trait Clock: Send + Sync {
    /// Nanoseconds since some moment, never less than before.
    fn now_ns(&self) -> u64;
}

/// Time as it passes.
pub(crate) struct Monotonic(Instant);

impl Monotonic {
    pub(crate) fn new() -> Monotonic {
        Monotonic(Instant::now())
    }
}

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        // 584 years fit.
        self.0.elapsed().as_nanos() as u64
    }
}

/// Time that stands still until it is set.
#[derive(Debug, Default)]
pub(crate) struct VirtualClock(AtomicU64);

impl VirtualClock {
    pub(crate) fn set(&self, ns: u64) {
        self.0.store(ns, Relaxed);
    }

    pub(crate) fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
