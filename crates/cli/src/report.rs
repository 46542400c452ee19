//! `giveway report`: result files as a table, a page, or both.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use giveway_bench::{Report, html, sentence, table};

use crate::error::{Context, Failure};

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
    let mut files = args.files.iter();
    let mut whole: Option<Report> = None;
    for file in &mut files {
        let next = Report::read(file)?;
        match &mut whole {
            Some(whole) => whole.merge(next)?,
            None => whole = Some(next),
        }
    }
    let whole = whole.ok_or_else(|| Failure::usage("no result files"))?;
    if let Some(path) = &args.html {
        fs::write(path, html::render(&whole)).cannot(format_args!("write {}", path.display()))?;
    }
    if args.table || args.html.is_none() {
        print(&whole)?;
    }
    Ok(())
}

/// Prints the table and what the reader should see in it.
pub(crate) fn print(report: &Report) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}\n\n{}",
        table::render(report).trim_end(),
        sentence(report)
    )?;
    Ok(out.flush()?)
}

impl From<giveway_bench::Error> for Failure {
    fn from(error: giveway_bench::Error) -> Self {
        Failure::new(error)
    }
}
