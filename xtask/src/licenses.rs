//! Licences of what is linked.
//!
//! Every crate of the project but `scx_ufs` is MIT OR Apache-2.0, so nothing it
//! links may be under terms that forbid that. `scx_ufs` is GPL-2.0-only and may
//! link GPL-2.0-only crates; nobody else may.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use spdx::Expression;

/// Licences that a program under MIT OR Apache-2.0 may link.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "LGPL-2.1-only",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Licences that only the GPL program may link, too.
const ALLOWED_IN_GPL: &[&str] = &["GPL-2.0-only", "GPL-2.0-or-later"];

/// The one GPL crate.
const GPL_PACKAGE: &str = "scx_ufs";

pub(crate) fn run(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .other_options([
            "--locked".into(),
            "--filter-platform".into(),
            "x86_64-unknown-linux-gnu".into(),
        ])
        .exec()
        .context("reading the dependency tree")?;
    let problems = check(&metadata)?;
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("{} licence problems", problems.len())
    }
}

fn check(metadata: &Metadata) -> Result<BTreeSet<String>> {
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo gave no resolved tree")?;
    // What each package links: build scripts and tests are run, not linked.
    let links: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let linked = node
                .deps
                .iter()
                .filter(|dep| {
                    dep.dep_kinds
                        .iter()
                        .any(|kind| kind.kind == DependencyKind::Normal)
                })
                .map(|dep| &dep.pkg)
                .collect();
            (&node.id, linked)
        })
        .collect();
    let mut problems = BTreeSet::new();
    for member in metadata.workspace_packages() {
        let gpl = member.name.as_str() == GPL_PACKAGE;
        let mut seen = BTreeSet::new();
        let mut todo = vec![&member.id];
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            todo.extend(links.get(id).into_iter().flatten());
            let package = &metadata[id];
            let licence = package.license.as_deref().unwrap_or("");
            if !allowed(licence, gpl) {
                problems.insert(format!(
                    "{} links {} {}, whose licence is '{licence}'",
                    member.name, package.name, package.version
                ));
            }
        }
    }
    Ok(problems)
}

/// Whether one of a licence expression's choices is allowed.
fn allowed(licence: &str, gpl: bool) -> bool {
    // Old crates separate choices by a slash.
    let Ok(expression) = Expression::parse(&licence.replace('/', " OR ")) else {
        return false;
    };
    expression.evaluate(|requirement| {
        requirement.license.id().is_some_and(|id| {
            ALLOWED.contains(&id.name) || gpl && ALLOWED_IN_GPL.contains(&id.name)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_is_enough_and_all_conditions_are_needed() {
        assert!(allowed("MIT OR GPL-3.0-only", false));
        assert!(allowed("MIT/Apache-2.0", false));
        assert!(!allowed("MIT AND GPL-3.0-only", false));
        assert!(!allowed("", false));
        assert!(!allowed("no licence at all", false));
    }

    #[test]
    fn gpl_crates_are_for_the_gpl_program_alone() {
        assert!(allowed("GPL-2.0-only", true));
        assert!(!allowed("GPL-2.0-only", false));
    }
}
