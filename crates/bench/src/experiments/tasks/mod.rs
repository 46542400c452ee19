//! Query scheduling on a real engine: TPC-H in short and long queries that come while
//! others run.
//!
//! ```text
//!   TasksPlan ─► cells ─► TasksBench ─┬► mix, shift, load: trace ─► drive or duckdb
//!                (arm, load, repeat)  ├► answers, single, overrun, cost: overhead
//!                                     └─────────► TasksRow
//! ```
//!
//! The experiments are those of "Self-Tuning Query Scheduling for Analytical Workloads"
//! (paper 003, Section 5); [`TasksExperiment`] lists them. A cell is one arm at one load
//! in one repeat; the cells of a repeat have the same traces. What cells share (data,
//! what queries take alone) is made once, when the first cell wants it.
//!
//! | module | question |
//! | --- | --- |
//! | `experiment`, `arm` | what is asked, and who is compared? |
//! | `kind`, `trace` | which queries are there, and which comes when? |
//! | `bench`, `data`, `host`, `duckdb` | on what, and by whom is it run? |
//! | `alone`, `drive`, `usage` | what does it take alone, and when others are there? |
//! | `arrivals`, `answers`, `overhead` | the experiments |
//! | `metrics`, `row` | what is kept, and what does it come to? |
//!
//! Without the feature `sql` there is no engine to measure; plans, rows and reports are
//! there all the same.

#[cfg(feature = "sql")]
mod arm;
#[cfg(feature = "sql")]
mod cli;
mod experiment;
mod kind;
pub(crate) mod metrics;
#[cfg(feature = "sql")]
mod plan;
pub(crate) mod report;
mod row;
#[cfg(feature = "sql")]
mod run;

#[cfg(test)]
use crate::report::Report;
use crate::runner::experiment::Experiment;
use giveway_command::Failure;

#[cfg(feature = "sql")]
pub(crate) use arm::Arm;
pub(crate) use experiment::TasksExperiment;
pub(crate) use row::{Arrived, Cost, Measured, Pair, Sample, TasksRow};
pub(crate) use row::{TURN_CLASSES, within};

#[cfg(feature = "sql")]
pub(crate) use plan::{TasksCell, TasksPlan};
#[cfg(feature = "sql")]
pub(crate) use run::TasksBench;

/// The experiment, as the registry knows it.
pub(crate) struct Tasks;

impl Experiment for Tasks {
    const NAME: &'static str = "tasks";
    const SUMMARY: &'static str = "TPC-H queries on small and large data come while others run: who is \
        slowed down how much, under our scheduler's policies, stock DataFusion \
        and DuckDB";
    const SECTION: &'static str = "Self-tuning scheduling (paper 003), Section 5";
    const SUBJECT: &'static [&'static str] = &["crates/tasks/src", "crates/sql/src"];
    const QUICK: &'static str = "--quick";
    type Args = cli::TasksArgs;
    type Row = TasksRow;

    fn run(args: &cli::TasksArgs) -> Result<u8, Failure> {
        cli::tasks(args)
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

    pub(super) use crate::runner::experiment::AnyOptions as TasksArgs;

    pub(super) fn tasks(_: &TasksArgs) -> Result<u8, Failure> {
        Err(Failure::new(
            "this giveway-bench was built without the SQL engine, which 'tasks' measures",
        )
        .with_remedy("make build, or cargo build --release -p giveway-bench"))
    }
}
