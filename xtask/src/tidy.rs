//! `cargo xtask tidy`: rules of the house that no compiler knows.
//!
//! The rules (`rules`) are functions from a path and a text to complaints, so
//! each is tested on a few lines of bad input. This file decides which files
//! they see: those that git tracks, since only these are shared. What takes more than a
//! file has a module of its own: `promises` (guarantees and their tests), `modules` (which
//! file uses which), `pages` (the documentation as a whole),
//! `anchors` (links to headings).

mod anchors;
mod modules;
mod pages;
mod promises;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::Metadata;

pub(crate) use rules::normal;

use crate::{graph, verdict};

/// Checks every tracked file of the workspace, and its packages.
pub(crate) fn check(workspace: &Metadata) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    let mut complaints = graph::check(workspace);
    complaints.extend(package_licences(workspace));
    let mut tests = BTreeSet::new();
    let mut promises = String::new();
    let mut texts = Vec::new();
    for path in tracked(root)? {
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            // Deleted, or not text.
            continue;
        };
        complaints.extend(rules::all(&path, &text, |target| {
            root.join(target).exists()
        }));
        tests.append(&mut promises::defined(&path, &text));
        if path == Path::new(promises::PAGE) {
            promises.clone_from(&text);
        }
        texts.push((path, text));
    }
    let texts = || {
        texts
            .iter()
            .map(|(path, text): &(PathBuf, String)| (path.as_path(), text.as_str()))
    };
    complaints.extend(modules::complaints(texts()));
    complaints.extend(pages::complaints(texts()));
    complaints.extend(anchors::complaints(texts()));
    complaints.extend(promises::complaints(&promises, &tests));
    verdict("tidy", &complaints)
}

/// The files git knows, and those it would take.
pub(crate) fn tracked(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    let mut paths: Vec<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Every package declares a licence. Only the scheduler is under the GPL, which its
/// dependencies ask for, and the lab's patch of an emulator that is, with the program it
/// becomes part of.
fn package_licences(workspace: &Metadata) -> Vec<String> {
    let packages = workspace.workspace_packages();
    packages
        .iter()
        .filter_map(|package| package_licence(&package.name, package.license.as_deref()))
        .collect()
}

fn package_licence(name: &str, licence: Option<&str>) -> Option<String> {
    let expected = match name {
        "scx_ufs" => "GPL-2.0-only",
        "giveway-bench" | "giveway-lab" => {
            "(MIT OR Apache-2.0) AND GPL-2.0-or-later AND GPL-2.0-only"
        }
        _ => "MIT OR Apache-2.0",
    };
    (licence != Some(expected))
        .then(|| format!("{name}: its licence is {licence:?}, not {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scheduler_and_the_lab_s_patch_are_under_the_gpl() {
        assert_eq!(package_licence("scx_ufs", Some("GPL-2.0-only")), None);
        assert_eq!(package_licence("giveway", Some("MIT OR Apache-2.0")), None);
        let with_patch = Some("(MIT OR Apache-2.0) AND GPL-2.0-or-later AND GPL-2.0-only");
        assert_eq!(package_licence("giveway-lab", with_patch), None);
        assert!(package_licence("giveway-lab", Some("MIT OR Apache-2.0")).is_some());
        assert!(package_licence("giveway", Some("GPL-2.0-only")).is_some());
        assert!(package_licence("giveway-lab", None).is_some());
    }
}
