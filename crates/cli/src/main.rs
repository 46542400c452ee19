//! The `giveway` command: arguments and printing.
//!
//! `main` parses, hands over to one module per subcommand, and turns the answer
//! into an exit status. What a subcommand does lives in the crates below
//! (`scx_ufs` schedules, `giveway-watch` looks on, `giveway-pods` marks,
//! `giveway-bench` measures, `giveway-lab` has the machine for it, `giveway-metasched`
//! swaps, `giveway-sql` answers); the modules here decide only what to ask of them and
//! how to say what came of it.

mod args;
mod bench;
mod cgroup;
mod doctor;
mod error;
mod generate;
mod lab;
mod memory;
mod meta;
mod metrics;
mod output;
mod pods;
mod report;
mod run;
mod service;
mod sql;
mod status;
mod tier;
mod top;
mod trace;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};
use error::Failure;

fn main() -> ExitCode {
    memory::keep_what_is_freed();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match dispatch(cli.command) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.status())
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Start(args) => service::start(&args).map(|()| 0),
        Command::Stop(args) => service::stop(&args).map(|()| 0),
        Command::Status(args) => status::status(&args).map(|()| 0),
        Command::Top(args) => top::top(&args).map(|()| 0),
        Command::Trace(args) => trace::trace(&args).map(|()| 0),
        Command::Metrics(args) => metrics::metrics(&args).map(|()| 0),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(args),
        Command::Report(args) => report::report(&args).map(|()| 0),
        Command::Lab(args) => lab::lab(args),
        Command::Meta(args) => meta::meta(&args),
        Command::Mark(args) => pods::mark(&args).map(|()| 0),
        Command::Pods(args) => pods::pods(&args).map(|()| 0),
        Command::Sql(args) => sql::sql(&args).map(|()| 0),
        Command::Completions(args) => generate::completions(&args).map(|()| 0),
        Command::Man(args) => generate::man(&args).map(|()| 0),
    }
}

/// Prints what clap has to say: help and version as they are, everything else
/// as an error of ours.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that goes away has seen enough.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            eprint!("giveway: {}", error.render());
            ExitCode::from(2)
        }
    }
}
