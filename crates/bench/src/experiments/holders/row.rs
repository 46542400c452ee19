//! One cell as it is stored.

use serde::{Deserialize, Serialize};

use super::pgbench::Span;
use super::{Arm, HoldersPlan, Script};
use crate::harness::number::{is_of_few_samples, quantile};
use crate::harness::scheduler::Scheduler;

/// One arm and script, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HoldersRow {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// Name and version of the sched_ext scheduler, as the kernel has it.
    pub scheduler_version: Option<String>,
    /// UFS's extension in microseconds; null under other schedulers.
    pub extension_us: Option<u32>,
    /// What pgbench ran.
    pub script: Script,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of pgbench and of the machine.
    pub seed: u64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Seconds from pgbench's start to the window.
    pub warmup_s: f64,
    /// CPUs that server and pgbench shared.
    pub cpus: u32,
    /// Clients of pgbench.
    pub clients: u32,
    /// pgbench's scale.
    pub scale: u32,
    /// The server's buffers.
    pub shared_buffers_mib: u32,
    /// Transactions that ended inside the window.
    pub transactions: u64,
    /// Transactions per second.
    pub tps: f64,
    /// Mean latency of a transaction in milliseconds.
    pub mean_ms: f64,
    /// Standard deviation of the latency.
    pub stddev_ms: f64,
    /// 95th percentile; null with fewer than 100 transactions beyond it.
    pub p95_ms: Option<f64>,
    /// 99th percentile, likewise.
    pub p99_ms: Option<f64>,
    /// Time-sensitive tasks preempted with a lock in hand, per second; null under other
    /// schedulers than UFS.
    pub holders_preempted_per_s: Option<f64>,
    /// Extensions granted per second, likewise.
    pub extensions_per_s: Option<f64>,
    /// CPU time of server and pgbench, as a share of what their CPUs had.
    pub busy_fraction: f64,
}

/// UFS's statistics, of which those of hints are read.
#[derive(Debug, Deserialize)]
pub(super) struct Statistics {
    pub(super) hints: Counts,
}

/// What UFS counts, by its names.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Counts {
    pub(super) ts_holders_preempted: u64,
    pub(super) extended: u64,
}

/// What happened inside a window.
pub(super) struct Seen {
    pub(super) span: Span,
    pub(super) busy_fraction: f64,
    /// What UFS counted, and in how many seconds.
    pub(super) ufs: Option<(Counts, f64)>,
}

impl HoldersRow {
    /// The row of a cell; latencies are in microseconds and in order, and there are some.
    pub(super) fn new(
        plan: &HoldersPlan,
        script: Script,
        scheduler_version: Option<String>,
        seen: &Seen,
        latencies_us: &[u64],
    ) -> Self {
        let ms = |us: u64| us as f64 * 1e-3;
        let count = latencies_us.len() as f64;
        let mean = |of: &dyn Fn(f64) -> f64| {
            let sum: f64 = latencies_us.iter().map(|us| of(ms(*us))).sum();
            sum / count
        };
        let mean_ms = mean(&|ms| ms);
        let percentile = |share: f64| {
            let pairs = latencies_us.iter().map(|us| (ms(*us), 1));
            let is_known = !is_of_few_samples(count, share);
            is_known.then(|| quantile(pairs, share)).flatten()
        };
        let per_s = |of: fn(&Counts) -> u64| {
            let (counts, seconds) = seen.ufs.as_ref()?;
            Some(of(counts) as f64 / seconds)
        };
        HoldersRow {
            scheduler: plan.arm.scheduler.clone(),
            scheduler_version,
            extension_us: plan.arm.extension_us,
            script,
            repeat: plan.repeat,
            seed: plan.seed,
            seconds: plan.seconds,
            warmup_s: plan.warmup_s,
            cpus: plan.cpus,
            clients: plan.clients(),
            scale: plan.scale,
            shared_buffers_mib: plan.shared_buffers_mib,
            transactions: latencies_us.len() as u64,
            tps: count / seen.span.seconds(),
            mean_ms,
            stddev_ms: mean(&|ms| (ms - mean_ms).powi(2)).sqrt(),
            p95_ms: percentile(0.95),
            p99_ms: percentile(0.99),
            holders_preempted_per_s: per_s(|counts| counts.ts_holders_preempted),
            extensions_per_s: per_s(|counts| counts.extended),
            busy_fraction: seen.busy_fraction,
        }
    }

    /// Under what it was measured.
    pub(super) fn arm(&self) -> Arm {
        Arm {
            scheduler: self.scheduler.clone(),
            extension_us: self.extension_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::plan;
    use super::*;

    fn row(latencies_us: &[u64], ufs: Option<(Counts, f64)>) -> HoldersRow {
        let seen = Seen {
            span: Span {
                start_us: 1_000_000,
                end_us: 3_000_000,
            },
            busy_fraction: 0.5,
            ufs,
        };
        HoldersRow::new(&plan(), Script::SelectOnly, None, &seen, latencies_us)
    }

    #[test]
    fn a_row_has_rates_of_the_window_and_of_what_ufs_counted_between_its_readings() {
        let counts = Counts {
            ts_holders_preempted: 10,
            extended: 30,
        };
        let ufs = row(&[1_000, 3_000], Some((counts, 2.5)));
        assert_eq!((ufs.transactions, ufs.tps), (2, 1.0));
        assert_eq!((ufs.mean_ms, ufs.stddev_ms), (2.0, 1.0));
        assert_eq!(ufs.holders_preempted_per_s, Some(4.0));
        assert_eq!(ufs.extensions_per_s, Some(12.0));
        assert_eq!(row(&[1_000], None).extensions_per_s, None);
    }

    #[test]
    fn a_percentile_has_a_hundred_transactions_beyond_it_or_is_left_out() {
        let row = |count: u64| row(&Vec::from_iter((1..=count).map(|ms| ms * 1_000)), None);
        assert_eq!(row(1_999).p95_ms, None);
        let enough = row(2_000);
        assert_eq!((enough.p95_ms, enough.p99_ms), (Some(1_900.0), None));
        assert_eq!(row(10_000).p99_ms, Some(9_900.0));
    }
}
