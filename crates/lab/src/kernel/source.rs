//! A kernel of an older series, built from Debian's source for guests of the lab.
//!
//! Debian's builds of a series may lack what loading a scheduler takes; those of
//! 6.12 do. The source is Debian's, with Debian's patches; the configuration is
//! `kernel/guest.config` and nothing else, so that there are some 700 options and
//! no modules to build. An option that does not come true is an error: it is
//! missed here, and not in a guest that hangs.
//!
//! Steps, in a workshop that an interrupted build leaves behind:
//!
//! 1. the source is fetched and unpacked, and its version written to `unpacked`;
//! 2. `make allnoconfig` with the options above, which changes nothing if they
//!    are as before;
//! 3. `make bzImage`, which goes on where it stopped;
//! 4. kernel, configuration and RAM disk go into the cache's entry, and the
//!    workshop is removed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{busybox_in, busybox_package};
use crate::apt::Apt;
use crate::cache::Cache;
use crate::command;
use crate::error::{LabError, Result};
use crate::initrd;
use crate::progress::Progress;

/// Lines of `CONFIG_NAME=value`, and comments.
pub(super) const CONFIG: &str = include_str!("../../kernel/guest.config");

/// Programs that a build needs, and the Debian package of each.
const TOOLS: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    // Makes the type information.
    ("pahole", "pahole"),
];

/// Headers that programs of the build need.
const HEADERS: &[(&str, &str)] = &[("libelf.h", "libelf-dev"), ("zlib.h", "zlib1g-dev")];

/// Makes the kernel of `series` from the package `linux-source-SERIES` at `version`, and
/// leaves in `dir` what booting takes.
pub(super) fn build(
    apt: &Apt,
    cache: &Cache,
    series: &str,
    version: &str,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    command::require(TOOLS)?;
    command::require_headers(HEADERS)?;
    cache.require_space()?;
    let work = cache.workshop(&format!("linux-{series}"))?;
    let tree = work.join(format!("linux-source-{series}"));
    let unpacked = work.join("unpacked");
    if !fs::read_to_string(&unpacked).is_ok_and(|of| of == version) {
        progress.begin(&format!("fetching the source of Linux {version}"));
        empty(&work)?;
        let package = work.join("package");
        let source = format!("linux-source-{series}");
        let packages = [format!("{source}={version}"), busybox_package()];
        apt.unpack(&packages, &package, progress)?;
        let archive = package.join(format!("usr/src/{source}.tar.xz"));
        command::run(
            "unpacking the source",
            Command::new("tar")
                .arg("-xf")
                .arg(&archive)
                .current_dir(&work),
            progress,
        )?;
        fs::remove_file(&archive).map_err(LabError::io("removing", &archive))?;
        fs::write(&unpacked, version).map_err(LabError::io("writing", &unpacked))?;
        progress.end("fetched");
    }

    progress.begin(&format!("building Linux {version} (ten to twenty minutes)"));
    let wanted = work.join("guest.config");
    fs::write(&wanted, CONFIG).map_err(LabError::io("writing", &wanted))?;
    command::run(
        "configuring Linux",
        make(&tree)
            .arg("allnoconfig")
            .env("KCONFIG_ALLCONFIG", &wanted),
        progress,
    )?;
    let config = tree.join(".config");
    let got = fs::read_to_string(&config).map_err(LabError::io("reading", &config))?;
    check(&got, version)?;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    command::run(
        "compiling Linux",
        make(&tree).arg(format!("-j{cpus}")).arg("bzImage"),
        progress,
    )?;
    progress.end("built");

    let image = tree.join("arch/x86/boot/bzImage");
    let release = tree.join("include/config/kernel.release");
    for (from, to) in [
        (&image, "vmlinuz"),
        (&config, "config"),
        (&release, "release"),
    ] {
        fs::copy(from, dir.join(to)).map_err(LabError::io("copying", from))?;
    }
    let busybox = busybox_in(&work.join("package"));
    initrd::build(&busybox, None, &config, &dir.join("initrd"))?;
    fs::remove_dir_all(&work).map_err(LabError::io("removing", &work))
}

/// `make`, with names in the kernel that say nothing of this machine.
fn make(tree: &Path) -> Command {
    let mut command = Command::new("make");
    command
        .current_dir(tree)
        .arg("LOCALVERSION=-lab")
        .env("KBUILD_BUILD_USER", "giveway")
        .env("KBUILD_BUILD_HOST", "lab");
    command
}

fn empty(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).map_err(LabError::io("removing", dir))?;
    fs::create_dir_all(dir.join("package")).map_err(LabError::io("creating", dir))
}

/// Refuses a configuration in which not every line of [`CONFIG`] came true.
fn check(got: &str, version: &str) -> Result<()> {
    let has = |wanted: &&str| got.lines().any(|line| line == *wanted);
    let mut wanted = CONFIG.lines().filter(|line| line.starts_with("CONFIG_"));
    match wanted.find(|line| !has(line)) {
        None => Ok(()),
        Some(line) => Err(LabError::Config(format!(
            "Linux {version} cannot be configured with {line}: it does not know the option, \
             or wants another one for it; mend crates/lab/kernel/guest.config"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_does_not_come_true_is_named() {
        check(CONFIG, "6.12.1-1").unwrap();
        let without = CONFIG.replace(
            "CONFIG_SCHED_CLASS_EXT=y",
            "# CONFIG_SCHED_CLASS_EXT is not set",
        );
        let error = check(&without, "6.12.1-1").unwrap_err().to_string();
        assert!(error.contains("CONFIG_SCHED_CLASS_EXT=y"), "{error}");
        assert!(
            error.contains("6.12.1-1") && error.contains("guest.config"),
            "{error}"
        );
    }
}
