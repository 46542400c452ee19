//! Figures 1 and 2, as plots.

use giveway_metasched::policy::Policy;
use plotters::style::RGBColor;

use super::{Number, P99, PARTS, Summary, THROUGHPUT};
use crate::experiments::meta::Under;
use crate::experiments::meta::applications::ASK;
use crate::render::canvas::{self, Group, Line, Scale};
use crate::render::page;

const COLOURS: [RGBColor; 3] = [
    RGBColor(184, 190, 198),
    RGBColor(240, 173, 88),
    RGBColor(22, 108, 196),
];
const POLICY_COLOURS: [RGBColor; 4] = [
    RGBColor(120, 130, 142),
    RGBColor(22, 108, 196),
    RGBColor(92, 158, 104),
    RGBColor(208, 92, 66),
];
/// Colour of the best single scheduler, beside policies.
const SINGLE: RGBColor = RGBColor(214, 218, 222);

impl Summary<'_> {
    /// Both figures, as sections of a page.
    pub(crate) fn figures(&self, page: &mut String) {
        page::section(
            page,
            "Applications",
            "The front end and the back end alone, and requests that go through both, under \
             each scheduler, in percent of EEVDF less 100.",
        );
        let names = COLOURS.into_iter().zip(PARTS.map(str::to_owned));
        page::legend(page, names);
        page::plots(
            page,
            &[
                self.bars("Throughput, % (more is better)", THROUGHPUT),
                self.bars("99th percentile, % (less is better)", P99),
            ],
        );
        let curves = [
            self.curves("Throughput while schedulers take turns, %", THROUGHPUT),
            self.curves("99th percentile while schedulers take turns, %", P99),
        ];
        let curves: Vec<String> = curves.into_iter().flatten().collect();
        if !curves.is_empty() {
            page::section(
                page,
                "Turns",
                "Requests that go through both, by policy and base timeslice, in percent of \
                 EEVDF less 100.",
            );
            let names = Policy::ALL.map(|policy| policy.word().to_owned());
            let names = POLICY_COLOURS.into_iter().zip(names);
            page::legend(
                page,
                names.chain([(SINGLE, "best single scheduler".to_owned())]),
            );
            page::plots(page, &curves);
        }
    }

    fn bars(&self, title: &str, number: Number) -> String {
        let group = |under: &Under| {
            let bars = PARTS.into_iter().zip(COLOURS);
            let bars =
                bars.filter_map(|(part, colour)| Some((colour, self.change(part, under, number)?)));
            Group {
                label: under.to_string().trim_start_matches("scx_").to_owned(),
                bars: bars.collect(),
            }
        };
        let groups: Vec<Group> = self.singles().into_iter().map(group).collect();
        canvas::bars(title, &groups, Some(0.0))
    }

    /// None with fewer than two base timeslices.
    fn curves(&self, title: &str, number: Number) -> Option<String> {
        let policies = self.policies();
        let points = |wanted: Policy| {
            let points = policies.iter().filter_map(|under| match under {
                Under::Fixed {
                    policy,
                    base_timeslice_ms,
                } if *policy == wanted => {
                    let change = self.change(ASK, under, number)?;
                    Some((*base_timeslice_ms, change.median))
                }
                _ => None,
            });
            let mut points: Vec<(f64, f64)> = points.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let mut lines: Vec<Line> = Policy::ALL
            .into_iter()
            .zip(POLICY_COLOURS)
            .map(|(policy, colour)| Line {
                colour,
                width: 2,
                points: points(policy),
            })
            .collect();
        if let (false, Some(single)) = (policies.is_empty(), self.best_single()) {
            let level = self.change(ASK, single.under, number)?.median;
            let places = lines
                .iter()
                .flat_map(|line| line.points.iter().map(|p| p.0));
            let (first, last) = places.fold((f64::MAX, 0.0_f64), |(first, last), place| {
                (first.min(place), last.max(place))
            });
            lines.push(Line {
                colour: SINGLE,
                width: 2,
                points: vec![(first, level), (last, level)],
            });
        }
        canvas::lines(
            title,
            ("base timeslice, ms", Scale::Log),
            Scale::Linear,
            &lines,
        )
    }
}
