//! Reports of priority inversion, in the manner of the paper's Table 4.

mod html;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::inversion::InversionRow;
use crate::result::{Record, Report};

impl Record for InversionRow {
    fn table(report: &Report<InversionRow>) -> String {
        table::render(report)
    }

    fn page(report: &Report<InversionRow>) -> String {
        html::render(report)
    }

    fn sentence(report: &Report<InversionRow>) -> String {
        targets::sentence(report)
    }

    fn setting(&self) -> String {
        format!("a hold of {} s", self.hold_s)
    }
}
