//! Rows of lock results: what one run, or all rounds of one lock alone, showed.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::arrivals::Arrived;
use super::contend::Outcome;
use super::experiment::{Case, LockExperiment};
use super::numa::Handovers;
use super::scenario::{Set, entitled};
use super::turn::{Tally, waits};
use super::work::step_ns;

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockRow {
    /// The experiment.
    pub experiment: LockExperiment,
    /// Which run of it.
    pub case: String,
    /// The lock.
    pub lock: String,
    /// Whether the lock means to share hold time.
    pub fair: bool,
    /// Threads in all, without those that arrive.
    pub threads: u32,
    /// The repeat, from 0.
    pub repeat: u32,
    /// Seed of arrivals and of the order of locks.
    pub seed: u64,
    /// How much longer than usual all work was.
    pub scale: f64,
    /// Length of a step of work in ns, as calibrated.
    pub step_ns: f64,
    /// What was seen under contention.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub contended: Option<Contended>,
    /// ns of each round, for a pair of lock and unlock.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub uncontended_ns: Vec<f64>,
}

/// A run with several threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contended {
    /// Length of the window in seconds, as measured.
    pub seconds: f64,
    /// The sets of threads.
    pub sets: Vec<SetRow>,
    /// Turns per second, of all sets.
    pub turns_per_s: f64,
    /// Part of the window in which the lock was held.
    pub held: f64,
    /// Hold time of the first set as a multiple of what it is entitled to
    /// relative to the second; 1 is fair. None with one set.
    pub ratio: Option<f64>,
    /// Jain's index of the threads' hold times, each divided by what it is
    /// entitled to: 1 is fair, 1/n is all for one.
    pub jain: f64,
    /// Waits of all sets.
    pub wait: Waits,
    /// CPU seconds used for each second of the window.
    pub cpus_used: f64,
    /// Voluntary context switches per second.
    pub voluntary_per_s: f64,
    /// Involuntary context switches per second.
    pub involuntary_per_s: f64,
    /// Threads that came while the window was open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arrivals: Option<ArrivalRow>,
    /// On a machine with more than one NUMA node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub numa: Option<NumaRow>,
}

/// How a lock went about NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NumaRow {
    /// Nodes, as the CFL locks see them.
    pub nodes: u32,
    /// Turns that followed one of another thread.
    pub handovers: u64,
    /// The part of them in which both threads ran on the same node.
    pub near: f64,
}

/// A set of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetRow {
    /// Its name.
    pub name: String,
    /// Its threads.
    pub threads: u32,
    /// Length of its critical sections in µs, as asked for.
    pub inside_us: f64,
    /// Weight of each thread.
    pub weight: u32,
    /// Weight of its group, if it is one.
    pub group_weight: Option<u32>,
    /// The share of hold time it is entitled to.
    pub entitled: f64,
    /// The share it had.
    pub share: f64,
    /// Turns in the window.
    pub turns: u64,
    /// Hold time in seconds.
    pub held_s: f64,
    /// Hold time of each of its threads in seconds.
    pub held_s_per_thread: Vec<f64>,
    /// Its waits.
    pub wait: Waits,
    /// Turns of others between asking and a turn, at most.
    pub bypass_max: u64,
}

/// Waits, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Their median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Threads that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalRow {
    /// How many.
    pub count: u64,
    /// Waits for the first turn.
    pub first: Waits,
    /// How late they asked, which is the machine's doing.
    pub late: Waits,
    /// Turns of others before a first turn, at most.
    pub first_bypass_max: u64,
    /// Hold time while they stayed, as a multiple of an equal share; more than
    /// 1 is more than the veterans had.
    pub share_of_equal: f64,
}

impl Waits {
    fn of(waits: &Histogram<u64>) -> Self {
        // 0 stands for a wait too short for the clock.
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile| us(waits.value_at_quantile(quantile));
        if waits.is_empty() {
            return Waits::default();
        }
        Waits {
            count: waits.len(),
            mean_us: (waits.mean() / 1e3 * 1e3).round() / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(waits.max()),
        }
    }
}

/// What is common to the rows of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) experiment: LockExperiment,
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    pub(crate) scale: f64,
}

impl LockRow {
    fn new(frame: Frame, case: &Case, lock: &str, fair: bool) -> Self {
        LockRow {
            experiment: frame.experiment,
            case: case.name.clone(),
            lock: lock.to_owned(),
            fair,
            threads: case.threads,
            repeat: frame.repeat,
            seed: frame.seed,
            scale: frame.scale,
            step_ns: step_ns(),
            contended: None,
            uncontended_ns: Vec::new(),
        }
    }

    pub(crate) fn alone(
        frame: Frame,
        case: &Case,
        lock: &str,
        fair: bool,
        samples: Vec<f64>,
    ) -> Self {
        LockRow {
            uncontended_ns: samples,
            ..LockRow::new(frame, case, lock, fair)
        }
    }

    pub(crate) fn contended(
        frame: Frame,
        case: &Case,
        lock: &str,
        fair: bool,
        outcome: &Outcome,
    ) -> Self {
        LockRow {
            contended: Some(contended(case, outcome)),
            ..LockRow::new(frame, case, lock, fair)
        }
    }
}

fn contended(case: &Case, outcome: &Outcome) -> Contended {
    let seconds = outcome.seconds;
    let entitled = entitled(&case.sets);
    let held_s = |tallies: &[Tally]| tallies.iter().map(|t| t.held_ns).sum::<u64>() as f64 / 1e9;
    let all_s: f64 = outcome.sets.iter().map(|tallies| held_s(tallies)).sum();
    let sets: Vec<SetRow> = case
        .sets
        .iter()
        .zip(&outcome.sets)
        .zip(&entitled)
        .map(|((set, tallies), entitled)| set_row(set, tallies, *entitled, all_s))
        .collect();
    let turns: u64 = sets.iter().map(|set| set.turns).sum();
    let ratio = match sets.as_slice() {
        [first, second] => Some((first.share / first.entitled) / (second.share / second.entitled))
            .filter(|ratio| ratio.is_finite()),
        _ => None,
    };
    let normalised: Vec<f64> = sets
        .iter()
        .flat_map(|set| {
            let claim = set.entitled / f64::from(set.threads.max(1));
            set.held_s_per_thread.iter().map(move |held| held / claim)
        })
        .collect();
    let mut all = waits();
    for tally in outcome.sets.iter().flatten() {
        all.add(&tally.wait_ns).expect("waits have the same bounds");
    }
    Contended {
        seconds,
        turns_per_s: turns as f64 / seconds,
        held: all_s / seconds,
        ratio,
        jain: jain(&normalised),
        wait: Waits::of(&all),
        cpus_used: outcome.usage.cpu_s / seconds,
        voluntary_per_s: outcome.usage.voluntary as f64 / seconds,
        involuntary_per_s: outcome.usage.involuntary as f64 / seconds,
        arrivals: outcome
            .arrived
            .as_ref()
            .map(|arrived| arrival_row(arrived, case.threads)),
        numa: (outcome.nodes > 1).then(|| numa_row(outcome)),
        sets,
    }
}

fn numa_row(outcome: &Outcome) -> NumaRow {
    let mut handovers = Handovers::default();
    for tally in outcome.sets.iter().flatten() {
        handovers.add(tally.handovers);
    }
    NumaRow {
        nodes: outcome.nodes,
        handovers: handovers.all,
        near: handovers.near as f64 / handovers.all.max(1) as f64,
    }
}

fn set_row(set: &Set, tallies: &[Tally], entitled: f64, all_s: f64) -> SetRow {
    let mut waits = waits();
    for tally in tallies {
        waits
            .add(&tally.wait_ns)
            .expect("waits have the same bounds");
    }
    let held_s_per_thread: Vec<f64> = tallies.iter().map(|t| t.held_ns as f64 / 1e9).collect();
    let held_s = held_s_per_thread.iter().sum();
    SetRow {
        name: set.name.to_owned(),
        threads: set.threads,
        inside_us: set.inside_ns / 1e3,
        weight: set.weight,
        group_weight: set.group.map(|(_, weight)| weight),
        entitled,
        share: if all_s > 0.0 { held_s / all_s } else { 0.0 },
        turns: tallies.iter().map(|tally| tally.turns).sum(),
        held_s,
        held_s_per_thread,
        wait: Waits::of(&waits),
        bypass_max: tallies.iter().map(|t| t.bypass_max).max().unwrap_or(0),
    }
}

fn arrival_row(arrived: &Arrived, veterans: u32) -> ArrivalRow {
    let share = arrived.held_ns as f64 / (arrived.stayed_ns.max(1)) as f64;
    ArrivalRow {
        count: arrived.count,
        first: Waits::of(&arrived.first_ns),
        late: Waits::of(&arrived.late_ns),
        first_bypass_max: arrived.first_bypass_max,
        share_of_equal: share * f64::from(veterans + 1),
    }
}

/// Jain's fairness index (reference 32 of the CFL paper).
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    match squares > 0.0 {
        true => sum * sum / (values.len() as f64 * squares),
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::turn::Turn;
    use crate::experiments::locks::usage::Usage;

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain(&[6.0, 0.0, 0.0]), 1.0 / 3.0);
    }

    /// A thread with so many turns of `held_ns`, for which it waited 2 µs and 5
    /// turns of others.
    fn tally(turns: u64, held_ns: u64) -> Tally {
        let mut tally = Tally::new();
        for _ in 0..turns {
            let turn = Turn {
                asked_ns: 1_000,
                began_ns: 3_000,
                ended_ns: 3_000 + held_ns,
                bypass: 5,
                handovers: Handovers { all: 1, near: 1 },
            };
            tally.count(&turn, true, false);
        }
        tally
    }

    #[test]
    fn a_row_adds_up() {
        // Weights 3:1, one thread each; hold time 300 and 200 µs.
        let mut case = LockExperiment::Weights.cases(&[2]).remove(0);
        (case.sets[0].weight, case.sets[1].weight) = (300, 100);
        let outcome = Outcome {
            seconds: 0.001,
            sets: vec![vec![tally(300, 1_000)], vec![tally(100, 2_000)]],
            arrived: None,
            usage: Usage::default(),
            nodes: 2,
        };
        let row = contended(&case, &outcome);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(row.sets[0].share, 0.6) && near(row.sets[0].entitled, 0.75));
        assert!(near(row.ratio.unwrap(), (0.6 / 0.75) / (0.4 / 0.25)));
        assert!(near(row.held, 0.5) && near(row.turns_per_s, 400_000.0));
        let normal = [300.0 / 0.75, 200.0 / 0.25];
        assert!(near(row.jain, jain(&normal)));
        assert_eq!((row.wait.count, row.sets[1].bypass_max), (400, 5));
        let numa = row.numa.unwrap();
        assert_eq!((numa.nodes, numa.handovers, numa.near), (2, 400, 1.0));
        assert!((1.98..=2.02).contains(&row.wait.p999_us), "{:?}", row.wait);
    }

    #[test]
    fn a_wait_that_outlasts_the_window_is_not_lost() {
        let turn = Turn {
            asked_ns: 0,
            began_ns: 9_000_000,
            ended_ns: 9_001_000,
            bypass: 7,
            handovers: Handovers::default(),
        };
        let mut tally = Tally::new();
        // Before the window, and not waited for at its end.
        tally.count(&turn, false, false);
        assert_eq!((tally.turns, tally.wait_ns.len()), (0, 0));
        tally.count(&turn, false, true);
        assert_eq!((tally.turns, tally.held_ns, tally.wait_ns.len()), (0, 0, 1));
        assert_eq!((tally.bypass_max, tally.turns_ever()), (7, 2));
    }
}
