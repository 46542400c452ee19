//! `giveway meta schedulers --install`: makes a scheduler's program.
//!
//! ```text
//!   crate    cargo install --root DIR NAME
//!   kernel   make -C SOURCE/tools/sched_ext NAME, copied to DIR/bin
//! ```
//!
//! DIR is [`install_dir`], where every command of 'giveway meta' and 'giveway
//! bench meta' looks. The compilers' output is shown unchanged: it takes
//! minutes, and they say best what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use giveway_metasched::scheduler::{Scheduler, Source, Table, install_dir};

use giveway_command::{Context, Failure};

/// Compilers whose BPF code the kernel takes, the newest first; 16 is the oldest.
const CLANGS: std::ops::RangeInclusive<u32> = 16..=25;
/// The running kernel's types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Makes the program of the scheduler of this name.
pub(super) fn install(
    table: &Table,
    name: &str,
    kernel_source: Option<&Path>,
) -> Result<(), Failure> {
    let Some(scheduler) = table.get(name) else {
        return Err(
            Failure::usage(format_args!("no scheduler is called '{name}'"))
                .with_remedy("'giveway meta schedulers' lists them"),
        );
    };
    let Some(program) = scheduler.command.first() else {
        return Err(Failure::usage(format_args!("{name} is part of the kernel")));
    };
    let dir = install_dir();
    match (scheduler.source, kernel_source) {
        (Some(Source::Crate), _) => {
            run(cargo(program, &dir, &clang()?), "cargo")?;
        }
        (Some(Source::Kernel), Some(source)) => from_kernel(program, source, &dir)?,
        (Some(Source::Kernel), None) => return Err(lacks_source(scheduler)),
        (None, _) => {
            return Err(
                Failure::new(format_args!("{name} is not made by this command"))
                    .with_remedy(scheduler.install.clone()),
            );
        }
    }
    eprintln!("{program} is in {}", dir.join("bin").display());
    Ok(())
}

fn cargo(program: &str, dir: &Path, clang: &str) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["install", "--locked", "--force", "--root"])
        .arg(dir)
        .arg(program)
        .env("BPF_CLANG", clang);
    command
}

fn from_kernel(program: &str, source: &Path, dir: &Path) -> Result<(), Failure> {
    let tools = source.join("tools/sched_ext");
    if !tools.join(format!("{program}.c")).exists() {
        return Err(
            Failure::new(format_args!("{} has no {program}", tools.display()))
                .with_remedy("name the top of a kernel's source, of 6.12 or newer, that has it"),
        );
    }
    let types = types(dir)?;
    let output = dir.join("kernel");
    for dir in [&output, &dir.join("bin")] {
        fs::create_dir_all(dir).cannot(format_args!("make {}", dir.display()))?;
    }
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(&tools)
        .arg(format!("O={}", output.display()))
        .arg(format!("VMLINUX_BTF={}", types.display()))
        .arg(format!("CLANG={}", clang()?))
        .arg(program);
    run(command, "make")?;
    let made = output.join("build/bin").join(program);
    fs::copy(&made, dir.join("bin").join(program))
        .map(|_| ())
        .cannot(format_args!("copy {}", made.display()))
}

/// A kernel's types: the running one's, or those found in `dir`.
fn types(dir: &Path) -> Result<PathBuf, Failure> {
    let put = dir.join("vmlinux.btf");
    let known = [PathBuf::from(TYPES), put.clone()];
    known.into_iter().find(|path| path.exists()).ok_or_else(|| {
        Failure::new("the running kernel does not tell its types").with_remedy(format_args!(
            "copy {TYPES} of the kernel that is to run it to {}; the lab's: giveway lab run \
             --results DIR -- cp {TYPES} /results/vmlinux.btf",
            put.display()
        ))
    })
}

fn lacks_source(scheduler: &Scheduler) -> Failure {
    Failure::usage(format_args!(
        "{} is part of the kernel's source",
        scheduler.name
    ))
    .with_remedy("name the source with --kernel-source DIR (on Debian: package linux-source)")
}

/// The newest clang that is here.
fn clang() -> Result<String, Failure> {
    let versions = CLANGS.rev().map(|version| format!("clang-{version}"));
    let runs = |name: &String| Command::new(name).arg("--version").output().is_ok();
    let mut names = versions.chain(["clang".to_owned()]);
    names.find(runs).ok_or_else(|| {
        Failure::new("there is no clang, which compiles BPF")
            .with_remedy("apt install clang-19 (16 or newer is needed)")
    })
}

fn run(mut command: Command, what: &str) -> Result<(), Failure> {
    eprintln!("running {what}, which takes minutes");
    let status = command.status().map_err(|error| {
        Failure::new(format_args!("cannot run {what}: {error}")).with_remedy(match what {
            "cargo" => "install Rust by rustup, or on Debian: apt install cargo-web rustc-web",
            _ => "apt install make gcc libelf-dev zlib1g-dev",
        })
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(
            Failure::new(format_args!("{what} failed ({status})")).with_remedy(
                "what it says above tells what is missing: often clang, libelf-dev or, for \
             scx_rustland, libseccomp-dev",
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_is_said_with_the_remedy() {
        let table = Table::known();
        let refused = |name: &str, source: Option<&Path>, says: &str| {
            let error = install(&table, name, source).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refused("scx_none", None, "meta schedulers");
        refused("eevdf", None, "part of the kernel");
        refused("scx_ufs", None, "make install");
        refused("scx_simple", None, "--kernel-source");
        refused(
            "scx_simple",
            Some(Path::new("/nowhere")),
            "has no scx_simple",
        );
    }

    #[test]
    fn a_crate_is_installed_by_its_name_where_all_look() {
        let command = cargo("scx_rusty", Path::new("/d"), "clang-19");
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_str().unwrap())
            .collect();
        assert_eq!(
            words,
            [
                "install",
                "--locked",
                "--force",
                "--root",
                "/d",
                "scx_rusty"
            ]
        );
    }
}
