//! `giveway bench sql`: from options to a report.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use giveway_command::Failure;
use giveway_lab::cache_root;

use super::data::Source;
use super::row::{EngineName, SqlRow};
use super::run::{Bench, Cell, Settings};
use super::suite::Suite;
use crate::harness::environment::Environment;
use crate::report::Report;
use crate::runner::pool::Executor;
use crate::runner::results::{ResultArgs, interruptible, positive};

/// The experiment's name.
const NAME: &str = "sql";

/// Measure queries one at a time on our engine, stock DataFusion and DuckDB
///
/// All read the same Parquet files with as many threads, each in a process of its own,
/// in turns; answers are compared. Best on a machine that does nothing else. See
/// docs/measure/sql.md.
#[derive(Args, Debug)]
pub(crate) struct SqlArgs {
    /// tpch, tpcds (data from DuckDB's extension), clickbench (takes --clickbench)
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        default_value = "tpch"
    )]
    suites: Vec<Suite>,
    /// giveway, datafusion, duckdb [default: all that are there]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    engines: Vec<EngineName>,
    /// Numbers of queries [default: all of each suite]
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          value_parser = clap::value_parser!(u32).range(1..=99))]
    queries: Vec<u32>,
    /// Scale factor of TPC-H and TPC-DS
    #[arg(long, default_value = "1", value_name = "SF", value_parser = positive)]
    sf: f64,
    /// Rows of ClickBench, in thousands
    #[arg(long, default_value_t = 1500, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// A copy of the repository ClickHouse/ClickBench
    #[arg(long, value_name = "DIR")]
    clickbench: Option<PathBuf>,
    /// Where data is made and kept [default: ~/.cache/giveway/sql]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A Python that has the package duckdb
    #[arg(long, default_value = "python3", value_name = "FILE")]
    python: PathBuf,
    /// A Python that makes data: with duckdb, for TPC-DS with duckdb-extension-tpcds of the
    /// same version [default: --python]
    #[arg(long, value_name = "FILE")]
    generator: Option<PathBuf>,
    /// Threads of each engine [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// What queries may hold in memory, on engines with a limit
    #[arg(long, default_value_t = 8192, value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(64..=1 << 30))]
    memory: u64,
    /// How often each query counts, after one time that does not
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// How long an engine may take for a query
    #[arg(long, default_value = "120", value_name = "SECONDS", value_parser = positive)]
    timeout: f64,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(super) fn sql(args: &SqlArgs) -> Result<u8, Failure> {
    let cells = args.cells();
    if cells.is_empty() {
        return Err(Failure::usage("no suite has a query of these numbers"));
    }
    let engines = args.engines(has_duckdb(&args.python))?;
    let stop = interruptible()?;
    let bench = Bench::new(args.settings(engines));
    eprintln!("measuring on this machine itself, {} queries", cells.len());
    args.results
        .run(&cells, Cell::title, &Native(bench), 1, &stop)
}

fn has_duckdb(python: &Path) -> bool {
    let asked = Command::new(python).args(["-c", "import duckdb"]).output();
    asked.is_ok_and(|answer| answer.status.success())
}

impl SqlArgs {
    /// Who is measured. Who was asked for and is not there is an error before anything is
    /// measured.
    fn engines(&self, has_duckdb: bool) -> Result<Vec<EngineName>, Failure> {
        let remedy = "python3 -m venv duck && duck/bin/pip install duckdb, then --python \
                      duck/bin/python";
        let missing = format!("{} has no package duckdb", self.python.display());
        match (self.engines.as_slice(), has_duckdb) {
            ([], true) => Ok(EngineName::ALL.into()),
            ([], false) => {
                eprintln!("giveway: warning: without DuckDB: {missing}: {remedy}");
                Ok(vec![EngineName::Giveway, EngineName::DataFusion])
            }
            (chosen, false) if chosen.contains(&EngineName::DuckDb) => {
                Err(Failure::new(missing).with_remedy(remedy))
            }
            (chosen, _) => Ok(chosen.to_owned()),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &suite in &self.suites {
            let scale = match suite {
                Suite::TpcH | Suite::TpcDs => self.sf,
                Suite::ClickBench => f64::from(self.rows),
            };
            let wanted = |query: &u32| self.queries.is_empty() || self.queries.contains(query);
            cells.extend((1..=suite.queries()).filter(wanted).map(|query| Cell {
                suite,
                scale,
                query,
            }));
        }
        cells
    }

    fn settings(&self, engines: Vec<EngineName>) -> Settings {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            source: Source {
                dir: self
                    .data
                    .clone()
                    .unwrap_or_else(|| cache_root().join("sql")),
                generator: self.generator.clone().unwrap_or(self.python.clone()),
                clickbench: self.clickbench.clone(),
            },
            engines,
            python: self.python.clone(),
            // No machine has more CPUs than that.
            threads: self.threads.unwrap_or(cpus as u32),
            memory_bytes: (self.memory as usize) << 20,
            repeat: self.repeat,
            timeout: Duration::from_secs_f64(self.timeout),
        }
    }
}

/// This machine.
struct Native(Bench);

impl Executor<Cell, Report<SqlRow>> for Native {
    fn run(&self, cell: &Cell, line: &mut dyn FnMut(&str)) -> Result<Report<SqlRow>, String> {
        let mut report = Report::new(NAME, Environment::probe("native"));
        report.rows = self.0.run(cell, line).map_err(|error| error.to_string())?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    fn cells(options: &[&str]) -> Vec<Cell> {
        parse::<SqlArgs>(options).unwrap().cells()
    }

    #[test]
    fn the_default_is_tpch_and_numbers_choose() {
        let all = cells(&[]);
        assert_eq!((all.len(), all[0].title().as_str()), (22, "tpch Q1"));
        let some = cells(&[
            "--suites",
            "tpch,clickbench",
            "--queries",
            "22,43",
            "--sf",
            "0.1",
        ]);
        let titles = Vec::from_iter(some.iter().map(Cell::title));
        assert_eq!(titles, ["tpch Q22", "clickbench Q22", "clickbench Q43"]);
        assert_eq!([some[0].scale, some[2].scale], [0.1, 1500.0]);
        assert!(cells(&["--queries", "23"]).is_empty());
    }

    #[test]
    fn without_duckdb_the_others_are_measured_unless_it_was_asked_for() {
        use EngineName::{DataFusion, DuckDb, Giveway};
        let args = |options: &[&str]| parse::<SqlArgs>(options).unwrap();
        let chosen = |options: &[&str], there| args(options).engines(there);
        assert_eq!(chosen(&[], true).unwrap(), EngineName::ALL);
        assert_eq!(chosen(&[], false).unwrap(), [Giveway, DataFusion]);
        assert_eq!(chosen(&["--engines", "giveway"], false).unwrap(), [Giveway]);
        assert_eq!(chosen(&["--engines", "duckdb"], true).unwrap(), [DuckDb]);
        let error = chosen(&["--engines", "giveway,duckdb"], false).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("python3") && error.contains("pip install"),
            "{error}"
        );
        assert!(has_duckdb(Path::new("true")));
        assert!(!has_duckdb(Path::new("false")) && !has_duckdb(Path::new("/nonexistent")));
    }
}
