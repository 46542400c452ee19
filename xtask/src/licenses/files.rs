//! What each file says of its own licence.
//!
//! C files, BPF programs and patches leave the tree one at a time: a header is
//! compiled into somebody's server, a patch is applied to somebody's emulator. So
//! each of them opens with an SPDX line. Any other file may have one.
//!
//! The licence of a package must cover that of each file in it: whichever choice of
//! the package's licences a user takes, those licences satisfy the file's, too. So a
//! file under the GPL in a package that is MIT OR Apache-2.0 is refused, as is one
//! that leaves out one of the two. What a package embeds of other directories is held to
//! the same (`embedded`).
//!
//! Known weakness: a licence that stands in the prose of a file alone is not found.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use cargo_metadata::Metadata;
use spdx::Expression;

use super::declared::{LINES, Owners, TAG, covers, licence_around, said, terms};
use super::embedded::Tree;
use crate::tidy;

/// Names of files that must have the line end in one of these.
const MUST_SAY: &[&str] = &["c", "h", "patch"];
/// What is in no package and has another licence: that of PostgreSQL, MariaDB or Linux, of
/// which it is a change or a part.
const APART: &[(&str, &str)] = &[
    ("postgres/patches", "PostgreSQL"),
    // A plugin includes the server's headers.
    ("mariadb", "GPL-2.0-only"),
    // What programs include of it is for any program. The first that fits counts.
    ("kernel/uintr", "GPL-2.0-only AND (MIT OR Apache-2.0)"),
    ("kernel", "GPL-2.0-only"),
];

/// Complaints about the files of the tree, and the names of all licences in them.
pub(super) fn check(workspace: &Metadata) -> Result<(Vec<String>, BTreeSet<String>)> {
    let root = workspace.workspace_root.as_std_path();
    let owners = owners(workspace);
    let tracked = tidy::tracked(root)?;
    let tree = Tree {
        files: &tracked,
        owners: &owners,
        scripts: &scripts(workspace),
        read: &|path| fs::read_to_string(root.join(path)).ok(),
    };
    let mut complaints = Vec::new();
    let mut names = BTreeSet::new();
    for path in &tracked {
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            // Deleted, or not text.
            continue;
        };
        names.extend(said(&text).map(terms).unwrap_or_default());
        let what = complaint(path, &text, licence_around(&owners, path));
        complaints.extend(what.map(|what| format!("{}: {what}", path.display())));
        complaints.extend(tree.complaints(path, &text));
    }
    Ok((complaints, names))
}

/// Build scripts of our packages.
fn scripts(workspace: &Metadata) -> Vec<PathBuf> {
    let packages = workspace.workspace_packages().into_iter();
    let targets = packages.flat_map(|package| &package.targets);
    let scripts = targets.filter(|target| target.is_custom_build());
    let paths =
        scripts.filter_map(|target| target.src_path.strip_prefix(&workspace.workspace_root).ok());
    paths.map(|path| path.as_std_path().to_owned()).collect()
}

fn owners(workspace: &Metadata) -> Owners {
    let root = &workspace.workspace_root;
    let packages = workspace.workspace_packages().into_iter().map(|package| {
        let dir = package.manifest_path.parent();
        let dir = dir.and_then(|dir| dir.strip_prefix(root).ok());
        let dir = dir.map(|dir| dir.as_std_path().to_owned());
        (
            dir.unwrap_or_default(),
            package.license.clone().unwrap_or_default(),
        )
    });
    let apart = APART
        .iter()
        .map(|(dir, licence)| (PathBuf::from(dir), (*licence).to_owned()));
    packages.chain(apart).collect()
}

/// Why a file cannot be where it is, if it cannot. `around` is its package's licence.
fn complaint(path: &Path, text: &str, around: &str) -> Option<String> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let Some(licence) = said(text) else {
        return MUST_SAY.contains(&extension?).then(|| {
            format!("does not say its licence; write '{TAG} ...' into its first {LINES} lines")
        });
    };
    let Ok(file) = Expression::parse(licence) else {
        return Some(format!("'{licence}' is no licence expression"));
    };
    // A package that declares none is complained about elsewhere.
    let around_it = Expression::parse(around).ok()?;
    (!covers(&around_it, &file)).then(|| {
        format!(
            "'{licence}' is not covered by '{around}', which is declared around it; declare both"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "MIT OR Apache-2.0";
    const WITH_PATCH: &str = "(MIT OR Apache-2.0) AND GPL-2.0-or-later";

    fn refused(path: &str, text: &str, around: &str) -> bool {
        complaint(Path::new(path), text, around).is_some()
    }

    #[test]
    fn patches_and_c_files_must_say_their_licence_and_others_may() {
        for path in ["a.patch", "a.c", "a.h", "a.bpf.c"] {
            assert!(refused(path, "int x;\n", BOTH), "{path}");
        }
        assert!(!refused("a.sh", "#!/bin/sh\n", BOTH));
        assert!(!refused("LICENSE", "SPDX\n", BOTH));
        let late = format!("{}// {TAG} MIT\n", "\n".repeat(LINES));
        assert!(refused("a.c", &late, BOTH));
    }

    #[test]
    fn a_file_under_the_gpl_is_refused_in_a_package_that_does_not_say_so() {
        let text = format!("A change.\n\n{TAG} GPL-2.0-or-later\n\n--- a\n");
        assert!(refused("a.patch", &text, BOTH));
        assert!(!refused("a.patch", &text, WITH_PATCH));
        let script = format!("#!/bin/sh\n# {TAG} GPL-2.0-only\n");
        assert!(refused("a.sh", &script, BOTH));
        assert!(refused("a.sh", &script, WITH_PATCH));
        assert!(!refused("a.sh", &script, "GPL-2.0-only"));
    }

    #[test]
    fn every_choice_that_a_package_offers_must_do_for_the_file() {
        let c = |licence: &str| format!("/* {TAG} {licence} */\n");
        assert!(!refused("a.c", &c(BOTH), BOTH));
        assert!(!refused("a.c", &c(BOTH), WITH_PATCH));
        assert!(!refused(
            "a.c",
            &c("MIT OR Apache-2.0 OR GPL-2.0-only"),
            BOTH
        ));
        assert!(refused("a.c", &c("MIT"), BOTH), "not under Apache-2.0");
        assert!(refused("a.c", &c("GPL-2.0-only OR MIT"), BOTH));
        assert!(refused("a.c", &c("who knows"), BOTH));
    }

    #[test]
    fn the_nearest_declaration_counts() {
        let owners = owners(&crate::workspace().unwrap());
        let around = |path| licence_around(&owners, Path::new(path));
        assert_eq!(around("crates/scx_ufs/src/bpf/main.bpf.c"), "GPL-2.0-only");
        assert_eq!(around("crates/locks/src/lib.rs"), BOTH);
        assert_eq!(around("postgres/giveway/hints.c"), BOTH);
        assert_eq!(around("postgres/patches/lockhint.patch"), "PostgreSQL");
    }

    #[test]
    fn no_file_of_the_tree_has_a_licence_that_its_package_does_not_declare() {
        let (complaints, _) = check(&crate::workspace().unwrap()).unwrap();
        assert_eq!(complaints, Vec::<String>::new());
    }
}
