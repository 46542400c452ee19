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
//! test result: FAILED. 1 passed; 1 failed; 0 ignored; ...
//! ```
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

/// A line of a run: the test, and whether it passed; `None` for a test that is running.
pub(super) fn test_line(line: &str) -> Option<(&str, Option<bool>)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let passed = match verdict {
        "ok" => Some(true),
        "FAILED" => Some(false),
        _ => None,
    };
    Some((name.trim_end_matches(" - should panic"), passed))
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
    fn line_of_a_test_has_its_name_and_verdict() {
        let ok = test_line("test locks::twice ... ok");
        assert_eq!(ok, Some(("locks::twice", Some(true))));
        let failed = test_line("test locks::never - should panic ... FAILED");
        assert_eq!(failed, Some(("locks::never", Some(false))));
        let running = test_line("test locks::hangs ... ");
        assert_eq!(running, Some(("locks::hangs", None)));
        assert_eq!(test_line("running 3 tests"), None);
        assert_eq!(test_line("test result: ok. 1 passed; 0 failed"), None);
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
