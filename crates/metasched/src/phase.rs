//! The core of a phase-aware policy: the best scheduler for what runs *now*.
//!
//! The paper's policies divide time into fixed slices, whatever runs in a slice; the
//! paper proposes to use recent activity instead (section 5). This policy gets samples
//! of each application's demand, and from the measurements it knows each application's
//! performance under each scheduler. The *score* of a scheduler in a sample is what the applications do
//! under it, each relative to EEVDF, weighted by demand.
//!
//! Following the best score would swap too often. A swap has to pay, and how long a
//! phase will last is unknown. This is the problem of metrical task systems; here its
//! work function algorithm decides:
//!
//! ```text
//!   loss(s) = best score − score(s), times the sample's length
//!   w(s)    = the least loss so far of any schedule that ends under s,
//!             swaps included
//!           = min( w(s) + loss(s),  min over all w + c )       c: a swap
//!   swap    when w(current) = min w + c, to a scheduler of least w
//! ```
//!
//! This is hysteresis with a bound: after a swap the new scheduler has to lose
//! by 2c before it is swapped back, and with n schedulers the sum of losses and
//! swaps is at most 2n − 1 times that of the offline optimum, plus a constant. A swap
//! costs c, its measured time: as if nothing ran meanwhile, at EEVDF's rate.
//!
//! Nothing here looks at a machine: demand comes from the caller
//! ([`Watch`](crate::selector::Watch)).

use std::time::Duration;

use crate::error::{Error, Result};
use crate::measurements::{Company, Measurements};
use crate::policy::{Goal, value};
use crate::scheduler::EEVDF;

/// Follows phases.
#[derive(Clone, Debug)]
pub struct Phases {
    schedulers: Vec<String>,
    /// Of each application, under each scheduler, relative to EEVDF.
    merit: Vec<Vec<f64>>,
    /// c, in seconds at EEVDF's rate.
    swap: f64,
    /// w, less its minimum.
    work: Vec<f64>,
    current: usize,
}

impl Phases {
    /// Among these schedulers, by these measurements; begins with the first. A
    /// scheduler under which some application has no reading, or which
    /// misbehaved, is not considered. `applications` tells in which order
    /// demands will be given; `swap` is what a swap takes.
    ///
    /// # Errors
    /// [`Error::Unmeasured`] if an application has no reading under EEVDF, or
    /// no scheduler is left.
    pub fn new(
        measurements: &Measurements,
        goal: Goal,
        applications: &[&str],
        schedulers: &[&str],
        swap: Duration,
    ) -> Result<Phases> {
        let of = |application: &str, scheduler: &str| {
            let cell = measurements.cell(application, scheduler, Company::Alone)?;
            cell.medians().map(|reading| value(&reading, goal))
        };
        let mut merit: Vec<Vec<f64>> = vec![Vec::new(); applications.len()];
        let mut usable = Vec::new();
        for scheduler in schedulers {
            let values: Option<Vec<f64>> = applications.iter().map(|a| of(a, scheduler)).collect();
            let Some(values) = values.filter(|_| !measurements.has_misbehaved(scheduler)) else {
                continue;
            };
            usable.push((*scheduler).to_owned());
            for ((row, value), application) in merit.iter_mut().zip(values).zip(applications) {
                let eevdf = of(application, EEVDF).ok_or_else(|| {
                    Error::Unmeasured(format!(
                        "{application} has not been measured under {EEVDF}; measure it there, too"
                    ))
                })?;
                row.push(value / eevdf);
            }
        }
        if usable.is_empty() {
            return Err(Error::Unmeasured(
                "no scheduler has a reading of every application; measure them all".into(),
            ));
        }
        Ok(Phases {
            work: vec![0.0; usable.len()],
            schedulers: usable,
            merit,
            swap: swap.as_secs_f64(),
            current: 0,
        })
    }

    /// What each scheduler is good for under this demand.
    fn scores(&self, demand: &[f64]) -> Vec<f64> {
        let sum: f64 = demand.iter().sum();
        let score = |scheduler: usize| {
            let parts = self.merit.iter().zip(demand);
            parts.map(|(row, d)| row[scheduler] * d / sum).sum()
        };
        (0..self.schedulers.len()).map(score).collect()
    }

    /// Takes in a sample of this length: what each application demanded, in any
    /// unit. Answers with the scheduler that should be in force from now on.
    ///
    /// # Panics
    /// If there is not one demand per application, or one is negative or no
    /// number.
    pub fn observe(&mut self, demand: &[f64], length: Duration) -> &str {
        assert_eq!(demand.len(), self.merit.len(), "a demand per application");
        assert!(demand.iter().all(|d| *d >= 0.0 && d.is_finite()));
        // A machine at rest says nothing about schedulers.
        if demand.iter().any(|d| *d > 0.0) {
            let scores = self.scores(demand);
            self.lose(&scores, length.as_secs_f64());
        }
        self.current()
    }

    fn lose(&mut self, scores: &[f64], seconds: f64) {
        let best = scores.iter().copied().fold(f64::MIN, f64::max);
        for (work, score) in self.work.iter_mut().zip(scores) {
            *work += (best - score) * seconds;
        }
        let least = self.work.iter().copied().fold(f64::MAX, f64::min);
        for work in &mut self.work {
            // Less the least, so that months do not use up the digits.
            *work = (*work - least).min(self.swap);
        }
        if self.work[self.current] >= self.swap {
            // Of equals the one that is best at this moment.
            let least = (0..self.work.len()).filter(|s| self.work[*s] <= 0.0);
            let next = least.max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            self.current = next.expect("the least is there");
        }
    }

    /// Those among which it chooses.
    pub fn schedulers(&self) -> impl Iterator<Item = &str> {
        self.schedulers.iter().map(String::as_str)
    }

    /// The scheduler that should be in force.
    pub fn current(&self) -> &str {
        &self.schedulers[self.current]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{Blame, FaultNote, MachineNote, Reading};
    use proptest::prelude::*;

    /// Web is 1.5 times as fast under `w`, batch under `b`; each loses half
    /// under the other's.
    fn measured() -> Measurements {
        let mut all = Measurements::new(MachineNote::default());
        for (application, scheduler, throughput_per_s) in [
            ("web", EEVDF, 100.0),
            ("web", "w", 150.0),
            ("web", "b", 50.0),
            ("batch", EEVDF, 2.0),
            ("batch", "w", 1.0),
            ("batch", "b", 3.0),
        ] {
            let cell = all.cell_mut(application, scheduler, Company::Alone);
            cell.runs.push(Reading {
                throughput_per_s,
                p99_s: 1.0,
            });
        }
        all
    }

    const SWAP: Duration = Duration::from_millis(133);
    const SAMPLE: Duration = Duration::from_millis(10);
    const WEB: [f64; 2] = [3.0, 0.0];
    const BATCH: [f64; 2] = [0.0, 1.0];

    fn phases(schedulers: &[&str]) -> Phases {
        let all = measured();
        Phases::new(&all, Goal::Throughput, &["web", "batch"], schedulers, SWAP).unwrap()
    }

    /// Samples of this demand until the scheduler changes.
    fn until_swap(phases: &mut Phases, demand: [f64; 2]) -> usize {
        let before = phases.current().to_owned();
        let mut samples = 1;
        while phases.observe(&demand, SAMPLE) == before {
            samples += 1;
            assert!(samples < 10_000);
        }
        samples
    }

    #[test]
    fn phase_change_swaps_once_the_loss_exceeds_its_cost() {
        let mut phases = phases(&["w", "b"]);
        // The wrong scheduler loses one second per second: first c, then, from
        // having been right, 2c.
        assert_eq!(until_swap(&mut phases, BATCH), 14);
        assert_eq!(phases.current(), "b");
        assert_eq!(until_swap(&mut phases, WEB), 27);
        assert_eq!(phases.current(), "w");
    }

    #[test]
    fn phases_shorter_than_a_swap_pays_are_ignored() {
        let mut phases = phases(&["w", "b"]);
        for _ in 0..1000 {
            for demand in [WEB, BATCH] {
                for _ in 0..10 {
                    assert_eq!(phases.observe(&demand, SAMPLE), "w");
                }
            }
        }
    }

    #[test]
    fn costlier_swaps_are_rarer() {
        let samples = |swap| {
            let all = measured();
            let names = ["web", "batch"];
            let new = Phases::new(&all, Goal::Throughput, &names, &["w", "b"], swap);
            until_swap(&mut new.unwrap(), BATCH)
        };
        assert!(samples(SWAP * 10) >= 10 * (samples(SWAP) - 1));
    }

    #[test]
    fn a_machine_at_rest_keeps_its_scheduler() {
        let mut phases = phases(&["w", "b"]);
        phases.observe(&BATCH, SAMPLE * 13);
        for _ in 0..1000 {
            assert_eq!(phases.observe(&[0.0, 0.0], SAMPLE), "w");
        }
        assert_eq!(phases.observe(&BATCH, SAMPLE), "b", "nothing was forgotten");
    }

    #[test]
    fn a_mixture_is_scored_by_demand() {
        let mut phases = phases(&["w", "b", EEVDF]);
        // Half and half all score 1: no reason to swap.
        phases.observe(&[1.0, 1.0], Duration::from_secs(100));
        assert_eq!(phases.current(), "w");
        phases.observe(&[1.0, 3.0], Duration::from_secs(100));
        assert_eq!(phases.current(), "b");
    }

    #[test]
    fn one_that_misbehaved_or_was_not_measured_is_not_considered() {
        let mut all = measured();
        let new = |all: &Measurements, schedulers: &[&str]| {
            Phases::new(all, Goal::Throughput, &["web", "batch"], schedulers, SWAP)
        };
        assert_eq!(new(&all, &["none", "b"]).unwrap().schedulers, ["b"]);
        all.cell_mut("web", "b", Company::Together)
            .faults
            .push(FaultNote {
                repetition: 0,
                blame: Blame::Scheduler,
                what: "stalled".into(),
            });
        assert_eq!(new(&all, &["w", "b"]).unwrap().schedulers, ["w"]);
        assert!(new(&all, &["b"]).is_err());
        all.cells.retain(|cell| cell.scheduler != EEVDF);
        let error = new(&all, &["w"]).unwrap_err().to_string();
        assert!(error.contains("under eevdf"), "{error}");
    }

    /// The least loss of a schedule made with all samples known, beginning under the
    /// first scheduler.
    fn clairvoyant(losses: &[Vec<f64>], swap: f64) -> f64 {
        let mut work = vec![swap; losses[0].len()];
        work[0] = 0.0;
        for loss in losses {
            let least = work.iter().copied().fold(f64::MAX, f64::min);
            for (w, l) in work.iter_mut().zip(loss) {
                *w = w.min(least + swap) + l;
            }
        }
        work.into_iter().fold(f64::MAX, f64::min)
    }

    proptest! {
        /// Losses and swaps together stay within 2n − 1 times the least
        /// possible, plus what beginning and the size of a sample may cost.
        #[test]
        fn loss_is_within_the_bound_of_the_offline_optimum(
            samples in prop::collection::vec(
                prop::collection::vec(0.5..1.5f64, 3), 1..400,
            ),
        ) {
            let swap = SWAP.as_secs_f64();
            let (n, seconds) = (3, 0.02);
            let mut phases = phases(&["w", "b", EEVDF]);
            let mut losses = Vec::new();
            let mut lost = 0.0;
            for scores in &samples {
                let best = scores.iter().copied().fold(f64::MIN, f64::max);
                let loss: Vec<f64> = scores.iter().map(|s| (best - s) * seconds).collect();
                let before = phases.current;
                lost += loss[before];
                phases.lose(scores, seconds);
                if phases.current != before {
                    lost += swap;
                }
                losses.push(loss);
            }
            let least = clairvoyant(&losses, swap);
            let bound = f64::from(2 * n - 1) * (least + swap);
            prop_assert!(lost <= bound, "{} lost, {} at least", lost, least);
        }
    }
}
