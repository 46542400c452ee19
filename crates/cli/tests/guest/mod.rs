//! A guest that runs a script of claims: `ok NAME`, or `not ok NAME: why`.
//!
//! One boot serves all tests of a file, since it costs more than most claims.

use std::sync::OnceLock;

use assert_cmd::cargo::cargo_bin;
use giveway_lab::{Job, LabSpec};

mod programs;
mod transcript;

use transcript::{hold, machine, tests, transcript};

/// What the guest said that ran `tests/SCRIPT`, all of it; with `giveway` and
/// `scx_ufs` beside the script.
fn said(spec: &LabSpec, script: &str) -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    SAID.get_or_init(|| {
        let job = Job::new(["sh", script])
            .file(cargo_bin!("giveway"), "giveway")
            .file(programs::with(&["scx_ufs"]).join("scx_ufs"), "scx_ufs")
            .file(tests().join(script), script);
        transcript(spec, &machine(), &job)
    })
}

/// Every one of these claims of the script held in a guest of this lab, the only
/// guest of the file.
pub(crate) fn held(spec: &LabSpec, script: &str, claims: &[&str]) {
    hold(said(spec, script), claims);
}
