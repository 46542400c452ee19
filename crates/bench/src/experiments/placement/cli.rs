//! `giveway bench placement`: from options to a report.

use crate::experiments::placement::{PlacementRow, SCHEDULERS, cells};
use crate::harness::scheduler::Scheduler;
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::CellsArgs;
use crate::runner::experiment::{Experiment, UFS};
use clap::Args;
use giveway_command::Failure;

/// Measure on which CPUs bursty work runs
///
/// TPC-C with the highest priority beside TPC-H Q17 with the lowest: how much of
/// TPC-C's time each CPU has, from the kernel's context switches. See
/// docs/measure/ufs.md.
#[derive(Args, Debug)]
pub(crate) struct PlacementArgs {
    /// What to compare: eevdf, idle, cpu-idle (EEVDF, and the background's cgroup
    /// has cpu.idle 1), fifo, rr, rr-bare (RR without the kernel's fair server),
    /// ufs, or any scx_NAME
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

/// The experiment, as the registry knows it.
pub(crate) struct Placement;

impl Experiment for Placement {
    const NAME: &'static str = "placement";
    const SUMMARY: &'static str = "TPC-C beside Q17, MIN:MAX: how much of TPC-C's time each CPU has, from \
        traced context switches, per scheduler";
    const SECTION: &'static str = "UFS (paper 000), Section 3, Figure 2";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--cpus 2 --seconds 2 --warmup 0.5";
    type Args = PlacementArgs;
    type Row = super::PlacementRow;

    fn run(args: &PlacementArgs) -> Result<u8, Failure> {
        placement(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::experiment::parse;

    #[test]
    fn options_become_the_frame_of_all_cells() {
        let options = "--cpus 2 --seconds 3 --repeat 2 --seed 5";
        let args: PlacementArgs = parse(&Vec::from_iter(options.split(' '))).unwrap();
        let frame = args.cells.frame();
        assert_eq!((frame.cpus, frame.seconds, frame.warmup_s), (2, 3.0, 1.0));
        assert_eq!((frame.repeat, frame.seed), (2, 5));
        assert_eq!(cells(&frame, &args.schedulers).len(), 2 * SCHEDULERS.len());
    }
}
