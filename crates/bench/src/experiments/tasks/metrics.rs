//! Numbers of many queries as one: pure functions, each with known values below.
//!
//! The *slowdown* of a query is its latency over what it takes alone; 1 is as good as
//! an empty machine, and the mean over queries is what the paper's tuner minimizes
//! (Section 4). All functions say `None` of nothing.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The arithmetic mean.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
}

/// The geometric mean of numbers above 0.
pub(crate) fn geomean(values: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    mean(&logs).map(f64::exp)
}

/// The least value that so large a part (0 to 1) of all does not exceed.
pub(crate) fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // A float below zero becomes zero.
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1).min(sorted.len().checked_sub(1)?))
        .copied()
}

/// Jain's index: 1 if all have the same, 1 / n if one has all.
pub(crate) fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// Slowdowns in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Slowdowns {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) geomean: f64,
    pub(crate) p95: f64,
    pub(crate) max: f64,
    /// Of the speeds that queries had, 1 / slowdown.
    pub(crate) jain: f64,
}

impl Slowdowns {
    pub(crate) fn of(slowdowns: &[f64]) -> Option<Slowdowns> {
        let speeds: Vec<f64> = slowdowns.iter().map(|slowdown| 1.0 / slowdown).collect();
        Some(Slowdowns {
            count: slowdowns.len(),
            mean: mean(slowdowns)?,
            geomean: geomean(slowdowns)?,
            p95: percentile(slowdowns, 0.95)?,
            max: percentile(slowdowns, 1.0)?,
            jain: jain(&speeds)?,
        })
    }
}

/// A mean over traces, and bounds of where it would lie over others of the kind. Of few
/// traces the bounds are no more than their range: that is no confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How often traces are drawn anew.
const DRAWS: usize = 2_000;

impl Estimate {
    /// By the bootstrap: traces are drawn with replacement, and the middle 95 % of the
    /// means are kept. Of one trace nothing is known but itself. The draws are the same
    /// every time, so that a report of the same rows is the same report.
    pub(crate) fn of(per_trace: &[f64]) -> Option<Estimate> {
        let whole = mean(per_trace)?;
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let count = per_trace.len();
        let means: Vec<f64> = (0..DRAWS)
            .map(|_| {
                let drawn = (0..count).map(|_| per_trace[random.random_range(0..count)]);
                drawn.sum::<f64>() / count as f64
            })
            .collect();
        Some(Estimate {
            mean: whole,
            low: percentile(&means, 0.025)?,
            high: percentile(&means, 0.975)?,
        })
    }

    /// How many times the first is of the second, trace by trace: pairs share all that
    /// their trace does to both. The mean is geometric.
    pub(crate) fn of_ratios(pairs: &[(f64, f64)]) -> Option<Estimate> {
        let logs: Vec<f64> = (pairs.iter())
            .map(|(one, other)| (one / other).ln())
            .collect();
        let Estimate { mean, low, high } = Estimate::of(&logs)?;
        Some(Estimate {
            mean: mean.exp(),
            low: low.exp(),
            high: high.exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: Option<f64>, other: f64) -> bool {
        one.is_some_and(|one| (one - other).abs() < 1e-9)
    }

    #[test]
    fn means_are_those_of_the_textbook() {
        assert!(near(mean(&[1.0, 2.0, 6.0]), 3.0));
        assert!(near(geomean(&[1.0, 10.0, 100.0]), 10.0));
        assert_eq!((mean(&[]), geomean(&[])), (None, None));
    }

    #[test]
    fn percentiles_are_values_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!(near(percentile(&hundred, 0.95), 95.0));
        assert!(near(percentile(&hundred, 1.0), 100.0));
        assert!(near(percentile(&[3.0, 1.0, 2.0], 0.5), 2.0));
        assert!(near(percentile(&[7.0], 0.01), 7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn jain_is_one_for_equals_and_a_part_of_it_for_one_alone() {
        assert!(near(jain(&[3.0, 3.0, 3.0]), 1.0));
        assert!(near(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25));
        // (1 + 2 + 3)² / (3 · 14)
        assert!(near(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0));
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn slowdowns_have_the_jain_index_of_speeds() {
        let two = Slowdowns::of(&[1.0, 2.0]).unwrap();
        assert_eq!((two.count, two.mean, two.max), (2, 1.5, 2.0));
        assert!(near(Some(two.geomean), 2_f64.sqrt()));
        // Speeds of 1 and 0.5: (1.5)² / (2 · 1.25).
        assert!(near(Some(two.jain), 0.9));
    }

    #[test]
    fn an_estimate_holds_its_mean_and_narrows_with_traces() {
        let few = Estimate::of(&[1.0, 2.0, 3.0]).unwrap();
        let many: Vec<f64> = (0..30).map(|n| f64::from(n % 3) + 1.0).collect();
        let many = Estimate::of(&many).unwrap();
        for estimate in [few, many] {
            assert!(near(Some(estimate.mean), 2.0), "{estimate:?}");
            assert!(estimate.low < 2.0 && 2.0 < estimate.high, "{estimate:?}");
        }
        assert!(many.high - many.low < 0.7 * (few.high - few.low));
        let one = Estimate::of(&[4.0]).unwrap();
        assert_eq!((one.low, one.high), (4.0, 4.0));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_trace_by_trace() {
        // Traces differ by a factor of 100, and the ratio does not.
        let pairs = [(2.0, 1.0), (200.0, 100.0), (20.0, 10.0)];
        let ratio = Estimate::of_ratios(&pairs).unwrap();
        assert!(near(Some(ratio.mean), 2.0));
        assert!(ratio.high - ratio.low < 1e-9);
    }
}
