//! The experiments, and the runs that each consists of.
//!
//! | experiment | question | paper |
//! | --- | --- | --- |
//! | latency | how long do New-Order and Payment take beside Q2? | 6.3, Figure 10 |
//! | overhead | what do interrupts cost that bring nothing? | 6.2, Figure 8 |
//! | scaling | does throughput grow with workers? | 6.2, Figure 9 |
//! | yield_interval | how often must one yield by hand? | 6.3, Figure 11 |
//! | starvation | what does the threshold give to whom? | 6.4, Figure 12 |
//! | arrivals | and if requests come more or less often? | 6.5, Figure 13 |
//! | micro | what does a switch cost, how long does a request take? | 6.1 |
//! | engines | is the engine itself worth preempting? | |
//!
//! Sizes are the paper's (Section 6.1): a queue of 1 for Q2 and of 4 for the
//! others on each worker, a batch that would fill all of them, every
//! millisecond, which `service` stretches for slower machines. Its 16 workers are as many here as there are CPUs beside the
//! scheduling thread's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What `--experiment` chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PreemptExperiment {
    /// New-Order and Payment beside Q2, under every policy and on OS threads.
    Latency,
    /// TPC-C with interrupts that bring no work, and without.
    Overhead,
    /// The mix over numbers of workers.
    Scaling,
    /// Cooperative policies over the records between two yields.
    YieldInterval,
    /// Too many urgent transactions, over starvation thresholds.
    Starvation,
    /// The mix over arrival intervals.
    Arrivals,
    /// Switches, regions, poll points, and delivery.
    Micro,
    /// TPC-C on other engines.
    Engines,
}

impl PreemptExperiment {
    /// All of them, in the order in which they are run and shown.
    pub(crate) const ALL: [PreemptExperiment; 8] = [
        PreemptExperiment::Latency,
        PreemptExperiment::Overhead,
        PreemptExperiment::Scaling,
        PreemptExperiment::YieldInterval,
        PreemptExperiment::Starvation,
        PreemptExperiment::Arrivals,
        PreemptExperiment::Micro,
        PreemptExperiment::Engines,
    ];

    /// The name on the command line and in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PreemptExperiment::Latency => "latency",
            PreemptExperiment::Overhead => "overhead",
            PreemptExperiment::Scaling => "scaling",
            PreemptExperiment::YieldInterval => "yield-interval",
            PreemptExperiment::Starvation => "starvation",
            PreemptExperiment::Arrivals => "arrivals",
            PreemptExperiment::Micro => "micro",
            PreemptExperiment::Engines => "engines",
        }
    }

    /// What it measures, in a few words.
    pub(crate) fn about(self) -> &'static str {
        match self {
            PreemptExperiment::Latency => "New-Order and Payment at fixed times, Q2 in between",
            PreemptExperiment::Overhead => "TPC-C with 1000 empty interrupts a second",
            PreemptExperiment::Scaling => "the mix on more and more workers",
            PreemptExperiment::YieldInterval => "records, or nested blocks, between two yields",
            PreemptExperiment::Starvation => "100 urgent transactions a ms and worker",
            PreemptExperiment::Arrivals => "time from one batch to the next, in µs",
            PreemptExperiment::Micro => "single operations",
            PreemptExperiment::Engines => "TPC-C on one core, engines in turn",
        }
    }
}

/// The part of the CPU that tuning promises to Q2 in `starvation`.
pub(crate) const TUNED_SHARE: f64 = 0.3;

impl fmt::Display for PreemptExperiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PreemptExperiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || {
            PreemptExperiment::ALL
                .map(PreemptExperiment::name)
                .join(", ")
        };
        PreemptExperiment::ALL
            .into_iter()
            .find(|experiment| experiment.name() == text)
            .ok_or_else(|| format!("no such experiment; choose among {}, all", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood() {
        for experiment in PreemptExperiment::ALL {
            assert_eq!(experiment.name().parse(), Ok(experiment));
            let json = serde_json::to_string(&experiment).unwrap();
            assert_eq!(json, format!("\"{experiment}\""));
        }
        let error = "preempt".parse::<PreemptExperiment>().unwrap_err();
        assert!(error.contains("starvation"), "{error}");
    }
}
