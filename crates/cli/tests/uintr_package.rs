//! The Debian package of the module for user interrupts: what DKMS finds in it.
//!
//! It has no programs, so that it is built here as users get it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Where the package has the module's source.
const SOURCE: &str = concat!("usr/src/giveway-uintr-", env!("CARGO_PKG_VERSION"));

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out
}

/// The package, and what is in it, as `DEBIAN` and files; removed with the directory.
fn built() -> (TempDir, PathBuf, PathBuf) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (out, unpacked) = (dir.path().join("out"), dir.path().join("unpacked"));
    let mut package = Command::new(top().join("dist/package.sh"));
    said(package.arg("--module").arg(&out));
    let file = format!("giveway-uintr-dkms_{}_all.deb", env!("CARGO_PKG_VERSION"));
    let file = out.join(file);
    said(Command::new("dpkg-deb").arg("-R").args([&file, &unpacked]));
    (dir, file, unpacked)
}

/// The files of a directory, without those in directories of it.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The value of `NAME="VALUE"`.
fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(left, _)| *left == name);
    values.next().unwrap().1.trim_matches('"')
}

#[test]
fn dkms_finds_all_of_the_module_under_the_version_of_the_workspace() {
    let (_dir, file, unpacked) = built();
    let packed = files(&unpacked.join(SOURCE));
    assert_eq!(packed, files(&top().join("kernel/uintr")));

    let conf = &packed["dkms.conf"];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(conf, "PACKAGE_NAME"), "giveway-uintr");
    assert_eq!(value(conf, "PACKAGE_VERSION"), version);
    let said_by_it = format!("MODULE_VERSION(\"{version}\")");
    assert!(packed["main.c"].contains(&said_by_it), "{said_by_it}");

    let field = |name| said(Command::new("dpkg-deb").arg("-f").arg(&file).arg(name));
    assert!(field("Depends").contains("dkms"));
    // Building and removing are left to DKMS, and loading to the administrator.
    let script = |name| fs::read_to_string(unpacked.join("DEBIAN").join(name)).unwrap();
    for name in ["postinst", "prerm"] {
        assert!(script(name).contains("DKMS_NAME=giveway-uintr\n"), "{name}");
        assert!(
            script(name).contains(&format!("DKMS_VERSION={version}\n")),
            "{name}"
        );
        assert!(!script(name).contains("modprobe"), "{name}");
    }
    assert!(!unpacked.join("etc").exists());
}

/// The conditions of internal.h under which the module does not compile: the text between
/// each `#if` and its `#error`.
fn refusals(header: &str) -> Vec<String> {
    let mut conditions = Vec::new();
    let mut condition = String::new();
    for line in header.replace("\\\n", " ").lines() {
        if line.starts_with("#if") {
            condition = line.to_owned();
        } else if line.starts_with("#error") {
            conditions.push(std::mem::take(&mut condition));
        }
    }
    conditions
}

#[test]
fn dkms_skips_every_kernel_that_the_module_refuses() {
    let source = files(&top().join("kernel/uintr"));
    let conf = &source["dkms.conf"];
    let config = value(conf, "BUILD_EXCLUSIVE_CONFIG");
    let config: Vec<&str> = config.split_whitespace().collect();
    let refusals = refusals(&source["internal.h"]);
    assert_eq!(
        refusals.len(),
        source["internal.h"].matches("#error").count()
    );
    let mut paired = 0;
    for condition in &refusals {
        for part in condition.trim_start_matches("#if ").split("||") {
            let part = part.trim();
            let name = |text: &str| {
                let text = text.strip_prefix("IS_ENABLED(")?.strip_suffix(')')?;
                Some(text.to_owned())
            };
            let wanted = match part.strip_prefix('!') {
                Some(lacking) => name(lacking),
                None => name(part).map(|name| format!("!{name}")),
            };
            match wanted {
                Some(wanted) => {
                    assert!(config.contains(&wanted.as_str()), "{wanted}: {config:?}");
                    paired += 1;
                }
                None => assert_eq!(part, "LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)"),
            }
        }
    }
    assert_eq!(paired, config.len(), "{config:?}: {refusals:?}");
    assert_eq!(value(conf, "BUILD_EXCLUSIVE_ARCH"), "x86_64");

    // As DKMS asks: bash, with what it reads from the file.
    let takes = |release: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", ". \"$0\"; [[ $1 =~ $BUILD_EXCLUSIVE_KERNEL ]]"]);
        bash.arg(top().join("kernel/uintr/dkms.conf")).arg(release);
        bash.status().unwrap().success()
    };
    for release in [
        "6.12.0",
        "6.12.117+deb13-cloud-amd64",
        "6.19.3",
        "7.0.1",
        "7.2.13+deb14",
    ] {
        assert!(takes(release), "{release}");
    }
    for release in [
        "5.10.0-30-amd64",
        "6.1.0-37-amd64",
        "6.11.9",
        "6.2.0",
        "7.3.0",
        "7.20.1",
    ] {
        assert!(!takes(release), "{release}");
    }
}

#[test]
fn lintian_reports_nothing() {
    if Command::new("lintian").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no lintian here; make setup");
        return;
    }
    let (_dir, file, _) = built();
    let mut lintian = Command::new("lintian");
    lintian.args(["--no-cfg", "--allow-root", "--fail-on", "error,warning"]);
    said(lintian.arg(file));
}
