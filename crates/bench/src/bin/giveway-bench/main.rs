//! `giveway-bench`, or `giveway bench`: measures workloads under several schedulers,
//! locks or policies; and `giveway lab`, the virtual machine that it measures in.
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
mod lab;
mod locks;
mod meta;
mod mixed;
mod ml;
mod native;
mod oversubscription;
mod place;
mod placement;
mod pool;
mod preempt;
mod progress;
mod report;
mod rocksdb;
mod rows;
mod steps;
mod tasks;
mod wakeup;
mod weights;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use giveway_bench::experiments;
use giveway_command::generate::{CompletionsArgs, ManArgs};
use giveway_command::memory::{self, MiMalloc};
use giveway_preempt::RegionAlloc;

use giveway_command::Failure;

/// `preempt` preempts transactions that allocate. One that is left inside the
/// allocator would hold its locks while another allocates on the same thread, so an
/// allocation is a region in which nobody is preempted. On threads that are no workers
/// this is an addition to a thread-local and its undoing.
#[global_allocator]
static ALLOCATOR: RegionAlloc<MiMalloc> = RegionAlloc(MiMalloc);

/// The commit this program was built from; results carry it.
pub(crate) const COMMIT: &str = env!("GIVEWAY_COMMIT");

/// Measure workloads under several schedulers, locks or policies
#[derive(Parser, Debug)]
#[command(
    name = "giveway-bench",
    bin_name = "giveway bench",
    version,
    max_term_width = 80,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct Arguments {
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
    Report(report::ReportArgs),
    Lab(lab::LabArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
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

fn main() -> ExitCode {
    memory::keep_what_is_freed();
    match Arguments::try_parse() {
        Ok(args) => giveway_command::end(bench(args)),
        Err(error) => giveway_command::explain(&error),
    }
}

/// Runs the experiment; answers with the exit status.
fn bench(args: Arguments) -> Result<u8, Failure> {
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
        Some(Experiment::Report(args)) => report::report(&args).map(|()| 0),
        Some(Experiment::Lab(args)) => lab::lab(args),
        Some(Experiment::Completions(args)) => args
            .print(Arguments::command(), "giveway-bench")
            .map(|()| 0),
        Some(Experiment::Man(args)) => args.write(Arguments::command(), &[]).map(|()| 0),
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
