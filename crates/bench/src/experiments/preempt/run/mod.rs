//! Measuring a plan on this machine.
//!
//! | module | question |
//! | --- | --- |
//! | `cases`, `method` | which runs, and how do urgent transactions get to run? |
//! | `cpus` | which CPU does what? |
//! | `workload` | what is one request? |
//! | `driver` | when do requests come? |
//! | `alone` | how long do they take alone? |
//! | `stalls` | what did the machine do meanwhile? |
//! | `pool`, `threads` | where do they run? |
//! | `overhead`, `engines`, `micro` | the experiments without the mix |

mod alone;
mod cases;
mod cpus;
mod driver;
mod engines;
mod method;
mod micro;
mod overhead;
mod pool;
mod stalls;
#[cfg(test)]
mod tests;
mod threads;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use super::PreemptPlan;
use super::experiment::PreemptExperiment;
use super::row::{Measured, Mixed, Offered, Placement, PreemptRow};
use crate::cell::sched_ext::Loaded;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::scheduler::Scheduler;
use crate::workload::oltp::check::consistency;

use cases::Case;
use cpus::{CpuPlan, Pinned};
use driver::{Arrivals, drive};
use engines::{ENGINES, Mix, Turns};
use method::{How, Method, Priority};
use overhead::Slices;
use pool::PoolWorkers;
use threads::ThreadWorkers;
use workload::{Requests, Workload};

/// Turns of each engine.
const ROUNDS: u32 = 10;

/// Pairs of slices with and without interrupts. Many short ones: what a machine
/// that is not ours alone does to a few of them then leaves the median alone.
const PAIRS: u32 = 200;

/// How long the scheduling thread may be without a look at the clock; what takes
/// longer is a stall. Its own work between two looks takes some µs, a signal 10.
const STALL: Duration = Duration::from_micros(200);

impl PreemptPlan {
    /// Refuses what cannot be measured here.
    ///
    /// # Errors
    /// Fewer CPUs than workers and a scheduling thread need; a delivery that this machine
    /// does not have.
    pub(crate) fn validate(&self) -> Result<()> {
        for delivery in &self.deliveries {
            delivery.check().map_err(|error| {
                Error::Config(format!(
                    "{error}: see 'giveway doctor', or measure in the lab with --clock lockstep"
                ))
            })?;
        }
        self.cpu_plan(self.most_workers()?).map(|_| ())
    }

    /// How many rows it makes.
    ///
    /// # Errors
    /// As [`PreemptPlan::validate`].
    pub(crate) fn rows(&self) -> Result<usize> {
        let workers = self.workers()?;
        let count = |experiment: &PreemptExperiment| match experiment {
            PreemptExperiment::Overhead => self.interrupting().count(),
            PreemptExperiment::Engines => ENGINES * Mix::ALL.len(),
            PreemptExperiment::Micro => micro::rows(&self.deliveries),
            mixed => self.cases(*mixed, &workers).len(),
        };
        let once: usize = self.experiments.iter().map(count).sum();
        Ok(once * self.repeat as usize)
    }

    fn workers(&self) -> Result<Vec<u32>> {
        if !self.workers.is_empty() {
            return Ok(self.workers.clone());
        }
        // Machines have fewer than 2^32 CPUs.
        let most = (cpus::allowed()?.len() as u32).saturating_sub(1).max(1);
        Ok((1..=most).collect())
    }

    fn most_workers(&self) -> Result<u32> {
        Ok(self.workers()?.into_iter().max().unwrap_or(1))
    }

    fn cpu_plan(&self, workers: u32) -> Result<CpuPlan> {
        CpuPlan::of(&cpus::allowed()?, workers)
    }

    fn cases(&self, of: PreemptExperiment, workers: &[u32]) -> Vec<Case> {
        of.cases(workers, &self.deliveries, &self.threads())
    }

    fn threads(&self) -> Vec<Method> {
        let ufs = self.ufs.as_ref().map(|_| Priority::Ufs);
        [Priority::Equal, Priority::Nice, Priority::Fifo]
            .into_iter()
            .chain(ufs)
            .map(Method::threads)
            .collect()
    }

    /// Measures everything on this machine; one line of `progress` for each
    /// step.
    ///
    /// # Errors
    /// As [`PreemptPlan::validate`]; an engine that failed or broke a
    /// consistency condition; a priority that needs a privilege.
    pub(crate) fn run(&self, progress: Progress<'_>) -> Result<Vec<PreemptRow>> {
        self.validate()?;
        let mut rows = Vec::new();
        for repeat in 0..self.repeat {
            let seed = self.seed + u64::from(repeat);
            for &experiment in &self.experiments {
                let mut keep = |method: &str, value: Option<f64>, measured: Measured| {
                    rows.push(PreemptRow {
                        experiment,
                        method: method.to_owned(),
                        value,
                        repeat,
                        seed,
                        measured,
                    });
                };
                self.measure(experiment, seed, &mut keep, progress)?;
            }
        }
        Ok(rows)
    }

    fn measure(
        &self,
        experiment: PreemptExperiment,
        seed: u64,
        keep: &mut dyn FnMut(&str, Option<f64>, Measured),
        progress: Progress<'_>,
    ) -> Result<()> {
        let plan = self.cpu_plan(self.most_workers()?)?;
        let part = |parts: u32| Duration::from_secs_f64(self.seconds / f64::from(parts));
        match experiment {
            PreemptExperiment::Overhead => {
                let workload = self.load(seed, 1, progress)?;
                for (delivery, number) in self.interrupting().zip(0..) {
                    progress(&format!("overhead: {delivery}"));
                    let slices = Slices {
                        seed,
                        number,
                        length: part(PAIRS),
                        pairs: PAIRS,
                    };
                    let measured = overhead::measure(&workload, delivery, &plan, slices)?;
                    keep(&delivery.to_string(), None, Measured::Overhead(measured));
                }
                consistency(&workload.engine, self.size)
            }
            PreemptExperiment::Engines => {
                let turns = Turns {
                    seed,
                    warehouses: 1,
                    size: self.size,
                    slice: part(ROUNDS),
                    rounds: ROUNDS,
                };
                for (engine, measured) in engines::measure(turns, progress)? {
                    keep(engine, None, Measured::Throughput(measured));
                }
                Ok(())
            }
            PreemptExperiment::Micro => {
                progress("micro: operations, then deliveries");
                for (name, measured) in micro::measure(&plan, &self.deliveries, self.rounds)? {
                    keep(&name, None, measured);
                }
                Ok(())
            }
            mixed => {
                progress(&format!("{mixed}: requests alone"));
                let service = alone::measure(&*self.load(seed, 1, progress)?, seed, &plan)?;
                let stretch = self.load.map_or(1.0, |load| service.stretch(load));
                for case in self.cases(mixed, &self.workers()?) {
                    let case = case.stretched(stretch);
                    let offered = Offered {
                        service,
                        load: case.load(&service),
                        stretch,
                    };
                    let measured = self.mixed(mixed, &case, offered, seed, progress)?;
                    let measured = Measured::Mixed(Box::new(measured));
                    keep(case.method.name(), case.value, measured);
                }
                Ok(())
            }
        }
    }

    fn load(&self, seed: u64, warehouses: u32, progress: Progress<'_>) -> Result<Arc<Workload>> {
        Workload::load(seed, warehouses, self.size, self.q2_scale, progress)
    }

    /// One run of the mix, on a database of its own.
    fn mixed(
        &self,
        experiment: PreemptExperiment,
        case: &Case,
        offered: Offered,
        seed: u64,
        progress: Progress<'_>,
    ) -> Result<Mixed> {
        let title = format!("{experiment}: {}", case.title());
        progress(&format!("{title}, loading"));
        let plan = self.cpu_plan(case.workers)?;
        let workload = self.load(seed, case.workers, progress)?;
        let window = Duration::from_secs_f64(self.seconds).mul_f64(offered.stretch);
        let arrivals = Arrivals {
            interval: case.arrival,
            batch: case.workers as usize * case.high_queue,
            low_places: case.workers as usize,
            warmup: window / 10,
            window,
            stall: STALL.mul_f64(offered.stretch),
        };
        let mut requests = Requests::new(&workload, seed, arrivals.slots());
        progress(&title);
        let scheduler = match case.method.how {
            How::Threads(Priority::Ufs) => {
                let command = self.ufs.as_deref().unwrap_or_default();
                Loaded::start(&Scheduler::Ufs, command, &[])?
            }
            _ => None,
        };
        let pinned = Pinned::to(plan.scheduler)?;
        let (driven, pool) = match &case.method.how {
            How::Pool(policy) => {
                let mut workers = PoolWorkers::start(case, *policy, &plan)?;
                let driven = drive(&arrivals, &mut requests, &mut workers)?;
                (driven, Some(workers.stop()))
            }
            How::Threads(priority) => {
                let mut workers = ThreadWorkers::start(*priority, case.high_queue, &plan)?;
                (drive(&arrivals, &mut requests, &mut workers)?, None)
            }
        };
        drop(pinned);
        let in_force = scheduler.as_ref().map(Loaded::confirm).transpose()?;
        scheduler.map(Loaded::stop).transpose()?;
        workload.failure()?;
        progress(&format!("{title}, checking"));
        consistency(&workload.engine, self.size)?;
        let placement = Placement {
            worker_cpus: plan.workers,
            scheduler_cpu: plan.scheduler,
        };
        let run = Mixed {
            placement,
            warehouses: case.workers,
            q2_scale: self.q2_scale,
            offered: Some(offered),
            pool,
            scheduler: in_force,
            ..driven.measured(&arrivals, &requests)
        };
        Ok(run)
    }
}
