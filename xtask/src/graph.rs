//! Who may depend on whom among our own crates.
//!
//! Dependencies point one way, so that each crate can be understood, and used,
//! without those above it. Nothing depends on a program. Crates
//! that only tests need (the lab, for tests that take a kernel) are free.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, Metadata};

/// What each crate may use of the others.
const ALLOWED: &[(&str, &[&str])] = &[
    ("giveway-tier", &[]),
    ("giveway-machine", &[]),
    ("giveway-hints", &["giveway-tier"]),
    ("giveway-command", &[]),
    ("giveway-lab", &[]),
    ("giveway-locks", &["giveway-machine"]),
    ("giveway-metasched", &["giveway-machine"]),
    ("giveway-pods", &["giveway-tier", "giveway-machine"]),
    ("giveway-watch", &["giveway-tier", "giveway-hints"]),
    ("giveway-preempt", &["giveway-tier", "giveway-hints"]),
    ("giveway-cfl-preload", &["giveway-machine", "giveway-locks"]),
    ("giveway-tasks", &["giveway-tier", "giveway-hints"]),
    ("giveway-sql", &["giveway-tier", "giveway-tasks"]),
    (
        "giveway-txn",
        &[
            "giveway-tier",
            "giveway-machine",
            "giveway-locks",
            "giveway-preempt",
        ],
    ),
    (
        "scx_ufs",
        &["giveway-tier", "giveway-machine", "giveway-hints"],
    ),
    (
        "giveway-bench",
        &[
            "giveway-command",
            "giveway-tier",
            "giveway-machine",
            "giveway-lab",
            "giveway-locks",
            "giveway-metasched",
            "giveway-preempt",
            "giveway-sql",
            "giveway-tasks",
            "giveway-txn",
        ],
    ),
    (
        "giveway-sql-cli",
        &["giveway-command", "giveway-tier", "giveway-sql"],
    ),
    (
        "giveway",
        &[
            "giveway-command",
            "giveway-tier",
            "giveway-machine",
            "giveway-hints",
            "giveway-metasched",
            "giveway-pods",
            "giveway-watch",
        ],
    ),
    ("xtask", &[]),
];
/// Nothing depends on these.
const TOPS: [&str; 5] = [
    "giveway",
    "giveway-bench",
    "giveway-sql-cli",
    "scx_ufs",
    "xtask",
];

/// Complaints about dependencies between the workspace's packages.
pub(crate) fn check(workspace: &Metadata) -> Vec<String> {
    let ours: Vec<_> = workspace.workspace_packages();
    let mut uses = BTreeMap::new();
    for package in &ours {
        let used: Vec<String> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .filter(|dependency| ours.iter().any(|other| *other.name == dependency.name))
            .map(|dependency| dependency.name.clone())
            .collect();
        uses.insert(package.name.to_string(), used);
    }
    complaints(&uses)
}

fn complaints(uses: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (package, used) in uses {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) else {
            found.push(format!(
                "{package}: a new crate; say in xtask/src/graph.rs what it may use"
            ));
            continue;
        };
        for other in used {
            let above = TOPS.contains(&other.as_str());
            if above || !allowed.contains(&other.as_str()) {
                found.push(format!("{package} may not depend on {other}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_about(package: &str, used: &[&str]) -> Vec<String> {
        let used = used.iter().map(|name| name.to_string()).collect();
        complaints(&BTreeMap::from([(package.to_owned(), used)]))
    }

    #[test]
    fn dependencies_point_one_way() {
        assert!(complaints_about("giveway-bench", &["giveway-tier"]).is_empty());
        assert!(complaints_about("giveway", &["giveway-watch"]).is_empty());
        assert_eq!(
            complaints_about("giveway", &["giveway-sql"]),
            ["giveway may not depend on giveway-sql"]
        );
        assert_eq!(
            complaints_about("giveway-lab", &["giveway-bench"]),
            ["giveway-lab may not depend on giveway-bench"]
        );
        assert_eq!(complaints_about("scx_ufs", &["giveway"]).len(), 1);
    }

    /// What ARCHITECTURE.md calls a package: by its directory.
    fn shown(package: &str) -> String {
        match package.strip_prefix("giveway") {
            Some("") => "cli".to_owned(),
            Some(rest) => rest[1..].replace('-', "_"),
            None => package.to_owned(),
        }
    }

    #[test]
    fn the_architecture_says_the_same() {
        let page = include_str!("../../ARCHITECTURE.md");
        let rule = page.split("**Dependencies point one way.**").nth(1);
        let rule = rule.and_then(|rest| rest.split("\n- ").next()).unwrap();
        let said: BTreeMap<String, String> = rule
            .split('`')
            .filter_map(|code| code.split_once(" → "))
            .map(|(package, used)| (package.to_owned(), used.to_owned()))
            .collect();
        let meant = ALLOWED.iter().filter_map(|(package, allowed)| {
            let used: Vec<String> = allowed.iter().map(|&u| shown(u)).collect();
            (!used.is_empty()).then(|| (shown(package), used.join(", ")))
        });
        assert_eq!(said, meant.collect());
        for (package, _) in ALLOWED {
            let row = format!("\n| `{}` | ", shown(package));
            assert!(page.contains(&row), "{package} is not in the code map");
        }
    }

    #[test]
    fn a_new_crate_has_to_be_placed() {
        assert!(complaints_about("giveway-new", &[])[0].contains("what it may use"));
    }
}
