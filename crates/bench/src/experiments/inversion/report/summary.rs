//! Rows by lock and treatment, baseline and burner side by side.

use crate::cell::setup::Hints;
use crate::experiments::inversion::{ContendedLock, InversionRow, Outcome, Scenario, Treatment};
use crate::harness::number::{Spread, short};
use crate::report::Report;

/// The repeats of one scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell<'a> {
    pub(super) rows: Vec<&'a InversionRow>,
}

/// What the repeats say of a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Said {
    /// There are no rows.
    Nothing,
    /// Every repeat has it.
    Seconds(Spread),
    /// Some repeat was not through within so many seconds.
    Late(f64),
    /// In some repeat the server panicked.
    Panic,
}

impl Said {
    /// In 6 characters or fewer.
    pub(super) fn text(self) -> String {
        match self {
            Said::Nothing => "-".to_owned(),
            Said::Seconds(spread) => short(spread.median),
            Said::Late(limit_s) => format!(">{limit_s:.0}"),
            Said::Panic => "panic".to_owned(),
        }
    }

    /// The median, if there is one.
    pub(super) fn median(self) -> Option<f64> {
        match self {
            Said::Seconds(spread) => Some(spread.median),
            _ => None,
        }
    }
}

impl Cell<'_> {
    /// A time of the cell; one repeat without it outweighs all others, since a
    /// median that leaves it out would flatter.
    fn said(&self, time: fn(&InversionRow) -> Option<f64>) -> Said {
        let missing = |row: &&&InversionRow| time(row).is_none();
        if let Some(row) = self.rows.iter().find(missing) {
            return match row.outcome {
                Outcome::Panic => Said::Panic,
                _ => Said::Late(row.limit_s),
            };
        }
        let times = self.rows.iter().filter_map(|row| time(row));
        Spread::of(times).map_or(Said::Nothing, Said::Seconds)
    }

    pub(super) fn holder(&self) -> Said {
        self.said(|row| row.holder_total_s)
    }

    pub(super) fn waiter(&self) -> Said {
        self.said(|row| row.waiter_total_s)
    }

    /// Median seconds that holders ran boosted.
    pub(super) fn boosted_s(&self) -> Option<f64> {
        let boosted = self.rows.iter().filter_map(|row| row.boosted_ns);
        Some(Spread::of(boosted.map(|ns| ns as f64 * 1e-9))?.median)
    }
}

/// One lock under one treatment.
#[derive(Clone, Debug)]
pub(super) struct Pair<'a> {
    pub(super) lock: ContendedLock,
    pub(super) treatment: Treatment,
    pub(super) baseline: Cell<'a>,
    pub(super) burner: Cell<'a>,
}

impl Pair<'_> {
    /// The waiter's time with the burner as a multiple of that without.
    pub(super) fn ratio(&self) -> Option<f64> {
        Some(self.burner.waiter().median()? / self.baseline.waiter().median()?)
    }

    pub(super) fn has_hints(&self) -> bool {
        self.treatment.hints != Hints::Off
    }
}

/// Pairs by lock, then in the order of treatments: the paper's, then UFS with
/// more and more hints.
pub(super) fn pairs(report: &Report<InversionRow>) -> Vec<Pair<'_>> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for row in &report.rows {
        let same = |pair: &Pair<'_>| {
            pair.lock == row.lock
                && pair.treatment.scheduler == row.scheduler
                && pair.treatment.hints == row.hints
        };
        let index = pairs.iter().position(same).unwrap_or_else(|| {
            pairs.push(Pair {
                lock: row.lock,
                treatment: Treatment {
                    scheduler: row.scheduler.clone(),
                    hints: row.hints,
                },
                baseline: Cell::default(),
                burner: Cell::default(),
            });
            pairs.len() - 1
        });
        let cell = match row.scenario {
            Scenario::Baseline => &mut pairs[index].baseline,
            Scenario::Burner => &mut pairs[index].burner,
        };
        cell.rows.push(row);
    }
    pairs.sort_by_key(|pair| {
        let Treatment { scheduler, hints } = &pair.treatment;
        (pair.lock, scheduler.rank(), *hints)
    });
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::inversion::report::samples;

    #[test]
    fn one_repeat_that_was_late_makes_the_cell_late() {
        let mut report = samples::report();
        let waiter = |report: &Report<InversionRow>| {
            let pairs = pairs(report);
            let of = |pair: &&Pair<'_>| {
                pair.lock == ContendedLock::Spin && pair.treatment.hints == Hints::Patched
            };
            pairs.iter().find(of).unwrap().burner.waiter()
        };
        assert!(matches!(waiter(&report), Said::Seconds(_)));
        let late = |row: &&mut InversionRow| {
            row.lock == ContendedLock::Spin
                && row.hints == Hints::Patched
                && row.scenario == Scenario::Burner
                && row.repeat == 1
        };
        let row = report.rows.iter_mut().find(late).unwrap();
        (row.waiter_total_s, row.outcome) = (None, Outcome::Late);
        assert_eq!(waiter(&report), Said::Late(60.0));
        let row = report.rows.iter_mut().find(late).unwrap();
        row.outcome = Outcome::Panic;
        assert_eq!(waiter(&report), Said::Panic);
    }
}
