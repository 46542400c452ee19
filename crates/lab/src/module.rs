//! Kernel modules for the kernels that guests boot.
//!
//! A module is compiled as on a machine that runs the kernel: with Debian's headers of
//! that release and the compiler that they ask for, in a tree that mmdebstrap makes and
//! throws away. What the host has installed does not matter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, KERNEL_SUITES};
use crate::cache::{Cache, digest};
use crate::command;
use crate::error::{LabError, Result};
use crate::progress::Progress;

/// The modules that `make` leaves in a copy of the directory `source`, for the kernel
/// `release`; kept in the cache until a file of the directory changes.
pub(crate) fn build(
    cache: &Cache,
    release: &str,
    source: &Path,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let files = files(source)?;
    let parts = files
        .iter()
        .flat_map(|(name, text)| [name.as_bytes(), text.as_slice()]);
    let name = format!("modules-{release}-{}", digest(parts));
    cache.entry(&name, |dir| {
        let apt = Apt::open(cache, progress)?;
        let headers = format!("linux-headers-{release}");
        let versions = apt.versions(&headers)?;
        // Those of a kernel that has left its suite are in no suite.
        let suites = KERNEL_SUITES
            .iter()
            .copied()
            .chain([crate::apt::GUEST_SUITE]);
        let mut suites = suites.filter(|suite| versions.iter().any(|(_, found)| found == suite));
        let suite = suites.next().ok_or_else(|| {
            LabError::Config(format!(
                "Debian's archive has no {headers}, without which no module can be built for \
                 the kernel of that release\n\
                 remedy: take the archive's kernel, by giveway lab build --refresh-kernel"
            ))
        })?;
        progress.begin(&format!("building modules for {release}"));
        let copy = cache.scratch("module")?;
        for (name, text) in &files {
            let path = copy.path().join(name);
            fs::write(&path, text).map_err(LabError::io("writing", &path))?;
        }
        let made = make(&apt, suite, &headers, copy.path(), dir, progress);
        progress.end(if made.is_ok() { "built" } else { "failed" });
        made
    })
}

/// Names and contents of the files in a directory, by name. Directories in it are left
/// out: tests are no part of a module.
fn files(source: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(source).map_err(LabError::io("reading", source))? {
        let path = entry.map_err(LabError::io("reading", source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_file() {
            let text = fs::read(&path).map_err(LabError::io("reading", &path))?;
            files.push((name.into_owned(), text));
        }
    }
    files.sort();
    Ok(files)
}

/// Compiles what is in `copy`, and leaves the modules in `dir`.
fn make(
    apt: &Apt,
    suite: &str,
    headers: &str,
    copy: &Path,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let quote = |path: &Path| shell_words::quote(&path.to_string_lossy()).into_owned();
    let mut command = Command::new("mmdebstrap");
    command.args([
        "--variant=minbase",
        "--format=null",
        "--aptopt=APT::Install-Recommends \"false\"",
        // The release of the headers says which they are, however old the index is.
        "--aptopt=Acquire::Check-Valid-Until \"false\"",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
    ]);
    command.arg(format!("--include=make,{headers}"));
    for hook in [
        format!("cp -r {} \"$1/module\"", quote(copy)),
        format!("chroot \"$1\" make -s -C /module KDIR=/usr/src/{headers}"),
        format!("cp \"$1\"/module/*.ko {}", quote(dir)),
    ] {
        command.arg(format!("--customize-hook={hook}"));
    }
    command.args([suite, "/dev/null", apt.mirror()]);
    command.env("PATH", crate::image::path_with_sbin());
    command::run("building a kernel module", &mut command, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_made_from_the_files_beside_its_makefile() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tests")).unwrap();
        for name in ["main.c", "Makefile", "tests/rules.c"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let names: Vec<String> = files(dir.path())
            .unwrap()
            .into_iter()
            .map(|f| f.0)
            .collect();
        assert_eq!(names, ["Makefile", "main.c"]);
    }
}
