//! One measurement as it is stored.

use serde::{Deserialize, Serialize};

use super::WakeupPlan;
use super::latency::Latency;
use super::run::Recorded;
use super::schbench::Schbench;
use super::tools::{Cyclictest, Hackbench};
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;

/// One scheduler, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WakeupRow {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Name and version of the sched_ext scheduler, as the kernel has it.
    pub scheduler_version: Option<String>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the machine.
    pub seed: u64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Length of the warm-up in seconds.
    pub warmup_s: f64,
    /// CPUs that everything ran on.
    pub cpus: u32,
    /// Message threads.
    pub message_threads: u32,
    /// Worker threads of each of them.
    pub worker_threads: u32,
    /// What a worker's matrices take, in KiB.
    pub footprint_kib: u32,
    /// Products of matrices in a request.
    pub operations: u32,
    /// Requests that ended in the window, per second.
    pub requests_per_s: f64,
    /// From being woken by the message thread to running.
    pub wakeup: Latency,
    /// From running to the end of the work: the network's sleep and its wake-up,
    /// the lock of the CPU, the work.
    pub request: Latency,
    /// What hackbench found afterwards, if it was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hackbench: Option<Hackbench>,
    /// What cyclictest found beside it, if it was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cyclictest: Option<Cyclictest>,
    /// What schbench itself found, if it was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schbench: Option<Schbench>,
}

impl WakeupRow {
    /// The row of a plan that was measured.
    pub(super) fn new(
        plan: &WakeupPlan,
        scheduler_version: Option<String>,
        recorded: &Recorded,
    ) -> Result<Self> {
        if recorded.requests.is_empty() || recorded.wakeups.is_empty() {
            return Err(Error::Config(format!(
                "no request ended within {} s: lengthen --seconds, or lower --operations",
                plan.seconds
            )));
        }
        Ok(WakeupRow {
            scheduler: plan.scheduler.clone(),
            scheduler_version,
            repeat: plan.repeat,
            seed: plan.seed,
            seconds: plan.seconds,
            warmup_s: plan.warmup_s,
            cpus: plan.cpus,
            message_threads: plan.message_threads,
            worker_threads: plan.workers(),
            footprint_kib: plan.footprint_kib,
            operations: plan.operations,
            requests_per_s: recorded.requests.len() as f64 / plan.seconds,
            wakeup: Latency::of(&recorded.wakeups),
            request: Latency::of(&recorded.requests),
            hackbench: None,
            cyclictest: None,
            schbench: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_microseconds_and_requests_a_second() {
        let plan = WakeupPlan {
            seconds: 4.0,
            ..WakeupPlan::default()
        };
        let mut recorded = Recorded::default();
        for _ in 0..1_999 {
            recorded.wakeups.record(20_000).unwrap();
            recorded.requests.record(5_000_000).unwrap();
        }
        recorded.wakeups.record(4_000_000).unwrap();
        recorded.requests.record(9_000_000).unwrap();
        let row = WakeupRow::new(&plan, None, &recorded).unwrap();
        assert_eq!(row.requests_per_s, 500.0);
        let close = |left: f64, right: f64| (left / right - 1.0).abs() < 2e-3;
        assert!(close(row.wakeup.p999_us, 20.0), "{:?}", row.wakeup);
        assert!(close(row.request.p50_us, 5_000.0), "{:?}", row.request);
        let [usual, worst] = row.wakeup.histogram.as_slice() else {
            panic!("{:?}", row.wakeup.histogram);
        };
        assert!(close(worst.0, 4_000.0), "{worst:?}");
        assert_eq!((usual.1, worst.1), (1_999, 1));
    }

    #[test]
    fn pairs_are_put_in_order_and_the_same_time_is_counted_once() {
        let latency = Latency::of_pairs([(7.0, 1), (2.0, 40), (7.0, 2), (1.0, 57)]).unwrap();
        assert_eq!(latency.histogram, [(1.0, 57), (2.0, 40), (7.0, 3)]);
        assert_eq!((latency.p50_us, latency.p99_us), (1.0, 7.0));
        assert_eq!(Latency::of_pairs([]), None);
    }

    #[test]
    fn a_window_in_which_nothing_ended_is_refused_with_the_remedy() {
        let error = WakeupRow::new(&WakeupPlan::default(), None, &Recorded::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--operations"), "{error}");
    }
}
