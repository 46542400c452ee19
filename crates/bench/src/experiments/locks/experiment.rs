//! The experiments, and the runs that each consists of.
//!
//! | experiment | question | paper |
//! | --- | --- | --- |
//! | fairness | is hold time equal if critical sections are not? | 4.6.1, Figure 8 |
//! | short | and if they are short: what does fairness cost? | 4.6.1 |
//! | equal | what does fairness cost if nobody needs it? | 5 |
//! | weights | is hold time shared by weight? | 2.2 (R2) |
//! | groups | and by group, whatever their threads? | 3.4.2, 4.4 |
//! | strict | is it equal with too few threads to queue? | 3.4.4, Figure 8 |
//! | convoy | do short turns wait for long ones? | 4.5 |
//! | newcomers | are arrivals served soon, and only fairly? | 3.4.3 |
//! | uncontended | what does a lock cost that nobody else wants? | |
//!
//! Lengths are those of the published microbenchmark for u-SCL (1 µs against
//! 3 µs), and nobody thinks between two turns, as there. The paper gives no
//! lengths for find and insert: 1 and 20 µs are ours. Hold time shared equally
//! then means 5.5 times the turns of a FIFO lock, (1 + 20)² / (4 · 1 · 20).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::kind::Traits;
use super::scenario::{Arrivals, Set};

/// What `--experiment` chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockExperiment {
    /// Two sets of threads with different critical sections.
    Fairness,
    /// The same with critical sections shorter than a microsecond.
    Short,
    /// All critical sections alike.
    Equal,
    /// Two sets of threads with different weights.
    Weights,
    /// Two groups of unequal thread counts.
    Groups,
    /// Two and four threads, where the queue is mostly empty.
    Strict,
    /// Short 'find' beside long 'insert'.
    Convoy,
    /// Threads that come while others are at it.
    Newcomers,
    /// One thread.
    Uncontended,
}

impl LockExperiment {
    /// All of them, in the order in which they are run and shown.
    pub const ALL: [LockExperiment; 9] = [
        LockExperiment::Fairness,
        LockExperiment::Short,
        LockExperiment::Equal,
        LockExperiment::Weights,
        LockExperiment::Groups,
        LockExperiment::Strict,
        LockExperiment::Convoy,
        LockExperiment::Newcomers,
        LockExperiment::Uncontended,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            LockExperiment::Fairness => "fairness",
            LockExperiment::Short => "short",
            LockExperiment::Equal => "equal",
            LockExperiment::Weights => "weights",
            LockExperiment::Groups => "groups",
            LockExperiment::Strict => "strict",
            LockExperiment::Convoy => "convoy",
            LockExperiment::Newcomers => "newcomers",
            LockExperiment::Uncontended => "uncontended",
        }
    }

    /// What it measures, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            LockExperiment::Fairness => "two sets of threads, critical sections 1:3",
            LockExperiment::Short => "the same with critical sections of 0.1 and 0.3 µs",
            LockExperiment::Equal => "equal critical sections",
            LockExperiment::Weights => "two sets of threads with unequal weights",
            LockExperiment::Groups => "two groups, the first with a quarter of the threads",
            LockExperiment::Strict => "critical sections 1:3, hardly a queue",
            LockExperiment::Convoy => "half the threads find (1), half insert (20)",
            LockExperiment::Newcomers => "threads arrive while others are at it",
            LockExperiment::Uncontended => "lock and unlock with nobody else",
        }
    }

    /// Thread counts unless `--threads` says otherwise.
    fn usual_threads(self) -> &'static [u32] {
        match self {
            LockExperiment::Fairness => &[2, 4, 8, 16, 32],
            LockExperiment::Short | LockExperiment::Equal => &[2, 8],
            LockExperiment::Weights | LockExperiment::Groups | LockExperiment::Newcomers => &[8],
            LockExperiment::Strict => &[2, 4],
            LockExperiment::Convoy => &[32],
            LockExperiment::Uncontended => &[1],
        }
    }

    /// Whether a lock has anything to show here. Locks without shares stand
    /// beside the others by their most common example.
    pub(crate) fn concerns(self, name: &str, traits: Traits) -> bool {
        let example = name == "pthread";
        match self {
            LockExperiment::Uncontended => true,
            _ if traits.baseline => false,
            LockExperiment::Weights | LockExperiment::Groups => traits.weighted || example,
            LockExperiment::Strict => traits.fair || example,
            _ => true,
        }
    }

    /// The runs, for these thread counts or the usual ones.
    pub(crate) fn cases(self, threads: &[u32]) -> Vec<Case> {
        let threads = match threads {
            [] => self.usual_threads(),
            given => given,
        };
        threads.iter().flat_map(|&count| self.of(count)).collect()
    }

    fn of(self, threads: u32) -> Vec<Case> {
        let (few, many) = (threads / 2, threads - threads / 2);
        let two = |name: &str, first: Set, second: Set| Case::new(name, threads, [first, second]);
        let halves = |name: &str, short_ns: f64, long_ns: f64| {
            let first = Set::new("short", few, short_ns);
            vec![two(name, first, Set::new("long", many, long_ns))]
        };
        match self {
            LockExperiment::Fairness | LockExperiment::Strict => halves("1:3 µs", 1e3, 3e3),
            LockExperiment::Short => halves("0.1:0.3 µs", 1e2, 3e2),
            LockExperiment::Equal => {
                vec![Case::new("1 µs", threads, [Set::new("all", threads, 1e3)])]
            }
            // The weights lie in the middle of the range of CFL's where they
            // can, so that nobody is measured at its edge.
            LockExperiment::Weights => [(2, 100), (8, 100), (1024, 9)]
                .map(|(ratio, unit)| {
                    let set = |name, threads, weight| Set {
                        weight,
                        ..Set::new(name, threads, 1e3)
                    };
                    let heavy = set("heavy", few, unit * ratio);
                    two(&format!("{ratio}:1"), heavy, set("light", many, unit))
                })
                .into(),
            LockExperiment::Groups => {
                let few = (threads / 4).max(1);
                let set = |name: &'static str, threads, weight| Set {
                    group: Some((name, weight)),
                    ..Set::new(name, threads, 1e3)
                };
                let case = |weight: u32| {
                    let name = format!("{}:1", weight / 100);
                    let small = set("small", few, weight);
                    two(&name, small, set("large", threads - few, 100))
                };
                vec![case(100), case(200)]
            }
            LockExperiment::Convoy => {
                let find = Set::new("find", few, 1e3);
                vec![two("1:20 µs", find, Set::new("insert", many, 20e3))]
            }
            LockExperiment::Newcomers => [("new", true), ("back", false)]
                .map(|(name, new_threads)| Case {
                    arrivals: Some(Arrivals {
                        every_ns: 20_000_000,
                        stays_ns: 5_000_000,
                        new_threads,
                        inside_ns: 1e3,
                    }),
                    ..Case::new(name, threads, [Set::new("veterans", threads, 1e3)])
                })
                .into(),
            LockExperiment::Uncontended => vec![Case::new("alone", 1, [])],
        }
    }
}

impl fmt::Display for LockExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LockExperiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || LockExperiment::ALL.map(LockExperiment::name).join(", ");
        LockExperiment::ALL
            .into_iter()
            .find(|experiment| experiment.name() == text)
            .ok_or_else(|| format!("no such experiment; choose among {}, all", names()))
    }
}

/// A run of an experiment, for any lock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) sets: Vec<Set>,
    pub(crate) arrivals: Option<Arrivals>,
}

impl Case {
    fn new(name: &str, threads: u32, sets: impl Into<Vec<Set>>) -> Self {
        Case {
            name: name.to_owned(),
            threads,
            sets: sets.into(),
            arrivals: None,
        }
    }

    /// The same with all work `scale` times as long.
    pub(crate) fn scaled(mut self, scale: f64) -> Self {
        for set in &mut self.sets {
            set.inside_ns *= scale;
            set.outside_ns *= scale;
        }
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.inside_ns *= scale;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::locks::scenario::entitled;

    #[test]
    fn names_are_read_back() {
        for experiment in LockExperiment::ALL {
            assert_eq!(experiment.name().parse(), Ok(experiment));
        }
        let error = "fairnes".parse::<LockExperiment>().unwrap_err();
        assert!(error.contains("fairness, short"), "{error}");
    }

    #[test]
    fn every_thread_is_in_a_set() {
        for experiment in LockExperiment::ALL {
            for case in experiment.cases(&[5]) {
                let sum: u32 = case.sets.iter().map(|set| set.threads).sum();
                let alone = experiment == LockExperiment::Uncontended;
                assert_eq!(sum, if alone { 0 } else { 5 }, "{experiment}");
            }
        }
    }

    #[test]
    fn shares_are_what_the_names_say() {
        let cases = LockExperiment::Weights.cases(&[8]);
        let shares: Vec<f64> = cases.iter().map(|case| entitled(&case.sets)[0]).collect();
        assert_eq!(shares, [2.0 / 3.0, 8.0 / 9.0, 1024.0 / 1025.0]);
        let cases = LockExperiment::Groups.cases(&[8]);
        assert_eq!((cases[0].sets[0].threads, cases[0].sets[1].threads), (2, 6));
        assert_eq!(entitled(&cases[0].sets)[0], 0.5);
        assert_eq!(entitled(&cases[1].sets)[0], 2.0 / 3.0);
    }

    #[test]
    fn a_scale_stretches_all_work() {
        let case = LockExperiment::Convoy.cases(&[2]).remove(0).scaled(20.0);
        assert_eq!(
            (case.sets[0].inside_ns, case.sets[1].inside_ns),
            (20e3, 400e3)
        );
    }
}
