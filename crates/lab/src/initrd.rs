//! The initial RAM disk: brings up the NVDIMMs, finds the root file system by
//! its label and hands over to the image's `lab-init`.
//!
//! It carries the kernel's configuration along, because a Debian kernel has no
//! `/proc/config.gz` and libbpf reads `/boot/config-RELEASE` for its Kconfig
//! externs; without it every scheduler fails to load with a bare `EINVAL`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::error::{LabError, Result};

/// The RAM disk's `/init`.
pub(crate) const INIT: &str = include_str!("../guest/initrd-init");

/// Drivers of the guest's memory devices, in the order they depend on each other.
pub(crate) const MODULES: &[&str] = &["libnvdimm", "nd_btt", "nd_pmem", "nfit"];

/// The package of its shell.
pub(crate) fn busybox_package() -> String {
    format!("busybox-static/{}", crate::apt::GUEST_SUITE)
}

/// Its file in a tree that the package was unpacked to.
pub(crate) fn busybox_in(tree: &Path) -> PathBuf {
    let places = ["bin/busybox", "usr/bin/busybox"];
    let mut places = places.iter().map(|place| tree.join(place));
    places.find(|place| place.is_file()).unwrap_or_default()
}

/// Writes the RAM disk to `target`. Without `modules` the kernel has none.
pub(crate) fn build(
    busybox: &Path,
    modules: Option<&Path>,
    config: &Path,
    target: &Path,
) -> Result<()> {
    let mut files: Vec<(String, u32, Vec<u8>)> = Vec::new();
    for dir in ["bin", "modules", "dev", "proc", "sys", "root"] {
        files.push((dir.into(), 0o040755, Vec::new()));
    }
    let read = |path: &Path| fs::read(path).map_err(LabError::io("reading", path));
    files.push(("init".into(), 0o100755, INIT.into()));
    files.push(("bin/busybox".into(), 0o100755, read(busybox)?));
    files.push(("config".into(), 0o100644, read(config)?));
    let mut order = String::new();
    for name in MODULES {
        // A driver without a file is built into the kernel.
        let file = modules.and_then(|modules| find_module(&modules.join("kernel"), name));
        if let Some(path) = file {
            files.push((format!("modules/{name}.ko"), 0o100644, unpacked(&path)?));
            order.push_str(name);
            order.push('\n');
        }
    }
    files.push(("modules/order".into(), 0o100644, order.into_bytes()));

    let file = File::create(target).map_err(LabError::io("creating", target))?;
    let mut archive = BufWriter::new(file);
    let mut write = || -> std::io::Result<()> {
        for (inode, (name, mode, content)) in files.iter().enumerate() {
            let entry = cpio::newc::Builder::new(name)
                .ino(inode as u32 + 1)
                .nlink(1)
                .mode(*mode);
            let mut writer = entry.write(&mut archive, content.len() as u32);
            writer.write_all(content)?;
            writer.finish()?;
        }
        cpio::newc::trailer(&mut archive)?;
        archive.flush()
    };
    write().map_err(LabError::io("writing", target))
}

/// The file of a module somewhere under `dir`, compressed or not.
pub(crate) fn find_module(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_module(&path, name) {
                return Some(found);
            }
        } else if path
            .file_name()
            .and_then(|file| file.to_str())
            .and_then(|file| file.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with(".ko"))
        {
            return Some(path);
        }
    }
    None
}

/// A module's bytes, uncompressed.
pub(crate) fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(LabError::io("reading", path)),
    };
    command::require(&[(tool, if tool == "xz" { "xz-utils" } else { tool })])?;
    let output = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(LabError::io("unpacking", path))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(LabError::Command {
            what: format!("unpacking {}", path.display()),
            status: output.status.to_string(),
            tail: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
