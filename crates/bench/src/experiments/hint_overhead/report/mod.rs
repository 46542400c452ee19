//! Reports of what hints cost and of what they are good for.

mod html;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;

use crate::cell::setup::Build;
use crate::experiments::hint_overhead::{Arm, HintRow};
use crate::harness::figure::Figure;
use crate::render::target::Target;
use crate::report::{Record, Report};

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

    fn targets(report: &Report<Self>) -> Vec<Target> {
        summary::targets(&summary::Summary::of(report))
    }

    fn figures(report: &Report<Self>) -> Vec<Figure> {
        let summary = summary::Summary::of(report);
        let of = |server: Build, name| {
            let on = summary.cell(server, Arm::On);
            let kept = on.and_then(|on| summary.to_off(on, |row| row.ts_tps));
            let lost = kept.map(|kept| (1.0 - kept.median) * 100.0);
            let what = format!("{name} server: throughput lost to hints");
            Figure::ratio(what, "Section 6.7", "negligible", lost).unit(" %")
        };
        vec![of(Build::Stock, "stock"), of(Build::Patched, "patched")]
    }

    fn setting(&self) -> String {
        format!("{} in the background", self.0.job.label())
    }
}
