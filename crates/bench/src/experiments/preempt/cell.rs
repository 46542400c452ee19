//! What is measured in one place: one experiment and one repeat.

use super::{PreemptPlan, PreemptRow};
use crate::report::Report;

/// One experiment and one repeat.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) plan: PreemptPlan,
    pub(super) repeat: u32,
}

impl Cell {
    pub(super) fn title(&self) -> String {
        let names = self.plan.experiments.iter().map(|one| one.name());
        let names = Vec::from_iter(names).join(", ");
        format!("{names}, repeat {}", self.repeat + 1)
    }
}

/// A cell's rows, with the repeat that the cell is.
pub(super) fn numbered(mut report: Report<PreemptRow>, cell: &Cell) -> Report<PreemptRow> {
    for row in &mut report.rows {
        row.repeat = cell.repeat;
    }
    report
}
