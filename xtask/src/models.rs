//! The model checkers: real code, built over atomics that loom and shuttle can
//! see.
//!
//! Each of them is a build of its own (`--cfg`), so each keeps its own target
//! directory; in a common one they would undo each other's work, and that of
//! every ordinary build. What the models say is in `docs/locks.md`,
//! `docs/preempt.md` and `docs/tasks.md`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Models of one crate that one checker runs.
struct Models {
    checker: &'static str,
    package: &'static str,
    /// What of the package, and which tests there.
    tests: &'static [&'static str],
}

const MODELS: [Models; 6] = [
    Models {
        checker: "loom",
        package: "giveway-hints",
        tests: &["--lib", "model"],
    },
    Models {
        checker: "loom",
        package: "giveway-locks",
        tests: &["--lib", "--test", "loom"],
    },
    Models {
        checker: "loom",
        package: "giveway-preempt",
        tests: &["--lib", "models"],
    },
    Models {
        checker: "loom",
        package: "giveway-tasks",
        tests: &["--lib", "models"],
    },
    Models {
        checker: "shuttle",
        package: "giveway-locks",
        tests: &["--test", "shuttle"],
    },
    Models {
        checker: "shuttle",
        package: "giveway-tasks",
        tests: &["--lib", "crowds"],
    },
];

/// Runs all models, also after one of them has failed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for models in &MODELS {
        if !models.run(root)? {
            failed.push(format!("{} in {}", models.checker, models.package));
        }
    }
    if !failed.is_empty() {
        bail!("models: {} found something", failed.join(" and "));
    }
    println!("models: nothing to complain about");
    Ok(())
}

impl Models {
    fn run(&self, root: &Path) -> Result<bool> {
        let status = Command::new("cargo")
            .args(["test", "--locked", "--release", "--no-fail-fast"])
            .args(["--package", self.package])
            .arg("--target-dir")
            .arg(root.join("target").join(self.checker))
            .args(self.tests)
            .env("RUSTFLAGS", format!("--cfg {}", self.checker))
            .current_dir(root)
            .status()
            .context("cargo test")?;
        Ok(status.success())
    }
}
