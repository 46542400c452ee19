//! Which file of a crate uses which: layers that look up, and files in a circle.
//!
//! A file uses another if it names something of it: by a path that begins with `crate`,
//! `super` or `self`, or in a `use` of a child. A name that a module only passes on
//! (`pub use`) is taken for what it stands for. Tests do not count, nor does a parent's
//! `mod child;`. All of it is read from the text; what macros write is not seen.
//!
//! Files in a circle cannot be understood one after the other. There are few; each has its
//! reason in [`CIRCLES`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The layers of `crates/bench/src`, the lowest first. None uses one above it.
const LAYERS: [&str; 9] = [
    "harness",
    "render",
    "report",
    "workload",
    "cell",
    "runner",
    "experiments",
    "overview",
    "program",
];

/// Circles that stay, by one of their files, each with its reason.
const CIRCLES: &[(&str, &str)] = &[
    (
        "crates/cfl_preload/src/lock.rs",
        "any interposed call may be a process's first: locks set up what takes locks",
    ),
    (
        "crates/locks/src/account.rs",
        "accounts, groups and threads point at each other",
    ),
    (
        "crates/locks/src/acquire.rs",
        "one hand-over protocol, a file for each role",
    ),
    (
        "crates/preempt/src/context.rs",
        "one protocol of contexts, requests and their delivery",
    ),
    (
        "crates/preempt/src/pool/mod.rs",
        "workers, their tasks and the pool that owns them",
    ),
    (
        "crates/sql/src/engine.rs",
        "an engine owns its queries, which run on it",
    ),
    (
        "crates/tasks/src/shared.rs",
        "slots, groups and queries are one graph that workers walk",
    ),
    (
        "crates/txn/src/txn.rs",
        "a transaction works on its database, which commits it",
    ),
];

/// A module: its name from the root of the crate.
type Module = Vec<String>;

/// Complaints about the files of the workspace: each path and text.
pub(super) fn complaints<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<String> {
    let mut crates: BTreeMap<String, Vec<(String, &str)>> = BTreeMap::new();
    for (path, text) in files {
        let path = path.to_string_lossy().into_owned();
        let Some((package, file)) = path.split_once("/src/") else {
            continue;
        };
        // A program of its own has a root of its own.
        if file.ends_with(".rs") && !file.starts_with("bin/") && !file.ends_with("main.rs") {
            let files = crates.entry(package.to_owned()).or_default();
            files.push((file.to_owned(), text));
        }
    }
    let mut found = Vec::new();
    let mut excused = BTreeSet::new();
    for (package, files) in crates {
        let uses = uses(&files);
        if package == "crates/bench" {
            found.extend(upward(&uses));
        }
        for circle in circles(&uses) {
            let path = |file: &String| format!("{package}/src/{file}");
            let paths: Vec<String> = circle.iter().map(path).collect();
            match CIRCLES
                .iter()
                .find(|(file, _)| paths.iter().any(|path| path == file))
            {
                Some((file, _)) => {
                    excused.insert(*file);
                }
                None => found.push(format!(
                    "{} use each other in a circle: {}",
                    paths.join(", "),
                    ties(&circle, &uses)
                )),
            }
        }
    }
    for (file, _) in CIRCLES {
        if !excused.contains(file) {
            found.push(format!("{file} is in no circle: take it out of CIRCLES"));
        }
    }
    found
}

/// Who uses whom in a circle.
fn ties(circle: &[String], uses: &Uses) -> String {
    let of = |file: &String| {
        let used = uses.get(file).into_iter().flatten();
        let used: Vec<&str> = used
            .filter(|used| circle.contains(used))
            .map(String::as_str)
            .collect();
        format!("{file} uses {}", used.join(" and "))
    };
    Vec::from_iter(circle.iter().map(of)).join("; ")
}

/// The files that each file uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Uses of a layer above.
fn upward(uses: &Uses) -> Vec<String> {
    let layer = |file: &str| {
        let name = file.split(['/', '.']).next().unwrap_or_default();
        LAYERS.iter().position(|layer| *layer == name)
    };
    let mut found = Vec::new();
    for (file, used) in uses {
        for other in used {
            if let (Some(own), Some(of)) = (layer(file), layer(other))
                && of > own
            {
                found.push(format!(
                    "crates/bench/src/{file} uses {other}, which is a layer above it"
                ));
            }
        }
    }
    found
}

fn uses(files: &[(String, &str)]) -> Uses {
    let code: Vec<(String, Module, String)> = files
        .iter()
        .map(|(file, text)| (file.clone(), module(file), code(text)))
        .collect();
    let modules: BTreeMap<&[String], &str> = code
        .iter()
        .map(|(file, module, _)| (module.as_slice(), file.as_str()))
        .collect();
    // What modules pass on: the name in the module, and what it stands for.
    let mut passed_on: BTreeMap<Module, Module> = BTreeMap::new();
    for (_, own, code) in &code {
        for (public, path) in used_paths(code) {
            if public && let Some(path) = absolute(&path, own, &modules) {
                let mut name = own.clone();
                name.extend(path.last().cloned());
                if name != path {
                    passed_on.insert(name, path);
                }
            }
        }
    }
    let mut uses = Uses::new();
    for (file, own, code) in &code {
        let used = uses.entry(file.clone()).or_default();
        for (public, path) in used_paths(code) {
            // Passing on is not using.
            let Some(path) = absolute(&path, own, &modules).filter(|_| !public) else {
                continue;
            };
            let other = file_of(&path, &modules, &passed_on);
            used.extend(other.filter(|other| other != file).map(str::to_owned));
        }
    }
    uses
}

/// The module that a file is.
fn module(file: &str) -> Module {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "mod" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

/// The text without comments, string literals and tests.
fn code(text: &str) -> String {
    let tests = ["#[cfg(test)]\nmod ", "#[cfg(all(test, not(loom)))]\nmod "];
    let text = match tests.iter().filter_map(|start| text.find(start)).min() {
        // Tests stand at the end of a file; a module in another file is one line.
        Some(at)
            if text[at..]
                .lines()
                .nth(1)
                .is_some_and(|line| line.ends_with('{')) =>
        {
            &text[..at]
        }
        _ => text,
    };
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    Vec::from_iter(lines).join("\n")
}

/// Every path that the code names, and whether it is passed on.
fn used_paths(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = find_use(rest) {
        paths_in(&rest[..at.0], &mut found);
        let end = rest[at.1..].find(';').map_or(rest.len(), |end| at.1 + end);
        let public = rest[..at.0].trim_end().ends_with([')', 'b'])
            && rest[..at.0]
                .lines()
                .last()
                .is_some_and(|line| line.trim_start().starts_with("pub"));
        flatten(&rest[at.1..end], &[], &mut |path| {
            found.push((public, path))
        });
        rest = &rest[end..];
    }
    paths_in(rest, &mut found);
    found
}

/// Where the next `use` stands, and where its tree begins.
fn find_use(code: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(at) = code[from..].find("use ") {
        let at = from + at;
        let before = code[..at].chars().next_back();
        if before.is_none_or(|c| c.is_whitespace()) {
            return Some((at, at + "use ".len()));
        }
        from = at + 1;
    }
    None
}

/// The paths of a `use` tree.
fn flatten(tree: &str, before: &[String], found: &mut impl FnMut(Vec<String>)) {
    let tree = tree.trim();
    if let Some((head, inner)) = tree.split_once('{') {
        let mut path = before.to_vec();
        path.extend(words(head));
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in inner.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    flatten(&inner[start..at], &path, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        if !inner[start..].trim().is_empty() {
            flatten(&inner[start..], &path, found);
        }
        return;
    }
    let name = tree.split(" as ").next().unwrap_or_default();
    let mut path = before.to_vec();
    path.extend(words(name));
    found(path);
}

fn words(path: &str) -> impl Iterator<Item = String> {
    let words = path.split("::").map(str::trim);
    words
        .filter(|word| !word.is_empty() && !["self", "*"].contains(word))
        .map(str::to_owned)
}

/// The paths in code that is no `use`.
fn paths_in(code: &str, found: &mut Vec<(bool, Vec<String>)>) {
    for root in ["crate::", "super::"] {
        let mut from = 0;
        while let Some(at) = code[from..].find(root) {
            let at = from + at;
            let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let end = code[at..].find(|c: char| !is_path(c));
            let end = end.map_or(code.len(), |end| at + end);
            let before = code[..at].chars().next_back();
            if !before.is_some_and(is_path) && !code[..at].ends_with('$') {
                found.push((false, words(&code[at..end]).collect()));
            }
            from = end;
        }
    }
}

/// A path from the root of the crate; none for one of another crate.
fn absolute(
    path: &[String],
    own: &[String],
    modules: &BTreeMap<&[String], &str>,
) -> Option<Module> {
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => {
            let ups = path.iter().take_while(|word| *word == "super").count();
            let base = own.len().checked_sub(ups)?;
            Some([&own[..base], &path[ups..]].concat())
        }
        child => {
            let module = [own, &[child.to_owned()]].concat();
            modules
                .contains_key(module.as_slice())
                .then(|| [own, path].concat())
        }
    }
}

/// The file that has what a path names.
fn file_of<'m>(
    path: &[String],
    modules: &BTreeMap<&[String], &'m str>,
    passed_on: &BTreeMap<Module, Module>,
) -> Option<&'m str> {
    let mut path = path.to_vec();
    // Passed on by one module to the next, a few times at most.
    for _ in 0..8 {
        let longest = (0..=path.len())
            .rev()
            .find(|length| modules.contains_key(&path[..*length]))?;
        let item = path.get(..longest + 1).unwrap_or(&path);
        match passed_on.get(item) {
            Some(other) => path = [other, path.get(longest + 1..).unwrap_or_default()].concat(),
            None => return modules.get(&path[..longest]).copied(),
        }
    }
    None
}

/// Files that reach each other, each group once.
fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for used in uses.get(file).into_iter().flatten() {
                if reached.insert(used) {
                    open.push(used);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        uses.keys().map(|file| (file, reach(file))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (file, of) in &reached {
        if found.iter().any(|circle| circle.contains(file)) || !of.contains(file) {
            continue;
        }
        let members = of.iter().filter(|other| reached[**other].contains(file));
        found.push(members.map(|member| (*member).clone()).collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &'static str)]) -> Uses {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(file, text)| ((*file).to_owned(), *text))
            .collect();
        uses(&files)
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let uses = of(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("a.rs", "use crate::b::{B, other::{self, X}};"),
            ("b.rs", "fn f() { super::c::g() }"),
            ("c.rs", "use crate::A as Name;\n// use crate::lib;"),
        ]);
        assert_eq!(circles(&uses), [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn parents_children_and_tests_are_no_circle() {
        let uses = of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b;\npub use b::B;\nstruct A;"),
            (
                "a/b.rs",
                "use super::A;\n#[cfg(test)]\nmod tests {\n use crate::c::C;\n}",
            ),
            ("c.rs", "use crate::a::B;"),
        ]);
        assert_eq!(circles(&uses), Vec::<Vec<String>>::new());
        assert!(uses["c.rs"].contains("a/b.rs"), "{uses:?}");
    }

    #[test]
    fn a_layer_that_looks_up_is_told() {
        let uses = of(&[
            ("lib.rs", ""),
            ("harness/mod.rs", "use crate::cell::Cell;"),
            ("cell/mod.rs", "use crate::harness::Error;"),
        ]);
        let told = upward(&uses);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("harness/mod.rs uses cell/mod.rs"),
            "{told:?}"
        );
    }
}
