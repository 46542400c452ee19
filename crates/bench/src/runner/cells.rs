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
use giveway_lab::Machine;

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
            Some(reason) => {
                fit_a_guest(cells).map_err(|failure| {
                    failure.with_remedy(format_args!(
                        "--cpus {} at most, or --native on a machine that has as many",
                        guest_cpus_max()
                    ))
                })?;
                in_lab::<R>(cells, results, self.clock, &reason)
            }
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
    /// CPUs of the server, in the lab 43 at most; clients get half as many more,
    /// at least two
    #[arg(long, default_value_t = CPUS, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
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
    fit_a_guest(cells)?;
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

/// CPUs that the largest cell takes.
fn cpus(cells: &[CellConfig]) -> u32 {
    let of = |cell: &CellConfig| cell.cpus + cell.client_cpus;
    cells.iter().map(of).max().unwrap_or(0)
}

/// CPUs of the server in the largest guest; clients have the others.
fn guest_cpus_max() -> u32 {
    let fits = |cpus: &u32| cpus + CellConfig::default_client_cpus(*cpus) <= Machine::CPUS_MAX;
    (1..=Machine::CPUS_MAX).rev().find(fits).unwrap_or(1)
}

/// Refuses what is for more CPUs than a guest can have.
fn fit_a_guest(cells: &[CellConfig]) -> Result<(), Failure> {
    let (need, have) = (cpus(cells), Machine::CPUS_MAX);
    if have >= need {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "server and clients need {need} CPUs, and a virtual machine has {have} at most"
    ))
    .with_remedy(format_args!("--cpus {} at most", guest_cpus_max())))
}

fn enough_cpus(cells: &[CellConfig]) -> Result<(), Failure> {
    let need = cpus(cells) as usize;
    let have = std::thread::available_parallelism().map_or(1, usize::from);
    if have >= need {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "server and clients need {need} CPUs, and this machine has {have}"
    ))
    .with_remedy("choose fewer with --cpus, or measure with --lab"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_for_more_cpus_than_a_guest_has_are_refused_with_the_limit() {
        let refused = |cpus| {
            let cell = CellConfig {
                cpus,
                client_cpus: CellConfig::default_client_cpus(cpus),
                ..CellConfig::default()
            };
            fit_a_guest(&[cell])
                .err()
                .map(|failure| failure.to_string())
        };
        // The help says it, too.
        assert_eq!(guest_cpus_max(), 43);
        assert_eq!(refused(43), None);
        let said = refused(44).unwrap();
        assert!(said.contains("need 66 CPUs"), "{said}");
        assert!(said.contains("remedy: --cpus 43 at most"), "{said}");
    }
}
