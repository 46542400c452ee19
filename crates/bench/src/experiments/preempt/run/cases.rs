//! The runs of the mix that each experiment consists of.

use std::time::Duration;

use giveway_preempt::Delivery;

use super::method::{Method, PREEMPT};
use crate::experiments::preempt::experiment::{PreemptExperiment, TUNED_SHARE};
use crate::experiments::preempt::service::{BATCH, INTERVAL, Service};

impl PreemptExperiment {
    /// The runs of the experiments that drive the mix; none for the others.
    /// `deliveries` are those by which policies preempt, `threads` the methods that use OS
    /// threads.
    pub(crate) fn cases(
        self,
        workers: &[u32],
        deliveries: &[Delivery],
        threads: &[Method],
    ) -> Vec<Case> {
        let most = workers.iter().copied().max().unwrap_or(1);
        let case = |method: &Method| Case::usual(method.clone(), most);
        let policies = |names: &[&str]| -> Vec<Method> {
            names.iter().map(|name| Method::policy(name)).collect()
        };
        let interrupting: Vec<Method> = deliveries
            .iter()
            .filter(|delivery| **delivery != Delivery::Poll)
            .map(|delivery| Method::preempting(*delivery))
            .collect();
        let compared = [policies(&["wait", "cooperative"]), interrupting.clone()].concat();
        match self {
            PreemptExperiment::Latency => {
                let methods = policies(&["wait", "cooperative", "handcrafted"]);
                let preempting: Vec<Method> =
                    deliveries.iter().copied().map(Method::preempting).collect();
                let all = methods.iter().chain(&preempting).chain(threads);
                all.map(case).collect()
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
                let references = policies(&["wait"]);
                sweep("cooperative", 5)
                    .chain(sweep("handcrafted", 4))
                    .chain(references.iter().chain(&interrupting).map(case))
                    .collect()
            }
            PreemptExperiment::Starvation => {
                let overloaded = |case: Case| Case {
                    high_queue: 100,
                    ..case
                };
                // Signals, which cost most, only where nothing else interrupts.
                let alone = interrupting.len() == 1;
                let sweeping = interrupting
                    .iter()
                    .filter(|method| alone || method.name() != PREEMPT);
                let thresholds = sweeping.flat_map(|method| {
                    [0.0, 0.25, 0.5, 0.75, 1.0].map(|value| Case {
                        value: Some(value),
                        sharing: Sharing::Threshold(value),
                        ..case(method)
                    })
                });
                let tuned = deliveries.contains(&Delivery::HYBRID).then(|| Case {
                    sharing: Sharing::Tuned(TUNED_SHARE),
                    ..case(&Method::preempting(Delivery::HYBRID).called("tuned"))
                });
                let wait = case(&Method::policy("wait"));
                [wait]
                    .into_iter()
                    .chain(thresholds)
                    .chain(tuned)
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
    use crate::experiments::preempt::plan::DELIVERIES;

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
        let cases = PreemptExperiment::Arrivals.cases(&[1], &[], &[]);
        let stretched = cases.into_iter().map(|case| case.stretched(30.0));
        let longest = stretched.map(|case| case.arrival).max();
        assert_eq!(longest, Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn sweeps_have_the_paper_s_ends() {
        let values = |experiment: PreemptExperiment| -> Vec<f64> {
            let cases = experiment.cases(&[1, 2], &DELIVERIES, &[]);
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
