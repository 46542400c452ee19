//! A kernel that is built from Debian's source for guests of the lab.
//!
//! Debian's builds of a series may lack what loading a scheduler takes; those of
//! 6.12 do. And nobody builds a kernel with our patches. A [`Recipe`] says what is
//! built. The source is Debian's, with Debian's patches; the configuration is
//! `kernel/guest.config`, changed as the recipe says, and nothing else, so that there
//! are some 700 options and no modules to build. An option that does not come true is
//! an error: it is missed here, and not in a guest that hangs.
//!
//! Steps, in a workshop that an interrupted build leaves behind:
//!
//! 1. the source is fetched, unpacked and patched, and what it is then written to
//!    `unpacked`;
//! 2. `make allnoconfig` with the options above, which changes nothing if they
//!    are as before;
//! 3. `make bzImage`, which goes on where it stopped;
//! 4. kernel, configuration and RAM disk go into the cache's entry, and the
//!    workshop is removed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::apt::Apt;
use crate::cache::{Cache, digest};
use crate::command;
use crate::error::{LabError, Result};
use crate::initrd;
use crate::progress::Progress;

/// Lines of `CONFIG_NAME=value`, and comments.
const GUEST: &str = include_str!("../../kernel/guest.config");

/// What is built.
pub(super) struct Recipe<'a> {
    /// The kernel's release ends in it.
    pub(super) name: &'a str,
    /// The series of Debian's source.
    pub(super) series: &'a str,
    /// Lines that come in the place of those about the same options in the guest's
    /// configuration and in the ones before: `CONFIG_NAME=value` or
    /// `# CONFIG_NAME is not set`.
    pub(super) configs: &'a [&'a str],
    /// Series of changes of the source, by name, in their order.
    pub(super) patches: &'a [&'a [(&'a str, &'a str)]],
    /// Files that the source has besides, by path.
    pub(super) files: &'a [(&'a str, &'a str)],
}

impl Recipe<'_> {
    /// The whole configuration.
    fn config(&self) -> String {
        let replaced = |all: String, by: &&str| {
            let own: Vec<&str> = by.lines().filter_map(option).collect();
            let rest = all
                .lines()
                .filter(|line| option(line).is_none_or(|name| !own.contains(&name)));
            rest.chain(by.lines()).collect::<Vec<&str>>().join("\n") + "\n"
        };
        self.configs.iter().fold(GUEST.to_owned(), replaced)
    }

    /// What the source is changed by, as bytes.
    fn changes(&self) -> impl Iterator<Item = &[u8]> {
        let patches = self.patches.iter().copied().flatten();
        let files = self.files.iter().flat_map(|(path, text)| [path, text]);
        let texts = patches.map(|(_, text)| text).chain(files);
        texts.map(|text| text.as_bytes())
    }

    /// Differs whenever the kernel does.
    pub(super) fn digest(&self) -> String {
        digest([self.config().as_bytes()].into_iter().chain(self.changes()))
    }
}

/// The option that a line of a configuration is about.
fn option(line: &str) -> Option<&str> {
    let line = line.strip_prefix("# ").unwrap_or(line);
    let end = line.find(['=', ' ']).unwrap_or(line.len());
    line.starts_with("CONFIG_").then(|| &line[..end])
}

/// Programs that a build needs, and the Debian package of each.
const TOOLS: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("patch", "patch"),
    // Makes the type information.
    ("pahole", "pahole"),
];

/// Headers that programs of the build need.
const HEADERS: &[(&str, &str)] = &[("libelf.h", "libelf-dev"), ("zlib.h", "zlib1g-dev")];

/// Makes the kernel from the package `linux-source-SERIES` at `version`, and leaves in
/// `dir` what booting takes.
pub(super) fn build(
    apt: &Apt,
    cache: &Cache,
    recipe: &Recipe<'_>,
    version: &str,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    command::require(TOOLS)?;
    command::require_headers(HEADERS)?;
    cache.require_space()?;
    let Recipe { name, series, .. } = recipe;
    let work = cache.workshop(&format!("linux-{series}-{name}"))?;
    let tree = work.join(format!("linux-source-{series}"));
    // Beside the source, which stays as it was unpacked.
    let built = work.join("out");
    let unpacked = work.join("unpacked");
    let source_is = format!("{version} {}", digest(recipe.changes()));
    if !fs::read_to_string(&unpacked).is_ok_and(|of| of == source_is) {
        progress.begin(&format!("fetching the source of Linux {version}"));
        empty(&work)?;
        let package = work.join("package");
        let source = format!("linux-source-{series}");
        let packages = [format!("{source}={version}"), initrd::busybox_package()];
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
        for (name, text) in recipe.patches.iter().copied().flatten() {
            let patch = work.join(name);
            fs::write(&patch, text).map_err(LabError::io("writing", &patch))?;
            command::run(
                &format!("applying {name}"),
                Command::new("patch")
                    .args(["-p1", "--batch", "--input"])
                    .arg(&patch)
                    .current_dir(&tree),
                progress,
            )?;
        }
        for (path, text) in recipe.files {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap_or(&tree))
                .and_then(|()| fs::write(&path, text))
                .map_err(LabError::io("writing", &path))?;
        }
        fs::write(&unpacked, source_is).map_err(LabError::io("writing", &unpacked))?;
        progress.end("fetched");
    }

    progress.begin(&format!("building Linux {version} (ten to twenty minutes)"));
    let wanted = work.join("guest.config");
    let options = recipe.config();
    fs::write(&wanted, &options).map_err(LabError::io("writing", &wanted))?;
    command::run(
        "configuring Linux",
        make(&tree, &built, name)
            .arg("allnoconfig")
            .env("KCONFIG_ALLCONFIG", &wanted),
        progress,
    )?;
    let config = built.join(".config");
    let got = fs::read_to_string(&config).map_err(LabError::io("reading", &config))?;
    check(&options, &got, version)?;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    command::run(
        "compiling Linux",
        make(&tree, &built, name)
            .arg(format!("-j{cpus}"))
            .arg("bzImage"),
        progress,
    )?;
    progress.end("built");

    let image = built.join("arch/x86/boot/bzImage");
    let release = built.join("include/config/kernel.release");
    for (from, to) in [
        (&image, "vmlinuz"),
        (&config, "config"),
        (&release, "release"),
    ] {
        fs::copy(from, dir.join(to)).map_err(LabError::io("copying", from))?;
    }
    let busybox = initrd::busybox_in(&work.join("package"));
    initrd::build(&busybox, None, &config, &dir.join("initrd"))?;
    fs::remove_dir_all(&work).map_err(LabError::io("removing", &work))
}

/// `make`, with names in the kernel that say nothing of this machine.
fn make(tree: &Path, built: &Path, name: &str) -> Command {
    let mut command = Command::new("make");
    command
        .current_dir(tree)
        .arg(format!("O={}", built.display()))
        .arg(format!("LOCALVERSION=-{name}"))
        .env("KBUILD_BUILD_USER", "giveway")
        .env("KBUILD_BUILD_HOST", "lab");
    command
}

fn empty(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir).map_err(LabError::io("removing", dir))?;
    fs::create_dir_all(dir.join("package")).map_err(LabError::io("creating", dir))
}

/// Refuses a configuration in which not every wanted line came true. What is to be off may
/// also be unknown.
fn check(wanted: &str, got: &str, version: &str) -> Result<()> {
    let has = |wanted: &&str| match wanted.strip_prefix("# ") {
        Some(off) => !got
            .lines()
            .any(|line| line.starts_with(&format!("{}=", option(off).unwrap_or(off)))),
        None => got.lines().any(|line| line == *wanted),
    };
    let mut wanted = wanted.lines().filter(|line| option(line).is_some());
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

    const RECIPE: Recipe<'_> = Recipe {
        name: "a",
        series: "6.12",
        configs: &["# CONFIG_KPROBES is not set\nCONFIG_CFL=y\n"],
        patches: &[&[("1.patch", "+1\n")]],
        files: &[],
    };

    #[test]
    fn an_option_that_does_not_come_true_is_named() {
        check(GUEST, GUEST, "6.12.1-1").unwrap();
        let without = GUEST.replace(
            "CONFIG_SCHED_CLASS_EXT=y",
            "# CONFIG_SCHED_CLASS_EXT is not set",
        );
        let error = check(GUEST, &without, "6.12.1-1").unwrap_err().to_string();
        assert!(error.contains("CONFIG_SCHED_CLASS_EXT=y"), "{error}");
        assert!(
            error.contains("6.12.1-1") && error.contains("guest.config"),
            "{error}"
        );
    }

    #[test]
    fn a_recipe_replaces_lines_about_its_options_and_what_is_off_must_be_off() {
        let config = RECIPE.config();
        assert!(config.contains("CONFIG_KPROBE_EVENTS=y\n") && config.contains("CONFIG_CFL=y\n"));
        assert!(!config.contains("CONFIG_KPROBES=y"));
        let got = config.replace("# CONFIG_KPROBES is not set\n", "");
        check(&config, &got, "1").unwrap();
        let error = check(&config, &(got + "CONFIG_KPROBES=y\n"), "1").unwrap_err();
        assert!(error.to_string().contains("KPROBES"), "{error}");
    }

    #[test]
    fn another_patch_or_option_is_another_kernel() {
        let other = Recipe {
            patches: &[&[("1.patch", "+2\n")]],
            ..RECIPE
        };
        let option = Recipe {
            configs: &["CONFIG_CFL=y\n"],
            ..RECIPE
        };
        let file = Recipe {
            files: &[("drivers/a.c", "int a;\n")],
            ..RECIPE
        };
        for changed in [other, option, file] {
            assert_ne!(RECIPE.digest(), changed.digest());
        }
    }
}
