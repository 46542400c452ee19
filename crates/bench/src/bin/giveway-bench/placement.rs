//! `giveway bench placement`: from options to a report.

use clap::Args;
use giveway_bench::Scheduler;
use giveway_bench::placement::{PlacementRow, SCHEDULERS, cells};

use super::cells::CellsArgs;
use giveway_command::Failure;

/// Measure on which CPUs bursty work runs
///
/// TPC-C with the highest priority beside TPC-H Q17 with the lowest: how much of
/// TPC-C's time each CPU has, from the kernel's context switches. See
/// docs/bench-ufs.md.
#[derive(Args, Debug)]
pub(crate) struct PlacementArgs {
    /// What to compare: eevdf, idle, fifo, rr, ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = SCHEDULERS)]
    schedulers: Vec<Scheduler>,
    #[command(flatten)]
    cells: CellsArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn placement(args: &PlacementArgs) -> Result<u8, Failure> {
    let cells = cells(&args.cells.frame(), &args.schedulers);
    args.cells.measure::<PlacementRow>(&cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use clap::Parser;

    #[test]
    fn options_become_the_frame_of_all_cells() {
        let line = "giveway-bench placement --cpus 2 --seconds 3 --repeat 2 --seed 5";
        let bench = Arguments::try_parse_from(line.split(' ')).unwrap();
        let Some(crate::Experiment::Placement(args)) = bench.experiment else {
            panic!("not parsed as placement");
        };
        let frame = args.cells.frame();
        assert_eq!((frame.cpus, frame.seconds, frame.warmup_s), (2, 3.0, 1.0));
        assert_eq!((frame.repeat, frame.seed), (2, 5));
        assert_eq!(cells(&frame, &args.schedulers).len(), 2 * SCHEDULERS.len());
    }
}
