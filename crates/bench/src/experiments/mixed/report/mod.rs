//! Reports of the mixed workload.

mod figures;
mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod sentence;
mod stats;
mod table;
mod targets;

pub(crate) use html::render as page;
pub(crate) use stats::Summary;

use crate::cell::row::Row;
use crate::cell::setup::Build;
use crate::harness::figure::Figure;
use crate::render::target::Target;
use crate::report::{Record, Report};
use crate::workload::background::Job;

impl Record for Row {
    fn table(report: &Report<Row>) -> String {
        table::render(report)
    }

    fn page(report: &Report<Row>) -> String {
        let about = "Two kinds of work on the same CPUs";
        html::render(report, about, &Row::sentence(report))
    }

    fn sentence(report: &Report<Row>) -> String {
        sentence::sentence(report)
    }

    fn targets(report: &Report<Row>) -> Vec<Target> {
        targets::targets(&Summary::of(report))
    }

    fn figures(report: &Report<Row>) -> Vec<Figure> {
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
