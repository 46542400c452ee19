//! The rules. Each says where it stopped reading and why it is there.

use std::path::{Component, Path, PathBuf};

/// Longest file, in lines; a longer one is two files.
const LINES_MAX: usize = 900;

/// A test that says so is run, by a test that boots a guest for it.
const RUN_IN_A_GUEST: &str = "runs in a guest";

/// Every complaint about one file. `exists` knows the paths of the tree.
pub(super) fn all(path: &Path, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |line: usize, what: String| match line {
        0 => found.push(format!("{}: {what}", path.display())),
        _ => found.push(format!("{}:{line}: {what}", path.display())),
    };
    let kind = Kind::of(path);
    if kind.is_code() {
        if let Some(what) = opening(path, kind, text) {
            complain(0, what.to_owned());
        }
        let count = text.lines().count();
        if count > LINES_MAX {
            complain(0, format!("{count} lines; split it below {LINES_MAX}"));
        }
    }
    if kind == Kind::Other {
        return found;
    }
    for (number, line) in (1..).zip(text.lines()) {
        for what in in_line(kind, line) {
            complain(number, what);
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complain(0, "the last line does not end".to_owned());
    }
    if kind == Kind::Markdown {
        for (number, target) in links(text) {
            if !exists(&resolve(path, &target)) {
                complain(number, format!("the link to {target} leads nowhere"));
            }
        }
    }
    found
}

/// What a file is, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rust,
    C,
    Shell,
    Markdown,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => Kind::Rust,
            Some("c" | "h") => Kind::C,
            Some("sh") => Kind::Shell,
            Some("md") => Kind::Markdown,
            _ => Kind::Other,
        }
    }

    fn is_code(self) -> bool {
        matches!(self, Kind::Rust | Kind::C)
    }
}

/// A file opens with its design. The two files that only include generated
/// code have a one-line opening, like any other.
fn opening(path: &Path, kind: Kind, text: &str) -> Option<&'static str> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    match kind {
        Kind::Rust if path.starts_with("crates") || path.starts_with("xtask") => {
            // A licence may stand before the design.
            let first = match first.starts_with("// SPDX") {
                true => lines.next().unwrap_or_default(),
                false => first,
            };
            (!first.starts_with("//!") && !first.starts_with("/*"))
                .then_some("does not open with its design (//!)")
        }
        Kind::C if !first.contains("SPDX-License-Identifier:") => {
            Some("the first line does not name the licence (SPDX-License-Identifier)")
        }
        _ => None,
    }
}

/// Unfinished work, switched-off tests, and the writer's own directories.
fn in_line(kind: Kind, line: &str) -> Vec<String> {
    let mut found = Vec::new();
    if kind == Kind::Rust && line.contains('\t') {
        found.push("a tab".to_owned());
    }
    if line.ends_with([' ', '\t', '\r']) {
        found.push("blanks at the end".to_owned());
    }
    if kind.is_code() {
        // Written in halves, for this file must pass its own rules.
        let unfinished = [
            concat!("to", "do!("),
            concat!("unimple", "mented!("),
            concat!("FIX", "ME"),
            concat!("XX", "X"),
            concat!("TO", "DO"),
            concat!("#[ig", "nore"),
            concat!("dbg", "!("),
        ];
        for word in unfinished {
            if line.contains(word) && !line.contains(RUN_IN_A_GUEST) {
                found.push(format!("unfinished: {word}"));
            }
        }
    }
    let elsewhere = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
    ];
    for home in elsewhere {
        if line
            .match_indices(home)
            .any(|(at, _)| starts_a_path(line, at))
        {
            found.push(format!("a path in somebody's home directory: {home}"));
        }
    }
    found
}

/// Whether the slash at `at` is the first of an absolute path.
fn starts_a_path(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-/}*".contains(c))
}

/// Files that Markdown links lead to, with the links' lines; not inside code.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let targets = targets(text).into_iter();
    targets
        .map(|(number, target)| match target.split_once('#') {
            Some((file, _)) => (number, file.to_owned()),
            None => (number, target),
        })
        .filter(|(_, file)| !file.is_empty())
        .collect()
}

/// Relative targets of Markdown links, with their lines; not inside code.
pub(super) fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        // What stands between backquotes is code: keep every other part.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for part in prose.split("](").skip(1) {
            let Some((target, _)) = part.split_once(')') else {
                continue;
            };
            let target = target.split(' ').next().unwrap_or_default();
            let is_url = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !is_url {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// A link's target as a path from the top of the tree.
pub(super) fn resolve(file: &Path, target: &str) -> PathBuf {
    let joined = match target.strip_prefix('/') {
        Some(from_top) => PathBuf::from(from_top),
        None => file.parent().unwrap_or(Path::new("")).join(target),
    };
    normal(&joined)
}

/// A path from the top of the tree without `.` and `..`.
pub(crate) fn normal(joined: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        all(Path::new(path), text, |target| {
            target == Path::new("docs/there.md")
        })
    }

    /// One complaint, and this is in it.
    fn refused(path: &str, text: &str, expected: &str) {
        let found = complaints(path, text);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }

    #[test]
    fn good_files_pass() {
        let rust = "//! Design.\n\nfn main() {}\n";
        assert!(complaints("crates/x/src/main.rs", rust).is_empty());
        let licensed = "// SPDX-License-Identifier: GPL-2.0-only\n//! Design.\n";
        assert!(complaints("crates/x/src/main.rs", licensed).is_empty());
        let c = "/* SPDX-License-Identifier: GPL-2.0-only */\n\tint x;\n";
        assert!(complaints("crates/x/src/x.c", c).is_empty());
        assert!(complaints("x.bin", "\t \n").is_empty());
    }

    #[test]
    fn a_file_opens_with_its_design_or_licence() {
        refused("crates/x/src/a.rs", "fn main() {}\n", "design");
        refused("crates/x/src/a.c", "int x;\n", "SPDX");
    }

    #[test]
    fn long_files_are_split() {
        let text = format!("//! Design.\n{}", "fn f();\n".repeat(LINES_MAX));
        refused("crates/x/src/a.rs", &text, "lines");
    }

    #[test]
    fn unfinished_work_is_refused() {
        for word in [
            concat!("to", "do!()"),
            concat!("unimple", "mented!()"),
            concat!("// FIX", "ME"),
            concat!("// XX", "X"),
            concat!("#[ig", "nore]"),
            concat!("#[ig", "nore = \"slow\"]"),
        ] {
            refused(
                "crates/x/src/a.rs",
                &format!("//! D.\n{word}\n"),
                "unfinished",
            );
        }
    }

    #[test]
    fn blanks_at_the_end_tabs_and_a_missing_newline_are_refused() {
        refused("crates/x/src/a.rs", "//! D.\n\tx\n", "a tab");
        refused("README.md", "text \n", "blanks");
        refused("README.md", "text", "does not end");
    }

    #[test]
    fn home_directories_are_refused_and_look_alikes_are_not() {
        refused("a.sh", concat!("cd /ho", "me/me/x\n"), "home directory");
        refused("a.md", concat!("see `/ro", "ot/x`\n"), "home directory");
        assert!(complaints("a.sh", concat!("ls /sys/ro", "ot/ops $T/ro", "ot/x\n")).is_empty());
    }

    #[test]
    fn relative_links_lead_somewhere() {
        for good in [
            "[a](docs/there.md#part)",
            "[a](https://example.org/x)",
            "[a](#part)",
            "`[a](nowhere)`",
            "```\n[a](nowhere)\n```",
        ] {
            assert!(
                complaints("README.md", &format!("{good}\n")).is_empty(),
                "{good}"
            );
        }
        refused("README.md", "[a](docs/gone.md)\n", "README.md:1: the link");
        assert!(complaints("docs/a.md", "[a](there.md) [b](../docs/there.md)\n").is_empty());
        refused("docs/a.md", "[a](docs/there.md)\n", "leads nowhere");
    }
}
