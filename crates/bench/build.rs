//! Records the commit that the program is built from, which results carry.
//!
//! `-dirty` marks a tree with changes; a source without git says `unknown`.

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
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
