//! Options and steps that all experiments share: where results are kept, repeats and
//! their seeds, interrupts, parsing of numbers.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::report::{AnyReport, Record, Report};
use crate::runner::pool::{self, Executor, Observer};
use crate::runner::progress::Board;
use crate::runner::rows::{Gathered, Rows};
use clap::Args;
use giveway_command::{Context, Failure};

/// Where results go.
#[derive(Args, Debug)]
pub(crate) struct ResultArgs {
    /// Write the results here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory under which results are kept, by date and machine
    #[arg(long, default_value = "results", value_name = "DIR")]
    results: PathBuf,
}

/// How often everything is measured.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RepeatArgs {
    /// Measure everything this often, each time with another seed
    #[arg(long = "repeat", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
    /// Seed of the first repeat; the others count on from it
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

impl RepeatArgs {
    /// Each repeat, from 0, with its seed.
    pub(crate) fn seeds(self) -> impl Iterator<Item = (u32, u64)> {
        (0..self.count).map(move |repeat| (repeat, self.seed + u64::from(repeat)))
    }
}

impl ResultArgs {
    /// Writes the files that were asked for; the raw rows are there.
    fn write<R: Record>(&self, Gathered { whole, raw, .. }: &Gathered<R>) -> Result<(), Failure> {
        eprintln!("results: {}", raw.display());
        if let Some(path) = &self.json {
            whole.write(path)?;
        }
        if let Some(path) = &self.html {
            fs::write(path, whole.page()).cannot(format_args!("write {}", path.display()))?;
            eprintln!("page: {}", path.display());
        }
        Ok(())
    }

    /// Measures every cell, keeps the rows of each as it ends and prints the
    /// report; answers with the exit status. A failed cell fails the command
    /// after the report.
    pub(crate) fn run<Cell: Sync, R: Record + Send>(
        &self,
        cells: &[Cell],
        title: impl Fn(&Cell) -> String,
        executor: &dyn Executor<Cell, Report<R>>,
        width: usize,
        stop: &AtomicBool,
    ) -> Result<u8, Failure> {
        let watch = Watch {
            board: Board::new(cells.iter().map(title).collect()),
            rows: Rows::new(&self.results),
        };
        pool::run_all(cells, executor, width, stop, &watch);
        watch.board.finish();
        let Some(gathered) = watch.rows.finish()? else {
            return Err(Failure::new("no cell was measured"));
        };
        self.write(&gathered)?;
        print(&gathered.whole)?;
        let failed = cells.len() - gathered.cells();
        if failed > 0 {
            return Err(Failure::new(format_args!(
                "{failed} of {} cells were not measured; the rest is reported above",
                cells.len()
            )));
        }
        Ok(0)
    }
}

/// Shows what the pool does, and keeps what comes of it.
struct Watch<'a, R> {
    board: Board,
    rows: Rows<'a, R>,
}

impl<R: Record + Send> Observer<Report<R>> for Watch<'_, R> {
    fn started(&self, cell: usize) {
        self.board.started(cell);
    }

    fn line(&self, cell: usize, line: &str) {
        self.board.line(cell, line);
    }

    fn ended(&self, cell: usize, answer: Result<Report<R>, String>, took: Duration) {
        // Kept before anything is said of it.
        let result = answer.map(|report| self.rows.add(cell, report));
        self.board
            .ended(cell, result.as_ref().copied().map_err(String::as_str), took);
    }
}

/// Prints the table and what the reader should see in it.
pub(crate) fn print(report: &dyn AnyReport) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}\n\n{}",
        report.table().trim_end(),
        report.sentence()
    )?;
    Ok(out.flush()?)
}

/// The first interrupt lets running cells end and reports what there is; the
/// second ends the program, and the kernel ends the guests with it.
pub(crate) fn interruptible() -> Result<Arc<AtomicBool>, Failure> {
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

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("write a number above 0".to_owned()),
    }
}
