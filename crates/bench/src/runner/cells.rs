//! Experiments that consist of cells of database workloads: where their cells
//! run. All of them can run natively and in the lab; by default on this machine
//! itself if it can, since that is what a scheduler is for, else in the lab.

use crate::cell::config::CellConfig;
use crate::cell::frame::Frame;
use crate::cell::record::CellRecord;
use crate::runner::clock::ClockArgs;
use crate::runner::executors::{Guests, Native, dataset_for};
use crate::runner::native;
use crate::runner::results::{RepeatArgs, ResultArgs, interruptible, positive};
use clap::Args;
use giveway_command::Failure;

/// Where cells run.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct WhereArgs {
    /// Measure in virtual machines, even if this machine could
    #[arg(long, conflicts_with = "native")]
    lab: bool,
    /// Measure on this machine itself, or fail
    #[arg(long)]
    native: bool,
    #[command(flatten)]
    clock: ClockArgs,
}

impl WhereArgs {
    /// Measures and reports; answers with the exit status.
    ///
    /// # Errors
    /// Cells that cannot be measured, or not here, with the remedy.
    pub(crate) fn measure<R: CellRecord + Send>(
        self,
        cells: &[CellConfig],
        results: &ResultArgs,
    ) -> Result<u8, Failure> {
        match self.obstacle()? {
            None => {
                self.clock.refuse_natively()?;
                validate(cells)?;
                enough_cpus(cells)?;
                let stop = interruptible()?;
                eprintln!("measuring on this machine itself, {} cells", cells.len());
                let executor = Native::open(&dataset_for(cells), cells)?;
                results.run::<_, R>(cells, CellConfig::title, &executor, 1, &stop)
            }
            Some(reason) => in_lab::<R>(cells, results, self.clock, &reason),
        }
    }

    /// Why not to measure natively; `None`: measure natively.
    fn obstacle(self) -> Result<Option<String>, Failure> {
        match (self.lab, self.native, native::obstacle()) {
            (true, _, _) => Ok(Some("as asked for".to_owned())),
            (_, true, Some(reason)) => Err(Failure::new(format_args!(
                "this machine cannot measure: {reason}"
            ))
            .with_remedy("'giveway doctor' tells more; --lab measures in the lab")),
            (_, _, obstacle) => Ok(obstacle),
        }
    }
}

/// What cells have in common; `CPUS` is how many the server has unless asked.
#[derive(Args, Debug)]
pub(crate) struct FrameArgs<const CPUS: u32> {
    /// CPUs of the server; clients get half as many more, at least two
    #[arg(long, default_value_t = CPUS, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    cpus: u32,
    /// Length of the measured window
    #[arg(long, default_value_t = 4.0, value_name = "SECONDS", value_parser = positive)]
    seconds: f64,
    /// Time before the window
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = positive)]
    warmup: f64,
    #[command(flatten)]
    repeats: RepeatArgs,
}

impl<const CPUS: u32> FrameArgs<CPUS> {
    /// As cells take it.
    pub(crate) fn frame(&self) -> Frame {
        Frame {
            cpus: self.cpus,
            warmup_s: self.warmup,
            seconds: self.seconds,
            repeat: self.repeats.count,
            seed: self.repeats.seed,
        }
    }
}

/// What every experiment has that varies the mixed workload.
#[derive(Args, Debug)]
pub(crate) struct CellsArgs {
    #[command(flatten)]
    frame: FrameArgs<4>,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten)]
    place: WhereArgs,
}

impl CellsArgs {
    /// What all cells have in common.
    pub(crate) fn frame(&self) -> Frame {
        self.frame.frame()
    }

    /// Measures and reports; answers with the exit status.
    ///
    /// # Errors
    /// As [`WhereArgs::measure`].
    pub(crate) fn measure<R: CellRecord + Send>(
        &self,
        cells: &[CellConfig],
    ) -> Result<u8, Failure> {
        self.place.measure::<R>(cells, &self.results)
    }
}

/// Measures in the lab, for which there is a reason, and reports.
///
/// # Errors
/// As [`WhereArgs::measure`].
pub(crate) fn in_lab<R: CellRecord + Send>(
    cells: &[CellConfig],
    results: &ResultArgs,
    clock: ClockArgs,
    reason: &str,
) -> Result<u8, Failure> {
    validate(cells)?;
    let stop = interruptible()?;
    let spec = dataset_for(cells);
    let executor = Guests::open(&spec, cells, clock)?;
    let width = executor.width().min(cells.len());
    eprintln!(
        "measuring in the lab's virtual machines ({reason}): {} cells, {width} at a time",
        cells.len()
    );
    results.run::<_, R>(cells, CellConfig::title, &executor, width, &stop)
}

fn validate(cells: &[CellConfig]) -> Result<(), Failure> {
    for cell in cells {
        cell.validate()?;
    }
    Ok(())
}

fn enough_cpus(cells: &[CellConfig]) -> Result<(), Failure> {
    let of = |cell: &CellConfig| (cell.cpus + cell.client_cpus) as usize;
    let need = cells.iter().map(of).max().unwrap_or(0);
    let have = std::thread::available_parallelism().map_or(1, usize::from);
    if have >= need {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "server and clients need {need} CPUs, and this machine has {have}"
    ))
    .with_remedy("choose fewer with --cpus, or measure with --lab"))
}
