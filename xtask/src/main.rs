//! Checks for developers, as commands that run on any machine.
//!
//! `cargo xtask tidy` holds files to the rules of the house, `cargo xtask
//! licenses` holds dependencies to ours, `cargo xtask notices` prints theirs,
//! `cargo xtask models` runs the model checkers, `cargo xtask sanitize` tests that
//! ThreadSanitizer and AddressSanitizer watch, `cargo xtask tests` every test or some,
//! `cargo xtask lints` what the compiler can tell of all of it,
//! `cargo xtask check` what a change is tried with, and `cargo xtask ci` what must pass.
//! `cargo xtask publish` builds programs from the packages of the libraries, `cargo xtask
//! semver` compares the libraries' interfaces with those of an earlier revision.
//! A CI service only calls `ci`, and `cargo xtask long` and `cargo xtask kernels` at
//! night. `cargo xtask seeds` shows by how much claims about UFS hold, over many seeds
//! of the lab's clock.

mod ci;
mod graph;
mod licenses;
mod lints;
mod notices;
mod publish;
mod seeds;
mod semver;
mod suite;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};
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
    /// What of it takes minutes: formatting, lints, tidiness, tests without guests
    Check,
    /// Lints, documentation and packages: what compiles and does not run
    Lints(ci::LintArgs),
    /// Of these, what the records of compiled crates tell (xtask/src/lints.rs)
    Records(ci::LintArgs),
    /// Rules of the tree that no compiler checks
    Tidy,
    /// Licences of all dependencies
    Licenses,
    /// Licences and notices of what the programs contain, as text
    Notices,
    /// Packages of the libraries, each with a program built from it alone
    Publish(publish::Args),
    /// Interfaces of the libraries against those of an earlier revision
    Semver(semver::Args),
    /// Models under loom and shuttle: those of the tests that are
    Models(suite::Args),
    /// Every test, or some; those that fail once more, alone
    Tests(suite::Args),
    /// Tests that ThreadSanitizer and AddressSanitizer watch
    Sanitize(suite::SanitizerArgs),
    /// What takes hours: the tests in the target `long` of any package, and `sanitize`
    Long,
    /// UFS on each kernel of its range: the tests in the target `kernels` of any package
    Kernels,
    /// The kernel whose locks are scheduled: the tests in the target `cfl_kernel`
    CflKernel,
    /// A kernel that finds faults in itself: the tests in the target `debug_kernel`
    DebugKernel,
    /// User interrupts, their module and who uses it: the tests in the target `uintr`
    Uintr,
    /// MariaDB under UFS: the tests in the target `mariadb` of any package
    Mariadb,
    /// Claims about UFS with many seeds of the lab's clock, and how their numbers spread
    Seeds(seeds::Args),
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Ci => ci::run(&root()),
        Task::Check => ci::run_quick(&root()),
        Task::Lints(args) => ci::run_lints(&root(), &args),
        Task::Records(args) => ci::run_records(&root(), &args),
        Task::Models(args) => suite::check_models(&root(), &args),
        Task::Tests(args) => suite::check(&root(), &args),
        Task::Sanitize(args) => suite::check_sanitizers(&root(), &args),
        Task::Long => suite::check_long(&root()),
        Task::Kernels => suite::check_apart(&root(), "kernels"),
        Task::CflKernel => suite::check_apart(&root(), "cfl_kernel"),
        Task::DebugKernel => suite::check_apart(&root(), "debug_kernel"),
        Task::Uintr => suite::check_apart(&root(), "uintr"),
        Task::Mariadb => suite::check_apart(&root(), "mariadb"),
        Task::Seeds(args) => seeds::run(&root(), &args),
        Task::Tidy => workspace().and_then(|workspace| tidy::check(&workspace)),
        Task::Licenses => workspace().and_then(|workspace| licenses::check(&workspace)),
        Task::Publish(args) => workspace().and_then(|workspace| publish::check(&workspace, &args)),
        Task::Semver(args) => workspace().and_then(|workspace| semver::check(&workspace, &args)),
        Task::Notices => workspace().and_then(|workspace| notices::print(&workspace)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The top of the source tree.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(PathBuf::from)
        .unwrap_or_default()
}

fn workspace() -> Result<Metadata> {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked".to_owned()])
        .exec()
        .context("cargo metadata")
}

/// Turns a list of complaints into the answer of a check.
fn verdict(check: &str, complaints: &[String]) -> Result<()> {
    for complaint in complaints {
        eprintln!("{complaint}");
    }
    match complaints.len() {
        0 => {
            println!("{check}: nothing to complain about");
            Ok(())
        }
        count => anyhow::bail!("{check}: {count} complaints"),
    }
}
