//! `giveway top`: what UFS does, on a screen or for programs.

use std::fs;
use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use giveway_machine::cgroup::{self, Cgroup};
use giveway_watch::locks::WithLocks;
use giveway_watch::names;
use giveway_watch::processes::Reader;
use giveway_watch::source::{SOCKET, SourceError, StatsSocket};
use giveway_watch::top::controls::Controls;
use giveway_watch::top::model::Wanted;
use giveway_watch::top::row::{Column, View};
use giveway_watch::top::run::{self, Error, Printing, Sampler};

use giveway_command::Failure;

/// Show what runs, waits and is preempted under UFS
///
/// By tier, cgroup, backend (a thread with a hint slot) and CPU: CPU time in per
/// cent of one CPU, the background's part of it, median and 99th percentile of
/// the time from wake-up to run (the end of its octave), and per second: CPUs
/// lost to others, boosted runs, runs that the floor gave.
///
/// On a kernel with CFL, by cgroup also the time for which threads in it and below it
/// waited for the kernel's locks, in per cent of one thread's time.
///
/// By process, from /proc: the tier by its first thread's slot or its cgroup, cgroup,
/// threads, CPU time, and involuntary and voluntary switches per second.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: Tab or 1-5 view, < and > column to sort by, i invert, / filter, \
                        a also what did nothing, p pause, arrows scroll, q quit."
)]
pub(crate) struct TopArgs {
    /// Seconds between two samples
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    interval: Duration,
    /// What to show first
    #[arg(long, value_enum, default_value_t = ViewName::Tiers, value_name = "VIEW")]
    view: ViewName,
    /// The column to sort by; run in a view that does not have it
    #[arg(long, value_enum, default_value_t = ColumnName::Run, value_name = "COLUMN")]
    sort: ColumnName,
    /// Only what has this in its name or tier, or is a process with this PID or cgroup
    #[arg(long, default_value = "", value_name = "TEXT")]
    filter: String,
    /// Also what did nothing
    #[arg(long)]
    all: bool,
    /// Print one interval, all views, and end
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each interval; with --once for one
    #[arg(long)]
    json: bool,
    /// Where UFS serves its statistics
    #[arg(long, default_value = SOCKET, value_name = "SOCKET")]
    socket: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ViewName {
    Tiers,
    Cgroups,
    Backends,
    Cpus,
    Processes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ColumnName {
    Name,
    Run,
    Background,
    LockWait,
    WakeP50,
    WakeP99,
    Preempted,
    Boosted,
    Floor,
    Pid,
    Tier,
    Cgroup,
    Threads,
    Voluntary,
}

/// A length of time above 0, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .filter(|length| !length.is_zero())
        .ok_or_else(|| "write seconds above 0, as in 0.5".to_owned())
}

/// UFS's statistics, with the kernel's of waits for its locks where it has CFL; and where the
/// latter come from.
pub(crate) fn source(socket: &Path) -> (WithLocks<StatsSocket>, Option<PathBuf>) {
    let with_locks = hierarchy().filter(|mount| Cgroup::at(mount).offers("lock"));
    let source = WithLocks::new(StatsSocket::at(socket), with_locks.clone());
    (source, with_locks)
}

/// Where cgroup v2 is mounted.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    cgroup::mount_in(&mounts)
}

/// Shows or prints what UFS does.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let (mut source, with_locks) = source(&args.socket);
    let wanted = Wanted {
        by: match args.sort {
            ColumnName::Name => Column::Name,
            ColumnName::Run => Column::Run,
            ColumnName::Background => Column::Background,
            ColumnName::LockWait => Column::LockWait,
            ColumnName::WakeP50 => Column::P50,
            ColumnName::WakeP99 => Column::P99,
            ColumnName::Preempted => Column::Preempted,
            ColumnName::Boosted => Column::Boosted,
            ColumnName::Floor => Column::Floor,
            ColumnName::Pid => Column::Pid,
            ColumnName::Tier => Column::Tier,
            ColumnName::Cgroup => Column::Cgroup,
            ColumnName::Threads => Column::Threads,
            ColumnName::Voluntary => Column::Voluntary,
        },
        filter: args.filter.clone(),
        idle: args.all,
        has_locks: with_locks.is_some(),
        ..Wanted::default()
    };
    let title = |tid| names::title(Path::new("/proc"), tid);
    let reader = Reader::new("/proc", hierarchy());
    let mut sampler = Sampler::new(&mut source, &title, reader);
    if args.once || args.json {
        let how = Printing {
            every: args.interval,
            once: args.once,
            json: args.json,
            wanted,
        };
        return run::print(&mut sampler, &how, &mut stdout().lock()).map_err(failed);
    }
    if !stdout().is_terminal() {
        return Err(Failure::usage("the output is no terminal to draw in")
            .with_remedy("add --once for a table, or --json for a program"));
    }
    let view = match args.view {
        ViewName::Tiers => View::Tiers,
        ViewName::Cgroups => View::Cgroups,
        ViewName::Backends => View::Backends,
        ViewName::Cpus => View::Cpus,
        ViewName::Processes => View::Processes,
    };
    let controls = Controls::new(view, wanted);
    run::show(&mut sampler, args.interval, controls).map_err(failed)
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Output(error) => error.into(),
        Error::Source(error) => unanswered(error),
    }
}

/// Why there are no statistics of UFS, with the remedy.
pub(crate) fn unanswered(error: SourceError) -> Failure {
    let remedy = error.remedy();
    Failure::new(error).with_remedy(remedy)
}
