//! The command line: one declaration from which parsing, help, completions and
//! manual pages are made.

use clap::{Parser, Subcommand};

use giveway_command::generate::{CompletionsArgs, ManArgs};

use crate::subprogram::{self, Passed};
use crate::{doctor, meta, metrics, pods, run, service, status, top, trace};

/// Background work that gives way: run it, schedule it, watch it
#[derive(Parser, Debug)]
#[command(
    name = "giveway",
    version,
    max_term_width = 80,
    arg_required_else_help = true,
    after_help = "bench, report and lab are the program giveway-bench, sql is giveway-sql, \
                  where they are installed. Exit status: 0 done, 1 failed, 2 wrong usage; \
                  'run' passes on its command's. See scx_ufs(1), giveway-bench(1), \
                  giveway-sql(1)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
// The texts stand with the arguments: a text here would hide the longer one there.
pub(crate) enum Command {
    Run(run::RunArgs),
    Mark(pods::MarkArgs),
    Pods(pods::PodsArgs),
    Start(service::StartArgs),
    Stop(service::StopArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Trace(trace::TraceArgs),
    Metrics(metrics::MetricsArgs),
    Doctor(doctor::DoctorArgs),
    Meta(meta::MetaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(about = subprogram::BENCH.about, disable_help_flag = true)]
    Bench(Passed),
    #[command(about = subprogram::REPORT.about, disable_help_flag = true)]
    Report(Passed),
    #[command(about = subprogram::LAB.about, disable_help_flag = true)]
    Lab(Passed),
    #[command(about = subprogram::SQL.about, disable_help_flag = true)]
    Sql(Passed),
}
