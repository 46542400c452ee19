//! The plots, as SVG, in the manner of the paper's figures.

use plotters::style::RGBColor;

use super::summary::{Cell, Number, Part, Summary, long, medians, short};
use crate::experiments::tasks::{Measured, TURN_CLASSES, TasksExperiment, TasksRow};
use crate::harness::number::Spread;
use crate::render::canvas::{self, Group, Line, Scale};

/// The colour of an arm: what decays is blue, other engines are red and yellow.
pub(super) fn colour(arm: &str) -> RGBColor {
    match arm {
        "adaptive" => RGBColor(20, 60, 130),
        "tuned" => RGBColor(22, 108, 196),
        "fifo" => RGBColor(184, 190, 198),
        "fair" => RGBColor(120, 130, 142),
        "balanced" => RGBColor(196, 160, 210),
        "stock" => RGBColor(208, 92, 66),
        "duckdb" => RGBColor(240, 173, 88),
        "duckdb-partial" => RGBColor(245, 205, 130),
        arm if arm.starts_with("las") => RGBColor(92, 158, 104),
        arm if arm.starts_with("lottery") => RGBColor(144, 103, 167),
        // Fixed parameters.
        _ => RGBColor(150, 195, 240),
    }
}

/// The figures of an experiment; those without numbers are left out.
pub(super) fn figures(summary: &Summary<'_>, experiment: TasksExperiment) -> Vec<String> {
    const SHORT: Number = |run| Some(short(run)?.mean);
    const LONG: Number = |run| Some(long(run)?.mean);
    const SHORT_P95: Number = |run| Some(short(run)?.p95);
    const LONG_P95: Number = |run| Some(long(run)?.p95);
    match experiment {
        TasksExperiment::Mix | TasksExperiment::Simulated => vec![
            by_arm(summary, experiment, "Mean slowdown of short queries", SHORT),
            by_arm(summary, experiment, "Mean slowdown of long queries", LONG),
            by_arm(
                summary,
                experiment,
                "95th percentile, short queries",
                SHORT_P95,
            ),
            by_arm(
                summary,
                experiment,
                "95th percentile, long queries",
                LONG_P95,
            ),
        ],
        TasksExperiment::Load => [
            ("Mean slowdown of short queries", SHORT),
            ("Mean slowdown of long queries", LONG),
            ("95th percentile, short queries", SHORT_P95),
            ("95th percentile, long queries", LONG_P95),
        ]
        .into_iter()
        .filter_map(|(title, number)| over_load(summary, experiment, title, number))
        .collect(),
        TasksExperiment::Shift => vec![shift(summary)],
        TasksExperiment::Single => vec![single(summary)],
        TasksExperiment::Overrun => vec![lengths(summary)],
        TasksExperiment::Answers | TasksExperiment::Cost => Vec::new(),
    }
}

fn spread(cell: &Cell<'_>, number: Number) -> Option<Spread> {
    Spread::of(cell.arrived().filter_map(number))
}

/// A group of bars for each load, an arm a bar.
fn by_arm(
    summary: &Summary<'_>,
    experiment: TasksExperiment,
    title: &str,
    number: Number,
) -> String {
    let group = |load| Group {
        label: format!("load {load}"),
        bars: summary
            .cells(experiment)
            .filter(|cell| cell.load == Some(load))
            .filter_map(|cell| Some((colour(cell.arm), spread(cell, number)?)))
            .collect(),
    };
    let groups: Vec<Group> = summary.loads(experiment).into_iter().map(group).collect();
    canvas::bars_on(Scale::Log, title, &groups, None)
}

/// A line for each arm.
fn over_load(
    summary: &Summary<'_>,
    experiment: TasksExperiment,
    title: &str,
    number: Number,
) -> Option<String> {
    let line = |arm| Line {
        colour: colour(arm),
        width: if ["tuned", "adaptive"].contains(&arm) {
            3
        } else {
            2
        },
        points: summary
            .loads(experiment)
            .into_iter()
            .filter_map(|load| {
                let cell = summary.cell(experiment, load, arm)?;
                Some((load, spread(cell, number)?.median))
            })
            .collect(),
    };
    let lines: Vec<Line> = summary.arms(experiment).into_iter().map(line).collect();
    canvas::lines(title, ("load", Scale::Log), Scale::Log, &lines)
}

fn shift(summary: &Summary<'_>) -> String {
    let parts: [(&str, Number); 3] = [
        ("before", |run| Part::Before.mean(run)),
        ("just after", |run| Part::After.mean(run)),
        ("later", |run| Part::Later.mean(run)),
    ];
    let group = |(label, number): (&str, Number)| Group {
        label: label.to_owned(),
        bars: summary
            .cells(TasksExperiment::Shift)
            .filter_map(|cell| Some((colour(cell.arm), spread(cell, number)?)))
            .collect(),
    };
    canvas::bars("Mean slowdown of all queries", &parts.map(group), None)
}

fn single(summary: &Summary<'_>) -> String {
    let rows: Vec<&TasksRow> = (summary.cells(TasksExperiment::Single))
        .flat_map(|cell| cell.rows.iter().copied())
        .collect();
    let group = |query: u8| {
        let pairs = rows.iter().flat_map(|row| match &row.measured {
            Measured::Single(pairs) => &pairs[..],
            _ => &[],
        });
        let of_query = pairs.filter(|pair| pair.query == query);
        let times: Vec<(f64, f64)> = of_query.filter_map(medians).collect();
        let ours = Spread::of(times.iter().map(|(ours, _)| *ours));
        let stock = Spread::of(times.iter().map(|(_, stock)| *stock));
        let bars = [("tuned", ours), ("stock", stock)];
        Group {
            label: query.to_string(),
            bars: bars
                .into_iter()
                .filter_map(|(arm, spread)| Some((colour(arm), spread?)))
                .collect(),
        }
    };
    let groups: Vec<Group> = (1..=22).map(group).collect();
    canvas::bars("A query alone, ms", &groups, None)
}

fn lengths(summary: &Summary<'_>) -> String {
    let mut groups: Vec<Group> = TURN_CLASSES
        .iter()
        .map(|end| format!("≤ {end}"))
        .chain(["more".to_owned()])
        .map(|label| Group {
            label,
            bars: Vec::new(),
        })
        .collect();
    let rows = summary
        .cells(TasksExperiment::Overrun)
        .flat_map(|cell| cell.rows.iter());
    for row in rows {
        let Measured::Turns(turns) = &row.measured else {
            continue;
        };
        let all = turns.all();
        let count: u64 = all.iter().sum();
        // Alone in grey, at once in blue.
        let arm = if turns.at_a_time == 1 {
            "fair"
        } else {
            "tuned"
        };
        for (group, tasks) in groups.iter_mut().zip(all) {
            let part = 100.0 * tasks as f64 / count.max(1) as f64;
            group
                .bars
                .extend(Spread::of([part]).map(|part| (colour(arm), part)));
        }
    }
    canvas::bars("Tasks by their length in t_max, %", &groups, None)
}
