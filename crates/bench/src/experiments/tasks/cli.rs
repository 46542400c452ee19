//! `giveway bench tasks`: from options to a report.
//!
//! A cell is one arm at one load in one repeat, and cells run one after the other: what
//! is measured has the machine to itself, as far as this program goes. All cells share
//! one [`TasksBench`], which makes the data when the first of them wants it.

use std::path::PathBuf;

use crate::experiments::tasks::{Arm, TasksExperiment, TasksPlan};
use crate::experiments::tasks::{TasksBench, TasksCell, TasksRow};
use crate::harness::environment::Environment;
use crate::report::Report;
use crate::runner::pool::Executor;
use crate::runner::results::interruptible;
use crate::runner::results::{RepeatArgs, ResultArgs, positive};
use clap::Args;
use giveway_command::Failure;

/// Measure short and long TPC-H queries that come while others run
///
/// Queries arrive at random, three on small data for one on data ten times as large.
/// Compares our scheduler's policies with each other, with stock DataFusion and with
/// DuckDB; checks the answers; and says what scheduling costs. Best on a machine that
/// does nothing else. See docs/measure/tasks.md.
#[derive(Args, Debug)]
pub(crate) struct TasksArgs {
    /// What to measure: answers, mix, shift, load, single, overrun, cost, or all of these;
    /// or simulated, which has a clock of its own
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = "all",
          value_parser = experiment)]
    experiment: Vec<Chosen>,
    /// Who is compared: adaptive, tuned (the paper's), fifo, fair, lottery, balanced
    /// (Umbra's original), las, las:START:FLOOR, decay:LAMBDA:D_START, grid (thirteen of
    /// these two), stock (DataFusion on Tokio), duckdb, duckdb-partial [default: whoever
    /// belongs into the experiment]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = arms)]
    arms: Vec<Arms>,
    /// At which loads queries arrive, as parts of the workers' time [default: 0.95 in
    /// mix, 0.9 in shift, 0.7,0.8,0.9,0.96 in load, 0.7,0.95,1.03 in simulated]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = positive)]
    load: Vec<f64>,
    /// Workers, and threads of other engines [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// TPC-H scale factor of the small data; the large is ten times that [default: 0.1,
    /// with --quick 0.01]. 0.1 and 1 take 2 GiB of memory, 0.3 and 3 take 6
    #[arg(long, value_name = "SF", value_parser = positive)]
    sf: Option<f64>,
    /// For how long queries arrive [default: 60, with --quick 5]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    #[command(flatten)]
    repeats: RepeatArgs,
    /// For how long queries are tracked and how often, to tune [default: as much of a
    /// run as the paper's 20,60 of its five minutes]
    #[arg(long, value_name = "SECONDS,SECONDS", value_parser = two)]
    tuning: Option<(f64, f64)>,
    /// What queries may hold in memory, beside the tables [default: half of what is
    /// available]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 30))]
    memory: Option<u64>,
    /// A Python that has the package duckdb
    #[arg(long, default_value = "python3", value_name = "FILE")]
    python: PathBuf,
    /// Little data and short runs, for a first look
    #[arg(long)]
    quick: bool,
    /// Name all experiments, and measure nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    results: ResultArgs,
}

/// One experiment, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    One(TasksExperiment),
    All,
}

fn experiment(text: &str) -> Result<Chosen, String> {
    match text {
        "all" => Ok(Chosen::All),
        name => name.parse().map(Chosen::One),
    }
}

/// What one word of `--arms` stands for.
#[derive(Clone, Debug, PartialEq)]
struct Arms(Vec<Arm>);

/// Commas separate arms here, so parameters are separated by colons.
fn arms(text: &str) -> Result<Arms, String> {
    let text = match text.split_once(':') {
        Some((name @ ("decay" | "las"), parameters)) => {
            format!("{name}:{}", parameters.replacen(':', ",", 1))
        }
        _ => text.to_owned(),
    };
    Arm::parse(&text).map(Arms)
}

fn two(text: &str) -> Result<(f64, f64), String> {
    let (one, other) = text
        .split_once(',')
        .ok_or("write two numbers, such as 4,12")?;
    Ok((positive(one)?, positive(other)?))
}

/// Measures and reports; answers with the exit status.
pub(super) fn tasks(args: &TasksArgs) -> Result<u8, Failure> {
    if args.list {
        return list().map(|()| 0);
    }
    measure(args)
}

impl TasksArgs {
    fn plan(&self) -> TasksPlan {
        let mut experiments = Vec::new();
        for chosen in &self.experiment {
            match chosen {
                Chosen::All => experiments.extend(TasksPlan::default().experiments),
                Chosen::One(one) => experiments.push(*one),
            }
        }
        experiments.sort_unstable();
        experiments.dedup();
        let usual = match self.quick {
            true => TasksPlan::default().quick(),
            false => TasksPlan::default(),
        };
        TasksPlan {
            experiments,
            arms: self.arms.iter().flat_map(|arms| arms.0.clone()).collect(),
            loads: self.load.clone(),
            workers: self.workers.unwrap_or(usual.workers),
            scale: self.sf.unwrap_or(usual.scale),
            seconds: self.seconds.unwrap_or(usual.seconds),
            repeat: self.repeats.count,
            seed: self.repeats.seed,
            tuning_s: self.tuning,
            memory_bytes: self.memory.map(|mib| (mib as usize) << 20),
            python: self.python.clone(),
        }
    }
}

fn list() -> Result<(), Failure> {
    use std::io::Write;

    let mut out = std::io::stdout().lock();
    for experiment in TasksExperiment::ALL {
        writeln!(out, "{:<9} {}", experiment.name(), experiment.about())?;
    }
    Ok(out.flush()?)
}

/// The experiment's name.
const NAME: &str = "tasks";

pub(crate) fn measure(args: &TasksArgs) -> Result<u8, Failure> {
    let plan = args.plan();
    let bench = TasksBench::new(&plan)?;
    let cells = plan.cells();
    let stop = interruptible()?;
    eprintln!("measuring on this machine itself, {} cells", cells.len());
    args.results
        .run(&cells, TasksCell::title, &Native { bench }, 1, &stop)
}

/// This machine.
struct Native {
    bench: TasksBench,
}

impl Executor<TasksCell, Report<TasksRow>> for Native {
    fn run(
        &self,
        cell: &TasksCell,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<TasksRow>, String> {
        let environment = Environment::probe(cell.experiment.clock());
        let mut report = Report::new(NAME, environment);
        let rows = self.bench.run(cell, line);
        report.rows = rows.map_err(|error| error.to_string())?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    fn plan(options: &[&str]) -> TasksPlan {
        parse::<TasksArgs>(options).unwrap().plan()
    }

    #[test]
    fn the_default_is_everything_once() {
        assert_eq!(plan(&[]), TasksPlan::default());
        assert!(!plan(&[]).experiments.contains(&TasksExperiment::Simulated));
        assert_eq!(plan(&["--quick"]), TasksPlan::default().quick());
        let given = plan(&["--quick", "--seconds", "3", "--sf", "0.02"]);
        assert_eq!((given.seconds, given.scale), (3.0, 0.02));
    }

    #[test]
    fn arms_are_words_and_parameters_have_colons() {
        let given = plan(&["--arms", "tuned,decay:0.8:10,duckdb", "--tuning", "4,12"]);
        let names: Vec<String> = given.arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["tuned", "decay:0.8,10", "duckdb"]);
        assert_eq!(given.tuning_s, Some((4.0, 12.0)));
        assert_eq!(plan(&["--arms", "grid,las:1:0.1"]).arms.len(), 14);
        let error = arms("decay:2:3").unwrap_err();
        assert!(error.contains("decay:2,3"), "{error}");
    }

    #[test]
    fn experiments_are_taken_once_and_in_order() {
        let given = plan(&["--experiment", "cost,mix,cost"]);
        assert_eq!(
            given.experiments,
            [TasksExperiment::Mix, TasksExperiment::Cost]
        );
    }
}
