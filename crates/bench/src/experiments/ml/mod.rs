//! Machine learning in the background (UFS paper, Section 6.8, Figure 10): the
//! mixed workload with the training of a logistic regression, inside the server, in
//! Q17's place.
//!
//! The paper trains with MADlib; here it is scikit-learn under PL/Python
//! ([`Job::LogisticRegression`]): a library that is maintained, and whose work is
//! not PostgreSQL's own. What is expected is the same as with Q17.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::config::{CellConfig, Mix};
use crate::cell::frame::Frame;
use crate::cell::record::cell_rows;
use crate::harness::scheduler::Scheduler;
use crate::workload::background::Job;

/// What is compared by default: the paper's.
pub(crate) const SCHEDULERS: [Scheduler; 3] = [Scheduler::Eevdf, Scheduler::Rr, Scheduler::Ufs];

/// The cells of the experiment.
pub(crate) fn cells(frame: &Frame, schedulers: &[Scheduler]) -> Vec<CellConfig> {
    frame.cells(|cell| {
        let mut cells = Vec::new();
        for mix in Mix::ALL {
            let relevant = schedulers
                .iter()
                .filter(|scheduler| mix.is_relevant_under(scheduler));
            cells.extend(relevant.map(|scheduler| CellConfig {
                scheduler: scheduler.clone(),
                mix,
                job: Job::LogisticRegression,
                ..cell.clone()
            }));
        }
        cells
    })
}

cell_rows! {
    /// A cell of the mixed workload with a regression in the background.
    MlRow, "ml"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_is_measured_under_every_scheduler_that_it_is_of_use_for() {
        let frame = Frame {
            cpus: 4,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 1,
            seed: 1,
        };
        assert_eq!(
            cells(&frame, &SCHEDULERS).len(),
            Mix::ALL.len() * SCHEDULERS.len()
        );
        let idle = cells(&frame, &[Scheduler::Idle]);
        assert_eq!(
            Vec::from_iter(idle.iter().map(|cell| cell.mix)),
            [Mix::MinMax]
        );
        assert!(idle.iter().all(|cell| cell.validate().is_ok()));
        assert!(idle.iter().all(|cell| cell.job == Job::LogisticRegression));
    }
}
