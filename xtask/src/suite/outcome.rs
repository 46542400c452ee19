//! How a unit ended: a verdict on each of its tests, from what its process printed and
//! how that ended.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use super::harness;
use super::plan::{self, Unit};
use super::process::Ended;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// In a way that a second look does not help: how.
    Lost(String),
}

/// How a unit ended, with a verdict on each of its tests and the time that it took.
pub(super) struct Outcome {
    pub(super) tests: Vec<(String, Verdict, Duration)>,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) printed: String,
    pub(super) left_behind: bool,
}

pub(super) fn lost(unit: &Unit<'_>, why: &str, elapsed: Duration) -> Outcome {
    let names = unit.names().into_iter();
    Outcome {
        tests: names
            .map(|name| (name, Verdict::Lost(why.to_owned()), elapsed))
            .collect(),
        elapsed,
        cpu: Duration::ZERO,
        printed: String::new(),
        left_behind: false,
    }
}

/// Reads the verdicts from how a unit's process has ended.
pub(super) fn outcome(unit: &Unit<'_>, ended: Ended) -> Outcome {
    let tests = match unit.tests.as_deref() {
        None => {
            let passed = ended.status.is_some_and(|status| status.success());
            vec![(unit.names().remove(0), one(&ended, passed), ended.elapsed)]
        }
        Some([_]) => {
            let passed = harness::passed(&ended.printed, 1)
                && ended.status.is_some_and(|status| status.success());
            vec![(unit.names().remove(0), one(&ended, passed), ended.elapsed)]
        }
        Some(tests) => several(unit, tests, &ended),
    };
    Outcome {
        tests,
        elapsed: ended.elapsed,
        cpu: ended.cpu,
        printed: ended.printed,
        left_behind: ended.left_behind,
    }
}

/// The exit status of Rust's harness when a test has failed.
const TEST_FAILED: i32 = 101;

/// The verdict on a process with one test.
fn one(ended: &Ended, passed: bool) -> Verdict {
    match ended.status {
        None => Verdict::Lost(format!("ended after {} s", ended.elapsed.as_secs())),
        Some(_) if passed => Verdict::Passed,
        Some(status) if status.code() == Some(TEST_FAILED) => Verdict::Failed,
        Some(status) if status.success() => Verdict::Lost("it did not run".to_owned()),
        Some(status) => Verdict::Lost(crashed(status)),
    }
}

fn crashed(status: std::process::ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("ended with {status}"),
    }
}

/// The verdicts on a process with several: what it said of each, as long as it did.
fn several(unit: &Unit<'_>, tests: &[&str], ended: &Ended) -> Vec<(String, Verdict, Duration)> {
    let said = harness::said(&ended.printed, tests);
    let at = |line: usize| ended.at.get(line).copied().unwrap_or(ended.elapsed);
    let last = said.ended.last().map_or(Duration::ZERO, |last| at(last.2));
    // A test takes from the verdict on the one before to its own.
    let took = |index: usize| {
        let before = index.checked_sub(1).map(|before| at(said.ended[before].2));
        at(said.ended[index].2).saturating_sub(before.unwrap_or_default())
    };
    let whole = ended.status.is_some_and(|status| {
        let all = said.ended.iter().all(|(_, passed, _)| *passed);
        all == status.success()
    });
    let verdict = |test: &str| {
        let why = match ended.status {
            None => format!("ended after {} s", ended.elapsed.as_secs()),
            Some(status) => crashed(status),
        };
        let found = said.ended.iter().position(|(name, _, _)| *name == test);
        match found.map(|index| (said.ended[index].1, took(index))) {
            Some((true, elapsed)) => (Verdict::Passed, elapsed),
            Some((false, elapsed)) => (Verdict::Failed, elapsed),
            None if said.running == Some(test) => {
                let elapsed = ended.elapsed.saturating_sub(last);
                (Verdict::Lost(why), elapsed)
            }
            None => (Verdict::Lost(format!("not run: {why}")), Duration::ZERO),
        }
    };
    let mut verdicts: Vec<(String, Verdict, Duration)> = tests
        .iter()
        .map(|test| {
            let (verdict, elapsed) = verdict(test);
            (plan::name(unit.target, test), verdict, elapsed)
        })
        .collect();
    let lost = |(_, verdict, _): &(String, Verdict, Duration)| matches!(verdict, Verdict::Lost(_));
    if !whole && !verdicts.iter().any(lost) {
        // All have passed, and then something else went wrong.
        let why = ended
            .status
            .map_or("it hung at its end".to_owned(), crashed);
        if let Some((_, verdict, _)) = verdicts.last_mut() {
            *verdict = Verdict::Lost(why);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::super::process;
    use super::super::targets::{Target, Traits};
    use super::*;
    use std::process::Command;

    /// A target of two tests, `one` and `two`, that share a process.
    fn target() -> Target {
        let tests = ["one", "two"].map(str::to_owned).to_vec();
        Target::made_up("pack", "faults", Traits::default(), Some(tests))
    }

    fn unit<'a>(target: &'a Target, tests: &[&'a str]) -> Unit<'a> {
        let tests = Some(tests.to_vec());
        Unit { target, tests }
    }

    /// What a process comes to that runs this script.
    fn comes_to(unit: &Unit<'_>, limit: Duration, script: &str) -> Vec<(String, Verdict)> {
        let ended = process::run(Command::new("sh").args(["-c", script]), limit).unwrap();
        let outcome = outcome(unit, ended);
        let tests = outcome.tests.into_iter();
        tests.map(|(name, verdict, _)| (name, verdict)).collect()
    }

    const LONG: Duration = Duration::from_secs(60);

    fn verdict(script: &str) -> Verdict {
        let target = target();
        comes_to(&unit(&target, &["one"]), LONG, script).remove(0).1
    }

    #[test]
    fn test_passes_fails_or_is_lost() {
        let ok = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured'";
        assert_eq!(verdict(ok), Verdict::Passed);
        assert_eq!(verdict("exit 101"), Verdict::Failed);
        let unrun = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured'";
        assert_eq!(verdict(unrun), Verdict::Lost("it did not run".to_owned()));
        let crash = Verdict::Lost("ended by signal 6".to_owned());
        assert_eq!(verdict("kill -ABRT $$"), crash);
        // It says so, and ends otherwise.
        assert_ne!(verdict(&format!("{ok}; exit 3")), Verdict::Passed);
    }

    #[test]
    fn test_that_hangs_is_ended() {
        let target = target();
        let unit = unit(&target, &["one"]);
        let limit = Duration::from_millis(100);
        let verdicts = comes_to(&unit, limit, "sleep 1000");
        assert_eq!(verdicts[0].1, Verdict::Lost("ended after 0 s".to_owned()));
    }

    #[test]
    fn tests_of_one_process_have_verdicts_of_their_own() {
        let target = target();
        let unit = unit(&target, &["one", "two"]);
        let script = "echo 'test one ... ok'; echo 'test two ... FAILED'; exit 101";
        let verdicts = comes_to(&unit, LONG, script);
        let expected = [
            ("pack faults one".to_owned(), Verdict::Passed),
            ("pack faults two".to_owned(), Verdict::Failed),
        ];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn tests_after_a_crash_have_not_run() {
        let target = target();
        let unit = unit(&target, &["one", "two"]);
        let verdicts = comes_to(&unit, LONG, "printf 'test one ... '; kill -SEGV $$");
        let crash = Verdict::Lost("ended by signal 11".to_owned());
        assert_eq!(verdicts[0].1, crash);
        let unrun = Verdict::Lost("not run: ended by signal 11".to_owned());
        assert_eq!(verdicts[1].1, unrun);
    }

    #[test]
    fn process_that_fails_after_its_tests_has_not_passed() {
        let target = target();
        let unit = unit(&target, &["one", "two"]);
        let script = "echo 'test one ... ok'; echo 'test two ... ok'; exit 1";
        let verdicts = comes_to(&unit, LONG, script);
        assert!(matches!(verdicts[1].1, Verdict::Lost(_)), "{verdicts:?}");
    }
}
