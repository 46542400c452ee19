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
//! | simulated | which policy is best, whatever the machine? | 5.2 |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What `--experiment` chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TasksExperiment {
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
    /// The mix in virtual time.
    Simulated,
}

impl TasksExperiment {
    /// All of them, in the order in which they are run and shown.
    pub(crate) const ALL: [TasksExperiment; 8] = [
        TasksExperiment::Answers,
        TasksExperiment::Mix,
        TasksExperiment::Shift,
        TasksExperiment::Load,
        TasksExperiment::Single,
        TasksExperiment::Overrun,
        TasksExperiment::Cost,
        TasksExperiment::Simulated,
    ];

    /// The name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TasksExperiment::Answers => "answers",
            TasksExperiment::Mix => "mix",
            TasksExperiment::Shift => "shift",
            TasksExperiment::Load => "load",
            TasksExperiment::Single => "single",
            TasksExperiment::Overrun => "overrun",
            TasksExperiment::Cost => "cost",
            TasksExperiment::Simulated => "simulated",
        }
    }

    /// What it measures, in a few words.
    pub(crate) fn about(self) -> &'static str {
        match self {
            TasksExperiment::Answers => "the 22 queries against the reference answers",
            TasksExperiment::Mix => "slowdown of short and long queries, by policy",
            TasksExperiment::Shift => "the same when the mix changes in mid-run",
            TasksExperiment::Load => "slowdown over loads, beside other engines",
            TasksExperiment::Single => "the 22 queries one at a time, beside stock DataFusion",
            TasksExperiment::Overrun => "lengths of tasks in t_max, by operators",
            TasksExperiment::Cost => "decisions and tuning",
            TasksExperiment::Simulated => "slowdown by policy, in virtual time",
        }
    }

    /// What its time is: rows of different clocks are in different results.
    #[cfg_attr(not(feature = "sql"), allow(dead_code))]
    pub(crate) fn clock(self) -> &'static str {
        match self {
            TasksExperiment::Simulated => "virtual",
            _ => "native",
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
