//! `giveway bench rocksdb`: from options to a report.

use crate::runner::experiment::Experiment;
use std::path::PathBuf;

use crate::experiments::rocksdb::{RocksPlan, RocksRow, WORKLOADS};
use crate::harness::environment::Environment;
use crate::report::Report;
use crate::runner::pool::Executor;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible};
use clap::Args;
use giveway_command::Failure;

/// The experiment's name.
const NAME: &str = "rocksdb";
/// The interposer's file, where it is built and installed.
const LIBRARY: &str = "libgiveway_cfl.so";

/// Measure RocksDB's foreground beside background threads that give way
///
/// Runs db_bench (package rocksdb-tools) as it is: without priorities, with low
/// priority for the background, and with CFL's mutexes in place of the C
/// library's, in groups by thread name. See docs/measure/locks.md.
#[derive(Args, Debug)]
pub(crate) struct RocksArgs {
    /// The program
    #[arg(long, value_name = "FILE", default_value = "db_bench")]
    db_bench: PathBuf,
    /// The interposer [default: libgiveway_cfl.so beside this program]
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Workloads of db_bench
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = WORKLOADS.map(str::to_owned))]
    workloads: Vec<String>,
    /// Foreground threads
    #[arg(long, default_value_t = RocksPlan::default().threads, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Background jobs
    #[arg(long, default_value_t = RocksPlan::default().background, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    background: u32,
    /// Length of a run
    #[arg(long, default_value_t = RocksPlan::default().seconds, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=86400))]
    seconds: u32,
    /// Keys in the database
    #[arg(long, default_value_t = RocksPlan::default().keys, value_name = "N")]
    keys: u32,
    /// Weight of the foreground's group
    #[arg(long, default_value_t = RocksPlan::default().front_weight, value_name = "1-10000",
          value_parser = clap::value_parser!(u32).range(1..=10000))]
    front_weight: u32,
    /// Weight of the background's group
    #[arg(long, default_value_t = RocksPlan::default().back_weight, value_name = "1-10000",
          value_parser = clap::value_parser!(u32).range(1..=10000))]
    back_weight: u32,
    /// Where data is made; a tmpfs keeps the disk out of the measurement
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,
    #[command(flatten)]
    repeats: RepeatArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn rocksdb(args: &RocksArgs) -> Result<u8, Failure> {
    let plan = args.plan()?;
    let stop = interruptible()?;
    let results = &args.results;
    // One cell for each repeat: settings that are compared run close together.
    let cells: Vec<RocksPlan> = (0..plan.repeat)
        .map(|repeat| RocksPlan {
            repeat: 1,
            seed: plan.seed + u64::from(repeat),
            ..plan.clone()
        })
        .collect();
    let title = |cell: &RocksPlan| format!("rocksdb, seed {}", cell.seed);
    results.run(&cells, title, &Here { first: plan.seed }, 1, &stop)
}

impl RocksArgs {
    fn plan(&self) -> Result<RocksPlan, Failure> {
        let beside = std::env::current_exe()
            .ok()
            .map(|own| own.with_file_name(LIBRARY))
            .filter(|path| path.exists());
        let preload = match self.preload.clone().or(beside) {
            Some(path) if path.exists() => path,
            found => {
                let name = found.unwrap_or(LIBRARY.into());
                return Err(Failure::new(format_args!(
                    "the interposer {} is not there",
                    name.display()
                ))
                .with_remedy(
                    "cargo build --release -p giveway-cfl-preload, or name it with --preload",
                ));
            }
        };
        Ok(RocksPlan {
            db_bench: self.db_bench.clone(),
            preload: Some(preload),
            dir: self.dir.clone(),
            workloads: self.workloads.clone(),
            threads: self.threads,
            background: self.background,
            seconds: self.seconds,
            keys: self.keys,
            front_weight: self.front_weight,
            back_weight: self.back_weight,
            repeat: self.repeats.count,
            seed: self.repeats.seed,
        })
    }
}

/// This machine.
struct Here {
    /// Seed of repeat 0.
    first: u64,
}

impl Executor<RocksPlan, Report<RocksRow>> for Here {
    fn run(
        &self,
        cell: &RocksPlan,
        line: &mut dyn FnMut(&str),
    ) -> Result<Report<RocksRow>, String> {
        let environment = Environment::probe("native");
        let mut report = Report::new(NAME, environment);
        report.rows = cell.run(line).map_err(|error| error.to_string())?;
        for row in &mut report.rows {
            // Repeats are few.
            row.repeat = (cell.seed - self.first) as u32;
        }
        Ok(report)
    }
}

/// The experiment, as the registry knows it.
pub(crate) struct Rocksdb;

impl Experiment for Rocksdb {
    const NAME: &'static str = "rocksdb";
    const SUMMARY: &'static str = "db_bench's foreground beside background threads with low priority, with \
        the C library's mutexes and with CFL's";
    const SECTION: &'static str = "CFL (paper 004), Section 4.3, Figure 6";
    const SUBJECT: &'static [&'static str] = &["crates/cfl_preload/src", "crates/locks/src"];
    const QUICK: &'static str = "--seconds 5";
    type Args = RocksArgs;
    type Row = super::RocksRow;

    fn run(args: &RocksArgs) -> Result<u8, Failure> {
        rocksdb(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}

#[cfg(test)]
mod tests {
    use super::RocksArgs;
    use crate::runner::experiment::parse;

    #[test]
    fn an_interposer_that_is_not_there_is_answered_with_the_remedy() {
        let args: RocksArgs = parse(&["--preload", "/nonexistent.so"]).unwrap();
        let error = args.plan().unwrap_err().to_string();
        assert!(
            error.contains("/nonexistent.so") && error.contains("giveway-cfl-preload"),
            "{error}"
        );
    }
}
