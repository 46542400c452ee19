//! `cargo xtask notices`: what the licences of others ask us to pass on with the
//! programs, which contain their code: names, licences, copyright notices.
//!
//! A package's own files are the source, as their authors published them. Many say
//! the same to the letter, so a text is printed once, below the names of all that
//! have it. A package without such a file is listed with its licence and authors.
//!
//! Known weakness: a notice that stands in the source alone is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, Package};

use crate::licenses;

/// Our packages that end up in programs and libraries for users.
const PROGRAMS: &[&str] = &[
    "giveway",
    "giveway-bench",
    "giveway-sql-cli",
    "scx_ufs",
    "giveway-cfl-preload",
];
/// How the names of files begin that have notices, in capital letters.
const FILES: &[&str] = &[
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// Prints licences and notices of all packages that the programs contain.
pub(crate) fn print(workspace: &Metadata) -> Result<()> {
    let mut packages = BTreeMap::new();
    for name in PROGRAMS {
        let tops = workspace.workspace_packages();
        let top = tops.into_iter().find(|package| *package.name == *name);
        let top = top.with_context(|| format!("no package {name}"))?;
        for package in licenses::shipped(workspace, top)? {
            // Our own are in no registry.
            if package.source.is_some() {
                packages.insert(label(package), package);
            }
        }
    }
    let text = notices(&packages);
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn label(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

fn notices(packages: &BTreeMap<String, &Package>) -> String {
    let mut text = String::from("The programs of Giveway contain these packages of others.\n\n");
    let mut carriers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (label, package) in packages {
        let licence = package.license.as_deref().unwrap_or("see below");
        text += &format!("{label}: {licence}");
        if !package.authors.is_empty() {
            text += &format!("; {}", package.authors.join(", "));
        }
        text.push('\n');
        let dir = package.manifest_path.as_std_path().parent();
        for notice in texts(dir.unwrap_or(Path::new("."))) {
            carriers.entry(notice).or_default().insert(label);
        }
    }
    for (notice, labels) in carriers {
        let labels = Vec::from_iter(labels).join(", ");
        text += &format!("\n\n{}\n{labels}:\n\n{notice}\n", "=".repeat(72));
    }
    text
}

/// The texts of the notices in a directory, without blanks around them.
fn texts(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().to_uppercase();
            FILES.iter().any(|start| name.starts_with(start))
        })
        .filter_map(|entry| fs::read(entry.path()).ok())
        .map(|bytes| {
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            text.trim().to_owned()
        })
        .filter(|text| !text.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_found_by_the_names_of_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("LICENSE-MIT", "Copyright A\r\n"),
            ("license.txt", "\nCopyright A\n"),
            ("NOTICE", "made by B"),
            ("README.md", "not this"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let expected = ["Copyright A", "made by B"].map(str::to_owned);
        assert_eq!(Vec::from_iter(texts(dir.path())), expected);
    }

    #[test]
    fn what_the_programs_contain_is_listed_and_what_tests_use_is_not() {
        let workspace = crate::workspace().unwrap();
        let tops = workspace.workspace_packages();
        let scheduler = tops.iter().find(|package| *package.name == "scx_ufs");
        let shipped = licenses::shipped(&workspace, scheduler.unwrap()).unwrap();
        let packages = shipped.iter().map(|package| (label(package), *package));
        let text = notices(&packages.collect());
        assert!(text.contains("\nlibbpf-rs 0.27.2: LGPL-2.1-only OR BSD-2-Clause"));
        assert!(text.contains("Redistribution and use in source and binary forms"));
        assert!(!text.contains("\ngiveway-lab "), "the lab only tests");
    }
}
