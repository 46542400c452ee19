//! `giveway bench mixed`: from options to a report.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use giveway_bench::{CellConfig, Mix, Plan, Report, Scheduler, html};

use super::place::{Guests, Native, dataset_for};
use super::pool::{self, Place};
use super::progress::Board;
use crate::doctor;
use crate::error::{Context, Failure};
use crate::report;

/// The experiment's name.
pub(super) const NAME: &str = "mixed";

/// Measure TPC-C beside TPC-H Q17 on the same CPUs
///
/// SOLO runs TPC-C alone; MIN:MAX gives Q17 the lowest and TPC-C the highest
/// priority; 50:50 gives both the same, high one; SOLO-BG runs Q17 alone.
/// Measures on this machine itself if it can ('giveway doctor' tells), else in
/// the lab, where every cell has a virtual machine of its own.
#[derive(Args, Debug)]
pub(crate) struct MixedArgs {
    /// What to compare: eevdf, idle, fifo, rr, ufs, or any scx_NAME
    #[arg(long, value_delimiter = ',', value_name = "LIST",
          default_values_t = Scheduler::PAPER)]
    schedulers: Vec<Scheduler>,
    /// Which mixes: SOLO, SOLO-BG, MIN:MAX, 50:50
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_values_t = Mix::ALL)]
    mixes: Vec<Mix>,
    /// CPUs of the server; clients get half as many more, at least two
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    cpus: u32,
    /// Time that each of TPC-C's round trips spends in a network, in
    /// microseconds: the paper's clients are on another machine
    #[arg(long, default_value_t = 0, value_name = "US",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    network_us: u32,
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
    /// Write the results here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory under which results are kept, by date and machine
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
    /// Measure in virtual machines, even if this machine could
    #[arg(long, conflicts_with = "native")]
    lab: bool,
    /// Measure on this machine itself, or fail
    #[arg(long)]
    native: bool,
}

/// Measures and reports; answers with the exit status.
pub(crate) fn mixed(args: &MixedArgs) -> Result<u8, Failure> {
    let plan = args.plan();
    let cells = plan.cells();
    if cells.is_empty() {
        return Err(
            Failure::usage("these schedulers and mixes leave nothing to measure")
                .with_remedy("idle is measured in MIN:MAX only: add another scheduler or mix"),
        );
    }
    for cell in &cells {
        cell.validate()?;
    }
    let stop = interruptible()?;
    let data = dataset_for(plan.cpus);
    let (answers, failed) = match args.obstacle()? {
        None => {
            enough_cpus(&plan)?;
            eprintln!("measuring on this machine itself, {} cells", cells.len());
            let place = Native::open(&data, &plan.schedulers)?;
            measure(&cells, &place, 1, &stop)
        }
        Some(reason) => {
            let width = Guests::width().min(cells.len());
            eprintln!(
                "measuring in the lab ({reason}): {} cells, {width} at a time",
                cells.len()
            );
            let place = Guests::open(&data, &plan.schedulers)?;
            measure(&cells, &place, width, &stop)
        }
    };
    let Some(whole) = merged(answers)? else {
        return Err(Failure::new("no cell was measured"));
    };
    args.keep(&whole)?;
    report::print(&whole)?;
    if failed > 0 {
        return Err(Failure::new(format_args!(
            "{failed} of {} cells were not measured; the rest is reported above",
            cells.len()
        )));
    }
    Ok(0)
}

impl MixedArgs {
    fn plan(&self) -> Plan {
        let plan = Plan {
            mixes: self.mixes.clone(),
            seed: self.seed,
            network_us: self.network_us,
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

    /// Why not to measure natively; `None`: measure natively.
    fn obstacle(&self) -> Result<Option<String>, Failure> {
        match (self.lab, self.native, doctor::native_obstacle()) {
            (true, _, _) => Ok(Some("as asked for".to_owned())),
            (_, true, Some(reason)) => Err(Failure::new(format_args!(
                "this machine cannot measure: {reason}"
            ))
            .with_remedy("'giveway doctor' tells more; --lab measures in the lab")),
            (_, _, obstacle) => Ok(obstacle),
        }
    }

    fn keep(&self, whole: &Report) -> Result<(), Failure> {
        let raw = whole.save_raw(&self.results)?;
        eprintln!("results: {}", raw.display());
        if let Some(path) = &self.json {
            whole.write(path)?;
        }
        if let Some(path) = &self.html {
            fs::write(path, html::render(whole))
                .cannot(format_args!("write {}", path.display()))?;
            eprintln!("page: {}", path.display());
        }
        Ok(())
    }
}

/// Runs the cells; answers with the reports and how many there should be more.
fn measure(
    cells: &[CellConfig],
    place: &dyn Place<CellConfig, Report>,
    width: usize,
    stop: &AtomicBool,
) -> (Vec<Report>, usize) {
    let board = Board::new(cells);
    let answers = pool::run_all(cells, place, width, stop, &board);
    board.finish();
    let reports: Vec<Report> = answers.into_iter().flatten().flatten().collect();
    let failed = cells.len() - reports.len();
    (reports, failed)
}

fn merged(reports: Vec<Report>) -> Result<Option<Report>, Failure> {
    let mut reports = reports.into_iter();
    let Some(mut whole) = reports.next() else {
        return Ok(None);
    };
    for next in reports {
        whole.merge(next)?;
    }
    Ok(Some(whole))
}

/// The first interrupt lets running cells end and reports what there is; the
/// second ends the program, and the kernel ends the guests with it.
fn interruptible() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("giveway: waiting for the running cells; interrupt again to give up");
    })
    .cannot("watch for interrupts")?;
    Ok(stop)
}

fn enough_cpus(plan: &Plan) -> Result<(), Failure> {
    let need = (plan.cpus + plan.client_cpus) as usize;
    let have = std::thread::available_parallelism().map_or(1, usize::from);
    if have >= need {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "server and clients need {need} CPUs, and this machine has {have}"
    ))
    .with_remedy("choose fewer with --cpus, or measure with --lab"))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("write a number of seconds above 0".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("write a number of seconds, 0 or more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(options: &[&str]) -> Plan {
        let line = ["giveway", "bench", "mixed"].iter().chain(options);
        let Command::Bench(bench) = Cli::try_parse_from(line).unwrap().command else {
            panic!("not parsed as bench");
        };
        match bench.experiment {
            Some(super::super::Experiment::Mixed(args)) => args.plan(),
            other => panic!("parsed as {other:?}"),
        }
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
    fn lists_are_split_at_commas() {
        let plan = plan(&["--schedulers", "ufs,scx_lavd", "--mixes", "SOLO,min:max"]);
        assert_eq!(
            plan.schedulers,
            [Scheduler::Ufs, Scheduler::Scx("scx_lavd".into())]
        );
        assert_eq!(plan.mixes, [Mix::Solo, Mix::MinMax]);
    }
}
