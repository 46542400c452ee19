//! Reports of query scheduling.

mod html;
mod plots;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::experiments::tasks::{TasksExperiment, TasksRow};
use crate::harness::figure::Figure;
use crate::render::target::Target;
use crate::report::{Record, Report};

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

    fn targets(report: &Report<TasksRow>) -> Vec<Target> {
        targets::targets(&summary::Summary::of(report))
    }

    fn figures(report: &Report<TasksRow>) -> Vec<Figure> {
        let summary = summary::Summary::of(report);
        // The paper's is full load; here it is the highest that was measured.
        let loads = summary.loads(TasksExperiment::Mix);
        let load = loads.into_iter().reduce(f64::max);
        let times = |rival, number: summary::Number| {
            let cell = |arm| summary.cell(TasksExperiment::Mix, load?, arm);
            Some(cell(rival)?.times(cell("tuned")?, number)?.mean)
        };
        let [short, long]: [summary::Number; 2] = [
            |run| Some(summary::short(run)?.mean),
            |run| Some(summary::long(run)?.mean),
        ];
        let of = |rival, what, number, paper| {
            let what = format!("{what} queries' slowdown: {rival} over tuned");
            Figure::ratio(what, "Figure 7", paper, times(rival, number)).unit(" x")
        };
        vec![
            of("fair", "short", short, "2 x"),
            of("balanced", "short", short, "over 4.5 x"),
            of("fair", "long", long, "almost 2 x"),
        ]
    }

    fn setting(&self) -> String {
        let TasksRow { scale, workers, .. } = self;
        format!("scale factor {scale} and {workers} workers")
    }
}
