//! Preemption under one harness: what urgent transactions gain, and what it costs
//! the others.
//!
//! ```text
//!   PreemptPlan ─► experiments ─► cases ─┬► mixed: load ─► driver ─► pool or threads ─► check
//!                                        ├► overhead: a worker and a thread that interrupts it
//!                                        ├► engines: TPC-C, engines in turn
//!                                        └► micro: operations in a loop
//!                                                   └─────────► PreemptRow
//! ```
//!
//! The experiments are those of PreemptDB (paper 001, Section 6);
//! [`PreemptExperiment`] lists them. Every run of the mix has a database of its
//! own, loaded before and checked after it (clauses 3.3.2.1 to 3.3.2.12 of
//! TPC-C): a run that broke one is refused.
//!
//! | module | question |
//! | --- | --- |
//! | `experiment`, `plan` | what is run? |
//! | `service` | how long do requests take alone, and how often should they come therefore? |
//! | `run` | measuring |
//! | `uintr` | the module of user interrupts, which guests load |
//! | `row` | what is kept |
//!
//! Without the feature `engines` there is nothing to measure; plans, rows and reports are
//! there all the same.

#[cfg(feature = "engines")]
mod cell;
#[cfg(feature = "engines")]
mod cli;
mod experiment;
#[cfg(feature = "engines")]
mod guests;
#[cfg(feature = "engines")]
mod plan;
pub(crate) mod report;
mod row;
#[cfg(feature = "engines")]
mod run;
mod service;
#[cfg(feature = "engines")]
mod uintr;

#[cfg(test)]
use crate::report::Report;
use crate::runner::experiment::Experiment;
use giveway_command::Failure;

pub(crate) use experiment::PreemptExperiment;
#[cfg(feature = "engines")]
pub(crate) use plan::PreemptPlan;
pub(crate) use row::{
    Delivery as DeliveryRow, Latency, Measured, Mixed, Operation, Overhead, PreemptRow, Stalls,
    Throughput,
};
pub(crate) use service::Service;

/// The names of operations in rows.
pub(crate) const SWITCH: &str = "switch";
pub(crate) const REGION: &str = "region";
pub(crate) const POLL_POINT: &str = "poll-point";
pub(crate) const POLL_RECORD: &str = "poll-record";

/// The experiment, as the registry knows it.
pub(crate) struct Preempt;

impl Experiment for Preempt {
    const NAME: &'static str = "preempt";
    const SUMMARY: &'static str = "short urgent transactions beside long ones in one engine, under waiting, \
        cooperative and preemptive policies and on OS threads";
    const SECTION: &'static str = "PreemptDB (paper 001), Section 6";
    const SUBJECT: &'static [&'static str] = &["crates/preempt/src", "crates/txn/src"];
    const QUICK: &'static str = "--quick";
    type Args = cli::PreemptArgs;
    type Row = PreemptRow;

    fn run(args: &cli::PreemptArgs) -> Result<u8, Failure> {
        cli::preempt(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        report::samples::report()
    }
}

/// A program that was built without the engines has nothing to measure.
#[cfg(not(feature = "engines"))]
mod cli {
    use giveway_command::Failure;

    pub(super) use crate::runner::experiment::AnyOptions as PreemptArgs;

    pub(super) fn preempt(_: &PreemptArgs) -> Result<u8, Failure> {
        Err(Failure::new(
            "this giveway-bench was built without the transaction engines, which 'preempt' measures",
        )
        .with_remedy("make build, or cargo build --release -p giveway-bench"))
    }
}
