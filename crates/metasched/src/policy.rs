//! The paper's four policies (section 2.2), as functions of the measurements.
//!
//! Of n applications each has a *preferred scheduler*, the one that is best for
//! it, and a *weight* wᵢ; the weights sum to 1. Schedulers take turns, and
//! application i's gets a timeslice of
//!
//! ```text
//!   tᵢ = n · t_b · wᵢ            t_b: the base timeslice
//! ```
//!
//! so a round lasts n · t_b whatever the weights. The policies differ in wᵢ:
//!
//! | policy | wᵢ before it is divided by the sum over all applications |
//! | --- | --- |
//! | round robin | 1 |
//! | delta weighted | lᵢ, latency under EEVDF |
//! | benefit weighted | rᵢ, the benefit of the preferred scheduler |
//! | delta-benefit weighted | (lᵢ / Σl) · (rᵢ / Σr) |
//!
//! # What the paper leaves open, and what is done here
//!
//! - *The sums* run over j = 0 to n in print, which are n + 1 terms. Here they
//!   run over the n applications.
//! - *lᵢ* is "latency data under EEVDF", and the data collected are 99 % tail
//!   latencies: lᵢ is that percentile, in seconds, whatever the goal.
//! - *rᵢ* is printed as the throughput under the best scheduler. Requests per
//!   second of one application and lookups per second of another have no common
//!   unit: in that form the application with the smaller requests has all the
//!   weight. The text speaks of "the amount of benefit compared to other
//!   schedulers" and the figures are relative to EEVDF, so rᵢ is by default
//!   throughput under the best divided by throughput under EEVDF
//!   ([`Normalisation::Ratio`]). The printed form is there
//!   ([`Normalisation::Raw`]), and so is what the ratio exceeds 1 by
//!   ([`Normalisation::Gain`]), since ratios such as 1.07 and 1.03 make
//!   weights that nothing tells from round robin's.
//! - *Optimising tail latency*, which the paper leaves open, exchanges the sides:
//!   the preferred scheduler is that of the lowest 99 % tail latency, and rᵢ that
//!   under EEVDF divided by that under the best, so more is better again.
//! - *Delta-benefit* "multiplies, then normalizes": the factors are the two
//!   normalised weights; that they are normalised before changes nothing.
//! - *Repetitions* are summed up by their median. Of schedulers that are equally
//!   good EEVDF is preferred, for which nothing is loaded, then the one measured
//!   first. A scheduler that misbehaved in any run is never preferred.
//! - *Applications that agree* share a turn: their slices are added, and no
//!   switch lies between. If all agree there is one turn that never ends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::measurements::{Company, Measurements, Reading};
use crate::scheduler::EEVDF;

/// How time is divided among the preferred schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Equal slices.
    RoundRobin,
    /// By how long the applications take.
    #[default]
    DeltaWeighted,
    /// By what the preferred schedulers bring.
    BenefitWeighted,
    /// By both.
    DeltaBenefitWeighted,
}

impl Policy {
    /// All four, in the paper's order.
    pub const ALL: [Policy; 4] = [
        Policy::RoundRobin,
        Policy::DeltaWeighted,
        Policy::BenefitWeighted,
        Policy::DeltaBenefitWeighted,
    ];

    /// How configurations call it.
    pub const fn word(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round_robin",
            Policy::DeltaWeighted => "delta_weighted",
            Policy::BenefitWeighted => "benefit_weighted",
            Policy::DeltaBenefitWeighted => "delta_benefit_weighted",
        }
    }
}

/// What is to become better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// More per second.
    #[default]
    Throughput,
    /// A lower 99th percentile of latency.
    TailLatency,
}

/// What rᵢ is; see the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalisation {
    /// Best over EEVDF.
    #[default]
    Ratio,
    /// Best over EEVDF, minus 1. If no application gains anything, all are equal.
    Gain,
    /// As printed: the best value itself (of tail latency, its inverse).
    Raw,
}

/// One application and the scheduler that is best for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The application.
    pub application: String,
    /// Its preferred scheduler.
    pub preferred: String,
    /// Medians under that.
    pub best: Reading,
    /// Medians under EEVDF.
    pub eevdf: Reading,
}

/// Finds each application's preferred scheduler among those that `may` be used,
/// by what it did alone.
///
/// # Errors
/// [`Error::Unmeasured`] if an application has no reading under EEVDF, which
/// everything is compared with, or if there is no application at all.
pub fn choose(
    measurements: &Measurements,
    goal: Goal,
    may: impl Fn(&str) -> bool,
) -> Result<Vec<Choice>> {
    let applications = measurements.applications();
    if applications.is_empty() {
        return Err(Error::Unmeasured("no application has been measured".into()));
    }
    let choose_one = |application: &str| {
        let reading = |scheduler: &str| {
            let cell = measurements.cell(application, scheduler, Company::Alone)?;
            cell.medians()
        };
        let eevdf = reading(EEVDF).ok_or_else(|| {
            Error::Unmeasured(format!(
                "{application} has not been measured under {EEVDF}, which the others are \
                 compared with; measure it under {EEVDF}, too"
            ))
        })?;
        let mut choice = Choice {
            application: application.to_owned(),
            preferred: EEVDF.to_owned(),
            best: eevdf,
            eevdf,
        };
        for scheduler in measurements.schedulers() {
            if !may(scheduler) || measurements.has_misbehaved(scheduler) {
                continue;
            }
            if let Some(reading) = reading(scheduler)
                && value(&reading, goal) > value(&choice.best, goal)
            {
                choice.preferred = scheduler.to_owned();
                choice.best = reading;
            }
        }
        Ok(choice)
    };
    applications.into_iter().map(choose_one).collect()
}

/// How good a reading is; more is better.
pub(crate) fn value(reading: &Reading, goal: Goal) -> f64 {
    match goal {
        Goal::Throughput => reading.throughput_per_s,
        Goal::TailLatency => 1.0 / reading.p99_s,
    }
}

/// Each application's weight wᵢ; they sum to 1.
pub fn weights(
    policy: Policy,
    goal: Goal,
    normalisation: Normalisation,
    choices: &[Choice],
) -> Vec<f64> {
    let each = |f: &dyn Fn(&Choice) -> f64| shares(choices.iter().map(f).collect());
    let delta = |choice: &Choice| choice.eevdf.p99_s;
    let benefit = |choice: &Choice| {
        let (best, eevdf) = (value(&choice.best, goal), value(&choice.eevdf, goal));
        match normalisation {
            Normalisation::Ratio => best / eevdf,
            Normalisation::Gain => best / eevdf - 1.0,
            Normalisation::Raw => best,
        }
    };
    match policy {
        Policy::RoundRobin => each(&|_| 1.0),
        Policy::DeltaWeighted => each(&delta),
        Policy::BenefitWeighted => each(&benefit),
        Policy::DeltaBenefitWeighted => {
            let products = each(&delta).into_iter().zip(each(&benefit));
            shares(products.map(|(delta, benefit)| delta * benefit).collect())
        }
    }
}

/// Divides by the sum. Of nothing but zeros everybody has an equal share.
fn shares(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let count = values.len() as f64;
    let share = |value: f64| if sum > 0.0 { value / sum } else { 1.0 / count };
    values.into_iter().map(share).collect()
}

/// Turns of schedulers with their lengths, repeated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The turns of a round: at least one, each scheduler once.
    pub turns: Vec<Turn>,
}

/// One scheduler's part of a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// The scheduler.
    pub scheduler: String,
    /// The applications that prefer it.
    pub applications: Vec<String>,
    /// How long it stays in force once it is.
    pub timeslice: Duration,
}

impl Schedule {
    /// tᵢ = n · t_b · wᵢ, with equal schedulers' slices added.
    ///
    /// A scheduler whose slice is 0 has no turn: its application's weight is 0.
    ///
    /// # Panics
    /// If there is not one weight per choice, or no choice.
    pub fn of(choices: &[Choice], weights: &[f64], base_timeslice: Duration) -> Schedule {
        assert_eq!(choices.len(), weights.len(), "a weight per application");
        assert!(!choices.is_empty(), "a schedule of no application");
        let round = base_timeslice.mul_f64(choices.len() as f64);
        let mut turns: Vec<Turn> = Vec::new();
        for (choice, weight) in choices.iter().zip(weights) {
            let timeslice = round.mul_f64(*weight);
            let application = choice.application.clone();
            match turns.iter_mut().find(|t| t.scheduler == choice.preferred) {
                Some(turn) => {
                    turn.timeslice += timeslice;
                    turn.applications.push(application);
                }
                None => turns.push(Turn {
                    scheduler: choice.preferred.clone(),
                    applications: vec![application],
                    timeslice,
                }),
            }
        }
        turns.retain(|turn| !turn.timeslice.is_zero());
        Schedule { turns }
    }

    /// One scheduler for ever.
    pub fn fixed(scheduler: &str) -> Schedule {
        Schedule {
            turns: vec![Turn {
                scheduler: scheduler.to_owned(),
                applications: Vec::new(),
                timeslice: Duration::MAX,
            }],
        }
    }

    /// Turns that are shorter than a switch takes: more time would be spent on
    /// coming and going than on staying.
    pub fn shorter_than(&self, switch: Duration) -> impl Iterator<Item = &Turn> {
        let alternates = self.turns.len() > 1;
        self.turns
            .iter()
            .filter(move |turn| alternates && turn.timeslice < switch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::{Blame, FaultNote, MachineNote};
    use proptest::prelude::*;

    fn reading(throughput_per_s: f64, p99_s: f64) -> Reading {
        Reading {
            throughput_per_s,
            p99_s,
        }
    }

    /// An application that does 100/s and `p99_s` under EEVDF, and better by
    /// these factors under its preferred scheduler.
    fn choice(name: &str, preferred: &str, p99_s: f64, faster: f64, sooner: f64) -> Choice {
        Choice {
            application: name.into(),
            preferred: preferred.into(),
            best: reading(100.0 * faster, p99_s / sooner),
            eevdf: reading(100.0, p99_s),
        }
    }

    /// The paper's two subsystems: gains as in section 3.2, latencies made up.
    fn paper() -> [Choice; 2] {
        [
            choice("frontend", "scx_simple -f", 0.010, 1.0662, 1.18),
            choice("backend", "scx_rusty", 0.030, 1.0291, 1.0),
        ]
    }

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (a, b) in got.iter().zip(expected) {
            assert!((a - b).abs() < 1e-9, "{got:?} instead of {expected:?}");
        }
    }

    const T: Goal = Goal::Throughput;
    const L: Goal = Goal::TailLatency;

    #[test]
    fn round_robin_divides_equally() {
        let weights = weights(Policy::RoundRobin, T, Normalisation::Ratio, &paper());
        close(&weights, &[0.5, 0.5]);
    }

    #[test]
    fn delta_weights_by_latency_under_eevdf_whatever_the_goal() {
        for goal in [T, L] {
            let weights = weights(Policy::DeltaWeighted, goal, Normalisation::Ratio, &paper());
            close(&weights, &[0.25, 0.75]);
        }
    }

    #[test]
    fn benefit_weights_by_what_the_preferred_scheduler_brings() {
        let of = |goal, how| weights(Policy::BenefitWeighted, goal, how, &paper());
        let sum = 1.0662 + 1.0291;
        close(&of(T, Normalisation::Ratio), &[1.0662 / sum, 1.0291 / sum]);
        let sum = 0.0662 + 0.0291;
        close(&of(T, Normalisation::Gain), &[0.0662 / sum, 0.0291 / sum]);
        let sum = 1.18 + 1.0;
        close(&of(L, Normalisation::Ratio), &[1.18 / sum, 1.0 / sum]);
        close(&of(L, Normalisation::Gain), &[1.0, 0.0]);
    }

    #[test]
    fn the_printed_form_compares_what_has_no_common_unit() {
        let mut choices = paper();
        choices[0].best.throughput_per_s = 3000.0;
        choices[1].best.throughput_per_s = 30.0;
        let how = Normalisation::Raw;
        let weights = weights(Policy::BenefitWeighted, T, how, &choices);
        close(&weights, &[3000.0 / 3030.0, 30.0 / 3030.0]);
    }

    #[test]
    fn delta_benefit_multiplies_and_normalises() {
        let policy = Policy::DeltaBenefitWeighted;
        let weights = weights(policy, T, Normalisation::Ratio, &paper());
        let (a, b) = (0.25 * 1.0662, 0.75 * 1.0291);
        close(&weights, &[a / (a + b), b / (a + b)]);
    }

    #[test]
    fn without_any_gain_all_are_equal() {
        let equal = [
            choice("a", EEVDF, 1.0, 1.0, 1.0),
            choice("b", EEVDF, 3.0, 1.0, 1.0),
        ];
        let of = |policy| weights(policy, T, Normalisation::Gain, &equal);
        close(&of(Policy::BenefitWeighted), &[0.5, 0.5]);
        close(&of(Policy::DeltaBenefitWeighted), &[0.25, 0.75]);
    }

    #[test]
    fn a_slice_is_n_times_base_times_weight() {
        // The paper's best: delta weighted, base 1800 ms.
        let base = Duration::from_millis(1800);
        let schedule = Schedule::of(&paper(), &[0.25, 0.75], base);
        let slices: Vec<_> = schedule.turns.iter().map(|t| t.timeslice).collect();
        assert_eq!(
            slices,
            [Duration::from_millis(900), Duration::from_millis(2700)]
        );
        let short: Vec<_> = schedule.shorter_than(Duration::from_secs(1)).collect();
        assert_eq!(short[0].scheduler, "scx_simple -f");
        assert_eq!(short.len(), 1);
    }

    #[test]
    fn applications_that_agree_share_a_turn() {
        let choices = [
            choice("a", "x", 1.0, 1.0, 1.0),
            choice("b", "y", 1.0, 1.0, 1.0),
            choice("c", "x", 1.0, 1.0, 1.0),
        ];
        let schedule = Schedule::of(&choices, &[0.25, 0.5, 0.25], Duration::from_secs(4));
        assert_eq!(schedule.turns[0].applications, ["a", "c"]);
        assert_eq!(schedule.turns[0].timeslice, Duration::from_secs(6));
        assert_eq!(schedule.turns.len(), 2);
        let one = Schedule::of(&choices, &[1.0, 0.0, 0.0], Duration::from_secs(1));
        assert_eq!(one.turns.len(), 1, "no time, no turn");
        assert_eq!(one.shorter_than(Duration::MAX).count(), 0);
    }

    /// Two schedulers besides EEVDF, of which `x` has more throughput and `y`
    /// the shorter tail.
    fn measured() -> Measurements {
        let mut all = Measurements::new(MachineNote::default());
        let mut add = |scheduler: &str, throughput, p99| {
            let cell = all.cell_mut("web", scheduler, Company::Alone);
            cell.runs.push(reading(throughput, p99));
        };
        for (scheduler, throughput, p99) in [
            ("before", 100.0, 0.1),
            (EEVDF, 100.0, 0.1),
            ("after", 100.0, 0.1),
            ("x", 130.0, 0.2),
            ("y", 90.0, 0.05),
        ] {
            add(scheduler, throughput, p99);
            add(scheduler, throughput, p99);
            // An outlier that the median does not see.
            add(scheduler, 1.0, 9.0);
        }
        all
    }

    fn preferred(all: &Measurements, goal: Goal, may: fn(&str) -> bool) -> String {
        choose(all, goal, may).unwrap().remove(0).preferred
    }

    #[test]
    fn the_preferred_scheduler_is_the_best_for_the_goal() {
        let all = measured();
        assert_eq!(preferred(&all, T, |_| true), "x");
        assert_eq!(preferred(&all, L, |_| true), "y");
        assert_eq!(preferred(&all, T, |name| name != "x"), EEVDF);
    }

    #[test]
    fn misbehaving_scheduler_is_never_preferred() {
        let mut all = measured();
        let cell = all.cell_mut("other", "x", Company::Together);
        cell.faults.push(FaultNote {
            repetition: 1,
            blame: Blame::Application,
            what: "exit status 1".into(),
        });
        all.cell_mut("other", EEVDF, Company::Alone)
            .runs
            .push(reading(1.0, 1.0));
        assert_eq!(preferred(&all, T, |_| true), "x");
        let cell = all.cell_mut("other", "x", Company::Together);
        cell.faults[0].blame = Blame::Scheduler;
        assert_eq!(preferred(&all, T, |_| true), EEVDF);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut all = Measurements::new(MachineNote::default());
        let error = choose(&all, T, |_| true).unwrap_err().to_string();
        assert!(error.contains("no application"), "{error}");
        all.cell_mut("web", "x", Company::Alone)
            .runs
            .push(reading(1.0, 1.0));
        let error = choose(&all, T, |_| true).unwrap_err().to_string();
        assert!(error.contains("web has not been measured under eevdf"));
    }

    proptest! {
        /// Whatever was measured, weights are shares and a round lasts n · t_b.
        #[test]
        fn weights_sum_to_one(
            apps in prop::collection::vec((1e-4..10.0f64, 1.0..3.0f64, 1.0..3.0f64), 1..9),
            policy in prop::sample::select(Policy::ALL.to_vec()),
            goal in prop::sample::select(vec![T, L]),
            how in prop::sample::select(vec![
                Normalisation::Ratio, Normalisation::Gain, Normalisation::Raw,
            ]),
        ) {
            let choices: Vec<_> = apps
                .iter()
                .enumerate()
                .map(|(i, (p99, faster, sooner))| {
                    choice(&i.to_string(), &format!("s{}", i % 3), *p99, *faster, *sooner)
                })
                .collect();
            let weights = weights(policy, goal, how, &choices);
            prop_assert!(weights.iter().all(|w| (0.0..=1.0 + 1e-12).contains(w)));
            prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let base = Duration::from_millis(100);
            let schedule = Schedule::of(&choices, &weights, base);
            let round: Duration = schedule.turns.iter().map(|t| t.timeslice).sum();
            let expected = base * choices.len() as u32;
            prop_assert!(round.abs_diff(expected) < Duration::from_micros(1));
        }
    }
}
