//! Two programs of the package rt-tests, unmodified, in the place of our own
//! threads: the same cgroup, the same scheduler, after the window.
//!
//! | program | what it does | what is taken |
//! | --- | --- | --- |
//! | hackbench | groups of senders and receivers pass messages through sockets | messages a second, run by run |
//! | cyclictest | threads sleep until a time, over and over, and note how late they wake | lateness, beside hackbench in a loop |
//!
//! hackbench measures what a switch costs where nobody waits for anything but
//! messages; cyclictest how soon a timer's thread runs when everybody else has
//! just been woken, too. Neither has a tail of its own to tell: hackbench's runs
//! are few, so the slowest stands beside the median.
//!
//! cyclictest counts in microseconds up to a limit; what is later counts as the
//! latest that its thread saw, so a tail is never shown shorter than it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};

use super::WakeupPlan;
use super::latency::Latency;
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;
use crate::harness::number::Spread;
use crate::workload::postgres::last_lines;

/// Messages that each sender sends to each receiver: hackbench's default.
const LOOPS: u32 = 100;
/// Time between two wake-ups of cyclictest's first thread: its default.
const INTERVAL_US: u32 = 1000;
/// What is read here.
const RT_TESTS: &str = "rt-tests 2.4";
/// How late a wake-up may be to be told apart from later ones.
const LATEST_US: u32 = 200_000;

/// hackbench's runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hackbench {
    /// Processes that pass messages.
    pub tasks: u32,
    /// Messages of a run.
    pub messages: u64,
    /// What each run took, in seconds.
    pub seconds: Vec<f64>,
    /// Messages a second: the median of the runs.
    pub messages_per_s: f64,
}

/// cyclictest's threads, beside hackbench in a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cyclictest {
    /// Threads, one for each CPU.
    pub threads: u32,
    /// How late they woke.
    pub late: Latency,
    /// The latest.
    pub max_us: f64,
}

/// One run of hackbench, as it tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    tasks: u32,
    messages: u64,
    seconds: f64,
}

/// Runs hackbench as often as the plan says; none if it says so.
pub(super) fn hackbench(plan: &WakeupPlan) -> Result<Option<Hackbench>> {
    let runs = (0..plan.hackbench_runs).map(|_| run_hackbench(plan));
    let runs: Vec<Run> = runs.collect::<Result<_>>()?;
    let Some(first) = runs.first() else {
        return Ok(None);
    };
    let per_s = runs.iter().map(|run| run.messages as f64 / run.seconds);
    Ok(Some(Hackbench {
        tasks: first.tasks,
        messages: first.messages,
        seconds: runs.iter().map(|run| run.seconds).collect(),
        messages_per_s: Spread::of(per_s).map_or(0.0, |spread| spread.median),
    }))
}

/// Runs cyclictest beside hackbench; none if the plan gives it no time.
pub(super) fn cyclictest(plan: &WakeupPlan) -> Result<Option<Cyclictest>> {
    if plan.cyclictest_s == 0 {
        return Ok(None);
    }
    let dir = PrivateDir::new(&std::env::temp_dir(), None)?;
    let file = dir.path().join("cyclictest.json");
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<()> {
            while !ended.load(Ordering::Relaxed) {
                run_hackbench(plan)?;
            }
            Ok(())
        });
        let ran = run(Command::new("cyclictest")
            .args(["--quiet", "--default-system"])
            .arg(format!("--threads={}", plan.cpus))
            .arg(format!("--interval={INTERVAL_US}"))
            .arg(format!("--duration={}", plan.cyclictest_s))
            .arg(format!("--histogram={LATEST_US}"))
            .arg(format!("--json={}", file.display())));
        ended.store(true, Ordering::Relaxed);
        load.join().expect("the load does not panic")?;
        ran
    })?;
    read_cyclictest(&file).map(Some)
}

fn run_hackbench(plan: &WakeupPlan) -> Result<Run> {
    // Half as many groups as CPUs: 20 senders and 20 receivers each.
    let groups = plan.cpus.div_ceil(2);
    let output = run(Command::new("hackbench")
        .arg(format!("--groups={groups}"))
        .arg(format!("--loops={LOOPS}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_hackbench(&text).ok_or_else(|| not_understood("hackbench", RT_TESTS, &text))
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output = output.map_err(Error::file("start", program.as_ref()))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(Error::Program {
            program,
            status: output.status.to_string(),
            output: last_lines(&String::from_utf8_lossy(&output.stderr)),
        }),
    }
}

pub(super) fn not_understood(program: &str, known: &str, text: &str) -> Error {
    Error::Config(format!(
        "what {program} says is not understood; {known} is known:\n{}",
        last_lines(text)
    ))
}

/// What hackbench prints:
///
/// ```text
/// Running in process mode with 2 groups using 40 file descriptors each (== 80 tasks)
/// Each sender will pass 100 messages of 100 bytes
/// Time: 0.096
/// ```
///
/// Half of a group's descriptors are the senders', and each of them writes to
/// each of the receivers.
fn parse_hackbench(text: &str) -> Option<Run> {
    let after = |what: &str| {
        let rest = text.split_once(what)?.1;
        rest.split_whitespace().next()
    };
    let number = |what: &str| after(what)?.parse::<u64>().ok();
    let (groups, fds) = (number(" mode with ")?, number(" groups using ")?);
    let senders = fds / 2;
    let seconds: f64 = after("Time:")?.parse().ok()?;
    (seconds > 0.0).then_some(Run {
        tasks: u32::try_from(groups * fds).ok()?,
        messages: groups * senders * senders * number(" will pass ")?,
        seconds,
    })
}

fn read_cyclictest(file: &Path) -> Result<Cyclictest> {
    let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
    parse_cyclictest(&text).ok_or_else(|| not_understood("cyclictest", RT_TESTS, &text))
}

/// The file that `--json` makes, as far as it matters.
#[derive(Deserialize)]
struct Told {
    thread: BTreeMap<String, Thread>,
}

#[derive(Deserialize)]
struct Thread {
    /// Microseconds, and how often.
    histogram: BTreeMap<String, u64>,
    cycles: u64,
    max: f64,
}

fn parse_cyclictest(text: &str) -> Option<Cyclictest> {
    let told: Told = serde_json::from_str(text).ok()?;
    let mut pairs: Vec<(f64, u64)> = Vec::new();
    for thread in told.thread.values() {
        for (us, count) in &thread.histogram {
            pairs.push((us.parse().ok()?, *count));
        }
        let counted: u64 = thread.histogram.values().sum();
        match thread.cycles.checked_sub(counted)? {
            0 => {}
            later => pairs.push((thread.max, later)),
        }
    }
    let max_us = told.thread.values().map(|thread| thread.max);
    Some(Cyclictest {
        threads: u32::try_from(told.thread.len()).ok()?,
        late: Latency::of_pairs(pairs)?,
        max_us: max_us.fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hackbench_tells_how_many_messages_took_how_long() {
        // Of rt-tests 2.4.
        let text = "Running in process mode with 2 groups using 40 file descriptors each \
                    (== 80 tasks)\nEach sender will pass 100 messages of 100 bytes\nTime: 0.096\n";
        let run = parse_hackbench(text).unwrap();
        assert_eq!((run.tasks, run.messages, run.seconds), (80, 80_000, 0.096));
        for broken in [
            text.replace("Time", "Tome"),
            text.replace("100 messages", "some"),
            text.replace("0.096", "0.000"),
        ] {
            assert_eq!(parse_hackbench(&broken), None, "{broken}");
        }
    }

    #[test]
    fn cyclictest_s_threads_count_together_and_what_is_too_late_is_as_late_as_the_latest() {
        // Of rt-tests 2.4, up to 90 us: 3 of 40 wake-ups of each thread were later.
        let text = include_str!("samples/cyclictest.json");
        let told = parse_cyclictest(text).unwrap();
        assert_eq!((told.threads, told.max_us), (2, 3094.0));
        let late = &told.late;
        assert_eq!(late.histogram.iter().map(|pair| pair.1).sum::<u64>(), 80);
        assert_eq!((late.p50_us, late.p99_us), (73.0, 3094.0));
        let [.., second, last] = late.histogram.as_slice() else {
            panic!("{late:?}");
        };
        assert_eq!((*second, *last), ((2992.0, 3), (3094.0, 3)));
        assert_eq!(parse_cyclictest("{\"thread\": {}}"), None);
        assert_eq!(
            parse_cyclictest(&text.replace("\"cycles\": 40", "\"cycles\": 4")),
            None
        );
    }

    #[test]
    fn a_program_that_fails_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo no sockets >&2; exit 3"]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no sockets"), "{error}");
        let error = run(&mut Command::new("no-such-program"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no-such-program"), "{error}");
    }

    #[test]
    fn tools_that_are_given_nothing_to_do_leave_nothing() {
        let plan = WakeupPlan {
            hackbench_runs: 0,
            cyclictest_s: 0,
            ..WakeupPlan::default()
        };
        assert_eq!(hackbench(&plan).unwrap(), None);
        assert_eq!(cyclictest(&plan).unwrap(), None);
    }
}
