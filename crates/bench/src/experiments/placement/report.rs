//! Reports of where bursty work ran, in the manner of the paper's Figure 2.

use std::fmt::Write as _;

use crate::cell::report as cells;
use crate::cell::report::{Repeats, repeats};
use crate::cell::row::Row;
use crate::experiments::placement::{PlacementRow, shares, skew};
use crate::harness::figure::Figure;
use crate::harness::number::{Spread, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, scheduler_colour};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// What is wanted of UFS: the largest per-CPU share over the smallest.
const MOST: f64 = 1.2;
/// Shares that fit a line.
const COLUMNS: usize = 8;

impl Record for PlacementRow {
    fn table(report: &Report<PlacementRow>) -> String {
        table(report)
    }

    fn page(report: &Report<PlacementRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<PlacementRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<PlacementRow>) -> Vec<Target> {
        targets(report)
    }

    fn figures(report: &Report<PlacementRow>) -> Vec<Figure> {
        let schedulers = schedulers(report);
        let of = |scheduler: Scheduler, paper| {
            let one = schedulers.iter().find(|one| *one.scheduler() == scheduler);
            let what = format!("{}: most CPU of least", scheduler.label());
            let measured = one.and_then(|one| one.median(skew));
            Figure::ratio(what, "Figure 2", paper, measured).unit(" x")
        };
        vec![
            of(Scheduler::Eevdf, "piles up"),
            of(Scheduler::Rr, "even"),
            of(Scheduler::Ufs, "even"),
        ]
    }
}

fn schedulers(report: &Report<PlacementRow>) -> Vec<Repeats<'_>> {
    repeats(report, |_| ())
}

/// Medians over the repeats of the CPU with the most bursty time, of that with the
/// second most, and so on: piles are on other CPUs each time.
fn medians(repeats: &Repeats<'_>) -> Vec<Spread> {
    let all: Vec<Vec<f64>> = repeats.rows.iter().filter_map(|row| shares(row)).collect();
    let cpus = all.iter().map(Vec::len).min().unwrap_or(0);
    let of = |cpu: usize| Spread::of(all.iter().map(|shares| shares[cpu]));
    (0..cpus).filter_map(of).collect()
}

/// At most [`COLUMNS`] of so many positions, the first and the last among them.
fn shown(count: usize) -> Vec<usize> {
    match count {
        0..=COLUMNS => (0..count).collect(),
        _ => {
            let place = |column| column * (count - 1) / (COLUMNS - 1);
            (0..COLUMNS).map(place).collect()
        }
    }
}

/// Context switches a second, of all CPUs.
fn switches(row: &Row) -> Option<f64> {
    let all: u64 = row.placement.iter().map(|cpu| cpu.switches).sum();
    (!row.placement.is_empty()).then_some(all as f64 / row.seconds)
}

fn heading(report: &Report<PlacementRow>) -> Vec<String> {
    let mut lines = cells::heading(report);
    lines.extend(cells::beware(report));
    lines
}

fn table(report: &Report<PlacementRow>) -> String {
    let mut text = heading(report).join("\n");
    let schedulers = schedulers(report);
    let columns = schedulers.iter().map(|one| medians(one).len()).max();
    let columns = shown(columns.unwrap_or(0));
    text.push_str("\n\nTPC-C's time on each CPU, of that on the CPU with the most; MIN:MAX\n");
    let _ = write!(text, "  {:<9} {:>16}  ", "", "most over least");
    for cpu in &columns {
        let _ = write!(text, " {:>4}", format!("{}.", cpu + 1));
    }
    let _ = writeln!(text, " {:>8}", "sw./s");
    for one in &schedulers {
        let medians = medians(one);
        let skew = one.spread(skew).map_or("-".to_owned(), |skew| {
            format!(
                "{} {}-{}",
                short(skew.median),
                short(skew.min),
                short(skew.max)
            )
        });
        let _ = write!(text, "  {:<9} {skew:>16}  ", one.label(9));
        for cpu in &columns {
            let share = medians
                .get(*cpu)
                .map(|share| format!("{:.2}", share.median));
            let _ = write!(text, " {:>4}", share.unwrap_or("-".to_owned()));
        }
        let switches = one
            .median(switches)
            .map_or("-".to_owned(), |s| format!("{s:.0}"));
        let _ = writeln!(text, " {switches:>8}");
    }
    text.push_str(
        "\nCPUs from the one with the most of TPC-C's time to the one with the least;\n\
         medians. most over least: median and range. sw./s: context switches a second.\n",
    );
    text + &target::lines("the largest share over the smallest", &targets(report))
}

fn targets(report: &Report<PlacementRow>) -> Vec<Target> {
    let schedulers = schedulers(report);
    let ufs = schedulers
        .iter()
        .find(|one| *one.scheduler() == Scheduler::Ufs);
    let skew = ufs.and_then(|ufs| ufs.median(skew));
    let target = skew.map(|skew| Target {
        what: "UFS".to_owned(),
        bound: "at most 1.2",
        measured: short(skew),
        met: skew <= MOST,
    });
    target.into_iter().collect()
}

fn sentence(report: &Report<PlacementRow>) -> String {
    let skews: Vec<String> = schedulers(report)
        .iter()
        .filter_map(|one| {
            let skew = short(one.median(skew)?);
            Some(format!("{skew} times under {}", one.scheduler().label()))
        })
        .collect();
    if skews.is_empty() {
        return "No context switches were traced.".to_owned();
    }
    let text = format!(
        "The CPU that has most of TPC-C's time has this much of what the one with the least has: {}",
        skews.join(", ")
    );
    match targets(report).as_slice() {
        [] => format!("{text}."),
        targets => format!("{text}; {}.", target::summary(targets)),
    }
}

fn html(report: &Report<PlacementRow>) -> String {
    let schedulers = schedulers(report);
    let mut page = page::begin(
        &report.experiment,
        "Where does bursty work run?",
        &heading(report),
        &sentence(report),
    );
    target::section(
        &mut page,
        "The largest of the CPUs' shares of bursty time over the smallest.",
        "scheduler",
        &targets(report),
    );
    page::section(
        &mut page,
        "Bursty time on each CPU",
        "TPC-C has the highest priority and Q17 the lowest. A bar is a CPU: TPC-C's time on it as \
         a share of that on the CPU with the most, from the most to the least. Bars of one height \
         are bursty work that is spread evenly. After the UFS paper's Figure 2.",
    );
    let groups: Vec<Group> = schedulers
        .iter()
        .map(|one| {
            let colour = scheduler_colour(one.scheduler());
            Group {
                label: one.scheduler().label(),
                bars: medians(one)
                    .into_iter()
                    .map(|share| (colour, share))
                    .collect(),
            }
        })
        .collect();
    let title = "TPC-C's time on each CPU, of that with the most";
    page::plots(&mut page, &[canvas::bars(title, &groups, Some(1.0))]);
    cells::numbers(&mut page, &table(report));
    cells::environment(
        &mut page,
        report,
        "Each context switch is traced, which makes it longer: throughput is \
         that of the experiment mixed, and not compared here.",
    );
    page::end(page)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::cell::config::Mix;
    use crate::cell::switches::CpuTime;
    use crate::experiments::mixed::report::samples as mixed;

    /// Three repeats, with round numbers: uneven under EEVDF, on other CPUs each
    /// time.
    pub(crate) fn report() -> Report<PlacementRow> {
        let mut report = mixed::report();
        report.rows.clear();
        for repeat in 0..3 {
            for (scheduler, seconds) in [
                (Scheduler::Eevdf, [2.0, 1.0, 0.5, 0.5]),
                (Scheduler::Rr, [2.0, 2.0, 2.0, 1.9]),
                (Scheduler::Ufs, [2.0, 1.9, 1.8, 1.8]),
            ] {
                let mut row = mixed::row(
                    scheduler,
                    Mix::MinMax,
                    repeat,
                    Some(300.0),
                    10.0,
                    Some(60.0),
                );
                let mut placement = seconds.map(|bursty_s| CpuTime {
                    bursty_s,
                    background_s: 4.0 - bursty_s,
                    switches: 8_000,
                });
                placement.rotate_left(repeat as usize);
                row.placement = placement.to_vec();
                report.rows.push(row);
            }
        }
        report.of_kind()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_compared_by_rank_so_that_piles_do_not_average_out() {
        let text = table(&samples::report());
        let words = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            Vec::from_iter(line.unwrap().split_whitespace().map(str::to_owned))
        };
        let eevdf = [
            "EEVDF",
            "4.00",
            "4.00-4.00",
            "1.00",
            "0.50",
            "0.25",
            "0.25",
            "8000",
        ];
        assert_eq!(words("EEVDF"), eevdf);
        assert_eq!(words("UFS")[..2], ["UFS", "1.11"]);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.contains("at most 1.2"), "{text}");
    }

    #[test]
    fn many_cpus_are_shown_from_the_first_to_the_last() {
        assert_eq!(shown(3), [0, 1, 2]);
        assert_eq!(shown(32), [0, 4, 8, 13, 17, 22, 26, 31]);
        let mut report = samples::report();
        for PlacementRow(row) in &mut report.rows {
            row.placement = vec![row.placement[0]; 32];
            row.scheduler = Scheduler::Scx("scx_a_very_long_name".to_owned());
        }
        let text = table(&report);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn the_target_is_ufs_s_and_can_be_missed() {
        let mut report = samples::report();
        let text = sentence(&report);
        assert!(text.contains("4.00 times under EEVDF"), "{text}");
        assert!(text.ends_with("the target is met."), "{text}");
        for PlacementRow(row) in &mut report.rows {
            if row.scheduler == Scheduler::Ufs {
                row.placement[1].bursty_s = 1.6;
            }
        }
        let text = sentence(&report);
        assert!(
            text.ends_with("the target is missed: UFS: 1.25 (at most 1.2)."),
            "{text}"
        );
        report.rows.retain(|row| row.0.scheduler != Scheduler::Ufs);
        assert!(targets(&report).is_empty());
        report.rows.clear();
        assert!(sentence(&report).contains("No context switches"));
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
