//! The package of the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;

use crate::programs;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The package, not compressed, built once.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        programs::with(&["scx_ufs", "giveway-cfl-preload"]);
        pack(&mut Command::new(script()), &tmp("package"))
    })
}

/// A place for what tests make.
pub(crate) fn tmp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Packs the programs under test to `out`, by a command that is `script` or runs it;
/// returns the package.
pub(crate) fn pack(command: &mut Command, out: &Path) -> PathBuf {
    let binaries = cargo_bin!("giveway").parent().unwrap();
    command.arg("--node").args([binaries, out]);
    let output = command.env("DPKG_DEB_COMPRESSOR_TYPE", "none").output();
    let output = output.unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let files = std::fs::read_dir(out).unwrap().flatten();
    let mut packages = files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "deb"));
    packages
        .next()
        .unwrap_or_else(|| panic!("no package: {said}"))
}

/// What packs.
pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/package.sh")
}
