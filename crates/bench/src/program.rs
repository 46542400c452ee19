//! The program `giveway-bench`: from a command line to an experiment, the lab, or a report.

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use giveway_command::generate::{CompletionsArgs, ManArgs};
use giveway_command::{Failure, memory, output};

use crate::experiments::ALL;
use crate::overview::all::{self, AllArgs};
use crate::overview::report::{self, ReportArgs};
use crate::runner::experiment::GuestCommand;
use crate::runner::lab::{self, LabArgs};

/// The whole command line.
pub(crate) fn command() -> Command {
    let experiments = ALL.iter().map(|experiment| experiment.command());
    let hidden = guest_commands().map(|guest| guest.command);
    Command::new("giveway-bench")
        .bin_name("giveway bench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measure workloads under several schedulers, locks or policies")
        .max_term_width(80)
        .arg_required_else_help(true)
        .args_conflicts_with_subcommands(true)
        .after_help("Exit status: 0 done, 1 failed, 2 wrong usage.")
        .arg(clap::arg!(--list "Name all experiments"))
        .subcommands(experiments)
        .subcommand(AllArgs::augment_args(Command::new("all")))
        .subcommand(ReportArgs::augment_args(Command::new("report")))
        .subcommand(LabArgs::augment_args(Command::new("lab")))
        .subcommand(CompletionsArgs::augment_args(Command::new("completions")))
        .subcommand(ManArgs::augment_args(Command::new("man")))
        .subcommands(hidden)
}

fn guest_commands() -> impl Iterator<Item = GuestCommand> {
    ALL.iter()
        .flat_map(|experiment| (experiment.guest_commands)())
}

/// Does what the command line says; the program's exit status.
pub fn main() -> ExitCode {
    memory::keep_what_is_freed();
    // Usage lines name a command as it is documented: these two stand beside bench.
    let above = match std::env::args_os().nth(1) {
        Some(first) if first == "lab" || first == "report" => "giveway",
        _ => "giveway bench",
    };
    match command().bin_name(above).try_get_matches() {
        Ok(matches) => giveway_command::end(run(&matches)),
        Err(error) => giveway_command::explain(&error),
    }
}

fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let Some((name, options)) = matches.subcommand() else {
        return list().map(|()| 0);
    };
    if let Some(experiment) = ALL.iter().find(|experiment| experiment.name == name) {
        return experiment.run(options);
    }
    if let Some(guest) = guest_commands().find(|guest| guest.name == name) {
        return guest.run(options).map(|()| 0);
    }
    match name {
        "all" => all::all(&parsed(options)?),
        "report" => report::report(&parsed(options)?).map(|()| 0),
        "lab" => lab::lab(parsed(options)?),
        "completions" => parsed::<CompletionsArgs>(options)?
            .print(command(), "giveway-bench")
            .map(|()| 0),
        "man" => parsed::<ManArgs>(options)?
            .write(command(), &[])
            .map(|()| 0),
        other => unreachable!("clap knows no command '{other}'"),
    }
}

fn parsed<A: FromArgMatches>(options: &ArgMatches) -> Result<A, Failure> {
    A::from_arg_matches(options).map_err(|error| Failure::usage(error.to_string()))
}

fn list() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for experiment in ALL {
        let command = experiment.command();
        let about = command.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        for (name, text) in [(experiment.name, about.as_str()), ("", experiment.section)] {
            writeln!(out, "{}", output::wrapped(&format!("{name:<16} "), text))?;
        }
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        command().debug_assert();
    }

    #[test]
    fn every_experiment_takes_what_a_quick_look_at_all_gives_it() {
        for experiment in ALL {
            let files = ["--json", "a", "--html", "b", "--results", "c"];
            let words = ["giveway-bench", experiment.name].into_iter();
            let words = words.chain(experiment.quick.split_whitespace());
            command()
                .try_get_matches_from(words.chain(files))
                .unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
        }
    }
}
