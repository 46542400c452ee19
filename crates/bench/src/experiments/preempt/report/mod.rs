//! Reports of preemption.

mod figures;
mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::experiments::preempt::PreemptRow;
use crate::harness::figure::Figure;
use crate::render::target::Target;
use crate::report::{Record, Report};

impl Record for PreemptRow {
    fn table(report: &Report<PreemptRow>) -> String {
        table::render(report)
    }

    fn page(report: &Report<PreemptRow>) -> String {
        html::render(report)
    }

    fn sentence(report: &Report<PreemptRow>) -> String {
        targets::sentence(report)
    }

    fn targets(report: &Report<PreemptRow>) -> Vec<Target> {
        targets::targets(&summary::Summary::of(report))
    }

    fn figures(report: &Report<PreemptRow>) -> Vec<Figure> {
        figures::figures(report)
    }
}
