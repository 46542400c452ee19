//! `giveway report`: result files as a table, a page, or both.

use std::fs;
use std::path::{Path, PathBuf};

use super::docs;
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
    #[arg(required_unless_present = "docs", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a page for each experiment into docs/results, from all files below results
    #[arg(long, conflicts_with_all = ["files", "html", "table"])]
    docs: bool,
    /// Print the table (the default without --html)
    #[arg(long)]
    table: bool,
}

/// Renders the files.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    if args.docs {
        for page in docs::write(Path::new("results"), Path::new("docs/results"))? {
            eprintln!("page: {}", page.display());
        }
        return Ok(());
    }
    let whole = read_reports(&args.files)?;
    if let Some(path) = &args.html {
        fs::write(path, whole.page()).cannot(format_args!("write {}", path.display()))?;
    }
    if args.table || args.html.is_none() {
        print(whole.as_ref())?;
    }
    Ok(())
}
