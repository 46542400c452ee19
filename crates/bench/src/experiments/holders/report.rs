//! Reports of lock holders among equals.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::cell::report::{numbers, plus_minus};
use crate::experiments::holders::{Arm, HoldersRow, Script};
use crate::harness::figure::Figure;
use crate::harness::number::{Spread, short};
use crate::harness::scheduler::Scheduler;
use crate::render::canvas::{self, Group, scheduler_colour};
use crate::render::page;
use crate::render::target::Target;
use crate::report::{Record, Report};

/// What UFS is compared with: itself without extension, and the kernel's own scheduler.
const WITHOUT: Arm = Arm {
    scheduler: Scheduler::Ufs,
    extension_us: Some(0),
};
const KERNEL: Arm = Arm {
    scheduler: Scheduler::Eevdf,
    extension_us: None,
};

impl Record for HoldersRow {
    fn table(report: &Report<HoldersRow>) -> String {
        table(report)
    }

    fn page(report: &Report<HoldersRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<HoldersRow>) -> String {
        sentence(report)
    }

    fn targets(_: &Report<HoldersRow>) -> Vec<Target> {
        Vec::new()
    }

    fn figures(_: &Report<HoldersRow>) -> Vec<Figure> {
        Vec::new()
    }

    fn setting(&self) -> String {
        let HoldersRow {
            cpus,
            clients,
            scale,
            shared_buffers_mib,
            ..
        } = self;
        format!(
            "{cpus} CPUs for server and pgbench, {clients} clients; scale {scale}, shared_buffers \
             {shared_buffers_mib} MB"
        )
    }
}

/// The repeats of one arm and script.
struct Repeats<'a> {
    script: Script,
    arm: Arm,
    rows: Vec<&'a HoldersRow>,
}

impl Repeats<'_> {
    /// The spread of a number over the repeats that have it.
    fn spread(&self, number: impl Fn(&HoldersRow) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rows.iter().filter_map(|row| number(row)))
    }

    /// The median of a number over the repeats, which all have it: a median that leaves
    /// some out would be one of others.
    fn median(&self, number: impl Fn(&HoldersRow) -> Option<f64>) -> Option<f64> {
        let numbers: Option<Vec<f64>> = self.rows.iter().map(|row| number(row)).collect();
        Some(Spread::of(numbers?)?.median)
    }

    fn tps(&self) -> Option<f64> {
        self.median(|row| Some(row.tps))
    }
}

/// All of them, by script, then in the order of schedulers and extensions.
struct Cells<'a>(Vec<Repeats<'a>>);

impl<'a> Cells<'a> {
    fn of(report: &'a Report<HoldersRow>) -> Self {
        let mut groups: BTreeMap<_, Vec<&HoldersRow>> = BTreeMap::new();
        for row in &report.rows {
            let key = (row.script, row.scheduler.rank(), row.extension_us);
            groups.entry(key).or_default().push(row);
        }
        let repeats = groups.into_values().map(|rows| Repeats {
            script: rows[0].script,
            arm: rows[0].arm(),
            rows,
        });
        Cells(repeats.collect())
    }

    fn scripts(&self) -> Vec<Script> {
        let mut scripts: Vec<Script> = self.0.iter().map(|one| one.script).collect();
        scripts.dedup();
        scripts
    }

    fn at(&self, script: Script) -> impl Iterator<Item = &Repeats<'a>> {
        self.0.iter().filter(move |one| one.script == script)
    }

    /// The repeats of another arm with the same script.
    fn beside(&self, one: &Repeats<'_>, arm: &Arm) -> Option<&Repeats<'a>> {
        self.at(one.script).find(|other| other.arm == *arm)
    }

    /// Throughput over that of another arm.
    fn over(&self, one: &Repeats<'_>, arm: &Arm) -> Option<f64> {
        Some(one.tps()? / self.beside(one, arm)?.tps()?)
    }

    /// UFS with an extension.
    fn extended(&self) -> impl Iterator<Item = &Repeats<'a>> {
        let is_extended = |one: &&Repeats<'_>| one.arm.extension_us.is_some_and(|us| us > 0);
        self.0.iter().filter(is_extended)
    }
}

fn heading(report: &Report<HoldersRow>) -> Vec<String> {
    let environment = &report.environment;
    let mut lines = vec![
        report.headline(),
        format!(
            "PostgreSQL {}, clock {}, commit {}",
            environment.postgresql,
            environment.clock,
            report.short_commit()
        ),
    ];
    let busy = Spread::of(report.rows.iter().map(|row| row.busy_fraction));
    if let (Some(row), Some(busy)) = (report.rows.first(), busy) {
        let repeats = report.rows.iter().map(|row| row.repeat).max().unwrap_or(0) + 1;
        lines.push(row.setting());
        lines.push(format!(
            "{repeats} x {} s after {} s of warm-up; CPUs busy {:.2} to {:.2}",
            row.seconds, row.warmup_s, busy.min, busy.max
        ));
    }
    lines
}

fn table(report: &Report<HoldersRow>) -> String {
    let cells = Cells::of(report);
    let mut text = heading(report).join("\n");
    text.push('\n');
    for script in cells.scripts() {
        let _ = write!(
            text,
            "\n{script}\n  {:<11} {:>12} {:>6} {:>6} {:>6} {:>6} {:>6} {:>9} {:>8}\n",
            "", "tps", "/0 us", "/eevdf", "ms", "p95 ms", "p99 ms", "preempted", "extended",
        );
        for one in cells.at(script) {
            let number =
                |of: fn(&HoldersRow) -> Option<f64>| one.median(of).map_or("-".to_owned(), short);
            let ratio = |arm: &Arm| {
                let ratio = cells.over(one, arm);
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
            };
            let label: String = one.arm.to_string().chars().take(11).collect();
            let tps = one.spread(|row| Some(row.tps));
            let _ = writeln!(
                text,
                "  {label:<11} {:>12} {:>6} {:>6} {:>6} {:>6} {:>6} {:>9} {:>8}",
                tps.map_or("-".to_owned(), plus_minus),
                ratio(&WITHOUT),
                ratio(&KERNEL),
                number(|row| Some(row.mean_ms)),
                number(|row| row.p95_ms),
                number(|row| row.p99_ms),
                number(|row| row.holders_preempted_per_s),
                number(|row| row.extensions_per_s),
            );
        }
    }
    text.push_str(
        "\nMedians, ± half the range of the repeats. UFS, N us: its longest extension.\n\
         /0 us, /eevdf: throughput over that of UFS without extension, and of EEVDF. ms:\n\
         mean latency; percentiles have 100 transactions beyond them or are left out.\n\
         preempted: time-sensitive tasks that lost their CPU with a lock in hand, per\n\
         second. extended: extensions that UFS granted, per second.\n",
    );
    text
}

fn sentence(report: &Report<HoldersRow>) -> String {
    let cells = Cells::of(report);
    let preempted = |one: &Repeats<'_>| one.median(|row| row.holders_preempted_per_s);
    let of_each = |say: &dyn Fn(&Repeats<'_>) -> Option<String>| {
        let said = cells.extended().filter_map(|one| {
            let us = one.arm.extension_us?;
            Some(format!("{} ({}, {us} us)", say(one)?, one.script))
        });
        Vec::from_iter(said).join(", ")
    };
    let of_own = of_each(&|one| Some(format!("{:.3}", cells.over(one, &WITHOUT)?)));
    let holders = of_each(&|one| {
        let without = preempted(cells.beside(one, &WITHOUT)?)?;
        Some(format!(
            "{} in place of {}",
            short(preempted(one)?),
            short(without)
        ))
    });
    if of_own.is_empty() || holders.is_empty() {
        return "These rows do not have UFS both with and without an extension, so they do not \
                say what it is worth."
            .to_owned();
    }
    let of_kernel = of_each(&|one| Some(format!("{:.3}", cells.over(one, &KERNEL)?)));
    let of_kernel = match of_kernel.is_empty() {
        true => String::new(),
        false => format!(" and this much of EEVDF's: {of_kernel};"),
    };
    format!(
        "With an extension UFS has this much of its throughput without: {of_own};{of_kernel} \
         tasks preempted with a lock in hand, per second: {holders}."
    )
}

/// That of the scheduler; UFS without extension is paler.
fn colour(arm: &Arm) -> RGBColor {
    match *arm == WITHOUT {
        true => RGBColor(90, 160, 225),
        false => scheduler_colour(&arm.scheduler),
    }
}

fn html(report: &Report<HoldersRow>) -> String {
    let cells = Cells::of(report);
    let mut page = page::begin(
        &report.experiment,
        "Lock holders among equals",
        &heading(report),
        &sentence(report),
    );
    page::section(
        &mut page,
        "Throughput and preempted lock holders",
        "pgbench on a patched PostgreSQL server with too few buffers, all of it time-sensitive. \
         UFS lets who holds a lock at the end of its slice go on for at most so many \
         microseconds. Bars are medians over the repeats, whiskers the extremes.",
    );
    let mut arms: Vec<&Arm> = Vec::new();
    for one in &cells.0 {
        if !arms.contains(&&one.arm) {
            arms.push(&one.arm);
        }
    }
    let names = arms.iter().map(|arm| (colour(arm), arm.to_string()));
    page::legend(&mut page, names);
    let plots = [
        bars("Transactions per second", &cells, |row| Some(row.tps)),
        bars(
            "Tasks preempted with a lock in hand, per second",
            &cells,
            |row| row.holders_preempted_per_s,
        ),
    ];
    page::plots(&mut page, &plots);
    numbers(&mut page, &table(report));
    let server = ("PostgreSQL", report.environment.postgresql.clone());
    let rows = ("Rows", report.rows.len().to_string());
    page::environment(
        &mut page,
        &report.environment,
        &[server, rows],
        "The data is in memory, so a read of a page takes a system call and no wait. In the \
         lockstep clock every instruction takes the same time and caches cost nothing.",
    );
    page::end(page)
}

fn bars(title: &str, cells: &Cells<'_>, number: fn(&HoldersRow) -> Option<f64>) -> String {
    let bar = |one: &Repeats<'_>| Some((colour(&one.arm), one.spread(number)?));
    let group = |script: Script| Group {
        label: script.to_string(),
        bars: cells.at(script).filter_map(bar).collect(),
    };
    let groups: Vec<Group> = cells.scripts().into_iter().map(group).collect();
    canvas::bars(title, &groups, None)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::holders::NAME;
    use crate::harness::environment::Environment;

    /// Three repeats with round numbers.
    pub(crate) fn report() -> Report<HoldersRow> {
        let environment = Environment {
            kernel: "7.2.13".to_owned(),
            machine: "sample".to_owned(),
            date: "2026-11-26".to_owned(),
            clock: "lockstep".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            postgresql: "17.6".to_owned(),
            cpus: 4,
            ..Environment::default()
        };
        let mut report = Report::new(NAME, environment);
        for repeat in 0..3 {
            for (extension_us, tps, preempted) in [
                (None, 4000.0, None),
                (Some(0), 5000.0, Some(40.0)),
                (Some(200), 5100.0, Some(2.0)),
            ] {
                let scheduler = match extension_us {
                    None => Scheduler::Eevdf,
                    Some(_) => Scheduler::Ufs,
                };
                for (script, part) in [(Script::SelectOnly, 1.0), (Script::SimpleUpdate, 0.5)] {
                    let tps = part * tps * (1.0 + 0.01 * (f64::from(repeat) - 1.0));
                    report.rows.push(HoldersRow {
                        scheduler: scheduler.clone(),
                        scheduler_version: None,
                        extension_us,
                        script,
                        repeat,
                        seed: 1 + u64::from(repeat),
                        seconds: 4.0,
                        warmup_s: 2.0,
                        cpus: 4,
                        clients: 16,
                        scale: 10,
                        shared_buffers_mib: 16,
                        transactions: (tps * 4.0) as u64,
                        tps,
                        mean_ms: 16e3 / tps,
                        stddev_ms: 1.0,
                        p95_ms: Some(8.0),
                        p99_ms: (part == 1.0).then_some(12.0),
                        holders_preempted_per_s: preempted,
                        extensions_per_s: preempted.map(|_| match extension_us {
                            Some(200) => 38.0,
                            _ => 0.0,
                        }),
                        busy_fraction: 0.98 + 0.01 * f64::from(repeat % 2),
                    });
                }
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, script: &str, begin: &str) -> Vec<String> {
        let part = text.split(&format!("\n{script}\n")).nth(1).unwrap();
        let line = part.lines().find(|line| line.trim().starts_with(begin));
        let words = line.unwrap().split_whitespace();
        words.map(str::to_owned).collect()
    }

    #[test]
    fn each_arm_is_beside_ufs_without_extension_and_eevdf_with_the_same_script() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert_eq!(
            words(&text, "simple-update", "UFS, 200")[3..],
            [
                "2550", "±25.5", "1.020", "1.275", "6.27", "8.00", "-", "2.00", "38.0"
            ]
        );
        assert_eq!(
            words(&text, "select-only", "EEVDF")[1..],
            [
                "4000", "±40.0", "0.800", "1.000", "4.00", "8.00", "12.0", "-", "-"
            ]
        );
        assert!(text.contains("CPUs busy 0.98 to 0.99"), "{text}");
    }

    #[test]
    fn the_sentence_compares_ufs_with_itself_and_says_where_that_is_missing() {
        let mut report = samples::report();
        let said = sentence(&report);
        for part in [
            "1.020 (select-only, 200 us), 1.020 (simple-update, 200 us); and",
            "EEVDF's: 1.275 (select-only, 200 us)",
            "per second: 2.00 in place of 40.0 (select-only, 200 us)",
        ] {
            assert!(said.contains(part), "{said}");
        }
        report.rows.retain(|row| row.scheduler == Scheduler::Ufs);
        assert!(!sentence(&report).contains("EEVDF"));
        report.rows.retain(|row| row.extension_us != Some(0));
        assert!(sentence(&report).starts_with("These rows do not"));
    }

    #[test]
    fn a_percentile_that_a_repeat_lacks_is_not_that_of_the_others() {
        let mut report = samples::report();
        report.rows[0].p99_ms = None;
        assert_eq!(words(&table(&report), "select-only", "EEVDF")[7], "-");
    }

    #[test]
    fn rows_of_other_buffers_are_not_compared() {
        let mut report = samples::report();
        let mut other = samples::report();
        other.rows[0].shared_buffers_mib = 32;
        let error = report.merge(other).unwrap_err().to_string();
        assert!(error.contains("shared_buffers 32 MB"), "{error}");
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
