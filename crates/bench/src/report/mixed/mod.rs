//! Reports of the mixed workload.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod sentence;
mod stats;
mod table;

use crate::result::{Record, Report, Row};

impl Record for Row {
    fn table(report: &Report) -> String {
        table::render(report)
    }

    fn page(report: &Report) -> String {
        html::render(report)
    }

    fn sentence(report: &Report) -> String {
        sentence::sentence(report)
    }

    fn setting(&self) -> String {
        format!("a network of {} us", self.network_us)
    }
}
