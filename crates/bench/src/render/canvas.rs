//! What all plots have in common: size, fonts, and groups of bars.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::harness::number::{Spread, large, short};
use crate::harness::scheduler::Scheduler;

pub(crate) const SIZE: (u32, u32) = (560, 320);
pub(crate) const TEXT: RGBColor = RGBColor(60, 64, 67);
pub(crate) const FAINT: RGBColor = RGBColor(226, 229, 232);
pub(crate) const FONT: &str = "sans-serif";

/// The colour that a scheduler has everywhere; UFS has the strongest one.
pub(crate) fn scheduler_colour(scheduler: &Scheduler) -> RGBColor {
    match scheduler {
        Scheduler::Eevdf => RGBColor(120, 130, 142),
        Scheduler::Idle => RGBColor(184, 190, 198),
        Scheduler::CpuIdle => RGBColor(150, 176, 160),
        Scheduler::Fifo => RGBColor(240, 173, 88),
        Scheduler::Rr => RGBColor(208, 92, 66),
        Scheduler::RrBare => RGBColor(150, 64, 46),
        Scheduler::Ufs => RGBColor(22, 108, 196),
        Scheduler::UfsFloor => RGBColor(96, 158, 222),
        Scheduler::Scx(name) => {
            // So many that scx_layered, scx_lavd, scx_bpfland and scx_flatcg differ.
            const OTHERS: [RGBColor; 7] = [
                RGBColor(92, 158, 104),
                RGBColor(144, 103, 167),
                RGBColor(170, 140, 60),
                RGBColor(70, 160, 170),
                RGBColor(201, 120, 168),
                RGBColor(122, 134, 52),
                RGBColor(128, 92, 72),
            ];
            let sum: usize = name.bytes().map(usize::from).sum();
            OTHERS[sum % OTHERS.len()]
        }
    }
}

/// Plots fail only when a coordinate is not a number, which rows cannot hold.
pub(crate) type Plot<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws on a white canvas and returns the SVG, which scales with the page.
pub(crate) fn draw(title: &str, plot: impl FnOnce(&Area<'_>) -> Plot) -> String {
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
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<(RGBColor, Spread)>,
}

/// How numbers become heights and positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// By powers of ten.
    Log,
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            // Nothing that is shown is smaller, and 0 has no logarithm.
            Scale::Log => value.max(1e-3).log10(),
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Scale::Linear => place,
            Scale::Log => 10_f64.powf(place),
        }
    }

    /// Where bars begin on an axis that begins at `low`.
    fn ground(self, low: f64) -> f64 {
        match self {
            Scale::Linear => 0.0,
            Scale::Log => low,
        }
    }

    /// Where an axis begins and ends that shows these values.
    fn range(self, values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let most = values.clone().fold(0.0, f64::max);
        match self {
            Scale::Linear => match values.fold(0.0, f64::min) {
                0.0 if most == 0.0 => (0.0, 1.0),
                least => (least * 1.15, most * 1.15),
            },
            Scale::Log => {
                let least = values.filter(|value| *value > 0.0).fold(most, f64::min);
                let (low, high) = (self.place(least).floor(), self.place(most).ceil());
                (low, high.max(low + 1.0))
            }
        }
    }
}

/// Bars at the median, with whiskers to the extremes, up and down from 0 on a linear
/// scale.
/// `level` is a height that deserves a line.
pub(crate) fn bars(title: &str, groups: &[Group], level: Option<f64>) -> String {
    bars_on(Scale::Linear, title, groups, level)
}

/// The same on a scale.
pub(crate) fn bars_on(scale: Scale, title: &str, groups: &[Group], level: Option<f64>) -> String {
    let spreads = groups.iter().flat_map(|group| &group.bars);
    let ends = spreads.flat_map(|(_, spread)| [spread.min, spread.median, spread.max]);
    let (low, high) = scale.range(ends.chain(level));
    draw(title, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(14)
            .x_label_area_size(30)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..groups.len() as f64, low..high)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_labels(6)
            .y_label_formatter(&|place| axis_large(scale.value(*place)))
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style((FONT, 12).into_font().color(&TEXT))
            .draw()?;
        let label = |size| (FONT, size).into_font().color(&TEXT);
        let above = Pos::new(HPos::Center, VPos::Bottom);
        for (index, group) in groups.iter().enumerate() {
            let bottom = chart.backend_coord(&(index as f64 + 0.5, low));
            let style = label(13).pos(Pos::new(HPos::Center, VPos::Top));
            let place = (bottom.0, bottom.1 + 9);
            area.draw(&Text::new(group.label.clone(), place, style))?;
            let width = 0.84 / group.bars.len().max(1) as f64;
            for (bar, (colour, spread)) in group.bars.iter().enumerate() {
                let [min, median, max] =
                    [spread.min, spread.median, spread.max].map(|value| scale.place(value));
                let left = index as f64 + 0.08 + bar as f64 * width;
                let (right, middle) = (left + width * 0.9, left + width * 0.45);
                chart.plotting_area().draw(&Rectangle::new(
                    [(left, scale.ground(low)), (right, median)],
                    colour.filled(),
                ))?;
                if max > min {
                    let whisker = PathElement::new([(middle, min), (middle, max)], TEXT);
                    chart.plotting_area().draw(&whisker)?;
                }
                // Narrow bars have no room for a number.
                if group.bars.len() * groups.len() <= 24 {
                    let (x, y) = chart.backend_coord(&(middle, max));
                    let text = short(spread.median);
                    area.draw(&Text::new(text, (x, y - 3), label(10).pos(above)))?;
                }
            }
        }
        if let Some(level) = level.map(|level| scale.place(level)) {
            let line = [(0.0, level), (groups.len() as f64, level)];
            chart
                .plotting_area()
                .draw(&PathElement::new(line, TEXT.mix(0.35)))?;
        }
        Ok(())
    })
}

/// Points that a line connects.
pub(crate) struct Line {
    pub(crate) colour: RGBColor,
    pub(crate) width: u32,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over an axis with a name and a scale; none with fewer than two places on it.
pub(crate) fn lines(
    title: &str,
    (across, along): (&str, Scale),
    scale: Scale,
    lines: &[Line],
) -> Option<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let places = || points().map(|point| along.place(point.0));
    let (left, right) = (places().reduce(f64::min)?, places().reduce(f64::max)?);
    if left >= right {
        return None;
    }
    let (low, high) = scale.range(points().map(|point| point.1));
    Some(draw(title, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(18)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right, low..high)?;
        chart
            .configure_mesh()
            .x_desc(across)
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&|place| axis_large(along.value(*place)))
            .y_label_formatter(&|place| axis_large(scale.value(*place)))
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(FAINT)
            .label_style((FONT, 12).into_font().color(&TEXT))
            .draw()?;
        for line in lines {
            let placed = |point: &(f64, f64)| (along.place(point.0), scale.place(point.1));
            let style = line.colour.stroke_width(line.width);
            chart.draw_series(LineSeries::new(line.points.iter().map(placed), style))?;
            let dots = line.points.iter().map(placed);
            chart.draw_series(dots.map(|dot| Circle::new(dot, 3, line.colour.filled())))?;
        }
        Ok(())
    }))
}

/// A large number beside an axis, or a small one without digits that say nothing.
pub(crate) fn axis_large(value: f64) -> String {
    if value < 10_000.0 {
        return axis_number(value);
    }
    large(value)
}

/// A number beside an axis, without digits that say nothing.
pub(crate) fn axis_number(value: f64) -> String {
    if value >= 10.0 || value == 0.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_has_0_and_room_for_what_is_below() {
        let range = |values: &[f64]| Scale::Linear.range(values.iter().copied());
        assert_eq!(range(&[]), (0.0, 1.0));
        assert_eq!(range(&[2.0, 4.0]), (0.0, 4.0 * 1.15));
        assert_eq!(range(&[-2.0, 4.0]), (-2.0 * 1.15, 4.0 * 1.15));
        assert_eq!(range(&[-2.0]), (-2.0 * 1.15, 0.0));
    }
}
