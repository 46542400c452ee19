//! Preemption in virtual machines, one guest for each cell. The guest runs this
//! very command natively; its clock is the lab's.

use std::path::Path;
use std::time::Duration;

use giveway_bench::preempt::{PreemptPlan, PreemptRow};
use giveway_bench::{Environment, Report};
use giveway_lab::{Clock, Job, Lab, Machine};

use super::{Cell, numbered};
use crate::bench::place::{GUEST_REPORT, report_of, width};
use crate::bench::pool::Place;
use crate::error::{Context, Failure};
use crate::lab;

/// Memory of a guest: a database in memory, twice where one is being replaced by
/// the next.
const GUEST_MIB: u32 = 3072;
/// The name of UFS's program in a guest.
const UFS: &str = "scx_ufs";

/// Guests that are alike.
pub(super) struct Guests {
    lab: Lab,
    machine: Machine,
    /// What rows say of the host: a guest knows neither the day nor a name.
    host: Environment,
}

impl Guests {
    /// Builds what is missing of the lab; any image will do.
    pub(super) fn open(cpus: u32) -> Result<Self, Failure> {
        Ok(Guests {
            lab: lab::open(false)?,
            machine: machine(cpus),
            host: Environment::without_server(Clock::LOCKSTEP.name(), crate::bench::COMMIT),
        })
    }

    /// How many of them run at once.
    pub(super) fn width(&self) -> usize {
        width(self.machine.memory_mib)
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
        let own = std::env::current_exe().cannot("find this program's file")?;
        let mut job = Job::new(arguments(&cell.plan)).file(own, "giveway");
        if let Some([program, ..]) = cell.plan.ufs.as_deref() {
            job = job.file(Path::new(program), UFS);
        }
        let mut report = report_of(&self.lab, &machine, &job, line)?;
        let environment = &mut report.environment;
        environment.clock.clone_from(&self.host.clock);
        environment.date.clone_from(&self.host.date);
        environment.machine.clone_from(&self.host.machine);
        Ok(numbered(report, cell))
    }
}

impl Place<Cell, Report<PreemptRow>> for Guests {
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

/// The command line that measures the plan in a guest.
fn arguments(plan: &PreemptPlan) -> Vec<String> {
    let join = |items: Vec<String>| items.join(",");
    let mut arguments: Vec<String> = ["giveway", "bench", "preempt", "--clock", "native"]
        .map(str::to_owned)
        .into();
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
    use giveway_bench::preempt::PreemptExperiment;

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
            "giveway bench preempt --clock native --experiment latency --workers 1,3 \
             --seconds 0.5 --load 0.12 --seed 7 --q2-scale 0.01 --ufs /lab/scx_ufs \
             --json /results/report.json --results /results/raw"
        );
    }
}
