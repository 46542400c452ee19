//! Reports of what a metascheduler costs and brings.
//!
//! Of each part its own lines; those of the parts with phases are in [`phases`], those of
//! the web application in [`applications`].

mod applications;
mod phases;

use std::fmt::Write as _;

use plotters::style::RGBColor;

use self::applications::Summary;
use self::phases::Phased;
use crate::cell::report as cells;
use crate::experiments::meta::{MetaRow, SwapsRow, SwitchRow, Way};
use crate::harness::figure::Figure;
use crate::harness::number::{Spread, short};
use crate::render::canvas::{self, Group};
use crate::render::page;
use crate::render::target::{self, Target};
use crate::report::{Record, Report};

impl Record for MetaRow {
    fn table(report: &Report<MetaRow>) -> String {
        table(report)
    }

    fn page(report: &Report<MetaRow>) -> String {
        html(report)
    }

    fn sentence(report: &Report<MetaRow>) -> String {
        sentence(report)
    }

    fn targets(report: &Report<MetaRow>) -> Vec<Target> {
        targets(report)
    }

    fn figures(report: &Report<MetaRow>) -> Vec<Figure> {
        let started = || {
            report.rows.iter().filter_map(|row| match row {
                MetaRow::Switch(row) if row.way == Way::Started => Some(row),
                _ => None,
            })
        };
        let ms = |what, paper, number: fn(&SwitchRow) -> f64| {
            let median = Spread::of(started().map(number)).map(|spread| spread.median);
            Figure::ratio(what, "Section 2.3", paper, median).unit(" ms")
        };
        let mut figures = vec![
            ms("starting a scheduler", "102 ms", |row| row.start_ms),
            ms("stopping one", "24 ms", |row| row.stop_ms),
            ms("a complete switch", "133 ms", |row| row.switch_ms),
        ];
        figures.extend(applications::beside_paper(Summary::of(report).as_ref()));
        figures
    }
}

/// What was switched between, and how.
fn pair(row: &SwitchRow) -> String {
    // Back and forth are the same pair.
    let (one, other) = match row.from <= row.to {
        true => (&row.from, &row.to),
        false => (&row.to, &row.from),
    };
    let way = match row.way {
        Way::Started => "",
        Way::Ahead => ", loaded ahead",
    };
    format!("{one}, {other}{way}")
}

fn switches(report: &Report<MetaRow>) -> Vec<(String, Vec<&SwitchRow>)> {
    let mut pairs: Vec<(String, Vec<&SwitchRow>)> = Vec::new();
    for row in &report.rows {
        if let MetaRow::Switch(row) = row {
            let name = pair(row);
            match pairs.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => pairs.push((name, vec![row])),
            }
        }
    }
    pairs
}

/// How much cheaper a complete switch of UFS is when it is loaded ahead.
fn cheaper(report: &Report<MetaRow>) -> Option<f64> {
    let of = |way: Way| {
        let rows = report.rows.iter().filter_map(|row| match row {
            MetaRow::Switch(row) if row.way == way && row.to.starts_with("scx_ufs") => {
                Some(row.switch_ms)
            }
            _ => None,
        });
        Spread::of(rows).map(|spread| spread.median)
    };
    Some(of(Way::Started)? / of(Way::Ahead)?)
}

/// What is wanted of switches, of `phase_aware`, and of a supervisor whose schedulers
/// fail.
fn targets(report: &Report<MetaRow>) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    targets.extend(cheaper(report).map(|times| Target {
        what: "switch of UFS loaded ahead".to_owned(),
        bound: "at most 1/5",
        measured: format!("1/{}", short(times)),
        met: times >= 5.0,
    }));
    targets.extend(Phased::ALL.iter().filter_map(|part| part.target(report)));
    if runs(report).next().is_some() {
        let mut none = |what: &str, count: fn(&SwapsRow) -> u64| {
            let count: u64 = runs(report).map(count).sum();
            targets.push(Target {
                what: format!("swaps: {what}"),
                bound: "none",
                measured: count.to_string(),
                met: count == 0,
            });
        };
        none("wrong or missing answers", |row| row.errors);
        none("false reports", |row| row.lies);
        none("schedulers left behind", |row| {
            u64::from(row.left != "disabled")
        });
    }
    targets
}

fn runs(report: &Report<MetaRow>) -> impl Iterator<Item = &SwapsRow> {
    report.rows.iter().filter_map(|row| match row {
        MetaRow::Swaps(row) => Some(row),
        _ => None,
    })
}

fn heading(report: &Report<MetaRow>) -> Vec<String> {
    let environment = &report.environment;
    let commit = report.short_commit();
    vec![
        report.headline(),
        format!(
            "{} CPUs, clock {}, commit {commit}",
            environment.cpus, environment.clock
        ),
    ]
}

fn table(report: &Report<MetaRow>) -> String {
    let mut text = String::new();
    for line in heading(report) {
        let _ = writeln!(text, "{line}");
    }
    let pairs = switches(report);
    if !pairs.is_empty() {
        let _ = writeln!(
            text,
            "\n  {:<38} {:>8} {:>8} {:>8} {:>6}",
            "switch, ms", "stop", "start", "both", "times"
        );
        for (name, rows) in &pairs {
            let median = |number: fn(&SwitchRow) -> f64| {
                Spread::of(rows.iter().map(|row| number(row))).map_or(f64::NAN, |s| s.median)
            };
            let _ = writeln!(
                text,
                "  {name:<38} {:>8} {:>8} {:>8} {:>6}",
                short(median(|row| row.stop_ms)),
                short(median(|row| row.start_ms)),
                short(median(|row| row.switch_ms)),
                rows.len()
            );
        }
    }
    for part in &Phased::ALL {
        text += &part.table(report);
    }
    for row in runs(report) {
        let _ = writeln!(
            text,
            "\n  swaps: {} starts in {:.0} s; {} killed, {} stopped, {} refused\n  {} answers, \
             {} errors; longest wait for a CPU {:.0} ms\n  said and true: {} looks, {} \
             differed; left: {}",
            row.starts,
            row.seconds,
            row.kills,
            row.stops,
            row.refusals,
            row.answers,
            row.errors,
            row.gap_ms,
            row.looks,
            row.lies,
            row.left
        );
        for (fault, times) in &row.faults {
            let fault: String = fault.chars().take(68).collect();
            let _ = writeln!(text, "  {times:>4}  {fault}");
        }
    }
    if let Some(applications) = Summary::of(report) {
        text += &applications.table();
    }
    text + &target::lines("switches, phases and swaps", &targets(report))
}

fn sentence(report: &Report<MetaRow>) -> String {
    let mut parts = Vec::new();
    if let Some(times) = cheaper(report) {
        parts.push(format!(
            "a switch of UFS takes a {:.0}th of the time when it is loaded ahead",
            times
        ));
    }
    parts.extend(Phased::ALL.iter().filter_map(|part| part.sentence(report)));
    let starts: u64 = runs(report).map(|row| row.starts).sum();
    if starts > 0 {
        let errors: u64 = runs(report).map(|row| row.errors).sum();
        parts.push(format!("{starts} starts with mishaps left {errors} errors"));
    }
    parts.extend(Summary::of(report).and_then(|applications| applications.sentence()));
    let mut text = parts.join("; ");
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text + "."
}

const STOP: RGBColor = RGBColor(214, 120, 60);
const START: RGBColor = RGBColor(22, 108, 196);

fn html(report: &Report<MetaRow>) -> String {
    let mut page = page::begin(
        &report.experiment,
        "What does a metascheduler cost, and what does it bring?",
        &heading(report),
        &sentence(report),
    );
    let pairs = switches(report);
    if !pairs.is_empty() {
        page::section(
            &mut page,
            "Switches",
            "Milliseconds until the old scheduler is gone, and until the new one is in force.",
        );
        let names = [(STOP, "stop".to_owned()), (START, "start".to_owned())];
        page::legend(&mut page, names);
        let groups: Vec<Group> = pairs
            .iter()
            .map(|(name, rows)| {
                let bar = |colour, number: fn(&SwitchRow) -> f64| {
                    Some((colour, Spread::of(rows.iter().map(|row| number(row)))?))
                };
                Group {
                    label: name.clone(),
                    bars: [bar(STOP, |row| row.stop_ms), bar(START, |row| row.start_ms)]
                        .into_iter()
                        .flatten()
                        .collect(),
                }
            })
            .collect();
        page::plots(&mut page, &[canvas::bars("Switches, ms", &groups, None)]);
    }
    if let Some(applications) = Summary::of(report) {
        applications.figures(&mut page);
    }
    cells::numbers(&mut page, &table(report));
    let rows = ("Rows", report.rows.len().to_string());
    page::environment(
        &mut page,
        &report.environment,
        &[rows],
        "On the lockstep clock an instruction takes the same time everywhere, and loading a \
         scheduler is a great many of them: times are longer than on a computer of today, and \
         compare with each other.",
    );
    page::end(page)
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::experiments::meta::{PhaseRow, Stage, Under};
    use crate::harness::environment::Environment;
    use giveway_metasched::policy::Policy;

    /// A report of all parts, with round numbers.
    pub(crate) fn report() -> Report<MetaRow> {
        let environment = Environment {
            kernel: "7.2.13".to_owned(),
            machine: "sample".to_owned(),
            date: "2026-11-21".to_owned(),
            clock: "lockstep".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            cpus: 2,
            ..Environment::default()
        };
        let mut report = Report::new(crate::experiments::meta::NAME, environment);
        for (way, start_ms) in [(Way::Started, 990.0), (Way::Ahead, 10.0)] {
            for (from, to) in [("scx_ufs 1", "scx_ufs 2"), ("scx_ufs 2", "scx_ufs 1")] {
                report.rows.push(MetaRow::Switch(SwitchRow {
                    from: from.to_owned(),
                    to: to.to_owned(),
                    way,
                    stop_ms: 10.0,
                    start_ms,
                    switch_ms: start_ms + 10.0,
                    repeat: 0,
                    seed: 1,
                }));
            }
        }
        let single = |name: &str| Under::Single { name: name.into() };
        let fixed = Under::Fixed {
            policy: Policy::RoundRobin,
            base_timeslice_ms: 500.0,
        };
        // Nothing is read from what policies learnt from: it would change every figure.
        let (training, evaluation) = ((Stage::Training, 1_000_001), (Stage::Evaluation, 1));
        for ((stage, seed), under, oltp, batch) in [
            (training, single("eevdf"), 0.1, 0.1),
            (training, single("ufs-oltp"), 9.0, 9.0),
            (evaluation, single("eevdf"), 1.0, 1.0),
            (evaluation, single("ufs-oltp"), 1.5, 0.1),
            (evaluation, single("ufs-upkeep"), 1.25, 1.25),
            (evaluation, fixed, 1.0, 0.8),
            (evaluation, Under::PhaseAware { swap_ms: 50.0 }, 1.4, 1.6),
        ] {
            let row = PhaseRow {
                under,
                stage: Some(stage),
                training_seed: Some(1_000_001),
                phase_s: 2.0,
                cycles: 2,
                oltp_per_s: 1000.0 * oltp,
                oltp_p99_ms: 8.0 / oltp,
                batch_per_s: 100.0 * batch,
                batch_p99_ms: 20.0 / batch,
                starts: 3,
                switch_ms: Some(90.0),
                faults: Vec::new(),
                repeat: 0,
                seed,
            };
            // Programs gain less.
            let oltp_per_s = 900.0 + 0.1 * row.oltp_per_s;
            let held_out = PhaseRow {
                oltp_per_s,
                ..row.clone()
            };
            report.rows.push(MetaRow::Phases(row));
            report.rows.push(MetaRow::HeldOut(held_out));
        }
        report.rows.push(MetaRow::Swaps(SwapsRow {
            starts: 100,
            kills: 10,
            stops: 10,
            refusals: 20,
            answers: 50_000,
            errors: 0,
            gap_ms: 40.0,
            looks: 5000,
            lies: 0,
            left: "disabled".into(),
            faults: vec![("broken failed to load: exit status: 1".into(), 20)],
            seconds: 90.0,
            repeat: 0,
            seed: 1,
        }));
        report.rows.extend(applications::samples::rows());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_all_parts_and_fits_the_terminal() {
        let text = table(&samples::report());
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for part in [
            "scx_ufs 1, scx_ufs 2, loaded ahead",
            "phase_aware",
            "100 starts in 90 s",
            "best turns: delta_weighted",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("   1.50   0.67"), "1.4 x 1.6 = 1.5²: {text}");
    }

    #[test]
    fn the_sentence_compares_with_the_best_of_the_others() {
        let text = sentence(&samples::report());
        assert!(
            text.starts_with("A switch of UFS takes a 50th of the time"),
            "{text}"
        );
        assert!(
            text.contains(
                "following phases gives 1.20 times the throughput of the best of all others, \
                 ufs-upkeep, and 0.84 times the lowest 99th percentile, ufs-upkeep's;"
            ),
            "{text}"
        );
        assert!(
            text.contains("100 starts with mishaps left 0 errors;"),
            "{text}"
        );
        assert!(
            text.ends_with("scx_simple -f: throughput +2.0 %, p99 -4.0 %."),
            "{text}"
        );
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let page = html(&samples::report());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
