//! Each test that docs/operate/guarantees.md names is in the tree.
//!
//! A name is what stands between backquotes and looks like one: in the last column of a
//! table with an underscore at least, elsewhere on the page with two, since `scx_ufs` is
//! no test. It is in the tree if a Rust function or a shell function is called so, or if
//! it is a string, as claims of `ufs-probe` are.
//!
//! Known weakness: a function of that name that is no test will do.

use std::collections::BTreeSet;
use std::path::Path;

pub(super) const PAGE: &str = "docs/operate/guarantees.md";

/// Names on the page that are not among those defined.
pub(super) fn complaints(page: &str, defined: &BTreeSet<String>) -> Vec<String> {
    let names = named(page).into_iter();
    let unknown = names.filter(|(_, name)| !defined.contains(name));
    unknown
        .map(|(line, name)| format!("{PAGE}:{line}: there is no test {name}"))
        .collect()
}

/// Names of tests on the page, with their lines.
fn named(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let cells = line
            .strip_suffix(" |")
            .and_then(|row| row.rsplit_once(" | "));
        let (text, last) = cells.unwrap_or((line, ""));
        for (part, underscores) in [(text, 2), (last, 1)] {
            let quoted = part.split('`').skip(1).step_by(2);
            let names = quoted.filter(|word| is_name(word));
            let names = names.filter(|name| name.matches('_').count() >= underscores);
            found.extend(names.map(|name| (number, name.to_owned())));
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// What a file defines that can be the name of a test.
pub(super) fn defined(path: &Path, text: &str) -> BTreeSet<String> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let names: Vec<&str> = match extension {
        Some("rs") => {
            let functions = text.split("fn ").skip(1);
            let functions = functions.filter_map(|rest| rest.split(['(', '<']).next());
            functions.chain(text.split('"')).collect()
        }
        Some("sh") => (text.lines())
            .filter_map(|line| line.trim_start().split_once("()"))
            .map(|(name, _)| name)
            .collect(),
        _ => Vec::new(),
    };
    let names = names.into_iter().filter(|name| is_name(name));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> BTreeSet<String> {
        defined(Path::new(path), text)
    }

    #[test]
    fn a_promise_whose_test_is_not_in_the_tree_is_found() {
        let page = "\
            | UFS guarantees | claim |\n| --- | --- |\n\
            | A, by `some_option`. | `a_holds`, `b_holds_too` |\n\
            - Nothing of `scx_ufs`, or `nr_rejected`, but `c_is_so_as_well`.\n";
        let none = complaints(page, &BTreeSet::new());
        let names = [
            "3: there is no test a_holds",
            "b_holds_too",
            "c_is_so_as_well",
        ];
        assert_eq!(none.len(), names.len(), "{none:?}");
        for (complaint, name) in none.iter().zip(names) {
            assert!(complaint.ends_with(name), "{complaint}");
        }
        let all = of(
            "x.rs",
            "fn a_holds() {}\nconst B: &str = \"b_holds_too\";\n",
        );
        let all = &all | &of("x.sh", "c_is_so_as_well() {\n");
        assert_eq!(complaints(page, &all), Vec::<String>::new());
    }

    #[test]
    fn a_name_that_is_only_talked_of_is_no_test() {
        let rust = "// a_holds is gone\n/// `a_holds`\nlet a_holds = 1;\n";
        assert!(!of("x.rs", rust).contains("a_holds"));
        assert!(!of("x.sh", "# a_holds\na_holds\n").contains("a_holds"));
        assert!(of("x.md", "fn a_holds()").is_empty());
    }
}
