//! `giveway pods`: on a node of Kubernetes, tiers by annotation; and `giveway
//! mark`: the same by hand, for any cgroup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use giveway_machine::sched_ext::SchedExt;
use giveway_pods::{Error, Rights, Round, Runtime, Unanswered};
use giveway_tier::{Tier, mark as marks, rule};

use crate::cgroup::Hierarchy;
use crate::service::UFS;
use crate::tier;
use giveway_command::{Context, Failure, output};

/// How much of an error is in a line of the log, in characters.
const WHY_MAX: usize = 400;

/// Bring the tiers that pods are annotated with to their cgroups
///
/// Asks the node's container runtime which pods run, and marks the cgroup of each
/// that has the annotation giveway/tier. UFS heeds marks when it was loaded with
/// --cgroup-marks. The annotation counts as it was when the pod was started.
#[derive(Args, Debug)]
pub(crate) struct PodsArgs {
    /// Socket of the container runtime
    #[arg(
        long,
        default_value = "unix:///run/containerd/containerd.sock",
        value_name = "unix:///PATH",
        env = "CONTAINER_RUNTIME_ENDPOINT"
    )]
    runtime: String,
    /// Namespaces whose pods may be time_sensitive by annotation
    ///
    /// Pods of all others can ask for background only.
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    may_raise: Vec<String>,
    /// Seconds between two looks
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Look once and end
    #[arg(long)]
    once: bool,
}

/// Say a cgroup's tier, whatever its name
///
/// The mark counts for what runs in the cgroup already, too, and for the cgroups
/// below it. It lasts as long as the cgroup. UFS heeds marks when it was loaded with
/// --cgroup-marks.
#[derive(Args, Debug)]
pub(crate) struct MarkArgs {
    /// The cgroup, as /proc/PID/cgroup or 'systemd-cgls' has it
    #[arg(value_name = "CGROUP")]
    cgroup: PathBuf,
    /// time_sensitive, background, or none; the mark is printed if this is left out
    #[arg(value_name = "TIER")]
    tier: Option<Wanted>,
}

/// A mark, or that there be none.
#[derive(Clone, Copy, Debug)]
struct Wanted(Option<Tier>);

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Wanted(None)),
            _ => match text.parse() {
                Ok(tier) => Ok(Wanted(Some(tier))),
                Err(error) => Err(format!("{error}, or none")),
            },
        }
    }
}

/// Sets, removes or prints one mark.
pub(crate) fn mark(args: &MarkArgs) -> Result<(), Failure> {
    let hierarchy = Hierarchy::with_cpu()?;
    let below = args.cgroup.strip_prefix(hierarchy.mount());
    let below = below.or_else(|_| args.cgroup.strip_prefix("/"));
    let dir = hierarchy.mount().join(below.unwrap_or(&args.cgroup));
    if dir == hierarchy.mount() || !dir.join("cgroup.procs").is_file() {
        return Err(Failure::usage(format_args!(
            "{} is no cgroup below {}",
            args.cgroup.display(),
            hierarchy.mount().display()
        ))
        .with_remedy("write its path as in the last line of /proc/PID/cgroup"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new("only root may see and set marks").with_remedy("use sudo"));
    }
    match args.tier {
        Some(Wanted(tier)) => {
            marks::write(&dir, tier).cannot(format_args!("mark {}", dir.display()))?;
            if let Some(why) = unheeded(&SchedExt::under(Path::new("/"))) {
                eprintln!("giveway: note: marks are {why}");
            }
            Ok(())
        }
        None => {
            let tier = marks::read(&dir).cannot(format_args!("read {}", dir.display()))?;
            println!("{}", tier.map_or("none", Tier::name));
            Ok(())
        }
    }
}

/// Marks pods until it is interrupted.
pub(crate) fn pods(args: &PodsArgs) -> Result<(), Failure> {
    let hierarchy = Hierarchy::with_cpu()?;
    let rights = Rights::new(args.may_raise.iter().cloned());
    let waiter = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .cannot("wait for the container runtime")?;
    let runtime = Runtime::at(&args.runtime)
        .map_err(|error| Failure::usage(error).with_remedy("see --runtime in --help"))?;

    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::new(format_args!("cannot handle signals: {error}")))?;
    let kernel = SchedExt::under(Path::new("/"));
    let mut log = Log::default();
    loop {
        match waiter.block_on(runtime.pods()) {
            Ok(running) => {
                let done = giveway_pods::round(
                    hierarchy.mount(),
                    &running,
                    &rights,
                    &marks::named_by_root,
                    &marks::read,
                    &mut marks::write,
                );
                log.round(done, unheeded(&kernel));
            }
            Err(error) if args.once => return Err(unheard(&error)),
            // The runtime may be back soon; the marks stay as they are.
            Err(error) => log.once(&args.runtime, &error.to_string()),
        }
        if args.once {
            return Ok(());
        }
        wait(Duration::from_secs(args.interval), &stop);
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Why marks may do nothing, as far as the loaded UFS says.
fn unheeded(kernel: &SchedExt) -> Option<String> {
    // Before and after, since the rule of a UFS that comes or goes meanwhile is not said.
    let is_ufs = || kernel.state().is(UFS);
    let rule = is_ufs().then(|| tier::rule(kernel)).filter(|_| is_ufs())?;
    match rule {
        Some(rule) if rule.heeds_marks => None,
        Some(_) => Some(
            "not heeded: UFS was loaded without --cgroup-marks (SCX_UFS_OPTIONS in \
             /etc/default/giveway)"
                .to_owned(),
        ),
        None => Some(format!(
            "perhaps not heeded: the loaded UFS does not say (it is of another version, or \
             cannot write {})",
            rule::PATH
        )),
    }
}

fn unheard(error: &Error) -> Failure {
    let failure = Failure::new(error);
    match error {
        Error::Address(_)
        | Error::Silent(Unanswered::NotThere { .. } | Unanswered::NotGrpc { .. }) => failure
            .with_remedy(
                "name its socket with --runtime, as the kubelet's \
                 --container-runtime-endpoint does",
            ),
        // The runtime is there, and its error says what to look at.
        Error::Silent(_) => failure,
    }
}

/// Waits, but not much longer than it is wanted.
fn wait(time: Duration, stop: &AtomicBool) {
    let step = Duration::from_millis(100);
    for _ in 0..time.as_millis() / step.as_millis() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(step);
    }
}

/// A line of the log. Annotations, which errors quote, have any text in them, line feeds
/// too.
fn warning(what: &str, why: &str) -> String {
    format!(
        "giveway: warning: {what}: {}",
        output::shorten(why, WHY_MAX)
    )
}

/// Says what is new, and that once.
#[derive(Default)]
struct Log {
    said: BTreeSet<(String, String)>,
}

impl Log {
    /// What a round did, and why marks may do nothing.
    fn round(&mut self, done: Round, unheeded: Option<String>) {
        for change in done.changes {
            // Whether the mark counts is for UFS to say.
            match change.tier {
                Some(tier) => eprintln!("giveway: pod {}: marked {tier}", change.pod),
                None => eprintln!("giveway: pod {}: mark removed", change.pod),
            }
        }
        // What is refused no more is said again when it is once more.
        let refused = done.refused.into_iter();
        let refused = refused.map(|(pod, why)| (pod, why.to_string()));
        let unheeded = unheeded.map(|why| ("marks".to_owned(), why));
        let now: BTreeSet<(String, String)> = refused.chain(unheeded).collect();
        self.said.retain(|said| now.contains(said));
        for (what, why) in &now {
            self.once(what, why);
        }
    }

    fn once(&mut self, what: &str, why: &str) {
        if self.said.insert((what.to_owned(), why.to_owned())) {
            eprintln!("{}", warning(what, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_makes_no_line_of_its_own() {
        let why = format!("unknown tier 'x\n<0>\u{1b}[2J{}'", "y".repeat(1000));
        let line = warning("pod a/b", &why);
        assert!(line.starts_with("giveway: warning: pod a/b: unknown tier 'x<0>[2Jyy"));
        assert_eq!(line.lines().count(), 1);
        assert!(line.len() < 450, "{line}");
    }
}
