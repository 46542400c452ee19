//! `giveway bench mixed`: from options to a report.

use crate::cell::config::Mix;
use crate::cell::row::Row;
use crate::cell::setup::{By, Hints};
use crate::experiments::mixed::plan::Plan;
use crate::harness::scheduler::Scheduler;
#[cfg(test)]
use crate::report::Report;
use crate::runner::cells::WhereArgs;
use crate::runner::experiment::{Experiment, GuestCommand, UFS};
use crate::runner::guest::CellArgs;
use crate::runner::results::{ResultArgs, positive};
use crate::workload::background::Job;
use clap::Args;
use giveway_command::Failure;

/// Measure TPC-C beside TPC-H Q17 on the same CPUs
///
/// SOLO runs TPC-C alone; MIN:MAX gives Q17 the lowest and TPC-C the highest
/// priority; 50:50 gives both the same, high one; SOLO-BG runs Q17 alone.
/// Measures on this machine itself if it can ('giveway doctor' tells), else in
/// the lab, where every cell has a virtual machine of its own.
#[derive(Args, Debug)]
pub(crate) struct MixedArgs {
    /// What to compare: eevdf, idle, cpu-idle (EEVDF, and the background's cgroup
    /// has cpu.idle 1), fifo, rr, rr-bare (RR without the kernel's fair server),
    /// ufs, ufs-floor (UFS with a floor as large as the fair server), or any
    /// scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = Scheduler::PAPER)]
    schedulers: Vec<Scheduler>,
    /// Which mixes: SOLO, SOLO-BG, MIN:MAX, 50:50
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = Mix::ALL)]
    mixes: Vec<Mix>,
    /// CPUs of the server, in the lab 43 at most; clients get half as many more,
    /// at least two
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Time that each of TPC-C's round trips spends in a network, in
    /// microseconds: the paper's clients are on another machine
    #[arg(long, default_value_t = 0, value_name = "US",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    network_us: u32,
    /// Who says what is urgent: cgroups and scheduling classes, or SQL roles
    /// with settings of the extension, under UFS only; both to compare them
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = By::Cgroups.name())]
    by: Vec<By>,
    /// What UFS is told of locks, by roles: off, stock (it reads them from an
    /// unchanged server) or patched
    #[arg(long, value_name = "KIND", default_value_t = Hints::Off)]
    hints: Hints,
    /// What runs in the background: q17, vacuum, create-index, open-transaction,
    /// scan, logistic-regression, or, by roles, pg_dump
    #[arg(long, value_name = "JOB", default_value_t = Job::Q17)]
    background: Job,
    /// Length of the measured window [default: 4, with --quick 2]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    /// Time before the window [default: 1, with --quick 0.5]
    #[arg(long, value_name = "SECONDS", value_parser = not_negative)]
    warmup: Option<f64>,
    /// Measure every cell this often, each time with another seed [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Short windows, for a first look
    #[arg(long)]
    quick: bool,
    /// Seed of the first repeat
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    place: WhereArgs,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn mixed(args: &MixedArgs) -> Result<u8, Failure> {
    let plan = args.plan();
    let cells = plan.cells();
    if plan.hints != Hints::Off && !plan.by.contains(&By::Roles) {
        return Err(
            Failure::usage("hints take the extension, and cgroups go without")
                .with_remedy("add --by roles, or --by cgroups,roles to compare"),
        );
    }
    if cells.is_empty() {
        return Err(
            Failure::usage("these schedulers and mixes leave nothing to measure").with_remedy(
                "idle is measured in MIN:MAX only, roles under ufs only: add another \
                     scheduler or mix",
            ),
        );
    }
    args.place.measure::<Row>(&cells, &args.results)
}

impl MixedArgs {
    fn plan(&self) -> Plan {
        let plan = Plan {
            mixes: self.mixes.clone(),
            seed: self.seed,
            network_us: self.network_us,
            by: self.by.clone(),
            hints: self.hints,
            job: self.background,
            ..Plan::new(self.schedulers.clone(), self.cpus)
        };
        let mut plan = match self.quick {
            true => plan.quick(),
            false => plan,
        };
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        plan.warmup_s = self.warmup.unwrap_or(plan.warmup_s);
        plan.repeat = self.repeat.unwrap_or(plan.repeat);
        plan
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("write a number of seconds, 0 or more".to_owned()),
    }
}

/// The experiment, as the registry knows it.
pub(crate) struct Mixed;

impl Experiment for Mixed {
    const NAME: &'static str = "mixed";
    const SUMMARY: &'static str = "TPC-C beside TPC-H Q17 on the same CPUs: throughput and latency under \
        SOLO, MIN:MAX and 50:50, per scheduler";
    const SECTION: &'static str = "UFS (paper 000), Sections 3, 6.1, 6.2";
    const SUBJECT: &'static [&'static str] = UFS;
    const QUICK: &'static str = "--quick --cpus 2";
    type Args = MixedArgs;
    type Row = crate::cell::row::Row;

    fn run(args: &MixedArgs) -> Result<u8, Failure> {
        mixed(args)
    }

    fn guest_commands() -> Vec<GuestCommand> {
        vec![
            GuestCommand::new::<CellArgs>(
                "cell",
                "Measure one cell on this machine",
                crate::runner::guest::cell,
            ),
            GuestCommand::new::<crate::runner::guest::PrepareArgs>(
                "prepare",
                "Make the data that experiments copy",
                crate::runner::guest::prepare,
            ),
        ]
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

    fn plan(options: &[&str]) -> Plan {
        parse::<MixedArgs>(options).unwrap().plan()
    }

    #[test]
    fn the_defaults_are_the_paper_s_schedulers_and_every_mix() {
        let plan = plan(&[]);
        assert_eq!(plan, Plan::new(Scheduler::PAPER.to_vec(), 4));
    }

    #[test]
    fn quick_shortens_what_is_not_given() {
        let plan = plan(&["--quick", "--seconds", "3", "--repeat", "2"]);
        assert_eq!((plan.seconds, plan.warmup_s, plan.repeat), (3.0, 0.5, 2));
    }

    #[test]
    fn roles_and_cgroups_are_compared_on_one_server() {
        let plan = plan(&["--schedulers=ufs", "--by=cgroups,roles", "--hints=stock"]);
        assert_eq!(plan.by, [By::Cgroups, By::Roles]);
        assert_eq!(plan.server(), crate::cell::setup::Build::Stock);
    }

    #[test]
    fn lists_are_split_at_commas() {
        let plan = plan(&["--schedulers", "ufs,scx_lavd", "--mixes", "SOLO,min:max"]);
        assert_eq!(
            plan.schedulers,
            [Scheduler::Ufs, Scheduler::Scx("scx_lavd".into())]
        );
        assert_eq!(plan.mixes, [Mix::Solo, Mix::MinMax]);
    }
}
