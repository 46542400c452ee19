//! Reports of locks.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::experiments::locks::{LockExperiment, LockRow};
use crate::harness::figure::Figure;
use crate::render::target::Target;
use crate::report::{Record, Report};

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

    fn targets(report: &Report<LockRow>) -> Vec<Target> {
        targets::targets(&summary::Summary::of(report))
    }

    fn figures(report: &Report<LockRow>) -> Vec<Figure> {
        let summary = summary::Summary::of(report);
        let unfair = targets::worst(&summary, LockExperiment::Fairness, 8, f64::max, |group| {
            group.cell(targets::OWN)?.deviation()
        });
        let convoy = targets::worst(&summary, LockExperiment::Convoy, 32, f64::max, |group| {
            let turns = |lock| group.cell(lock)?.turns_per_s();
            targets::quotient(turns(targets::OWN), turns(targets::QUEUE))
        });
        vec![
            Figure::ratio(
                "hold time, furthest from equal",
                "Figure 8a",
                "near 0 %",
                unfair.map(|unfair| unfair * 100.0),
            )
            .unit(" %"),
            Figure::ratio(
                "convoy: turns of a queue lock's (CNA, mcs)",
                "Section 4.5",
                "4.19 x",
                convoy,
            )
            .unit(" x"),
        ]
    }
}
