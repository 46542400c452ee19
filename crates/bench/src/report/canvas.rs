//! What all plots have in common: size, fonts, and groups of bars.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number::{Spread, large, short};

pub(super) const SIZE: (u32, u32) = (560, 320);
pub(super) const TEXT: RGBColor = RGBColor(60, 64, 67);
pub(super) const FAINT: RGBColor = RGBColor(226, 229, 232);
pub(super) const FONT: &str = "sans-serif";

/// Plots fail only when a coordinate is not a number, which rows cannot hold.
pub(super) type Plot<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws on a white canvas and returns the SVG, which scales with the page.
pub(super) fn draw(title: &str, plot: impl FnOnce(&Area<'_>) -> Plot) -> String {
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

/// Bars that stand together over one label.
pub(super) struct Group {
    pub(super) label: String,
    pub(super) bars: Vec<(RGBColor, Spread)>,
}

/// Bars from 0, at the median, with whiskers to the extremes. `level` is a
/// height that deserves a line.
pub(super) fn bars(title: &str, groups: &[Group], level: Option<f64>) -> String {
    let spreads = groups.iter().flat_map(|group| &group.bars);
    let most = spreads
        .map(|(_, spread)| spread.max)
        .chain(level)
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
        for (index, group) in groups.iter().enumerate() {
            let bottom = chart.backend_coord(&(index as f64 + 0.5, 0.0));
            let style = label(13).pos(Pos::new(HPos::Center, VPos::Top));
            let place = (bottom.0, bottom.1 + 9);
            area.draw(&Text::new(group.label.clone(), place, style))?;
            let width = 0.84 / group.bars.len().max(1) as f64;
            for (bar, (colour, spread)) in group.bars.iter().enumerate() {
                let Spread { median, min, max } = *spread;
                let left = index as f64 + 0.08 + bar as f64 * width;
                let (right, middle) = (left + width * 0.9, left + width * 0.45);
                chart.plotting_area().draw(&Rectangle::new(
                    [(left, 0.0), (right, median)],
                    colour.filled(),
                ))?;
                if max > min {
                    let whisker = PathElement::new([(middle, min), (middle, max)], TEXT);
                    chart.plotting_area().draw(&whisker)?;
                }
                // Narrow bars have no room for a number.
                if group.bars.len() * groups.len() <= 24 {
                    let (x, y) = chart.backend_coord(&(middle, max));
                    area.draw(&Text::new(short(median), (x, y - 3), label(10).pos(above)))?;
                }
            }
        }
        if let Some(level) = level {
            let line = [(0.0, level), (groups.len() as f64, level)];
            chart
                .plotting_area()
                .draw(&PathElement::new(line, TEXT.mix(0.35)))?;
        }
        Ok(())
    })
}

/// A large number beside an axis, or a small one without digits that say nothing.
pub(super) fn axis_large(value: f64) -> String {
    if value < 10_000.0 {
        return axis_number(value);
    }
    large(value)
}

/// A number beside an axis, without digits that say nothing.
pub(super) fn axis_number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
