//! What a pool has done: counters that each worker writes alone and any thread may
//! read.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::order::Order;

/// Upper ends of the classes of task lengths, in t_max; the last is open.
pub const OVERRUN_CLASSES: [f64; 8] = [0.25, 0.5, 1.0, 1.25, 1.5, 2.0, 10.0, f64::INFINITY];

/// One worker's counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    decisions: AtomicU64,
    tasks: AtomicU64,
    morsels: AtomicU64,
    busy_ns: AtomicU64,
    longest_ns: AtomicU64,
    finalized: AtomicU64,
    slept: AtomicU64,
    lengths: [AtomicU64; OVERRUN_CLASSES.len()],
}

/// Adds to a counter that only this thread changes.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

impl Counters {
    pub(crate) fn decided(&self) {
        bump(&self.decisions, 1);
    }

    pub(crate) fn ran(&self, ns: u64, task_ns: u64, morsels: u64) {
        bump(&self.tasks, 1);
        bump(&self.morsels, morsels);
        bump(&self.busy_ns, ns);
        if ns > self.longest_ns.load(Relaxed) {
            self.longest_ns.store(ns, Relaxed);
        }
        let length = ns as f64 / task_ns as f64;
        let class = OVERRUN_CLASSES.iter().position(|&end| length <= end);
        bump(&self.lengths[class.expect("the last class is open")], 1);
    }

    pub(crate) fn finalized(&self) {
        bump(&self.finalized, 1);
    }

    pub(crate) fn slept(&self) {
        bump(&self.slept, 1);
    }

    pub(crate) fn read(&self) -> WorkerStats {
        WorkerStats {
            decisions: self.decisions.load(Relaxed),
            tasks: self.tasks.load(Relaxed),
            morsels: self.morsels.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            longest_ns: self.longest_ns.load(Relaxed),
            finalized: self.finalized.load(Relaxed),
            slept: self.slept.load(Relaxed),
            lengths: std::array::from_fn(|class| self.lengths[class].load(Relaxed)),
        }
    }
}

/// What one worker has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerStats {
    /// Slots chosen, also those that turned out to have nothing to do.
    pub decisions: u64,
    /// Tasks run.
    pub tasks: u64,
    /// Morsels and steps run.
    pub morsels: u64,
    /// Time in tasks, ns.
    pub busy_ns: u64,
    /// The longest task, ns.
    pub longest_ns: u64,
    /// Task sets finalized.
    pub finalized: u64,
    /// How often there was nothing to do.
    pub slept: u64,
    /// Tasks by their length: see [`OVERRUN_CLASSES`].
    pub lengths: [u64; OVERRUN_CLASSES.len()],
}

/// What a pool has done so far.
#[derive(Clone, Debug, Serialize)]
pub struct PoolStats {
    /// Worker by worker.
    pub workers: Vec<WorkerStats>,
    /// Queries that have a slot.
    pub running: usize,
    /// Queries that wait for one.
    pub waiting: usize,
    /// By what queries are ordered now, with policies that have parameters.
    pub order: Option<Order>,
    /// How often the parameters have been tuned.
    pub tunings: u64,
    /// Time in tasks that searched for them, ns.
    pub tuning_ns: u64,
}

impl PoolStats {
    /// Which part of all tasks took no longer than so many t_max, 0 to 1; exact
    /// for the ends of [`OVERRUN_CLASSES`]. 1 if there were none.
    pub fn within(&self, t_max: f64) -> f64 {
        let classes = OVERRUN_CLASSES.iter().filter(|&&end| end <= t_max).count();
        let count = |range: &[u64]| range.iter().sum::<u64>();
        let all: u64 = self.workers.iter().map(|worker| worker.tasks).sum();
        let within: u64 = (self.workers.iter())
            .map(|worker| count(&worker.lengths[..classes]))
            .sum();
        match all {
            0 => 1.0,
            _ => within as f64 / all as f64,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lengths_fall_into_classes() {
        let counters = Counters::default();
        for ns in [100, 1000, 1001, 2000, 50_000] {
            counters.ran(ns, 1000, 1);
        }
        let stats = PoolStats {
            workers: vec![counters.read()],
            running: 0,
            waiting: 0,
            order: None,
            tunings: 0,
            tuning_ns: 0,
        };
        assert_eq!(stats.workers[0].lengths, [1, 0, 1, 1, 0, 1, 0, 1]);
        assert_eq!(stats.workers[0].longest_ns, 50_000);
        assert_eq!(stats.within(1.0), 0.4);
        assert_eq!(stats.within(2.0), 0.8);
    }
}
