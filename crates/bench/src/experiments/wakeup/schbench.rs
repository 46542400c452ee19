//! schbench itself, unmodified, with the settings of our own threads: where a user has its
//! source (`--schbench DIR`), which is not ours to pass on.
//!
//! The host makes the program from a copy of the source; the guest runs it after the
//! window, in the same cgroup, and reads its JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use giveway_command::{Context, Failure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::WakeupPlan;
use super::tools::{not_understood, run};
use crate::harness::error::{Error, Result};
use crate::harness::files::PrivateDir;

/// The program, and its source's main file without the end.
const NAME: &str = "schbench";
const REMEDY: &str = "git clone https://git.kernel.org/pub/scm/linux/kernel/git/mason/schbench.git, \
                      and name that directory";

/// What schbench found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Schbench {
    /// Requests a second: the median of its seconds.
    pub requests_per_s: f64,
    /// From being woken to running.
    pub wakeup: Tail,
    /// From running to the end of the work.
    pub request: Tail,
}

/// Percentiles as schbench prints them, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tail {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// What 999 of 1000 keep.
    pub p999_us: f64,
}

/// The program, made from a copy of the source in `dir`. It lies in the directory that is
/// returned, and is gone with it.
///
/// # Errors
/// No such source; no compiler; what the compiler says.
pub(super) fn make(dir: &Path) -> std::result::Result<(TempDir, PathBuf), Failure> {
    let source = dir.join(format!("{NAME}.c"));
    if !source.is_file() {
        let failure = Failure::usage(format!("{} has no {NAME}.c", dir.display()));
        return Err(failure.with_remedy(REMEDY));
    }
    let made = TempDir::new().cannot("make a temporary directory")?;
    for name in [format!("{NAME}.c"), "Makefile".to_owned()] {
        let (from, to) = (dir.join(&name), made.path().join(&name));
        fs::copy(&from, to).cannot(format_args!("copy {}", from.display()))?;
    }
    run(Command::new("make").arg("-C").arg(made.path()).arg(NAME))?;
    let program = made.path().join(NAME);
    Ok((made, program))
}

/// Runs it, if the plan has its program.
pub(super) fn schbench(plan: &WakeupPlan) -> Result<Option<Schbench>> {
    if plan.schbench.as_os_str().is_empty() {
        return Ok(None);
    }
    let dir = PrivateDir::new(&std::env::temp_dir(), None)?;
    let file = dir.path().join("schbench.json");
    // It counts whole seconds.
    let seconds = |s: f64| (s.ceil() as u64).to_string();
    let number = |n: u32| n.to_string();
    run(Command::new(&plan.schbench)
        .args(["-m", &number(plan.message_threads)])
        .args(["-t", &number(plan.workers())])
        .args(["-F", &number(plan.footprint_kib)])
        .args(["-n", &number(plan.operations)])
        .args(["-r", &seconds(plan.seconds)])
        .args(["-w", &seconds(plan.warmup_s)])
        .arg("-j")
        .arg(&file))?;
    let text = fs::read_to_string(&file).map_err(Error::file("read", &file))?;
    let told = parse(&text).ok_or_else(|| not_understood("schbench", "schbench 1.0", &text))?;
    Ok(Some(told))
}

/// The file that `-j` makes, as far as it matters.
fn parse(text: &str) -> Option<Schbench> {
    let told: serde_json::Value = serde_json::from_str(text).ok()?;
    let numbers = told.get("int")?;
    let number = |what: &str, which: &str| numbers.get(format!("{what}_pct{which}"))?.as_f64();
    let tail = |what: &str| {
        Some(Tail {
            p50_us: number(what, "50.0")?,
            p99_us: number(what, "99.0")?,
            p999_us: number(what, "99.9")?,
        })
    };
    Some(Schbench {
        requests_per_s: number("rps", "50.0")?,
        wakeup: tail("wakeup_latency")?,
        request: tail("request_latency")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of schbench as of December 2025, some numbers left out.
    const TOLD: &str = r#"{"normal": {"version": "6.18", "sched_ext": "disabled"},"int":
        {"time": 1, "wakeup_latency_pct50.0": 8, "wakeup_latency_pct99.0": 51,
        "wakeup_latency_pct99.9": 94, "request_latency_pct50.0": 186,
        "request_latency_pct99.0": 240, "request_latency_pct99.9": 265,
        "rps_pct50.0": 9072, "rps_min": 9073, "runtime": 2}}"#;

    #[test]
    fn its_numbers_are_found_by_name() {
        let told = parse(TOLD).unwrap();
        assert_eq!(told.requests_per_s, 9072.0);
        let numbers = |tail: Tail| [tail.p50_us, tail.p99_us, tail.p999_us];
        assert_eq!(numbers(told.wakeup), [8.0, 51.0, 94.0]);
        assert_eq!(numbers(told.request), [186.0, 240.0, 265.0]);
        assert_eq!(parse(&TOLD.replace("rps", "RPS")), None);
        assert_eq!(parse("{}"), None);
    }

    #[test]
    fn a_directory_without_the_source_is_refused_with_the_remedy() {
        let dir = TempDir::new().unwrap();
        let error = make(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has no schbench.c"), "{error}");
        assert!(error.contains("git clone"), "{error}");
    }

    #[test]
    fn the_program_is_made_from_a_copy() {
        let dir = TempDir::new().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("schbench.c", "int main(void) { return 0; }\n");
        write("Makefile", "schbench: schbench.c\n\tcp $< $@\n");
        let (_made, program) = make(dir.path()).unwrap();
        assert!(program.is_file() && !dir.path().join(NAME).exists());
        write("Makefile", "schbench:\n\techo no compiler >&2; exit 1\n");
        let error = make(dir.path()).unwrap_err().to_string();
        assert!(error.contains("no compiler"), "{error}");
    }
}
