//! Every test of the workspace, and a second look at those that fail.
//!
//! Many tests are of threads and time, and a machine that is not ours alone can
//! take a CPU from one of them for longer than any bound allows for. A test that
//! has failed is therefore run once more, alone. If it fails again, the check has
//! failed. If it passes, the check has passed and names the test as *unsteady*:
//! that is a fault to be mended, in the test or in what it tests, but it is not
//! what the last change broke.
//!
//! A target that fails otherwise, by a crash or because it was not built, gets no
//! second chance.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// How the line of a test ends that has failed.
const FAILED: &str = " ... FAILED";
/// What cargo says of a target whose run has failed.
const RERUN: &str = "error: test failed, to rerun pass `";

/// Runs all tests.
pub(crate) fn check(root: &Path) -> Result<()> {
    let output = cargo_test(root, &["--workspace", "--no-fail-fast"])?;
    if output.passed {
        return Ok(());
    }
    let targets = failed_targets(&output.lines);
    let tests = failed_tests(&output.lines);
    if targets.is_empty() || tests.is_empty() {
        bail!("cargo test failed, and not by a test");
    }
    for target in &targets {
        eprintln!("\n--- once more, alone: {} of {target}", tests.join(", "));
        let mut args = again(target);
        args.extend(["--", "--exact", "--test-threads=1"]);
        args.extend(tests.iter().map(String::as_str));
        let again = cargo_test(root, &args)?;
        if !again.passed || !ran_any(&again.lines) {
            bail!("tests of {target} failed, alone as well");
        }
    }
    eprintln!("\nunsteady, passed when run alone: {}", tests.join(", "));
    Ok(())
}

/// Runs tests that nobody waits for, which packages keep in a target of this name
/// with `test = false`. No second look: an hour later it is another question.
pub(crate) fn check_apart(root: &Path, target: &str) -> Result<()> {
    let output = cargo_test(root, &["--workspace", "--no-fail-fast", "--test", target])?;
    match output.passed && ran_any(&output.lines) {
        true => Ok(()),
        false => bail!("a test in a target '{target}' failed"),
    }
}

/// What builds a target again: the targets of that name in all packages, since one
/// package alone would have its dependencies built with other features.
fn again(target: &str) -> Vec<&str> {
    let mut words = target.split_whitespace();
    let mut args = vec!["--workspace"];
    while let Some(word) = words.next() {
        match word {
            "-p" => drop(words.next()),
            _ => args.push(word),
        }
    }
    args
}

struct Output {
    passed: bool,
    lines: Vec<String>,
}

/// Runs `cargo test`, shows what it prints, and keeps it.
fn cargo_test(root: &Path, args: &[&str]) -> Result<Output> {
    // Of the two streams cargo's own has the names of failed targets, the tests'
    // those of failed tests; only together they are in order.
    let (reader, writer) = std::io::pipe()?;
    let mut cargo = Command::new("cargo")
        .args(["test", "--locked"])
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .context("cargo test")?;
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        // Nobody may be reading any more; the verdict counts all the same.
        let _ = writeln!(std::io::stderr(), "{line}");
        lines.push(line);
    }
    let passed = cargo.wait().context("cargo test")?.success();
    Ok(Output { passed, lines })
}

/// The targets that cargo says to run again.
fn failed_targets(lines: &[String]) -> Vec<String> {
    let named = lines.iter().filter_map(|line| {
        let target = line.strip_prefix(RERUN)?.strip_suffix('`')?;
        Some(target.to_owned())
    });
    sorted(named.collect())
}

fn failed_tests(lines: &[String]) -> Vec<String> {
    let named = lines.iter().filter_map(|line| {
        let name = line.strip_prefix("test ")?.strip_suffix(FAILED)?;
        Some(name.trim_end_matches(" - should panic").to_owned())
    });
    sorted(named.collect())
}

/// Whether any test was run, so that a target that crashed before its first test
/// does not pass because it has no test of a name that failed elsewhere.
fn ran_any(lines: &[String]) -> bool {
    lines
        .iter()
        .any(|line| line.starts_with("test ") && line.ends_with(" ... ok"))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
running 3 tests
test locks::twice ... FAILED
test locks::once ... ok
test locks::never - should panic ... FAILED

failures:
    locks::twice

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
error: test failed, to rerun pass `-p giveway-bench --lib`
error: test failed, to rerun pass `-p giveway-locks --test shares`
error: 2 targets failed:
    `-p giveway-bench --lib`
    `-p giveway-locks --test shares`";

    fn printed() -> Vec<String> {
        PRINTED.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_failed_is_read_from_what_cargo_prints() {
        let targets = ["-p giveway-bench --lib", "-p giveway-locks --test shares"];
        assert_eq!(failed_targets(&printed()), targets);
        assert_eq!(failed_tests(&printed()), ["locks::never", "locks::twice"]);
    }

    #[test]
    fn a_second_look_builds_nothing_anew() {
        assert_eq!(again("-p giveway-bench --lib"), ["--workspace", "--lib"]);
        let test = ["--workspace", "--test", "shares"];
        assert_eq!(again("-p giveway-locks --test shares"), test);
    }

    #[test]
    fn a_target_without_any_test_has_not_passed() {
        assert!(ran_any(&printed()));
        let none = ["running 0 tests", "test result: ok. 0 passed"];
        assert!(!ran_any(&none.map(str::to_owned)));
    }
}
