//! The plots, as SVG: throughput and the fairness factor over threads in the
//! manner of the paper's Figure 8, and bars for what is one number a lock.

use plotters::prelude::*;

use super::summary::{Cell, Summary};
use super::targets::OWN;
use crate::experiments::locks::LockExperiment;
use crate::harness::number::Spread;
use crate::render::canvas::{self, FAINT, FONT, Group, TEXT, axis_number, draw};

/// The colour of a lock: families have a hue, our own the strongest one.
pub(super) fn colour(lock: &str) -> RGBColor {
    const OTHERS: [RGBColor; 4] = [
        RGBColor(92, 158, 104),
        RGBColor(144, 103, 167),
        RGBColor(170, 140, 60),
        RGBColor(70, 160, 170),
    ];
    match lock {
        OWN => RGBColor(22, 108, 196),
        "cfl-sg" => RGBColor(92, 160, 230),
        "cfl-spin" => RGBColor(14, 66, 124),
        "cfl-spin-sg" => RGBColor(60, 100, 160),
        "u-scl" => RGBColor(208, 92, 66),
        "pthread" => RGBColor(120, 130, 142),
        "pthread-pi" => RGBColor(90, 96, 104),
        "std" => RGBColor(184, 190, 198),
        "parking_lot-0.12" => RGBColor(150, 190, 140),
        "parking_lot-0.13" => RGBColor(92, 158, 104),
        "ticket" => RGBColor(245, 205, 130),
        "mcs" => RGBColor(240, 173, 88),
        "fifo" => RGBColor(200, 130, 40),
        other => OTHERS[other.bytes().map(usize::from).sum::<usize>() % OTHERS.len()],
    }
}

/// A number of a cell over the threads of an experiment: one line for each
/// lock. None with fewer than two thread counts.
pub(super) fn over_threads(
    summary: &Summary<'_>,
    experiment: LockExperiment,
    title: &str,
    level: Option<f64>,
    number: fn(&Cell<'_>) -> Option<f64>,
) -> Option<String> {
    let groups = Vec::from_iter(summary.experiment(experiment));
    let counts = || groups.iter().map(|group| f64::from(group.threads));
    let (least, most) = (counts().reduce(f64::min)?, counts().reduce(f64::max)?);
    let lines: Vec<(&str, Vec<(f64, f64)>)> = summary
        .locks()
        .into_iter()
        .map(|lock| {
            let point = |group: &&super::summary::Group<'_>| {
                let value = number(group.cell(lock)?)?;
                Some((f64::from(group.threads), value))
            };
            (lock, groups.iter().filter_map(point).collect())
        })
        .collect();
    let values = lines
        .iter()
        .flat_map(|(_, points)| points)
        .map(|point| point.1);
    let top = values.chain(level).reduce(f64::max)? * 1.1;
    if least >= most || top <= 0.0 {
        return None;
    }
    Some(draw(title, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d((least..most).log_scale().base(2.0), 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("threads")
            .y_labels(6)
            .x_label_formatter(&|value| axis_number(*value))
            .y_label_formatter(&|value| canvas::axis_large(*value))
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style((FONT, 12).into_font().color(&TEXT))
            .draw()?;
        if let Some(level) = level {
            let line = [(least, level), (most, level)];
            chart
                .plotting_area()
                .draw(&PathElement::new(line, TEXT.mix(0.35)))?;
        }
        for (lock, points) in lines {
            let width = if lock == OWN { 3 } else { 2 };
            let style = colour(lock).stroke_width(width);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            let dots = points
                .iter()
                .map(|point| Circle::new(*point, 3, colour(lock).filled()));
            chart.draw_series(dots)?;
        }
        Ok(())
    }))
}

/// Bars: one group for each run of an experiment, a bar for each lock. None
/// without a number.
pub(super) fn bars(
    summary: &Summary<'_>,
    experiment: LockExperiment,
    title: &str,
    level: Option<f64>,
    number: fn(&Cell<'_>) -> Option<Spread>,
) -> Option<String> {
    let groups: Vec<Group> = summary
        .experiment(experiment)
        .map(|group| Group {
            label: match group.threads {
                1 => group.case.to_owned(),
                threads => format!("{}, {threads} thr.", group.case),
            },
            bars: group
                .cells
                .iter()
                .filter_map(|cell| Some((colour(cell.lock), number(cell)?)))
                .collect(),
        })
        .collect();
    let empty = groups.iter().all(|group| group.bars.is_empty());
    (!empty).then(|| canvas::bars(title, &groups, level))
}
