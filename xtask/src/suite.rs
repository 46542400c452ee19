//! Every test of the workspace, side by side, and a second look at those that fail.
//!
//! ```text
//! targets     builds all test programs at once, has each list its tests
//! models      those among them that loom and shuttle run
//! sanitizers  those that ThreadSanitizer and AddressSanitizer watch
//! plan        units: a test, or the tests of a target that share something; longest first
//! pool        as many units at once as there are CPUs
//! process     one unit: its output, its time, its end
//! harness     what a test program prints
//! outcome     how a unit ended, a verdict on each test
//! report      a line for each test, and the last lines
//! ```
//!
//! Many tests are of threads and time, and a machine that is not ours alone can
//! take a CPU from one of them for longer than any bound allows for. A test that
//! has failed is therefore run once more, alone. If it fails again, the check has
//! failed. If it passes, the check has passed and its last lines name the test as
//! *unsteady*: that is a fault to be mended, in the test or in what it tests, but it is
//! not what the last change broke.
//!
//! A test that crashes, or runs past its limit, gets no second chance. Nor does one that
//! did not run: a check that cannot run has not passed.

mod harness;
mod models;
mod outcome;
mod plan;
mod pool;
mod process;
mod report;
mod sanitizers;
mod targets;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use cargo_metadata::Metadata;

use outcome::{lost, outcome};
use plan::{Durations, Unit};
use pool::Event;
use report::Report;
use sanitizers::Sanitizer;
use targets::{Build, Target};

use crate::lints;

/// Longest run of a unit, and of one that boots a guest, compiles, starts a server or is
/// watched by a sanitizer. Far more than any takes on a busy machine: what is still there
/// then hangs.
const LIMIT: Duration = Duration::from_secs(600);
const LIMIT_OF_OTHERS: Duration = Duration::from_secs(3000);
/// The same for what runs at night.
const LIMIT_OF_NIGHT: Duration = Duration::from_secs(12 * 3600);

/// Where durations are kept for the next run.
const DURATIONS: &str = "target/tests/durations";
/// What each process of the last run took, for whoever wants to know why it is slow.
const TIMES: &str = "target/tests/times";

/// What lints take that have not been timed yet: they are among the longest jobs.
const LINTS_TAKE: Duration = Duration::from_secs(400);
/// Compilers at once among lints, while tests run beside them: one slot of so many.
const SLOTS_OF_A_COMPILER: usize = 4;

/// Which tests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tests whose names contain one of these; all without any. A name is that of the
    /// package, of the target and of the test: `giveway-locks shares even`
    words: Vec<String>,
    /// Lints, too: `cargo xtask lints` as one of the jobs
    #[arg(long, conflicts_with = "quick")]
    lints: bool,
    /// Only tests that boot no guest and need no server: those of `make check`
    #[arg(long)]
    quick: bool,
    /// How many at once [default: as many as there are CPUs]
    #[arg(long, short)]
    jobs: Option<usize>,
}

/// Which tests, under which sanitizer.
#[derive(clap::Args, Default)]
pub(crate) struct SanitizerArgs {
    /// Tests whose names contain one of these; all without any. A name is as in
    /// `giveway-txn tsan:churn rows`
    words: Vec<String>,
    /// Under this sanitizer alone
    #[arg(long, value_name = "SANITIZER")]
    only: Option<Sanitizer>,
}

/// Runs tests, and those that fail once more, alone.
///
/// # Errors
/// A test failed, or none was chosen.
pub(crate) fn check(root: &Path, args: &Args) -> Result<()> {
    let workspace = crate::workspace()?;
    let all = Build {
        args: vec!["--workspace"],
        ..Build::default()
    };
    let mut targets = targets::build(root, &workspace, &all)?;
    if args.quick {
        targets.retain(|target| target.traits.is_quick());
    } else {
        targets.append(&mut models(root, &workspace)?);
        targets.extend(commands(root, args)?);
    }
    run_and_look_again(root, &args.words, args.slots(), limit, &targets)
}

/// Jobs that no test program of cargo's does.
fn commands(root: &Path, args: &Args) -> Result<Vec<Target>> {
    let line = |words: &[&str]| words.iter().map(OsString::from).collect();
    // With what has been compiled for the tests.
    let recorder = format!("{}={}", lints::WRAPPER, lints::recorder(root).display());
    let doctests = [
        "env",
        &recorder,
        "cargo",
        "test",
        "--locked",
        "--workspace",
        "--doc",
    ];
    let doctests = line(&doctests);
    let extension = line(&["bash", "postgres/test.sh"]);
    let mut commands = vec![
        Target::of_command(root, "workspace", "doctests", doctests),
        Target::of_command(root, "postgres", "extension", extension),
    ];
    if args.lints {
        let jobs = (args.slots() / SLOTS_OF_A_COMPILER).max(1).to_string();
        let mut lints = vec![std::env::current_exe()?.into_os_string()];
        lints.extend(line(&["lints", "--jobs", &jobs]));
        let lints = Target::of_command(root, "workspace", "lints", lints);
        commands.push(lints.that_takes(LINTS_TAKE));
    }
    Ok(commands)
}

/// Runs the model checkers' tests only.
///
/// # Errors
/// A model found something, or there is none of those that are meant.
pub(crate) fn check_models(root: &Path, args: &Args) -> Result<()> {
    let targets = models(root, &crate::workspace()?)?;
    run_and_look_again(root, &args.words, args.slots(), limit, &targets)
}

/// Runs the tests that sanitizers watch.
///
/// # Errors
/// A sanitizer found something, a test failed, or the toolchain lacks something.
pub(crate) fn check_sanitizers(root: &Path, args: &SanitizerArgs) -> Result<()> {
    let workspace = crate::workspace()?;
    let mut targets = Vec::new();
    for sanitizer in Sanitizer::ALL {
        if args.only.is_none_or(|only| only == sanitizer) {
            targets.append(&mut sanitizers::targets(root, &workspace, sanitizer)?);
        }
    }
    // One at a time: each is slow enough as it is, and most have several threads.
    let limit = |_: &Unit<'_>| LIMIT_OF_OTHERS;
    run_and_look_again(root, &args.words, 1, limit, &targets)
}

/// Runs what takes hours: the tests in targets `long`, and those that sanitizers watch.
///
/// # Errors
/// One of them failed.
pub(crate) fn check_long(root: &Path) -> Result<()> {
    let apart = check_apart(root, "long");
    if process::STOPPED.load(Ordering::Relaxed) {
        return apart;
    }
    let watched = check_sanitizers(root, &SanitizerArgs::default());
    match (apart, watched) {
        (Err(apart), Err(watched)) => bail!("{apart:#}; under sanitizers: {watched:#}"),
        (apart, watched) => apart.and(watched),
    }
}

/// The models, built for their checkers.
fn models(root: &Path, workspace: &Metadata) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for build in models::builds() {
        targets.append(&mut targets::build(root, workspace, &build)?);
    }
    for target in &mut targets {
        if let Some(tests) = &mut target.tests {
            tests.retain(|test| models::is_model(&target.package, &target.name, test));
        }
    }
    models::all_there(targets.iter().filter_map(|target| {
        let tests = target.tests.as_ref()?;
        (!tests.is_empty()).then_some((target.package.as_str(), target.name.as_str()))
    }))?;
    Ok(targets)
}

fn run_and_look_again(
    root: &Path,
    words: &[String],
    slots: usize,
    limit: impl Fn(&Unit<'_>) -> Duration + Copy + Sync,
    targets: &[Target],
) -> Result<()> {
    let mut durations = Durations::read(&root.join(DURATIONS));
    let units = plan::units(targets, words, &durations);
    if units.is_empty() {
        bail!("no test has a name that contains {}", words.join(" or "));
    }
    process::on_interrupt()?;
    let mut report = Report::new(&units);
    run(&units, slots, limit, &mut report);
    // Alone: that is in one slot.
    let again: Vec<Unit<'_>> = units
        .iter()
        .filter_map(|unit| unit.only(&report.worth_another_look()))
        .collect();
    if !again.is_empty() && !process::STOPPED.load(Ordering::Relaxed) {
        report.again();
        run(&again, 1, limit, &mut report);
    }
    for (name, elapsed) in report.durations() {
        durations.set(name, elapsed);
    }
    // Only the order of the next run is worse without.
    let _ = durations.write(&root.join(DURATIONS));
    let _ = std::fs::write(root.join(TIMES), report.times());
    report.finish()
}

/// Runs tests that nobody waits for, which packages keep in a target of this name
/// with `test = false`. No second look: an hour later it is another question.
///
/// # Errors
/// A test failed, or there is none.
pub(crate) fn check_apart(root: &Path, target: &'static str) -> Result<()> {
    let build = Build {
        args: vec!["--workspace", "--test", target],
        ..Build::default()
    };
    let targets = targets::build(root, &crate::workspace()?, &build)?;
    let units = plan::units(&targets, &[], &Durations::default());
    if units.is_empty() {
        bail!("no package has a test in a target '{target}'");
    }
    process::on_interrupt()?;
    let mut report = Report::new(&units);
    run(&units, cpus(), |_| LIMIT_OF_NIGHT, &mut report);
    report.finish()
}

impl Args {
    fn slots(&self) -> usize {
        self.jobs.unwrap_or_else(cpus).max(1)
    }
}

fn cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn limit(unit: &Unit<'_>) -> Duration {
    match unit.target.traits.is_quick() {
        true => LIMIT,
        false => LIMIT_OF_OTHERS,
    }
}

/// Runs units and has the report tell of each.
fn run(
    units: &[Unit<'_>],
    slots: usize,
    limit: impl Fn(&Unit<'_>) -> Duration + Sync,
    report: &mut Report,
) {
    let work = |unit: &Unit<'_>| {
        let start = Instant::now();
        match process::run(&mut command(unit), limit(unit)) {
            Ok(ended) => outcome(unit, ended),
            Err(error) => lost(unit, &format!("{error:#}"), start.elapsed()),
        }
    };
    pool::run(
        units,
        slots,
        &process::STOPPED,
        work,
        |unit, event| match event {
            Event::Runs(elapsed) => report.runs(unit, elapsed),
            Event::Ended(outcome) => report.ended(unit, outcome),
        },
    );
}

/// The command line of a unit.
fn command(unit: &Unit<'_>) -> Command {
    let mut command = unit.target.command();
    match unit.tests.as_deref() {
        None => {}
        // What it has printed is wanted also if it is killed.
        Some([test]) => {
            command.args(["--exact", test, "--nocapture"]);
        }
        // What those have printed that passed is shown at the end.
        Some(tests) => {
            command.args(["--exact", "--test-threads=1", "--show-output"]);
            command.args(tests);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::targets::{Target, Traits};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A target of two tests, `one` and `two`, that share a process.
    fn target() -> Target {
        let tests = ["one", "two"].map(str::to_owned).to_vec();
        Target::made_up("pack", "faults", Traits::default(), Some(tests))
    }

    fn unit<'a>(target: &'a Target, tests: &[&'a str]) -> Unit<'a> {
        let tests = Some(tests.to_vec());
        Unit { target, tests }
    }

    /// Runs the units with a script in place of each program.
    fn looked_at(target: &Target, slots: usize) -> Report {
        let units = [unit(target, &["one"]), unit(target, &["two"])];
        let mut report = Report::new(&units);
        run(&units, slots, |_| LONG, &mut report);
        let again = report.worth_another_look();
        let again: Vec<Unit<'_>> = units.iter().filter_map(|unit| unit.only(&again)).collect();
        report.again();
        run(&again, 1, |_| LONG, &mut report);
        report
    }

    /// A program that answers like the harness, by a script with the test in `$test`.
    fn program(directory: &Path, script: &str) -> Target {
        use std::os::unix::fs::PermissionsExt as _;
        let path = directory.join("program");
        let text = format!(
            "#!/bin/sh\ntest=$2\ncd {}\n{script}\n\
             echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured'\n",
            directory.display()
        );
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut target = target();
        target.program = path;
        target
    }

    #[test]
    fn test_that_passes_at_the_second_look_is_unsteady() {
        let directory = tempfile::tempdir().unwrap();
        let script = "[ $test = one ] || [ -e seen ] || { touch seen; exit 101; }";
        let report = looked_at(&program(directory.path(), script), 2);
        assert_eq!(report.unsteady(), ["pack faults two"]);
        assert!(report.finish().is_ok());
    }

    #[test]
    fn test_that_fails_twice_has_failed() {
        let directory = tempfile::tempdir().unwrap();
        let report = looked_at(&program(directory.path(), "[ $test = one ] || exit 101"), 2);
        assert_eq!(report.unsteady(), Vec::<&str>::new());
        let error = report.finish().unwrap_err().to_string();
        assert!(error.contains("pack faults two"), "{error}");
        assert!(!error.contains("pack faults one"), "{error}");
    }

    #[test]
    fn test_that_crashes_gets_no_second_look() {
        let directory = tempfile::tempdir().unwrap();
        let script = "[ $test = one ] || [ -e seen ] || { touch seen; kill -SEGV $$; }";
        let report = looked_at(&program(directory.path(), script), 1);
        assert!(report.worth_another_look().is_empty());
        assert!(report.finish().is_err());
    }
}
