//! What a test program prints that was built with Rust's own harness.
//!
//! Two outputs are read. `PROGRAM --list`:
//!
//! ```text
//! locks::twice: test
//! 1 tests, 0 benchmarks
//! ```
//!
//! and that of a run. A program of several tests is run with `--test-threads=1`, so
//! lines come in order, and the last of them may be that of a test which never ended:
//!
//! ```text
//! test locks::twice ... ok
//! test locks::never - should panic ... FAILED
//! test locks::hangs ...
//!
//! failures:
//!     locks::never
//!
//! test result: FAILED. 1 passed; 1 failed; 0 ignored; ...
//! ```
//!
//! What a test prints past the harness stands between its name and its verdict. So the
//! last lines decide where there are any, and a verdict may be a line of its own.
//!
//! A target with `harness = false` prints neither. It is one test, whose verdict is its
//! exit status.

/// The tests that a program lists; `None` if it is not the harness that answers.
pub(super) fn listed(printed: &str) -> Option<Vec<String>> {
    let last = printed.lines().rfind(|line| !line.is_empty())?;
    // `1 test` and `2 tests`.
    if !last.contains(" test") || !last.contains(" benchmark") {
        return None;
    }
    let tests = printed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Some(tests.map(str::to_owned).collect())
}

/// What a program of several tests has printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said<'a> {
    /// Each test that has ended, whether it passed, and the number of the line.
    pub(super) ended: Vec<(&'a str, bool, usize)>,
    /// The test that had begun last, and has not ended.
    pub(super) running: Option<&'a str>,
}

/// Reads what a program has printed that was to run these tests.
pub(super) fn said<'a>(printed: &'a str, tests: &[&'a str]) -> Said<'a> {
    let mut said = Said::default();
    for (number, line) in printed.lines().enumerate() {
        let begun = line.strip_prefix("test ");
        let verdict = match begun.and_then(|line| line.split_once(" ... ")) {
            Some((name, verdict)) => {
                said.running = Some(name.trim_end_matches(" - should panic"));
                verdict
            }
            None => line,
        };
        let passed = match verdict {
            "ok" => true,
            "FAILED" => false,
            _ => continue,
        };
        if let Some(name) = said.running.take() {
            said.ended.push((name, passed, number));
        }
    }
    if let Some(failed) = failures(printed, tests.len()) {
        let number = printed.lines().count().saturating_sub(1);
        said.running = None;
        for test in tests {
            let passed = !failed.contains(test);
            match said.ended.iter_mut().find(|(name, _, _)| name == test) {
                Some((_, known, _)) => *known = passed,
                None => said.ended.push((test, passed, number)),
            }
        }
    }
    said
}

/// The tests that failed of so many, by the last lines; `None` if those are not there, or
/// tell of another number.
fn failures(printed: &str, tests: usize) -> Option<Vec<&str>> {
    let (_, counted) = printed.rsplit_once("\ntest result: ")?;
    let number = |what: &str| -> Option<usize> {
        let (before, _) = counted.split_once(what)?;
        before.trim_end().rsplit(' ').next()?.parse().ok()
    };
    let (passed, failed) = (number("passed;")?, number("failed;")?);
    let names: Vec<&str> = match printed.rsplit_once("\nfailures:\n") {
        Some((_, list)) => {
            let lines = list.lines().map_while(|line| line.strip_prefix("    "));
            lines.collect()
        }
        None => Vec::new(),
    };
    (passed + failed == tests && names.len() == failed).then_some(names)
}

/// Whether exactly `expected` tests passed and none failed, by the last lines. A test
/// that is not there, or is ignored, has not passed.
pub(super) fn passed(printed: &str, expected: usize) -> bool {
    let counted = format!("test result: ok. {expected} passed; 0 failed; 0 ignored;");
    let mut lines = printed.lines().rev();
    lines.any(|line| line.starts_with(&counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_tests_is_read() {
        let printed = "locks::twice: test\nlocks::store: benchmark\n\n1 test, 1 benchmark\n";
        assert_eq!(listed(printed).unwrap(), ["locks::twice"]);
        assert_eq!(listed("0 tests, 0 benchmarks\n").unwrap().len(), 0);
    }

    #[test]
    fn target_without_the_harness_lists_nothing() {
        assert_eq!(listed(""), None);
        assert_eq!(listed("step region: 3 of 9 instructions ... ok\n"), None);
    }

    #[test]
    fn tests_end_in_order_until_one_does_not() {
        let printed = "\nrunning 3 tests\ntest locks::twice ... ok\n\
            test locks::never - should panic ... FAILED\ntest locks::hangs ... ";
        let said = said(printed, &["locks::twice", "locks::never", "locks::hangs"]);
        let ended = [("locks::twice", true, 2), ("locks::never", false, 3)];
        assert_eq!(said.ended, ended);
        assert_eq!(said.running, Some("locks::hangs"));
    }

    #[test]
    fn what_a_test_prints_hides_no_verdict() {
        let printed = "test a ... lab: making the image ...\nlab: ... made\nok\n\
            test b ... half a lineok\ntest c ... FAILED\n\nfailures:\n\n---- c stdout ----\n\
            failures:\n\n\nfailures:\n    c\n\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured\n";
        let said = said(printed, &["a", "b", "c"]);
        let verdicts: Vec<(&str, bool)> = (said.ended.iter())
            .map(|(name, passed, _)| (*name, *passed))
            .collect();
        assert_eq!(verdicts.len(), 3, "{verdicts:?}");
        assert!(verdicts.contains(&("a", true)) && verdicts.contains(&("b", true)));
        assert!(verdicts.contains(&("c", false)));
        assert_eq!(said.running, None);
    }

    #[test]
    fn last_lines_of_other_tests_decide_nothing() {
        let printed = "test a ... \ntest result: ok. 7 passed; 0 failed; 0 ignored\n";
        assert_eq!(said(printed, &["a"]).ended, []);
    }

    #[test]
    fn test_that_did_not_run_has_not_passed() {
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out";
        let none = one.replace("1 passed", "0 passed");
        let ignored = one.replace("1 passed; 0 failed; 0", "0 passed; 0 failed; 1");
        assert!(passed(one, 1));
        assert!(!passed(one, 2));
        assert!(!passed(&none, 1));
        assert!(!passed(&ignored, 1));
        assert!(!passed("", 1));
    }
}
