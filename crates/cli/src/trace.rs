//! `giveway trace`: which threads ran and waited, recorded for Perfetto.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use giveway_hints::slot::Table;
use giveway_machine::sched_ext::SchedExt;
use giveway_watch::trace::record::{Summary, record};
use giveway_watch::trace::tasks::Proc;
use giveway_watch::trace::tracefs::{MOUNT, TraceError, Tracefs};

use crate::cgroup::Hierarchy;
use crate::tier;
use crate::top::seconds;
use giveway_command::{Context, Failure};

/// Record which threads run, wait and are preempted, for Perfetto
///
/// Records every switch and wake-up of the machine and writes them as JSON that
/// ui.perfetto.dev and chrome://tracing open. Each CPU shows the tier and
/// the thread that has it, and where background work gives way; each thread shows
/// when it runs and when it waits, and why; boosts are shown beside. Works without
/// UFS, too: tiers are those that UFS would give.
#[derive(Args, Debug)]
#[command(after_help = "Ctrl-C ends the recording early and writes the file all the same.")]
pub(crate) struct TraceArgs {
    /// How long to record
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// The file to write
    #[arg(long, short, default_value = "giveway-trace.json", value_name = "FILE")]
    output: PathBuf,
    /// What the kernel keeps for each CPU until it is read, in KiB
    ///
    /// Raise it when events were lost.
    #[arg(long, default_value_t = 4096, value_name = "KIB",
          value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    buffer_kib: u32,
    /// Where tracefs is mounted
    #[arg(long, default_value = MOUNT, value_name = "DIR")]
    tracefs: PathBuf,
}

/// Records, and says what.
pub(crate) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let path = args.output.display();
    let mut feed = Tracefs::start(&args.tracefs, args.buffer_kib).map_err(refused)?;
    let file = File::create(&args.output).cannot(format_args!("write {path}"))?;
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let interrupted = Arc::clone(&is_interrupted);
    ctrlc::set_handler(move || interrupted.store(true, Ordering::Relaxed))
        .cannot("handle Ctrl-C")?;

    let end = Instant::now() + args.seconds;
    let is_over = || Instant::now() >= end || is_interrupted.load(Ordering::Relaxed);
    let rule = tier::rule_or_default(&SchedExt::under(Path::new("/")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").cannot("read the mount table")?;
    let hierarchy = Hierarchy::in_mounts(&mounts);
    let tier_of = |path: &Path| match &hierarchy {
        Some(hierarchy) => hierarchy.tier_at(path, &rule),
        None => rule.default_tier,
    };
    let tables = Table::of_all_users(None).into_iter();
    let tables = tables.map(|(_, table)| table).collect();
    let mut tasks = Proc::new(Path::new("/proc"), &tier_of, tables);
    let summary = record(&mut feed, &mut tasks, &is_over, BufWriter::new(file))
        .cannot(format_args!("record to {path}"))?;
    eprint!("{}", said(&summary, args.buffer_kib));
    eprintln!("{path}: open it at https://ui.perfetto.dev");
    Ok(())
}

/// What was recorded, and what was not.
fn said(summary: &Summary, buffer_kib: u32) -> String {
    let mut text = format!(
        "{} events; {} preemptions, {} of background by time-sensitive work; {} boosts\n",
        summary.events, summary.preemptions, summary.gave_way, summary.boosts
    );
    if summary.lost > 0 {
        text += &format!(
            "giveway: note: {} events were lost; remedy: --buffer-kib {}\n",
            summary.lost,
            buffer_kib.saturating_mul(4)
        );
    }
    if summary.unreadable > 0 {
        text += &format!(
            "giveway: note: {} lines could not be read\n",
            summary.unreadable
        );
    }
    text
}

/// Why the kernel records nothing, with the remedy.
fn refused(error: TraceError) -> Failure {
    let remedy = error.remedy();
    Failure::new(error).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_name_the_remedy() {
        let summary = Summary {
            events: 10,
            lost: 3,
            unreadable: 1,
            ..Summary::default()
        };
        let text = said(&summary, 64);
        assert!(text.starts_with("10 events; "), "{text}");
        assert!(
            text.contains("3 events were lost; remedy: --buffer-kib 256"),
            "{text}"
        );
        assert!(text.contains("1 lines could not"), "{text}");
        assert_eq!(said(&Summary::default(), 64).lines().count(), 1);
    }
}
