//! Reports of priority inversion, in the manner of the paper's Table 4.

mod html;
#[cfg(test)]
pub(crate) mod samples;
mod summary;
mod table;
mod targets;

use crate::cell::setup::Hints;
use crate::experiments::inversion::{ContendedLock, InversionRow};
use crate::harness::figure::Figure;
use crate::harness::scheduler::Scheduler;
use crate::render::target::Target;
use crate::report::{Record, Report};

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

    fn targets(report: &Report<InversionRow>) -> Vec<Target> {
        targets::targets(&summary::pairs(report))
    }

    fn figures(report: &Report<InversionRow>) -> Vec<Figure> {
        let pairs = summary::pairs(report);
        let of = |scheduler: Scheduler, hints, paper| {
            let mut spin = pairs.iter().filter(|pair| pair.lock == ContendedLock::Spin);
            let pair = spin.find(|pair| {
                (&pair.treatment.scheduler, pair.treatment.hints) == (&scheduler, hints)
            });
            let what = format!("{}: spinlock, waiter with burner", scheduler.label());
            // Who waited without an end has no ratio.
            let measured = pair
                .filter(|pair| pair.baseline.waiter().median().is_some())
                .map(|pair| pair.ratio().unwrap_or(f64::INFINITY));
            Figure::ratio(what, "Table 4", paper, measured).unit(" x")
        };
        vec![
            of(Scheduler::Eevdf, Hints::Off, "endless"),
            of(Scheduler::Fifo, Hints::Off, "endless"),
            of(Scheduler::Rr, Hints::Off, "17.8 x"),
            of(Scheduler::Ufs, Hints::Patched, "1.75 x"),
        ]
    }

    fn setting(&self) -> String {
        format!("a hold of {} s", self.hold_s)
    }
}
