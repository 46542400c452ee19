//! The texts of the licences that we use: in the tree, and in the Debian package.
//!
//! Each licence that a package or a file of ours names has its text at the top of the
//! tree. The package's `copyright` says for each program what the licences of all of
//! our packages in it come to, and has a paragraph for each licence.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::Metadata;

use super::{GPL_PACKAGE, files, shipped};

/// A licence, the file that has its text, and words that stand in it.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "Apache-2.0",
        "LICENSE-APACHE",
        "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION",
    ),
    (
        "GPL-2.0-only",
        "LICENSE-GPL-2.0",
        "TERMS AND CONDITIONS FOR COPYING, DISTRIBUTION AND MODIFICATION",
    ),
    (
        "GPL-2.0-or-later",
        "LICENSE-GPL-2.0",
        "TERMS AND CONDITIONS FOR COPYING, DISTRIBUTION AND MODIFICATION",
    ),
    (
        "MIT",
        "LICENSE-MIT",
        "Permission is hereby granted, free of charge",
    ),
    (
        "PostgreSQL",
        "LICENSE-POSTGRESQL",
        "without a written agreement is hereby granted",
    ),
];
/// What the Debian package has of ours, and the package of which each is built.
const PROGRAMS: &[(&str, &str)] = &[
    ("bin/giveway", "giveway"),
    ("bin/giveway-bench", "giveway-bench"),
    ("bin/giveway-sql", "giveway-sql-cli"),
    ("bin/scx_ufs", "scx_ufs"),
    ("bin/libgiveway_cfl.so", "giveway-cfl-preload"),
];
const COPYRIGHT: &str = "dist/debian/copyright";

/// Complaints about texts that are missing. `names` are licences that files name.
pub(super) fn check(workspace: &Metadata, mut names: BTreeSet<String>) -> Result<Vec<String>> {
    let root = workspace.workspace_root.as_std_path();
    for package in workspace.workspace_packages() {
        names.extend(files::terms(package.license.as_deref().unwrap_or_default()));
    }
    let mut complaints = without_text(&names, |file| read(root, file));
    let copyright = read(root, COPYRIGHT);
    for (program, package) in PROGRAMS {
        let licences = licences_in(workspace, package)?;
        complaints.extend(not_stated(&copyright, program, &licences));
    }
    Ok(complaints)
}

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file)).unwrap_or_default()
}

/// Licences without a text. `read` has the text of a file, and nothing for one that
/// is not there.
fn without_text(names: &BTreeSet<String>, read: impl Fn(&str) -> String) -> Vec<String> {
    let complaint = |name: &String| {
        let Some((_, file, words)) = TEXTS.iter().find(|(licence, ..)| licence == name) else {
            return Some(format!(
                "{name} has no text: add it to the top of the tree, and to {}",
                file!()
            ));
        };
        let text = read(file).split_whitespace().collect::<Vec<_>>().join(" ");
        (!text.contains(words)).then(|| format!("{name} has no text: it belongs into {file}"))
    };
    names.iter().filter_map(complaint).collect()
}

/// The licences of all of our packages that a program is built from. What is linked
/// with code under the GPL is under the GPL as a whole.
fn licences_in(workspace: &Metadata, package: &str) -> Result<BTreeSet<String>> {
    let tops = workspace.workspace_packages();
    let top = tops.into_iter().find(|top| *top.name == package);
    let top = top.with_context(|| format!("no package {package}"))?;
    let ours = shipped(workspace, top)?;
    // Those of others are in no `copyright` of ours, but in the notices.
    let ours = ours.iter().filter(|package| package.source.is_none());
    let ours = ours.filter(|ours| package != GPL_PACKAGE || *ours.name == package);
    Ok(ours
        .flat_map(|package| files::terms(package.license.as_deref().unwrap_or_default()))
        .collect())
}

/// What Debian's `copyright` does not say of a program that has these licences.
fn not_stated(copyright: &str, program: &str, licences: &BTreeSet<String>) -> Vec<String> {
    let paragraphs: Vec<_> = copyright.split("\n\n").map(fields).collect();
    let mut about = paragraphs.iter().rev().filter(|fields| {
        let files = fields.get("Files").map_or("", String::as_str);
        files
            .split_whitespace()
            .any(|file| [program, "*"].contains(&file))
    });
    let Some(stated) = about.next().and_then(|fields| fields.get("License")) else {
        return vec![format!("{COPYRIGHT}: nothing about {program}")];
    };
    let stated: BTreeSet<String> = stated
        .split([' ', ','])
        .filter(|word| !["", "and", "or"].contains(word))
        // Debian's name for it.
        .map(|word| if word == "Expat" { "MIT" } else { word }.to_owned())
        .collect();
    let mut complaints = Vec::new();
    if stated != *licences {
        complaints.push(format!(
            "{COPYRIGHT}: {program} is said to have {stated:?}, and has {licences:?}"
        ));
    }
    for licence in licences {
        let debian = if licence == "MIT" { "Expat" } else { licence };
        let has_text = paragraphs.iter().any(|fields| {
            !fields.contains_key("Files")
                && fields.get("License").is_some_and(|name| name == debian)
        });
        if !has_text {
            complaints.push(format!("{COPYRIGHT}: no paragraph 'License: {debian}'"));
        }
    }
    complaints
}

/// The fields of a paragraph, each with its first line.
fn fields(paragraph: &str) -> BTreeMap<&str, String> {
    let lines = paragraph.lines().filter(|line| !line.starts_with(' '));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_licence_without_its_text_is_refused() {
        let read = |file: &str| match file {
            "LICENSE-MIT" => "Permission is\nhereby granted, free of charge, ...".to_owned(),
            _ => String::new(),
        };
        assert!(without_text(&set(&["MIT"]), read).is_empty());
        assert_eq!(without_text(&set(&["MIT", "GPL-2.0-only"]), read).len(), 1);
        assert_eq!(without_text(&set(&["Zlib"]), read).len(), 1);
    }

    #[test]
    fn a_program_has_the_licences_that_debian_s_copyright_says() {
        let copyright = "Files: *\nLicense: Expat\n\n\
            Files: bin/a\nLicense: Expat or Apache-2.0, and GPL-2.0-only\n\n\
            License: Expat\n Permission\n\nLicense: GPL-2.0-only\n see\n";
        let all = ["MIT", "Apache-2.0", "GPL-2.0-only"];
        let found = not_stated(copyright, "bin/a", &set(&all));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("no paragraph 'License: Apache-2.0'"));
        let found = not_stated(copyright, "bin/a", &set(&["MIT"]));
        assert!(found[0].contains("is said to have"), "{found:?}");
        // What no paragraph names has the licence of all.
        assert!(not_stated(copyright, "bin/b", &set(&["MIT"])).is_empty());
        assert_eq!(not_stated("", "bin/b", &set(&["MIT"])).len(), 1);
    }

    #[test]
    fn every_licence_of_the_tree_has_its_text_and_debian_s_copyright_says_all() {
        let workspace = crate::workspace().unwrap();
        let (_, names) = files::check(&workspace).unwrap();
        assert_eq!(check(&workspace, names).unwrap(), Vec::<String>::new());
    }
}
