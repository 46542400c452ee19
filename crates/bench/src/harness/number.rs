//! Numbers of several repeats, and numbers as text. The median of the repeats
//! is what one row of a table says, with the smallest and largest beside it;
//! nothing is dropped.

use statrs::distribution::{Binomial, DiscreteCDF};

/// The middle and the extremes of some measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// None of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Spread { median, min, max })
    }
}

/// The middle of some measurements, and the bounds between which that of all
/// possible ones lies with 95 % confidence: by ranks (the exact sign test), so nothing
/// is supposed of how they scatter. Of fewer than six, the extremes, with less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Middle {
    /// None of nothing.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let median = Spread::of(values.iter().copied())?.median;
        let heads = Binomial::new(0.5, values.len() as u64).expect("a coin is fair");
        // Ranks count from 1. Of a few the extremes, with less confidence.
        let rank = heads.inverse_cdf(0.025).saturating_sub(1) as usize;
        Some(Middle {
            median,
            low: values[rank],
            high: values[values.len() - 1 - rank],
        })
    }
}

/// The value that a share of everything counted does not exceed; pairs of values and
/// how often they were seen, in any order. None of nothing.
pub(crate) fn quantile(pairs: impl IntoIterator<Item = (f64, u64)>, share: f64) -> Option<f64> {
    let mut pairs: Vec<(f64, u64)> = pairs.into_iter().collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: u64 = pairs.iter().map(|pair| pair.1).sum();
    let wanted = (total as f64 * share).ceil();
    let mut seen = 0;
    let found = pairs.into_iter().find(|(_, count)| {
        seen += count;
        total > 0 && seen as f64 >= wanted
    });
    found.map(|(value, _)| value)
}

/// So many samples must lie beyond a percentile, or it says more of chance than of what is
/// measured.
const BEYOND: f64 = 100.0;

/// Whether that many samples are too few for the value that a share of them does not exceed.
pub(crate) fn is_of_few_samples(samples: f64, share: f64) -> bool {
    // No binary number is 0.99.
    samples * (1.0 - share) < BEYOND - 1e-6
}

/// What tables say of percentiles with [`mark`].
pub(crate) const MARKED: &str =
    "~: of all repeats together fewer than 100 samples are beyond this percentile.\n";

/// A percentile as text, marked if it is of too few samples.
pub(crate) fn mark(text: String, samples: f64, share: f64) -> String {
    match is_of_few_samples(samples, share) {
        true => format!("~{text}"),
        false => text,
    }
}

/// Three significant digits or so.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Three significant digits in six characters, thousands as k, millions as M.
pub(crate) fn large(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{}M", short(v / 1e6)),
        v if v >= 9_999.5 => format!("{}k", short(v / 1e3)),
        v => short(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_ones() {
        let spread = Spread::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 5.0));
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_quantile_is_where_its_share_of_the_counts_is_reached() {
        assert_eq!(quantile([(1.0, 0), (2.0, 0)], 0.5), None);
        assert_eq!(quantile([(9.0, 1), (2.0, 999)], 0.999), Some(2.0));
        assert_eq!(quantile([(9.0, 2), (2.0, 998)], 0.999), Some(9.0));
    }

    #[test]
    fn a_percentile_is_marked_if_fewer_than_100_samples_are_beyond_it() {
        let p99 = |samples: f64| mark("7.5".to_owned(), samples, 0.99);
        assert_eq!([p99(9_900.0), p99(10_000.0)], ["~7.5", "7.5"]);
        assert_eq!(mark("1".to_owned(), 100_000.0, 0.999), "1");
        assert_eq!(mark("1".to_owned(), 99_000.0, 0.999), "~1");
    }

    #[test]
    fn the_middle_of_many_is_known_better() {
        let bounds = |count: u32| {
            let middle = Middle::of((1..=count).map(f64::from)).unwrap();
            (middle.low, middle.median, middle.high)
        };
        assert_eq!(bounds(3), (1.0, 2.0, 3.0));
        // As in tables of the sign test: all of six, ranks 2 and 8 of nine, 40 and 61 of 100.
        assert_eq!(bounds(6), (1.0, 3.5, 6.0));
        assert_eq!(bounds(9), (2.0, 5.0, 8.0));
        assert_eq!(bounds(100), (40.0, 50.5, 61.0));
        assert_eq!(Middle::of([]), None);
    }
}
