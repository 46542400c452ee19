//! The documentation as a whole: each page is found from the index, each term of the
//! glossary is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rules;

/// Where a reader begins.
const INDEX: &str = "docs/README.md";
/// Terms in bold at the beginning of a line, several with commas between them.
const GLOSSARY: &str = "docs/glossary.md";

/// Complaints about the pages below `docs`: each path and text.
pub(super) fn complaints<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<String> {
    let is_page = |path: &Path| {
        path.starts_with("docs") && path.extension().is_some_and(|extension| extension == "md")
    };
    let pages: BTreeMap<&Path, &str> = files.filter(|(path, _)| is_page(path)).collect();
    let mut found: Vec<String> = unreached(&pages)
        .iter()
        .map(|path| format!("{}: no link leads here from {INDEX}", path.display()))
        .collect();
    found.extend(
        unused(&pages)
            .into_iter()
            .map(|term| format!("{GLOSSARY}: no page uses '{term}'")),
    );
    found
}

/// Pages that no way from the index leads to.
fn unreached<'a>(pages: &BTreeMap<&'a Path, &str>) -> Vec<&'a Path> {
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut open = vec![PathBuf::from(INDEX)];
    while let Some(path) = open.pop() {
        let Some(text) = pages.get(path.as_path()) else {
            continue;
        };
        if reached.insert(path.clone()) {
            let targets = rules::links(text).into_iter();
            open.extend(targets.map(|(_, target)| rules::resolve(&path, &target)));
        }
    }
    let pages = pages.keys().copied();
    pages.filter(|path| !reached.contains(*path)).collect()
}

/// Terms of the glossary that no other page has, whatever their case or number.
fn unused<'a>(pages: &BTreeMap<&Path, &'a str>) -> Vec<&'a str> {
    let glossary = pages.get(Path::new(GLOSSARY)).copied().unwrap_or_default();
    let others = pages
        .iter()
        .filter(|(path, _)| **path != Path::new(GLOSSARY));
    // Lines are wrapped anywhere.
    let words = |text: &str| {
        text.to_lowercase()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let others: Vec<String> = others.map(|(_, text)| words(text)).collect();
    let is_used = |term: &str| {
        let term = words(term);
        others.iter().any(|text| text.contains(&term))
    };
    let bold = |line: &'a str| Some(line.strip_prefix("**")?.split_once("**")?.0);
    let terms = glossary.lines().filter_map(bold);
    let terms = terms.flat_map(|terms| terms.split(", "));
    terms.filter(|term| !is_used(term)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pages: &[(&str, &str)]) -> Vec<String> {
        complaints(pages.iter().map(|(path, text)| (Path::new(*path), *text)))
    }

    #[test]
    fn every_page_is_found_from_the_index_and_every_term_is_used() {
        let index = ("docs/README.md", "[a](build/a.md), [terms](glossary.md)");
        let glossary = ("docs/glossary.md", "**hint slot, boost**: a page.\n");
        let a = ("docs/build/a.md", "Two hint\nslots. [b](../b.md#top)");
        let b = ("docs/b.md", "Boosts.");
        assert_eq!(told(&[index, glossary, a, b]), [""; 0]);
        let lost = ("docs/lost.md", "");
        let told = told(&[index, glossary, a, lost]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("docs/lost.md: no link"), "{told:?}");
        assert!(told[1].contains("'boost'"), "{told:?}");
    }
}
