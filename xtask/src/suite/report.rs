//! What is said of tests, while they run and in the last lines.
//!
//! ```text
//!     passed      2.41 s  giveway-locks shares even
//!       runs     60.00 s  scx_ufs vm cpu_max_is_enforced
//!     FAILED      0.12 s  giveway-tasks pool decay
//!     (what it printed)
//!
//! the slowest, seconds and of these on a CPU:
//!     190.4   188.2  scx_ufs vm cpu_max_is_enforced
//! unsteady, passed when run alone: ...
//! 1412 tests passed, 0 of them unsteady; 1 failed, 0 not run; 640 s
//! ```
//!
//! CPU time is that of a process and of those of its children that it has waited for.
//! What counts is at the end, where a reader looks first: what failed, with what it
//! printed, and what took a second look.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::outcome::{Outcome, Verdict};
use super::plan::{self, Unit};

/// How many of the slowest tests are named.
const SLOWEST: usize = 15;
/// A unit that runs longer is told of, each time it has run that much longer.
const SLOW: Duration = Duration::from_secs(60);
/// Lines of a failed test's output that are shown at the end, the last of them.
const LINES_MAX: usize = 300;

/// What a test prints that passes over something, since what it takes is not here.
const SKIPPED: &str = "SKIPPED: ";
/// What a test prints whose guest has said the same before (`Lab::answer`).
const KEPT: &str = "KEPT: ";

/// What has happened so far.
#[derive(Debug)]
pub(super) struct Report {
    start: Instant,
    expected: usize,
    last: BTreeMap<String, (Verdict, Duration)>,
    /// What each process took, in all and on a CPU.
    took: Vec<(Duration, Duration, String)>,
    /// What those printed that failed when they were last looked at.
    printed: BTreeMap<String, String>,
    unsteady: Vec<String>,
    left_behind: Vec<String>,
    /// What tests say that they passed over.
    skipped: Vec<String>,
    /// Guests that were not booted, since what they say is known.
    kept: usize,
    slow: BTreeMap<String, u64>,
    looks: u32,
}

impl Report {
    pub(super) fn new(units: &[Unit<'_>]) -> Report {
        Report {
            start: Instant::now(),
            expected: units.iter().map(|unit| unit.names().len()).sum(),
            last: BTreeMap::new(),
            took: Vec::new(),
            printed: BTreeMap::new(),
            unsteady: Vec::new(),
            left_behind: Vec::new(),
            skipped: Vec::new(),
            kept: 0,
            slow: BTreeMap::new(),
            looks: 1,
        }
    }

    /// A unit is running.
    pub(super) fn runs(&mut self, unit: &Unit<'_>, elapsed: Duration) {
        let times = elapsed.as_secs() / SLOW.as_secs();
        let name = called(unit);
        let told = self.slow.entry(name.clone()).or_default();
        if times > *told {
            *told = times;
            line("runs", elapsed, &name);
        }
    }

    /// A unit has ended.
    pub(super) fn ended(&mut self, unit: &Unit<'_>, outcome: Outcome) {
        let took = (outcome.elapsed, outcome.cpu, called(unit));
        self.took.push(took);
        let skipped = outcome.printed.lines();
        let skipped = skipped.filter(|line| line.contains(SKIPPED));
        let name = called(unit);
        self.skipped
            .extend(skipped.map(|line| format!("{name}: {line}")));
        let is_kept = |line: &&str| line.contains(KEPT);
        self.kept += outcome.printed.lines().filter(is_kept).count();
        let mut failed = None;
        for (name, verdict, elapsed) in outcome.tests {
            line(word(&verdict), elapsed, &name);
            if outcome.left_behind && !self.left_behind.contains(&name) {
                self.left_behind.push(name.clone());
            }
            match verdict {
                Verdict::Passed => {
                    self.printed.remove(&name);
                    if self.looks > 1 {
                        self.unsteady.push(name.clone());
                    }
                }
                _ => failed = Some(name.clone()),
            }
            self.last.insert(name, (verdict, elapsed));
        }
        // Once for all tests of a process.
        if let Some(name) = failed {
            show(&outcome.printed);
            self.printed.insert(name, outcome.printed);
        }
    }

    /// What each process took, a line for each: seconds, of these on a CPU, and its name.
    pub(super) fn times(&self) -> String {
        let lines = self.took.iter().map(|(elapsed, cpu, name)| {
            let (elapsed, cpu) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
            format!("{elapsed:.2} {cpu:.2} {name}\n")
        });
        lines.collect()
    }

    /// Those that a second look may clear.
    pub(super) fn worth_another_look(&self) -> Vec<String> {
        let failed = self.last.iter();
        let failed = failed.filter(|(_, (verdict, _))| *verdict == Verdict::Failed);
        failed.map(|(name, _)| name.clone()).collect()
    }

    /// From here on tests are looked at a second time.
    pub(super) fn again(&mut self) {
        say("\n--- once more, alone:");
        self.looks += 1;
    }

    /// How long each test took that has passed.
    pub(super) fn durations(&self) -> impl Iterator<Item = (&str, Duration)> {
        let passed = self.last.iter();
        passed
            .filter(|(_, (verdict, _))| *verdict == Verdict::Passed)
            .map(|(name, (_, elapsed))| (name.as_str(), *elapsed))
    }

    #[cfg(test)]
    pub(super) fn unsteady(&self) -> &[String] {
        &self.unsteady
    }

    /// The last lines, and the answer.
    pub(super) fn finish(&self) -> Result<()> {
        let mut slowest: Vec<_> = self.took.iter().collect();
        slowest.sort_by_key(|(elapsed, _, _)| std::cmp::Reverse(*elapsed));
        say("\nthe slowest, seconds and of these on a CPU:");
        for (elapsed, cpu, name) in slowest.into_iter().take(SLOWEST) {
            let (elapsed, cpu) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
            say(&format!("{elapsed:>9.1} {cpu:>7.1}  {name}"));
        }
        let failed = self.last.iter();
        let failed: Vec<_> = failed
            .filter(|(_, (verdict, _))| *verdict != Verdict::Passed)
            .collect();
        for (name, printed) in &self.printed {
            say(&format!("\n--- {name} printed:"));
            show(printed);
        }
        say("");
        if !self.left_behind.is_empty() {
            say(&format!(
                "left processes behind, which were killed: {}",
                self.left_behind.join(", ")
            ));
        }
        for skipped in &self.skipped {
            say(skipped);
        }
        if self.kept > 0 {
            say(&format!(
                "{} guests were not booted: programs, machine and seed are those of a run \
                 that passed; GIVEWAY_AGAIN=1 boots them",
                self.kept
            ));
        }
        if !self.unsteady.is_empty() {
            say(&format!(
                "unsteady, passed when run alone: {}",
                self.unsteady.join(", ")
            ));
        }
        for (name, (verdict, elapsed)) in &failed {
            line(word(verdict), *elapsed, name);
            if let Verdict::Lost(why) = verdict {
                say(&format!("{:26}{why}", ""));
            }
        }
        let passed = self.last.len() - failed.len();
        let unrun = self.expected - self.last.len();
        say(&format!(
            "{passed} tests passed, {} of them unsteady; {} failed, {unrun} not run; {} s",
            self.unsteady.len(),
            failed.len(),
            self.start.elapsed().as_secs()
        ));
        if failed.is_empty() && unrun == 0 {
            return Ok(());
        }
        let names: Vec<&str> = failed.iter().map(|(name, _)| name.as_str()).collect();
        match names.is_empty() {
            true => bail!("{unrun} tests were not run"),
            false => bail!("tests failed: {}", names.join(", ")),
        }
    }
}

/// What a unit is called.
fn called(unit: &Unit<'_>) -> String {
    let mut names = unit.names();
    match names.len() {
        1 => names.remove(0),
        several => {
            let first = unit.tests.iter().flatten().next();
            let shared = first.map_or("", |test| plan::module(test));
            let name = plan::name(unit.target, shared);
            format!("{name} ({several} tests)")
        }
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Lost(_) => "LOST",
    }
}

fn line(word: &str, elapsed: Duration, name: &str) {
    say(&format!(
        "{word:>10} {:>9.2} s  {name}",
        elapsed.as_secs_f64()
    ));
}

/// The last lines of what a test printed.
fn show(printed: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    let left_out = lines.len().saturating_sub(LINES_MAX);
    if left_out > 0 {
        say(&format!("    ({left_out} lines before)"));
    }
    for line in &lines[left_out..] {
        say(&format!("    {line}"));
    }
}

/// Nobody may be reading any more; the verdict counts all the same.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
