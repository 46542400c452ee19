//! The page for operators lists each message that `scx_ufs` writes, and no other.
//!
//! Messages are read from the sources: the text of each `info!` and `warn!`, in which
//! something to be filled in is `…`. A text that is nothing but that is a reason alone, and
//! not listed; what a kernel lacks is looked up in `features.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../cli/tests/messages/literal.rs"]
mod literal;

use literal::literal;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            // Another program.
            true if path.ends_with("bin") => {}
            true => sources(&path, found),
            false if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
            false => {}
        }
    }
}

/// What the kernel lacks if `arguments` name that: `without` and the version.
fn feature(arguments: &str, features: &str) -> Option<String> {
    let name = arguments.split("features::").nth(1)?;
    let name = name.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let declared = format!("const {}: Feature", name.into_iter().next()?);
    let declaration = features.split(&declared).nth(1)?;
    let field = |name: &str| literal(declaration.split(name).nth(1)?);
    let (without, since) = (field("without:")?.0, field("since:")?.0);
    Some(format!("{without} (before Linux {since})"))
}

/// Each message with its level.
fn written() -> BTreeMap<String, &'static str> {
    let mut paths = Vec::new();
    sources(&Path::new(HERE).join("src"), &mut paths);
    let features = fs::read_to_string(Path::new(HERE).join("src/features.rs")).unwrap();
    let mut written = BTreeMap::new();
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        for (call, level) in [("info!(", "info"), ("warn!(", "warning")] {
            for rest in source.split(call).skip(1) {
                let (text, rest) = literal(rest).unwrap_or_else(|| panic!("{path:?}: {rest:.60}"));
                if text != "…" {
                    written.insert(text, level);
                } else if let Some(lacking) = feature(rest.split(';').next().unwrap(), &features) {
                    written.insert(lacking, level);
                }
            }
        }
    }
    written
}

/// The table: message, level, meaning, remedy.
fn listed() -> Vec<[String; 4]> {
    let page = include_str!("../../../docs/operate/scheduler.md");
    let (_, section) = page.split_once("\n## Messages\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let row = row.trim_start_matches("| ").trim_end_matches('|');
        let cells: Vec<String> = row.split(" | ").map(|cell| cell.trim().into()).collect();
        let cells: [String; 4] = cells.try_into().unwrap_or_else(|_| panic!("{row}"));
        cells.map(|cell| cell.trim_matches('`').to_owned())
    })
    .collect()
}

#[test]
fn page_lists_each_message_and_no_other() {
    let written = written();
    assert!(written.len() >= 15, "{written:?}");
    let listed = listed();
    let of_page: BTreeMap<String, &str> = listed
        .iter()
        .map(|[text, level, ..]| (text.clone(), level.as_str()))
        .collect();
    let missing: Vec<_> = written
        .iter()
        .filter(|row| of_page.get(row.0) != Some(row.1))
        .collect();
    let unknown: Vec<_> = of_page
        .keys()
        .filter(|text| !written.contains_key(*text))
        .collect();
    assert!(
        missing.is_empty(),
        "not on the page, or at another level: {missing:#?}"
    );
    assert!(unknown.is_empty(), "written nowhere: {unknown:#?}");
}

#[test]
fn each_warning_says_what_it_means_and_what_to_do() {
    for [text, level, meaning, remedy] in listed() {
        assert!(!meaning.is_empty(), "{text}");
        assert!(level == "info" || !remedy.is_empty(), "{text}");
    }
}
