//! The lock's model checkers: its real code, built over atomics that loom and
//! shuttle can see.
//!
//! Each of them is a build of its own (`--cfg`), so each keeps its own target
//! directory; in a common one they would undo each other's work, and that of
//! every ordinary build. What the models say is in `docs/locks.md`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A checker, and the targets of `giveway-locks` that are for it.
struct Checker {
    name: &'static str,
    targets: &'static [&'static str],
}

const CHECKERS: [Checker; 2] = [
    Checker {
        name: "loom",
        targets: &["--lib", "--test", "loom"],
    },
    Checker {
        name: "shuttle",
        targets: &["--test", "shuttle"],
    },
];

/// Runs every model of both, also those of the second when one of the first has
/// failed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut failed = Vec::new();
    for checker in &CHECKERS {
        if !checker.run(root)? {
            failed.push(checker.name);
        }
    }
    if !failed.is_empty() {
        bail!("models: {} found something", failed.join(" and "));
    }
    println!("models: nothing to complain about");
    Ok(())
}

impl Checker {
    fn run(&self, root: &Path) -> Result<bool> {
        let status = Command::new("cargo")
            .args(["test", "--locked", "--release", "--package"])
            .args(["giveway-locks", "--no-fail-fast"])
            .arg("--target-dir")
            .arg(root.join("target").join(self.name))
            .args(self.targets)
            .env("RUSTFLAGS", format!("--cfg {}", self.name))
            .current_dir(root)
            .status()
            .context("cargo test")?;
        Ok(status.success())
    }
}
