//! What a result file that a page shows has to be, and the list of exceptions.
//!
//! | rule | a result breaks it if |
//! | --- | --- |
//! | dirty | its program was built from uncommitted changes |
//! | older | the sources of what it measures have changed since its commit |
//! | repeats | a part of it was measured fewer than three times |
//! | provenance | it does not say command, host, and the lab's parts |
//! | profile | its program was built by another profile than `release`, as for a demo, or it does not say by which |
//! | samples | a page quotes a percentile of it with fewer than 100 samples beyond |
//!
//! *Older* is what git says: the [sources](crate::runner::experiment::Experiment::SUBJECT)
//! at the result's commit differ from those in the working tree in more than comments and
//! blank lines, or the commit is not in the history. A result without rows of UFS is not
//! about UFS. Where there is no whole history, nothing is older.
//!
//! The list is a page for readers (`docs/measure/exceptions.md`). Each section gives a
//! reason and the results that it excuses:
//!
//! ```text
//! ## A heading
//!
//! The reason, in sentences.
//!
//! - `2026-11-21-vm/mixed-1.json`: older, repeats
//! ```
//!
//! An exception that is not needed is a complaint like a rule that is broken, so the list
//! is never longer than it has to be. The rule *unmarked* is about pages, not results: a
//! page in the list has fractions that no mark gives.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use crate::experiments::ALL;
use crate::harness::environment::{Environment, KVM};

/// The list of exceptions, from the root.
pub(super) const LIST: &str = "docs/measure/exceptions.md";

/// How often a number is measured that a page may quote.
pub(super) const REPEATS: usize = 3;

/// A line of C or Rust that is a comment, or a part of one.
const COMMENT: &str = r"^[[:space:]]*(//|/?\*)";
const BLANK: &str = "^[[:space:]]+$";

/// What is wrong with a result, or with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Dirty,
    Older,
    Repeats,
    Provenance,
    Profile,
    Samples,
    Unmarked,
}

impl Rule {
    const ALL: [Rule; 7] = [
        Rule::Dirty,
        Rule::Older,
        Rule::Repeats,
        Rule::Provenance,
        Rule::Profile,
        Rule::Samples,
        Rule::Unmarked,
    ];

    /// What is wrong, and what is to be done.
    fn says(self) -> (&'static str, &'static str) {
        match self {
            Rule::Dirty => (
                "was built from uncommitted changes",
                "measure it at a commit",
            ),
            Rule::Older => (
                "is older than what it measures: the sources have changed since",
                "measure it again",
            ),
            Rule::Repeats => (
                "has numbers of fewer than three repeats",
                "measure it with --repeat 3 or more",
            ),
            Rule::Provenance => (
                "does not say its command, its host or the lab's parts",
                "measure it again",
            ),
            Rule::Profile => (
                "was measured by a program that is not optimised throughout, or may not be",
                "build it with --release",
            ),
            Rule::Samples => (
                "has a percentile on a page with fewer than 100 samples beyond it",
                "measure longer, or quote another one",
            ),
            Rule::Unmarked => (
                "has fractions that no mark gives",
                "mark them (crates/bench/src/overview/docs/marks.rs)",
            ),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Rule::Dirty => "dirty",
            Rule::Older => "older",
            Rule::Repeats => "repeats",
            Rule::Provenance => "provenance",
            Rule::Profile => "profile",
            Rule::Samples => "samples",
            Rule::Unmarked => "unmarked",
        };
        f.write_str(text)
    }
}

/// Rules with the results or pages that break them, or that may.
pub(super) type Broken = BTreeSet<(String, Rule)>;

/// A result file as the rules see it.
#[derive(Deserialize)]
pub(super) struct Rows {
    pub(super) experiment: String,
    environment: Environment,
    pub(super) rows: Vec<Value>,
}

impl Rows {
    /// The rules that it breaks; `repository` has the history.
    pub(super) fn broken(&self, repository: &Path) -> Vec<Rule> {
        let Environment { commit, .. } = &self.environment;
        let clean = commit.trim_end_matches("-dirty");
        let mut broken = Vec::new();
        if clean != commit || commit == "unknown" {
            broken.push(Rule::Dirty);
        }
        if self
            .subject()
            .is_some_and(|of| changed(repository, clean, of))
        {
            broken.push(Rule::Older);
        }
        if self.repeats() < REPEATS {
            broken.push(Rule::Repeats);
        }
        if !self.has_provenance() {
            broken.push(Rule::Provenance);
        }
        if self.environment.provenance.profile != "release" || self.has_debug_scheduler() {
            broken.push(Rule::Profile);
        }
        broken
    }

    /// The sources that it is about; none if it has only other schedulers' rows.
    fn subject(&self) -> Option<&'static [&'static str]> {
        let mut all = ALL.iter();
        let experiment = all.find(|experiment| experiment.name == self.experiment)?;
        let mut schedulers = self.rows.iter().filter_map(|row| row.get("scheduler"));
        let of_others = schedulers.clone().next().is_some() && schedulers.all(|of| of != "ufs");
        (!of_others).then_some(experiment.subject)
    }

    /// How often everything was measured: rows over those of the repeat with the most.
    /// What policies learnt from is no result.
    fn repeats(&self) -> usize {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let is_training = |row: &&Value| row.get("stage").is_some_and(|stage| stage == "training");
        for row in self.rows.iter().filter(|row| !is_training(row)) {
            let repeat = format!("{:?} {:?}", row.get("repeat"), row.get("seed"));
            *counts.entry(repeat).or_default() += 1;
        }
        counts
            .values()
            .max()
            .map_or(0, |most| counts.values().sum::<usize>() / most)
    }

    /// Whether a scheduler has said that it was not optimised.
    fn has_debug_scheduler(&self) -> bool {
        let mut versions = self
            .rows
            .iter()
            .filter_map(|row| row.get("scheduler_version"));
        versions.any(|version| version.as_str().is_some_and(|of| of.ends_with("_debug")))
    }

    fn has_provenance(&self) -> bool {
        let of = &self.environment.provenance;
        let lab = [&of.program, &of.emulator, &of.image];
        let is_kvm = self.environment.clock == KVM;
        let has_lab = lab.iter().all(|part| !part.is_empty()) && (of.quantum_ns > 0 || is_kvm);
        let host = [&of.command, &of.host_cpu, &of.host_load];
        let has_host = host.iter().all(|part| !part.is_empty()) && of.host_cpus > 0;
        has_host && (["native", "virtual"].contains(&&*self.environment.clock) || has_lab)
    }
}

/// Whether git knows every commit: not in an unpacked archive or a shallow clone, where
/// nothing can be said of what is older.
pub(super) fn has_history(repository: &Path) -> bool {
    let shallow = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(["rev-parse", "--is-shallow-repository"])
        .output();
    shallow.is_ok_and(|output| output.status.success() && output.stdout == b"false\n")
}

/// Whether these sources have changed since a commit, or that is not known.
fn changed(repository: &Path, commit: &str, sources: &[&str]) -> bool {
    let status = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(["diff", "--quiet", "-I", COMMENT, "-I", BLANK, commit, "--"])
        .args(sources)
        .output();
    !status.is_ok_and(|output| output.status.success())
}

/// The exceptions of the list, with their lines; or what is wrong with it.
pub(super) fn exceptions(list: &str) -> Result<BTreeMap<(String, Rule), usize>, String> {
    let mut exceptions = BTreeMap::new();
    let mut has_reason = false;
    for (index, line) in list.lines().enumerate() {
        let at = |why: &str| format!("{LIST}:{}: {why}", index + 1);
        if line.starts_with('#') {
            has_reason = false;
        } else if let Some(item) = line.strip_prefix("- `") {
            let (what, rules) = item
                .split_once("`: ")
                .ok_or_else(|| at("write \"- `FILE`: RULE, RULE\""))?;
            if !has_reason {
                return Err(at("no sentence above says the reason"));
            }
            for name in rules.split(", ") {
                let rule = Rule::ALL.into_iter().find(|rule| rule.to_string() == name);
                let rule = rule.ok_or_else(|| at(&format!("there is no rule \"{name}\"")))?;
                exceptions.insert((what.to_owned(), rule), index + 1);
            }
        } else {
            has_reason |= !line.trim().is_empty();
        }
    }
    Ok(exceptions)
}

/// Rules that are broken without an exception, and exceptions without a broken rule.
pub(super) fn complaints(
    broken: &Broken,
    exceptions: &BTreeMap<(String, Rule), usize>,
) -> Vec<String> {
    let place = |what: &str, rule: Rule| match rule {
        Rule::Unmarked => what.to_owned(),
        _ => format!("results/{what}"),
    };
    let new = broken.iter().filter(|of| !exceptions.contains_key(*of));
    let new = new.map(|(what, rule)| {
        let (says, remedy) = rule.says();
        let place = place(what, *rule);
        format!("{place}: {says}: {remedy}, or list \"{rule}\" and the reason in {LIST}")
    });
    let old = exceptions.iter().filter(|(of, _)| !broken.contains(*of));
    let old = old.map(|((what, rule), line)| {
        format!("{LIST}:{line}: `{what}` needs no exception \"{rule}\" any more: remove it")
    });
    new.chain(old).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::git;
    use super::*;
    use std::fs;

    #[test]
    fn sources_have_changed_if_more_than_comments_has() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let write = |file: &str, text: &str| fs::write(dir.join(file), text).unwrap();
        git(dir, &["init", "-q"]);
        write("a.c", "/* One. */\nint a;\n");
        write("b.c", "int b;\n");
        git(dir, &["add", "."]);
        git(dir, &["commit", "-qm", "first"]);
        let first = git(dir, &["rev-parse", "HEAD"]);
        assert!(!changed(dir, &first, &["a.c"]));
        write("a.c", "/* Two.\n * More.\n */\n\nint a;\n");
        assert!(!changed(dir, &first, &["a.c"]));
        write("b.c", "long b;\n");
        assert!(!changed(dir, &first, &["a.c"]));
        assert!(changed(dir, &first, &["b.c"]));
        assert!(!changed(dir, &first, &[".", ":!b.c"]));
        git(dir, &["commit", "-qam", "second"]);
        assert!(changed(dir, &first, &["b.c"]));
        assert!(changed(dir, "0123456789ab", &["a.c"]), "not in the history");
    }

    fn rows(rows: &str) -> Rows {
        let text = format!(
            "{{\"experiment\": \"mixed\", \"environment\": {{\"commit\": \"c\"}}, \"rows\": {rows}}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_file_has_as_many_repeats_as_its_part_with_the_fewest() {
        let row = |mix: u32, repeat: u32| format!("{{\"mix\": {mix}, \"repeat\": {repeat}}}");
        let repeats = |list: &[(u32, u32)]| {
            let list: Vec<String> = list.iter().map(|(mix, of)| row(*mix, *of)).collect();
            rows(&format!("[{}]", list.join(","))).repeats()
        };
        assert_eq!(repeats(&[]), 0);
        assert_eq!(repeats(&[(1, 0), (1, 1), (1, 2)]), 3);
        assert_eq!(repeats(&[(1, 0), (2, 0), (1, 1), (1, 2), (2, 1)]), 2);
        let learnt = "[{\"repeat\": 0, \"seed\": 1}, {\"repeat\": 1, \"seed\": 2},
            {\"repeat\": 0, \"seed\": 9, \"stage\": \"training\"}]";
        assert_eq!(rows(learnt).repeats(), 2);
    }

    #[test]
    fn a_result_is_about_ufs_if_a_row_is() {
        let subject = |text: &str| rows(text).subject().is_some();
        assert!(!subject("[{\"scheduler\": \"eevdf\"}]"));
        assert!(subject(
            "[{\"scheduler\": \"eevdf\"}, {\"scheduler\": \"ufs\"}]"
        ));
        assert!(subject("[{\"lock\": \"cfl\"}]"));
    }

    #[test]
    fn an_exception_has_a_reason_and_a_rule_that_there_is() {
        let list = "# A\n\nText.\n\n## B\n\nWhy.\n\n- `a.json`: dirty, older\n";
        let found = exceptions(list).unwrap();
        let of = |rule| ("a.json".to_owned(), rule);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&of(Rule::Older)], 9);
        let error = |list: &str| exceptions(list).unwrap_err();
        assert!(error("Text.\n\n## B\n\n- `a`: dirty\n").contains(":5: no sentence"));
        assert!(error("Why.\n- `a`: wet\n").contains("no rule \"wet\""));
        assert!(error("Why.\n- `a` dirty\n").contains("write"));
        let broken = Broken::from([of(Rule::Dirty), of(Rule::Repeats)]);
        let said = complaints(&broken, &found);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("results/a.json: has numbers of fewer"),
            "{said:?}"
        );
        assert!(
            said[1].contains(":9: `a.json` needs no exception \"older\""),
            "{said:?}"
        );
    }
}
