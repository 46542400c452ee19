//! The `giveway` command: arguments and printing.
//!
//! `main` parses, hands over to one module per subcommand, and turns the answer
//! into an exit status. What a subcommand does lives in the crates below
//! (`scx_ufs` schedules, `giveway-watch` observes, `giveway-pods` marks pods,
//! `giveway-metasched` swaps schedulers) or in other programs (`subprogram`); the modules
//! here only call them and print the results.

mod args;
mod cgroup;
mod disk;
mod doctor;
mod meta;
mod metrics;
mod pods;
mod run;
mod service;
mod status;
mod subprogram;
mod tier;
mod top;
mod trace;
mod weights;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use giveway_command::Failure;

use args::{Cli, Command};

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => giveway_command::end(dispatch(cli.command)),
        Err(error) => giveway_command::explain(&error),
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
        Command::Meta(args) => meta::meta(&args),
        Command::Mark(args) => pods::mark(&args).map(|()| 0),
        Command::Pods(args) => pods::pods(&args).map(|()| 0),
        Command::Completions(args) => args.print(Cli::command(), "giveway").map(|()| 0),
        Command::Man(args) => args.write(Cli::command(), &subprogram::NAMES).map(|()| 0),
        Command::Bench(passed) => Err(subprogram::BENCH.exec(passed)),
        Command::Report(passed) => Err(subprogram::REPORT.exec(passed)),
        Command::Lab(passed) => Err(subprogram::LAB.exec(passed)),
        Command::Sql(passed) => Err(subprogram::SQL.exec(passed)),
    }
}
