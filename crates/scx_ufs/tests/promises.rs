//! docs/operate/guarantees.md promises what a test shows, and every test there is for
//! UFS in a kernel stands behind a promise. Promises of other parts name tests that are
//! no claims of `ufs-probe`; `cargo xtask tidy` sees that those exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    let path = Path::new(HERE).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names in backquotes in the last column of each row of the page's table,
/// and the rows that have none.
fn promised(page: &str) -> (BTreeSet<String>, Vec<&str>) {
    let mut names = BTreeSet::new();
    let mut bare = Vec::new();
    let is_rule = |line: &str| line.starts_with("| ---");
    // The line above a rule is a table's head.
    let heads = page.lines().zip(page.lines().skip(1));
    let heads: BTreeSet<&str> = heads
        .filter_map(|(line, next)| is_rule(next).then_some(line))
        .collect();
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && !is_rule(line) && !heads.contains(line));
    for row in rows {
        let last = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .unwrap_or("");
        let found: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if found.is_empty() {
            bare.push(row);
        }
        names.extend(found.into_iter().map(str::to_owned));
    }
    (names, bare)
}

/// The claims that a test asks a machine for, by the sources of the tests.
fn tested() -> BTreeSet<String> {
    let text = read("tests/vm.rs") + &read("tests/faults.rs") + &read("tests/long.rs");
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .map(str::to_owned)
        .collect()
}

/// What `ufs-probe` can show.
fn known() -> BTreeSet<String> {
    let probe = Command::new(env!("CARGO_BIN_EXE_ufs-probe"))
        .arg("--list")
        .output()
        .expect("ufs-probe runs");
    let list = String::from_utf8(probe.stdout).expect("names are text");
    list.lines().map(str::to_owned).collect()
}

#[test]
fn every_promise_names_a_claim_that_a_test_asks_for() {
    let page = read("../../docs/operate/guarantees.md");
    let (promised, bare) = promised(&page);
    assert!(bare.is_empty(), "promised and not shown: {bare:#?}");
    let (known, tested) = (known(), tested());
    for claim in promised.intersection(&known) {
        assert!(tested.contains(claim), "no test asks for {claim}");
    }
    let idle: Vec<&String> = known.difference(&promised).collect();
    assert!(idle.is_empty(), "shown and not promised: {idle:#?}");
}

#[test]
fn a_row_without_a_claim_is_found() {
    let page = "| UFS guarantees | claim |\n| --- | --- |\n| A. | `a`, `b` |\n| B. | none |\n";
    let (names, bare) = promised(page);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(bare, ["| B. | none |"]);
    let page = page.replace("UFS", "the server");
    assert_eq!(promised(&page).1, ["| B. | none |"]);
}
