//! The sanitizers: the tests of the packages that share memory without locks or switch
//! stacks, compiled so that every access is watched, those of the standard library too.
//!
//! | sanitizer | cfg | finds |
//! | --- | --- | --- |
//! | ThreadSanitizer | `tsan` | accesses that nothing orders; use after free |
//! | AddressSanitizer | `asan` | use after free and return, out of bounds; leaks |
//!
//! The compiler is the one that builds everything else, told by `RUSTC_BOOTSTRAP` to take
//! `-Zsanitizer` and `-Zbuild-std`. A nightly one would be a second toolchain of every
//! developer, another standard library and other generated code than what is shipped, and
//! it would fail when it changes. The standard library has to be compiled, too: mutexes,
//! channels and `Arc` are in it, and an access that is not watched orders nothing. Its source is
//! a component of rustup's, which is added if it is missing.
//!
//! All tests of [`PACKAGES`] run, but for [`LEFT_OUT`]. No report is suppressed: there is
//! no file of suppressions, and whoever adds one writes the reason next to each line.
//! A process that a report was made of ends with [`FOUND`], so its test is lost and
//! gets no second look.
//!
//! Both were seen to find what they are for: `docs/build/preempt.md` lists the defects.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;

use super::targets::{self, Build, Target};

/// Whose tests run.
const PACKAGES: [&str; 2] = ["giveway-preempt", "giveway-txn"];

/// The exit status of a process that a sanitizer has found something in.
const FOUND: u8 = 66;

/// The platform, with its name given: then flags are not of build scripts, which are run
/// by an ordinary program, the compiler.
const PLATFORM: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sanitizer {
    /// Data races
    Thread,
    /// Uses of memory that is not there, and leaks
    Address,
}

impl Sanitizer {
    pub(crate) const ALL: [Sanitizer; 2] = [Sanitizer::Thread, Sanitizer::Address];

    fn cfg(self) -> &'static str {
        match self {
            Sanitizer::Thread => "tsan",
            Sanitizer::Address => "asan",
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Sanitizer::Thread => &["-Zsanitizer=thread"],
            // It walks stacks by frame pointers.
            Sanitizer::Address => &["-Zsanitizer=address", "-Cforce-frame-pointers=yes"],
        }
    }

    /// The variable that its options are in.
    fn variable(self) -> &'static str {
        match self {
            Sanitizer::Thread => "TSAN_OPTIONS",
            Sanitizer::Address => "ASAN_OPTIONS",
        }
    }

    /// The library that its programs are linked with, as a toolchain has it.
    fn runtime(self) -> &'static str {
        match self {
            Sanitizer::Thread => "_rt.tsan.a",
            Sanitizer::Address => "_rt.asan.a",
        }
    }

    fn build(self) -> Build {
        let mut args = vec!["-Zbuild-std", "--target", PLATFORM, "--tests"];
        for package in PACKAGES {
            args.extend(["--package", package]);
        }
        Build {
            args,
            cfg: Some(self.cfg()),
            unstable: self.flags(),
        }
    }

    /// What its processes find in their environment.
    fn environment(self) -> Vec<(&'static str, OsString)> {
        // At once: some tests kill the processes that they start, which then say nothing at
        // their end. What is asked for outside comes later, and counts.
        let mut options = OsString::from(format!("halt_on_error=1:exitcode={FOUND}:"));
        options.push(std::env::var_os(self.variable()).unwrap_or_default());
        vec![
            (self.variable(), options),
            // The code that reads symbols is watched, too, and takes a minute for a panic.
            ("RUST_BACKTRACE", "0".into()),
            // Random histories and crashes: fewer of them.
            ("GIVEWAY_TXN_ROUNDS", "4".into()),
        ]
    }
}

/// A test that does not run under a sanitizer, and why.
struct LeftOut {
    sanitizer: Sanitizer,
    package: &'static str,
    target: &'static str,
    /// What the names of the tests contain; all of the target if it is empty.
    tests: &'static str,
    why: &'static str,
}

const MEMORY: &str = "measures the process's memory, most of which is the sanitizer's";
const MALLOC: &str = "looks for the C library's malloc; the sanitizer's is in its place";
const GDB: &str = "gdb stops the program, and takes minutes to read one of this size";
const MODELS: &str = "loom runs a model's threads on stacks that it switches by itself";

const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-preempt",
        target: "debugger",
        tests: "",
        why: GDB,
    },
    LeftOut {
        sanitizer: Sanitizer::Address,
        package: "giveway-preempt",
        target: "debugger",
        tests: "",
        why: GDB,
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-preempt",
        target: "step",
        tests: "",
        why: "sends a signal at each instruction; ThreadSanitizer keeps it back until later",
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-preempt",
        target: "lib",
        tests: "uintr::tests::a_frame_is_left_as_it_was_found",
        why: "changes where a signal returns to; ThreadSanitizer gives handlers a copy of it",
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-preempt",
        target: "lib",
        tests: "gate::tests::the_engines_text",
        why: MALLOC,
    },
    LeftOut {
        sanitizer: Sanitizer::Address,
        package: "giveway-preempt",
        target: "lib",
        tests: "gate::tests::the_engines_text",
        why: MALLOC,
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-txn",
        target: "lib",
        tests: "recovery::",
        why: "one thread at a time, and minutes of it",
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-txn",
        target: "memory",
        tests: "",
        why: MEMORY,
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-txn",
        target: "memory_falls",
        tests: "",
        why: MEMORY,
    },
    LeftOut {
        sanitizer: Sanitizer::Address,
        package: "giveway-txn",
        target: "memory",
        tests: "",
        why: MEMORY,
    },
    LeftOut {
        sanitizer: Sanitizer::Address,
        package: "giveway-txn",
        target: "memory_falls",
        tests: "",
        why: MEMORY,
    },
    LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "giveway-txn",
        target: "models",
        tests: "",
        why: MODELS,
    },
    LeftOut {
        sanitizer: Sanitizer::Address,
        package: "giveway-txn",
        target: "models",
        tests: "",
        why: MODELS,
    },
];

impl LeftOut {
    fn is(&self, sanitizer: Sanitizer, target: &Target, test: &str) -> bool {
        self.sanitizer == sanitizer
            && self.package == target.package
            && target.name.split_once(':').map(|(_, name)| name) == Some(self.target)
            && test.contains(self.tests)
    }
}

/// The tests that run under a sanitizer, built for it.
///
/// # Errors
/// The toolchain lacks something, or the tests do not build.
pub(super) fn targets(
    root: &Path,
    workspace: &Metadata,
    sanitizer: Sanitizer,
) -> Result<Vec<Target>> {
    prepare(sanitizer)?;
    let mut targets = targets::build(root, workspace, &sanitizer.build())?;
    for target in &mut targets {
        target.env = sanitizer.environment();
    }
    leave_out(sanitizer, &mut targets, LEFT_OUT)?;
    Ok(targets)
}

/// Takes the tests out that do not run, and says so.
fn leave_out(sanitizer: Sanitizer, targets: &mut Vec<Target>, all: &[LeftOut]) -> Result<()> {
    for left_out in all
        .iter()
        .filter(|left_out| left_out.sanitizer == sanitizer)
    {
        let mut count = 0;
        for target in &mut *targets {
            // A target without Rust's harness is one test.
            let tests = target.tests.clone().unwrap_or(vec![String::new()]);
            let (out, stay): (Vec<String>, Vec<String>) = tests
                .into_iter()
                .partition(|test| left_out.is(sanitizer, target, test));
            if !out.is_empty() {
                count += out.len();
                target.tests = Some(stay);
            }
        }
        let LeftOut {
            package,
            target,
            tests,
            why,
            ..
        } = left_out;
        if count == 0 {
            bail!(
                "{package} {target} has no test '{tests}' to leave out: take it out of \
                 xtask/src/suite/sanitizers.rs, or correct it there"
            );
        }
        println!(
            "left out: {}:{package} {target} {tests}: {why}",
            sanitizer.cfg()
        );
    }
    Ok(())
}

/// Sees to it that the toolchain has what a sanitizer takes.
fn prepare(sanitizer: Sanitizer) -> Result<()> {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .context("rustc")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    if !has_runtime(&sysroot, sanitizer) {
        bail!(
            "the Rust that is first in PATH, in {}, has no runtime of this sanitizer: put one \
             of rustup's first, which has it on x86-64 and aarch64",
            sysroot.display()
        );
    }
    if has_source(&sysroot) {
        return Ok(());
    }
    println!("adding the standard library's source to rustup's toolchain");
    let added = Command::new("rustup")
        .args(["component", "add", "rust-src"])
        .status();
    if !added.is_ok_and(|status| status.success()) || !has_source(&sysroot) {
        bail!(
            "the standard library's source is missing below {}, and could not be added: \
             rustup component add rust-src",
            sysroot.display()
        );
    }
    Ok(())
}

fn has_runtime(sysroot: &Path, sanitizer: Sanitizer) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(PLATFORM).join("lib");
    let mut names = libraries.read_dir().into_iter().flatten().flatten();
    names.any(|name| {
        name.file_name()
            .to_string_lossy()
            .ends_with(sanitizer.runtime())
    })
}

fn has_source(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib/src/rust/library/Cargo.lock")
        .exists()
}

#[cfg(test)]
mod tests {
    use super::super::targets::Traits;
    use super::*;

    const ONE: LeftOut = LeftOut {
        sanitizer: Sanitizer::Thread,
        package: "pack",
        target: "faults",
        tests: "slow",
        why: "it is one thread",
    };

    fn target(name: &str, tests: Option<&[&str]>) -> Target {
        let tests = tests.map(|tests| tests.iter().map(|&test| test.to_owned()).collect());
        Target::made_up("pack", name, Traits::default(), tests)
    }

    #[test]
    fn what_is_left_out_is_left_out_under_its_sanitizer_alone() {
        let tests = ["slow_one", "fast"];
        let mut targets = vec![
            target("tsan:faults", Some(&tests)),
            target("tsan:lib", Some(&tests)),
        ];
        leave_out(Sanitizer::Address, &mut targets, &[ONE]).unwrap();
        assert_eq!(targets[0].tests.as_ref().unwrap().len(), 2);
        leave_out(Sanitizer::Thread, &mut targets, &[ONE]).unwrap();
        assert_eq!(targets[0].tests.as_ref().unwrap(), &["fast"]);
        assert_eq!(targets[1].tests.as_ref().unwrap().len(), 2);
    }

    #[test]
    fn a_target_that_is_one_test_is_left_out_whole() {
        let whole = LeftOut { tests: "", ..ONE };
        let mut targets = vec![target("tsan:faults", None)];
        leave_out(Sanitizer::Thread, &mut targets, &[whole]).unwrap();
        assert_eq!(targets[0].tests.as_deref(), Some(&[][..]));
    }

    #[test]
    fn what_has_gone_cannot_be_left_out() {
        let mut targets = vec![target("tsan:faults", Some(&["fast"]))];
        let error = leave_out(Sanitizer::Thread, &mut targets, &[ONE]).unwrap_err();
        assert!(error.to_string().contains("pack faults"), "{error}");
    }

    #[test]
    fn a_report_is_told_from_a_test_that_failed() {
        for sanitizer in Sanitizer::ALL {
            let (variable, options) = &sanitizer.environment()[0];
            assert_eq!(*variable, sanitizer.variable());
            let options = options.to_string_lossy();
            assert!(
                options.starts_with("halt_on_error=1:exitcode=66:"),
                "{options}"
            );
        }
        // That of Rust's harness, which is worth a second look.
        assert_ne!(FOUND, 101);
    }

    #[test]
    fn a_toolchain_without_runtime_or_source_is_known() {
        let sysroot = tempfile::tempdir().unwrap();
        let sysroot = sysroot.path();
        assert!(!has_runtime(sysroot, Sanitizer::Thread) && !has_source(sysroot));
        let libraries = sysroot.join("lib/rustlib").join(PLATFORM).join("lib");
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::write(libraries.join("librustc-stable_rt.tsan.a"), "").unwrap();
        assert!(has_runtime(sysroot, Sanitizer::Thread));
        assert!(!has_runtime(sysroot, Sanitizer::Address));
        let source = sysroot.join("lib/rustlib/src/rust/library");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("Cargo.lock"), "").unwrap();
        assert!(has_source(sysroot));
    }
}
