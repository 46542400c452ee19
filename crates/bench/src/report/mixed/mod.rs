//! Reports of the mixed workload.

mod figures;
mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod sentence;
mod stats;
mod table;

pub(super) use html::render as page;
pub(super) use stats::Summary;

use crate::report::figure::Figure;
use crate::result::{Record, Report, Row};
use crate::setup::{Build, Job};

impl Record for Row {
    fn table(report: &Report) -> String {
        table::render(report)
    }

    fn page(report: &Report) -> String {
        let about = "Two kinds of work on the same CPUs";
        html::render(report, about, &Row::sentence(report), &[])
    }

    fn sentence(report: &Report) -> String {
        sentence::sentence(report)
    }

    fn figures(report: &Report) -> Vec<Figure> {
        figures::figures(report)
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
