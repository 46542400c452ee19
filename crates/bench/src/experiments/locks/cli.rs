//! `giveway bench locks`: from options to a report.
//!
//! A cell is one experiment and one repeat, with all its locks and thread
//! counts: locks that are compared run in one place, one after the other.

use crate::runner::clock::ClockArgs;
use crate::runner::experiment::Experiment;
use std::io::Write;

use crate::experiments::locks::{LibraryLock, LockExperiment, LockPlan, LockRow, locks as known};
use crate::harness::environment::Environment;
use crate::report::Report;
use clap::{Args, ValueEnum};

use super::cell::{Cell, numbered};
use super::guests::Guests;
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use giveway_command::Failure;

/// The experiment's name.
const NAME: &str = "locks";

/// Measure who gets how much of a lock, at what price
///
/// Threads compete for one lock: with critical sections of different length,
/// with different weights, in groups, arriving late; and one thread alone.
/// Compares CFL with u-SCL, the C library's mutexes, Rust's, and FIFO locks.
/// See docs/measure/locks.md.
#[derive(Args, Debug)]
pub(crate) struct LocksArgs {
    /// What to measure: fairness, short, equal, weights, groups, strict,
    /// convoy, newcomers, uncontended, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "all",
          value_parser = experiment)]
    experiment: Vec<Chosen>,
    /// Thread counts [default: what each experiment asks for]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    threads: Vec<u32>,
    /// Which locks, by name [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    locks: Vec<String>,
    /// Another lock, from a shared library; may be repeated
    #[arg(long, value_name = "NAME=PATH")]
    library: Vec<LibraryLock>,
    /// Length of a measured window [default: 1, with --quick 0.2]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    #[command(flatten)]
    repeats: RepeatArgs,
    /// Make critical sections so many times as long [default: 1, with
    /// --clock lockstep 20]
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    scale: Option<f64>,
    /// Short windows and two thread counts, for a first look
    #[arg(long)]
    quick: bool,
    /// Where to measure: on this machine, or in virtual machines whose CPUs all
    /// have the same, constant speed
    #[arg(long, value_enum, default_value_t = Clock::Native)]
    clock: Clock,
    /// Lockstep: virtual CPUs [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Lockstep: NUMA nodes [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    numa_nodes: Option<u32>,
    /// Name all locks, and measure nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    lab_clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// What time is where the locks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// This machine's
    Native,
    /// That of the lab: see docs/design/clock.md
    Lockstep,
}

/// One experiment, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    One(LockExperiment),
    All,
}

fn experiment(text: &str) -> Result<Chosen, String> {
    match text {
        "all" => Ok(Chosen::All),
        name => name.parse().map(Chosen::One),
    }
}

/// Measures and reports; answers with the exit status.
pub(crate) fn locks(args: &LocksArgs) -> Result<u8, Failure> {
    if args.list {
        return list().map(|()| 0);
    }
    let plan = args.plan()?;
    plan.validate()?;
    let cells = cells(&plan);
    let stop = interruptible()?;
    match args.clock {
        Clock::Native => {
            args.lab_clock.refuse_natively()?;
            let rows = plan.rows()?;
            eprintln!("measuring on this machine itself, {rows} rows");
            let results = &args.results;
            results.run(&cells, Cell::title, &Native, 1, &stop)
        }
        Clock::Lockstep => {
            let guests = Guests::open(
                args.cpus.unwrap_or(16),
                args.numa_nodes.unwrap_or(1),
                args.lab_clock,
            )?;
            let width = guests.width().min(cells.len());
            eprintln!(
                "measuring in the lab, {} guests, {width} at a time",
                cells.len()
            );
            let results = &args.results;
            results.run(&cells, Cell::title, &guests, width, &stop)
        }
    }
}

impl LocksArgs {
    fn plan(&self) -> Result<LockPlan, Failure> {
        if self.clock == Clock::Native && (self.cpus.is_some() || self.numa_nodes.is_some()) {
            return Err(
                Failure::usage("--cpus and --numa-nodes are of virtual machines")
                    .with_remedy("add --clock lockstep, or choose CPUs with taskset"),
            );
        }
        let mut experiments = Vec::new();
        for chosen in &self.experiment {
            match chosen {
                Chosen::All => experiments.extend(LockExperiment::ALL),
                Chosen::One(one) => experiments.push(*one),
            }
        }
        experiments.sort_unstable();
        experiments.dedup();
        let usual = LockPlan {
            experiments,
            locks: self.locks.clone(),
            libraries: self.library.clone(),
            repeat: self.repeats.count,
            seed: self.repeats.seed,
            ..LockPlan::default()
        };
        let mut plan = match self.quick {
            true => usual.quick(),
            false => usual,
        };
        if !self.threads.is_empty() {
            plan.threads.clone_from(&self.threads);
        }
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        // On a loose clock a critical section below the quantum would measure the quantum.
        let usual_scale = match self.clock {
            Clock::Native => 1.0,
            Clock::Lockstep => 20.0,
        };
        plan.scale = self.scale.unwrap_or(usual_scale);
        Ok(plan)
    }
}

/// Repeats outside, so that what is compared was measured close together.
fn cells(plan: &LockPlan) -> Vec<Cell> {
    let cell = |repeat, experiment: &LockExperiment| Cell {
        plan: LockPlan {
            experiments: vec![*experiment],
            repeat: 1,
            seed: plan.seed + u64::from(repeat),
            ..plan.clone()
        },
        repeat,
    };
    (0..plan.repeat)
        .flat_map(|repeat| plan.experiments.iter().map(move |e| cell(repeat, e)))
        .collect()
}

fn list() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for (name, about) in known() {
        writeln!(out, "{name:<18} {about}")?;
    }
    Ok(out.flush()?)
}

/// This machine.
struct Native;

impl Executor<Cell, Report<LockRow>> for Native {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<LockRow>, String> {
        let environment = Environment::probe("native");
        let mut report = Report::new(NAME, environment);
        report.rows = cell.plan.run(line).map_err(|error| error.to_string())?;
        Ok(numbered(report, cell))
    }
}

/// The experiment, as the registry knows it.
pub(crate) struct Locks;

impl Experiment for Locks {
    const NAME: &'static str = "locks";
    const SUMMARY: &'static str = "threads at one lock: who gets how much of it, at what price, under CFL, \
        u-SCL and the usual mutexes";
    const SECTION: &'static str = "CFL (paper 004), Sections 3.4, 4.5, 4.6";
    const SUBJECT: &'static [&'static str] = &["crates/locks/src"];
    const QUICK: &'static str = "--quick";
    type Args = LocksArgs;
    type Row = super::LockRow;

    fn run(args: &LocksArgs) -> Result<u8, Failure> {
        locks(args)
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

    fn args(options: &[&str]) -> LocksArgs {
        parse(options).unwrap()
    }

    #[test]
    fn the_default_is_everything_once() {
        assert_eq!(args(&[]).plan().unwrap(), LockPlan::default());
    }

    #[test]
    fn experiments_are_taken_once_and_in_order() {
        let plan = args(&["--experiment", "convoy,fairness,convoy"])
            .plan()
            .unwrap();
        let expected = [LockExperiment::Fairness, LockExperiment::Convoy];
        assert_eq!(plan.experiments, expected);
    }

    #[test]
    fn quick_shortens_what_is_not_given() {
        let plan = args(&["--quick", "--threads", "16"]).plan().unwrap();
        assert_eq!((plan.seconds, plan.threads), (0.2, vec![16]));
    }

    #[test]
    fn virtual_cpus_without_a_virtual_machine_are_refused() {
        let error = args(&["--cpus", "4"]).plan().unwrap_err().to_string();
        assert!(error.contains("--clock lockstep"), "{error}");
    }

    #[test]
    fn every_repeat_has_a_seed_and_all_experiments() {
        let plan = args(&["--repeat", "2", "--experiment", "equal,groups"])
            .plan()
            .unwrap();
        let cells = cells(&plan);
        let titles: Vec<String> = cells.iter().map(Cell::title).collect();
        assert_eq!(
            titles,
            [
                "equal, repeat 1",
                "groups, repeat 1",
                "equal, repeat 2",
                "groups, repeat 2"
            ]
        );
        assert_eq!((cells[1].plan.seed, cells[2].plan.seed), (1, 2));
    }
}
