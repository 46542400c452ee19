//! A guest that runs a script of claims: `ok NAME`, or `not ok NAME: why`.
//!
//! One boot serves all tests of a file, since it costs more than most claims.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, LabSpec};

mod transcript;

use transcript::{hold, machine, tests, transcript};

/// The scheduler beside the command under test, built from this tree.
fn scheduler(giveway: &Path) -> PathBuf {
    let dir = giveway.parent().unwrap();
    // The runner of all tests has built it already.
    if std::env::var_os("GIVEWAY_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "scx_ufs"]);
        if dir.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "scx_ufs does not build");
    }
    dir.join("scx_ufs")
}

/// What the guest said that ran `tests/SCRIPT`, all of it; with `giveway` and
/// `scx_ufs` beside the script.
fn said(spec: &LabSpec, script: &str) -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let giveway = cargo_bin!("giveway");
        let job = Job::new(["sh", script])
            .file(giveway, "giveway")
            .file(scheduler(giveway), "scx_ufs")
            .file(tests().join(script), script);
        transcript(spec, &machine(), &job)
    })
}

/// Every one of these claims of the script held in a guest of this lab, the only
/// guest of the file.
pub(crate) fn held(spec: &LabSpec, script: &str, claims: &[&str]) {
    hold(said(spec, script), claims);
}
