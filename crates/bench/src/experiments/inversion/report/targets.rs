//! What hints are meant to reach, beside what was measured. A target whose rows
//! are missing is not mentioned; one that is missed is.

use super::summary::{Pair, Said, pairs};
use crate::cell::setup::Hints;
use crate::experiments::inversion::InversionRow;
use crate::harness::number::short;
use crate::harness::scheduler::Scheduler;
use crate::render::target::{self, Target};
use crate::report::Report;

/// The waiter's time with the burner, in multiples of that without: where the
/// server says who holds what, and where UFS has to find out.
const PATCHED_MOST: f64 = 1.25;
const STOCK_MOST: f64 = 2.0;

/// Every target that the pairs say something about.
pub(super) fn targets(pairs: &[Pair<'_>]) -> Vec<Target> {
    let of_ufs = pairs
        .iter()
        .filter(|pair| pair.treatment.scheduler == Scheduler::Ufs);
    of_ufs.filter_map(target).collect()
}

fn target(pair: &Pair<'_>) -> Option<Target> {
    let waiter = pair.burner.waiter();
    if waiter == Said::Nothing || pair.baseline.waiter() == Said::Nothing {
        return None;
    }
    let ratio = pair.ratio();
    let (most, bound) = match pair.treatment.hints {
        // Without hints UFS is to fail, or the experiment shows nothing.
        Hints::Off => {
            return Some(Target {
                what: format!("{}, {}", pair.lock, pair.treatment),
                bound: "does not finish",
                measured: measured(ratio, waiter),
                met: waiter.median().is_none(),
            });
        }
        Hints::Stock => (STOCK_MOST, "at most 2 x"),
        Hints::Patched => (PATCHED_MOST, "at most 1.25 x"),
    };
    Some(Target {
        what: format!("{}, {}", pair.lock, pair.treatment),
        bound,
        measured: measured(ratio, waiter),
        met: ratio.is_some_and(|ratio| ratio <= most),
    })
}

fn measured(ratio: Option<f64>, waiter: Said) -> String {
    match ratio {
        Some(ratio) => format!("{} x", short(ratio)),
        None => format!("{} s", waiter.text()),
    }
}

/// What the reader should see.
pub(super) fn sentence(report: &Report<InversionRow>) -> String {
    let pairs = pairs(report);
    let worst = |hints: Hints| {
        let of_hints = pairs.iter().filter(|pair| pair.treatment.hints == hints);
        of_hints.filter_map(Pair::ratio).reduce(f64::max)
    };
    let waits: Vec<String> = [Hints::Patched, Hints::Stock]
        .into_iter()
        .filter_map(|hints| {
            let ratio = short(worst(hints)?);
            Some(format!("{ratio} times with a {hints} server"))
        })
        .collect();
    let targets = targets(&pairs);
    if waits.is_empty() || targets.is_empty() {
        return "These rows hold no hints, so they do not say what hints do.".to_owned();
    }
    let verdict = target::summary(&targets);
    format!(
        "An urgent session that wants a background one's lock waits, under UFS with hints and \
         beside a burner, at most this much of what it waits without the burner: {}; {verdict}.",
        waits.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::inversion::report::samples;
    use crate::experiments::inversion::{ContendedLock, Outcome, Scenario};

    fn missed(report: &Report<InversionRow>) -> Vec<String> {
        let targets = targets(&pairs(report));
        let missed = targets.into_iter().filter(|target| !target.met);
        missed.map(|target| target.what).collect()
    }

    /// The burner's row of a lock under UFS, first repeat.
    fn burnt(
        report: &mut Report<InversionRow>,
        lock: ContendedLock,
        hints: Hints,
    ) -> impl Iterator<Item = &mut InversionRow> {
        report.rows.iter_mut().filter(move |row| {
            row.scheduler == Scheduler::Ufs
                && (row.lock, row.hints, row.scenario) == (lock, hints, Scenario::Burner)
        })
    }

    #[test]
    fn the_samples_meet_every_target() {
        assert_eq!(missed(&samples::report()), Vec::<String>::new());
        assert_eq!(
            sentence(&samples::report()),
            "An urgent session that wants a background one's lock waits, under UFS with hints \
             and beside a burner, at most this much of what it waits without the burner: 1.15 \
             times with a patched server, 1.50 times with a stock server; all 12 targets are met."
        );
    }

    #[test]
    fn a_wait_beyond_its_bound_is_a_miss_and_each_kind_has_its_own() {
        let mut report = samples::report();
        let ratio = |report: &mut Report<InversionRow>, hints, times: f64| {
            for row in burnt(report, ContendedLock::Lwlock, hints) {
                row.waiter_total_s = Some(4.0 * times);
            }
        };
        ratio(&mut report, Hints::Patched, 1.24);
        ratio(&mut report, Hints::Stock, 1.99);
        assert_eq!(missed(&report), Vec::<String>::new());
        ratio(&mut report, Hints::Patched, 1.3);
        assert_eq!(missed(&report), ["lwlock, UFS, hints patched"]);
        ratio(&mut report, Hints::Stock, 2.1);
        assert_eq!(missed(&report).len(), 2);
        assert!(sentence(&report).contains("2 of 12 targets are missed: lwlock"));
    }

    #[test]
    fn a_waiter_that_was_late_misses_and_without_hints_is_meant_to() {
        let mut report = samples::report();
        for row in burnt(&mut report, ContendedLock::Chain, Hints::Stock) {
            (row.waiter_total_s, row.outcome) = (None, Outcome::Late);
        }
        assert_eq!(missed(&report), ["chain, UFS, hints stock"]);
        let mut report = samples::report();
        for row in burnt(&mut report, ContendedLock::Chain, Hints::Off) {
            (row.waiter_total_s, row.outcome) = (Some(4.0), Outcome::Finished);
        }
        assert_eq!(missed(&report), ["chain, UFS, hints off"]);
    }

    #[test]
    fn rows_without_hints_say_nothing_of_them() {
        let mut report = samples::report();
        report.rows.retain(|row| row.hints == Hints::Off);
        assert!(sentence(&report).contains("no hints"));
    }
}
