//! Reports of locks.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::locks::LockRow;
use crate::result::{Record, Report};

impl Record for LockRow {
    fn table(report: &Report<LockRow>) -> String {
        table::render(report)
    }

    fn page(report: &Report<LockRow>) -> String {
        html::render(report)
    }

    fn sentence(report: &Report<LockRow>) -> String {
        targets::sentence(report)
    }
}
