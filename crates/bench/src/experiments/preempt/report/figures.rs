//! What the PreemptDB paper has: Figures 8 and 10.

use super::summary::Summary;
use crate::experiments::preempt::{Mixed, PreemptExperiment, PreemptRow};
use crate::harness::figure::Figure;
use crate::harness::number::Middle;
use crate::report::Report;

/// The paper's policy.
const PREEMPT: &str = "preempt";

/// The paper's numbers beside the report's.
pub(super) fn figures(report: &Report<PreemptRow>) -> Vec<Figure> {
    let summary = Summary::of(report);
    let latency = |method, of: fn(&Mixed) -> f64| {
        let cell = summary.cell(PreemptExperiment::Latency, method)?;
        cell.median(of).filter(|latency| *latency > 0.0)
    };
    let over = |one, other, of| Some(latency(one, of)? / latency(other, of)?);
    let below = |of| Some((1.0 - over(PREEMPT, "wait", of)?) * 100.0);
    let losses = summary.cells(PreemptExperiment::Overhead).iter();
    let loss = losses
        .filter_map(|cell| Some(Middle::of(cell.losses())?.median))
        .reduce(f64::max);
    vec![
        Figure::ratio(
            "New-Order's p50: preempt below wait",
            "Figure 10",
            "88 to 96 %",
            below(|mixed| mixed.new_order.p50_us),
        )
        .unit(" %"),
        Figure::ratio(
            "New-Order's p99: preempt below wait",
            "Figure 10",
            "88 to 96 %",
            below(|mixed| mixed.new_order.p99_us),
        )
        .unit(" %"),
        Figure::ratio(
            "New-Order's p99.9: wait over preempt",
            "Figure 10",
            "up to 30 x",
            over("wait", PREEMPT, |mixed| mixed.new_order.p999_us),
        )
        .unit(" x"),
        Figure::ratio(
            "New-Order's p50: cooperative over wait",
            "Figure 10",
            "1.55 x",
            over("cooperative", "wait", |mixed| mixed.new_order.p50_us),
        )
        .unit(" x"),
        Figure::ratio(
            "TPC-C lost to empty interrupts, at most",
            "Figure 8",
            "1.7 %",
            loss.map(|loss| loss * 100.0),
        )
        .unit(" %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::preempt::report::samples;

    #[test]
    fn every_figure_is_measured_where_all_rows_are_there() {
        let report = samples::report();
        let summary = Summary::of(&report);
        let p50 = |method| {
            let cell = summary.cell(PreemptExperiment::Latency, method).unwrap();
            cell.median(|mixed| mixed.new_order.p50_us).unwrap()
        };
        let figures = figures(&report);
        assert!(
            figures.iter().all(|figure| figure.measured.is_some()),
            "{figures:?}"
        );
        let below = (1.0 - p50("preempt") / p50("wait")) * 100.0;
        assert_eq!(figures[0].measured, Some(below));
        assert_eq!(figures[3].measured, Some(p50("cooperative") / p50("wait")));
    }
}
