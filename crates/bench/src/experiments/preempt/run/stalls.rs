//! Stalls: times in which the machine did not run the scheduling thread.
//!
//! On a virtual machine the hypervisor takes a CPU away for milliseconds, and every
//! request under way then takes that much longer, whatever the policy: the tail of
//! every latency is the machine's. The scheduling thread spins, so it sees this
//! happen to its own CPU: the time between two of its looks at the clock is a
//! fraction of a µs, or a *stall*.
//!
//! ```text
//!   looks     | | | | | | |                  | | | | | | | |
//!                         └── longer than X ─┘ a stall
//!   requests    ├──── counted in both ──┤
//!                      ├──── in `all` alone ────┤
//! ```
//!
//! Latencies are therefore given twice: of all requests, and of *calm* ones,
//! between whose due time and end there was no stall.
//!
//! Known weaknesses. A stall of a worker's CPU alone is not seen, so calm latencies
//! still contain it. A long request is more likely to meet a stall, so calm latencies
//! favour slow methods: they show what a tail consists of, not which method is better.

use std::time::{Duration, Instant};

/// Looks at the clock, and keeps the gaps.
pub(crate) struct Watch {
    /// A longer gap is a stall.
    over: Duration,
    last: Instant,
    /// First and last instant of each, in order and disjoint.
    stalls: Vec<(Instant, Instant)>,
}

impl Watch {
    /// Starts at an instant; gaps longer than `over` are stalls.
    pub(crate) fn from(start: Instant, over: Duration) -> Self {
        Watch {
            over,
            last: start,
            stalls: Vec::new(),
        }
    }

    /// The time. A spinning thread calls this more often than stalls are long.
    pub(crate) fn now(&mut self) -> Instant {
        let now = Instant::now();
        self.see(now);
        now
    }

    /// Records a look at the clock.
    pub(crate) fn see(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last) > self.over {
            self.stalls.push((self.last, now));
        }
        self.last = now;
    }

    pub(crate) fn over(&self) -> Duration {
        self.over
    }

    /// Lengths of the stalls that began between two instants.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> impl Iterator<Item = Duration> {
        let within = self
            .stalls
            .iter()
            .filter(move |stall| (from..to).contains(&stall.0));
        within.map(|(begin, end)| *end - *begin)
    }

    /// Whether no part of a stall lies between two instants.
    pub(crate) fn is_calm(&self, from: Instant, to: Instant) -> bool {
        let first = self.stalls.partition_point(|(_, end)| *end <= from);
        self.stalls.get(first).is_none_or(|(begin, _)| *begin >= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_stalls_if_they_are_longer_than_that() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut watch = Watch::from(start, Duration::from_micros(100));
        for us in [100, 150, 400, 410, 1_000, 1_100] {
            watch.see(at(us));
        }
        let us = |from, to| Vec::from_iter(watch.between(at(from), at(to)).map(|d| d.as_micros()));
        assert_eq!(us(0, 2_000), [250, 590]);
        assert_eq!(us(151, 2_000), [590]);
        assert_eq!(us(0, 150), [0; 0]);
    }

    #[test]
    fn calm_is_what_no_stall_touches() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut watch = Watch::from(start, Duration::from_micros(100));
        // Stalls from 50 to 300 and from 350 to 600.
        for us in [50, 300, 350, 600] {
            watch.see(at(us));
        }
        let calm = |from, to| watch.is_calm(at(from), at(to));
        assert!(calm(0, 50) && calm(300, 350) && calm(600, 9_000));
        assert!(!calm(0, 51), "touches the first");
        assert!(!calm(299, 310), "begins in the first");
        assert!(!calm(100, 200), "lies in the first");
        assert!(!calm(310, 700), "has the second inside");
        assert!(!calm(0, 700));
    }
}
