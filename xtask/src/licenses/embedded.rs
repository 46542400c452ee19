//! What a package embeds of other files has a licence that the package declares.
//!
//! A file becomes part of a package not only by lying in its directory. Rust's include
//! macros and `#[path]` take any file of the tree into what is built, and so does a
//! build script that copies or compiles one. Each such file, of whichever package it is,
//! must have a licence that the embedding package's covers (`files`). A file without an
//! SPDX line has the licence of the package around it.
//!
//! | where | what is taken for a path | relative to |
//! | --- | --- | --- |
//! | argument of an include macro | literals, `concat!`, `env!("CARGO_MANIFEST_DIR")` | the file, or the package |
//! | `#[path = "…"]` | the literal | the file |
//! | build script | every literal that names something in the tree; of a directory each file | the package, and the top of the tree |
//!
//! What a build script has left in `OUT_DIR` is its own doing, and looked at there. An
//! argument that cannot be read is a complaint, since a file may hide in it.
//!
//! Known weaknesses: a build script that puts a path together piece by piece, or names a
//! directory with its own package in it, is not understood, and neither are modules of
//! one. A line that begins with `//` is a comment, and any other is code.

use std::path::{Path, PathBuf};

use super::declared::{self, Owners};
use crate::tidy;

const MACROS: [&str; 3] = [
    concat!("include_", "str!"),
    concat!("include_", "bytes!"),
    concat!("inc", "lude!"),
];

/// The tree, as far as licences go.
pub(super) struct Tree<'a> {
    /// Every file, from the top of the tree.
    pub(super) files: &'a [PathBuf],
    /// Directories of packages, from the top of the tree, and their licences.
    pub(super) owners: &'a Owners,
    /// Build scripts.
    pub(super) scripts: &'a [PathBuf],
    /// The text of a file, if it has one.
    pub(super) read: &'a dyn Fn(&Path) -> Option<String>,
}

impl Tree<'_> {
    /// Complaints about what a file embeds.
    pub(super) fn complaints(&self, path: &Path, text: &str) -> Vec<String> {
        if path.extension().is_none_or(|extension| extension != "rs") {
            return Vec::new();
        }
        let package = declared::dir_around(self.owners, path);
        let ours = declared::licence_around(self.owners, path);
        let mut found = Vec::new();
        let mut embedded = Vec::new();
        for (line, what) in by_macro(text).into_iter().chain(by_attribute(text)) {
            match what {
                Some(Argument::InPackage(rest)) => embedded.push((line, package.join(rest))),
                Some(Argument::Relative(to)) => {
                    let dir = path.parent().unwrap_or(Path::new(""));
                    embedded.push((line, dir.join(to)));
                }
                Some(Argument::Made) => {}
                None => found.push(format!(
                    "{}:{line}: what is embedded here? write its path as a literal",
                    path.display()
                )),
            }
        }
        if self.scripts.iter().any(|script| script == path) {
            for (line, literal) in literals(text) {
                embedded.push((line, package.join(literal)));
                embedded.push((line, PathBuf::from(literal)));
            }
        }
        for (line, embedded) in embedded {
            let embedded = tidy::normal(&embedded);
            // A directory with the package in it is too large to be meant.
            if package.starts_with(&embedded) {
                continue;
            }
            let parts = self.files.iter().filter(|file| file.starts_with(&embedded));
            for part in parts {
                let theirs = self.licence(part);
                if !declared::is_covered(ours, &theirs) {
                    found.push(format!(
                        "{}:{line}: embeds {}, which is '{theirs}'; '{ours}', which is \
                         declared around it, does not cover that",
                        path.display(),
                        part.display()
                    ));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    fn licence(&self, path: &Path) -> String {
        let text = (self.read)(path).unwrap_or_default();
        let said = declared::said(&text).map(str::to_owned);
        said.unwrap_or_else(|| declared::licence_around(self.owners, path).to_owned())
    }
}

/// What stands between the parentheses of an include macro.
#[derive(Debug, PartialEq)]
enum Argument {
    /// A path from the package's directory.
    InPackage(String),
    /// A path from that of the file.
    Relative(String),
    /// Something that a build script has made.
    Made,
}

/// Arguments of include macros, with their lines; none where it is not understood.
fn by_macro(text: &str) -> Vec<(usize, Option<Argument>)> {
    let mut found = Vec::new();
    for name in MACROS {
        for (at, _) in text.match_indices(name) {
            let before = &text[..at];
            let is_other = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let line = before.rsplit('\n').next().unwrap_or_default();
            if !is_other && !line.trim_start().starts_with("//") {
                found.push((line_of(text, at), argument(&text[at + name.len()..])));
            }
        }
    }
    found
}

/// Files that are modules by attribute.
fn by_attribute(text: &str) -> Vec<(usize, Option<Argument>)> {
    let attributes = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let line = line.trim_start().strip_prefix("#[")?;
        let (before, path) = line.split_once(concat!("path", " = "))?;
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let (path, _) = literal(path)?;
        Some((number, Some(Argument::Relative(path.to_owned()))))
    });
    attributes.collect()
}

/// String literals of a build script that may be paths. What it tells cargo is none of
/// them; in a format string the path begins after the last value.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let quoted = line.split('"').skip(1).step_by(2);
        let paths = quoted.filter(|quoted| !quoted.starts_with("cargo:"));
        let paths = paths.map(|quoted| quoted.rsplit('}').next().unwrap_or(quoted));
        let paths = paths.map(|path| path.trim_start_matches('/'));
        found.extend(
            paths
                .filter(|path| !path.is_empty())
                .map(|path| (number, path)),
        );
    }
    found
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Reads an argument with its parentheses.
fn argument(text: &str) -> Option<Argument> {
    let inner = text.trim_start().strip_prefix(['(', '[', '{'])?;
    let mut pieces = Vec::new();
    let rest = expression(inner, &mut pieces)?.trim_start();
    let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    rest.strip_prefix([')', ']', '}'])?;
    if pieces.contains(&Piece::Variable("OUT_DIR")) {
        return Some(Argument::Made);
    }
    let (is_in_package, pieces) = match pieces.split_first()? {
        (Piece::Variable("CARGO_MANIFEST_DIR"), rest) => (true, rest),
        _ => (false, &pieces[..]),
    };
    let mut path = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => path.push_str(text),
            Piece::Variable(_) => return None,
        }
    }
    Some(match is_in_package {
        true => Argument::InPackage(path.trim_start_matches('/').to_owned()),
        false => Argument::Relative(path),
    })
}

#[derive(PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Variable(&'a str),
}

/// Reads a literal, `env!` or `concat!`, and returns what comes after it.
fn expression<'a>(text: &'a str, pieces: &mut Vec<Piece<'a>>) -> Option<&'a str> {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix("env!(") {
        let (name, rest) = literal(inner)?;
        pieces.push(Piece::Variable(name));
        return rest.trim_start().strip_prefix(')');
    }
    let Some(mut inner) = text.strip_prefix("concat!(") else {
        let (text, rest) = literal(text)?;
        pieces.push(Piece::Text(text));
        return Some(rest);
    };
    loop {
        inner = expression(inner, pieces)?.trim_start();
        inner = inner.strip_prefix(',').unwrap_or(inner).trim_start();
        if let Some(rest) = inner.strip_prefix(')') {
            return Some(rest);
        }
    }
}

/// Reads a string literal without escapes, raw or not.
fn literal(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let raw = text.strip_prefix('r');
    let hashes = raw.map_or("", |raw| {
        &raw[..raw.len() - raw.trim_start_matches('#').len()]
    });
    let inner = &raw.unwrap_or(text)[hashes.len()..];
    let inner = inner.strip_prefix('"')?;
    let (text, rest) = inner.split_once(&format!("\"{hashes}"))?;
    (raw.is_some() || !text.contains('\\')).then_some((text, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "MIT OR Apache-2.0";
    const WITH_PATCH: &str = "(MIT OR Apache-2.0) AND GPL-2.0-or-later";

    /// Complaints about a file of one of these packages, where
    /// the lab has a patch under the GPL.
    fn complaints(path: &str, text: &str) -> Vec<String> {
        let owners = [
            ("crates/txn", BOTH),
            ("crates/lab", WITH_PATCH),
            ("crates/scx_ufs", "GPL-2.0-only"),
            ("crates/hints", BOTH),
        ];
        let owners = owners.map(|(dir, licence)| (PathBuf::from(dir), licence.to_owned()));
        let files = [
            "crates/txn/src/golden.txt",
            "crates/hints/include/tier.h",
            "crates/lab/guest/init",
            "crates/lab/qemu/lockstep.patch",
            "crates/scx_ufs/src/main.rs",
            "docs/a.md",
        ];
        let scripts = ["crates/txn/build.rs", "crates/lab/build.rs"];
        let tree = Tree {
            files: &files.map(PathBuf::from),
            owners: &owners.to_vec(),
            scripts: &scripts.map(PathBuf::from),
            read: &|path| match path.to_str() {
                Some("crates/lab/qemu/lockstep.patch") => {
                    Some(concat!("SPDX-License-", "Identifier: GPL-2.0-or-later\n").to_owned())
                }
                Some("crates/lab/guest/init") => {
                    Some(concat!("# SPDX-License-", "Identifier: MIT OR Apache-2.0\n").to_owned())
                }
                _ => None,
            },
        };
        tree.complaints(Path::new(path), text)
    }

    /// An include macro with this argument. In halves, for this file is looked at, too.
    fn embed(argument: &str) -> String {
        format!("{}({argument});\n", MACROS[0])
    }

    #[test]
    fn a_file_of_another_package_is_refused_if_its_licence_is_not_declared() {
        let refused = |argument: &str| {
            let found = complaints("crates/txn/src/a.rs", &embed(argument));
            assert_eq!(found.len(), 1, "{argument}: {found:?}");
            assert!(found[0].contains("lockstep.patch"), "{found:?}");
            assert!(found[0].contains("GPL-2.0-or-later"), "{found:?}");
        };
        refused(r#""../../lab/qemu/lockstep.patch""#);
        refused(r##"r#"../../lab/qemu/lockstep.patch"#"##);
        refused(r#"concat!("../../lab/", "qemu/lockstep.patch")"#);
        refused(
            r#"concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../lab/qemu/lockstep.patch",
            )"#,
        );
    }

    #[test]
    fn each_macro_counts_and_so_does_a_module_s_path() {
        for name in MACROS {
            let text = format!("const A: X =\n    {name}[\"../../lab/qemu/lockstep.patch\"];\n");
            let found = complaints("crates/txn/src/a.rs", &text);
            assert_eq!(found.len(), 1, "{name}");
            assert!(found[0].starts_with("crates/txn/src/a.rs:2:"), "{found:?}");
        }
        let module = concat!("#[pa", "th = \"../../scx_ufs/src/main.rs\"]\nmod a;\n");
        assert_eq!(complaints("crates/txn/src/a.rs", module).len(), 1);
        assert!(complaints("crates/scx_ufs/src/a.rs", module).is_empty());
    }

    #[test]
    fn a_file_whose_licence_is_declared_may_be_embedded() {
        let fine = |path: &str, argument: &str| {
            let found = complaints(path, &embed(argument));
            assert!(found.is_empty(), "{argument}: {found:?}");
        };
        fine("crates/lab/src/a.rs", r#""../qemu/lockstep.patch""#);
        fine("crates/txn/src/a.rs", r#""golden.txt""#);
        fine("crates/txn/src/a.rs", r#""../../../docs/a.md""#);
        // Its own line counts, not the package around it.
        fine("crates/txn/src/a.rs", r#""../../lab/guest/init""#);
        fine("crates/txn/src/a.rs", r#"concat!(env!("OUT_DIR"), "/a")"#);
        let comment = format!("/// {}", embed(r#""../../lab/qemu/lockstep.patch""#));
        assert!(complaints("crates/txn/src/a.rs", &comment).is_empty());
    }

    #[test]
    fn the_gpl_takes_what_can_be_had_under_mit() {
        let header = embed(r#""../../hints/include/tier.h""#);
        assert!(complaints("crates/scx_ufs/src/a.rs", &header).is_empty());
        let patch = embed(r#""../../lab/qemu/lockstep.patch""#);
        assert_eq!(complaints("crates/scx_ufs/src/a.rs", &patch).len(), 1);
    }

    #[test]
    fn a_file_that_says_nothing_has_the_licence_of_its_package() {
        let text = embed(r#""../../scx_ufs/src/main.rs""#);
        assert_eq!(complaints("crates/txn/src/a.rs", &text).len(), 1);
    }

    #[test]
    fn an_argument_that_cannot_be_read_is_refused() {
        for argument in ["PATH", r#"concat!(env!("HOME"), "/a")"#, r#""a\\b""#] {
            let found = complaints("crates/txn/src/a.rs", &embed(argument));
            assert_eq!(found.len(), 1, "{argument}");
            assert!(found[0].contains("as a literal"), "{found:?}");
        }
    }

    #[test]
    fn what_a_build_script_names_is_embedded() {
        let refused = [
            r#"fs::copy("../lab/qemu/lockstep.patch", out);"#,
            r#"fs::copy(top.join("crates/lab/qemu/lockstep.patch"), out);"#,
            r#"fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/qemu/lockstep.patch"), out);"#,
            r#"fs::copy(format!("{here}/../lab/qemu/lockstep.patch"), out);"#,
            r#"copy_all("../lab/qemu");"#,
        ];
        for line in refused {
            assert_eq!(complaints("crates/txn/build.rs", line).len(), 1, "{line}");
            assert!(complaints("crates/lab/build.rs", line).is_empty(), "{line}");
            assert!(complaints("crates/txn/src/a.rs", line).is_empty(), "{line}");
        }
        let fine = [
            r#"include("../hints/include");"#,
            r#"println!("cargo::rerun-if-changed=..");"#,
            r#"walk("..");"#,
            r#"// fs::copy("../lab/qemu/lockstep.patch", out);"#,
        ];
        for line in fine {
            assert!(complaints("crates/txn/build.rs", line).is_empty(), "{line}");
        }
    }
}
