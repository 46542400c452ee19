//! `giveway bench wakeup`: from options to a report.
//!
//! A cell of the pool is one scheduler and one repeat, in a guest of its own.

use crate::runner::clock::ClockArgs;
use crate::runner::experiment::{Experiment, GuestCommand, UFS};
use std::path::PathBuf;
use std::time::Duration;

use crate::experiments::wakeup::{SCHEDULERS, WakeupPlan, WakeupRow, schbench};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use clap::Args;
use giveway_lab::{Clock, Machine};

use crate::runner::executors;
use crate::runner::executors::SchedulerPrograms;
use crate::runner::guest::{self, CellArgs, Host, HostFile};
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use giveway_command::Failure;

/// Where a guest has schbench.
const GUEST_SCHBENCH: &str = "/lab/schbench";
/// Memory of a guest: threads, their matrices, and little else.
const GUEST_MIB: u32 = 1024;
/// What a run of hackbench takes at most, by the guest's clock.
const HACKBENCH_S: f64 = 5.0;

/// Measure how fast threads are woken that compute in between
///
/// Worker threads ask a message thread, are woken, wait for a network and multiply
/// matrices: schbench's method with its defaults, all threads in the background.
/// hackbench and cyclictest follow. Runs in the lab. See docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct WakeupArgs {
    /// What to compare: eevdf, ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    /// CPUs of the machine
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    cpus: u32,
    /// Message threads
    #[arg(long, default_value_t = WakeupPlan::default().message_threads, value_name = "N")]
    message_threads: u32,
    /// Worker threads of each message thread [default: as many as CPUs, divided
    /// among the message threads]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    worker_threads: Option<u32>,
    /// What a worker's matrices take
    #[arg(long, default_value_t = WakeupPlan::default().footprint_kib, value_name = "KIB")]
    footprint_kib: u32,
    /// Products of matrices in a request
    #[arg(long, default_value_t = WakeupPlan::default().operations, value_name = "N")]
    operations: u32,
    /// Length of the measured window
    #[arg(long, default_value_t = WakeupPlan::default().seconds, value_name = "SECONDS",
          value_parser = positive)]
    seconds: f64,
    /// Time before the window
    #[arg(long, default_value_t = WakeupPlan::default().warmup_s, value_name = "SECONDS",
          value_parser = positive)]
    warmup: f64,
    /// Runs of hackbench after the window; 0: none
    #[arg(long, default_value_t = WakeupPlan::default().hackbench_runs, value_name = "N")]
    hackbench_runs: u32,
    /// Seconds of cyclictest, beside hackbench in a loop; 0: none
    #[arg(long, default_value_t = WakeupPlan::default().cyclictest_s, value_name = "SECONDS")]
    cyclictest_seconds: u32,
    /// Run schbench itself, too, made from the source in this directory
    #[arg(long, value_name = "DIR")]
    schbench: Option<PathBuf>,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn wakeup(args: &WakeupArgs) -> Result<u8, Failure> {
    let plans = args.plans()?;
    let programs = SchedulerPrograms::find(&args.schedulers)?;
    let schbench = args.schbench.as_deref().map(schbench::make).transpose()?;
    let stop = interruptible()?;
    let guests = Guests {
        host: Host::of(executors::open(false)?, args.clock)?,
        programs,
        schbench: schbench.as_ref().map(|(_, program)| program.clone()),
    };
    let width = guests.host.width(GUEST_MIB).min(plans.len());
    eprintln!(
        "measuring in the lab, {} guests, {width} at a time",
        plans.len()
    );
    args.results
        .run(&plans, WakeupPlan::title, &guests, width, &stop)
}

impl WakeupArgs {
    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self) -> Result<Vec<WakeupPlan>, Failure> {
        let mut plans = Vec::new();
        for (repeat, seed) in self.repeats.seeds() {
            plans.extend(self.schedulers.iter().map(|scheduler| WakeupPlan {
                scheduler: scheduler.clone(),
                cpus: self.cpus,
                message_threads: self.message_threads,
                worker_threads: self.worker_threads.unwrap_or(0),
                footprint_kib: self.footprint_kib,
                operations: self.operations,
                warmup_s: self.warmup,
                seconds: self.seconds,
                hackbench_runs: self.hackbench_runs,
                cyclictest_s: self.cyclictest_seconds,
                schbench: match self.schbench {
                    Some(_) => GUEST_SCHBENCH.into(),
                    None => PathBuf::new(),
                },
                repeat,
                seed,
                scheduler_program: SchedulerPrograms::in_guest(scheduler),
            }));
        }
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
    schbench: Option<PathBuf>,
}

impl Executor<WakeupPlan, Report<WakeupRow>> for Guests {
    fn run(
        &self,
        plan: &WakeupPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<WakeupRow>, String> {
        let scheduler = self.programs.file(&plan.scheduler);
        let schbench = self
            .schbench
            .clone()
            .map(|file| (file, "schbench".to_owned()));
        let files: Vec<HostFile> = scheduler.into_iter().chain(schbench).collect();
        self.host
            .run_plan(&machine(plan), "wakeup-cell", plan, &files, line)
            .map_err(|failure| failure.message())
    }
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &WakeupPlan) -> Machine {
    // An emulated second takes up to ten of the host's for each CPU that is busy.
    let mut tools = HACKBENCH_S * f64::from(plan.hackbench_runs) + f64::from(plan.cyclictest_s);
    if !plan.schbench.as_os_str().is_empty() {
        tools += plan.warmup_s + plan.seconds;
    }
    let measured = Duration::from_secs_f64(plan.warmup_s + plan.seconds + tools);
    let set_up = match plan.scheduler {
        // The verifier has more to read than of UFS.
        Scheduler::Scx(_) => Duration::from_secs(2400),
        _ => Duration::from_secs(600),
    };
    Machine {
        cpus: plan.cpus,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        timeout: set_up + measured * plan.cpus * 10,
        ..Machine::default()
    }
}

/// Measures a plan on this machine: what runs in each guest.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &WakeupPlan, clock, line| plan.run(clock, line))
}

/// The experiment, as the registry knows it.
pub(crate) struct Wakeup;

impl Experiment for Wakeup {
    const NAME: &'static str = "wakeup";
    const SUMMARY: &'static str = "message and worker threads that compute in between, all in the \
        background: throughput, tails of wake-ups and requests, per scheduler";
    const SECTION: &'static str = "UFS (paper 000), Section 6.5, Figure 9";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str =
        "--cpus 2 --seconds 5 --warmup 1 --hackbench-runs 3 --cyclictest-seconds 2";
    type Args = WakeupArgs;
    type Row = super::WakeupRow;

    fn run(args: &WakeupArgs) -> Result<u8, Failure> {
        wakeup(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new::<CellArgs>(
            "wakeup-cell",
            "Run the message and worker threads on this machine",
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

    fn args(options: &str) -> WakeupArgs {
        parse(&Vec::from_iter(options.split_whitespace())).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_plan_under_the_paper_s_schedulers() {
        let plans = args("").plans().unwrap();
        let ufs = WakeupPlan {
            scheduler: Scheduler::Ufs,
            scheduler_program: "/lab/scheduler".into(),
            ..WakeupPlan::default()
        };
        assert_eq!(plans, [WakeupPlan::default(), ufs]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_a_guest_boots() {
        let error = args("--schedulers rr").plans().unwrap_err().to_string();
        assert!(error.contains("would be EEVDF"), "{error}");
        let plans = args("--hackbench-runs 0 --cyclictest-seconds 9").plans();
        let tools = plans
            .unwrap()
            .into_iter()
            .map(|p| (p.hackbench_runs, p.cyclictest_s));
        assert_eq!(Vec::from_iter(tools), [(0, 9), (0, 9)]);
        let plans = args("--repeat 2 --seed 7 --worker-threads 8").plans();
        let seen: Vec<_> = plans
            .unwrap()
            .iter()
            .map(|p| (p.seed, p.workers()))
            .collect();
        assert_eq!(seen, [(7, 8), (7, 8), (8, 8), (8, 8)]);
    }
}
