//! `giveway bench disk`: from options to a report.

use crate::cell::setup::Disk;
use crate::experiments::disk::{DISKS, DiskRow, cells};
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::{FrameArgs, in_lab};
use crate::runner::clock::ClockArgs;
use crate::runner::experiment::{Experiment, UFS_AND_HINTS};
use crate::runner::results::ResultArgs;
use clap::Args;
use giveway_command::Failure;

/// Measure TPC-C with fsync beside a background scan at one disk
///
/// By SQL roles under UFS: TPC-C alone, beside a sequential scan with parallel workers,
/// and beside it with giveway.io_priority on. Runs in the lab, whose kernel has a disk
/// with a queue, on a server that 'make servers' has built. See docs/measure/mixed.md.
#[derive(Args, Debug)]
pub(crate) struct DiskArgs {
    /// Schedulers of the disk: none, mq-deadline, bfq
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = DISKS)]
    disks: Vec<Disk>,
    /// Time that the disk takes for a request, in microseconds
    #[arg(long, default_value_t = 1000, value_name = "US",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    request_us: u32,
    #[command(flatten)]
    frame: FrameArgs<2>,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn disk(args: &DiskArgs) -> Result<u8, Failure> {
    if args.disks.contains(&Disk::Memory) {
        return Err(Failure::usage("memory has no queue")
            .with_remedy("--disks none,mq-deadline,bfq, or some of them"));
    }
    let cells = cells(&args.frame.frame(), &args.disks, args.request_us);
    in_lab::<DiskRow>(&cells, &args.results, args.clock, "its disk is the lab's")
}

/// The experiment, as the registry knows it.
pub(crate) struct DiskExperiment;

impl Experiment for DiskExperiment {
    const NAME: &'static str = "disk";
    const SUMMARY: &'static str = "TPC-C with fsync beside a background scan at one disk, by SQL \
        roles under UFS, without and with I/O priority";
    const SECTION: &'static str = "none of the papers; the disk is where work queues next";
    const SUBJECT: &'static [&'static str] = UFS_AND_HINTS;
    const QUICK: &'static str = "--disks mq-deadline --seconds 1 --warmup 0.5";
    type Args = DiskArgs;
    type Row = DiskRow;

    fn run(args: &DiskArgs) -> Result<u8, Failure> {
        disk(args)
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
    fn memory_is_refused_with_the_remedy() {
        let args: DiskArgs = parse(&["--disks=memory"]).unwrap();
        let error = disk(&args).unwrap_err().to_string();
        assert!(error.contains("--disks none"), "{error}");
    }
}
