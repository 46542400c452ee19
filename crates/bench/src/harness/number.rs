//! Numbers of several repeats, and numbers as text. The median of the repeats
//! is what one row of a table says, with the smallest and largest beside it;
//! nothing is dropped.

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
/// possible ones lies with 95 % confidence: by ranks (the sign test), so nothing
/// is supposed of how they scatter.
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
        let count = values.len() as f64;
        // Ranks count from 1. A float below zero becomes zero: of a few, the extremes.
        let rank = ((count - 1.96 * count.sqrt()) / 2.0) as usize;
        let rank = rank.saturating_sub(1);
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
    fn the_middle_of_many_is_known_better() {
        let bounds = |count: u32| {
            let middle = Middle::of((1..=count).map(f64::from)).unwrap();
            (middle.low, middle.median, middle.high)
        };
        assert_eq!(bounds(3), (1.0, 2.0, 3.0));
        // Ranks 40 and 61 of 100, as in tables of the sign test.
        assert_eq!(bounds(100), (40.0, 50.5, 61.0));
        assert_eq!(Middle::of([]), None);
    }
}
