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
    /// Write all figures of README.md and docs anew, from the files below results
    #[arg(long, conflicts_with_all = ["files", "html", "table"])]
    docs: bool,
    /// With --docs: write nothing; fail if a figure is not what the files come to, or if a
    /// file is no base for one and docs/measure/exceptions.md does not say why
    #[arg(long, requires = "docs")]
    check: bool,
    /// Print the table (the default without --html)
    #[arg(long)]
    table: bool,
}

/// Renders the files.
pub(crate) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let here = Path::new(".");
    if args.check {
        return verdict(&docs::check(here, here)?);
    }
    if args.docs {
        for page in docs::write(here)? {
            eprintln!("page: {}", page.display());
        }
        for result in docs::untracked(here)? {
            let result = result.display();
            eprintln!("on no page, since git does not track it: {result} (git add)");
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

/// What a check of the documentation found.
fn verdict(found: &docs::Checked) -> Result<(), Failure> {
    eprintln!("exceptions: {}", found.exceptions);
    if !found.has_history {
        eprintln!("not checked, without the whole history of git: which results are older");
    }
    match found.complaints.as_slice() {
        [] => Ok(()),
        complaints => Err(Failure::new(complaints.join("\n"))),
    }
}
