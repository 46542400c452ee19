//! `giveway bench preempt`: from options to a report.
//!
//! A cell is one experiment and one repeat, with all its methods: what is compared
//! runs in one place, one after the other.

use std::path::PathBuf;

use crate::experiments::preempt::{PreemptExperiment, PreemptPlan, PreemptRow};
use crate::harness::environment::Environment;
use crate::harness::scheduler::Scheduler;
use crate::report::Report;
use clap::{Args, ValueEnum};
use giveway_preempt::Delivery;

use super::cell::{Cell, numbered};
use super::guests::Guests;
use super::plan::DELIVERIES;
use super::uintr;
use crate::runner::clock::ClockArgs;
use crate::runner::executors::scheduler_file;
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use giveway_command::Failure;

/// What the paper's batch every millisecond takes of a worker natively, so that
/// the same is asked of the lab's slower CPUs.
const LOCKSTEP_LOAD: f64 = 0.12;

/// The experiment's name.
const NAME: &str = "preempt";

/// Measure urgent transactions beside long ones in one engine
///
/// TPC-C's New-Order and Payment arrive at fixed times at workers that are busy
/// with TPC-H's Q2. Compares waiting, yielding and preempting, and the same
/// transactions on OS threads; and what preemption costs. Needs two CPUs, and
/// root for OS threads with priorities. See docs/measure/preempt.md.
#[derive(Args, Debug)]
pub(crate) struct PreemptArgs {
    /// What to measure: latency, overhead, scaling, yield-interval, starvation,
    /// arrivals, micro, engines, or all
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "all",
          value_parser = experiment)]
    experiment: Vec<Chosen>,
    /// By which deliveries policies preempt: signal (the policy preempt), poll, hybrid,
    /// uintr, or all. Signals are always measured: the others are compared with them.
    /// uintr is user interrupts, the paper's: for CPUs that have them, with the module
    /// of kernel/uintr, and for the lab's, which get both
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_value = "signal,poll,hybrid", value_parser = delivery)]
    delivery: Vec<ChosenDelivery>,
    /// Numbers of workers; the largest is used where none is swept [default:
    /// all that leave a CPU for the scheduling thread]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=1023))]
    workers: Vec<u32>,
    /// Length of a measured window, before --load stretches it [default: 10, with
    /// --clock lockstep or --quick 1]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    /// The part of a worker's time that urgent transactions take, by what they
    /// take alone: arrival intervals and windows are stretched for it, all by the
    /// same factor, so that a slow machine is not overloaded [default: with
    /// --clock lockstep 0.12, about what the paper's batch every ms is natively;
    /// otherwise nothing is stretched]
    #[arg(long, value_name = "PART", value_parser = positive)]
    load: Option<f64>,
    #[command(flatten)]
    repeats: RepeatArgs,
    /// TPC-H scale of Q2's tables: how long a Q2 takes
    #[arg(long, default_value_t = PreemptPlan::default().q2_scale, value_name = "SF",
          value_parser = positive)]
    q2_scale: f64,
    /// Short windows, for a first look
    #[arg(long)]
    quick: bool,
    /// The program scx_ufs, to run OS threads on UFS as well; needs a kernel
    /// with sched_ext [default with --clock lockstep: beside this program, or in
    /// PATH]
    #[arg(long, value_name = "FILE")]
    ufs: Option<PathBuf>,
    /// Where to measure: on this machine, or in virtual machines whose CPUs all
    /// have the same, constant speed
    #[arg(long, value_enum, default_value_t = Clock::Native)]
    clock: Clock,
    /// Lockstep: virtual CPUs [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    cpus: Option<u32>,
    /// Name all experiments, and measure nothing
    #[arg(long)]
    list: bool,
    /// The module uintr.ko, to be loaded first: what a guest is told
    #[arg(long, hide = true, value_name = "FILE")]
    uintr_module: Option<PathBuf>,
    #[command(flatten)]
    lab_clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// What time is where the transactions are measured.
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
    One(PreemptExperiment),
    All,
}

/// A delivery, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChosenDelivery {
    One(Delivery),
    All,
}

fn delivery(text: &str) -> Result<ChosenDelivery, String> {
    let unknown = || format!("no delivery '{text}': use signal, poll, hybrid, uintr or all");
    match text {
        "all" => Ok(ChosenDelivery::All),
        name => {
            let one = name.parse().map_err(|_| unknown())?;
            let known = DELIVERIES.contains(&one);
            known
                .then_some(ChosenDelivery::One(one))
                .ok_or_else(unknown)
        }
    }
}

fn experiment(text: &str) -> Result<Chosen, String> {
    match text {
        "all" => Ok(Chosen::All),
        name => name.parse().map(Chosen::One),
    }
}

/// Measures and reports; answers with the exit status.
pub(super) fn preempt(args: &PreemptArgs) -> Result<u8, Failure> {
    if args.list {
        return list().map(|()| 0);
    }
    let plan = args.plan()?;
    let cells = cells(&plan);
    let stop = interruptible()?;
    let results = &args.results;
    match args.clock {
        Clock::Native => {
            args.lab_clock.refuse_natively()?;
            if let Some(file) = &args.uintr_module {
                uintr::load(file)?;
            }
            plan.validate()?;
            let rows = plan.rows()?;
            eprintln!("measuring on this machine itself, {rows} rows");
            results.run(&cells, Cell::title, &Native, 1, &stop)
        }
        Clock::Lockstep => {
            if plan.needs_user_interrupts() && args.lab_clock.is_kvm() {
                return Err(Failure::usage(
                    "--kvm runs guests on this machine's CPUs, and the lab emulates user interrupts",
                )
                .with_remedy("leave out --kvm, or uintr in --delivery"));
            }
            let guests = Guests::open(
                args.cpus.unwrap_or(2),
                plan.needs_user_interrupts(),
                args.lab_clock,
            )?;
            let width = guests.width().min(cells.len());
            eprintln!(
                "measuring in the lab, {} guests, {width} at a time",
                cells.len()
            );
            results.run(&cells, Cell::title, &guests, width, &stop)
        }
    }
}

impl PreemptArgs {
    fn plan(&self) -> Result<PreemptPlan, Failure> {
        if self.clock == Clock::Native && self.cpus.is_some() {
            return Err(Failure::usage("--cpus is of virtual machines")
                .with_remedy("add --clock lockstep, or choose CPUs with taskset"));
        }
        let mut experiments = Vec::new();
        for chosen in &self.experiment {
            match chosen {
                Chosen::All => experiments.extend(PreemptExperiment::ALL),
                Chosen::One(one) => experiments.push(*one),
            }
        }
        experiments.sort_unstable();
        experiments.dedup();
        let chosen = |delivery: &Delivery| {
            let of_them = |one: &ChosenDelivery| match one {
                ChosenDelivery::All => true,
                ChosenDelivery::One(one) => one == delivery,
            };
            *delivery == Delivery::Signal || self.delivery.iter().any(of_them)
        };
        let usual = PreemptPlan {
            experiments,
            deliveries: DELIVERIES.into_iter().filter(chosen).collect(),
            workers: self.workers.clone(),
            repeat: self.repeats.count,
            seed: self.repeats.seed,
            q2_scale: self.q2_scale,
            ufs: self.ufs_command()?,
            ..PreemptPlan::default()
        };
        let mut plan = match self.quick {
            true => usual.quick(),
            false => usual,
        };
        plan.load = self.load;
        if self.clock == Clock::Lockstep {
            // An emulated second takes many of the host's, and is stretched.
            plan.seconds = plan.seconds.min(1.0);
            plan.load.get_or_insert(LOCKSTEP_LOAD);
        }
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        Ok(plan)
    }

    /// UFS's program. The lab's kernels have sched_ext, others may not.
    fn ufs_command(&self) -> Result<Option<Vec<String>>, Failure> {
        let file = match (&self.ufs, self.clock) {
            (Some(file), _) => file.clone(),
            (None, Clock::Lockstep) => match scheduler_file(&Scheduler::Ufs)? {
                Some(file) => file,
                None => return Ok(None),
            },
            (None, Clock::Native) => return Ok(None),
        };
        Ok(Some(vec![file.display().to_string()]))
    }
}

/// Repeats outside, so that what is compared was measured close together.
fn cells(plan: &PreemptPlan) -> Vec<Cell> {
    let cell = |repeat, experiment: &PreemptExperiment| Cell {
        plan: PreemptPlan {
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
    use std::io::Write;

    let mut out = std::io::stdout().lock();
    for experiment in PreemptExperiment::ALL {
        writeln!(out, "{:<15} {}", experiment.name(), experiment.about())?;
    }
    Ok(out.flush()?)
}

/// This machine.
struct Native;

impl Executor<Cell, Report<PreemptRow>> for Native {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<PreemptRow>, String> {
        let environment = Environment::probe("native");
        let mut report = Report::new(NAME, environment);
        report.rows = cell.plan.run(line).map_err(|error| error.to_string())?;
        Ok(numbered(report, cell))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    fn args(options: &[&str]) -> PreemptArgs {
        parse(options).unwrap()
    }

    #[test]
    fn the_default_is_everything_once() {
        assert_eq!(args(&[]).plan().unwrap(), PreemptPlan::default());
    }

    #[test]
    fn experiments_are_taken_once_and_in_order() {
        let plan = args(&["--experiment", "micro,latency,micro"]).plan();
        let expected = [PreemptExperiment::Latency, PreemptExperiment::Micro];
        assert_eq!(plan.unwrap().experiments, expected);
    }

    #[test]
    fn deliveries_are_taken_once_in_order_and_signals_always() {
        let deliveries = |options: &[&str]| args(options).plan().unwrap().deliveries;
        assert_eq!(deliveries(&[]), DELIVERIES[..3]);
        assert_eq!(
            deliveries(&["--delivery", "uintr,poll,uintr"]),
            [Delivery::Poll, Delivery::Signal, Delivery::UserInterrupt]
        );
        assert_eq!(deliveries(&["--delivery", "all"]), DELIVERIES);
        for wrong in ["interrupt", "hybrid:7us"] {
            let error = parse::<PreemptArgs>(&["--delivery", wrong]).unwrap_err();
            assert!(error.to_string().contains("uintr or all"), "{error}");
        }
    }

    #[test]
    fn user_interrupts_on_this_machine_s_cpus_are_refused() {
        let options = ["--delivery", "uintr", "--clock", "lockstep", "--kvm"];
        let error = preempt(&args(&[&options[..], &["--ufs", "x"]].concat())).unwrap_err();
        assert!(error.to_string().contains("--kvm"), "{error}");
    }

    #[test]
    fn quick_shortens_what_is_not_given() {
        assert_eq!(args(&["--quick"]).plan().unwrap().seconds, 1.0);
        let given = args(&["--quick", "--seconds", "3"]).plan().unwrap();
        assert_eq!(given.seconds, 3.0);
    }

    #[test]
    fn the_lab_is_offered_what_it_can_serve() {
        let lab = ["--clock", "lockstep", "--ufs", "scx_ufs"];
        let plan = args(&lab).plan().unwrap();
        assert_eq!((plan.load, plan.seconds), (Some(LOCKSTEP_LOAD), 1.0));
        let given = [&lab[..], &["--load", "0.5"]].concat();
        assert_eq!(args(&given).plan().unwrap().load, Some(0.5));
        assert_eq!(args(&["--load", "2"]).plan().unwrap().load, Some(2.0));
    }

    #[test]
    fn virtual_cpus_without_a_virtual_machine_are_refused() {
        let error = args(&["--cpus", "4"]).plan().unwrap_err().to_string();
        assert!(error.contains("--clock lockstep"), "{error}");
    }

    #[test]
    fn every_repeat_has_a_seed_and_all_experiments() {
        let plan = args(&["--repeat", "2", "--experiment", "arrivals,engines"]);
        let cells = cells(&plan.plan().unwrap());
        let titles: Vec<String> = cells.iter().map(Cell::title).collect();
        assert_eq!(
            titles,
            [
                "arrivals, repeat 1",
                "engines, repeat 1",
                "arrivals, repeat 2",
                "engines, repeat 2"
            ]
        );
        assert_eq!((cells[1].plan.seed, cells[2].plan.seed), (1, 2));
    }
}
