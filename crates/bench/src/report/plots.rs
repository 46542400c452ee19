//! The plots, as SVG: throughput bars in the manner of the paper's Figure 6,
//! and latency distributions with a logarithmic time axis.
//!
//! A scheduler has the same colour everywhere, and UFS the strongest one.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::stats::{Cell, Spread, Summary};
use super::table::short;
use crate::config::{Mix, Scheduler};
use crate::result::Row;

const SIZE: (u32, u32) = (560, 320);
const TEXT: RGBColor = RGBColor(60, 64, 67);
const FAINT: RGBColor = RGBColor(226, 229, 232);
const FONT: &str = "sans-serif";

/// Plots fail only when a coordinate is not a number, which rows cannot hold.
type Plot<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The colour of a scheduler.
pub(super) fn colour(scheduler: &Scheduler) -> RGBColor {
    match scheduler {
        Scheduler::Eevdf => RGBColor(120, 130, 142),
        Scheduler::Idle => RGBColor(184, 190, 198),
        Scheduler::Fifo => RGBColor(240, 173, 88),
        Scheduler::Rr => RGBColor(208, 92, 66),
        Scheduler::Ufs => RGBColor(22, 108, 196),
        Scheduler::Scx(name) => {
            const OTHERS: [RGBColor; 4] = [
                RGBColor(92, 158, 104),
                RGBColor(144, 103, 167),
                RGBColor(170, 140, 60),
                RGBColor(70, 160, 170),
            ];
            let sum: usize = name.bytes().map(usize::from).sum();
            OTHERS[sum % OTHERS.len()]
        }
    }
}

/// Draws on a white canvas and returns the SVG, which scales with the page.
fn draw(title: &str, plot: impl FnOnce(&Area<'_>) -> Plot) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let style = (FONT, 15)
            .into_font()
            .color(&TEXT)
            .pos(Pos::new(HPos::Left, VPos::Top));
        area.fill(&WHITE)
            .and_then(|()| area.draw(&Text::new(title.to_owned(), (12, 8), style)))
            .and_then(|()| plot(&area))
            .and_then(|()| area.present())
            .expect("drawing into memory does not fail");
    }
    let fixed = format!("<svg width=\"{}\" height=\"{}\"", SIZE.0, SIZE.1);
    svg.replacen(
        &fixed,
        &format!("<svg role=\"img\" aria-label=\"{title}\""),
        1,
    )
}

/// One group of bars: a label and the cell of each scheduler.
type Group<'s, 'a> = (&'static str, Vec<Option<&'s Cell<'a>>>);

/// Throughput of the background (left in Figure 6).
pub(super) fn background_bars(summary: &Summary<'_>) -> String {
    let mixes = [
        (Mix::SoloBackground, "SOLO"),
        (Mix::MinMax, "MIN:MAX"),
        (Mix::FiftyFifty, "50:50"),
    ];
    bars(
        "Background: Q17 queries per second",
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
    let schedulers = summary.schedulers();
    let groups: Vec<Group<'_, '_>> = mixes
        .iter()
        .map(|(mix, name)| {
            (
                *name,
                schedulers
                    .iter()
                    .map(|scheduler| summary.cell(scheduler, *mix))
                    .collect(),
            )
        })
        .collect();
    let spreads = groups.iter().flat_map(|(_, cells)| cells).flatten();
    let most = spreads
        .filter_map(|cell| cell.spread(number))
        .map(|s| s.max)
        .fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.15 } else { 1.0 };
    draw(title, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(14)
            .x_label_area_size(30)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .y_label_formatter(&|value| axis_number(*value))
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style((FONT, 12).into_font().color(&TEXT))
            .draw()?;
        let label = |size| (FONT, size).into_font().color(&TEXT);
        let above = Pos::new(HPos::Center, VPos::Bottom);
        for (group, (name, cells)) in groups.iter().enumerate() {
            let bottom = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let style = label(13).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(
                (*name).to_owned(),
                (bottom.0, bottom.1 + 9),
                style,
            ))?;
            // Schedulers that a mix leaves out take no room.
            let present: Vec<&Cell<'_>> = cells.iter().copied().flatten().collect();
            let width = 0.84 / present.len().max(1) as f64;
            for (bar, cell) in present.into_iter().enumerate() {
                let Some(Spread { median, min, max }) = cell.spread(number) else {
                    continue;
                };
                let left = group as f64 + 0.08 + bar as f64 * width;
                let (right, middle) = (left + width * 0.9, left + width * 0.45);
                let fill = colour(&cell.scheduler).filled();
                chart
                    .plotting_area()
                    .draw(&Rectangle::new([(left, 0.0), (right, median)], fill))?;
                if max > min {
                    let whisker = PathElement::new([(middle, min), (middle, max)], TEXT);
                    chart.plotting_area().draw(&whisker)?;
                }
                let (x, y) = chart.backend_coord(&(middle, max));
                area.draw(&Text::new(short(median), (x, y - 3), label(10).pos(above)))?;
            }
        }
        Ok(())
    })
}

/// Latency distributions of a mix: one line for each scheduler; none when no
/// transaction ended.
pub(super) fn latency(summary: &Summary<'_>, mix: Mix) -> Option<String> {
    let lines: Vec<(Scheduler, Vec<(f64, f64)>)> = summary
        .mix(mix)
        .map(|cell| (cell.scheduler.clone(), cell.latency_cdf()))
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
        for (scheduler, points) in &lines {
            let width = if *scheduler == Scheduler::Ufs { 3 } else { 2 };
            let style = colour(scheduler).stroke_width(width);
            let start = points.first().map(|point| (point.0.max(0.001), 0.0));
            let rest = points.iter().map(|point| (point.0.max(0.001), point.1));
            chart.draw_series(LineSeries::new(start.into_iter().chain(rest), style))?;
        }
        Ok(())
    }))
}

/// A number beside an axis, without digits that say nothing.
fn axis_number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
