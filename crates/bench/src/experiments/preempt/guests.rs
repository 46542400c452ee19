//! Preemption in virtual machines, one guest for each cell. The guest runs this
//! very command natively; its clock is the lab's.

use std::path::PathBuf;
use std::time::Duration;

use giveway_preempt::Delivery;

use crate::experiments::preempt::{PreemptPlan, PreemptRow};
use crate::report::Report;
use giveway_lab::{Clock, Machine};

use super::cell::{Cell, numbered};
use super::uintr;
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::guest::{GUEST_FILES, GUEST_REPORT, Host, HostFile};
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
    /// That of user interrupts, if guests have them.
    module: Option<PathBuf>,
}

impl Guests {
    /// Builds what is missing of the lab; any image will do. With user interrupts, also
    /// the module for the guests' kernel.
    pub(crate) fn open(
        cpus: u32,
        user_interrupts: bool,
        clock: ClockArgs,
    ) -> Result<Self, Failure> {
        let lab = executors::open(false)?;
        let module = match user_interrupts {
            true => Some(uintr::build(&lab)?),
            false => None,
        };
        Ok(Guests {
            host: Host::of(lab, clock)?,
            machine: machine(cpus, user_interrupts),
            module,
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
        let ufs = ufs.map(|program| (program.into(), UFS.to_owned()));
        let module = self.module.clone();
        let module = module.map(|file| (file, uintr::MODULE.to_owned()));
        let files: Vec<HostFile> = ufs.into_iter().chain(module).collect();
        let arguments = arguments(&cell.plan);
        let report = self.host.run(&machine, &arguments, &files, line)?;
        Ok(numbered(report, cell))
    }
}

impl Executor<Cell, Report<PreemptRow>> for Guests {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<PreemptRow>, String> {
        self.measure(cell, line)
            .map_err(|failure| failure.message())
    }
}

fn machine(cpus: u32, user_interrupts: bool) -> Machine {
    Machine {
        cpus,
        user_interrupts,
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
    let deliveries = plan.deliveries.iter().map(|delivery| match delivery {
        // Without its grace, which is the usual one.
        Delivery::Hybrid { .. } => "hybrid".to_owned(),
        other => other.to_string(),
    });
    option("delivery", join(deliveries.collect()));
    if plan.needs_user_interrupts() {
        option("uintr-module", format!("{GUEST_FILES}/{}", uintr::MODULE));
    }
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
            "preempt --clock native --experiment latency --delivery poll,signal,hybrid --workers 1,3 \
             --seconds 0.5 --load 0.12 --seed 7 --q2-scale 0.01 --ufs /lab/scx_ufs \
             --json /results/report.json --results /results/raw"
        );
        let interrupted = PreemptPlan {
            deliveries: vec![Delivery::Signal, Delivery::UserInterrupt],
            ..PreemptPlan::default()
        };
        let line = arguments(&interrupted).join(" ");
        let expected = "--delivery signal,uintr --uintr-module /lab/uintr.ko";
        assert!(line.contains(expected), "{line}");
    }
}
