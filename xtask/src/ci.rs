//! The checks: all of them, or those that take minutes, boot no guest and start no server.
//!
//! ```text
//! cargo xtask check    format, tidy, licences, programs, lints, quick tests
//! cargo xtask ci       format, tidy, licences, and all tests, among which are
//!   cargo xtask lints    programs, lints, lints of the demo, packages
//! ```
//!
//! Lints and documentation are of what has been compiled for the tests ([`lints`]), so in
//! `ci` they are a job beside the tests.
//!
//! A check that cannot run has not passed. So programs that a step takes, and those
//! without which a test passes over what it should look at, are looked for before the
//! first step: one that is missing ends the check with the remedy.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::lints;

/// A step: its name and the command line that does it.
struct Step {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

/// What steps and tests take beside the compiler. `scripts/setup.sh` installs all of
/// it, but for a Rust toolchain that neither rustup nor Debian has installed.
const PROGRAMS: &[&str] = &[
    "cargo-fmt",
    "cargo-clippy",
    "clippy-driver",
    "db_bench",
    "fish",
    "lintian",
    "mariadbd",
    "memcached",
    "pgbouncer",
    "python3",
    "sqlite3",
    "systemd-analyze",
    "zsh",
];

/// What takes seconds.
const FIRST: &[Step] = &[
    Step {
        name: "format",
        program: "cargo",
        args: &["fmt", "--all", "--check"],
    },
    Step {
        name: "tidy",
        program: "cargo",
        args: &["xtask", "tidy"],
    },
    Step {
        name: "licences",
        program: "cargo",
        args: &["xtask", "licenses"],
    },
];

/// What compiles and does not run, in the order in which it is cheapest to fail.
const LINTS: &[Step] = &[
    Step {
        // What tests run, and benchmarks.
        name: "programs",
        program: "cargo",
        args: &[
            "test",
            "--locked",
            "--no-run",
            "--workspace",
            "--all-targets",
        ],
    },
    Step {
        // `--all-targets` leaves out those that no test run asks for.
        name: "night programs",
        program: "cargo",
        args: &[
            "test",
            "--locked",
            "--no-run",
            "--workspace",
            "--test",
            "long",
            "--test",
            "kernels",
            "--test",
            "cfl_kernel",
            "--test",
            "debug_kernel",
            "--test",
            "uintr",
            "--test",
            "mariadb",
        ],
    },
    Step {
        name: "lints",
        program: "cargo",
        args: &["xtask", "records"],
    },
    Step {
        // What `make demo` compiles.
        name: "demo lints",
        program: "cargo",
        args: &[
            "clippy",
            "--locked",
            "-p",
            "giveway-bench",
            "--no-default-features",
            "--",
            "-D",
            "warnings",
        ],
    },
    Step {
        name: "packages",
        program: "cargo",
        args: &["xtask", "publish", "--offline"],
    },
];

/// Those lints that are quick. The others build much anew: dependencies with other
/// features, packages' programs.
const QUICK: [&str; 3] = ["programs", "night programs", "lints"];

/// Those that compile for themselves, and beside others therefore elsewhere: cargo works in
/// one directory at a time.
const APART: [&str; 2] = ["demo lints", "packages"];

const TESTS: Step = Step {
    name: "tests",
    program: "cargo",
    args: &["xtask", "tests", "--lints"],
};

/// In place of all tests when it has to be quick.
const QUICK_TESTS: Step = Step {
    name: "tests",
    program: "cargo",
    args: &["xtask", "tests", "--quick"],
};

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// How many compilers at once [default: as many as there are CPUs]
    #[arg(long, short)]
    jobs: Option<usize>,
}

/// Runs everything.
///
/// # Errors
/// A program is missing, or a step failed.
pub(crate) fn run(root: &Path) -> Result<()> {
    run_all(root, None, FIRST.iter().chain([&TESTS]))
}

/// The steps that are quick.
fn quick() -> impl Iterator<Item = &'static Step> {
    let lints = LINTS.iter().filter(|step| QUICK.contains(&step.name));
    FIRST.iter().chain(lints).chain([&QUICK_TESTS])
}

/// Runs the quick ones.
///
/// # Errors
/// A program is missing, or a step failed.
pub(crate) fn run_quick(root: &Path) -> Result<()> {
    run_all(root, None, quick())
}

/// Runs what compiles and does not run.
///
/// # Errors
/// A program is missing, or a step failed.
pub(crate) fn run_lints(root: &Path, args: &LintArgs) -> Result<()> {
    run_all(root, args.jobs, LINTS.iter())
}

/// Looks at what has been compiled for the tests.
///
/// # Errors
/// There is something to complain about, or nothing has been compiled.
pub(crate) fn run_records(root: &Path, args: &LintArgs) -> Result<()> {
    let jobs = args
        .jobs
        .or_else(|| env::var("CARGO_BUILD_JOBS").ok()?.parse().ok());
    lints::check(root, &root.join(target()), jobs)
}

/// Where cargo compiles.
fn target() -> OsString {
    env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())
}

/// Runs these steps, also after one has failed, and sums up.
fn run_all(
    root: &Path,
    jobs: Option<usize>,
    steps: impl Iterator<Item = &'static Step>,
) -> Result<()> {
    if let Some(what) = complaint(&missing(runs)) {
        bail!(what);
    }
    let mut summary = Vec::new();
    for step in steps {
        eprintln!("\n=== {} ===", step.name);
        let start = Instant::now();
        let passed = step.passes(root, jobs);
        summary.push((step.name, passed, start.elapsed()));
    }
    eprintln!("\n=== summary ===");
    for (name, passed, elapsed) in &summary {
        let verdict = if *passed { "passed" } else { "FAILED" };
        eprintln!("{name:<14} {:>7}  {verdict}", seconds(*elapsed));
    }
    if summary.iter().any(|(_, passed, _)| !passed) {
        bail!("the check failed");
    }
    Ok(())
}

/// Those programs that are not here.
fn missing(here: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let programs = PROGRAMS.iter().copied();
    programs.filter(|program| !here(program)).collect()
}

/// What is said of them.
fn complaint(missing: &[&str]) -> Option<String> {
    (!missing.is_empty()).then(|| {
        format!(
            "nothing was checked, for these programs are missing: {}; \
             run scripts/setup.sh, which installs them",
            missing.join(", ")
        )
    })
}

impl Step {
    fn passes(&self, root: &Path, jobs: Option<usize>) -> bool {
        let status = self.command(root, jobs).and_then(|mut step| step.status());
        status.is_ok_and(|status| status.success())
    }

    fn command(&self, root: &Path, jobs: Option<usize>) -> io::Result<Command> {
        // Another command of this program is this program: cargo would have to see first
        // whether it is still up to date.
        let (mut command, args) = match self.args {
            ["xtask", args @ ..] => (Command::new(env::current_exe()?), args),
            args => (Command::new(self.program), args),
        };
        command.args(args).env("PATH", path()).current_dir(root);
        if APART.contains(&self.name) {
            command.env("CARGO_TARGET_DIR", root.join(target()).join("lints"));
        }
        if self.args[0] == "test" {
            command.env(lints::WRAPPER, lints::recorder(root));
        }
        if let Some(jobs) = jobs {
            command.env("CARGO_BUILD_JOBS", jobs.to_string());
        }
        Ok(command)
    }
}

/// Where programs are. Debian has servers in directories that only root has in PATH.
pub(crate) fn path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::join_paths(env::split_paths(&path).chain(servers)).unwrap_or(path)
}

fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .env("PATH", path())
        .output()
        .is_ok_and(|output| output.status.success())
}

fn seconds(elapsed: Duration) -> String {
    format!("{} s", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Output;

    use super::*;

    #[test]
    fn a_missing_program_ends_the_check_with_the_remedy() {
        assert_eq!(complaint(&missing(|_| true)), None);
        let without = missing(|program| program != "cargo-clippy");
        assert_eq!(without, ["cargo-clippy"]);
        let said = complaint(&without).unwrap();
        assert!(said.contains("cargo-clippy"), "{said}");
        assert!(said.contains("scripts/setup.sh"), "{said}");
        // No step of cargo's own comes without its program.
        for step in FIRST.iter().chain(LINTS) {
            let cargo_s = ["fmt", "clippy"].contains(&step.args[0]);
            let program = format!("cargo-{}", step.args[0]);
            assert!(
                !cargo_s || PROGRAMS.contains(&program.as_str()),
                "{program}"
            );
        }
    }

    fn names(steps: impl Iterator<Item = &'static Step>) -> Vec<&'static str> {
        steps.map(|step| step.name).collect()
    }

    #[test]
    fn quick_check_has_formatting_lints_tidy_and_quick_tests() {
        let expected = [
            "format",
            "tidy",
            "licences",
            "programs",
            "night programs",
            "lints",
            "tests",
        ];
        assert_eq!(names(quick()), expected);
        assert!(QUICK_TESTS.args.contains(&"--quick"));
        assert!(QUICK.iter().all(|name| names(LINTS.iter()).contains(name)));
    }

    #[test]
    fn whole_check_has_lints_beside_the_tests() {
        assert!(TESTS.args.contains(&"--lints") && !TESTS.args.contains(&"--quick"));
    }

    #[test]
    fn what_tests_take_is_recorded_and_the_rest_is_compiled_elsewhere() {
        let root = Path::new("/tree");
        let variable = |step: &Step, jobs, name: &str| {
            let command = step.command(root, jobs).unwrap();
            let mut set = command.get_envs().filter(|(key, _)| *key == name);
            set.next()
                .and_then(|(_, value)| value)
                .map(|value| value.to_owned())
        };
        let of = |step| {
            let recorder = variable(step, None, lints::WRAPPER);
            let target = variable(step, None, "CARGO_TARGET_DIR");
            let elsewhere = target.is_some_and(|target| Path::new(&target).ends_with("lints"));
            (recorder.is_some(), elsewhere)
        };
        let all: Vec<_> = LINTS.iter().map(|step| (step.name, of(step))).collect();
        let expected = [
            ("programs", (true, false)),
            ("night programs", (true, false)),
            ("lints", (false, false)),
            ("demo lints", (false, true)),
            ("packages", (false, true)),
        ];
        assert_eq!(all, expected);
        assert_eq!(of(&TESTS), (false, false));
        let jobs = variable(&LINTS[0], Some(1), "CARGO_BUILD_JOBS");
        assert_eq!(jobs.unwrap(), "1");
    }

    /// Runs the set-up on a machine that has all Debian packages but those that
    /// `lacks` matches, and `programs` beside the real ones, as shell scripts.
    fn set_up(lacks: &str, programs: &[(&str, &str)]) -> Output {
        set_up_for("test", lacks, programs)
    }

    /// The same, for one of the sets.
    fn set_up_for(set: &str, lacks: &str, programs: &[(&str, &str)]) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let query = format!("case $4 in {lacks}) exit 1;; esac; echo installed");
        let always = [
            ("dpkg-query", query.as_str()),
            ("apt-get", "echo apt-get \"$@\""),
            ("sudo", "exec \"$@\""),
            ("rustc", "echo rustc 1.95.0"),
        ];
        for (name, script) in always.iter().chain(programs) {
            let path = dir.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let setup = crate::root().join("scripts/setup.sh");
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let mut command = Command::new("sh");
        command
            .arg(setup)
            .arg(set)
            .env("PATH", path)
            .env("HOME", dir.path());
        command.output().unwrap()
    }

    fn said(output: &Output) -> String {
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        String::from_utf8(text).unwrap()
    }

    /// A cargo without its linter, until something has made the file `has-clippy`.
    const NO_CLIPPY: (&str, &str) = ("cargo", "[ $1 != clippy ] || [ -e $HOME/has-clippy ]");

    #[test]
    fn set_up_adds_the_linter_to_rustup_s_toolchain() {
        let rustup = ("rustup", "echo rustup \"$@\"; touch $HOME/has-clippy");
        let output = set_up("rustc-web", &[NO_CLIPPY, rustup]);
        let said = said(&output);
        assert!(
            said.contains("rustup component add clippy rustfmt"),
            "{said}"
        );
        assert!(output.status.success(), "{said}");
    }

    #[test]
    fn set_up_installs_debian_s_linter_beside_debian_s_rust() {
        let apt = ("apt-get", "echo apt-get \"$@\"; touch $HOME/has-clippy");
        let no_rustup = ("rustup", "exit 1");
        let output = set_up("*clippy", &[NO_CLIPPY, apt, no_rustup]);
        let said = said(&output);
        assert!(said.contains("rust-web-clippy"), "{said}");
        assert!(output.status.success(), "{said}");
    }

    #[test]
    fn set_up_fails_where_it_cannot_install_the_linter() {
        let no_rustup = ("rustup", "exit 1");
        let output = set_up("rustc-web", &[NO_CLIPPY, no_rustup]);
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("clippy") && said.contains("remedy"), "{said}");
    }

    #[test]
    fn a_set_installs_what_it_takes_and_nothing_of_the_larger_ones() {
        let installs = |set| said(&set_up_for(set, "*", &[("cargo", "true")]));
        let (build, demo, test) = (installs("build"), installs("demo"), installs("test"));
        let all = ["clang-19", "mmdebstrap", "mariadb-server-core"];
        let has = |said: &str| all.map(|package| said.contains(package));
        assert_eq!(has(&build), [true, false, false], "{build}");
        assert_eq!(has(&demo), [true, true, false], "{demo}");
        assert_eq!(has(&test), [true, true, true], "{test}");
        let wrong = set_up_for("all", "*", &[("cargo", "true")]);
        assert!(!wrong.status.success());
        assert!(said(&wrong).contains("remedy: write build, package, demo, test or mariadb"));
    }

    #[test]
    fn a_build_needs_no_linter() {
        let output = set_up_for("build", "rustc-web", &[NO_CLIPPY, ("rustup", "exit 1")]);
        assert_eq!(said(&output), "");
        assert!(output.status.success());
    }

    #[test]
    fn set_up_does_nothing_where_everything_is() {
        let output = set_up("rustc-web", &[("cargo", "true"), ("rustup", "exit 1")]);
        assert_eq!(said(&output), "");
        assert!(output.status.success());
    }
}
