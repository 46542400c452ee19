//! `giveway report`: result files as a table, a page, or both.

use std::fs;
use std::path::PathBuf;

use super::read::read_reports;
use crate::runner::results::print;
use clap::Args;

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
