//! `giveway sql tpch`: the benchmark's data as files, and its queries.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use giveway_sql::tpch::{self, Dataset, Scale};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use giveway_command::{Context, Failure};

/// Write TPC-H data as Parquet files
///
/// Each table is a directory of files, of about 1.5 million rows each. A file is
/// written whole or not at all: the same command goes on where it was
/// interrupted, and keeps what is there.
#[derive(Args, Debug)]
#[command(after_help = "Then: giveway sql --data DIR")]
pub(crate) struct TpchArgs {
    /// Scale factor: about so many gigabytes of text; fractions are allowed
    #[arg(long, default_value = "1", value_name = "FACTOR")]
    sf: Scale,
    /// The directory to write to [default: tpch-sfFACTOR]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads that write [default: as many as CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print this query, 1 to 22, with the parameters that answers are known for,
    /// and write nothing
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["out", "threads"])]
    query: Option<usize>,
}

/// Writes the data, or one of the queries.
pub(super) fn tpch(args: &TpchArgs) -> Result<(), Failure> {
    if let Some(number) = args.query {
        let text = tpch::query(number, args.sf).map_err(Failure::usage)?;
        return Ok(writeln!(io::stdout(), "{text};")?);
    }
    let dir = (args.out.clone()).unwrap_or_else(|| PathBuf::from(format!("tpch-sf{}", args.sf)));
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).cannot("handle interrupts")?;

    let bar = bar();
    let written = Dataset::new(&dir, args.sf).threads(threads).write(
        &|progress| {
            bar.set_length(progress.rows_total.max(progress.rows));
            bar.set_position(progress.rows);
        },
        &stop,
    );
    bar.finish_and_clear();
    let written = written.map_err(|error| match error {
        tpch::TpchError::Interrupted => Failure::new(error).with_status(super::INTERRUPTED),
        error => Failure::new(error),
    })?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}: {} rows, {}; {} files written, {} there already",
        dir.display(),
        HumanCount(written.rows),
        HumanBytes(written.bytes),
        written.files,
        written.files_kept
    )?;
    Ok(writeln!(out, "next: giveway sql --data {}", dir.display())?)
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{spinner} [{bar:30}] {human_pos} of {human_len} rows [{elapsed}, {eta} to go]",
    );
    ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
