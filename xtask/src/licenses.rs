//! `cargo xtask licenses`: what we ship may be shipped under the licences that
//! we state.
//!
//! Every dependency's licence expression must be satisfiable by the allow list.
//! The scheduler is GPL-2.0-only, since it links code that is; in its tree,
//! and only there, licences compatible with that are allowed as well. A crate
//! that only tests use is not shipped and does not count.
//!
//! What our own files say must agree with what their packages declare (`files`), also
//! where another package embeds them (`embedded`), and the texts of these licences must be there (`texts`).

mod declared;
mod embedded;
mod files;
mod texts;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, Package, PackageId};

use crate::verdict;

/// Licences under which a dependency can be part of MIT or Apache-2.0 code.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    // Of libbz2-rs-sys: as BSD-3-Clause, without its third clause on names.
    "bzip2-1.0.6",
];
/// Further licences in the tree of the scheduler: the GPL itself, and those
/// that are compatible with it when linked as a library.
const WITH_GPL: &[&str] = &["GPL-2.0-only", "GPL-2.0", "LGPL-2.1-only", "LGPL-2.1"];
/// The package whose tree may hold the licences above.
const GPL_PACKAGE: &str = "scx_ufs";
/// Packages of ours that have further licences for what is not linked: the lab has patches
/// as text, and makes an emulator and a kernel with them, programs of their own.
const WITH_TEXTS: &[&str] = &["giveway-lab", "giveway-bench"];
/// Those licences.
const OF_TEXTS: &[&str] = &["GPL-2.0-or-later", "GPL-2.0-only"];

/// Checks the tree of every workspace package.
pub(crate) fn check(workspace: &Metadata) -> Result<()> {
    // One complaint per dependency, with the packages of ours that ship it.
    let mut complaints: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut seen_somewhere = BTreeSet::new();
    for top in workspace.workspace_packages() {
        for package in shipped(workspace, top)? {
            let licence = package.license.as_deref().unwrap_or_default();
            let has_texts = WITH_TEXTS.contains(&package.name.as_str());
            if let Some(what) = complaint(licence, *top.name == GPL_PACKAGE, has_texts) {
                let what = format!("{} {}: {what}", package.name, package.version);
                complaints.entry(what).or_default().insert(&top.name);
            }
            seen_somewhere.insert(&package.id);
        }
    }
    println!("licences of {} packages", seen_somewhere.len());
    let mut complaints: Vec<String> = complaints
        .into_iter()
        .map(|(what, tops)| format!("{what} (in {})", Vec::from_iter(tops).join(", ")))
        .collect();
    let (about_files, names) = files::check(workspace)?;
    complaints.extend(about_files);
    complaints.extend(texts::check(workspace, names)?);
    verdict("licenses", &complaints)
}

/// A package and all that it is built from or with, but for what only tests use.
pub(crate) fn shipped<'a>(workspace: &'a Metadata, top: &'a Package) -> Result<Vec<&'a Package>> {
    let resolve = workspace.resolve.as_ref().context("no dependency graph")?;
    let nodes: HashMap<&PackageId, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let packages: HashMap<&PackageId, _> = workspace.packages.iter().map(|p| (&p.id, p)).collect();
    let mut waiting = vec![&top.id];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        found.push(*packages.get(id).context("a node without a package")?);
        let used = nodes.get(id).context("a package without a node")?;
        waiting.extend(
            used.deps
                .iter()
                .filter(|dependency| {
                    let mut kinds = dependency.dep_kinds.iter();
                    kinds.any(|info| info.kind != DependencyKind::Development)
                })
                .map(|dependency| &dependency.pkg),
        );
    }
    Ok(found)
}

/// Why a licence expression is not acceptable, if it is not. `as_text` is allowed
/// besides, since it is not linked.
fn complaint(licence: &str, in_gpl_tree: bool, has_texts: bool) -> Option<String> {
    if licence.is_empty() {
        return Some("declares no licence".to_owned());
    }
    // Old manifests write a slash for OR, and GPL-2.0 for GPL-2.0-only.
    let parsed = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX);
    let Ok(expression) = parsed else {
        return Some(format!("'{licence}' is no licence expression"));
    };
    let allowed = expression.evaluate(|requirement| {
        let Some(id) = requirement.license.id() else {
            return false;
        };
        PERMISSIVE.contains(&id.name)
            || (in_gpl_tree && WITH_GPL.contains(&id.name))
            || (has_texts && OF_TEXTS.contains(&id.name))
    });
    (!allowed).then(|| format!("'{licence}' is not on the allow list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_is_enough_and_every_conjunct_is_needed() {
        assert_eq!(complaint("MIT OR GPL-3.0-only", false, false), None);
        assert_eq!(complaint("MIT/Apache-2.0", false, false), None);
        assert_eq!(
            complaint("(MIT OR Apache-2.0) AND Unicode-3.0", false, false),
            None
        );
        assert_eq!(
            complaint("Apache-2.0 WITH LLVM-exception", false, false),
            None
        );
        assert!(complaint("MIT AND GPL-3.0-only", false, false).is_some());
    }

    #[test]
    fn the_gpl_stays_in_the_scheduler_s_tree() {
        assert_eq!(complaint("GPL-2.0-only", true, false), None);
        assert_eq!(
            complaint("LGPL-2.1-only OR BSD-2-Clause", false, false),
            None
        );
        assert!(complaint("GPL-2.0-only", false, false).is_some());
        assert!(complaint("LGPL-2.1-only", false, false).is_some());
        assert!(complaint("GPL-3.0-only", true, false).is_some());
    }

    #[test]
    fn a_text_that_is_not_linked_may_be_under_the_gpl() {
        let licence = "(MIT OR Apache-2.0) AND GPL-2.0-or-later AND GPL-2.0-only";
        assert_eq!(complaint(licence, false, true), None);
        assert!(complaint(licence, false, false).is_some());
    }

    #[test]
    fn a_package_without_a_licence_is_refused() {
        assert!(complaint("", false, false).is_some());
        assert!(complaint("see LICENSE", false, false).is_some());
    }
}
