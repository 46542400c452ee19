//! The paper's application: who is best for which part, and for the whole.
//!
//! All is relative to the median of EEVDF's runs, in percent, as in Figures 1 and 2:
//! more throughput is good, and less latency. Beside each median stands half the way
//! from the smallest to the largest run; EEVDF's own says what may be chance.

mod figures;
mod paper;
#[cfg(test)]
pub(super) mod samples;
mod table;

pub(super) use paper::beside_paper;

use giveway_metasched::measurements::Reading;
use giveway_metasched::scheduler::EEVDF;

use crate::experiments::meta::applications::{API, ASK, RETRIEVAL};
use crate::experiments::meta::{ApplicationRow, MetaRow, Under};
use crate::harness::number::Spread;
use crate::report::Report;

const PARTS: [&str; 3] = [API, RETRIEVAL, ASK];

/// A number of a run.
type Number = fn(&Reading) -> f64;
const THROUGHPUT: Number = |run| run.throughput_per_s;
const P99: Number = |run| run.p99_s * 1e3;

/// All rows of the part.
pub(super) struct Summary<'a> {
    rows: Vec<&'a ApplicationRow>,
}

impl<'a> Summary<'a> {
    /// None if the part was not run.
    pub(super) fn of(report: &'a Report<MetaRow>) -> Option<Summary<'a>> {
        let rows = report.rows.iter().filter_map(|row| match row {
            MetaRow::Applications(row) => Some(row),
            _ => None,
        });
        let rows: Vec<&ApplicationRow> = rows.collect();
        (!rows.is_empty()).then_some(Summary { rows })
    }

    /// What decided, in the rows' order.
    fn unders(&self, is_wanted: impl Fn(&Under) -> bool) -> Vec<&'a Under> {
        let mut found: Vec<&Under> = Vec::new();
        for row in &self.rows {
            if is_wanted(&row.under) && !found.contains(&&row.under) {
                found.push(&row.under);
            }
        }
        found
    }

    fn singles(&self) -> Vec<&'a Under> {
        self.unders(|under| matches!(under, Under::Single { .. }))
    }

    fn policies(&self) -> Vec<&'a Under> {
        self.unders(|under| matches!(under, Under::Fixed { .. }))
    }

    /// Over the runs of all rows; none of no run.
    fn spread(&self, application: &str, under: &Under, number: Number) -> Option<Spread> {
        let rows = self
            .rows
            .iter()
            .filter(|row| row.application == application);
        let rows = rows.filter(|row| row.under == *under);
        Spread::of(rows.flat_map(|row| row.runs.iter().map(number)))
    }

    fn eevdf(&self, application: &str, number: Number) -> Option<Spread> {
        let under = Under::Single { name: EEVDF.into() };
        self.spread(application, &under, number)
    }

    /// In percent of EEVDF's median, less 100.
    fn change(&self, application: &str, under: &Under, number: Number) -> Option<Spread> {
        let base = self.eevdf(application, number)?.median;
        let spread = self.spread(application, under, number)?;
        let change = |value: f64| (value / base - 1.0) * 100.0;
        Some(Spread {
            median: change(spread.median),
            min: change(spread.min),
            max: change(spread.max),
        })
    }

    /// The one of these under which the whole has most throughput. One under which
    /// anything went wrong is nobody's best.
    fn best(&self, of: &[&'a Under]) -> Option<Best<'a>> {
        let is_sound = |under: &&&Under| {
            let mut rows = self.rows.iter().filter(|row| row.under == ***under);
            rows.all(|row| row.faults.is_empty())
        };
        let changes = of.iter().filter(is_sound).filter_map(|under| {
            Some(Best {
                under,
                throughput: self.change(ASK, under, THROUGHPUT)?,
                p99: self.change(ASK, under, P99)?,
            })
        });
        changes.max_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median))
    }

    fn best_single(&self) -> Option<Best<'a>> {
        let mut others = self.singles();
        others.retain(|under| !is_eevdf(under));
        self.best(&others)
    }

    fn best_policy(&self) -> Option<Best<'a>> {
        self.best(&self.policies())
    }

    /// The schedulers that take turns, each with the parts that prefer it.
    fn preferred(&self) -> Vec<(&'a str, String)> {
        let row = self.rows.iter().find(|row| !row.turns.is_empty());
        let turns = row.into_iter().flat_map(|row| &row.turns);
        let turns = turns.map(|turn| (turn.scheduler.as_str(), turn.applications.join(" and ")));
        turns.collect()
    }

    /// What went wrong, each thing once, under what.
    fn faults(&self) -> Vec<(String, &'a str)> {
        let mut found = Vec::new();
        for row in &self.rows {
            for fault in &row.faults {
                let one = (row.under.to_string(), fault.as_str());
                if !found.contains(&one) {
                    found.push(one);
                }
            }
        }
        found
    }

    /// Who is best, for the one sentence; none where nobody is compared.
    pub(super) fn sentence(&self) -> Option<String> {
        let turns = self.best_policy().map(|best| format!("best turns, {best}"));
        let single = self.best_single();
        let single = single.map(|best| format!("best single scheduler, {best}"));
        let parts: Vec<String> = turns.into_iter().chain(single).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// What does best for the whole.
struct Best<'a> {
    under: &'a Under,
    throughput: Spread,
    p99: Spread,
}

impl std::fmt::Display for Best<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [throughput, p99] = [self.throughput, self.p99].map(|change| percent(Some(change)));
        write!(f, "{}: throughput {throughput} %, p99 {p99} %", self.under)
    }
}

/// `+6.6±1.2`, in nine characters or so. One run has no spread.
fn percent(change: Option<Spread>) -> String {
    let Some(Spread { median, min, max }) = change else {
        return "-".to_owned();
    };
    let half = (max - min) / 2.0;
    let digits = usize::from(median.abs() < 99.95 && half < 99.95);
    match max > min {
        true => format!("{median:+.digits$}±{half:.digits$}"),
        false => format!("{median:+.digits$}"),
    }
}

fn is_eevdf(under: &Under) -> bool {
    matches!(under, Under::Single { name } if name == EEVDF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::environment::Environment;

    fn report(rows: Vec<MetaRow>) -> Report<MetaRow> {
        let mut report = Report::new(crate::experiments::meta::NAME, Environment::default());
        report.rows = rows;
        report
    }

    #[test]
    fn parts_and_whole_are_relative_to_eevdf_with_their_spread() {
        let report = report(samples::rows());
        let text = Summary::of(&report).unwrap().table();
        let lines = text.lines().map(str::split_whitespace);
        let lines: Vec<String> = lines
            .map(|words| words.collect::<Vec<_>>().join(" "))
            .collect();
        let line = |name: &str| {
            let found = lines.iter().find(|line| line.starts_with(name));
            found.unwrap_or_else(|| panic!("no {name}: {text}"))
        };
        assert_eq!(
            line("eevdf: /s"),
            "eevdf: /s, ms 200 50.0 200 50.0 200 50.0"
        );
        assert!(line("eevdf +").starts_with("eevdf +0.0±1.0 +0.0±2.0 "));
        assert_eq!(
            line("scx_simple"),
            "scx_simple -f +8.0 -16.0 -4.0 +110 +2.0 -4.0"
        );
        assert_eq!(line("scx_qmap -"), "scx_qmap - - - - - -");
        assert_eq!(
            line("delta_weighted, 1000"),
            "delta_weighted, 1000 ms +4.0 -5.0"
        );
        assert_eq!(line("best for api"), "best for api alone: scx_simple -f");
        assert_eq!(
            line("best single"),
            "best single scheduler: scx_simple -f +2.0 -4.0"
        );
        assert_eq!(
            line("best turns"),
            "best turns: delta_weighted, 1000 ms +4.0 -5.0"
        );
        let faults = text
            .lines()
            .filter(|line| line.contains("scx_qmap: failed"));
        assert_eq!(faults.count(), 1, "each thing once: {text}");
    }

    #[test]
    fn repeats_are_runs_like_any_others() {
        let mut rows = samples::rows();
        rows.extend(samples::rows().into_iter().map(|row| match row {
            MetaRow::Applications(mut row) => {
                row.repeat = 1;
                row.runs
                    .iter_mut()
                    .for_each(|run| run.throughput_per_s *= 1.1);
                MetaRow::Applications(row)
            }
            other => other,
        }));
        let report = report(rows);
        let summary = Summary::of(&report).unwrap();
        assert_eq!(summary.singles().len(), 4);
        let under = Under::Single { name: EEVDF.into() };
        let spread = summary.spread(API, &under, THROUGHPUT).unwrap();
        assert!((spread.min - 198.0).abs() < 1e-9 && (spread.max - 222.2).abs() < 1e-9);
    }

    #[test]
    fn who_misbehaved_is_nobody_s_best() {
        let mut rows = samples::rows();
        let is_simple = |row: &ApplicationRow| row.under.to_string() == "scx_simple -f";
        let row = rows.iter_mut().find_map(|row| match row {
            MetaRow::Applications(row) if is_simple(row) => Some(row),
            _ => None,
        });
        row.unwrap().faults.push("thrown out".into());
        let report = report(rows);
        let best = Summary::of(&report).unwrap().best_single().unwrap();
        assert_eq!(best.under.to_string(), "scx_cosmos");
    }

    #[test]
    fn without_turns_there_is_no_word_of_them() {
        let mut rows = samples::rows();
        rows.retain(|row| {
            matches!(row, MetaRow::Applications(row)
                if matches!(row.under, Under::Single { .. }))
        });
        let report = report(rows);
        let summary = Summary::of(&report).unwrap();
        let sentence = summary.sentence().unwrap();
        assert!(
            sentence.starts_with("best single scheduler, scx_simple -f: "),
            "{sentence}"
        );
        assert!(!summary.table().contains("turns"));
        assert!(Summary::of(&self::report(Vec::new())).is_none());
    }

    #[test]
    fn where_one_is_best_for_both_parts_that_is_said() {
        let mut rows = samples::rows();
        for row in &mut rows {
            if let MetaRow::Applications(row) = row {
                row.turns.truncate(1);
            }
        }
        let report = report(rows);
        let text = Summary::of(&report).unwrap().table();
        assert!(text.contains("nobody takes turns"), "{text}");
    }

    #[test]
    fn both_figures_are_drawn_and_curves_only_of_several_timeslices() {
        let mut page = String::new();
        let mut rows = samples::rows();
        let of_all = report(rows.clone());
        Summary::of(&of_all).unwrap().figures(&mut page);
        assert_eq!(page.matches("<svg").count(), 4);
        rows.retain(|row| {
            !matches!(row, MetaRow::Applications(row)
                if matches!(row.under, Under::Fixed { base_timeslice_ms, .. }
                    if base_timeslice_ms == 1000.0))
        });
        page.clear();
        let of_one = report(rows);
        Summary::of(&of_one).unwrap().figures(&mut page);
        assert_eq!(page.matches("<svg").count(), 2);
    }
}
