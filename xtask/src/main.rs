//! Developer tasks: `cargo xtask ci` is what `make test` runs, and each of its
//! steps can be run alone.

mod ci;
mod licenses;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Checks that a laptop and CI run alike")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Every check and every test, with a summary at the end
    Ci,
    /// Rules of the tree that no compiler checks
    Tidy,
    /// Licences of all dependencies
    Licenses,
}

fn main() -> ExitCode {
    let root = workspace_root();
    let result = match Args::parse().task {
        Task::Ci => ci::run(&root),
        Task::Tidy => tidy::run(&root),
        Task::Licenses => licenses::run(&root),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace, wherever this is called from.
fn workspace_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_owned()
}
