//! The row of a cell of a database workload: what it was, and what came of it.

use giveway_tier::{Tier, Weight};
use serde::{Deserialize, Serialize};

use crate::cell::class::{Class, Work};
use crate::cell::config::{CellConfig, Mix};
use crate::cell::setup::{Build, By, Disk, Hints};
use crate::cell::switches::CpuTime;
use crate::cell::ufs::UfsCounts;
use crate::cell::{Done, Measured};
use crate::harness::scheduler::Scheduler;
use crate::harness::words::is_default;
use crate::workload::background::Job;
use crate::workload::tpcc::terminal::{Counts, Tally};

const MS_PER_NS: f64 = 1e-6;

/// One measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The mix.
    pub mix: Mix,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of the terminals' inputs.
    pub seed: u64,
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Length of the warm-up in seconds.
    pub warmup_s: f64,
    /// CPUs of the server.
    pub cpus: u32,
    /// CPUs of the clients.
    pub client_cpus: u32,
    /// TPC-C terminals.
    pub terminals: u32,
    /// Who said what is urgent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: By,
    /// Which server ran.
    #[serde(default, skip_serializing_if = "is_default")]
    pub server: Build,
    /// What the scheduler was told of locks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hints: Hints,
    /// Whether UFS only counted whom it would have boosted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counted_only: bool,
    /// Where the server's files were.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disk: Disk,
    /// Microseconds that this disk took for a request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_us: u32,
    /// Whether background sessions gave way at it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub io_priority: bool,
    /// What ran in the background.
    #[serde(default, skip_serializing_if = "is_default")]
    pub job: Job,
    /// Its workers.
    pub background_workers: u32,
    /// [`CellConfig::network_us`]; older results have none.
    #[serde(default)]
    pub network_us: u32,
    /// Name and version of the sched_ext scheduler, as the kernel has it.
    pub scheduler_version: Option<String>,
    /// Whether the server's shared memory was in huge pages; rows that differ
    /// in this are not comparable.
    pub huge_pages: bool,
    /// TPC-C transactions per second.
    pub ts_tps: Option<f64>,
    /// Mean latency of a transaction in milliseconds.
    pub ts_mean_ms: Option<f64>,
    /// Median latency.
    pub ts_p50_ms: Option<f64>,
    /// 95th percentile.
    pub ts_p95_ms: Option<f64>,
    /// 99th percentile.
    pub ts_p99_ms: Option<f64>,
    /// Rounds of the background's job per second: Q17 queries, or others.
    pub bg_per_s: Option<f64>,
    /// MB a second that were read from the disk, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_mb_per_s: Option<f64>,
    /// CPU time of the server's processes, as a share of what its CPUs had.
    pub busy_fraction: f64,
    /// The part of it that went to the background's backends.
    pub bg_busy_fraction: f64,
    /// Each class for itself, where several do the same work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// How busy each CPU of the server was, sampled by the kernel's ticks.
    pub busy_fraction_per_cpu: Vec<f64>,
    /// What each CPU of the server ran, where context switches were traced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<CpuTime>,
    /// CPU time of the clients, as a share of what theirs had: near 1, they were
    /// the bottleneck, and the row says little about the server.
    pub client_busy_fraction: f64,
    /// What UFS counted inside the window, where roles say what is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ufs: Option<UfsCounts>,
    /// Transactions by type, and retries.
    pub transactions: Option<Counts>,
    /// Latencies: pairs of milliseconds and how many transactions took that
    /// long (to 3 significant digits).
    pub latency_histogram: Vec<(f64, u64)>,
}

/// What one class of a cell did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassRow {
    /// The work.
    pub work: Work,
    /// Its tier.
    pub tier: Tier,
    /// Its weight.
    pub weight: Weight,
    /// Its connections.
    pub clients: u32,
    /// Transactions, or rounds of the job, per second.
    pub per_s: f64,
    /// CPU time of its processes, as a share of what the server's CPUs had.
    pub busy_fraction: f64,
}

/// What came of a cell: class by class, and as a whole.
pub(crate) struct Did<'a> {
    pub(crate) classes: &'a [Class],
    pub(crate) done: &'a [Option<Done>],
    pub(crate) measured: Measured,
    pub(crate) placement: Vec<CpuTime>,
}

impl Did<'_> {
    /// What the terminals of all classes recorded, if there were any.
    fn tally(&self) -> Option<Tally> {
        let mut sum = None;
        for done in self.done.iter().flatten() {
            if let Done::Transactions(tally) = done {
                sum.get_or_insert_with(Tally::default).add(tally);
            }
        }
        sum
    }

    /// Rounds of the background, of all classes, if there was any.
    fn rounds(&self) -> Option<f64> {
        let rounds = self.done.iter().flatten().filter_map(|done| match done {
            Done::Rounds(rounds) => Some(*rounds),
            Done::Transactions(_) => None,
        });
        rounds.reduce(|sum, rounds| sum + rounds)
    }

    /// CPU time of classes, as a share of what the server's CPUs had.
    fn busy(&self, of: impl Fn(&Class) -> bool) -> f64 {
        let shares = self.classes.iter().zip(&self.measured.busy.classes);
        let shares = shares.filter(|(class, _)| of(class));
        shares.fold(0.0, |sum, (_, share)| sum + share)
    }

    /// The classes one by one; none where the row says it all.
    fn rows(&self, seconds: f64) -> Vec<ClassRow> {
        let works: Vec<Work> = self.classes.iter().map(|class| class.work).collect();
        if !works
            .iter()
            .enumerate()
            .any(|(at, work)| works[..at].contains(work))
        {
            return Vec::new();
        }
        let busy = &self.measured.busy.classes;
        let all = self.classes.iter().zip(self.done).zip(busy);
        all.map(|((class, done), busy)| ClassRow {
            work: class.work,
            tier: class.tier,
            weight: class.weight,
            clients: class.clients,
            per_s: match done {
                None => 0.0,
                Some(Done::Transactions(tally)) => tally.counts.total() as f64 / seconds,
                Some(Done::Rounds(rounds)) => rounds / seconds,
            },
            busy_fraction: *busy,
        })
        .collect()
    }
}

impl Row {
    /// How many transactions have a latency.
    pub(crate) fn latencies(&self) -> f64 {
        let counts = self
            .latency_histogram
            .iter()
            .map(|(_, count)| *count as f64);
        counts.sum()
    }

    /// The row of a cell that was measured.
    pub(crate) fn new(
        config: &CellConfig,
        scheduler_version: Option<String>,
        huge_pages: bool,
        did: Did<'_>,
    ) -> Self {
        let tally = did.tally();
        let tally = tally.as_ref();
        // A window without a single transaction has a throughput and no latency.
        let latency = tally
            .map(|tally| &tally.latency_ns)
            .filter(|latency| !latency.is_empty());
        let quantile =
            |q: f64| latency.map(|latency| latency.value_at_quantile(q) as f64 * MS_PER_NS);
        Row {
            scheduler: config.scheduler.clone(),
            mix: config.mix,
            repeat: config.repeat,
            seed: config.seed,
            seconds: config.seconds,
            warmup_s: config.warmup_s,
            cpus: config.cpus,
            client_cpus: config.client_cpus,
            terminals: config.terminal_count(),
            by: config.by,
            server: config.server,
            hints: config.hints,
            counted_only: !config.boost,
            disk: config.disk,
            request_us: config.request_us,
            io_priority: config.io_priority,
            job: config.job,
            background_workers: config.background_count(),
            network_us: config.network_us,
            scheduler_version,
            huge_pages,
            ts_tps: tally.map(|tally| tally.counts.total() as f64 / config.seconds),
            ts_mean_ms: latency.map(|latency| latency.mean() * MS_PER_NS),
            ts_p50_ms: quantile(0.50),
            ts_p95_ms: quantile(0.95),
            ts_p99_ms: quantile(0.99),
            bg_per_s: did.rounds().map(|rounds| rounds / config.seconds),
            disk_read_mb_per_s: did.measured.disk_read_mb_per_s,
            busy_fraction: did.busy(|_| true),
            bg_busy_fraction: did.busy(|class| !class.work.is_tpcc()),
            classes: did.rows(config.seconds),
            busy_fraction_per_cpu: did.measured.busy.per_cpu,
            placement: did.placement,
            client_busy_fraction: did.measured.busy.clients,
            ufs: did.measured.ufs,
            transactions: tally.map(|tally| tally.counts),
            latency_histogram: tally.map(pairs).unwrap_or_default(),
        }
    }
}

/// A histogram as pairs, empty buckets left out.
fn pairs(tally: &Tally) -> Vec<(f64, u64)> {
    tally
        .latency_ns
        .iter_recorded()
        .map(|bucket| {
            let us = (bucket.value_iterated_to() as f64 / 1_000.0).round();
            (us / 1_000.0, bucket.count_at_value())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_sum_of_its_classes_and_tells_them_apart_where_it_must() {
        let config = |mix| CellConfig {
            mix,
            ..CellConfig::default()
        };
        let tally = |new_order| {
            let mut tally = Tally::default();
            tally.counts.new_order = new_order;
            Some(Done::Transactions(tally))
        };
        let row = |config: &CellConfig, done: &[Option<Done>], busy: &[f64]| {
            let mut measured = Measured::default();
            measured.busy.classes = busy.to_vec();
            let did = Did {
                classes: &config.classes(),
                done,
                measured,
                placement: Vec::new(),
            };
            Row::new(config, None, true, did)
        };
        let done = [
            tally(12),
            tally(8),
            Some(Done::Rounds(6.0)),
            Some(Done::Rounds(4.0)),
        ];
        let all = row(&config(Mix::TwoThree), &done, &[0.25, 0.125, 0.0625, 0.5]);
        assert_eq!((all.ts_tps, all.bg_per_s), (Some(5.0), Some(2.5)));
        assert_eq!((all.busy_fraction, all.bg_busy_fraction), (0.9375, 0.5625));
        let each: Vec<f64> = all.classes.iter().map(|class| class.per_s).collect();
        assert_eq!(each, [3.0, 2.0, 1.5, 1.0]);
        let solo = row(&config(Mix::Solo), &[tally(4), None], &[0.5, 0.0]);
        assert_eq!((solo.ts_tps, solo.bg_per_s), (Some(1.0), None));
        assert!(solo.classes.is_empty());
    }
}
