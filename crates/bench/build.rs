//! Records what the program is built from and how, which results carry: the commit, and
//! Cargo's profile.
//!
//! `-dirty` marks a tree with changes; a source without git says `unknown`. Cargo says the
//! profile only by the directory that it builds in (`target/PROFILE/build/CRATE/out`).

use std::path::Path;
use std::process::Command;

fn main() {
    // Another commit, or other sources: any crate ends up in this program.
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rerun-if-changed=..");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
        match changes.as_deref() {
            Some("") => commit,
            _ => format!("{commit}-dirty"),
        }
    });
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo::rustc-env=GIVEWAY_COMMIT={commit}");
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = profile.unwrap_or_default().to_string_lossy();
    println!("cargo::rustc-env=GIVEWAY_PROFILE={profile}");
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
