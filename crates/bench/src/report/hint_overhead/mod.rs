//! Reports of what hints cost and of what they are good for.

mod html;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;

use crate::hint_overhead::HintRow;
use crate::result::{Record, Report};

impl Record for HintRow {
    fn table(report: &Report<Self>) -> String {
        table::render(report)
    }

    fn page(report: &Report<Self>) -> String {
        html::render(report)
    }

    fn sentence(report: &Report<Self>) -> String {
        summary::sentence(report)
    }

    fn setting(&self) -> String {
        format!("{} in the background", self.0.job.label())
    }
}
