//! The command line: one declaration from which parsing, help, completions and
//! manual pages are made.

use clap::{Parser, Subcommand};

use crate::{bench, doctor, generate, lab, report, run, service, status};

/// Background work that gives way: run it, schedule it, measure it
#[derive(Parser, Debug)]
#[command(
    name = "giveway",
    version,
    max_term_width = 80,
    arg_required_else_help = true,
    after_help = "Exit status: 0 done, 1 failed, 2 wrong usage; 'run' passes on its command's."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a command in a tier
    Run(run::RunArgs),
    /// Load the UFS scheduler
    Start(service::StartArgs),
    /// Unload the UFS scheduler
    Stop(service::StopArgs),
    /// Say which scheduler is loaded and what runs in each tier
    Status(status::StatusArgs),
    /// Say what this machine has, what it lacks, and what mends it
    Doctor(doctor::DoctorArgs),
    /// Measure workloads under several schedulers
    Bench(bench::BenchArgs),
    /// Render results as a table or a page
    Report(report::ReportArgs),
    /// Run commands in a virtual machine whose kernel has sched_ext
    Lab(lab::LabArgs),
    /// Print completions for a shell
    Completions(generate::CompletionsArgs),
    /// Write the manual pages into a directory
    Man(generate::ManArgs),
}
