//! `giveway bench holders`: from options to a report.
//!
//! A cell of the pool is one arm and one repeat: a guest in which pgbench runs each script
//! once.

use std::time::Duration;

use clap::Args;
use giveway_command::Failure;
use giveway_lab::{Clock, Machine};

use crate::cell::setup::Build;
use crate::experiments::holders::{
    Arm, EXTENSIONS_US, HoldersPlan, HoldersRow, SCHEDULERS, Script,
};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::executors::{LabServer, SchedulerPrograms};
use crate::runner::experiment::{Experiment, GuestCommand, UFS_AND_HINTS};
use crate::runner::guest::{self, CellArgs, Host};
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};

/// Memory of a guest but for the data: the verifier takes more than 1 GiB for scx_layered.
const GUEST_MIB: u32 = 3072;
/// What a unit of scale takes beyond that: its tables on a tmpfs, which may have half of
/// the memory, and the log of what changes them.
const SCALE_MIB: u32 = 40;

/// Measure what an extension of slices for lock holders is worth
///
/// pgbench on a patched PostgreSQL server whose buffers are too few, all of it
/// time-sensitive, on CPUs that both share. Compares UFS without and with an
/// extension, and the kernel's own scheduler. Runs in the lab, on a server that 'make
/// servers' has built. See docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct HoldersArgs {
    /// What to compare: eevdf, ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    /// UFS's longest extensions, in microseconds; 0: none
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = EXTENSIONS_US)]
    extension_us: Vec<u32>,
    /// Scripts of pgbench: select-only, simple-update
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = Script::ALL.to_vec())]
    scripts: Vec<Script>,
    /// CPUs that server and pgbench share
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    cpus: u32,
    /// Clients of pgbench for each CPU
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    clients_per_cpu: u32,
    /// Scale of pgbench: 15 MiB for each unit
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,
    /// The server's buffers
    #[arg(long, default_value_t = 16, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    shared_buffers: u32,
    /// Length of the measured window
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS", value_parser = positive)]
    seconds: f64,
    /// From pgbench's start to the window
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = positive)]
    warmup: f64,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn holders(args: &HoldersArgs) -> Result<u8, Failure> {
    let plans = args.plans()?;
    let programs = SchedulerPrograms::find(&args.schedulers)?;
    let server = LabServer::find(Build::Patched)?;
    let stop = interruptible()?;
    let guests = Guests {
        host: Host::of(executors::open(false)?, args.clock)?,
        programs,
        server,
    };
    let width = guests.host.width(memory_mib(args.scale)).min(plans.len());
    eprintln!(
        "measuring in the lab, {} guests, {width} at a time",
        plans.len()
    );
    args.results
        .run(&plans, HoldersPlan::title, &guests, width, &stop)
}

impl HoldersArgs {
    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self) -> Result<Vec<HoldersPlan>, Failure> {
        let arms = Arm::all(&self.schedulers, &self.extension_us);
        let plan = |(repeat, seed), arm: &Arm| HoldersPlan {
            arm: arm.clone(),
            scripts: self.scripts.clone(),
            cpus: self.cpus,
            clients_per_cpu: self.clients_per_cpu,
            scale: self.scale,
            shared_buffers_mib: self.shared_buffers,
            warmup_s: self.warmup,
            seconds: self.seconds,
            repeat,
            seed,
            server_dir: LabServer::in_guest(),
            work_dir: "/dev/shm".into(),
            scheduler_program: SchedulerPrograms::in_guest(&arm.scheduler),
        };
        let repeats = self.repeats.seeds();
        let plans: Vec<HoldersPlan> = repeats
            .flat_map(|repeat| arms.iter().map(move |arm| plan(repeat, arm)))
            .collect();
        for plan in &plans {
            plan.validate()?;
        }
        Ok(plans)
    }
}

/// Guests that are alike but for their schedulers.
struct Guests {
    host: Host,
    programs: SchedulerPrograms,
    server: LabServer,
}

impl Executor<HoldersPlan, Report<HoldersRow>> for Guests {
    fn run(
        &self,
        plan: &HoldersPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<HoldersRow>, String> {
        let program = self.programs.file(&plan.arm.scheduler);
        let files = Vec::from_iter(program.into_iter().chain([self.server.file()]));
        self.host
            .run_plan(&machine(plan), "holders-cell", plan, &files, line)
            .map_err(|failure| failure.message())
    }
}

fn memory_mib(scale: u32) -> u32 {
    GUEST_MIB + SCALE_MIB * scale
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &HoldersPlan) -> Machine {
    // An emulated second takes up to ten of the host's on two CPUs, and more on more; to
    // make the data takes some emulated seconds for each unit of scale.
    let cells = plan.scripts.len() as f64 * (plan.warmup_s + plan.seconds + 10.0);
    let busy = Duration::from_secs_f64(cells + 5.0 * f64::from(plan.scale));
    Machine {
        cpus: plan.cpus,
        memory_mib: memory_mib(plan.scale),
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        timeout: Duration::from_secs(2400) + busy * 5 * plan.cpus.max(2),
        ..Machine::default()
    }
}

/// Measures a plan on this machine: what runs in each guest.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &HoldersPlan, clock, line| {
        plan.run(clock, line)
    })
}

/// The experiment, as the registry knows it.
pub(crate) struct Holders;

impl Experiment for Holders {
    const NAME: &'static str = super::NAME;
    const SUMMARY: &'static str = "pgbench on a patched server with too few buffers, all of it \
        time-sensitive: throughput with and without an extension of lock holders' slices";
    const SECTION: &'static str = "none of the papers; UFS (paper 000), Section 5.2, has lock \
        holders in the background";
    const SUBJECT: &'static [&'static str] = UFS_AND_HINTS;
    const QUICK: &'static str = "--cpus 2 --scale 2 --seconds 1 --warmup 1 --scripts select-only";
    type Args = HoldersArgs;
    type Row = HoldersRow;

    fn run(args: &HoldersArgs) -> Result<u8, Failure> {
        holders(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new::<CellArgs>(
            "holders-cell",
            "Run pgbench under one scheduler on this machine",
            cell,
        )]
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    fn args(options: &str) -> HoldersArgs {
        parse(&Vec::from_iter(options.split_whitespace())).unwrap()
    }

    #[test]
    fn every_arm_is_measured_before_the_next_repeat() {
        let plans = args("--repeat 2 --seed 7").plans().unwrap();
        let seen = plans.iter().map(|plan| (plan.seed, plan.title()));
        let title = |seed, title: &str| (seed, title.to_owned());
        assert_eq!(
            Vec::from_iter(seen),
            [
                title(7, "EEVDF, repeat 1"),
                title(7, "UFS, 0 us, repeat 1"),
                title(7, "UFS, 200 us, repeat 1"),
                title(8, "EEVDF, repeat 2"),
                title(8, "UFS, 0 us, repeat 2"),
                title(8, "UFS, 200 us, repeat 2"),
            ]
        );
        assert_eq!((plans[0].clients(), plans[0].scripts.len()), (16, 2));
        let program = |plan: &HoldersPlan| plan.scheduler_program.display().to_string();
        assert_eq!(program(&plans[0]), "");
        assert_eq!(program(&plans[1]), "/lab/scheduler");
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_a_guest_boots() {
        for (options, remedy) in [
            ("--schedulers rr", "leave them out"),
            ("--scale 1 --shared-buffers 64", "--scale"),
        ] {
            let error = args(options).plans().unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_guest_has_the_cpus_that_are_shared_and_room_for_the_data() {
        let plans = args("--cpus 8 --scale 100 --seed 3").plans().unwrap();
        let machine = machine(&plans[0]);
        assert_eq!((machine.cpus, machine.seed), (8, 3));
        assert_eq!(machine.memory_mib, 7072);
    }
}
