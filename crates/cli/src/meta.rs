//! `giveway meta`: swaps schedulers by what runs.
//!
//! ```text
//!   schedulers   what can be used, and why the others cannot
//!   measure      applications × schedulers ──► measurements
//!   tune         policies × base timeslices ──► which to configure
//!   plan         measurements, policy      ──► the schedule, in print
//!   run          the daemon, which follows the schedule
//!   pause, resume, status                      commands for the daemon
//! ```
//!
//! `giveway-metasched` does the work; this module has options and output.

mod daemon;
mod install;
mod measure;
mod plan;
mod schedulers;
mod tune;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use giveway_metasched::config::Config;
use giveway_metasched::scx_loader::RIVAL_MAX;

use crate::service;
use giveway_command::Failure;

/// Let schedulers take turns, each when it is best
///
/// Measures your applications under the schedulers of this machine, derives
/// from that how long each scheduler should be in force, and swaps them
/// accordingly.
#[derive(Args, Debug)]
#[command(
    after_help = "Begin with 'giveway meta schedulers'. Write the applications into \
                  /etc/giveway/meta.toml, run 'giveway meta measure', look at \
                  'giveway meta plan', and let 'giveway meta run' follow it."
)]
pub(crate) struct MetaArgs {
    #[command(subcommand)]
    command: MetaCommand,
}

#[derive(Subcommand, Debug)]
// The texts stand with the arguments, as in `args`.
enum MetaCommand {
    Schedulers(schedulers::SchedulersArgs),
    Measure(measure::MeasureArgs),
    Tune(tune::TuneArgs),
    Plan(plan::PlanArgs),
    Run(daemon::RunArgs),
    Status(daemon::StatusArgs),
    Pause(daemon::PauseArgs),
    Resume(daemon::ResumeArgs),
}

/// Where the configuration is.
#[derive(Args, Debug)]
struct ConfigArgs {
    /// The configuration
    #[arg(
        long = "config",
        default_value = "/etc/giveway/meta.toml",
        value_name = "FILE"
    )]
    path: PathBuf,
}

impl ConfigArgs {
    fn read(&self) -> Result<Config, Failure> {
        Config::read(&self.path).map_err(|error| {
            let failure = Failure::new(&error);
            match self.path.exists() {
                true => failure,
                false => failure.with_remedy(
                    "write one, or name it with --config; docs/operate/metascheduler.md, in \
                     Giveway's source or in /usr/share/doc/giveway, has an example",
                ),
            }
        })
    }
}

/// Does what was asked for; answers with the exit status.
pub(crate) fn meta(args: &MetaArgs) -> Result<u8, Failure> {
    match &args.command {
        MetaCommand::Schedulers(args) => schedulers::schedulers(args),
        MetaCommand::Measure(args) => measure::measure(args),
        MetaCommand::Tune(args) => tune::tune(args),
        MetaCommand::Plan(args) => plan::plan(args),
        MetaCommand::Run(args) => daemon::run(args),
        MetaCommand::Status(args) => daemon::status(args),
        MetaCommand::Pause(_) => daemon::pause(true),
        MetaCommand::Resume(_) => daemon::pause(false),
    }
}

/// Refuses callers who may not swap schedulers.
fn privileged() -> Result<(), Failure> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Failure::new("only root may load schedulers").with_remedy("use sudo")),
    }
}

/// Refuses them, and machines on which another program swaps schedulers.
fn entitled() -> Result<(), Failure> {
    privileged()?;
    service::alone(RIVAL_MAX)
}
