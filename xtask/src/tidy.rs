//! Rules of the tree that no compiler checks. A rule looks at one file and
//! says what is wrong with which line; the tests below show each of them fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// A file longer than this would be clearer as two.
const LINES_MAX: usize = 900;

/// Which crates of the workspace a crate may use. `giveway`, the command, may
/// use any, and nothing may use it.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("giveway-hints", &[]),
    ("giveway-lab", &[]),
    ("giveway-bench", &["giveway-hints"]),
    ("scx_ufs", &["giveway-hints"]),
    (
        "giveway",
        &["giveway-hints", "giveway-lab", "giveway-bench"],
    ),
    ("xtask", &[]),
];

pub(crate) fn run(root: &Path) -> Result<()> {
    let mut problems = dependency_problems(root)?;
    for path in tracked_files(root)? {
        let Ok(text) = fs::read_to_string(root.join(&path)) else {
            continue;
        };
        problems.extend(file_problems(&path, &text));
        if path.extension().is_some_and(|extension| extension == "md") {
            problems.extend(broken_links(root, &path, &text));
        }
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        Ok(())
    } else {
        bail!("{} places are untidy", problems.len())
    }
}

/// Files under version control and new ones that are not ignored.
fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("running git")?;
    if !output.status.success() {
        bail!(
            "git ls-files failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(PathBuf::from)
        .collect())
}

fn file_problems(path: &Path, text: &str) -> Vec<String> {
    let name = path.display();
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or("");
    let mut problems = Vec::new();
    let source = matches!(extension, "rs" | "c" | "h" | "sh" | "py");
    if source {
        if text.lines().count() > LINES_MAX {
            problems.push(format!(
                "{name}: more than {LINES_MAX} lines; would two files be clearer?"
            ));
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = unfinished_words()
                .into_iter()
                .find(|word| line.contains(word.as_str()))
            {
                problems.push(format!("{name}:{}: unfinished: {word}", number + 1));
            }
        }
    }
    if extension == "rs"
        && !text
            .trim_start_matches(|c: char| c.is_whitespace())
            .starts_with("//!")
    {
        problems.push(format!("{name}: does not open with what it is for (//!)"));
    }
    if matches!(extension, "c" | "h")
        && !text
            .lines()
            .next()
            .unwrap_or("")
            .contains("SPDX-License-Identifier")
    {
        problems.push(format!(
            "{name}: the first line has no SPDX-License-Identifier"
        ));
    }
    if extension != "patch" && extension != "json" {
        for (number, line) in text.lines().enumerate() {
            if line.ends_with([' ', '\t']) {
                problems.push(format!("{name}:{}: trailing white space", number + 1));
            }
        }
    }
    problems
}

/// Built from parts, so that this file does not break its own rule.
fn unfinished_words() -> [String; 5] {
    [
        "to|do!(",
        "unimple|mented!(",
        "FIX|ME",
        "XX|X",
        "#[igno|re]",
    ]
    .map(|word| word.replace('|', ""))
}

/// Links of a Markdown file that lead to no file of the tree.
fn broken_links(root: &Path, path: &Path, text: &str) -> Vec<String> {
    let dir = root.join(path.parent().unwrap_or(Path::new("")));
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for target in line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap_or("");
            let external = target.contains("://") || target.starts_with("mailto:");
            if !external && !file.is_empty() && !dir.join(file).exists() {
                problems.push(format!(
                    "{}:{}: no such file: {file}",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    problems
}

/// Dependencies between crates of the workspace that go the wrong way.
fn dependency_problems(root: &Path) -> Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("reading the workspace")?;
    let members: Vec<String> = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some((_, allowed)) = DEPENDENCIES.iter().find(|(known, _)| *known == name) else {
            problems.push(format!(
                "{name}: say in xtask's tidy which crates it may use"
            ));
            continue;
        };
        // A test may boot a guest, whatever it tests.
        for dependency in package
            .dependencies
            .iter()
            .filter(|dep| dep.kind != DependencyKind::Development)
        {
            if members.contains(&dependency.name) && !allowed.contains(&dependency.name.as_str()) {
                problems.push(format!("{name} may not depend on {}", dependency.name));
            }
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, text: &str) -> String {
        file_problems(Path::new(name), text).join("\n")
    }

    #[test]
    fn a_source_file_says_what_it_is_for() {
        assert!(problems("a.rs", "fn main() {}\n").contains("//!"));
        assert_eq!(problems("a.rs", "//! Adds.\nfn main() {}\n"), "");
        assert!(problems("a.c", "int x;\n").contains("SPDX"));
        assert_eq!(problems("a.h", "/* SPDX-License-Identifier: MIT */\n"), "");
    }

    #[test]
    fn unfinished_places_and_trailing_space_are_found_by_line() {
        for word in unfinished_words() {
            let found = problems("a.rs", &format!("//! A.\n// {word}\n"));
            assert!(found.contains("a.rs:2: unfinished"), "{word}: {found}");
        }
        assert!(problems("a.md", "text \n").contains("a.md:1: trailing"));
    }

    #[test]
    fn long_files_are_named() {
        let text = "//! Long.\n".repeat(LINES_MAX + 1);
        assert!(problems("a.rs", &text).contains("two files"));
    }

    #[test]
    fn links_lead_to_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("there.md"), "").unwrap();
        let text = "[a](there.md#part) [b](missing.md) [c](https://example.org/x)\n";
        let found = broken_links(dir.path(), Path::new("page.md"), text);
        assert_eq!(found, ["page.md:1: no such file: missing.md"]);
    }
}
