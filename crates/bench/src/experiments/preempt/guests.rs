//! Preemption in virtual machines, one guest for each cell. The guest runs this
//! very command natively; its clock is the lab's.

use std::time::Duration;

use crate::experiments::preempt::{PreemptPlan, PreemptRow};
use crate::report::Report;
use giveway_lab::{Clock, Machine};

use super::cell::{Cell, numbered};
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::guest::{GUEST_REPORT, Host, HostFile};
use crate::runner::pool::Executor;
use giveway_command::Failure;

/// Memory of a guest: a database in memory, twice where one is being replaced by
/// the next.
const GUEST_MIB: u32 = 3072;
/// The name of UFS's program in a guest.
const UFS: &str = "scx_ufs";

/// Guests that are alike.
pub(crate) struct Guests {
    host: Host,
    machine: Machine,
}

impl Guests {
    /// Builds what is missing of the lab; any image will do.
    pub(crate) fn open(cpus: u32, clock: ClockArgs) -> Result<Self, Failure> {
        Ok(Guests {
            host: Host::of(executors::open(false)?, clock)?,
            machine: machine(cpus),
        })
    }

    /// How many of them run at once.
    pub(crate) fn width(&self) -> usize {
        self.host.width(self.machine.memory_mib)
    }

    fn measure(
        &self,
        cell: &Cell,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<PreemptRow>, Failure> {
        let machine = Machine {
            seed: cell.plan.seed,
            timeout: limit(&cell.plan, self.machine.cpus),
            ..self.machine.clone()
        };
        let ufs = cell.plan.ufs.as_deref().and_then(<[String]>::first);
        let ufs: Vec<HostFile> = ufs
            .map(|program| (program.into(), UFS.to_owned()))
            .into_iter()
            .collect();
        let arguments = arguments(&cell.plan);
        let report = self.host.run(&machine, &arguments, &ufs, line)?;
        Ok(numbered(report, cell))
    }
}

impl Executor<Cell, Report<PreemptRow>> for Guests {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<PreemptRow>, String> {
        self.measure(cell, line)
            .map_err(|failure| failure.message())
    }
}

fn machine(cpus: u32) -> Machine {
    Machine {
        cpus,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        ..Machine::default()
    }
}

/// Emulation takes up to ten host seconds for a second of each busy CPU, loading
/// takes a while in each run, and emulated CPUs are some thirty times slower than
/// those for which the window was meant.
fn limit(plan: &PreemptPlan, cpus: u32) -> Duration {
    let stretch = if plan.load.is_some() { 40.0 } else { 1.0 };
    // The experiment with the most runs has 32 of them.
    let runs = Duration::from_secs_f64(32.0 * (plan.seconds * stretch * 1.1 + 5.0));
    Duration::from_secs(600) + runs * cpus * 10
}

/// The command line, without the program, that measures the plan in a guest.
fn arguments(plan: &PreemptPlan) -> Vec<String> {
    let join = |items: Vec<String>| items.join(",");
    let mut arguments: Vec<String> = ["preempt", "--clock", "native"].map(str::to_owned).into();
    let mut option = |name: &str, value: String| {
        arguments.extend([format!("--{name}"), value]);
    };
    let names = plan.experiments.iter().map(|experiment| experiment.name());
    option("experiment", join(names.map(str::to_owned).collect()));
    if !plan.workers.is_empty() {
        let workers = plan.workers.iter().map(u32::to_string);
        option("workers", join(workers.collect()));
    }
    option("seconds", plan.seconds.to_string());
    if let Some(load) = plan.load {
        option("load", load.to_string());
    }
    option("seed", plan.seed.to_string());
    option("q2-scale", plan.q2_scale.to_string());
    if plan.ufs.is_some() {
        option("ufs", format!("/lab/{UFS}"));
    }
    option("json", GUEST_REPORT.to_owned());
    option("results", "/results/raw".to_owned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::preempt::PreemptExperiment;

    #[test]
    fn the_guest_measures_what_was_asked_for() {
        let plan = PreemptPlan {
            experiments: vec![PreemptExperiment::Latency],
            workers: vec![1, 3],
            seconds: 0.5,
            load: Some(0.12),
            seed: 7,
            q2_scale: 0.01,
            ufs: Some(vec!["/somewhere/scx_ufs".to_owned()]),
            ..PreemptPlan::default()
        };
        assert_eq!(
            arguments(&plan).join(" "),
            "preempt --clock native --experiment latency --workers 1,3 \
             --seconds 0.5 --load 0.12 --seed 7 --q2-scale 0.01 --ufs /lab/scx_ufs \
             --json /results/report.json --results /results/raw"
        );
    }
}
