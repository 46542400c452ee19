//! Rows by experiment, case, thread count and lock.

use crate::experiments::locks::{Contended, LockExperiment, LockRow};
use crate::harness::number::Spread;
use crate::report::Report;

/// The repeats of one lock in one run.
#[derive(Clone, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) lock: &'a str,
    pub(crate) fair: bool,
    pub(crate) rows: Vec<&'a LockRow>,
}

impl<'a> Cell<'a> {
    /// The spread of a number over the repeats that have it.
    pub(crate) fn spread(&self, number: impl Fn(&Contended) -> Option<f64>) -> Option<Spread> {
        let contended = self.rows.iter().filter_map(|row| row.contended.as_ref());
        Spread::of(contended.filter_map(number))
    }

    /// The median of a number over the repeats that have it.
    pub(crate) fn median(&self, number: impl Fn(&Contended) -> Option<f64>) -> Option<f64> {
        self.spread(number).map(|spread| spread.median)
    }

    /// The sum of a number over the repeats.
    pub(crate) fn sum(&self, number: impl Fn(&Contended) -> f64) -> f64 {
        let rows = self.rows.iter().filter_map(|row| row.contended.as_ref());
        rows.map(number).sum()
    }

    pub(crate) fn turns_per_s(&self) -> Option<f64> {
        self.median(|row| Some(row.turns_per_s))
    }

    pub(crate) fn wait_us(&self) -> Option<f64> {
        self.median(|row| Some(row.wait.mean_us))
    }

    /// The largest deviation of the ratio from 1 among medians: one number.
    pub(crate) fn deviation(&self) -> Option<f64> {
        self.median(|row| row.ratio)
            .map(|ratio| (ratio - 1.0).abs())
    }

    /// ns of an uncontended pair, over the rounds of all repeats.
    pub(crate) fn alone_ns(&self) -> Option<Spread> {
        Spread::of(self.rows.iter().flat_map(|row| row.uncontended_ns.clone()))
    }
}

/// The locks in one run of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) experiment: LockExperiment,
    pub(crate) case: &'a str,
    pub(crate) threads: u32,
    pub(crate) cells: Vec<Cell<'a>>,
}

impl<'a> Group<'a> {
    pub(crate) fn cell(&self, lock: &str) -> Option<&Cell<'a>> {
        self.cells.iter().find(|cell| cell.lock == lock)
    }

    /// The lock with the most turns among those that do not share hold time.
    pub(crate) fn best_unfair(&self) -> Option<&Cell<'a>> {
        let turns = |cell: &&Cell<'a>| cell.turns_per_s().unwrap_or_default();
        self.cells
            .iter()
            .filter(|cell| !cell.fair)
            .max_by(|a, b| turns(a).total_cmp(&turns(b)))
    }
}

/// A report's rows in the order of tables.
#[derive(Clone, Debug)]
pub(crate) struct Summary<'a>(pub(crate) Vec<Group<'a>>);

impl<'a> Summary<'a> {
    pub(crate) fn of(report: &'a Report<LockRow>) -> Self {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for row in &report.rows {
            let key = (row.experiment, row.case.as_str(), row.threads);
            let of_row = |group: &Group<'_>| (group.experiment, group.case, group.threads) == key;
            let group = match groups.iter().position(of_row) {
                Some(index) => &mut groups[index],
                None => {
                    groups.push(Group {
                        experiment: row.experiment,
                        case: &row.case,
                        threads: row.threads,
                        cells: Vec::new(),
                    });
                    groups.last_mut().expect("one was pushed")
                }
            };
            match group.cells.iter_mut().find(|cell| cell.lock == row.lock) {
                Some(cell) => cell.rows.push(row),
                None => group.cells.push(Cell {
                    lock: &row.lock,
                    fair: row.fair,
                    rows: vec![row],
                }),
            }
        }
        // Cases stay in the order in which they were run.
        groups.sort_by_key(|group| group.experiment);
        for group in &mut groups {
            group.cells.sort_by_key(|cell| rank(cell.lock));
        }
        Summary(groups)
    }

    /// The groups of an experiment.
    pub(crate) fn experiment(&self, of: LockExperiment) -> impl Iterator<Item = &Group<'a>> {
        self.0.iter().filter(move |group| group.experiment == of)
    }

    /// The experiments that were run.
    pub(crate) fn experiments(&self) -> Vec<LockExperiment> {
        LockExperiment::ALL
            .into_iter()
            .filter(|of| self.experiment(*of).next().is_some())
            .collect()
    }

    /// The locks that were measured, in the order of tables.
    pub(crate) fn locks(&self) -> Vec<&'a str> {
        let cells = self.0.iter().flat_map(|group| &group.cells);
        let mut locks: Vec<&str> = cells.map(|cell| cell.lock).collect();
        locks.sort_by_key(|lock| rank(lock));
        locks.dedup();
        locks
    }
}

/// The position of a lock: as `--list` has it, then libraries by name.
fn rank(lock: &str) -> (usize, String) {
    let known = crate::experiments::locks::locks();
    let rank = known.iter().position(|(name, _)| name == lock);
    (rank.unwrap_or(known.len()), lock.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::report::samples;

    #[test]
    fn the_best_unfair_lock_is_never_a_fair_one() {
        let mut report = samples::report();
        for row in &mut report.rows {
            if let ("u-scl", Some(contended)) = (row.lock.as_str(), &mut row.contended) {
                contended.turns_per_s = 1e9;
            }
        }
        let summary = Summary::of(&report);
        let group = summary.experiment(LockExperiment::Equal).next().unwrap();
        assert_eq!(group.best_unfair().unwrap().lock, "parking_lot-0.13");
    }
}
