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
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::method::Method;
use super::service::{BATCH, INTERVAL, Service};

/// What `--experiment` chooses among.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptExperiment {
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
    pub const ALL: [PreemptExperiment; 8] = [
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
    pub fn name(self) -> &'static str {
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
    pub fn about(self) -> &'static str {
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

    /// The runs of the experiments that drive the mix; none for the others.
    /// `threads` are the methods that use OS threads.
    pub(crate) fn cases(self, workers: &[u32], threads: &[Method]) -> Vec<Case> {
        let most = workers.iter().copied().max().unwrap_or(1);
        let case = |method: &Method| Case::usual(method.clone(), most);
        let policies = |names: &[&str]| -> Vec<Method> {
            names.iter().map(|name| Method::policy(name)).collect()
        };
        let compared = policies(&["wait", "cooperative", "preempt", "hybrid"]);
        match self {
            PreemptExperiment::Latency => {
                let names = [
                    "wait",
                    "cooperative",
                    "handcrafted",
                    "poll",
                    "preempt",
                    "hybrid",
                ];
                let methods = policies(&names);
                methods.iter().chain(threads).map(case).collect()
            }
            PreemptExperiment::Scaling => workers
                .iter()
                .flat_map(|&workers| {
                    compared.iter().map(move |method| Case {
                        value: Some(f64::from(workers)),
                        ..Case::usual(method.clone(), workers)
                    })
                })
                .collect(),
            PreemptExperiment::YieldInterval => {
                let sweep = |policy: &'static str, most: u32| {
                    (0..=most).map(move |power| {
                        let every = 10_u32.pow(power);
                        Case {
                            value: Some(f64::from(every)),
                            ..case(&Method::policy(&format!("{policy}:{every}")))
                        }
                    })
                };
                let references = policies(&["wait", "preempt", "hybrid"]);
                sweep("cooperative", 5)
                    .chain(sweep("handcrafted", 4))
                    .chain(references.iter().map(case))
                    .collect()
            }
            PreemptExperiment::Starvation => {
                let overloaded = |case: Case| Case {
                    high_queue: 100,
                    ..case
                };
                let thresholds = [0.0, 0.25, 0.5, 0.75, 1.0].map(|value| Case {
                    value: Some(value),
                    sharing: Sharing::Threshold(value),
                    ..case(&Method::policy("hybrid"))
                });
                let tuned = Case {
                    sharing: Sharing::Tuned(TUNED_SHARE),
                    ..case(&Method::policy("hybrid").called("tuned"))
                };
                let wait = case(&Method::policy("wait"));
                [wait]
                    .into_iter()
                    .chain(thresholds)
                    .chain([tuned])
                    .map(overloaded)
                    .collect()
            }
            PreemptExperiment::Arrivals => [50, 100, 200, 500, 1_000, 5_000, 10_000, 50_000]
                .into_iter()
                .flat_map(|us| {
                    compared.iter().map(move |method| Case {
                        value: Some(us as f64),
                        arrival: Duration::from_micros(us),
                        ..case(method)
                    })
                })
                .collect(),
            PreemptExperiment::Overhead | PreemptExperiment::Micro | PreemptExperiment::Engines => {
                Vec::new()
            }
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

/// How urgent and background work share a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sharing {
    /// Urgent work has at most this part of the time (L_max of Section 5).
    Threshold(f64),
    /// The threshold is tuned so that background work has this part.
    Tuned(f64),
}

/// A run of the mix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) method: Method,
    /// What is swept, if anything is.
    pub(crate) value: Option<f64>,
    pub(crate) workers: u32,
    /// Time from one batch to the next.
    pub(crate) arrival: Duration,
    /// Places for urgent requests, for each worker.
    pub(crate) high_queue: usize,
    pub(crate) sharing: Sharing,
}

impl Case {
    fn usual(method: Method, workers: u32) -> Self {
        Case {
            method,
            value: None,
            workers,
            arrival: INTERVAL,
            high_queue: BATCH,
            // Preemption without limit, as in all of the paper's experiments
            // but that on starvation.
            sharing: Sharing::Threshold(1.0),
        }
    }

    /// The same with all times longer by a factor.
    pub(crate) fn stretched(self, stretch: f64) -> Self {
        Case {
            arrival: self.arrival.mul_f64(stretch),
            ..self
        }
    }

    /// The part of each worker's time that urgent requests take.
    pub(crate) fn load(&self, service: &Service) -> f64 {
        service.load(self.high_queue as f64, self.arrival.as_secs_f64() * 1e6)
    }

    /// The method and what is swept, for progress.
    pub(crate) fn title(&self) -> String {
        match self.value {
            Some(value) => format!("{} at {value}", self.method.name()),
            None => self.method.name().to_owned(),
        }
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

    #[test]
    fn stretched_times_bring_the_load_that_was_asked_for() {
        let service = Service {
            urgent_us: 900.0,
            q2_us: 90e3,
        };
        let wait = Method::policy("wait");
        let usual = Case::usual(wait.clone(), 1);
        assert!(usual.load(&service) > 3.5, "overloaded");
        let stretched = usual.stretched(service.stretch(0.12));
        assert!(
            (stretched.load(&service) - 0.12).abs() < 1e-6,
            "{stretched:?}"
        );
        // A sweep keeps its proportions.
        let cases = PreemptExperiment::Arrivals.cases(&[1], &[]);
        let stretched = cases.into_iter().map(|case| case.stretched(30.0));
        let longest = stretched.map(|case| case.arrival).max();
        assert_eq!(longest, Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn sweeps_have_the_paper_s_ends() {
        let values = |experiment: PreemptExperiment| -> Vec<f64> {
            let cases = experiment.cases(&[1, 2], &[]);
            cases.iter().filter_map(|case| case.value).collect()
        };
        let ends = |values: &[f64]| {
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            (least, values.iter().copied().fold(f64::MIN, f64::max))
        };
        assert_eq!(ends(&values(PreemptExperiment::Arrivals)), (50.0, 50e3));
        assert_eq!(ends(&values(PreemptExperiment::Starvation)), (0.0, 1.0));
        assert_eq!(ends(&values(PreemptExperiment::YieldInterval)), (1.0, 1e5));
        assert_eq!(ends(&values(PreemptExperiment::Scaling)), (1.0, 2.0));
    }
}
