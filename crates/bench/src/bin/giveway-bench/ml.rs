//! `giveway bench ml`: from options to a report.

use clap::Args;
use giveway_bench::Scheduler;
use giveway_bench::ml::{MlRow, SCHEDULERS, cells};

use super::cells::CellsArgs;
use giveway_command::Failure;

/// Measure TPC-C beside machine learning inside the server
///
/// The mixed workload with the training of a logistic regression in Q17's place:
/// scikit-learn under PL/Python, alone, with the lowest and with the same priority.
/// See docs/bench-ufs.md.
#[derive(Args, Debug)]
pub(crate) struct MlArgs {
    /// What to compare: eevdf, idle, fifo, rr, ufs, or any scx_NAME
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
