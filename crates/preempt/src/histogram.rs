//! A histogram that one context writes and any thread reads at any time.
//!
//! Recording is a load and a store, without an atomic read-modify-write, because
//! there is one writer; readers see every count, if a little late. Nothing is
//! ever reset: a window is the difference of two readings.
//!
//! Buckets are those of HdrHistogram: 64 to a power of two, so a value is known
//! to 1.6 %, and a reading converts into the library's histogram.

use hdrhistogram::Histogram;

use crate::sync::{AtomicU64, Relaxed};

/// Buckets to a power of two.
const STEPS: u64 = 64;
/// The largest value that is told from larger ones: 36 minutes in ns.
const LARGEST: u64 = (1 << 41) - 1;
/// Number of buckets.
const BUCKETS: usize = index(LARGEST) + 1;

/// The bucket of a value. Below 128 every value has its own; above, the seven
/// highest bits decide.
const fn index(value: u64) -> usize {
    let shift = (value | STEPS).ilog2() - STEPS.ilog2();
    (shift as u64 * STEPS + (value >> shift)) as usize
}

/// The middle of a bucket.
const fn middle(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    ((index - shift * STEPS) << shift) + (1 << shift) / 2
}

/// Counts that one context adds to.
#[derive(Debug)]
pub(crate) struct Recording {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Recording {
    pub(crate) fn new() -> Recording {
        Recording {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Adds a value, ns. Only one context may call it.
    #[inline]
    pub(crate) fn record(&self, value: u64) {
        let add = |to: &AtomicU64, value| to.store(to.load(Relaxed).wrapping_add(value), Relaxed);
        add(&self.counts[index(value.min(LARGEST))], 1);
        add(&self.sum, value);
    }

    /// What has been recorded so far.
    pub(crate) fn read(&self) -> Reading {
        Reading {
            counts: self
                .counts
                .iter()
                .map(|count| count.load(Relaxed))
                .collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// Counts at some moment, or between two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Empty if nothing was recorded.
    counts: Vec<u64>,
    sum: u64,
}

impl Reading {
    /// Adds another recording's counts.
    pub(crate) fn add(&mut self, other: &Reading) {
        self.combine(other, u64::wrapping_add);
    }

    /// What was recorded since `earlier`, a reading of the same recording.
    pub(crate) fn since(mut self, earlier: &Reading) -> Reading {
        self.combine(earlier, u64::wrapping_sub);
        self
    }

    fn combine(&mut self, other: &Reading, with: impl Fn(u64, u64) -> u64) {
        self.counts.resize(BUCKETS, 0);
        for (mine, &theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = with(*mine, theirs);
        }
        self.sum = with(self.sum, other.sum);
    }

    /// How many values.
    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the values.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    /// The value that a share of all values does not exceed; `None` without
    /// values.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<u64> {
        let rank = ((self.len() as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        bucket.map(middle)
    }

    /// The same counts in the library's histogram, ns.
    pub(crate) fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, LARGEST, 3).expect("bounds are valid");
        for (bucket, &count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
        {
            histogram
                .record_n(middle(bucket), count)
                .expect("buckets end at the histogram's bound");
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_hold_their_middle() {
        let mut last = 0;
        for exponent in 1..41 {
            for value in [1 << exponent, (1 << exponent) + 1, (2 << exponent) - 1] {
                let bucket = index(value);
                assert!(bucket >= last && bucket < BUCKETS, "{value}");
                last = bucket;
                let error = middle(bucket).abs_diff(value) as f64 / value as f64;
                assert!(error <= 1.0 / 64.0, "{value}: {}", middle(bucket));
                assert_eq!(index(middle(bucket)), bucket);
            }
        }
        assert!((0..300).map(index).is_sorted());
        assert_eq!(index(LARGEST), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let recording = Recording::new();
        for value in 1..=1000 {
            recording.record(value * 1000);
        }
        let reading = recording.read();
        assert_eq!((reading.len(), reading.sum()), (1000, 500_500_000));
        for (quantile, expected) in [(0.5, 500e3), (0.99, 990e3), (1.0, 1000e3), (0.0, 1e3)] {
            let value = reading.quantile(quantile).unwrap() as f64;
            assert!((value / expected - 1.0).abs() < 0.02, "{quantile}: {value}");
            let theirs = reading.histogram().value_at_quantile(quantile) as f64;
            assert!(
                (theirs / expected - 1.0).abs() < 0.02,
                "{quantile}: {theirs}"
            );
        }
        assert_eq!(Reading::default().quantile(0.5), None);
    }

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let recording = Recording::new();
        recording.record(10);
        let before = recording.read();
        recording.record(1_000_000);
        recording.record(u64::MAX);
        let window = recording.read().since(&before);
        assert_eq!(window.len(), 2);
        assert!(window.quantile(0.5).unwrap() > 900_000);
        let mut both = window.clone();
        both.add(&before);
        assert_eq!(both.len(), 3);
    }
}
