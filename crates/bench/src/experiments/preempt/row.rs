//! Rows of preemption results.

use giveway_preempt::{Latency as Delivered, PoolStats};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::experiment::PreemptExperiment;
use super::service::Service;

/// One row: a run, or one method's part of runs that take turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreemptRow {
    /// The experiment.
    pub experiment: PreemptExperiment,
    /// The policy, kind of thread, engine or operation.
    pub method: String,
    /// What is swept: workers, records, threshold, µs; none if nothing is.
    pub value: Option<f64>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of data and inputs.
    pub seed: u64,
    /// What was measured.
    pub measured: Measured,
}

/// What a row holds, by experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measured {
    /// The mix of urgent transactions and Q2.
    Mixed(Box<Mixed>),
    /// TPC-C with empty interrupts and without.
    Overhead(Overhead),
    /// TPC-C alone, on one core.
    Throughput(Throughput),
    /// One operation.
    Operation(Operation),
    /// A request on its way to a worker.
    Delivery(Delivery),
}

/// Where threads ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Placement {
    /// The CPU of each worker.
    pub worker_cpus: Vec<usize>,
    /// The CPU of the scheduling thread.
    pub scheduler_cpu: usize,
}

/// A run of the mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mixed {
    /// Length of the window in seconds, as it was.
    pub seconds: f64,
    /// Length of the run before it.
    pub warmup_s: f64,
    /// Where threads ran.
    pub placement: Placement,
    /// From one batch to the next, in µs.
    pub arrival_us: f64,
    /// Urgent requests of a batch.
    pub batch: usize,
    /// TPC-C warehouses.
    pub warehouses: u32,
    /// Scale of Q2's tables.
    pub q2_scale: f64,
    /// New-Order.
    pub new_order: Latency,
    /// Payment.
    pub payment: Latency,
    /// Q2.
    pub q2: Latency,
    /// Urgent requests due in the window.
    pub urgent: u64,
    /// Those of them that found no place in a queue before the next batch came.
    pub dropped: u64,
    /// How late the scheduling thread made batches; their latencies include it.
    pub late: Latency,
    /// Stalls of that thread, and latencies without them; none in rows from before
    /// stalls were recorded.
    #[serde(rename = "hiccups", skip_serializing_if = "Option::is_none", default)]
    pub stalls: Option<Stalls>,
    /// What was offered; none in rows of before it was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered: Option<Offered>,
    /// What the pool counted, over the whole run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<PoolStats>,
    /// The sched_ext scheduler in force, if one was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub scheduler: Option<String>,
}

impl Mixed {
    /// Urgent transactions a second.
    pub(crate) fn urgent_per_s(&self) -> f64 {
        self.new_order.per_s + self.payment.per_s
    }
}

/// What was asked of the workers, by what requests take alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Offered {
    /// What requests take alone.
    pub service: Service,
    /// The part of each worker's time that urgent requests take.
    pub load: f64,
    /// By how much the paper's times were stretched: interval, window, and bound
    /// of a stall.
    pub stretch: f64,
}

/// Stalls of the scheduling thread, and latencies without them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stalls {
    /// When the scheduling thread, which spins, did not look at the clock for
    /// longer than this, it was a stall; in µs.
    pub over_us: f64,
    /// Stalls in the window.
    #[serde(rename = "stalls")]
    pub count: u64,
    /// How long they were together, in ms.
    pub total_ms: f64,
    /// The longest, in µs.
    pub longest_us: f64,
    /// New-Order without those that a stall touched between due time and end.
    pub new_order: Latency,
    /// Payment without those.
    pub payment: Latency,
    /// Q2 without those.
    pub q2: Latency,
}

/// Latencies from when requests were due, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Requests due in the window that ended.
    pub count: u64,
    /// Requests that ended in the window, a second.
    pub per_s: f64,
    /// Their mean.
    pub mean_us: f64,
    /// Their geometric mean.
    pub geomean_us: f64,
    /// Their median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    /// Of a histogram in ns.
    pub(crate) fn of(histogram: &Histogram<u64>, per_s: f64) -> Self {
        if histogram.is_empty() {
            return Latency {
                per_s,
                ..Latency::default()
            };
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(histogram.value_at_quantile(quantile));
        let count = histogram.len();
        let logarithms = histogram.iter_recorded().map(|bucket| {
            let value = us(bucket.value_iterated_to()).max(1e-3);
            bucket.count_at_value() as f64 * value.ln()
        });
        let round = |value: f64| (value * 1e3).round() / 1e3;
        Latency {
            count,
            per_s,
            mean_us: round(histogram.mean() / 1e3),
            geomean_us: round((logarithms.sum::<f64>() / count as f64).exp()),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max()),
        }
    }

    /// The percentiles that are compared.
    pub(crate) fn percentiles(&self) -> [(&'static str, f64); 4] {
        [
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p999_us),
        ]
    }
}

/// TPC-C with and without interrupts, in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overhead {
    /// Where threads ran.
    pub placement: Placement,
    /// Interrupts a second.
    pub per_s: f64,
    /// Length of one slice in seconds.
    pub slice_s: f64,
    /// Transactions a second in the slices without, then with interrupts: pairs
    /// that were measured next to each other.
    pub pairs: Vec<(f64, f64)>,
    /// Interrupts that were taken.
    pub taken: u64,
}

impl Overhead {
    /// Part of the throughput that interrupts cost, of each pair; below zero
    /// where the slice with interrupts happened to be the faster one.
    pub(crate) fn losses(&self) -> impl Iterator<Item = f64> {
        let losses = self
            .pairs
            .iter()
            .map(|(without, with)| 1.0 - with / without);
        losses.filter(|loss| loss.is_finite())
    }
}

/// TPC-C on an engine, one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throughput {
    /// Which transactions: `standard`, or `interactive` (New-Order and Payment).
    pub mix: String,
    /// The engine's isolation.
    pub isolation: String,
    /// What its commits survive.
    pub durability: String,
    /// TPC-C warehouses.
    pub warehouses: u32,
    /// The CPU it ran on.
    pub cpu: usize,
    /// Length of a turn in seconds.
    pub slice_s: f64,
    /// Transactions a second in each turn.
    pub per_s: Vec<f64>,
    /// Attempts that were repeated.
    pub retries: u64,
}

/// An operation of the mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// ns of one, in each round.
    pub ns: Vec<f64>,
}

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// From the request to the first instruction of the urgent context.
    pub latency: Delivered,
}

/// A histogram for latencies in ns: 3 digits, up to 10 minutes.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds and digits are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_numbers() {
        let mut histogram = latencies();
        for us in 1..=1_000_u64 {
            histogram.record(us * 1_000).unwrap();
        }
        let latency = Latency::of(&histogram, 7.0);
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 2e-3;
        assert_eq!((latency.count, latency.per_s), (1_000, 7.0));
        assert!(near(latency.p50_us, 500.0) && near(latency.p90_us, 900.0));
        assert!(near(latency.p99_us, 990.0) && near(latency.p999_us, 999.0));
        assert!(near(latency.mean_us, 500.5) && near(latency.max_us, 1_000.0));
        // (1000!)^(1/1000)
        assert!(near(latency.geomean_us, 369.49), "{latency:?}");
        assert_eq!(Latency::of(&latencies(), 0.0), Latency::default());
    }

    #[test]
    fn a_loss_is_that_of_a_pair() {
        let overhead = Overhead {
            placement: Placement::default(),
            per_s: 1e3,
            slice_s: 1.0,
            pairs: vec![(100.0, 75.0), (0.0, 0.0), (100.0, 150.0)],
            taken: 0,
        };
        assert_eq!(Vec::from_iter(overhead.losses()), [0.25, -0.5]);
    }
}
