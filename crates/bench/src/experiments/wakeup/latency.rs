//! How long something took, as rows have it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::harness::number::quantile;

const US_PER_NS: f64 = 1e-3;

/// How long something took, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// What 999 of 1000 keep.
    pub p999_us: f64,
    /// Pairs of microseconds and how many took that long (to 3 significant
    /// digits).
    pub histogram: Vec<(f64, u64)>,
}

impl Latency {
    /// Of pairs of microseconds and counts, in any order; none of nothing.
    pub(super) fn of_pairs(pairs: impl IntoIterator<Item = (f64, u64)>) -> Option<Self> {
        let mut histogram: Vec<(f64, u64)> = pairs.into_iter().collect();
        histogram.sort_by(|a, b| a.0.total_cmp(&b.0));
        // The same time may have been counted by several.
        histogram.dedup_by(|next, first| {
            let same = next.0 == first.0;
            first.1 += if same { next.1 } else { 0 };
            same
        });
        let us = |share| quantile(histogram.iter().copied(), share);
        Some(Latency {
            p50_us: us(0.5)?,
            p99_us: us(0.99)?,
            p999_us: us(0.999)?,
            histogram,
        })
    }

    pub(super) fn of(ns: &Histogram<u64>) -> Self {
        let us = |q: f64| ns.value_at_quantile(q) as f64 * US_PER_NS;
        let pair = |ns: u64, count: u64| (ns as f64 * US_PER_NS, count);
        Latency {
            p50_us: us(0.5),
            p99_us: us(0.99),
            p999_us: us(0.999),
            histogram: ns
                .iter_recorded()
                .map(|bucket| pair(bucket.value_iterated_to(), bucket.count_at_value()))
                .collect(),
        }
    }
}
