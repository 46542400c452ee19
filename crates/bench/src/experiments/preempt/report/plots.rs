//! The plots, as SVG, in the manner of the paper's figures.

use plotters::style::RGBColor;

use super::summary::{Cell, Summary};
use crate::experiments::preempt::{Latency, Mixed, PreemptExperiment};
use crate::harness::number::Spread;
use crate::render::canvas::{self, Group, Line, Scale};

/// The colour of a method: what preempts is blue, what waits is grey, threads are
/// orange.
pub(super) fn colour(method: &str) -> RGBColor {
    match method {
        "wait" => RGBColor(120, 130, 142),
        "cooperative" => RGBColor(144, 103, 167),
        "handcrafted" => RGBColor(196, 160, 210),
        "poll" => RGBColor(92, 160, 230),
        "preempt" | "signal" => RGBColor(14, 66, 124),
        "uintr" => RGBColor(0, 128, 128),
        "tuned" => RGBColor(92, 158, 104),
        "threads" => RGBColor(245, 205, 130),
        "threads-nice" => RGBColor(240, 173, 88),
        "threads-fifo" => RGBColor(208, 92, 66),
        "threads-ufs" => RGBColor(170, 60, 40),
        "sqlite" => RGBColor(144, 103, 167),
        "redb" => RGBColor(208, 92, 66),
        "sled" => RGBColor(240, 173, 88),
        // hybrid, with and without its grace; our engine.
        _ => RGBColor(22, 108, 196),
    }
}

/// The figures of an experiment; those without numbers are left out.
pub(super) fn figures(summary: &Summary<'_>, experiment: PreemptExperiment) -> Vec<String> {
    let over = |across: &str, title: &str, scale: Scale, number: fn(&Mixed) -> f64| {
        let series = summary.methods(experiment).into_iter().map(|method| Line {
            colour: colour(method),
            width: if method == "hybrid" { 3 } else { 2 },
            points: points(summary.cells(experiment), method, number),
        });
        canvas::lines(title, (across, Scale::Log), scale, &Vec::from_iter(series))
    };
    let figures = match experiment {
        PreemptExperiment::Latency => vec![
            percentiles(summary, "New-Order, µs", |mixed| mixed.new_order),
            percentiles(summary, "Payment, µs", |mixed| mixed.payment),
            percentiles(summary, "Q2, µs", |mixed| mixed.q2),
            each(summary, experiment, "Q2 a second", |cell| {
                cell.spread(|mixed| mixed.q2.per_s)
            }),
        ],
        PreemptExperiment::Scaling => vec![
            over(
                "workers",
                "Urgent transactions a second",
                Scale::Linear,
                Mixed::urgent_per_s,
            ),
            over("workers", "Q2 a second", Scale::Linear, |mixed| {
                mixed.q2.per_s
            }),
        ],
        PreemptExperiment::YieldInterval => vec![
            over(
                "records between yields",
                "New-Order, p99 in µs",
                Scale::Log,
                |mixed| mixed.new_order.p99_us,
            ),
            over(
                "records between yields",
                "Q2, p99 in µs",
                Scale::Log,
                |mixed| mixed.q2.p99_us,
            ),
            over(
                "records between yields",
                "Q2 a second",
                Scale::Linear,
                |mixed| mixed.q2.per_s,
            ),
        ],
        PreemptExperiment::Starvation => vec![
            thresholds(summary, "New-Order, p99 in µs", |mixed| {
                mixed.new_order.p99_us
            }),
            thresholds(summary, "Q2 a second", |mixed| mixed.q2.per_s),
            thresholds(summary, "Urgent transactions a second", Mixed::urgent_per_s),
        ],
        PreemptExperiment::Arrivals => vec![
            over(
                "arrival interval in µs",
                "New-Order, geometric mean in µs",
                Scale::Log,
                |mixed| mixed.new_order.geomean_us,
            ),
            over(
                "arrival interval in µs",
                "Q2, geometric mean in µs",
                Scale::Log,
                |mixed| mixed.q2.geomean_us,
            ),
        ],
        PreemptExperiment::Overhead => vec![each(
            summary,
            experiment,
            "Loss of throughput in %, pair by pair",
            |cell| Spread::of(cell.losses().map(|loss| (100.0 * loss).max(0.0))),
        )],
        PreemptExperiment::Micro => vec![
            each(summary, experiment, "Operations, ns", |cell| cell.ns()),
            each(summary, experiment, "Delivery, median in ns", |cell| {
                Spread::of(cell.deliveries().map(|row| row.latency.p50_ns as f64))
            }),
        ],
        PreemptExperiment::Engines => ["standard", "interactive"]
            .map(|mix| {
                let title = format!("Transactions a second, {mix} mix");
                each(summary, experiment, &title, |cell| cell.per_s(mix))
            })
            .into(),
    };
    figures.into_iter().flatten().collect()
}

/// A method's numbers over the swept value; one that is not swept is level.
fn points(cells: &[Cell<'_>], method: &str, number: fn(&Mixed) -> f64) -> Vec<(f64, f64)> {
    let of_method = || cells.iter().filter(|cell| cell.method == method);
    let swept = of_method().filter_map(|cell| Some((cell.value?, cell.median(number)?)));
    let swept = Vec::from_iter(swept);
    if !swept.is_empty() {
        return swept;
    }
    let Some(level) = of_method().find_map(|cell| cell.median(number)) else {
        return Vec::new();
    };
    let values = || cells.iter().filter_map(|cell| cell.value);
    let ends = [values().reduce(f64::min), values().reduce(f64::max)];
    ends.into_iter().flatten().map(|end| (end, level)).collect()
}

/// Bars for each percentile, by method.
fn percentiles(summary: &Summary<'_>, title: &str, of: fn(&Mixed) -> Latency) -> Option<String> {
    let cells = summary.cells(PreemptExperiment::Latency);
    let names = Latency::default().percentiles();
    let groups = names.iter().enumerate().map(|(at, (name, _))| Group {
        label: (*name).to_owned(),
        bars: cells
            .iter()
            .filter_map(|cell| {
                let spread = cell.spread(|mixed| of(mixed).percentiles()[at].1)?;
                Some((colour(cell.method), spread))
            })
            .collect(),
    });
    let groups = Vec::from_iter(groups);
    (!cells.is_empty()).then(|| canvas::bars_on(Scale::Log, title, &groups, None))
}

/// A bar for each threshold, and for what has none.
fn thresholds(summary: &Summary<'_>, title: &str, number: fn(&Mixed) -> f64) -> Option<String> {
    let groups = summary
        .cells(PreemptExperiment::Starvation)
        .iter()
        .map(|cell| {
            let label = match cell.value {
                Some(value) => value.to_string(),
                None => cell.method.to_owned(),
            };
            Group {
                label,
                bars: cell
                    .spread(number)
                    .map(|spread| (colour(cell.method), spread))
                    .into_iter()
                    .collect(),
            }
        });
    let groups = Vec::from_iter(groups);
    (!groups.is_empty()).then(|| canvas::bars_on(Scale::Log, title, &groups, None))
}

/// One bar for each method that has the number.
fn each(
    summary: &Summary<'_>,
    experiment: PreemptExperiment,
    title: &str,
    number: impl Fn(&Cell<'_>) -> Option<Spread>,
) -> Option<String> {
    let groups = summary.cells(experiment).iter().filter_map(|cell| {
        Some(Group {
            label: cell.method.to_owned(),
            bars: vec![(colour(cell.method), number(cell)?)],
        })
    });
    let groups = Vec::from_iter(groups);
    (!groups.is_empty()).then(|| canvas::bars(title, &groups, None))
}
