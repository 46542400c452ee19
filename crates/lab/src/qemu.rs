//! The emulator: Debian's QEMU source with the lockstep clock, user interrupts and prices
//! of instructions added, built once, and the firmware that belongs to it.
//!
//! The distribution's own QEMU is not used even for functional tests, so that
//! a guest meets one emulator everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, GUEST_SUITE};
use crate::cache::{Cache, digest};
use crate::command::{self, BUILD_TOOLS};
use crate::error::{LabError, Result};
use crate::progress::Progress;

/// What is added to Debian's source, in this order.
///
/// The lockstep clock: `docs/design/clock.md` explains it. Its invariants are not
/// asserted in QEMU, since a change of the patch rebuilds every lab's emulator.
/// `tests/clock.rs` measures 1 (a loop's CPU time beside busy CPUs), 2 (sections of
/// locks), 3 (wake-up latency) and 4 (two runs with one seed).
///
/// User interrupts, which build on it: `tests/user_interrupts.rs` has a case for each
/// rule. Prices of instructions, which build on both: `tests/costs.rs` has one for each.
const PATCHES: &[(&str, &str)] = &[
    ("lockstep.patch", include_str!("../qemu/lockstep.patch")),
    (
        "user-interrupts.patch",
        include_str!("../qemu/user-interrupts.patch"),
    ),
    ("costs.patch", include_str!("../qemu/costs.patch")),
];

/// Only what a guest of the lab meets.
const CONFIGURE: &[&str] = &[
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-system",
    "--enable-fdt=system",
    "--disable-docs",
    "--disable-tools",
    "--disable-install-blobs",
    "--disable-werror",
    // Errors since GCC 14 are errors with every compiler.
    "--extra-cflags=-Werror=implicit-function-declaration -Werror=implicit-int \
     -Werror=incompatible-pointer-types -Werror=int-conversion",
    // What no guest has takes time to compile: a sixth of the objects, and debug information.
    "--without-default-devices",
    "--with-devices-x86_64=lab",
    "--disable-debug-info",
];

/// The devices of a guest, in QEMU's build configuration.
const DEVICES: &str = "CONFIG_Q35=y\nCONFIG_NVDIMM=y\n";
/// Where `--with-devices-x86_64=lab` looks for them.
const DEVICES_FILE: &str = "configs/devices/x86_64-softmmu/lab.mak";

/// Firmware: the BIOS, the option ROM that starts a kernel, and their kin.
const FIRMWARE_PACKAGES: &[&str] = &["seabios", "qemu-system-data", "qemu-system-x86"];

/// Headers of the libraries it links, and the Debian package of each.
const LIBRARIES: &[(&str, &str)] = &[
    ("glib-2.0/glib.h", "libglib2.0-dev"),
    ("pixman-1/pixman.h", "libpixman-1-dev"),
    ("libfdt.h", "libfdt-dev"),
];

#[derive(Debug)]
pub(crate) struct Qemu {
    dir: PathBuf,
}

impl Qemu {
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Qemu {
        let dir = dir.to_owned();
        Qemu { dir }
    }

    pub(crate) fn ensure(cache: &Cache, progress: &dyn Progress) -> Result<Qemu> {
        let dir = cache.entry(&entry_name(), |dir| build(cache, dir, progress))?;
        Ok(Qemu { dir })
    }

    /// The emulator of the cache, if it is there.
    pub(crate) fn existing(cache: &Cache) -> Option<Qemu> {
        let dir = cache.find(&entry_name())?;
        Some(Qemu { dir })
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.dir.join("qemu-system-x86_64")
    }

    /// A command that starts it, with its firmware.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.binary());
        for share in ["qemu", "seabios"] {
            command.arg("-L").arg(self.dir.join("share").join(share));
        }
        command
    }
}

fn entry_name() -> String {
    let configure = CONFIGURE.join(" ");
    let patches = PATCHES.iter().map(|(_, text)| *text);
    let parts = patches.chain([configure.as_str(), DEVICES]);
    format!("qemu-{}", digest(parts.map(str::as_bytes)))
}

fn build(cache: &Cache, dir: &Path, progress: &dyn Progress) -> Result<()> {
    command::require(BUILD_TOOLS)?;
    command::require_headers(LIBRARIES)?;
    let apt = Apt::open(cache, progress)?;

    progress.begin("fetching QEMU's source and firmware");
    let scratch = cache.scratch("qemu-build")?;
    let firmware = scratch.path().join("firmware");
    let packages: Vec<String> = FIRMWARE_PACKAGES
        .iter()
        .map(|name| format!("{name}/{GUEST_SUITE}"))
        .collect();
    apt.unpack(&packages, &firmware, progress)?;
    for share in ["qemu", "seabios"] {
        let from = firmware.join("usr/share").join(share);
        let to = dir.join("share").join(share);
        copy_files(&from, &to)?;
    }
    apt.source(&format!("qemu/{GUEST_SUITE}"), scratch.path(), progress)?;
    let source = unpack_source(scratch.path(), progress)?;
    progress.end("fetched");

    progress.begin("building QEMU with the lab's patches (about three minutes)");
    apply_patches(&source, progress)?;
    let devices = source.join(DEVICES_FILE);
    fs::write(&devices, DEVICES).map_err(LabError::io("writing", &devices))?;
    let python = meson(scratch.path(), progress)?;
    let build = source.join("build");
    fs::create_dir_all(&build).map_err(LabError::io("creating", &build))?;
    let path = format!(
        "{}:{}",
        python.parent().unwrap_or(Path::new("/")).display(),
        std::env::var("PATH").unwrap_or_default()
    );
    command::run(
        "configuring QEMU",
        Command::new("../configure")
            .arg(format!("--python={}", python.display()))
            .args(CONFIGURE)
            .env("PATH", &path)
            .current_dir(&build),
        progress,
    )?;
    command::run(
        "compiling QEMU",
        Command::new("ninja")
            .arg("qemu-system-x86_64")
            .env("PATH", &path)
            .current_dir(&build),
        progress,
    )?;
    let (from, to) = (
        build.join("qemu-system-x86_64"),
        dir.join("qemu-system-x86_64"),
    );
    fs::copy(&from, &to).map_err(LabError::io("copying", &from))?;
    progress.end("built");
    Ok(())
}

/// Unpacks the upstream and the Debian archive of a source package; returns the tree.
fn unpack_source(dir: &Path, progress: &dyn Progress) -> Result<PathBuf> {
    for archive in entries(dir)? {
        let name = archive
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.contains(".orig.tar.") || name.contains(".debian.tar.") {
            command::run(
                &format!("unpacking {name}"),
                Command::new("tar")
                    .arg("-xf")
                    .arg(&archive)
                    .current_dir(dir),
                progress,
            )?;
        }
    }
    entries(dir)?
        .into_iter()
        .find(|path| path.join("configure").is_file())
        .ok_or_else(|| {
            LabError::Config(
                "QEMU's source package has an unknown layout: no configure script".into(),
            )
        })
}

/// Debian's patches (they make the source build without the files Debian
/// leaves out), then the lab's.
fn apply_patches(source: &Path, progress: &dyn Progress) -> Result<()> {
    let patches = source.with_file_name("debian").join("patches");
    let series_path = patches.join("series");
    let series = fs::read_to_string(&series_path).map_err(LabError::io("reading", &series_path))?;
    let mut own = Vec::new();
    for (name, text) in PATCHES {
        let path = source.with_file_name(name);
        fs::write(&path, text).map_err(LabError::io("writing", &path))?;
        own.push(path);
    }
    let debian = series
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .map(|line| patches.join(line));
    for patch in debian.chain(own) {
        command::run(
            &format!(
                "applying {}",
                patch.file_name().unwrap_or_default().to_string_lossy()
            ),
            Command::new("patch")
                .args(["-p1", "-s", "-i"])
                .arg(&patch)
                .current_dir(source),
            progress,
        )?;
    }
    Ok(())
}

/// QEMU wants a newer Meson than Debian 12 has. Returns the Python that has it.
fn meson(dir: &Path, progress: &dyn Progress) -> Result<PathBuf> {
    let python = command::python(dir, progress)?;
    command::run(
        "installing Meson",
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "meson>=1.5,<2"]),
        progress,
    )?;
    Ok(python)
}

/// Copies the regular files of a directory, following links.
fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(LabError::io("creating", to))?;
    for path in entries(from)? {
        if path.is_file() {
            let name = path.file_name().unwrap_or_default();
            fs::copy(&path, to.join(name)).map_err(LabError::io("copying", &path))?;
        }
    }
    Ok(())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(LabError::io("reading", dir))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    Ok(paths)
}
