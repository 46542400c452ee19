//! `giveway bench inversion`: from options to a report.
//!
//! A cell of the pool is one treatment and one repeat: a guest in which all locks
//! are played, without and with the burner.

#[cfg(test)]
use crate::report::Report;
use crate::runner::clock::ClockArgs;
use crate::runner::experiment::{Experiment, GuestCommand, UFS_AND_HINTS};
use crate::runner::guest::CellArgs;

use crate::cell::setup::Hints;
use crate::experiments::inversion::{ContendedLock, InversionPlan, Treatment};
use crate::harness::error::Error;
use crate::harness::scheduler::Scheduler;
use clap::Args;

use super::guests::Guests;
use crate::runner::executors::{GUEST_DATA, LabServer, SchedulerPrograms};
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use giveway_command::Failure;

/// What is compared by default: the paper's, without IDLE, which it leaves out.
const SCHEDULERS: &str = "eevdf,fifo,rr,ufs";

/// Measure how long an urgent session waits for a background one's lock
///
/// A background session holds a lock of PostgreSQL, an urgent one wants it, and
/// a third, urgent, burns the only CPU. Compares schedulers, and UFS without
/// hints about locks, with those that it finds in an unchanged server, and with
/// those of a patched one. Runs in the lab, on servers that 'make servers'
/// has built. See docs/measure/inversion.md.
#[derive(Args, Debug)]
pub(crate) struct InversionArgs {
    /// What to compare: eevdf, idle, fifo, rr, rr-bare (RR without the
    /// kernel's fair server), ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = SCHEDULERS,
          value_parser = scheduler)]
    schedulers: Vec<Scheduler>,
    /// Hints about locks: off, stock, patched; only UFS reads them
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = Hints::ALL.to_vec())]
    hints: Vec<Hints>,
    /// Locks: spin, lwlock, heavyweight, chain
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = ContendedLock::ALL, value_parser = lock)]
    locks: Vec<ContendedLock>,
    /// CPU time for which the lock is held; the paper's take 3 to 4 s
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS", value_parser = positive)]
    hold_s: f64,
    /// What has not ended by then does not end: a cell without hints takes all of
    /// it. PostgreSQL gives up on a spinlock after some two minutes
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = positive)]
    limit_s: f64,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

fn scheduler(text: &str) -> Result<Scheduler, Error> {
    text.parse()
}

fn lock(text: &str) -> Result<ContendedLock, Error> {
    text.parse()
}

/// Measures and reports; answers with the exit status.
pub(crate) fn inversion(args: &InversionArgs) -> Result<u8, Failure> {
    let plans = args.plans()?;
    let stop = interruptible()?;
    let guests = Guests::open(&plans, args.clock)?;
    let width = guests.width().min(plans.len());
    eprintln!(
        "measuring in the lab, {} guests, {width} at a time",
        plans.len()
    );
    args.results.run(&plans, title, &guests, width, &stop)
}

fn title(plan: &InversionPlan) -> String {
    format!("{}, repeat {}", plan.treatment, plan.repeat + 1)
}

impl InversionArgs {
    /// Repeats outside, so that what is compared was measured close together.
    fn plans(&self) -> Result<Vec<InversionPlan>, Failure> {
        let treatments = Treatment::all(&self.schedulers, &self.hints);
        if treatments.is_empty() {
            return Err(
                Failure::usage("only UFS reads hints, and it is not among the schedulers")
                    .with_remedy("add ufs to --schedulers, or off to --hints"),
            );
        }
        let plan = |(repeat, seed), treatment: &Treatment| InversionPlan {
            treatment: treatment.clone(),
            locks: self.locks.clone(),
            hold_s: self.hold_s,
            limit_s: self.limit_s,
            repeat,
            seed,
            server_dir: LabServer::in_guest(),
            data_dir: GUEST_DATA.into(),
            work_dir: "/dev/shm".into(),
            scheduler_program: SchedulerPrograms::in_guest(&treatment.scheduler),
        };
        let repeats = self.repeats.seeds();
        let plans: Vec<InversionPlan> = repeats
            .flat_map(|repeat| treatments.iter().map(move |of| plan(repeat, of)))
            .collect();
        for plan in &plans {
            plan.validate()?;
        }
        Ok(plans)
    }
}

/// The experiment, as the registry knows it.
pub(crate) struct Inversion;

impl Experiment for Inversion {
    const NAME: &'static str = "inversion";
    const SUMMARY: &'static str = "an urgent session wants the lock of a background one while a third burns \
        the CPU: how long it waits, per lock, scheduler and hints";
    const SECTION: &'static str = "UFS (paper 000), Section 6.6, Table 4";
    const SUBJECT: &'static [&'static str] = UFS_AND_HINTS;
    const QUICK: &'static str = "--locks spin --hold-s 1 --limit-s 20";
    type Args = InversionArgs;
    type Row = super::InversionRow;

    fn run(args: &InversionArgs) -> Result<u8, Failure> {
        inversion(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new::<CellArgs>(
            "inversion-cell",
            "Play the cells of one treatment on this machine",
            super::guests::cell,
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

    fn args(options: &[&str]) -> InversionArgs {
        parse(options).unwrap()
    }

    #[test]
    fn the_default_is_the_paper_s_schedulers_and_all_hints_of_ufs() {
        let plans = args(&[]).plans().unwrap();
        let titles: Vec<String> = plans.iter().map(title).collect();
        assert_eq!(
            titles,
            [
                "EEVDF, hints off, repeat 1",
                "FIFO, hints off, repeat 1",
                "RR, hints off, repeat 1",
                "UFS, hints off, repeat 1",
                "UFS, hints stock, repeat 1",
                "UFS, hints patched, repeat 1",
            ]
        );
        assert_eq!(plans[0].locks, ContendedLock::ALL);
        assert_eq!((plans[0].hold_s, plans[0].limit_s), (4.0, 60.0));
        assert_eq!(plans[0].scheduler_program.to_str(), Some(""));
        assert_eq!(plans[3].scheduler_program.to_str(), Some("/lab/scheduler"));
        assert_eq!(plans[0].server_dir.to_str(), Some("/lab/postgres"));
    }

    #[test]
    fn every_repeat_has_a_seed_of_its_own() {
        let options = ["--repeat", "2", "--seed", "7", "--schedulers", "rr"];
        let plans = args(&options).plans().unwrap();
        let seeds: Vec<(u32, u64)> = plans.iter().map(|plan| (plan.repeat, plan.seed)).collect();
        assert_eq!(seeds, [(0, 7), (1, 8)]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_the_remedy() {
        let cases: [(&[&str], &str); 2] = [
            (&["--schedulers", "rr", "--hints", "stock"], "add ufs"),
            (&["--limit-s", "5"], "twice that"),
        ];
        for (options, remedy) in cases {
            let error = args(options).plans().unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
