//! `cargo xtask semver`: the published libraries promise what they promised before.
//!
//! cargo-semver-checks compares the public interface of each published package with that
//! of an earlier revision, and says whether the version number admits the difference. The
//! revision is the last tag unless another one is given: it is there before the first
//! release, and without a registry. Packages that the revision does not have, or does not
//! publish, have promised nothing yet and are named and left out.

use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, Package};

use crate::publish;

const TOOL: &str = "cargo-semver-checks";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tag or another revision of git [default: the last tag]
    #[arg(long, value_name = "REVISION")]
    baseline: Option<String>,
}

pub(crate) fn check(workspace: &Metadata, args: &Args) -> Result<()> {
    let has_tool = Command::new(TOOL).arg("--version").output();
    if !has_tool.is_ok_and(|output| output.status.success()) {
        bail!("{}", no_tool());
    }
    let baseline = baseline(workspace, args.baseline.as_deref())?;
    let (old, new): (Vec<&Package>, Vec<&Package>) = publish::in_order(workspace)
        .into_iter()
        .partition(|package| has_promised(&manifest_at(workspace, &baseline, package)));
    for package in &new {
        println!("{}: not published in {baseline}", package.name);
    }
    if old.is_empty() {
        bail!("{baseline} publishes none of the packages: name a later one with --baseline");
    }
    let status = Command::new("cargo")
        .args([
            "semver-checks",
            "check-release",
            "--baseline-rev",
            &baseline,
        ])
        .args(publish::options(&old))
        .current_dir(&workspace.workspace_root)
        .status()
        .context(TOOL)?;
    if !status.success() {
        bail!(
            "semver: an interface has changed since {baseline} by more than its version says, \
             or could not be compared; if it has changed, undo that or raise the version in \
             Cargo.toml"
        );
    }
    Ok(())
}

fn no_tool() -> String {
    format!("nothing was checked, for {TOOL} is missing: cargo install {TOOL} --locked")
}

/// The revision to compare with.
fn baseline(workspace: &Metadata, asked: Option<&str>) -> Result<String> {
    let Some(asked) = asked else {
        let last = git(workspace, &["describe", "--tags", "--abbrev=0"])?;
        if !last.status.success() {
            bail!("no tag to compare with: name a revision with --baseline");
        }
        return Ok(String::from_utf8_lossy(&last.stdout).trim().to_owned());
    };
    let commit = format!("{asked}^{{commit}}");
    let known = git(workspace, &["rev-parse", "--verify", "--quiet", &commit])?;
    if !known.status.success() {
        bail!("git knows no revision {asked}: see git log and git tag");
    }
    Ok(asked.to_owned())
}

/// The manifest of a package as it was; empty if there was none.
fn manifest_at(workspace: &Metadata, baseline: &str, package: &Package) -> String {
    let path = package
        .manifest_path
        .strip_prefix(&workspace.workspace_root);
    let path = path.unwrap_or(&package.manifest_path);
    match git(workspace, &["show", &format!("{baseline}:{path}")]) {
        Ok(shown) if shown.status.success() => String::from_utf8_lossy(&shown.stdout).into_owned(),
        _ => String::new(),
    }
}

/// Whether a package with this manifest was published.
fn has_promised(manifest: &str) -> bool {
    manifest.lines().any(|line| line.trim() == "publish = true")
}

fn git(workspace: &Metadata, args: &[&str]) -> Result<Output> {
    let mut git = Command::new("git");
    git.args(args).current_dir(&workspace.workspace_root);
    git.output().context("git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_the_remedy() {
        assert!(no_tool().ends_with("cargo install cargo-semver-checks --locked"));
    }

    #[test]
    fn an_unknown_baseline_is_refused() {
        let workspace = crate::workspace().unwrap();
        let error = baseline(&workspace, Some("no-such-revision")).unwrap_err();
        assert!(error.to_string().contains("no-such-revision"), "{error}");
        assert_eq!(baseline(&workspace, Some("HEAD")).unwrap(), "HEAD");
    }

    #[test]
    fn only_what_was_published_is_compared() {
        assert!(has_promised("[package]\npublish = true\n"));
        assert!(!has_promised("[package]\npublish.workspace = true\n"));
        assert!(!has_promised(""));
        // Every package that is published now says so in the form that is looked for.
        let workspace = crate::workspace().unwrap();
        for package in publish::in_order(&workspace) {
            let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
            assert!(has_promised(&manifest), "{}", package.name);
        }
    }
}
