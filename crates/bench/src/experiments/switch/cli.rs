//! `giveway bench switch`: from options to a report.
//!
//! A cell of the pool is one scheduler, one tier and one repeat, in a guest of its own.

use std::time::Duration;

use clap::Args;
use giveway_command::Failure;
use giveway_lab::{Clock, Machine};
use giveway_tier::Tier;

use crate::experiments::switch::{SCHEDULERS, SwitchPlan, SwitchRow};
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use crate::runner::clock::ClockArgs;
use crate::runner::executors;
use crate::runner::executors::SchedulerPrograms;
use crate::runner::experiment::{Experiment, GuestCommand, UFS};
use crate::runner::guest::{self, CellArgs, Host};
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};

/// Memory of a guest: the verifier takes more than 1 GiB for scx_layered.
const GUEST_MIB: u32 = 3072;

/// Measure what a context switch costs, and what of it the scheduler
///
/// Two threads on one CPU hand a byte back and forth through pipes, both in one tier.
/// The kernel times the scheduler's callbacks. Runs in the lab. See docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct SwitchArgs {
    /// What to compare: eevdf, ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    /// Tiers of both threads
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = Tier::ALL)]
    tiers: Vec<Tier>,
    /// Length of each of the two windows
    #[arg(long, default_value_t = SwitchPlan::default().seconds, value_name = "SECONDS",
          value_parser = positive)]
    seconds: f64,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn switch(args: &SwitchArgs) -> Result<u8, Failure> {
    let plans = args.plans()?;
    let programs = SchedulerPrograms::find(&args.schedulers)?;
    let stop = interruptible()?;
    let guests = Guests {
        host: Host::of(executors::open(false)?, args.clock)?,
        programs,
    };
    let width = guests.host.width(GUEST_MIB).min(plans.len());
    eprintln!(
        "measuring in the lab, {} guests, {width} at a time",
        plans.len()
    );
    args.results
        .run(&plans, SwitchPlan::title, &guests, width, &stop)
}

impl SwitchArgs {
    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self) -> Result<Vec<SwitchPlan>, Failure> {
        let mut plans = Vec::new();
        for (repeat, seed) in self.repeats.seeds() {
            for scheduler in &self.schedulers {
                plans.extend(self.tiers.iter().map(|&tier| SwitchPlan {
                    scheduler: scheduler.clone(),
                    tier,
                    seconds: self.seconds,
                    repeat,
                    seed,
                    scheduler_program: SchedulerPrograms::in_guest(scheduler),
                    ..SwitchPlan::default()
                }));
            }
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
}

impl Executor<SwitchPlan, Report<SwitchRow>> for Guests {
    fn run(
        &self,
        plan: &SwitchPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<SwitchRow>, String> {
        let program = self.programs.file(&plan.scheduler);
        self.host
            .run_plan(
                &machine(plan),
                "switch-cell",
                plan,
                program.as_slice(),
                line,
            )
            .map_err(|failure| failure.message())
    }
}

/// The same plan gives the same machine, and that the same rows.
fn machine(plan: &SwitchPlan) -> Machine {
    // An emulated second takes up to ten of the host's; large schedulers take minutes to
    // be verified.
    let measured = Duration::from_secs_f64(2.0 * (plan.warmup_s + plan.seconds));
    Machine {
        cpus: 1,
        memory_mib: GUEST_MIB,
        clock: Clock::LOCKSTEP,
        seed: plan.seed,
        timeout: Duration::from_secs(2400) + measured * 10,
        ..Machine::default()
    }
}

/// Measures a plan on this machine: what runs in each guest.
pub(crate) fn cell(args: &CellArgs) -> Result<(), Failure> {
    guest::run_plan(args, |plan: &SwitchPlan, clock, line| plan.run(clock, line))
}

/// The experiment, as the registry knows it.
pub(crate) struct Switch;

impl Experiment for Switch {
    const NAME: &'static str = super::NAME;
    const SUMMARY: &'static str = "two threads on one CPU hand a byte back and forth: time per \
        context switch, and that of the scheduler's callbacks";
    const SECTION: &'static str = "none of the papers; UFS (paper 000), Section 6.1, has the \
        throughput that remains";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--schedulers eevdf,ufs --seconds 0.5";
    type Args = SwitchArgs;
    type Row = SwitchRow;

    fn run(args: &SwitchArgs) -> Result<u8, Failure> {
        switch(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new::<CellArgs>(
            "switch-cell",
            "Hand a byte back and forth on this machine",
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

    fn args(options: &str) -> SwitchArgs {
        parse(&Vec::from_iter(options.split_whitespace())).unwrap()
    }

    #[test]
    fn each_scheduler_is_measured_in_both_tiers_before_the_next_repeat() {
        let plans = args("--schedulers eevdf,scx_simple --repeat 2 --seed 7").plans();
        let seen: Vec<_> = plans.unwrap().iter().map(|p| (p.seed, p.title())).collect();
        assert_eq!(seen.len(), 8);
        assert_eq!(seen[1], (7, "EEVDF, background, repeat 1".to_owned()));
        assert_eq!(seen[6], (8, "SIMPLE, time_sensitive, repeat 2".to_owned()));
        assert_eq!(args("").plans().unwrap().len(), 10);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_a_guest_boots() {
        let error = args("--schedulers rr").plans().unwrap_err().to_string();
        assert!(error.contains("leave them out"), "{error}");
    }
}
