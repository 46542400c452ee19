//! Reports of query scheduling.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::result::{Record, Report};
use crate::tasks::TasksRow;

impl Record for TasksRow {
    fn table(report: &Report<TasksRow>) -> String {
        table::render(report)
    }

    fn page(report: &Report<TasksRow>) -> String {
        html::render(report)
    }

    fn sentence(report: &Report<TasksRow>) -> String {
        targets::sentence(report)
    }

    fn setting(&self) -> String {
        let TasksRow { scale, workers, .. } = self;
        format!("scale factor {scale} and {workers} workers")
    }
}
