//! What all workers of a pool go by, and what may change while it runs.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use crate::mutex::RegionMutex;
use crate::policy::Policy;
use crate::pool::tick::Alarm;
use crate::pool::unrun::Unrun;
use crate::starvation::{Since, Threshold};

/// Whether the pool is shutting down, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    No,
    /// All tasks run first.
    Drain,
    /// Tasks that have not started are returned.
    Return,
}

/// Settings that every worker reads.
pub(crate) struct Common {
    since: Since,
    spin: Duration,
    /// The bits of an `f64`.
    threshold: AtomicU64,
    /// 0: none.
    records: AtomicU32,
    /// 0: none.
    points: AtomicU32,
    interrupts: AtomicBool,
    stop: AtomicU32,
    policy: RegionMutex<Policy>,
    /// What the ticking thread sleeps on; `None` if the caller ticks.
    pub(crate) alarm: Option<Alarm>,
    /// What was returned by workers that stop.
    pub(crate) unrun: RegionMutex<Vec<Unrun>>,
}

impl Common {
    pub(crate) fn new(
        policy: Policy,
        threshold: Threshold,
        since: Since,
        spin: Duration,
        alarm: Option<Alarm>,
    ) -> Common {
        let common = Common {
            since,
            spin,
            threshold: AtomicU64::new(0),
            records: AtomicU32::new(0),
            points: AtomicU32::new(0),
            interrupts: AtomicBool::new(false),
            stop: AtomicU32::new(Stop::No as u32),
            policy: RegionMutex::new(policy),
            alarm,
            unrun: RegionMutex::new(Vec::new()),
        };
        common.set_threshold(threshold);
        common.set_policy(policy);
        common
    }

    pub(crate) fn since(&self) -> Since {
        self.since
    }

    pub(crate) fn spin(&self) -> Duration {
        self.spin
    }

    pub(crate) fn threshold(&self) -> Threshold {
        Threshold::clamped(f64::from_bits(self.threshold.load(Relaxed)))
    }

    pub(crate) fn set_threshold(&self, threshold: Threshold) {
        self.threshold.store(threshold.get().to_bits(), Relaxed);
    }

    pub(crate) fn policy(&self) -> Policy {
        *self.policy.lock()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        let mut current = self.policy.lock();
        *current = policy;
        let (records, points) = policy.intervals();
        self.records
            .store(records.map_or(0, NonZeroU32::get), Relaxed);
        self.points
            .store(points.map_or(0, NonZeroU32::get), Relaxed);
        self.interrupts.store(policy.delivery().is_some(), Relaxed);
    }

    pub(crate) fn intervals(&self) -> (Option<NonZeroU32>, Option<NonZeroU32>) {
        let read = |word: &AtomicU32| NonZeroU32::new(word.load(Relaxed));
        (read(&self.records), read(&self.points))
    }

    /// Whether pushing an urgent task is followed by a request.
    pub(crate) fn interrupts(&self) -> bool {
        self.interrupts.load(Relaxed) && self.threshold().allows_preemption()
    }

    pub(crate) fn stop(&self) -> Stop {
        match self.stop.load(Relaxed) {
            0 => Stop::No,
            1 => Stop::Drain,
            _ => Stop::Return,
        }
    }

    /// Says how to stop; who calls it wakes the workers. False if somebody has
    /// said so before.
    pub(crate) fn set_stop(&self, stop: Stop) -> bool {
        let set = self
            .stop
            .compare_exchange(Stop::No as u32, stop as u32, SeqCst, Relaxed);
        set.is_ok()
    }
}
