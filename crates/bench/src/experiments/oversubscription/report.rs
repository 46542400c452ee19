//! Reports of oversubscription, in the manner of the paper's Figure 7.

use std::fmt::Write as _;

use crate::cell::report as cells;
use crate::cell::report::{Repeats, plus_minus, repeats};
use crate::cell::row::Row;
use crate::experiments::oversubscription::{OversubscriptionRow, clients};
use crate::harness::figure::Figure;
use crate::harness::number::{MARKED, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, scheduler_colour};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// What is wanted of UFS: as much as RR and EEVDF have at every point, and with so
/// many clients for each CPU this much more than RR; the paper has 1.10.
const MANY: u32 = 3;
const OF_RR_WITH_MANY: f64 = 1.05;

impl Record for OversubscriptionRow {
    fn table(report: &Report<OversubscriptionRow>) -> String {
        table(report)
    }

    fn page(report: &Report<OversubscriptionRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<OversubscriptionRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<OversubscriptionRow>) -> Vec<Target> {
        targets(&Points::of(report))
    }

    fn figures(report: &Report<OversubscriptionRow>) -> Vec<Figure> {
        let points = Points::of(report);
        let of = |one: Scheduler, other: Scheduler, count: u32, paper| {
            let point = points.find(&one, count);
            let measured = point.and_then(|point| points.over(point, &other));
            let (one, other) = (one.label(), other.label());
            let what = format!("clients for each CPU: {count}, {one} of {other}");
            Figure::ratio(what, "Figure 7", paper, measured)
        };
        vec![
            of(Scheduler::Eevdf, Scheduler::Ufs, 1, "0.50"),
            of(Scheduler::Eevdf, Scheduler::Ufs, 2, "0.57"),
            of(Scheduler::Eevdf, Scheduler::Ufs, 3, "0.76"),
            of(Scheduler::Ufs, Scheduler::Rr, 3, "1.10"),
        ]
    }
}

/// The points of the figure, and how they compare.
struct Points<'a>(Vec<Repeats<'a>>);

impl<'a> Points<'a> {
    fn of(report: &'a Report<OversubscriptionRow>) -> Self {
        Points(repeats(report, clients))
    }

    /// How many clients a CPU has, each number once.
    fn clients(&self) -> Vec<u32> {
        let mut clients: Vec<u32> = self.0.iter().map(clients_of).collect();
        clients.dedup();
        clients
    }

    fn at(&self, count: u32) -> impl Iterator<Item = &Repeats<'a>> {
        self.0
            .iter()
            .filter(move |point| clients_of(point) == count)
    }

    fn find(&self, scheduler: &Scheduler, count: u32) -> Option<&Repeats<'a>> {
        self.at(count).find(|point| point.scheduler() == scheduler)
    }

    /// A point's throughput over that of another scheduler, with as many clients.
    fn over(&self, point: &Repeats<'_>, other: &Scheduler) -> Option<f64> {
        let other = tps(self.find(other, clients_of(point))?)?;
        let this = tps(point)?;
        (other > 0.0).then_some(this / other)
    }
}

fn clients_of(point: &Repeats<'_>) -> u32 {
    point.rows.first().map_or(0, |row| clients(row))
}

fn tps(point: &Repeats<'_>) -> Option<f64> {
    point.median(|row| row.ts_tps)
}

fn heading(report: &Report<OversubscriptionRow>) -> Vec<String> {
    let mut lines = cells::heading(report);
    lines.extend(cells::beware(report));
    lines
}

fn table(report: &Report<OversubscriptionRow>) -> String {
    let points = Points::of(report);
    let mut text = heading(report).join("\n");
    text.push('\n');
    for count in points.clients() {
        let _ = write!(
            text,
            "\n{count} time-sensitive client{} for each CPU, beside one of Q17; MIN:MAX\n  \
             {:<11} {:>13} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
            if count == 1 { "" } else { "s" },
            "",
            "TPC-C tps",
            "/rr",
            "/eevdf",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "Q17/s",
        );
        for point in points.at(count) {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), short);
            let tail = |number: fn(&Row) -> Option<f64>, share| {
                cells::percentile(&point.rows, number, share).unwrap_or("-".to_owned())
            };
            let ratio = |other| {
                points
                    .over(point, other)
                    .map_or("-".to_owned(), |r| format!("{r:.3}"))
            };
            let tps = point.spread(|row| row.ts_tps);
            let _ = writeln!(
                text,
                "  {:<11} {:>13} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
                point.label(11),
                tps.map_or("-".to_owned(), plus_minus),
                ratio(&Scheduler::Rr),
                ratio(&Scheduler::Eevdf),
                tail(|row| row.ts_p50_ms, 0.5),
                tail(|row| row.ts_p95_ms, 0.95),
                tail(|row| row.ts_p99_ms, 0.99),
                number(point.median(|row| row.bg_per_s)),
            );
        }
    }
    text.push_str("\nMedians; ± half the range of the repeats.\n");
    text.push_str(MARKED);
    text + &target::lines("UFS's throughput, of another's", &targets(&points))
}

fn targets(points: &Points<'_>) -> Vec<Target> {
    let mut targets = Vec::new();
    for count in points.clients() {
        let Some(ufs) = points.find(&Scheduler::Ufs, count) else {
            continue;
        };
        for other in [Scheduler::Rr, Scheduler::Eevdf] {
            let (least, bound) = match (count, &other) {
                (MANY, Scheduler::Rr) => (OF_RR_WITH_MANY, "at least 1.05"),
                _ => (1.0, "at least 1"),
            };
            if let Some(ratio) = points.over(ufs, &other) {
                targets.push(Target {
                    what: format!("{count} for each CPU, of {}", other.label()),
                    bound,
                    measured: format!("{ratio:.3}"),
                    met: ratio >= least,
                });
            }
        }
    }
    targets
}

fn sentence(report: &Report<OversubscriptionRow>) -> String {
    let points = Points::of(report);
    let ratios: Vec<String> = points
        .clients()
        .into_iter()
        .filter_map(|count| {
            let ufs = points.find(&Scheduler::Ufs, count)?;
            let ratio = points.over(ufs, &Scheduler::Rr)?;
            Some(format!("{ratio:.2} with {count}"))
        })
        .collect();
    if ratios.is_empty() {
        return "These rows do not have both UFS and RR, so they do not compare them.".to_owned();
    }
    format!(
        "With more time-sensitive clients for each CPU, UFS has this much of RR's throughput: {}; \
         {}.",
        ratios.join(", "),
        target::summary(&targets(&points))
    )
}

fn html(report: &Report<OversubscriptionRow>) -> String {
    let points = Points::of(report);
    let mut page = page::begin(
        &report.experiment,
        "More urgent clients than CPUs",
        &heading(report),
        &sentence(report),
    );
    let note = "UFS's throughput over that of another scheduler with as many clients.";
    target::section(&mut page, note, "clients", &targets(&points));
    page::section(
        &mut page,
        "Throughput",
        "TPC-C with the highest priority and one, two and three clients for each CPU, Q17 with the \
         lowest and one. Bars are medians over the repeats, whiskers the extremes. After the UFS \
         paper's Figure 7.",
    );
    let mut schedulers: Vec<&Scheduler> = Vec::new();
    for point in &points.0 {
        if !schedulers.contains(&point.scheduler()) {
            schedulers.push(point.scheduler());
        }
    }
    let names = schedulers
        .iter()
        .map(|one| (scheduler_colour(one), one.label()));
    page::legend(&mut page, names);
    let of = |point: &Repeats<'_>| {
        let spread = point.spread(|row| row.ts_tps)?;
        Some((scheduler_colour(point.scheduler()), spread))
    };
    let group = |count| Group {
        label: format!("{count} for each CPU"),
        bars: points.at(count).filter_map(of).collect(),
    };
    let groups: Vec<Group> = points.clients().into_iter().map(group).collect();
    let title = "TPC-C transactions per second";
    page::plots(&mut page, &[canvas::bars(title, &groups, None)]);
    cells::numbers(&mut page, &table(report));
    cells::environment(
        &mut page,
        report,
        "Priorities are those of the paper's Table 2.",
    );
    page::end(page)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::cell::config::Mix;
    use crate::experiments::mixed::report::samples as mixed;

    /// Three repeats in the shape that the paper found, with round numbers.
    pub(crate) fn report() -> Report<OversubscriptionRow> {
        let mut report = mixed::report();
        report.rows.clear();
        for repeat in 0..3 {
            let vary = 1.0 + 0.01 * (f64::from(repeat) - 1.0);
            for (count, eevdf, rr, ufs) in [
                (1, 200.0, 400.0, 404.0),
                (2, 300.0, 500.0, 530.0),
                (3, 450.0, 540.0, 594.0),
            ] {
                let schedulers = [Scheduler::Eevdf, Scheduler::Rr, Scheduler::Ufs];
                for (scheduler, tps) in schedulers.into_iter().zip([eevdf, rr, ufs]) {
                    let tps = Some(tps * vary);
                    let mut row = mixed::row(scheduler, Mix::MinMax, repeat, tps, 10.0, Some(50.0));
                    row.terminals = 4 * count;
                    report.rows.push(row);
                }
            }
        }
        report.of_kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_is_compared_with_others_of_as_many_clients() {
        let text = table(&samples::report());
        let section = text.split("\n2 time-sensitive clients").nth(1).unwrap();
        let line = section.lines().find(|line| line.contains("UFS")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..5], ["UFS", "530", "±5.30", "1.060", "1.767"]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn three_clients_for_each_cpu_have_a_target_of_their_own() {
        let mut report = samples::report();
        let missed = |report: &Report<OversubscriptionRow>| {
            let targets = targets(&Points::of(report)).into_iter();
            let missed = targets.filter(|target| !target.met);
            missed.map(|target| target.what).collect::<Vec<_>>()
        };
        assert_eq!(targets(&Points::of(&report)).len(), 6);
        assert_eq!(missed(&report), Vec::<String>::new());
        assert!(sentence(&report).contains("1.01 with 1, 1.06 with 2, 1.10 with 3; all 6"));
        for OversubscriptionRow(row) in &mut report.rows {
            // Still ahead of RR with two, and with three by 4 %.
            if row.scheduler == Scheduler::Ufs && clients(row) > 1 {
                row.ts_tps = row.ts_tps.map(|tps| tps * 0.95);
            }
        }
        assert_eq!(missed(&report), ["3 for each CPU, of RR"]);
        report.rows.retain(|row| row.0.scheduler != Scheduler::Rr);
        assert!(sentence(&report).contains("do not compare"));
        assert_eq!(targets(&Points::of(&report)).len(), 3);
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 1);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let mut report = samples::report();
        report.rows.clear();
        assert!(html(&report).ends_with("</html>\n"));
    }
}
