//! `giveway bench weights`: from options to a report.

use crate::experiments::weights::{SCHEDULERS, WeightsRow, cells};
use crate::harness::scheduler::Scheduler;
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::CellsArgs;
use crate::runner::experiment::{Experiment, UFS};
use clap::Args;
use giveway_command::Failure;

/// Measure whether throughput is by weight in both tiers
///
/// TPC-C in the time-sensitive tier and TPC-H Q17 in the background, each in two
/// classes whose weights are as two to three, all on the same CPUs. See
/// docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct WeightsArgs {
    /// What to compare: eevdf, idle, fifo, rr, rr-bare (RR without the
    /// kernel's fair server), ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    /// Time that each of TPC-C's round trips spends in a network, in
    /// microseconds: the paper's clients are on another machine
    #[arg(long, default_value_t = 0, value_name = "US",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    network_us: u32,
    #[command(flatten)]
    cells: CellsArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn weights(args: &WeightsArgs) -> Result<u8, Failure> {
    let cells = cells(&args.cells.frame(), &args.schedulers, args.network_us);
    args.cells.measure::<WeightsRow>(&cells)
}

/// The experiment, as the registry knows it.
pub(crate) struct Weights;

impl Experiment for Weights {
    const NAME: &'static str = "weights";
    const SUMMARY: &'static str = "TPC-C and Q17, each in two classes with weights 2 and 3: whether \
        throughput is by weight in both tiers, per scheduler";
    const SECTION: &'static str = "UFS (paper 000), Section 6.4, Figure 8";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--cpus 2 --seconds 2 --warmup 0.5";
    type Args = WeightsArgs;
    type Row = super::WeightsRow;

    fn run(args: &WeightsArgs) -> Result<u8, Failure> {
        weights(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}
