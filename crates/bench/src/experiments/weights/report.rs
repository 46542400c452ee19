//! Reports of weights in both tiers, in the manner of the paper's Figure 8.

use std::fmt::Write as _;

use plotters::style::{Color, RGBColor, WHITE};

use crate::cell::report as cells;
use crate::cell::report::{Repeats, plus_minus, repeats};
use crate::cell::row::Row;
use crate::experiments::weights::{WeightsRow, error, pair};
use crate::harness::figure::Figure;
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, scheduler_colour};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// How far a ratio may be from that of the weights.
const WITHIN: f64 = 0.08;
/// The kinds of work, whether they are bursty, and what a round is called.
const KINDS: [(&str, bool, &str); 2] = [
    ("Time-sensitive: TPC-C", true, "transactions a second"),
    ("Background: Q17", false, "queries a second"),
];

impl Record for WeightsRow {
    fn table(report: &Report<WeightsRow>) -> String {
        table(report)
    }

    fn page(report: &Report<WeightsRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<WeightsRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<WeightsRow>) -> Vec<Target> {
        targets(&schedulers(report))
    }

    fn figures(report: &Report<WeightsRow>) -> Vec<Figure> {
        let schedulers = schedulers(report);
        let of = |scheduler: Scheduler, bursty: bool, paper| {
            let one = schedulers.iter().find(|one| *one.scheduler() == scheduler);
            let tier = if bursty {
                "time-sensitive"
            } else {
                "background"
            };
            let what = format!("{}, {tier}: lighter of heavier", scheduler.label());
            let ratio = |row: &Row| {
                let [heavy, light] = pair(row, bursty)?;
                (heavy.per_s > 0.0).then(|| light.per_s / heavy.per_s)
            };
            let measured = one.and_then(|one| one.median(ratio));
            Figure::ratio(what, "Figure 8", paper, measured)
        };
        vec![
            of(Scheduler::Eevdf, true, "near 1"),
            of(Scheduler::Eevdf, false, "0.67"),
            of(Scheduler::Ufs, true, "0.67"),
            of(Scheduler::Ufs, false, "0.67"),
        ]
    }
}

/// A number of the heavier class, or of the lighter.
fn of_class(row: &Row, bursty: bool, heavy: bool, number: fn(f64, f64) -> f64) -> Option<f64> {
    let [three, two] = pair(row, bursty)?;
    let class = if heavy { three } else { two };
    Some(number(class.per_s, class.busy_fraction))
}

fn schedulers(report: &Report<WeightsRow>) -> Vec<Repeats<'_>> {
    repeats(report, |_| ())
}

fn heading(report: &Report<WeightsRow>) -> Vec<String> {
    let mut lines = cells::heading(report);
    let classes = report.rows.first().map(|row| row.0.classes.as_slice());
    if let Some([first, ..]) = classes {
        lines.push(format!("Clients of each class: {}", first.clients));
    }
    lines.extend(cells::beware(report));
    lines
}

/// The weights of a kind of work, `10000 and 6667`.
fn weights(schedulers: &[Repeats<'_>], bursty: bool) -> Option<String> {
    let rows = schedulers.iter().flat_map(|one| &one.rows);
    let [heavy, light] = rows.filter_map(|row| pair(row, bursty)).next()?;
    Some(format!("{} and {}", heavy.weight, light.weight))
}

fn table(report: &Report<WeightsRow>) -> String {
    let schedulers = schedulers(report);
    let mut text = heading(report).join("\n");
    text.push('\n');
    for (kind, bursty, unit) in KINDS {
        let Some(weights) = weights(&schedulers, bursty) else {
            continue;
        };
        let _ = write!(
            text,
            "\n{kind}, weights {weights}; {unit}\n  {:<11} {:>13} {:>13} {:>10} {:>10} {:>10}\n",
            "", "weight 3", "weight 2", "2 over 3", "of 2/3", "CPU 2/3"
        );
        for one in &schedulers {
            let per_s = |heavy| {
                let spread = one.spread(|row| of_class(row, bursty, heavy, |per_s, _| per_s));
                spread.map_or("-".to_owned(), plus_minus)
            };
            let ratio = |number: fn(f64, f64) -> f64| {
                let of = |row: &Row| {
                    let heavy = of_class(row, bursty, true, number)?;
                    let light = of_class(row, bursty, false, number)?;
                    (heavy > 0.0).then_some(light / heavy)
                };
                one.median(of)
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
            };
            let of_weights = one.median(|row| error(row, bursty));
            let _ = writeln!(
                text,
                "  {:<11} {:>13} {:>13} {:>10} {:>10} {:>10}",
                one.label(11),
                per_s(true),
                per_s(false),
                ratio(|per_s, _| per_s),
                of_weights.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                ratio(|_, busy| busy),
            );
        }
    }
    text.push_str(
        "\n2 over 3: the lighter class's throughput over the heavier's; of 2/3: as a\n\
         multiple of what the weights say; CPU 2/3: the same of CPU time. Medians;\n\
         ± half the range of the repeats.\n",
    );
    text + &target::lines("throughput by weight", &targets(&schedulers))
}

fn targets(schedulers: &[Repeats<'_>]) -> Vec<Target> {
    let ufs = schedulers
        .iter()
        .find(|one| *one.scheduler() == Scheduler::Ufs);
    let of = |(kind, bursty, _): (&str, bool, &str)| {
        let error = ufs?.median(|row| error(row, bursty))?;
        Some(Target {
            what: format!("UFS, {}", kind.split(':').next().unwrap_or_default()),
            bound: "2/3 within 8 %",
            measured: format!("{:+.1} %", (error - 1.0) * 100.0),
            met: (error - 1.0).abs() <= WITHIN,
        })
    };
    KINDS.into_iter().filter_map(of).collect()
}

fn sentence(report: &Report<WeightsRow>) -> String {
    let schedulers = schedulers(report);
    let ratios: Vec<String> = schedulers
        .iter()
        .filter_map(|one| {
            let [bursty, background] = [true, false].map(|bursty| {
                let error = one.median(|row| error(row, bursty));
                error.map(|error| format!("{error:.2}"))
            });
            Some(format!(
                "{} and {} under {}",
                bursty?,
                background?,
                one.scheduler().label()
            ))
        })
        .collect();
    if ratios.is_empty() {
        return "No class did anything, so there are no ratios.".to_owned();
    }
    let text = format!(
        "Of two classes with weights 2 and 3 the lighter has this much of the throughput that its \
         weight says, time-sensitive and in the background: {}",
        ratios.join(", ")
    );
    match targets(&schedulers).as_slice() {
        [] => format!("{text}."),
        targets => format!("{text}; {}.", target::summary(targets)),
    }
}

/// The colour of a class: the lighter one's is paler.
fn colour(scheduler: &Scheduler, heavy: bool) -> RGBColor {
    let full = scheduler_colour(scheduler);
    if heavy {
        return full;
    }
    let pale = |of: u8, white: u8| of / 2 + white / 2;
    let (RGBColor(red, green, blue), (r, g, b)) = (full, WHITE.rgb());
    RGBColor(pale(red, r), pale(green, g), pale(blue, b))
}

fn html(report: &Report<WeightsRow>) -> String {
    let schedulers = schedulers(report);
    let mut page = page::begin(
        &report.experiment,
        "Weights inside both tiers",
        &heading(report),
        &sentence(report),
    );
    let note = "How far the ratio of the classes' throughputs is from that of their weights.";
    target::section(&mut page, note, "tier", &targets(&schedulers));
    page::section(
        &mut page,
        "Throughput of the four classes",
        "Each tier has two classes of the same work, with weights as 3 (the full colour) and 2. \
         Where throughput is by weight, the second bar of a pair is two thirds of the first. Bars \
         are medians over the repeats, whiskers the extremes. After the UFS paper's Figure 8.",
    );
    let figure = |(kind, bursty, unit): (&str, bool, &str)| {
        let group = |one: &Repeats<'_>| Group {
            label: one.scheduler().label(),
            bars: [true, false]
                .into_iter()
                .filter_map(|heavy| {
                    let of = |row: &Row| of_class(row, bursty, heavy, |per_s, _| per_s);
                    Some((colour(one.scheduler(), heavy), one.spread(of)?))
                })
                .collect(),
        };
        let groups: Vec<Group> = schedulers.iter().map(group).collect();
        canvas::bars(&format!("{kind}, {unit}"), &groups, None)
    };
    page::plots(&mut page, &KINDS.map(figure));
    cells::numbers(&mut page, &table(report));
    cells::environment(
        &mut page,
        report,
        "The server's own processes are in the cgroup of the heavier time-sensitive class.",
    );
    page::end(page)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::cell::config::{CellConfig, Mix};
    use crate::cell::row::ClassRow;
    use crate::experiments::mixed::report::samples as mixed;

    /// A row whose classes have these throughputs, in the order of the mix.
    pub(crate) fn row(scheduler: Scheduler, repeat: u32, per_s: [f64; 4]) -> Row {
        let (tps, bg) = (per_s[0] + per_s[1], per_s[2] + per_s[3]);
        let mut row = mixed::row(scheduler, Mix::TwoThree, repeat, Some(tps), 10.0, Some(bg));
        let config = CellConfig {
            mix: Mix::TwoThree,
            ..CellConfig::default()
        };
        let classes = config.classes().into_iter().zip(per_s);
        row.classes = classes
            .map(|(class, per_s)| ClassRow {
                work: class.work,
                tier: class.tier,
                weight: class.weight,
                clients: class.clients,
                per_s,
                busy_fraction: per_s / 1_000.0,
            })
            .collect();
        row
    }

    /// Three repeats in the shape that the paper found, with round numbers.
    pub(crate) fn report() -> Report<WeightsRow> {
        let mut report = mixed::report();
        report.rows.clear();
        for repeat in 0..3 {
            let vary = 1.0 + 0.02 * (f64::from(repeat) - 1.0);
            for (scheduler, per_s) in [
                (Scheduler::Eevdf, [80.0, 80.0, 60.0, 40.0]),
                (Scheduler::Ufs, [200.0, 136.0, 6.0, 3.96]),
            ] {
                let per_s = per_s.map(|per_s| per_s * vary);
                report.rows.push(row(scheduler, repeat, per_s));
            }
        }
        report.of_kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tiers_have_their_ratio_and_its_error() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let section = text
            .split("Time-sensitive: TPC-C, weights 10000 and 6667")
            .nth(1);
        let words = |name: &str, nth: usize| {
            let lines = section.unwrap().lines().filter(|line| line.contains(name));
            let line = lines.into_iter().nth(nth).unwrap();
            Vec::from_iter(line.split_whitespace().map(str::to_owned))
        };
        let eevdf = [
            "EEVDF", "80.0", "±1.60", "80.0", "±1.60", "1.000", "1.500", "1.000",
        ];
        assert_eq!(words("EEVDF", 0), eevdf);
        assert_eq!(words("UFS", 0)[5..], ["0.680", "1.020", "0.680"]);
        assert_eq!(words("UFS", 1)[5..], ["0.660", "0.990", "0.660"]);
    }

    #[test]
    fn a_ratio_may_miss_on_either_side() {
        let mut report = samples::report();
        let met = |report: &Report<WeightsRow>| {
            let targets = targets(&schedulers(report)).into_iter();
            targets.map(|target| target.met).collect::<Vec<_>>()
        };
        assert_eq!(met(&report), [true, true]);
        assert!(sentence(&report).contains("1.02 and 0.99 under UFS; all 2 targets are met"));
        let mut set = |at: usize, per_s: f64| {
            for WeightsRow(row) in &mut report.rows {
                row.classes[at].per_s = per_s;
            }
            met(&report)
        };
        // 0.75 of the heavier class's throughput, about.
        assert_eq!(set(1, 150.0), [false, true]);
        assert_eq!(set(3, 3.0), [false, false]);
        assert_eq!(set(1, 136.0), [true, false]);
    }

    #[test]
    fn rows_in_which_nothing_was_done_have_no_ratios() {
        let mut report = samples::report();
        for WeightsRow(row) in &mut report.rows {
            row.classes.iter_mut().for_each(|class| class.per_s = 0.0);
        }
        assert!(sentence(&report).contains("no ratios"));
        assert!(
            table(&report)
                .lines()
                .all(|line| line.chars().count() <= 80)
        );
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 2);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let mut report = samples::report();
        report.rows.clear();
        assert!(html(&report).ends_with("</html>\n"));
    }
}
