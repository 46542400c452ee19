//! Which tests run in one process, and in which order.
//!
//! Each test has a process of its own, so it can be timed, ended and tried again by
//! itself. In a target that is marked `together` those of a module share one, because
//! they share what costs most: a guest, a package, a data set.
//!
//! The longest unit starts first, by what it took last time, so no long one is left for
//! the end. Nothing runs beside tests of a target that is marked `alone`; they come
//! before all others, while no guest is in the way. Then comes what makes the lab.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use super::pool::Job;
use super::targets::{Target, Traits};

/// What a unit takes that has not been timed yet.
const UNKNOWN: Duration = Duration::from_secs(1);
/// The same for one that boots a guest, compiles or starts a server.
const UNKNOWN_LONG: Duration = Duration::from_secs(120);

/// Tests that run in one process.
#[derive(Clone, Debug)]
pub(super) struct Unit<'a> {
    pub(super) target: &'a Target,
    /// None: the target is one test.
    pub(super) tests: Option<Vec<&'a str>>,
}

impl<'a> Unit<'a> {
    /// The tests of the unit, as they are called in reports.
    pub(super) fn names(&self) -> Vec<String> {
        let tests = self.tests.as_deref().unwrap_or(&[""]);
        tests.iter().map(|test| name(self.target, test)).collect()
    }

    /// The same unit with these tests only.
    pub(super) fn only(&self, failed: &[String]) -> Option<Unit<'a>> {
        let of = |test: &&str| failed.contains(&name(self.target, test));
        let tests = match &self.tests {
            Some(tests) => {
                let tests: Vec<&str> = tests.iter().copied().filter(|test| of(test)).collect();
                (!tests.is_empty()).then_some(Some(tests))
            }
            None => of(&"").then_some(None),
        }?;
        Some(Unit {
            target: self.target,
            tests,
        })
    }
}

impl Job for Unit<'_> {
    fn alone(&self) -> bool {
        self.target.traits.alone
    }

    fn makes(&self) -> bool {
        self.target.traits.lab
    }

    fn takes(&self) -> bool {
        self.target.traits.guest
    }
}

/// What a test is called in reports: its package, its target and its path there.
pub(super) fn name(target: &Target, test: &str) -> String {
    format!("{} {} {test}", target.package, target.name)
        .trim_end()
        .to_owned()
}

/// The units, in the order in which they are to start; of tests whose names contain one
/// of the words, if there are any.
pub(super) fn units<'a>(
    targets: &'a [Target],
    words: &[String],
    durations: &Durations,
) -> Vec<Unit<'a>> {
    let mut units = Vec::new();
    for target in targets {
        let asked = |test: &str| {
            let name = name(target, test);
            words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
        };
        let Some(tests) = &target.tests else {
            if asked("") {
                units.push(Unit {
                    target,
                    tests: None,
                });
            }
            continue;
        };
        let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
        let tests = tests.into_iter().filter(|test| asked(test));
        if target.traits.together {
            let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for test in tests {
                modules.entry(module(test)).or_default().push(test);
            }
            units.extend(modules.into_values().map(|tests| Unit {
                target,
                tests: Some(tests),
            }));
        } else {
            units.extend(tests.map(|test| Unit {
                target,
                tests: Some(vec![test]),
            }));
        }
    }
    units.sort_by_cached_key(|unit| {
        let duration = durations.of(unit);
        let Traits { alone, lab, .. } = unit.target.traits;
        (!alone, !lab, std::cmp::Reverse(duration))
    });
    units
}

/// The module of a test; none for one at the top of its target.
pub(super) fn module(test: &str) -> &str {
    test.rsplit_once("::").map_or("", |(module, _)| module)
}

/// How long each test took when it last ran here.
#[derive(Debug, Default)]
pub(super) struct Durations(BTreeMap<String, Duration>);

impl Durations {
    /// Those that are in a file. It is a memory only: without it the order is worse.
    pub(super) fn read(path: &Path) -> Durations {
        Durations::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Durations {
        let lines = text.lines().filter_map(|line| {
            let (seconds, name) = line.split_once(' ')?;
            let duration = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
            Some((name.to_owned(), duration))
        });
        Durations(lines.collect())
    }

    /// Keeps them for the next run.
    pub(super) fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, self.text())
    }

    fn text(&self) -> String {
        let lines = self.0.iter();
        lines
            .map(|(name, duration)| format!("{:.3} {name}\n", duration.as_secs_f64()))
            .collect()
    }

    pub(super) fn set(&mut self, name: &str, duration: Duration) {
        self.0.insert(name.to_owned(), duration);
    }

    fn of(&self, unit: &Unit<'_>) -> Duration {
        let known = unit.names().into_iter();
        let known: Vec<Duration> = known
            .filter_map(|name| self.0.get(&name).copied())
            .collect();
        if !known.is_empty() {
            return known.iter().sum();
        }
        let guess = match unit.target.traits.is_quick() {
            true => UNKNOWN,
            false => UNKNOWN_LONG,
        };
        unit.target.takes.unwrap_or(guess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, traits: Traits, tests: &[&str]) -> Target {
        let tests = tests.iter().map(|&test| test.to_owned()).collect();
        Target::made_up("pack", name, traits, Some(tests))
    }

    fn names(units: &[Unit<'_>]) -> Vec<String> {
        let joined = units.iter().map(|unit| unit.names().join(" + "));
        joined.collect()
    }

    fn together() -> Traits {
        Traits {
            guest: true,
            together: true,
            ..Traits::default()
        }
    }

    fn alone() -> Traits {
        Traits {
            alone: true,
            ..Traits::default()
        }
    }

    fn all() -> [Target; 4] {
        [
            target("lib", Traits::default(), &["slow", "fast"]),
            target("faults", together(), &["one", "two"]),
            target("shares", alone(), &["even"]),
            Target::made_up("pack", "step", Traits::default(), None),
        ]
    }

    #[test]
    fn alone_comes_first_and_then_the_longest() {
        let durations = Durations::parse(
            "3.5 pack lib slow\n0.1 pack lib fast\n2 pack faults one\n2 pack faults two\n\
             0.2 pack shares even\n",
        );
        let targets = all();
        let units = units(&targets, &[], &durations);
        let expected = [
            "pack shares even",
            "pack faults one + pack faults two",
            "pack lib slow",
            "pack step",
            "pack lib fast",
        ];
        assert_eq!(names(&units), expected);
    }

    #[test]
    fn tests_of_a_module_share_a_process_if_their_target_says_so() {
        let tests = ["hints::one", "tiers::two", "hints::three", "four"];
        let apart = [target("vm", Traits::default(), &tests)];
        assert_eq!(units(&apart, &[], &Durations::default()).len(), 4);
        let shared = [target("vm", together(), &tests)];
        let units = units(&shared, &[], &Durations::default());
        let expected = [
            "pack vm four",
            "pack vm hints::one + pack vm hints::three",
            "pack vm tiers::two",
        ];
        assert_eq!(names(&units), expected);
    }

    #[test]
    fn what_makes_the_lab_comes_before_guests() {
        let lab = Traits {
            lab: true,
            ..Traits::default()
        };
        let mut targets = all().to_vec();
        targets.push(target("made", lab, &["is_made"]));
        let units = units(&targets, &[], &Durations::default());
        assert_eq!(names(&units)[1], "pack made is_made");
    }

    #[test]
    fn without_a_memory_guests_start_first() {
        let targets = all();
        let units = units(&targets, &[], &Durations::default());
        assert_eq!(names(&units)[1], "pack faults one + pack faults two");
    }

    #[test]
    fn words_choose_tests_by_any_part_of_their_names() {
        let targets = all();
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            names(&units(&targets, &words, &Durations::default()))
        };
        assert_eq!(chosen(&["two"]), ["pack faults two"]);
        assert_eq!(chosen(&["step", "fast"]), ["pack lib fast", "pack step"]);
        assert_eq!(chosen(&["pack lib"]).len(), 2);
        assert_eq!(chosen(&["nothing"]).len(), 0);
    }

    #[test]
    fn what_failed_is_a_unit_again() {
        let targets = all();
        let units = units(&targets, &[], &Durations::default());
        let failed = ["pack faults two".to_owned(), "pack step".to_owned()];
        let again: Vec<Unit<'_>> = units.iter().filter_map(|unit| unit.only(&failed)).collect();
        assert_eq!(names(&again), ["pack faults two", "pack step"]);
    }

    #[test]
    fn durations_are_read_as_they_were_written() {
        let mut durations = Durations::parse("1.250 pack lib a::b\nnot a line\n");
        durations.set("pack lib c", Duration::from_millis(7));
        assert_eq!(durations.text(), "1.250 pack lib a::b\n0.007 pack lib c\n");
    }
}
