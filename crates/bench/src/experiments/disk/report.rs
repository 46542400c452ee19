//! Reports of TPC-C beside a background scan at one disk.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::cell::config::Mix;
use crate::cell::report as cells;
use crate::cell::report::{Repeats, percentile, plus_minus, repeats};
use crate::cell::row::Row;
use crate::cell::setup::Disk;
use crate::experiments::disk::DiskRow;
use crate::harness::figure::Figure;
use crate::harness::number::short;
use crate::render::canvas::{self, Group};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

/// What TPC-C is to keep of its throughput alone.
const KEPT: f64 = 0.9;
const KEPT_WORDS: &str = "at least 0.9";
/// The cells of each disk, and their colours.
const ARMS: [(Mix, bool, &str, RGBColor); 3] = [
    (Mix::Solo, false, "alone", RGBColor(120, 120, 120)),
    (Mix::MinMax, false, "beside a scan", RGBColor(214, 120, 60)),
    (
        Mix::MinMax,
        true,
        "with I/O priority",
        RGBColor(30, 100, 200),
    ),
];

impl Record for DiskRow {
    fn table(report: &Report<DiskRow>) -> String {
        table(report)
    }

    fn page(report: &Report<DiskRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<DiskRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<DiskRow>) -> Vec<Target> {
        targets(report)
    }

    fn figures(_: &Report<DiskRow>) -> Vec<Figure> {
        Vec::new()
    }

    fn setting(&self) -> String {
        let Row {
            request_us, cpus, ..
        } = self.0;
        format!("{cpus} server CPUs; the disk takes {request_us} us for a request")
    }
}

/// The cells of one disk that were measured, in the order of [`ARMS`].
struct OfDisk<'a> {
    disk: Disk,
    arms: [Option<Repeats<'a>>; ARMS.len()],
}

impl<'a> OfDisk<'a> {
    fn all(report: &'a Report<DiskRow>) -> Vec<Self> {
        let mut all: Vec<OfDisk<'a>> = Vec::new();
        for one in repeats(report, |row| (row.disk, row.mix, row.io_priority)) {
            let row = one.rows[0];
            let is_its =
                |arm: &(Mix, bool, &str, RGBColor)| (arm.0, arm.1) == (row.mix, row.io_priority);
            let Some(at) = ARMS.iter().position(is_its) else {
                continue;
            };
            if all.last().is_none_or(|last| last.disk != row.disk) {
                all.push(OfDisk {
                    disk: row.disk,
                    arms: [const { None }; ARMS.len()],
                });
            }
            let last = all.last_mut().expect("one was pushed if there was none");
            last.arms[at] = Some(one);
        }
        all
    }

    /// Throughput over that alone.
    fn kept(&self, arm: usize) -> Option<f64> {
        let tps = |at: usize| self.arms[at].as_ref()?.median(|row| row.ts_tps);
        Some(tps(arm)? / tps(0)?)
    }
}

fn targets(report: &Report<DiskRow>) -> Vec<Target> {
    // Without a scheduler nobody heeds a priority.
    let all = OfDisk::all(report).into_iter();
    let heed = all.filter(|one| one.disk != Disk::None);
    let target = |one: OfDisk<'_>| {
        let kept = one.kept(2)?;
        Some(Target {
            what: format!("{}: TPC-C kept", one.disk),
            bound: KEPT_WORDS,
            measured: format!("{kept:.2}"),
            met: kept >= KEPT,
        })
    };
    heed.filter_map(target).collect()
}

fn heading(report: &Report<DiskRow>) -> Vec<String> {
    let mut lines = cells::heading(report);
    if let Some(row) = report.rows.first() {
        lines.push(format!(
            "the disk takes {} us for a request; a scan by eight processes",
            row.0.request_us
        ));
    }
    lines.extend(cells::beware(report));
    lines
}

fn table(report: &Report<DiskRow>) -> String {
    let mut text = heading(report).join("\n");
    let _ = write!(
        text,
        "\n\n  {:<12} {:<17} {:>12} {:>5} {:>7} {:>7} {:>5} {:>5}\n",
        "disk", "TPC-C", "a second", "kept", "ms", "p95 ms", "MB/s", "CPUs"
    );
    for one in OfDisk::all(report) {
        for (at, (_, _, name, _)) in ARMS.iter().enumerate() {
            let Some(arm) = &one.arms[at] else { continue };
            let number = |of: fn(&Row) -> Option<f64>| arm.median(of).map_or("-".to_owned(), short);
            let tps = arm.spread(|row| row.ts_tps);
            let _ = writeln!(
                text,
                "  {:<12} {name:<17} {:>12} {:>5} {:>7} {:>7} {:>5} {:>5}",
                one.disk,
                tps.map_or("-".to_owned(), plus_minus),
                one.kept(at)
                    .map_or("-".to_owned(), |kept| format!("{kept:.2}")),
                number(|row| row.ts_mean_ms),
                percentile(&arm.rows, |row| row.ts_p95_ms, 0.95).unwrap_or("-".to_owned()),
                number(|row| row.disk_read_mb_per_s),
                number(|row| Some(row.busy_fraction)),
            );
        }
    }
    text.push_str(
        "\nMedians, ± half the range of the repeats. kept: throughput of TPC-C over that\n\
         alone. ms, p95 ms: latency of a transaction. MB/s: read from the disk, by the\n\
         scan. CPUs: busy share of the server's.\n",
    );
    text.push_str(&target::lines(
        "UFS with giveway.io_priority",
        &targets(report),
    ));
    text
}

fn sentence(report: &Report<DiskRow>) -> String {
    let all = OfDisk::all(report);
    let kept = |arm: usize| {
        let said = all.iter().filter_map(|one| {
            let kept = one.kept(arm)?;
            Some(format!("{kept:.2} ({})", one.disk))
        });
        Vec::from_iter(said).join(", ")
    };
    let (without, with) = (kept(1), kept(2));
    if without.is_empty() || with.is_empty() {
        return "These rows do not have TPC-C beside a scan both without and with I/O priority."
            .to_owned();
    }
    format!(
        "Beside a background scan at its disk, TPC-C keeps this much of its throughput: {without}; \
         with I/O priority {with}; {}.",
        target::summary(&targets(report))
    )
}

fn html(report: &Report<DiskRow>) -> String {
    let mut page = page::begin(
        &report.experiment,
        "TPC-C beside a scan at one disk",
        &heading(report),
        &sentence(report),
    );
    page::section(
        &mut page,
        "Throughput and latency",
        "TPC-C on a PostgreSQL server whose log and tables are on a disk with a queue, by the \
         disk's scheduler. Bars are medians over the repeats, whiskers the extremes.",
    );
    let names = ARMS
        .iter()
        .map(|(_, _, name, colour)| (*colour, (*name).to_owned()));
    page::legend(&mut page, names);
    let all = OfDisk::all(report);
    let plots = [
        bars("TPC-C transactions per second", &all, |row| row.ts_tps),
        bars("Mean latency of TPC-C, ms", &all, |row| row.ts_mean_ms),
        bars("MB per second read by the scan", &all, |row| {
            row.disk_read_mb_per_s
        }),
    ];
    page::plots(&mut page, &plots);
    target::section(
        &mut page,
        "Throughput of TPC-C with I/O priority over that alone.",
        "disk",
        &targets(report),
    );
    cells::numbers(&mut page, &table(report));
    cells::environment(
        &mut page,
        report,
        "The disk is null_blk's: each request takes the same time, and it has neither cache nor \
         head.",
    );
    page::end(page)
}

fn bars(title: &str, all: &[OfDisk<'_>], number: fn(&Row) -> Option<f64>) -> String {
    let group = |one: &OfDisk<'_>| Group {
        label: one.disk.to_string(),
        bars: one
            .arms
            .iter()
            .zip(ARMS)
            .filter_map(|(arm, (_, _, _, colour))| Some((colour, arm.as_ref()?.spread(number)?)))
            .collect(),
    };
    let groups: Vec<Group> = all.iter().map(group).collect();
    canvas::bars(title, &groups, None)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::cell::setup::{Build, By};
    use crate::experiments::mixed::report::samples as mixed;
    use crate::harness::scheduler::Scheduler;
    use crate::workload::background::Job;

    /// The mixed workload's rows of UFS, at disks.
    pub(crate) fn report() -> Report<DiskRow> {
        let mut report = mixed::report();
        report.rows.retain(|row| row.scheduler == Scheduler::Ufs);
        let of = |mix| {
            report
                .rows
                .iter()
                .find(|row| row.mix == mix)
                .cloned()
                .unwrap()
        };
        let (solo, beside) = (of(Mix::Solo), of(Mix::MinMax));
        report.rows.clear();
        for repeat in 0..3 {
            for (disk, tps) in [
                (Disk::None, [100.0, 40.0, 41.0]),
                (Disk::MqDeadline, [100.0, 42.0, 95.0]),
                (Disk::Bfq, [100.0, 60.0, 92.0]),
            ] {
                for ((mix, io_priority, ..), tps) in ARMS.into_iter().zip(tps) {
                    let row = if mix == Mix::Solo { &solo } else { &beside };
                    report.rows.push(Row {
                        repeat,
                        seed: 1 + u64::from(repeat),
                        by: By::Roles,
                        server: Build::Stock,
                        job: Job::Scan,
                        disk,
                        request_us: 1000,
                        io_priority,
                        disk_read_mb_per_s: Some(100.0),
                        ts_tps: Some(tps + f64::from(repeat) - 1.0),
                        ..row.clone()
                    });
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
    fn throughput_is_beside_that_alone_on_the_same_disk() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let line = |disk: &str, arm: &str| {
            let is_its = |line: &&str| line.starts_with(&format!("  {disk:<12} {arm}"));
            text.lines().find(is_its).unwrap().to_owned()
        };
        assert!(
            line("bfq", "with I/O").contains("92.0 ±1.00  0.92"),
            "{text}"
        );
        assert!(
            line("none", "beside").contains("40.0 ±1.00  0.40"),
            "{text}"
        );
    }

    #[test]
    fn a_disk_whose_scheduler_heeds_priorities_has_a_target() {
        let mut report = samples::report();
        let met = |report: &Report<DiskRow>| {
            let targets = targets(report).into_iter();
            Vec::from_iter(targets.map(|target| (target.what, target.met)))
        };
        let expected = |bfq| {
            [("mq-deadline: TPC-C kept", true), ("bfq: TPC-C kept", bfq)]
                .map(|(what, met)| (what.to_owned(), met))
        };
        assert_eq!(met(&report), expected(true));
        for row in &mut report.rows {
            if row.0.disk == Disk::Bfq && row.0.io_priority {
                row.0.ts_tps = Some(89.0);
            }
        }
        assert_eq!(met(&report), expected(false));
    }

    #[test]
    fn the_sentence_says_both_and_where_one_is_missing() {
        let mut report = samples::report();
        let said = sentence(&report);
        for part in [
            "throughput: 0.40 (none), 0.42 (mq-deadline), 0.60 (bfq); with",
            "0.92 (bfq)",
        ] {
            assert!(said.contains(part), "{said}");
        }
        report.rows.retain(|row| !row.0.io_priority);
        assert!(sentence(&report).starts_with("These rows do not"));
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg ").count(), 3);
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
