//! The plots, as SVG: throughput bars in the manner of the paper's Figure 6,
//! and latency distributions with a logarithmic time axis.
//!
//! A scheduler has the same colour everywhere, and UFS the strongest one.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::stats::{Cell, Summary};
use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::By;
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, FAINT, FONT, Group, TEXT, axis_number, draw, scheduler_colour};

/// The colour of a scheduler that heard of priorities in some way.
pub(super) fn colour(scheduler: &Scheduler, by: By) -> RGBColor {
    match by {
        By::Roles => RGBColor(98, 178, 240),
        By::Cgroups => scheduler_colour(scheduler),
    }
}

/// Throughput of the background (left in Figure 6).
pub(super) fn background_bars(summary: &Summary<'_>) -> String {
    let mixes = [
        (Mix::SoloBackground, "SOLO"),
        (Mix::MinMax, "MIN:MAX"),
        (Mix::FiftyFifty, "50:50"),
    ];
    bars(
        &format!("Background: {} per second", summary.job().label()),
        summary,
        &mixes,
        |row| row.bg_per_s,
    )
}

/// Throughput of the time-sensitive work (right in Figure 6).
pub(super) fn time_sensitive_bars(summary: &Summary<'_>) -> String {
    let mixes = [
        (Mix::Solo, "SOLO"),
        (Mix::MinMax, "MIN:MAX"),
        (Mix::FiftyFifty, "50:50"),
    ];
    bars(
        "Time-sensitive: TPC-C transactions per second",
        summary,
        &mixes,
        |row| row.ts_tps,
    )
}

fn bars(
    title: &str,
    summary: &Summary<'_>,
    mixes: &[(Mix, &'static str)],
    number: impl Fn(&Row) -> Option<f64> + Copy,
) -> String {
    // Schedulers that a mix leaves out take no room.
    let groups: Vec<Group> = mixes
        .iter()
        .map(|(mix, name)| Group {
            label: (*name).to_owned(),
            bars: summary
                .mix(*mix)
                .filter_map(|cell| Some((colour(&cell.scheduler, cell.by), cell.spread(number)?)))
                .collect(),
        })
        .collect();
    canvas::bars(title, &groups, None)
}

/// Latency distributions of a mix: one line for each scheduler; none when no
/// transaction ended.
pub(super) fn latency(summary: &Summary<'_>, mix: Mix) -> Option<String> {
    let lines: Vec<(&Cell<'_>, Vec<(f64, f64)>)> = summary
        .mix(mix)
        .map(|cell| (cell, cell.latency_cdf()))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let all = || {
        lines
            .iter()
            .flat_map(|(_, points)| points)
            .map(|point| point.0.max(0.001))
    };
    let (least, most) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    // Whole decades, so that there are numbers on the axis.
    let decade = |value: f64| 10.0_f64.powf(value);
    let (least, most) = (decade(least.log10().floor()), decade(most.log10().ceil()));
    let title = format!("{mix}: share of transactions that took at most …");
    Some(draw(&title, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(48)
            .build_cartesian_2d((least..most).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .y_labels(5)
            .x_labels(8)
            .x_desc("ms (logarithmic)")
            .x_label_formatter(&|value| axis_number(*value))
            .y_label_formatter(&|value| format!("{:.0} %", value * 100.0))
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style((FONT, 12).into_font().color(&TEXT))
            .draw()?;
        let p95 = [(least, 0.95), (most, 0.95)];
        chart
            .plotting_area()
            .draw(&PathElement::new(p95, TEXT.mix(0.35)))?;
        let (x, y) = chart.backend_coord(&(most, 0.95));
        let style = (FONT, 10)
            .into_font()
            .color(&TEXT)
            .pos(Pos::new(HPos::Right, VPos::Top));
        area.draw(&Text::new("95 %", (x - 2, y + 3), style))?;
        for (cell, points) in &lines {
            let width = if cell.scheduler == Scheduler::Ufs {
                3
            } else {
                2
            };
            let style = colour(&cell.scheduler, cell.by).stroke_width(width);
            let start = points.first().map(|point| (point.0.max(0.001), 0.0));
            let rest = points.iter().map(|point| (point.0.max(0.001), point.1));
            chart.draw_series(LineSeries::new(start.into_iter().chain(rest), style))?;
        }
        Ok(())
    }))
}
