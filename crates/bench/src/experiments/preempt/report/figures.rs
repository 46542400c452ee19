//! What the PreemptDB paper has: Figures 1 and 8 to 13.
//!
//! Signals stand in for the paper's user interrupts on machines that have none, so its
//! main figures are compared with the policy by signals. Where user interrupts were
//! measured, too, all are compared with them.

use super::summary::{Cell, Summary};
use super::targets::UINTR;
use crate::experiments::preempt::{Mixed, PreemptExperiment, PreemptRow};
use crate::harness::figure::Figure;
use crate::harness::number::Middle;
use crate::report::Report;

/// The paper's policy, by signals.
const PREEMPT: &str = "preempt";

/// A number of a run.
type Of = fn(&Mixed) -> f64;

/// The paper's numbers beside the report's.
pub(super) fn figures(report: &Report<PreemptRow>) -> Vec<Figure> {
    let summary = Summary::of(report);
    let mut figures = by_signals(&summary);
    if report.rows.iter().any(|row| row.method == UINTR) {
        figures.extend(by_user_interrupts(&summary));
    }
    figures
}

fn by_signals(summary: &Summary<'_>) -> Vec<Figure> {
    let over = |one, other, of| over(summary, one, other, of);
    let below = |of| Some((1.0 - over(PREEMPT, "wait", of)?) * 100.0);
    let losses = summary.cells(PreemptExperiment::Overhead).iter();
    let loss = losses.filter_map(loss).reduce(f64::max);
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

/// The same and the other figures with the paper's own mechanism.
fn by_user_interrupts(summary: &Summary<'_>) -> Vec<Figure> {
    use PreemptExperiment::{Arrivals, Overhead, Scaling, Starvation, YieldInterval};
    const P50: Of = |mixed| mixed.new_order.p50_us;
    const P99: Of = |mixed| mixed.new_order.p99_us;
    const GEOMEAN: Of = |mixed| mixed.new_order.geomean_us;
    let over = |one, other, of| over(summary, one, other, of);
    let below = |of| Some((1.0 - over(UINTR, "wait", of)?) * 100.0);
    let at = |of, method, value, number: Of| {
        let mut cells = summary.cells(of).iter();
        let cell = cells.find(|cell| cell.method == method && cell.value == value)?;
        cell.median(number).filter(|number| *number > 0.0)
    };
    let most = values(summary, Scaling).reduce(f64::max);
    let rarest = values(summary, Arrivals).reduce(f64::max);
    let scaled = |method| at(Scaling, method, most, |mixed| mixed.q2.per_s);
    let shared = |threshold| at(Starvation, UINTR, Some(threshold), |mixed| mixed.q2.per_s);
    let by_hand = at(YieldInterval, "handcrafted", Some(1_000.0), P99);
    let arrivals = |method, us| at(Arrivals, method, us, GEOMEAN);
    let gap = |method, us| ratio(arrivals(method, us), arrivals(UINTR, us));
    let lost = summary.cell(Overhead, UINTR).and_then(loss);
    let figure =
        |what, place, paper, measured, unit| Figure::ratio(what, place, paper, measured).unit(unit);
    vec![
        figure(
            "New-Order's p99: wait over uintr",
            "Figure 1",
            "magnitudes",
            over("wait", UINTR, P99),
            " x",
        ),
        figure(
            "New-Order's p99: cooperative over uintr",
            "Figure 1",
            "magnitudes",
            over("cooperative", UINTR, P99),
            " x",
        ),
        figure(
            "TPC-C lost to empty user interrupts",
            "Figure 8",
            "1.7 %",
            lost.map(|loss| loss * 100.0),
            " %",
        ),
        figure(
            "Q2 a second, most workers: uintr over wait",
            "Figure 9",
            "the same",
            ratio(scaled(UINTR), scaled("wait")),
            " x",
        ),
        figure(
            "New-Order's p50: uintr below wait",
            "Figure 10",
            "88 to 96 %",
            below(P50),
            " %",
        ),
        figure(
            "New-Order's p99: uintr below wait",
            "Figure 10",
            "88 to 96 %",
            below(P99),
            " %",
        ),
        figure(
            "New-Order's p99.9: wait over uintr",
            "Figure 10",
            "up to 30 x",
            over("wait", UINTR, |mixed| mixed.new_order.p999_us),
            " x",
        ),
        figure(
            "New-Order's p50: cooperative over uintr",
            "Figure 10",
            "14 x",
            over("cooperative", UINTR, P50),
            " x",
        ),
        figure(
            "Q2's p99: uintr over wait",
            "Figure 10",
            "the same",
            over(UINTR, "wait", |mixed| mixed.q2.p99_us),
            " x",
        ),
        figure(
            "New-Order's p99: handcrafted over uintr",
            "Figure 11",
            "the same",
            ratio(by_hand, at(YieldInterval, UINTR, None, P99)),
            " x",
        ),
        figure(
            "Q2 a second, uintr: at threshold 0.75, of 0",
            "Figure 12",
            "16 %",
            ratio(shared(0.75), shared(0.0)).map(|share| share * 100.0),
            " %",
        ),
        figure(
            "New-Order, every 50 µs: wait over uintr",
            "Figure 13",
            "3.8 x",
            gap("wait", Some(50.0)),
            " x",
        ),
        figure(
            "New-Order, rarest: wait over uintr",
            "Figure 13",
            "24.7 x",
            gap("wait", rarest),
            " x",
        ),
        figure(
            "New-Order, rarest: cooperative over uintr",
            "Figure 13",
            "18.7 x",
            gap("cooperative", rarest),
            " x",
        ),
    ]
}

/// A number of one method in `latency` in parts of another's.
fn over(summary: &Summary<'_>, one: &str, other: &str, of: Of) -> Option<f64> {
    let latency = |method| {
        let cell = summary.cell(PreemptExperiment::Latency, method)?;
        cell.median(of).filter(|latency| *latency > 0.0)
    };
    ratio(latency(one), latency(other))
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

/// The part of the throughput that interrupts cost.
fn loss(cell: &Cell<'_>) -> Option<f64> {
    Some(Middle::of(cell.losses())?.median)
}

/// What an experiment swept.
fn values(summary: &Summary<'_>, of: PreemptExperiment) -> impl Iterator<Item = f64> {
    summary.cells(of).iter().filter_map(|cell| cell.value)
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
        let measured = |what: &str| {
            let found = figures.iter().find(|figure| figure.what == what);
            found.unwrap().measured.unwrap()
        };
        let more = measured("New-Order's p50: cooperative over uintr");
        assert_eq!(more, p50("cooperative") / p50("uintr"));
        // 250 - 240 * 0.75 of 250.
        let share = measured("Q2 a second, uintr: at threshold 0.75, of 0");
        assert!((share - 28.0).abs() < 1e-9, "{share}");
        let rare = measured("New-Order, rarest: wait over uintr");
        assert!((rare - 2_000.0 / 39.0).abs() < 1e-9, "{rare}");
    }

    #[test]
    fn user_interrupts_that_were_not_measured_are_not_mentioned() {
        let mut report = samples::report();
        report.rows.retain(|row| row.method != UINTR);
        let figures = figures(&report);
        assert!(figures.iter().all(|figure| !figure.what.contains(UINTR)));
    }
}
