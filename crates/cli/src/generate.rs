//! `giveway completions` and `giveway man`: what packages ship beside the
//! program, made from the same declaration as the command line.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::error::{Context, Failure};

/// Print completions for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete in
    shell: Shell,
}

/// Write the manual pages into a directory
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory for the pages; made if it is not there
    dir: PathBuf,
}

/// Prints the completions of one shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    // Generated in memory: clap_complete panics when a pipe breaks.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "giveway", &mut text);
    Ok(std::io::stdout().write_all(&text)?)
}

/// Writes one page per command and subcommand.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    fs::create_dir_all(&args.dir).cannot(format_args!("make {}", args.dir.display()))?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.dir)
        .cannot(format_args!("write the pages to {}", args.dir.display()))
}
