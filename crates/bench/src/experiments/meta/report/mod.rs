//! Reports of what a metascheduler costs and brings.
//!
//! Two applications are summed up as the geometric mean of what each does
//! relative to EEVDF: half of one and twice of the other is neither loss nor gain.
//!
//! `phase_aware` is compared with the best of all others, single schedulers and policies
//! alike. Runs that policies learn from are in the result file and in no figure. Results
//! from before there were such runs have no target for `phase_aware`: they say nothing
//! about a load that it has not seen.

mod applications;

use std::fmt::Write as _;

use plotters::style::RGBColor;

use self::applications::Summary;
use crate::cell::report as cells;
use crate::experiments::meta::{MetaRow, PhaseRow, Stage, SwapsRow, SwitchRow, Under, Way};
use crate::harness::figure::Figure;
use crate::harness::number::{MARKED, Spread, mark, short};
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

/// How much more than the best of all others `phase_aware` has to give: a gain that
/// pays for another daemon and for measuring.
const WORTH: f64 = 1.15;

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
    let kinds = kinds(report);
    let rivalry = Rivalry::of(&kinds).filter(|rivalry| rivalry.is_held_out());
    targets.extend(rivalry.map(|rivalry| Target {
        what: "phase_aware, of the best other's".to_owned(),
        bound: "at least 1.15 x",
        measured: format!("{:.2} x", rivalry.throughput()),
        met: rivalry.throughput() >= WORTH,
    }));
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

/// Runs by what decided in them, in their order, and the median of each number.
struct Kind<'a> {
    under: &'a Under,
    rows: Vec<&'a PhaseRow>,
}

impl Kind<'_> {
    fn is_aware(&self) -> bool {
        matches!(self.under, Under::PhaseAware { .. })
    }

    fn median(&self, number: impl Fn(&PhaseRow) -> f64) -> f64 {
        let spread = Spread::of(self.rows.iter().map(|row| number(row)));
        spread.map_or(f64::NAN, |spread| spread.median)
    }

    /// A median p99, marked if its application did too little in all runs together.
    fn tail(&self, p99: fn(&PhaseRow) -> f64, per_s: fn(&PhaseRow) -> f64) -> String {
        // An application runs in every second phase.
        let done = |row: &&PhaseRow| per_s(row) * row.phase_s * f64::from(row.cycles);
        let done = self.rows.iter().map(done).sum();
        mark(short(self.median(p99)), done, 0.99)
    }

    /// Both applications' throughput, as a multiple of another's.
    fn throughput(&self, eevdf: &Kind<'_>) -> f64 {
        let ratio = |number: fn(&PhaseRow) -> f64| self.median(number) / eevdf.median(number);
        (ratio(|row| row.oltp_per_s) * ratio(|row| row.batch_per_s)).sqrt()
    }

    /// Both applications' 99th percentile, as a multiple of another's. An
    /// application that did nothing has none: endless.
    fn p99(&self, eevdf: &Kind<'_>) -> f64 {
        let ratio = |number: fn(&PhaseRow) -> f64| match self.median(number) {
            ms if ms > 0.0 => ms / eevdf.median(number),
            _ => f64::INFINITY,
        };
        (ratio(|row| row.oltp_p99_ms) * ratio(|row| row.batch_p99_ms)).sqrt()
    }
}

fn kinds(report: &Report<MetaRow>) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for row in &report.rows {
        if let MetaRow::Phases(row) = row
            && row.stage != Some(Stage::Training)
        {
            // What a swap counted as differs from run to run.
            let name = row.under.to_string();
            match kinds.iter_mut().find(|k| k.under.to_string() == name) {
                Some(kind) => kind.rows.push(row),
                None => kinds.push(Kind {
                    under: &row.under,
                    rows: vec![row],
                }),
            }
        }
    }
    kinds
}

fn eevdf<'a, 'b>(kinds: &'a [Kind<'b>]) -> Option<&'a Kind<'b>> {
    kinds
        .iter()
        .find(|kind| matches!(kind.under, Under::Single { name } if name == "eevdf"))
}

/// `phase_aware` beside the best of all others.
struct Rivalry<'a, 'b> {
    eevdf: &'a Kind<'b>,
    aware: &'a Kind<'b>,
    /// The one of most throughput.
    most: &'a Kind<'b>,
    /// The one of the lowest 99th percentile.
    soonest: &'a Kind<'b>,
}

impl<'a, 'b> Rivalry<'a, 'b> {
    /// None without `phase_aware`, or without EEVDF.
    fn of(kinds: &'a [Kind<'b>]) -> Option<Rivalry<'a, 'b>> {
        let eevdf = eevdf(kinds)?;
        let others = || kinds.iter().filter(|kind| !kind.is_aware());
        let throughput =
            |a: &&Kind<'_>, b: &&Kind<'_>| a.throughput(eevdf).total_cmp(&b.throughput(eevdf));
        let p99 = |a: &&Kind<'_>, b: &&Kind<'_>| a.p99(eevdf).total_cmp(&b.p99(eevdf));
        Some(Rivalry {
            eevdf,
            aware: kinds.iter().find(|kind| kind.is_aware())?,
            most: others().max_by(throughput)?,
            soonest: others().min_by(p99)?,
        })
    }

    /// Whether policies learnt from other runs than these.
    fn is_held_out(&self) -> bool {
        let mut rows = self.aware.rows.iter();
        rows.all(|row| row.stage == Some(Stage::Evaluation))
    }

    /// Throughput of `phase_aware`, as a multiple of the best other's.
    fn throughput(&self) -> f64 {
        self.aware.throughput(self.eevdf) / self.most.throughput(self.eevdf)
    }

    /// Its 99th percentile, as a multiple of the lowest other's.
    fn p99(&self) -> f64 {
        self.aware.p99(self.eevdf) / self.soonest.p99(self.eevdf)
    }

    fn sentence(&self) -> String {
        let unseen = match self.is_held_out() {
            true => "",
            false => ", under the load that it learnt from",
        };
        format!(
            "following phases gives {:.2} times the throughput of the best of all others, {}, and \
             {:.2} times the lowest 99th percentile, {}'s{unseen}",
            self.throughput(),
            self.most.under,
            self.p99(),
            self.soonest.under
        )
    }

    /// The seeds of both stages.
    fn seeds(&self) -> Option<String> {
        let span = |seed: fn(&PhaseRow) -> Option<u64>| {
            let seeds = || self.aware.rows.iter().filter_map(|row| seed(row));
            let (first, last) = (seeds().min()?, seeds().max()?);
            Some(match first == last {
                true => format!("seed {first}"),
                false => format!("seeds {first} to {last}"),
            })
        };
        let learnt = span(|row| row.training_seed)?;
        let compared = span(|row| Some(row.seed))?;
        Some(format!(
            "training: another load, {learnt}; evaluation: {compared}"
        ))
    }
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
    let kinds = kinds(report);
    if let Some(eevdf) = eevdf(&kinds) {
        let _ = writeln!(
            text,
            "\n  {:<32} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
            "phases", "OLTP/s", "p99 ms", "batch/s", "p99 ms", "thr.", "p99"
        );
        for kind in &kinds {
            let faulty = kind.rows.iter().any(|row| !row.faults.is_empty());
            let _ = writeln!(
                text,
                "  {:<32} {:>7} {:>7} {:>7} {:>7} {:>6.2} {:>6.2}{}",
                kind.under.to_string(),
                short(kind.median(|row| row.oltp_per_s)),
                kind.tail(|row| row.oltp_p99_ms, |row| row.oltp_per_s),
                short(kind.median(|row| row.batch_per_s)),
                kind.tail(|row| row.batch_p99_ms, |row| row.batch_per_s),
                kind.throughput(eevdf),
                kind.p99(eevdf),
                if faulty { " !" } else { "" }
            );
        }
        let _ = writeln!(
            text,
            "  thr., p99: geometric mean of both applications, EEVDF = 1; !: faults\n  {}",
            MARKED.trim_end()
        );
        if let Some(seeds) = Rivalry::of(&kinds).and_then(|rivalry| rivalry.seeds()) {
            let _ = writeln!(text, "  {seeds}");
        }
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
    parts.extend(Rivalry::of(&kinds(report)).map(|rivalry| rivalry.sentence()));
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
            report.rows.push(MetaRow::Phases(PhaseRow {
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
            }));
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

    /// The sample, after something was done to each row of a phase.
    fn changed(change: impl Fn(&mut PhaseRow)) -> Report<MetaRow> {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let MetaRow::Phases(row) = row {
                change(row);
            }
        }
        report
    }

    fn worth(report: &Report<MetaRow>) -> Option<Target> {
        let mut targets = targets(report).into_iter();
        targets.find(|target| target.what.starts_with("phase_aware"))
    }

    #[test]
    fn phase_aware_is_worth_it_from_115_times_the_best_of_all_others() {
        let target = worth(&samples::report()).unwrap();
        assert_eq!((target.measured.as_str(), target.met), ("1.20 x", true));
        // A single scheduler is a rival, and so is a policy.
        for rival in ["ufs-upkeep", "round_robin, 500 ms"] {
            let better = changed(|row| {
                if row.under.to_string() == rival {
                    (row.oltp_per_s, row.batch_per_s) = (1400.0, 140.0);
                }
            });
            let target = worth(&better).unwrap();
            assert_eq!((target.measured.as_str(), target.met), ("1.07 x", false));
            let sentence = sentence(&better);
            assert!(
                sentence.contains(&format!("others, {rival}, and")),
                "{sentence}"
            );
        }
    }

    #[test]
    fn results_without_training_have_no_target_and_say_so() {
        let old = changed(|row| (row.stage, row.training_seed) = (None, None));
        assert_eq!(worth(&old), None);
        assert!(sentence(&old).contains("'s, under the load that it learnt from;"));
        assert!(!table(&old).contains("training"));
    }

    #[test]
    fn the_seeds_of_training_and_comparison_are_in_the_table() {
        let text = table(&samples::report());
        let line = "  training: another load, seed 1000001; evaluation: seed 1\n";
        assert!(text.contains(line), "{text}");
        let mut report = samples::report();
        let again = changed(|row| {
            row.seed += 4;
            row.training_seed = row.training_seed.map(|seed| seed + 4);
        });
        report.rows.extend(again.rows);
        let text = table(&report);
        let line = "another load, seeds 1000001 to 1000005; evaluation: seeds 1 to 5\n";
        assert!(text.contains(line), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn an_application_that_did_nothing_has_no_percentile() {
        let report = changed(|row| {
            if row.under.to_string() == "ufs-oltp" {
                row.batch_p99_ms = 0.0;
            }
        });
        let kinds = kinds(&report);
        assert_eq!(kinds[1].p99(eevdf(&kinds).unwrap()), f64::INFINITY);
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
