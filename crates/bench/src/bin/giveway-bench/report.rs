//! `giveway report`: result files as a table, a page, or both.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use giveway_bench::{AnyReport, read_reports};

use giveway_command::{Context, Failure};

/// Render results as a table or a page
///
/// Several files become one report, if they are of the same experiment,
/// kernel, clock and commit.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Result files, as 'giveway bench' writes them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the table (the default without --html)
    #[arg(long)]
    table: bool,
}

/// Renders the files.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let whole = read_reports(&args.files)?;
    if let Some(path) = &args.html {
        fs::write(path, whole.page()).cannot(format_args!("write {}", path.display()))?;
    }
    if args.table || args.html.is_none() {
        print(whole.as_ref())?;
    }
    Ok(())
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
