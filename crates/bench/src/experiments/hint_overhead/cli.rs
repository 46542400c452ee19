//! `giveway bench hint-overhead`: from options to a report.

use crate::cell::setup::Hints;
use crate::experiments::hint_overhead::{HintPlan, HintRow};
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::in_lab;
use crate::runner::clock::ClockArgs;
use crate::runner::experiment::{Experiment, UFS_AND_HINTS};
use crate::runner::results::{ResultArgs, positive};
use crate::workload::background::Job;
use clap::Args;
use giveway_command::Failure;

/// Measure what hints about locks cost, and what they are good for
///
/// TPC-C beside Q17 or a maintenance job by SQL roles, MIN:MAX under UFS: without hints, with hints
/// that are only counted, and with boosts; in the lab, on servers that 'make
/// servers' has built.
#[derive(Args, Debug)]
pub(crate) struct HintArgs {
    /// Which hints: stock (UFS reads an unchanged server's memory) and patched
    /// (the server publishes them)
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = [Hints::Stock, Hints::Patched])]
    hints: Vec<Hints>,
    /// What runs in the background: q17, vacuum, create-index, pg_dump,
    /// open-transaction, scan or logistic-regression
    #[arg(long, value_name = "JOB", default_value_t = Job::Q17)]
    background: Job,
    /// CPUs of the server; clients get half as many more, at least two
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    cpus: u32,
    /// Length of the measured window
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS", value_parser = positive)]
    seconds: f64,
    /// Measure every cell this often, each time with another seed
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Seed of the first repeat
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Leave out the runs in which the kernel times UFS's callbacks
    #[arg(long)]
    no_callbacks: bool,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl HintArgs {
    fn plan(&self) -> HintPlan {
        HintPlan {
            hints: self.hints.clone(),
            job: self.background,
            cpus: self.cpus,
            warmup_s: 1.0,
            seconds: self.seconds,
            repeat: self.repeat,
            seed: self.seed,
            time_callbacks: !self.no_callbacks,
        }
    }
}

/// Measures and reports; answers with the exit status.
pub(crate) fn hints(args: &HintArgs) -> Result<u8, Failure> {
    if args.hints.contains(&Hints::Off) {
        return Err(
            Failure::usage("'off' is what hints are compared with, always")
                .with_remedy("--hints stock, --hints patched, or both"),
        );
    }
    let reason = "its servers are made for it";
    in_lab::<HintRow>(&args.plan().cells(), &args.results, args.clock, reason)
}

/// The experiment, as the registry knows it.
pub(crate) struct HintOverhead;

impl Experiment for HintOverhead {
    const NAME: &'static str = "hint-overhead";
    const SUMMARY: &'static str = "TPC-C beside Q17 by SQL roles, MIN:MAX under UFS, with hints about locks \
        off and on, stock and patched: what they cost, what they are good for";
    const SECTION: &'static str = "UFS (paper 000), Sections 6.1, 6.7";
    const SUBJECT: &'static [&'static str] = UFS_AND_HINTS;
    const QUICK: &'static str = "--cpus 2 --seconds 2 --repeat=1 --no-callbacks";
    type Args = HintArgs;
    type Row = super::HintRow;

    fn run(args: &HintArgs) -> Result<u8, Failure> {
        hints(args)
    }

    #[cfg(test)]
    fn sample() -> Report<Self::Row> {
        super::report::samples::report()
    }
}
