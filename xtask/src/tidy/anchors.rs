//! Links to a heading: the heading is there.
//!
//! A heading's anchor is the one that GitHub makes of its text: small letters, blanks as
//! hyphens, other punctuation left out, and a number for those that come again.
//!
//! Known weakness: HTML anchors (`<a name>`) are not known; no page has any.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rules;

/// Complaints about links between the Markdown files of the tree: each path and text.
pub(super) fn complaints<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<String> {
    let is_page = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    let pages: BTreeMap<&Path, &str> = files.filter(|(path, _)| is_page(path)).collect();
    let headings: BTreeMap<&Path, BTreeSet<String>> = pages
        .iter()
        .map(|(path, text)| (*path, anchors(text)))
        .collect();
    let mut found = Vec::new();
    for (path, text) in &pages {
        for (number, target) in rules::targets(text) {
            let Some((file, anchor)) = target.split_once('#') else {
                continue;
            };
            let to: PathBuf = match file.is_empty() {
                true => path.to_path_buf(),
                false => rules::resolve(path, file),
            };
            let known = headings.get(to.as_path());
            if known.is_some_and(|known| !known.contains(anchor)) {
                found.push(format!(
                    "{}:{number}: {} has no heading #{anchor}",
                    path.display(),
                    to.display()
                ));
            }
        }
    }
    found
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let heading = line.trim_start_matches('#');
        let depth = line.len() - heading.len();
        if in_block || !(1..=6).contains(&depth) || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading.trim());
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        found.insert(names.find(|name| !found.contains(name)).expect("endless"));
    }
    found
}

/// The anchor of a heading: of a link in it, its text.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    text.to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_the_heading_as_github_writes_it() {
        assert_eq!(
            anchor("A waker's `scx_bpf_now()` is old"),
            "a-wakers-scx_bpf_now-is-old"
        );
        assert_eq!(anchor("1.5, 0.99: Größe"), "15-099-größe");
        assert_eq!(anchor("[Tests](x.md), see"), "tests-see");
        let twice = anchors("# A\n## A\n```\n# no heading\n```\n#no heading\n");
        assert_eq!(twice, BTreeSet::from(["a".to_owned(), "a-1".to_owned()]));
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_told() {
        let told = |a: &str, b: &str| {
            let pages = [("docs/a.md", a), ("README.md", b)];
            complaints(
                pages
                    .into_iter()
                    .map(|(path, text)| (Path::new(path), text)),
            )
        };
        assert_eq!(
            told("# Part one\n[x](#part-one)\n", "[x](docs/a.md#part-one)\n"),
            [""; 0]
        );
        assert_eq!(
            told("", "[x](https://example.org/#part) [y](src/a.rs#L3)\n"),
            [""; 0]
        );
        assert_eq!(
            told("# Part one\n", "\n[x](docs/a.md#part-two)\n"),
            ["README.md:2: docs/a.md has no heading #part-two"]
        );
        assert_eq!(told("[x](#gone)\n", "").len(), 1);
    }
}
