//! Reports of the parts that have phases: of the applications that policies have learnt
//! from, and of those that are held out.
//!
//! Two applications are summed up as the geometric mean of what each does
//! relative to EEVDF: half of one and twice of the other is neither loss nor gain.
//!
//! `phase_aware` is compared with the best of all others, single schedulers and policies
//! alike. Runs that policies learn from are in the result file and in no figure. Results
//! from before there were such runs have no target for `phase_aware`: they say nothing
//! about a load that it has not seen.

use std::fmt::Write as _;

use crate::experiments::meta::{MetaRow, PhaseRow, Stage, Under};
use crate::harness::number::{MARKED, Spread, mark, short};
use crate::render::target::Target;
use crate::report::Report;

/// The part of EEVDF's throughput below which an application is starved.
const STARVED: f64 = 0.01;

/// A part, in words.
pub(super) struct Phased {
    /// The part's name.
    title: &'static str,
    /// The columns of both applications' throughput.
    columns: [&'static str; 2],
    /// What its target is called.
    target: &'static str,
    /// Whom phases are followed with.
    with: &'static str,
    /// What policies learn from.
    training: &'static str,
    /// Its row, if it is one.
    row: fn(&MetaRow) -> Option<&PhaseRow>,
}

impl Phased {
    pub(super) const ALL: [Phased; 2] = [
        Phased {
            title: "phases",
            columns: ["OLTP/s", "batch/s"],
            target: "phase_aware, of the best other's",
            with: "",
            training: "another load",
            row: |row| match row {
                MetaRow::Phases(row) => Some(row),
                _ => None,
            },
        },
        Phased {
            title: "held-out",
            columns: ["nginx/s", "files/s"],
            target: "held-out: phase_aware, of the best other's",
            with: "with nginx and gcc, from which nothing was learnt, ",
            training: "other applications",
            row: |row| match row {
                MetaRow::HeldOut(row) => Some(row),
                _ => None,
            },
        },
    ];

    fn kinds<'a>(&self, report: &'a Report<MetaRow>) -> Vec<Kind<'a>> {
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        let rows = report.rows.iter().filter_map(self.row);
        for row in rows.filter(|row| row.stage != Some(Stage::Training)) {
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
        kinds
    }

    /// What is wanted of `phase_aware`, where policies learnt from other runs.
    pub(super) fn target(&self, report: &Report<MetaRow>) -> Option<Target> {
        let kinds = self.kinds(report);
        let rivalry = Rivalry::of(&kinds).filter(|rivalry| rivalry.is_held_out())?;
        Some(Target {
            what: self.target.to_owned(),
            bound: "at least 1.15 x",
            measured: format!("{:.2} x", rivalry.throughput()),
            met: rivalry.throughput() >= WORTH,
        })
    }

    /// How `phase_aware` compares with the best of the others.
    pub(super) fn sentence(&self, report: &Report<MetaRow>) -> Option<String> {
        let kinds = self.kinds(report);
        let rivalry = Rivalry::of(&kinds)?;
        Some(format!("{}{}", self.with, rivalry.sentence()))
    }

    /// A line for each scheduler and policy; nothing without EEVDF.
    pub(super) fn table(&self, report: &Report<MetaRow>) -> String {
        let mut text = String::new();
        let kinds = self.kinds(report);
        let Some(eevdf) = eevdf(&kinds) else {
            return text;
        };
        let _ = writeln!(
            text,
            "\n  {:<32} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
            self.title, self.columns[0], "p99 ms", self.columns[1], "p99 ms", "thr.", "p99"
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
            let _ = writeln!(text, "  training: {}, {seeds}", self.training);
        }
        text
    }
}

/// How much more than the best of all others `phase_aware` has to give: a gain that
/// pays for another daemon and for measuring.
const WORTH: f64 = 1.15;

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
        let done: f64 = self.rows.iter().map(done).sum();
        if done == 0.0 {
            return "-".to_owned();
        }
        mark(short(self.median(p99)), done, 0.99)
    }

    /// Both applications' throughput, as a multiple of another's.
    fn throughput(&self, eevdf: &Kind<'_>) -> f64 {
        let ratio = |number: fn(&PhaseRow) -> f64| self.median(number) / eevdf.median(number);
        (ratio(|row| row.oltp_per_s) * ratio(|row| row.batch_per_s)).sqrt()
    }

    /// Both applications' 99th percentile, as a multiple of EEVDF's. Endless if one of
    /// them was starved: what it waits for is not among what it has done.
    fn p99(&self, eevdf: &Kind<'_>) -> f64 {
        let ratio = |number: fn(&PhaseRow) -> f64| self.median(number) / eevdf.median(number);
        let did = [ratio(|row| row.oltp_per_s), ratio(|row| row.batch_per_s)];
        match did.iter().any(|part| *part < STARVED) {
            true => f64::INFINITY,
            false => (ratio(|row| row.oltp_p99_ms) * ratio(|row| row.batch_p99_ms)).sqrt(),
        }
    }
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
        Some(format!("{learnt}; evaluation: {compared}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::meta::report::samples;

    /// The sample, after something was done to each row of a phase.
    fn changed(mut change: impl FnMut(&mut PhaseRow)) -> Report<MetaRow> {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let MetaRow::Phases(row) | MetaRow::HeldOut(row) = row {
                change(row);
            }
        }
        report
    }

    fn table(report: &Report<MetaRow>) -> String {
        Phased::ALL[0].table(report)
    }

    fn sentence(report: &Report<MetaRow>) -> String {
        Phased::ALL[0].sentence(report).unwrap()
    }

    fn worth(report: &Report<MetaRow>) -> Option<Target> {
        Phased::ALL[0].target(report)
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
        assert!(sentence(&old).ends_with("'s, under the load that it learnt from"));
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
    fn an_application_that_is_starved_has_no_percentile() {
        // The few things that it did were quick.
        let with = |of_eevdf: f64| {
            let mut batch_per_s = 0.0;
            let report = changed(|row| match row.under.to_string().as_str() {
                "eevdf" => batch_per_s = row.batch_per_s,
                "ufs-oltp" => (row.batch_per_s, row.batch_p99_ms) = (batch_per_s * of_eevdf, 1.0),
                _ => {}
            });
            let kinds = Phased::ALL[0].kinds(&report);
            kinds[1].p99(eevdf(&kinds).unwrap())
        };
        assert_eq!([with(0.0), with(0.009)], [f64::INFINITY; 2]);
        assert!(with(0.02).is_finite());
    }

    #[test]
    fn what_is_held_out_has_lines_of_its_own() {
        let report = samples::report();
        let [phases, held_out] = &Phased::ALL;
        // Of its nginx, phase_aware has 940 and ufs-upkeep 925 of 900 + 100.
        let target = held_out.target(&report).unwrap();
        assert_eq!(target.what, "held-out: phase_aware, of the best other's");
        assert_eq!((target.measured.as_str(), target.met), ("1.14 x", false));
        assert!(phases.target(&report).unwrap().met);
        let table = held_out.table(&report);
        let heads = table
            .lines()
            .find(|line| line.contains("held-out"))
            .unwrap();
        assert!(
            heads.contains(" nginx/s ") && heads.contains(" files/s "),
            "{heads}"
        );
        assert!(
            table.contains("  training: other applications, seed 1000001;"),
            "{table}"
        );
        let sentence = held_out.sentence(&report).unwrap();
        assert!(
            sentence.starts_with("with nginx and gcc, from which"),
            "{sentence}"
        );
        let mut without = report.clone();
        without
            .rows
            .retain(|row| !matches!(row, MetaRow::HeldOut(_)));
        assert_eq!(held_out.table(&without), "");
        assert_eq!(held_out.target(&without), None);
    }
}
