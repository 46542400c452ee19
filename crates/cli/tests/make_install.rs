//! `make install` and `make uninstall`, into a directory of its own: what is there
//! afterwards, and that nothing stays.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use assert_cmd::cargo::cargo_bin;

/// Programs of other packages, as far as installing asks them something.
const STUB: &str = "#!/bin/sh
name=${0##*/}
case $1 in
man) mkdir -p \"$2\" && : >\"$2/$name.1\" ;;
completions) echo \"$2 of $name\" ;;
--man) echo manual ;;
esac
";

/// The programs as cargo would have built them: our own, and stubs.
fn built(dir: &Path) {
    fs::copy(cargo_bin!("giveway"), dir.join("giveway")).unwrap();
    for name in ["giveway-bench", "giveway-sql", "scx_ufs"] {
        fs::write(dir.join(name), STUB).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(dir.join("libgiveway_cfl.so"), "").unwrap();
}

/// What `make TARGET` does with `DESTDIR`, without building.
fn make(target: &str, bin: &Path, destination: &Path) {
    let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new("make")
        .args(["-C", top, "-o", "build", target])
        .arg(format!("BIN={}", bin.display()))
        .arg(format!("DESTDIR={}", destination.display()))
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {target}: {errors}");
}

/// All files below `dir`, by their paths there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(entry.path()),
                false => found.push(entry.path().strip_prefix(dir).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn install_is_complete_and_uninstall_leaves_nothing() {
    let (bin, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    built(bin.path());
    make("install", bin.path(), root.path());
    for (file, mode) in [
        ("usr/local/bin/giveway", 0o755),
        ("usr/local/bin/scx_ufs", 0o755),
        ("usr/local/lib/libgiveway_cfl.so", 0o644),
        ("usr/local/lib/sysusers.d/giveway.conf", 0o644),
        ("usr/local/share/giveway/grafana-giveway.json", 0o644),
        ("usr/local/share/giveway/perfetto/preemptions.sql", 0o644),
        ("usr/local/share/doc/giveway/LICENSE-MIT", 0o644),
        ("usr/local/share/doc/giveway/CHANGELOG.md", 0o644),
        (
            "usr/local/share/doc/giveway/docs/operate/scheduler.md",
            0o644,
        ),
        ("usr/local/share/man/man1/giveway-meta-run.1", 0o644),
        ("usr/local/share/man/man1/scx_ufs.1", 0o644),
        ("usr/local/share/bash-completion/completions/giveway", 0o644),
        ("usr/local/share/zsh/site-functions/_giveway-sql", 0o644),
        (
            "usr/local/share/fish/vendor_completions.d/giveway.fish",
            0o644,
        ),
        ("etc/systemd/system/giveway.service", 0o644),
        ("etc/systemd/system/giveway-meta.service", 0o644),
        ("etc/systemd/system/giveway-metrics.service", 0o644),
        ("etc/systemd/system/background.slice", 0o644),
        ("etc/default/giveway", 0o644),
    ] {
        let found = fs::metadata(root.path().join(file));
        let found = found.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{file}");
    }
    let bash = "usr/local/share/bash-completion/completions/giveway";
    let bash = fs::read_to_string(root.path().join(bash)).unwrap();
    assert!(bash.contains("complete -F _giveway"), "{bash}");
    // What another program has put there stays.
    fs::write(root.path().join("usr/local/bin/other"), "").unwrap();
    make("uninstall", bin.path(), root.path());
    assert_eq!(files(root.path()), [Path::new("usr/local/bin/other")]);
    // Nothing is there any more, and that is no error.
    make("uninstall", bin.path(), root.path());
}

#[test]
fn administrator_s_options_survive_both() {
    let (bin, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    built(bin.path());
    let options = root.path().join("etc/default/giveway");
    fs::create_dir_all(options.parent().unwrap()).unwrap();
    fs::write(&options, "SCX_UFS_OPTIONS=\"--flat\"\n").unwrap();
    for target in ["install", "uninstall"] {
        make(target, bin.path(), root.path());
        let text = fs::read_to_string(&options).unwrap();
        assert!(text.contains("--flat"), "{target}: {text}");
    }
    assert_eq!(files(root.path()), [Path::new("etc/default/giveway")]);
}
