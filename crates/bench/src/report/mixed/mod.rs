//! Reports of the mixed workload.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod sentence;
mod stats;
mod table;

use crate::result::{Record, Report, Row};
use crate::setup::{Build, Job};

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
        let mut setting = format!("a network of {} us", self.network_us);
        if self.job != Job::default() {
            setting.push_str(&format!(", {} in the background", self.job.label()));
        }
        if self.server != Build::default() {
            setting.push_str(&format!(", the server {}", self.server));
        }
        setting
    }
}
