//! The command line: one declaration from which parsing, help, completions and
//! manual pages are made.

use clap::{Parser, Subcommand};

use crate::{
    bench, doctor, generate, lab, meta, metrics, pods, report, run, service, sql, status, top,
    trace,
};

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
    Bench(bench::BenchArgs),
    Report(report::ReportArgs),
    Lab(lab::LabArgs),
    Meta(meta::MetaArgs),
    Sql(sql::SqlArgs),
    Completions(generate::CompletionsArgs),
    Man(generate::ManArgs),
}
