//! What the program needs to know of an experiment, and all that it knows.
//!
//! ```text
//!   experiments/NAME  Experiment ─► Registered ─┬► giveway bench NAME     options ─► rows
//!                     (types)       (values)    ├► giveway bench report   files ─► report
//!                                               ├► giveway bench all
//!                                               └► hidden commands of guests
//! ```
//!
//! [`Experiment`] is what an experiment implements; its types differ. [`Registered`] is
//! the same without types, so that all experiments stand in one list.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command};
use giveway_command::Failure;

use crate::harness::error::Result;
use crate::report::{AnyReport, Record, Report};

/// The scheduler: its BPF program and loader, without the program that tests it.
pub(crate) const UFS: &[&str] = &["crates/scx_ufs/src", ":!crates/scx_ufs/src/bin"];

/// The scheduler, and those who tell it of their locks.
pub(crate) const UFS_AND_HINTS: &[&str] = &[
    "crates/scx_ufs/src",
    ":!crates/scx_ufs/src/bin",
    "crates/hints/include",
    "postgres/giveway",
    "postgres/patches",
];

/// A measurement that can be asked for by name.
pub(crate) trait Experiment {
    /// The name on the command line and in result files.
    const NAME: &'static str;
    /// What it measures, in one line.
    const SUMMARY: &'static str;
    /// The paper and sections it reproduces.
    const SECTION: &'static str;
    /// The sources of what it measures, as git's paths. A result of other sources than
    /// today's is older than the program (`overview/docs/rules.rs`).
    const SUBJECT: &'static [&'static str];
    /// The options that `giveway bench all --quick` gives it: some minutes in the lab, or
    /// less.
    const QUICK: &'static str;
    /// Its options.
    type Args: Args;
    /// Its rows.
    type Row: Record + 'static;

    /// Measures and reports; answers with the exit status.
    ///
    /// # Errors
    /// What cannot be measured, with the remedy; cells that failed.
    fn run(args: &Self::Args) -> Result<u8, Failure>;

    /// The commands that this program is given in a guest.
    fn guest_commands() -> Vec<GuestCommand> {
        Vec::new()
    }

    /// A report with rows of every kind.
    #[cfg(test)]
    fn sample() -> Report<Self::Row>;
}

/// An experiment as one of many.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) section: &'static str,
    pub(crate) subject: &'static [&'static str],
    pub(crate) quick: &'static str,
    command: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<u8, Failure>,
    read: fn(&[PathBuf]) -> Result<Box<dyn AnyReport>>,
    pub(crate) guest_commands: fn() -> Vec<GuestCommand>,
    #[cfg(test)]
    pub(crate) write_sample: fn(&std::path::Path) -> Result<()>,
}

impl Registered {
    pub(crate) const fn of<E: Experiment>() -> Registered {
        Registered {
            name: E::NAME,
            summary: E::SUMMARY,
            section: E::SECTION,
            subject: E::SUBJECT,
            quick: E::QUICK,
            command: E::Args::augment_args,
            run: |matches| E::run(&parsed::<E::Args>(matches)?),
            read: Report::<E::Row>::read_all,
            guest_commands: E::guest_commands,
            #[cfg(test)]
            write_sample: |path| E::sample().write(path),
        }
    }

    /// Its command line.
    pub(crate) fn command(&self) -> Command {
        (self.command)(Command::new(self.name))
    }

    /// Measures and reports; answers with the exit status.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub(crate) fn run(&self, matches: &ArgMatches) -> Result<u8, Failure> {
        (self.run)(matches)
    }

    /// Reads its results files as one report.
    ///
    /// # Errors
    /// A file that is no results file of it; rows that are not comparable
    /// ([`Report::merge`]).
    pub(crate) fn read(&self, files: &[PathBuf]) -> Result<Box<dyn AnyReport>> {
        (self.read)(files)
    }
}

/// What a hidden command does with the options that it is given.
type Run = Box<dyn Fn(&ArgMatches) -> Result<(), Failure>>;

/// A hidden command: what this program is asked for in a guest.
pub(crate) struct GuestCommand {
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    run: Run,
}

impl GuestCommand {
    pub(crate) fn new<A: Args + 'static>(
        name: &'static str,
        about: &'static str,
        run: fn(&A) -> Result<(), Failure>,
    ) -> GuestCommand {
        GuestCommand {
            name,
            command: A::augment_args(Command::new(name)).about(about).hide(true),
            run: Box::new(move |matches| run(&parsed(matches)?)),
        }
    }

    pub(crate) fn run(&self, matches: &ArgMatches) -> Result<(), Failure> {
        (self.run)(matches)
    }
}

/// The options of an experiment that this program was built without.
#[cfg(not(all(feature = "sql", feature = "engines")))]
#[derive(Args, Debug)]
pub(crate) struct AnyOptions {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// The options that clap has found.
fn parsed<A: Args>(matches: &ArgMatches) -> Result<A, Failure> {
    A::from_arg_matches(matches).map_err(|error| Failure::usage(error.to_string()))
}

/// The options of a command line without the program and the command.
#[cfg(test)]
pub(crate) fn parse<A: Args>(options: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("test").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(options)?)
}
