//! `giveway bench`: measures workloads under several schedulers, locks or
//! policies.
//!
//! ```text
//!   options ─► plan of cells ─► pool ─► place ─► rows ─► report
//!   (mixed,    (giveway-bench)   │       ├ native: this machine, one at a time
//!    locks, …)                    │       └ lab: a virtual machine per cell, as
//!                                │              many at once as host CPUs
//!                                └► observer: progress on the terminal
//! ```
//!
//! Only `progress`, `all` and this file print. A cell that fails is reported with the
//! end of its console, the others go on, and the command ends with status 1;
//! it is not tried again, since a measurement that works every other time is
//! itself a finding.

mod all;
mod cells;
mod guest;
mod hints;
mod inversion;
mod keep;
mod locks;
mod meta;
mod mixed;
mod ml;
mod oversubscription;
mod place;
mod placement;
mod pool;
mod preempt;
mod progress;
mod rocksdb;
mod rows;
mod tasks;
mod wakeup;
mod weights;

use std::io::Write;

use clap::{Args, Subcommand};
use giveway_bench::experiments;

use crate::error::Failure;

pub(crate) use place::image_layer;

/// The commit this program was built from; results carry it.
pub(crate) const COMMIT: &str = env!("GIVEWAY_COMMIT");

/// Measure workloads under several schedulers, locks or policies
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArgs {
    /// Name all experiments
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    experiment: Option<Experiment>,
}

#[derive(Subcommand, Debug)]
enum Experiment {
    Mixed(mixed::MixedArgs),
    Placement(placement::PlacementArgs),
    Weights(weights::WeightsArgs),
    Oversubscription(oversubscription::OversubscriptionArgs),
    Wakeup(wakeup::WakeupArgs),
    Ml(ml::MlArgs),
    HintOverhead(hints::HintArgs),
    Locks(locks::LocksArgs),
    Preempt(preempt::PreemptArgs),
    Rocksdb(rocksdb::RocksArgs),
    Inversion(inversion::InversionArgs),
    Tasks(tasks::TasksArgs),
    Meta(meta::MetaArgs),
    All(all::AllArgs),
    /// Make the data that experiments copy
    #[command(hide = true)]
    Prepare(guest::PrepareArgs),
    /// Measure one cell on this machine
    #[command(hide = true)]
    Cell(guest::CellArgs),
    /// Play the cells of one treatment on this machine
    #[command(hide = true)]
    InversionCell(guest::CellArgs),
    /// Run the message and worker threads on this machine
    #[command(hide = true)]
    WakeupCell(guest::CellArgs),
    /// Run one part of the metascheduler's experiment on this machine
    #[command(hide = true)]
    MetaCell(guest::CellArgs),
    /// Make the applications of the metascheduler's experiment
    #[command(hide = true)]
    MetaPrepare(meta::PrepareArgs),
}

/// Runs the experiment; answers with the exit status.
pub(crate) fn bench(args: BenchArgs) -> Result<u8, Failure> {
    match args.experiment {
        Some(Experiment::Mixed(args)) => mixed::mixed(&args),
        Some(Experiment::Placement(args)) => placement::placement(&args),
        Some(Experiment::Weights(args)) => weights::weights(&args),
        Some(Experiment::Oversubscription(args)) => oversubscription::oversubscription(&args),
        Some(Experiment::Wakeup(args)) => wakeup::wakeup(&args),
        Some(Experiment::Ml(args)) => ml::ml(&args),
        Some(Experiment::HintOverhead(args)) => hints::hints(&args),
        Some(Experiment::Locks(args)) => locks::locks(&args),
        Some(Experiment::Preempt(args)) => preempt::preempt(&args),
        Some(Experiment::Rocksdb(args)) => rocksdb::rocksdb(&args),
        Some(Experiment::Inversion(args)) => inversion::inversion(&args),
        Some(Experiment::Tasks(args)) => tasks::tasks(&args),
        Some(Experiment::Meta(args)) => meta::meta(&args),
        Some(Experiment::All(args)) => all::all(&args),
        Some(Experiment::WakeupCell(args)) => wakeup::cell(&args).map(|()| 0),
        Some(Experiment::MetaCell(args)) => meta::cell(&args).map(|()| 0),
        Some(Experiment::MetaPrepare(args)) => meta::prepare(&args).map(|()| 0),
        Some(Experiment::Prepare(args)) => guest::prepare(&args).map(|()| 0),
        Some(Experiment::Cell(args)) => guest::cell(&args).map(|()| 0),
        Some(Experiment::InversionCell(args)) => inversion::cell(&args).map(|()| 0),
        None => list().map(|()| 0),
    }
}

fn list() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for experiment in experiments() {
        writeln!(out, "{:<16} {}", experiment.name, experiment.summary)?;
        writeln!(out, "{:<16} {}", "", experiment.section)?;
    }
    Ok(out.flush()?)
}
