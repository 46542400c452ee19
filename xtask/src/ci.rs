//! The whole check, in the order in which it is cheapest to fail.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// A step: its name and the command line that does it.
struct Step {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// A program without which the step cannot run, and how to get it. Only
    /// checks of form may be skipped, and never silently.
    optional: Option<(&'static str, &'static str)>,
}

const STEPS: &[Step] = &[
    Step {
        name: "format",
        program: "cargo",
        args: &["fmt", "--all", "--check"],
        env: &[],
        optional: Some((
            "cargo-fmt",
            "rustup component add rustfmt, or apt-get install rustfmt-web",
        )),
    },
    Step {
        name: "tidy",
        program: "cargo",
        args: &["xtask", "tidy"],
        env: &[],
        optional: None,
    },
    Step {
        name: "licences",
        program: "cargo",
        args: &["xtask", "licenses"],
        env: &[],
        optional: None,
    },
    Step {
        name: "lints",
        program: "cargo",
        args: &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        env: &[],
        optional: Some(("cargo-clippy", "rustup component add clippy")),
    },
    Step {
        // `--all-targets` leaves out those that no test run asks for.
        name: "night lints",
        program: "cargo",
        args: &[
            "clippy",
            "--locked",
            "--workspace",
            "--test",
            "long",
            "--test",
            "kernels",
            "--",
            "-D",
            "warnings",
        ],
        env: &[],
        optional: Some(("cargo-clippy", "rustup component add clippy")),
    },
    Step {
        name: "documentation",
        program: "cargo",
        args: &[
            "doc",
            "--locked",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        optional: None,
    },
    Step {
        name: "models",
        program: "cargo",
        args: &["xtask", "models"],
        env: &[],
        optional: None,
    },
    Step {
        name: "tests",
        program: "cargo",
        args: &["xtask", "tests"],
        env: &[],
        optional: None,
    },
    Step {
        name: "postgres",
        program: "bash",
        args: &["postgres/test.sh"],
        env: &[],
        optional: None,
    },
];

/// Runs every step, also after one has failed, and sums up.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut summary = Vec::new();
    for step in STEPS {
        eprintln!("\n=== {} ===", step.name);
        let start = Instant::now();
        let verdict = step.run(root);
        summary.push((step.name, verdict, start.elapsed()));
    }
    eprintln!("\n=== summary ===");
    for (name, verdict, elapsed) in &summary {
        eprintln!("{name:<14} {:>7}  {}", seconds(*elapsed), verdict.text());
    }
    if summary
        .iter()
        .any(|(_, verdict, _)| matches!(verdict, Verdict::Failed))
    {
        bail!("the check failed");
    }
    Ok(())
}

enum Verdict {
    Passed,
    Failed,
    Skipped(&'static str, &'static str),
}

impl Verdict {
    fn text(&self) -> String {
        match self {
            Verdict::Passed => "passed".into(),
            Verdict::Failed => "FAILED".into(),
            Verdict::Skipped(program, remedy) => format!("SKIPPED: no {program} here; {remedy}"),
        }
    }
}

impl Step {
    fn run(&self, root: &Path) -> Verdict {
        if let Some((program, remedy)) = self.optional
            && !runs(program)
        {
            return Verdict::Skipped(program, remedy);
        }
        let status = Command::new(self.program)
            .args(self.args)
            .envs(self.env.iter().copied())
            .current_dir(root)
            .status();
        match status {
            Ok(status) if status.success() => Verdict::Passed,
            _ => Verdict::Failed,
        }
    }
}

fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

fn seconds(elapsed: Duration) -> String {
    format!("{} s", elapsed.as_secs())
}
