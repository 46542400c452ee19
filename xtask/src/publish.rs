//! `cargo xtask publish`: the libraries work for somebody who has only their packages.
//!
//! ```text
//! manifests ─▶ cargo package ─▶ unpack ─▶ programs of outside/ ─▶ cargo publish --dry-run
//! ```
//!
//! A package is published if its manifest says `publish = true`; nothing else lists
//! them. Each is packed and unpacked, and each program in `xtask/outside` is built
//! against what was unpacked, and run. A program stands for its first user: it lies
//! outside the workspace, names one library as its only dependency, and does the first
//! thing that the library is for. It fails if the library does not do it.
//!
//! The programs take the versions of other packages from the workspace's lock file, so
//! that nothing is asked of a registry. The dry run at the end asks the registry, and
//! `--offline` leaves it out. Packages are those of the working tree, committed or not.
//!
//! Known weakness: a feature that is off by default is not built from the package.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, Package};

use crate::{tidy, verdict};

/// Where the programs are.
const PROGRAMS: &str = "xtask/outside";
/// The texts of the licence that published packages have, which go with each of them.
const TEXTS: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// What a package must have of its directory; the rest of it may be left out.
const WHOLE: [&str; 2] = ["src", "include"];
/// What the registry takes at most.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_LEN_MAX: usize = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the dry run, for which cargo asks the registry
    #[arg(long)]
    offline: bool,
}

/// Checks, packs, builds and runs.
pub(crate) fn check(workspace: &Metadata, args: &Args) -> Result<()> {
    let packages = in_order(workspace);
    let mut complaints = Vec::new();
    for package in &packages {
        let about = |what| format!("{}: {what}", package.name);
        complaints.extend(manifest_complaints(package).into_iter().map(about));
        complaints.extend(
            unpublished(workspace, &packages, package)
                .into_iter()
                .map(about),
        );
    }
    if !complaints.is_empty() {
        return verdict("publish", &complaints);
    }
    // What is packed and built below is then here.
    cargo(workspace, &["fetch", "--locked"])?;
    let mut pack = vec!["package", "--offline", "--no-verify", "--allow-dirty"];
    pack.extend(options(&packages));
    cargo(workspace, &pack)?;
    let dir = workspace.target_directory.as_std_path().join("outside");
    remove(&dir.join("packages"))?;
    for package in &packages {
        let unpacked = unpack(workspace, &dir, package)?;
        complaints.extend(missing(workspace, package, &unpacked)?);
    }
    let programs = programs(workspace.workspace_root.as_std_path())?;
    complaints.extend(unused(&packages, &programs));
    for program in &programs {
        println!("--- {PROGRAMS}/{program}");
        if let Err(error) = run(workspace, &dir, &packages, program) {
            complaints.push(format!("{PROGRAMS}/{program}: {error:#}"));
        }
    }
    if !args.offline {
        // Not verified once more: the programs were built from the same packages.
        let mut publish = vec!["publish", "--dry-run", "--no-verify", "--allow-dirty"];
        publish.extend(options(&packages));
        cargo(workspace, &publish)?;
    }
    verdict("publish", &complaints)
}

/// The packages that are published, each after those that it needs.
pub(crate) fn in_order(workspace: &Metadata) -> Vec<&Package> {
    let mut waiting = workspace.workspace_packages();
    waiting.retain(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()));
    waiting.sort_by_key(|package| package.name.to_string());
    let mut found: Vec<&Package> = Vec::new();
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|package| {
            let mut others = waiting.iter().filter(|other| other.id != package.id);
            others.all(|other| !uses(package, other))
        });
        found.push(waiting.remove(ready.expect("cargo allows no circle")));
    }
    found
}

/// Whether a package cannot be built without the other one.
fn uses(package: &Package, other: &Package) -> bool {
    let mut dependencies = package.dependencies.iter();
    dependencies.any(|dependency| {
        *other.name == dependency.name && dependency.kind != DependencyKind::Development
    })
}

/// `-p NAME` for each.
pub(crate) fn options<'a>(packages: &[&'a Package]) -> Vec<&'a str> {
    let names = packages.iter().flat_map(|package| ["-p", &**package.name]);
    names.collect()
}

/// What the manifest of a published package lacks.
fn manifest_complaints(package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    let mut want = |is_there: bool, what: &str| {
        if !is_there {
            found.push(what.to_owned());
        }
    };
    want(package.description.is_some(), "no description");
    want(package.license.is_some(), "no license");
    want(
        package.readme.is_some(),
        "no readme: write a README.md for who finds the package alone",
    );
    want(!package.categories.is_empty(), "no categories");
    let fits = |keyword: &String| keyword.len() <= KEYWORD_LEN_MAX;
    want(
        (1..=KEYWORDS_MAX).contains(&package.keywords.len()) && package.keywords.iter().all(fits),
        &format!("keywords: 1 to {KEYWORDS_MAX}, of {KEYWORD_LEN_MAX} characters at most"),
    );
    want(
        !package.metadata["docs"]["rs"]["targets"].is_null(),
        "no [package.metadata.docs.rs] with targets",
    );
    found
}

/// Packages of ours that a published one needs, and a user cannot have.
fn unpublished(workspace: &Metadata, packages: &[&Package], package: &Package) -> Vec<String> {
    let ours = workspace.workspace_packages().into_iter();
    let needed = ours.filter(|other| uses(package, other));
    let unpublished = needed.filter(|other| packages.iter().all(|some| some.id != other.id));
    unpublished
        .map(|other| {
            format!(
                "it needs {0}, which is not published: publish = true in its manifest, and a \
                 version beside its path in [workspace.dependencies]",
                other.name
            )
        })
        .collect()
}

/// Unpacks what `cargo package` has made.
fn unpack(workspace: &Metadata, dir: &Path, package: &Package) -> Result<PathBuf> {
    let name = format!("{}-{}", package.name, package.version);
    let packed = workspace.target_directory.join("package");
    let packed = packed.join(format!("{name}.crate"));
    let into = dir.join("packages");
    fs::create_dir_all(&into).with_context(|| format!("making {}", into.display()))?;
    let mut tar = Command::new("tar");
    // Files are of now, not of the fixed time in the package, by which cargo would take
    // what it built from another package of this version for built.
    tar.arg("-xzmf").arg(&packed).arg("-C").arg(&into);
    succeed(&mut tar)?;
    Ok(into.join(name))
}

/// What should be in the package and is not.
fn missing(workspace: &Metadata, package: &Package, unpacked: &Path) -> Result<Vec<String>> {
    let root = workspace.workspace_root.as_std_path();
    let top = package.manifest_path.parent();
    let top = top.context("a manifest without a directory")?.as_std_path();
    let in_tree = top.strip_prefix(root).unwrap_or(top);
    let mut complaints = Vec::new();
    for path in tidy::tracked(root)? {
        let Ok(inside) = path.strip_prefix(in_tree) else {
            continue;
        };
        let belongs = WHOLE.iter().any(|part| inside.starts_with(part));
        if belongs && root.join(&path).exists() && !unpacked.join(inside).exists() {
            complaints.push(format!("{}: not in the package", path.display()));
        }
    }
    for text in TEXTS {
        if fs::read(root.join(text)).ok() != fs::read(unpacked.join(text)).ok() {
            complaints.push(format!(
                "{}: {text} is not in the package; make a link: ln -s ../../{text} {}",
                package.name,
                in_tree.display()
            ));
        }
    }
    Ok(complaints)
}

/// Names of the programs, which are those of libraries without the first part.
fn programs(root: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(root.join(PROGRAMS)).context(PROGRAMS)?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn library(program: &str) -> String {
    format!("giveway-{program}")
}

/// Packages that no program is built with.
fn unused(packages: &[&Package], programs: &[String]) -> Vec<String> {
    let used: BTreeSet<String> = programs
        .iter()
        .flat_map(|program| needed(packages, &library(program)))
        .map(|package| package.name.to_string())
        .collect();
    let unused = packages
        .iter()
        .filter(|package| !used.contains(&**package.name));
    unused
        .map(|package| {
            format!(
                "{}: no program of {PROGRAMS} is built with it; write one that uses it alone",
                package.name
            )
        })
        .collect()
}

/// The published packages of which a program is built that uses this one.
fn needed<'a>(packages: &[&'a Package], name: &str) -> Vec<&'a Package> {
    let mut found: Vec<&Package> = Vec::new();
    // Backwards, so that who needs a package comes before it.
    for package in packages.iter().rev() {
        let is_needed = **package.name == *name || found.iter().any(|user| uses(user, package));
        if is_needed {
            found.push(package);
        }
    }
    found
}

/// Builds a program outside the workspace, and runs it.
fn run(workspace: &Metadata, dir: &Path, packages: &[&Package], program: &str) -> Result<()> {
    let root = workspace.workspace_root.as_std_path();
    let source = root.join(PROGRAMS).join(program);
    let main = source.join("src/main.rs");
    succeed(
        Command::new("rustfmt")
            .args(["--check", "--edition", "2024"])
            .arg(&main),
    )?;
    let copy = dir.join(program);
    remove(&copy)?;
    fs::create_dir_all(copy.join("src")).with_context(|| format!("making {}", copy.display()))?;
    for file in ["Cargo.toml", "src/main.rs"] {
        fs::copy(source.join(file), copy.join(file)).with_context(|| file.to_owned())?;
    }
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock")).context("Cargo.lock")?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--quiet", "--offline"])
        .current_dir(&copy);
    cargo.arg("--target-dir").arg(dir.join("build"));
    for package in needed(packages, &library(program)) {
        let unpacked = format!("{}-{}", package.name, package.version);
        let path = dir.join("packages").join(unpacked);
        let patch = format!("patch.crates-io.{}.path={path:?}", package.name);
        cargo.args(["--config", &patch]);
    }
    succeed(&mut cargo)
}

fn cargo(workspace: &Metadata, args: &[&str]) -> Result<()> {
    succeed(
        Command::new("cargo")
            .args(args)
            .current_dir(&workspace.workspace_root),
    )
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status();
    let status = status.with_context(|| format!("{:?}", command.get_program()))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_package_says_what_the_registry_shows() {
        let workspace = crate::workspace().unwrap();
        let packages = in_order(&workspace);
        assert!(!packages.is_empty());
        for package in packages {
            assert_eq!(
                manifest_complaints(package),
                Vec::<String>::new(),
                "{}",
                package.name
            );
        }
    }

    #[test]
    fn a_manifest_without_what_the_registry_shows_is_refused() {
        let workspace = crate::workspace().unwrap();
        let mut package = (*in_order(&workspace)[0]).clone();
        package.description = None;
        package.readme = None;
        package.keywords.clear();
        package.categories.clear();
        package.metadata = Default::default();
        assert_eq!(manifest_complaints(&package).len(), 5);
        package.keywords = vec!["a".repeat(KEYWORD_LEN_MAX + 1)];
        assert_eq!(manifest_complaints(&package).len(), 5);
    }

    #[test]
    fn a_package_comes_after_those_that_it_needs() {
        let workspace = crate::workspace().unwrap();
        let packages = in_order(&workspace);
        for (number, package) in packages.iter().enumerate() {
            let later = &packages[number..];
            assert!(!later.iter().any(|other| uses(package, other)));
        }
        let names: Vec<_> = packages.iter().map(|package| &**package.name).collect();
        assert!(names.contains(&"giveway-preempt"), "{names:?}");
        assert!(!names.contains(&"giveway-txn"), "{names:?}");
    }

    #[test]
    fn a_published_package_needs_published_ones_only() {
        let workspace = crate::workspace().unwrap();
        let packages = in_order(&workspace);
        for package in &packages {
            assert!(unpublished(&workspace, &packages, package).is_empty());
        }
        let preempt = packages.iter().find(|one| **one.name == *"giveway-preempt");
        let found = unpublished(&workspace, &[], preempt.unwrap());
        assert!(
            found[0].contains("giveway-hints, which is not published"),
            "{found:?}"
        );
    }

    #[test]
    fn every_published_package_is_built_into_a_program() {
        let workspace = crate::workspace().unwrap();
        let packages = in_order(&workspace);
        let programs = programs(&crate::root()).unwrap();
        assert_eq!(unused(&packages, &programs), Vec::<String>::new());
        // Without the first program its library is in none, and what only it needs.
        let without = unused(&packages, &programs[1..]);
        assert!(
            without.iter().any(|one| one.contains("giveway-locks")),
            "{without:?}"
        );
        assert_eq!(unused(&packages, &[]).len(), packages.len());
    }
}
