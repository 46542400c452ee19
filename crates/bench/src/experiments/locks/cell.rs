//! What is measured in one place: one experiment and one repeat.

use super::{LockPlan, LockRow};
use crate::report::Report;

/// One experiment and one repeat.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) plan: LockPlan,
    pub(super) repeat: u32,
}

impl Cell {
    pub(super) fn title(&self) -> String {
        let names = self
            .plan
            .experiments
            .iter()
            .map(|experiment| experiment.name());
        format!(
            "{}, repeat {}",
            Vec::from_iter(names).join(", "),
            self.repeat + 1
        )
    }
}

/// A cell's rows, with the repeat that the cell is.
pub(super) fn numbered(mut report: Report<LockRow>, cell: &Cell) -> Report<LockRow> {
    for row in &mut report.rows {
        row.repeat = cell.repeat;
    }
    report
}
