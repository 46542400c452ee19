//! Rows by what is compared: repeats of an arm at a load are one cell.

use crate::experiments::tasks::metrics::{Estimate, Slowdowns};
use crate::experiments::tasks::{Arrived, Measured, Sample, TasksExperiment, TasksRow};
use crate::report::Report;

/// All repeats of an arm at a load.
pub(super) struct Cell<'a> {
    pub(super) experiment: TasksExperiment,
    pub(super) arm: &'a str,
    pub(super) load: Option<f64>,
    pub(super) rows: Vec<&'a TasksRow>,
}

/// All cells, in the order of their first rows.
pub(super) struct Summary<'a>(Vec<Cell<'a>>);

/// A number of a run; none if the run does not have it.
pub(super) type Number = fn(&Arrived) -> Option<f64>;

impl<'a> Summary<'a> {
    pub(super) fn of(report: &'a Report<TasksRow>) -> Self {
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for row in &report.rows {
            let is_same = |cell: &&mut Cell<'_>| {
                (cell.experiment, cell.arm, cell.load)
                    == (row.experiment, row.arm.as_str(), row.load)
            };
            match cells.iter_mut().find(is_same) {
                Some(cell) => cell.rows.push(row),
                None => cells.push(Cell {
                    experiment: row.experiment,
                    arm: &row.arm,
                    load: row.load,
                    rows: vec![row],
                }),
            }
        }
        Summary(cells)
    }

    /// The experiments that have rows, in the order in which they are shown.
    pub(super) fn experiments(&self) -> Vec<TasksExperiment> {
        let has = |one: &TasksExperiment| self.cells(*one).next().is_some();
        TasksExperiment::ALL.into_iter().filter(has).collect()
    }

    pub(super) fn cells(&self, of: TasksExperiment) -> impl Iterator<Item = &Cell<'a>> {
        self.0.iter().filter(move |cell| cell.experiment == of)
    }

    /// The loads of an experiment, from the least.
    pub(super) fn loads(&self, of: TasksExperiment) -> Vec<f64> {
        let mut loads: Vec<f64> = self.cells(of).filter_map(|cell| cell.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        loads
    }

    /// The arms of an experiment that were measured, in order.
    pub(super) fn arms(&self, of: TasksExperiment) -> Vec<&'a str> {
        let mut arms = Vec::new();
        for cell in self
            .cells(of)
            .filter(|cell| cell.arrived().next().is_some())
        {
            if !arms.contains(&cell.arm) {
                arms.push(cell.arm);
            }
        }
        arms
    }

    pub(super) fn cell(&self, of: TasksExperiment, load: f64, arm: &str) -> Option<&Cell<'a>> {
        self.cells(of)
            .find(|cell| cell.load == Some(load) && cell.arm == arm)
    }
}

impl<'a> Cell<'a> {
    pub(super) fn arrived(&self) -> impl Iterator<Item = &'a Arrived> {
        self.rows.iter().filter_map(|row| match &row.measured {
            Measured::Arrived(arrived) => Some(&**arrived),
            _ => None,
        })
    }

    /// Its mean over traces.
    pub(super) fn estimate(&self, number: Number) -> Option<Estimate> {
        let numbers: Vec<f64> = self.arrived().filter_map(number).collect();
        Estimate::of(&numbers)
    }

    /// How many times its number is the other's, over the traces that both have.
    pub(super) fn times(&self, other: &Cell<'_>, number: Number) -> Option<Estimate> {
        let of = |row: &TasksRow| match &row.measured {
            Measured::Arrived(arrived) => number(arrived),
            _ => None,
        };
        let pair = |row: &&TasksRow| {
            let twin = other.rows.iter().find(|twin| twin.seed == row.seed)?;
            Some((of(row)?, of(twin)?))
        };
        let pairs: Vec<(f64, f64)> = self.rows.iter().filter_map(pair).collect();
        Estimate::of_ratios(&pairs)
    }

    /// Why it was left out, if it was.
    pub(super) fn left_out(&self) -> Option<&'a str> {
        self.rows.iter().find_map(|row| match &row.measured {
            Measured::LeftOut(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

/// Of the short queries of the mix.
pub(super) fn short(arrived: &Arrived) -> Option<Slowdowns> {
    arrived.slowdowns(|sample| !sample.long)
}

/// Of its long ones.
pub(super) fn long(arrived: &Arrived) -> Option<Slowdowns> {
    arrived.slowdowns(|sample| sample.long)
}

/// Of all of them.
pub(super) fn all(arrived: &Arrived) -> Option<Slowdowns> {
    arrived.slowdowns(|_| true)
}

/// Which part of a run in which the mix changes in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Until the change.
    Before,
    /// The first third after it.
    After,
    /// The last third.
    Later,
}

impl Part {
    pub(super) fn holds(self, sample: &Sample, arrived: &Arrived) -> bool {
        let middle_s = arrived.seconds / 2.0;
        let since = (sample.due_ms / 1e3 - middle_s) / middle_s;
        match self {
            Part::Before => sample.phase == 0,
            Part::After => sample.phase == 1 && since < 1.0 / 3.0,
            Part::Later => sample.phase == 1 && since >= 2.0 / 3.0,
        }
    }

    /// The mean slowdown in it.
    pub(super) fn mean(self, arrived: &Arrived) -> Option<f64> {
        let slowdowns = arrived.slowdowns(|sample| self.holds(sample, arrived));
        Some(slowdowns?.mean)
    }
}

/// The middle of a pair's turns, ours and stock DataFusion's, ms.
pub(super) fn medians(pair: &crate::experiments::tasks::Pair) -> Option<(f64, f64)> {
    use crate::harness::number::Spread;
    let median = |ms: &[f64]| Spread::of(ms.iter().copied()).map(|spread| spread.median);
    Some((median(&pair.ours_ms)?, median(&pair.stock_ms)?))
}
