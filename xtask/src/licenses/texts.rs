//! The texts of the licences that we use, and what is said of the programs' licences.
//!
//! Each licence that a package or a file of ours names has its text at the top of the
//! tree. What is shipped is what the Debian packages install from `bin/`. Three places
//! say what the licences of all of our packages in a program come to:
//!
//! - the Debian packages' `copyright`, which also has a paragraph for each licence;
//! - the container image's label, for all programs in it together;
//! - the README, for a program that has another licence than the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::Metadata;

use super::{GPL_PACKAGE, declared, shipped};

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
/// What each of the Debian packages has of ours, one a line: a file and its place.
const DEBIAN: &str = "dist/debian";
/// The one that the container image has.
const IN_CONTAINER: &str = "giveway.install";
const COPYRIGHT: &str = "dist/debian/copyright";
const CONTAINER: &str = "dist/container/Containerfile";
const LABEL: &str = "org.opencontainers.image.licenses=\"";
const README: &str = "README.md";
/// The licences of all that the README does not name.
const REST: [&str; 2] = ["Apache-2.0", "MIT"];

/// Complaints about texts that are missing. `names` are licences that files name.
pub(super) fn check(workspace: &Metadata, mut names: BTreeSet<String>) -> Result<Vec<String>> {
    let root = workspace.workspace_root.as_std_path();
    for package in workspace.workspace_packages() {
        names.extend(declared::terms(
            package.license.as_deref().unwrap_or_default(),
        ));
    }
    let mut complaints = without_text(&names, |file| read(root, file));
    let [copyright, readme, container] =
        [COPYRIGHT, README, CONTAINER].map(|file| read(root, file));
    let mut in_container = BTreeSet::new();
    for (list, program) in installed(root)? {
        let package = package_of(workspace, &program);
        let package = package.with_context(|| format!("{list}: no package makes {program}"))?;
        let licences = licences_in(workspace, package)?;
        complaints.extend(not_stated(&copyright, &program, &licences));
        complaints.extend(not_in_readme(&readme, &program, &licences));
        if list == IN_CONTAINER {
            in_container.extend(licences);
        }
    }
    complaints.extend(not_on_label(&container, &in_container));
    Ok(complaints)
}

/// What the Debian packages install, each with the list that says so.
fn installed(root: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(DEBIAN)).context(DEBIAN)? {
        let list = entry?.file_name().to_string_lossy().into_owned();
        if list.ends_with(".install") {
            let text = read(&root.join(DEBIAN), &list);
            let programs = programs(&text).into_iter();
            found.extend(programs.map(|program| (list.clone(), program.to_owned())));
        }
    }
    found.sort();
    Ok(found)
}

/// Programs and libraries among what is installed, as paths in the source package.
fn programs(install: &str) -> Vec<&str> {
    let files = install
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    files.filter(|file| file.starts_with("bin/")).collect()
}

/// The package that has a program or a shared library of this name.
fn package_of<'a>(workspace: &'a Metadata, program: &str) -> Option<&'a str> {
    let name = program.strip_prefix("bin/")?;
    let library = name
        .strip_prefix("lib")
        .and_then(|name| name.strip_suffix(".so"));
    let packages = workspace.workspace_packages();
    let mut makers = packages.into_iter().filter(|package| {
        package.targets.iter().any(|target| match library {
            Some(library) => target.is_cdylib() && target.name == library,
            None => target.is_bin() && target.name == name,
        })
    });
    makers.next().map(|package| package.name.as_str())
}

/// What the README's section on licences does not say of a program.
fn not_in_readme(readme: &str, program: &str, licences: &BTreeSet<String>) -> Vec<String> {
    let name = format!("`{}`", program.trim_start_matches("bin/"));
    let section = readme
        .split("\n## ")
        .find(|section| section.starts_with("Licence\n"));
    let lines = section.unwrap_or_default().lines();
    let about: Vec<&str> = lines.filter(|line| line.contains(&name)).collect();
    let others = licences
        .iter()
        .filter(|licence| !REST.contains(&licence.as_str()));
    let unsaid = others.filter(|licence| !about.iter().any(|line| line.contains(licence.as_str())));
    unsaid
        .map(|licence| format!("{README}: no line of 'Licence' says {licence} of {name}"))
        .collect()
}

/// What is wrong with the label of the container image.
fn not_on_label(container: &str, licences: &BTreeSet<String>) -> Option<String> {
    let label = container.split_once(LABEL).map_or("", |(_, rest)| rest);
    let label = label.split('"').next().unwrap_or_default();
    let said: BTreeSet<String> = declared::terms(label).into_iter().collect();
    (said != *licences).then(|| {
        format!("{CONTAINER}: the label says {said:?}, and the programs have {licences:?}")
    })
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
        .flat_map(|package| declared::terms(package.license.as_deref().unwrap_or_default()))
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
    fn each_installed_program_is_some_package_s() {
        let workspace = crate::workspace().unwrap();
        let installed = installed(workspace.workspace_root.as_std_path()).unwrap();
        for program in ["bin/giveway", "bin/giveway-bench", "bin/scx_ufs"] {
            assert!(installed.iter().any(|(_, other)| other == program));
        }
        for (list, program) in installed {
            assert!(
                package_of(&workspace, &program).is_some(),
                "{list} {program}"
            );
        }
        let library = package_of(&workspace, "bin/libgiveway_cfl.so");
        assert_eq!(library, Some("giveway-cfl-preload"));
        assert_eq!(package_of(&workspace, "bin/nothing"), None);
        assert_eq!(programs("bin/a usr/bin\ndist/b c\n\n"), ["bin/a"]);
    }

    #[test]
    fn a_program_that_has_the_lab_in_it_says_so_wherever_licences_are_said() {
        let workspace = crate::workspace().unwrap();
        let has = |package| licences_in(&workspace, package).unwrap();
        assert!(has("giveway-lab").contains("GPL-2.0-or-later"));
        assert!(!has("giveway-cfl-preload").contains("GPL-2.0-or-later"));

        let with_lab = set(&["MIT", "Apache-2.0", "GPL-2.0-or-later"]);
        let readme = "# A\n\n`a`: GPL-2.0-or-later\n\n## Licence\n\n`b`: GPL-2.0-or-later\n";
        assert_eq!(not_in_readme(readme, "bin/a", &with_lab).len(), 1);
        assert!(not_in_readme(readme, "bin/b", &with_lab).is_empty());
        assert!(not_in_readme(readme, "bin/a", &set(&["MIT", "Apache-2.0"])).is_empty());

        let label = format!("LABEL {LABEL}MIT OR Apache-2.0\"\n");
        assert!(not_on_label(&label, &with_lab).is_some());
        assert!(not_on_label(&label, &set(&["MIT", "Apache-2.0"])).is_none());
    }

    #[test]
    fn every_licence_of_the_tree_has_its_text_and_debian_s_copyright_says_all() {
        let workspace = crate::workspace().unwrap();
        let (_, names) = super::super::files::check(&workspace).unwrap();
        assert_eq!(check(&workspace, names).unwrap(), Vec::<String>::new());
    }
}
