//! `giveway bench ml`: from options to a report.

use crate::experiments::ml::{MlRow, SCHEDULERS, cells};
use crate::harness::scheduler::Scheduler;
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::CellsArgs;
use crate::runner::experiment::{Experiment, UFS};
use clap::Args;
use giveway_command::Failure;

/// Measure TPC-C beside machine learning inside the server
///
/// The mixed workload with the training of a logistic regression in Q17's place:
/// scikit-learn under PL/Python, alone, with the lowest and with the same priority.
/// See docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct MlArgs {
    /// What to compare: eevdf, idle, cpu-idle (EEVDF, and the background's cgroup
    /// has cpu.idle 1), fifo, rr, rr-bare (RR without the kernel's fair server),
    /// ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    #[command(flatten)]
    cells: CellsArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn ml(args: &MlArgs) -> Result<u8, Failure> {
    let cells = cells(&args.cells.frame(), &args.schedulers);
    args.cells.measure::<MlRow>(&cells)
}

/// The experiment, as the registry knows it.
pub(crate) struct Ml;

impl Experiment for Ml {
    const NAME: &'static str = "ml";
    const SUMMARY: &'static str = "TPC-C beside the training of a logistic regression inside the server, \
        under the mixes of mixed";
    const SECTION: &'static str = "UFS (paper 000), Section 6.8, Figure 10";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--cpus 2 --seconds 2 --warmup 0.5";
    type Args = MlArgs;
    type Row = super::MlRow;

    fn run(args: &MlArgs) -> Result<u8, Failure> {
        ml(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}
