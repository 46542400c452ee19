//! The experiments.
//!
//! | experiment | question | paper |
//! | --- | --- | --- |
//! | answers | are the results right, alone and at once, under every policy? | |
//! | mix | who is slowed down how much when short and long queries come? | 5.2, Figures 7, 8 |
//! | shift | and when the mix changes while it runs? | 4 |
//! | load | how do other engines fare as the load grows? | 5.4, Figures 9, 11 |
//! | single | what does a query alone cost for being cut into tasks? | |
//! | overrun | do tasks keep to their length? | 3.1 |
//! | cost | what do decisions and tuning take? | 5.3, Figure 10 |

use std::fmt;
use std::str::FromStr;

use giveway_tasks::{Decay, Policy};
use serde::{Deserialize, Serialize};

use super::arm::Arm;

/// What `--experiment` chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TasksExperiment {
    /// The 22 queries at scale factor 1 against the reference answers.
    Answers,
    /// Short and long queries at a load, under every policy.
    Mix,
    /// A mix that changes in mid-run.
    Shift,
    /// Loads against other engines.
    Load,
    /// One query at a time, against stock DataFusion.
    Single,
    /// Lengths of tasks, by operators.
    Overrun,
    /// Decisions and tuning.
    Cost,
}

impl TasksExperiment {
    /// All of them, in the order in which they are run and shown.
    pub const ALL: [TasksExperiment; 7] = [
        TasksExperiment::Answers,
        TasksExperiment::Mix,
        TasksExperiment::Shift,
        TasksExperiment::Load,
        TasksExperiment::Single,
        TasksExperiment::Overrun,
        TasksExperiment::Cost,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            TasksExperiment::Answers => "answers",
            TasksExperiment::Mix => "mix",
            TasksExperiment::Shift => "shift",
            TasksExperiment::Load => "load",
            TasksExperiment::Single => "single",
            TasksExperiment::Overrun => "overrun",
            TasksExperiment::Cost => "cost",
        }
    }

    /// What it measures, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            TasksExperiment::Answers => "the 22 queries against the reference answers",
            TasksExperiment::Mix => "slowdown of short and long queries, by policy",
            TasksExperiment::Shift => "the same when the mix changes in mid-run",
            TasksExperiment::Load => "slowdown over loads, beside other engines",
            TasksExperiment::Single => "the 22 queries one at a time, beside stock DataFusion",
            TasksExperiment::Overrun => "lengths of tasks in t_max, by operators",
            TasksExperiment::Cost => "decisions and tuning",
        }
    }

    /// Who is compared if nobody says; none where that is not a choice.
    pub(crate) fn arms(self) -> Vec<Arm> {
        let policy = Arm::Policy;
        match self {
            TasksExperiment::Answers => Arm::policies().to_vec(),
            TasksExperiment::Mix => [
                Policy::Fifo,
                Policy::Fair,
                Policy::Lottery { seed: 1 },
                Policy::Balanced,
                Policy::LeastAttained,
            ]
            .map(policy)
            .into_iter()
            .chain(Arm::grid())
            .chain([policy(Policy::Tuned)])
            .collect(),
            TasksExperiment::Shift => [
                Policy::Fair,
                Policy::LeastAttained,
                Policy::Decay(Decay::INITIAL),
                Policy::Tuned,
            ]
            .map(policy)
            .to_vec(),
            TasksExperiment::Load => vec![
                policy(Policy::Fair),
                policy(Policy::Tuned),
                Arm::Stock,
                Arm::DuckDb { partial: false },
                Arm::DuckDb { partial: true },
            ],
            TasksExperiment::Single | TasksExperiment::Overrun | TasksExperiment::Cost => {
                Vec::new()
            }
        }
    }

    /// At which loads if nobody says; none where queries do not arrive.
    pub(crate) fn loads(self) -> &'static [f64] {
        match self {
            TasksExperiment::Mix => &[0.95],
            TasksExperiment::Shift => &[0.9],
            TasksExperiment::Load => &[0.7, 0.8, 0.9, 0.96],
            _ => &[],
        }
    }
}

impl fmt::Display for TasksExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TasksExperiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = TasksExperiment::ALL.map(TasksExperiment::name).join(", ");
        TasksExperiment::ALL
            .into_iter()
            .find(|experiment| experiment.name() == text)
            .ok_or_else(|| format!("no such experiment; choose among {names}, all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for experiment in TasksExperiment::ALL {
            assert_eq!(experiment.name().parse(), Ok(experiment));
            let json = serde_json::to_string(&experiment).unwrap();
            assert_eq!(json, format!("\"{experiment}\""));
        }
        let error = "tpch".parse::<TasksExperiment>().unwrap_err();
        assert!(error.contains("overrun"), "{error}");
    }
}
