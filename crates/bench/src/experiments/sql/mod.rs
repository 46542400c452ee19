//! Throughput of the SQL engine: one query at a time, beside stock DataFusion and DuckDB.
//!
//! ```text
//!   SqlPlan ─► Suite ─► data, queries        (data; prepare.py where DuckDB makes them)
//!                │
//!                └─► cell: a query ─► Engines ─┬► giveway     this program, `sql-engine`
//!                                    (run)     ├► datafusion  this program, `sql-engine`
//!                                              └► duckdb      Python, engine.py
//!                                                    │ a line for each query and answer
//!                                     SqlRow ◄───────┘
//! ```
//!
//! Each engine is a process of its own on the same Parquet files, with as many threads.
//! All speak one protocol ([`protocol`]). A query is asked once that does not count, then
//! `--repeat` times of each engine in turns, and another engine is first each time. The
//! time is the engine's own, from the text of the query to the last row.
//!
//! The first answers are compared ([`compare`]): a fast wrong answer is worth nothing.
//!
//! | module | question |
//! | --- | --- |
//! | `suite`, `data` | which queries on which data? |
//! | `protocol`, `client`, `serve` | how is an engine asked, and how does ours answer? |
//! | `run` | in which order? |
//! | `compare`, `row`, `report` | what is kept, and what does it come to? |
//!
//! Known weakness: the machine's cache of files is warm and shared, so nothing is said of
//! reading from a disk.

#[cfg(feature = "sql")]
mod cli;
#[cfg(feature = "sql")]
mod client;
#[cfg(feature = "sql")]
mod compare;
#[cfg(feature = "sql")]
mod data;
#[cfg(feature = "sql")]
mod protocol;
mod report;
mod row;
#[cfg(feature = "sql")]
mod run;
#[cfg(feature = "sql")]
mod serve;
mod suite;

use giveway_command::Failure;

#[cfg(test)]
use crate::report::Report;
use crate::runner::experiment::{Experiment, GuestCommand};

use row::SqlRow;

/// The experiment, as the registry knows it.
pub(crate) struct Sql;

impl Experiment for Sql {
    const NAME: &'static str = "sql";
    const SUMMARY: &'static str = "queries of TPC-H, TPC-DS and ClickBench one at a time: how fast is our \
        engine beside stock DataFusion and DuckDB";
    const SECTION: &'static str = "Self-tuning scheduling (paper 003), Section 5.1, which measures \
        one engine against others";
    const SUBJECT: &'static [&'static str] = &["crates/tasks/src", "crates/sql/src"];
    const QUICK: &'static str = "--suites tpch --sf 0.01 --repeat 1";
    type Args = cli::SqlArgs;
    type Row = SqlRow;

    fn run(args: &cli::SqlArgs) -> Result<u8, Failure> {
        cli::sql(args)
    }

    #[cfg(feature = "sql")]
    fn guest_commands() -> Vec<GuestCommand> {
        vec![GuestCommand::new(
            "sql-engine",
            "Answer queries of the experiment 'sql', a line each",
            serve::serve,
        )]
    }

    #[cfg(not(feature = "sql"))]
    fn guest_commands() -> Vec<GuestCommand> {
        Vec::new()
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        report::samples::report()
    }
}

/// A program that was built without the engine has nothing to measure.
#[cfg(not(feature = "sql"))]
mod cli {
    use giveway_command::Failure;

    pub(super) use crate::runner::experiment::AnyOptions as SqlArgs;

    pub(super) fn sql(_: &SqlArgs) -> Result<u8, Failure> {
        Err(Failure::new(
            "this giveway-bench was built without the SQL engine, which 'sql' measures",
        )
        .with_remedy("make build, or cargo build --release -p giveway-bench"))
    }
}
