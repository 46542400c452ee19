//! `giveway bench oversubscription`: from options to a report.

use crate::experiments::oversubscription::{CLIENTS, OversubscriptionRow, SCHEDULERS, cells};
use crate::harness::scheduler::Scheduler;
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::CellsArgs;
use crate::runner::experiment::{Experiment, UFS};
use clap::Args;
use giveway_command::Failure;

/// Measure more urgent clients than there are CPUs
///
/// TPC-C with the highest priority and one, two and three clients for each CPU,
/// beside TPC-H Q17 with the lowest and one. See docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct OversubscriptionArgs {
    /// What to compare: eevdf, idle, cpu-idle (EEVDF, and the background's cgroup
    /// has cpu.idle 1), fifo, rr, rr-bare (RR without the kernel's fair server),
    /// ufs, ufs-floor (UFS with a floor as large as the fair server), or any
    /// scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    /// Time-sensitive clients for each CPU of the server
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = CLIENTS,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    clients: Vec<u32>,
    #[command(flatten)]
    cells: CellsArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn oversubscription(args: &OversubscriptionArgs) -> Result<u8, Failure> {
    let cells = cells(&args.cells.frame(), &args.schedulers, &args.clients);
    args.cells.measure::<OversubscriptionRow>(&cells)
}

/// The experiment, as the registry knows it.
pub(crate) struct Oversubscription;

impl Experiment for Oversubscription {
    const NAME: &'static str = "oversubscription";
    const SUMMARY: &'static str = "TPC-C with one, two and three clients for each CPU beside Q17, MIN:MAX: \
        throughput per scheduler";
    const SECTION: &'static str = "UFS (paper 000), Section 6.3, Figure 7";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--cpus 2 --seconds 2 --warmup 0.5";
    type Args = OversubscriptionArgs;
    type Row = super::OversubscriptionRow;

    fn run(args: &OversubscriptionArgs) -> Result<u8, Failure> {
        oversubscription(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}
