//! The model checkers: real code, built over atomics that loom and shuttle can
//! see.
//!
//! Each of them is a build of its own (`--cfg`), so each keeps its own target
//! directory; in a common one they would undo each other's work, and that of
//! every ordinary build. What the models say is in `docs/build/locks.md`,
//! `docs/build/preempt.md` and `docs/build/tasks.md`. They run beside all other tests.

use anyhow::{Result, bail};

use super::targets::Build;

/// Models of one crate that one checker runs.
struct Models {
    package: &'static str,
    /// The checker and the target.
    target: &'static str,
    /// What the name of each contains; other tests there take the ordinary build.
    tests: &'static str,
}

const MODELS: [Models; 7] = [
    Models {
        package: "giveway-hints",
        target: "loom:lib",
        tests: "model",
    },
    Models {
        package: "giveway-locks",
        target: "loom:lib",
        tests: "",
    },
    Models {
        package: "giveway-locks",
        target: "loom:loom",
        tests: "",
    },
    Models {
        package: "giveway-preempt",
        target: "loom:lib",
        tests: "models",
    },
    Models {
        package: "giveway-tasks",
        target: "loom:lib",
        tests: "models",
    },
    Models {
        package: "giveway-locks",
        target: "shuttle:shuttle",
        tests: "",
    },
    Models {
        package: "giveway-tasks",
        target: "shuttle:lib",
        tests: "shuttle_tests",
    },
];

/// One build for each checker, with all targets that have models.
pub(super) fn builds() -> [Build; 2] {
    ["loom", "shuttle"].map(|checker| {
        let mut args = vec!["--release"];
        for models in &MODELS {
            let Some(target) = models.of(checker) else {
                continue;
            };
            let target = match target {
                "lib" => vec!["--lib"],
                test => vec!["--test", test],
            };
            for more in [vec!["--package", models.package], target] {
                if !args.windows(more.len()).any(|there| there == more) {
                    args.extend(more);
                }
            }
        }
        Build {
            args,
            cfg: Some(checker),
            ..Build::default()
        }
    })
}

impl Models {
    /// Their target, if this checker runs them.
    fn of(&self, checker: &str) -> Option<&'static str> {
        self.target.strip_prefix(checker)?.strip_prefix(':')
    }
}

/// Whether a test of a build for a checker is a model.
pub(super) fn is_model(package: &str, target: &str, test: &str) -> bool {
    let models = MODELS.iter();
    let mut models = models.filter(|models| models.package == package && models.target == target);
    models.any(|models| test.contains(models.tests))
}

/// # Errors
/// Models are meant that are not among these packages' targets: they have another name.
pub(super) fn all_there<'a>(found: impl Iterator<Item = (&'a str, &'a str)>) -> Result<()> {
    let found: Vec<(&str, &str)> = found.collect();
    for models in &MODELS {
        if !found.contains(&(models.package, models.target)) {
            bail!(
                "{} has no models in {}; where they are now belongs into \
                 xtask/src/suite/models.rs",
                models.package,
                models.target
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_build_for_each_checker() {
        let [loom, shuttle] = builds();
        assert_eq!(loom.cfg, Some("loom"));
        let packages = |build: &Build| {
            let args = build.args.iter();
            args.filter(|arg| **arg == "--package").count()
        };
        assert_eq!((packages(&loom), packages(&shuttle)), (4, 2));
        assert_eq!(loom.args.iter().filter(|arg| **arg == "--lib").count(), 1);
        assert!(
            shuttle
                .args
                .ends_with(&["--package", "giveway-tasks", "--lib"])
        );
    }

    #[test]
    fn models_are_told_from_other_tests() {
        assert!(is_model("giveway-tasks", "loom:lib", "models::a_slot"));
        assert!(!is_model("giveway-tasks", "loom:lib", "stride::order"));
        assert!(is_model("giveway-locks", "loom:loom", "reordering"));
        assert!(!is_model("giveway-locks", "shuttle:lib", "rules::order"));
    }

    #[test]
    fn models_that_have_gone_are_missed() {
        let all = || MODELS.iter().map(|models| (models.package, models.target));
        assert!(all_there(all()).is_ok());
        let error = all_there(all().skip(1)).unwrap_err().to_string();
        assert!(error.contains("giveway-hints"), "{error}");
    }
}
