//! `giveway bench oversubscription`: from options to a report.

use clap::Args;
use giveway_bench::Scheduler;
use giveway_bench::oversubscription::{CLIENTS, OversubscriptionRow, SCHEDULERS, cells};

use super::cells::CellsArgs;
use giveway_command::Failure;

/// Measure more urgent clients than there are CPUs
///
/// TPC-C with the highest priority and one, two and three clients for each CPU,
/// beside TPC-H Q17 with the lowest and one. See docs/bench-ufs.md.
#[derive(Args, Debug)]
pub(crate) struct OversubscriptionArgs {
    /// What to compare: eevdf, idle, fifo, rr, ufs, or any scx_NAME
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
