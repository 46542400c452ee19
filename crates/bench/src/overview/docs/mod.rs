//! Every figure of the documentation, generated from result files, so that no number is
//! typed; and the check that fails if one is not what the files come to.
//!
//! ```text
//!   results/*/*.json ─┬► docs/results/NAME.md       all results of an experiment
//!                     ├► docs/results/missed.md     missed targets; causes are kept (missed)
//!                     ├► README.md, docs/**.md      what stands in marks (marks)
//!                     └► rules ◄── docs/measure/exceptions.md (rules)
//! ```
//!
//! A page is a function of the files below `results/` and of itself. [`write()`] writes it;
//! [`check`] compares, and says file, line, what stands and what should stand. A test of
//! this module is the check of this tree. Results that git does not track are somebody's
//! own, of which pages say nothing: whoever measures breaks no check.
//!
//! Known weakness: prose about a number ("more than half") is not generated, and numbers
//! without a mark are found only if they look like a fraction, `0.97`.

mod marks;
mod missed;
mod rules;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::read::read_reports;
use crate::experiments::ALL;
use crate::harness::environment::{Environment, KVM};
use crate::harness::error::{Error, Result};
use crate::harness::files;
use crate::report::AnyReport;
use rules::{Broken, Rows, Rule};

/// Where pages with results stand, from the root.
const PAGES: &str = "docs/results";
/// The page of missed targets.
const MISSED: &str = "docs/results/missed.md";

/// What a check finds.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) complaints: Vec<String>,
    /// How many rules are broken with a reason.
    pub(crate) exceptions: usize,
    /// Whether it could be checked which results are older than what they measure.
    pub(crate) has_history: bool,
}

/// Writes every page anew that is not as it should be; answers with these.
///
/// # Errors
/// A file that cannot be read or written, or that is no results file; a wrong mark.
pub(crate) fn write(root: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, should) in Tree::read(root)?.pages()? {
        let path = root.join(name);
        if read_or_empty(&path)? != should {
            files::replace(&path, should.as_bytes())?;
            written.push(path);
        }
    }
    Ok(written)
}

/// The results below a root that no page shows, since git tracks others and not these.
///
/// # Errors
/// A directory that cannot be read.
pub(crate) fn untracked(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = result_files(&root.join("results"))?;
    let tracked = tracked(root);
    files.retain(|file| !tracked.is_empty() && !tracked.contains(file));
    Ok(files)
}

/// Checks pages and results. `repository` has the history of the sources.
///
/// # Errors
/// As [`write()`].
pub(crate) fn check(root: &Path, repository: &Path) -> Result<Checked> {
    let tree = Tree::read(root)?;
    let mut complaints = Vec::new();
    for (name, should) in tree.pages()? {
        let stands = read_or_empty(&root.join(&name))?;
        complaints.extend(difference(&stands, &should).map(|(line, stands, should)| {
            format!(
                "{name}:{line}: stands: {stands:?}, should be: {should:?}: run `giveway bench \
                 report --docs`"
            )
        }));
        if name == MISSED {
            let open = missed::without_cause(&should);
            complaints.extend(open.map(|(line, experiment, target)| {
                format!(
                    "{name}:{line}: \"{target}\" of {experiment} is missed without a cause: write \
                     it into the last column"
                )
            }));
        }
    }
    let mut broken = tree.broken.take();
    for (file, (rows, _)) in &tree.results {
        let rules = rows.broken(repository);
        broken.extend(rules.into_iter().map(|rule| (file.clone(), rule)));
    }
    let list = read_or_empty(&root.join(rules::LIST))?;
    let mut exceptions = rules::exceptions(&list).map_err(Error::Config)?;
    let has_history = rules::has_history(repository);
    if !has_history {
        broken.retain(|(_, rule)| *rule != Rule::Older);
        exceptions.retain(|(_, rule), _| *rule != Rule::Older);
    }
    complaints.extend(rules::complaints(&broken, &exceptions));
    Ok(Checked {
        complaints,
        exceptions: exceptions.len(),
        has_history,
    })
}

/// The results and hand-written pages below a root.
struct Tree {
    /// By their names below `results/`.
    results: BTreeMap<String, (Rows, Box<dyn AnyReport>)>,
    /// Those of the newest directory first.
    order: Vec<String>,
    /// By their names from the root.
    by_hand: BTreeMap<String, String>,
    /// What pages do to rules.
    broken: RefCell<Broken>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let dir = root.join("results");
        let mut results = BTreeMap::new();
        let mut order = Vec::new();
        let untracked = untracked(root)?;
        let mut files = result_files(&dir)?;
        files.retain(|file| !untracked.contains(file));
        for path in files {
            let name = path.strip_prefix(&dir).unwrap_or(&path);
            let name = name.display().to_string();
            let text = fs::read(&path).map_err(Error::file("read", &path))?;
            let report = read_reports(std::slice::from_ref(&path))?;
            let rows = serde_json::from_slice(&text).map_err(|error| Error::Results {
                path,
                reason: error.to_string(),
            })?;
            results.insert(name.clone(), (rows, report));
            order.push(name);
        }
        let mut pages = vec![root.join("README.md")];
        let mut dirs = vec![root.join("docs")];
        while let Some(dir) = dirs.pop() {
            for path in entries(&dir)? {
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|of| of == "md") {
                    pages.push(path);
                }
            }
        }
        let mut by_hand = BTreeMap::new();
        for path in pages {
            let name = path.strip_prefix(root).unwrap_or(&path);
            if !name.starts_with(PAGES) {
                by_hand.insert(name.display().to_string(), read_or_empty(&path)?);
            }
        }
        let before = read_or_empty(&root.join(MISSED))?;
        by_hand.insert(MISSED.to_owned(), before);
        Ok(Tree {
            results,
            order,
            by_hand,
            broken: RefCell::default(),
        })
    }

    /// Every page as it should be, by its name from the root.
    fn pages(&self) -> Result<BTreeMap<String, String>> {
        let mut pages = BTreeMap::new();
        let mut missed = missed::Page::default();
        for experiment in ALL {
            let mut page = format!(
                "# Results: {}\n\n{}.\nFrom: {}.\n\n\
                 Generated from the files below `results/` by `giveway bench report --docs`: \
                 newest first, nothing left out. How it is measured is in the \
                 [index](../README.md); [which results are older than the program or have \
                 another fault](../measure/exceptions.md).\n",
                experiment.name, experiment.summary, experiment.section
            );
            let mut is_measured = false;
            for name in &self.order {
                let (rows, report) = &self.results[name];
                if rows.experiment == experiment.name {
                    is_measured = true;
                    page += &section(name, report.as_ref());
                    missed.add(experiment.name, name, report.targets());
                }
            }
            if is_measured {
                pages.insert(format!("{PAGES}/{}.md", experiment.name), page);
            }
        }
        for (name, text) in &self.by_hand {
            let should = match name.as_str() {
                MISSED => missed.text(text),
                _ => self.marked(name, text)?,
            };
            pages.insert(name.clone(), should);
        }
        Ok(pages)
    }

    /// A page by hand with its figures as they should be.
    fn marked(&self, name: &str, text: &str) -> Result<String> {
        let rows = |file: &str| match self.results.get(file) {
            Some((rows, _)) => Ok(rows.rows.as_slice()),
            None => Err(format!("there is no results/{file}")),
        };
        let (text, figures) = marks::regenerate(text, &rows)
            .map_err(|(line, why)| Error::Config(format!("{name}:{line}: {why}")))?;
        let mut broken = self.broken.borrow_mut();
        for figure in figures {
            if figure.repeats < rules::REPEATS {
                broken.insert((figure.file.clone(), Rule::Repeats));
            }
            if figure.few_samples {
                broken.insert((figure.file, Rule::Samples));
            }
        }
        if marks::has_unmarked(&text) {
            broken.insert((name.to_owned(), Rule::Unmarked));
        }
        Ok(text)
    }
}

/// The first line, from 1, in which two texts differ.
fn difference<'a>(stands: &'a str, should: &'a str) -> Option<(usize, &'a str, &'a str)> {
    if stands == should {
        return None;
    }
    let lines = || stands.split('\n').zip(should.split('\n'));
    let same = lines().take_while(|(one, other)| one == other).count();
    let line = |text: &'a str| text.split('\n').nth(same).unwrap_or_default();
    Some((same + 1, line(stands), line(should)))
}

/// A results file as a part of its page.
fn section(name: &str, report: &dyn AnyReport) -> String {
    format!(
        "\n## {name}\n\n{}\n\n```\n{}\n```\n\n{}\n",
        provenance(report.environment()),
        report.table().trim_end(),
        report.sentence()
    )
}

/// Where the rows come from, in one line.
fn provenance(environment: &Environment) -> String {
    let Environment {
        kernel,
        cpus,
        clock,
        commit,
        date,
        cpu_model,
        postgresql,
        provenance,
        ..
    } = environment;
    let mut text = format!("{date}, commit `{commit}`, Linux {kernel}, clock {clock}, {cpus} CPUs");
    if provenance.quantum_ns > 0 {
        text += &format!(" ({})", provenance.lab());
    }
    if ["native", KVM].contains(&&**clock) && !cpu_model.is_empty() {
        text += &format!(" ({cpu_model})");
    }
    if !postgresql.is_empty() {
        text += &format!(", PostgreSQL {postgresql}");
    }
    text + "."
}

/// The results files, the newest directory first.
fn result_files(results: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in entries(results)?.into_iter().rev() {
        if dir.is_dir() {
            let is_json = |path: &PathBuf| path.extension().is_some_and(|of| of == "json");
            files.extend(entries(&dir)?.into_iter().filter(is_json));
        }
    }
    Ok(files)
}

/// The results that git tracks; none where it has none, or where there is no git.
fn tracked(root: &Path) -> BTreeSet<PathBuf> {
    let said = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--", "results"])
        .output();
    let names = said.map_or(Vec::new(), |output| output.stdout);
    let names = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| root.join(OsStr::from_bytes(name)))
        .collect()
}

/// What a directory has, by name.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(Error::file("read", dir))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .map_err(Error::file("read", dir))?;
    paths.sort();
    Ok(paths)
}

/// A page that is not there yet is empty.
fn read_or_empty(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(Error::file("read", path)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// A result that every rule holds for, and that a page of this tree shows.
    const RESULT: &str = "2026-11-26-vm/oversubscription-1.json";

    /// What git says.
    pub(super) fn git(dir: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.arg("-C").arg(dir).args(args);
        for name in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{name}_NAME"), "a");
            command.env(format!("GIT_{name}_EMAIL"), "a@example.org");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The root of the repository.
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn figures_of_pages_are_those_of_the_results_and_faults_are_listed() {
        let checked = check(&root(), &root()).unwrap();
        let complaints = checked.complaints.join("\n");
        assert!(complaints.is_empty(), "{complaints}");
    }

    /// The result, as if it had been measured at a commit.
    fn original(commit: &str) -> String {
        let text = fs::read_to_string(root().join("results").join(RESULT)).unwrap();
        // From before profiles were recorded.
        let profile = "\"provenance\":{\"profile\":\"release\",";
        let text = text.replacen("\"provenance\":{", profile, 1);
        text.replacen("cbc2d168d59c", commit, 1)
    }

    /// A tree with one result, one page by hand, and a list without exceptions, made at the
    /// last commit of a repository.
    struct Copy {
        dir: tempfile::TempDir,
    }

    impl Copy {
        fn new() -> Self {
            let copy = Copy {
                dir: tempfile::tempdir().unwrap(),
            };
            copy.put("crates/scx_ufs/src/main.bpf.c", "int slice;\n");
            copy.git(&["init", "-q"]);
            copy.git(&["add", "."]);
            copy.git(&["commit", "-qm", "a scheduler"]);
            let commit = copy.git(&["rev-parse", "HEAD"]);
            copy.put(&format!("results/{RESULT}"), &original(&commit));
            let of = format!("{RESULT} ts_tps scheduler=ufs terminals=6 / scheduler=rr");
            copy.put(
                "README.md",
                &format!("# A\n\nIt has <!--[{of}]-->1.00<!--[]-->.\n"),
            );
            copy.put("docs/README.md", "Nothing.\n");
            copy.put(rules::LIST, "# Faults\n\nNone.\n");
            write(copy.root()).unwrap();
            copy.edit(MISSED, |text| text.replace("|  |", "| It is so. |"));
            copy
        }

        fn root(&self) -> &Path {
            self.dir.path()
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.root().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn edit(&self, name: &str, change: impl Fn(&str) -> String) {
            let before = fs::read_to_string(self.root().join(name)).unwrap();
            let after = change(&before);
            assert_ne!(before, after, "{name} is not changed");
            self.put(name, &after);
        }

        fn git(&self, args: &[&str]) -> String {
            git(self.root(), args)
        }

        /// What is wrong once something is edited.
        fn after(&self, name: &str, change: impl Fn(&str) -> String) -> Vec<String> {
            let before = fs::read_to_string(self.root().join(name)).unwrap();
            self.edit(name, change);
            let complaints = self.complaints();
            self.put(name, &before);
            complaints
        }

        fn complaints(&self) -> Vec<String> {
            check(self.root(), self.root()).unwrap().complaints
        }
    }

    fn one(complaints: Vec<String>, parts: &[&str]) {
        let [complaint] = complaints.as_slice() else {
            panic!("{} complaints: {complaints:?}", complaints.len());
        };
        for part in parts {
            assert!(complaint.contains(part), "{part}: {complaint}");
        }
    }

    #[test]
    fn a_changed_digit_of_a_page_is_said_with_its_line() {
        let copy = Copy::new();
        assert_eq!(copy.complaints(), Vec::<String>::new());
        let right = fs::read_to_string(copy.root().join("README.md")).unwrap();
        let line = right.lines().nth(2).unwrap();
        let number = line
            .split("]-->")
            .nth(1)
            .unwrap()
            .split('<')
            .next()
            .unwrap();
        let wrong = format!("]-->{}7<", &number[..number.len() - 1]);
        let changed = |text: &str| text.replace(&format!("]-->{number}<"), &wrong);
        assert_ne!(right, changed(&right));
        let remedy = "run `giveway bench report --docs`";
        one(
            copy.after("README.md", changed),
            &["README.md:3: stands:", &wrong, "should be:", number, remedy],
        );
        let page = "docs/results/oversubscription.md";
        let text = fs::read_to_string(copy.root().join(page)).unwrap();
        let at = text
            .lines()
            .position(|line| line.starts_with("  UFS"))
            .unwrap();
        one(
            copy.after(page, |text| text.replacen("  UFS    ", "  UFS   1", 1)),
            &[&format!("{page}:{}:", at + 1), remedy],
        );
        // A page is repaired by what the complaint says.
        copy.edit("README.md", changed);
        assert_eq!(write(copy.root()).unwrap(), [copy.root().join("README.md")]);
        assert_eq!(copy.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_result_of_somebody_s_own_changes_no_page() {
        let copy = Copy::new();
        copy.git(&["add", "."]);
        let own = "results/2026-11-27-vm/oversubscription-1.json";
        copy.put(own, &original("0123456789ab"));
        assert_eq!(copy.complaints(), Vec::<String>::new());
        assert_eq!(write(copy.root()).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(untracked(copy.root()).unwrap(), [copy.root().join(own)]);
        copy.git(&["add", own]);
        assert_eq!(untracked(copy.root()).unwrap(), Vec::<PathBuf>::new());
        assert!(!copy.complaints().is_empty());
    }

    #[test]
    fn a_result_that_is_dirty_old_or_lacks_repeats_or_provenance_is_said() {
        let copy = Copy::new();
        let result = format!("results/{RESULT}");
        let commit = copy.git(&["rev-parse", "HEAD"]);
        // Pages are written anew, so only what rules say counts.
        let broken = |change: &dyn Fn(&mut Value)| {
            let mut value: Value = serde_json::from_str(&original(&commit)).unwrap();
            change(&mut value);
            copy.put(&result, &value.to_string());
            write(copy.root()).unwrap();
            let complaints = copy.complaints();
            copy.put(&result, &original(&commit));
            write(copy.root()).unwrap();
            complaints
        };
        let of_commit = |commit: &str| {
            let commit = commit.to_owned();
            move |result: &mut Value| result["environment"]["commit"] = commit.clone().into()
        };
        let dirty = of_commit(&format!("{commit}-dirty"));
        one(
            broken(&dirty),
            &[&result, "uncommitted changes", "list \"dirty\""],
        );
        let unknown = of_commit("0123456789ab");
        one(broken(&unknown), &[&result, "list \"older\""]);
        let two = |result: &mut Value| {
            for row in result["rows"].as_array_mut().unwrap() {
                if row["repeat"] == 2 {
                    (row["repeat"], row["seed"]) = (1.into(), 2.into());
                }
            }
        };
        let complaints = broken(&two);
        one(
            complaints,
            &[&result, "fewer than three repeats", "list \"repeats\""],
        );
        let nameless = |result: &mut Value| {
            result["environment"]["provenance"]["emulator"] = "".into();
        };
        one(broken(&nameless), &[&result, "list \"provenance\""]);
        let of_profile = |profile: &str| {
            let profile = profile.to_owned();
            move |result: &mut Value| {
                result["environment"]["provenance"]["profile"] = profile.clone().into();
            }
        };
        let demo = broken(&of_profile("demo"));
        one(demo, &[&result, "not optimised", "list \"profile\""]);
        assert_eq!(broken(&of_profile("release")), Vec::<String>::new());
        one(broken(&of_profile("")), &[&result, "list \"profile\""]);
        let debug = |result: &mut Value| {
            result["rows"][0]["scheduler_version"] = "ufs_0.1.0_debug".into();
        };
        one(broken(&debug), &[&result, "list \"profile\""]);

        // The scheduler changes, first a comment, then the code.
        let source = "crates/scx_ufs/src/main.bpf.c";
        copy.put(source, "/* Of a task. */\nint slice;\n");
        assert_eq!(copy.complaints(), Vec::<String>::new());
        copy.put(source, "long slice;\n");
        let old = [
            result.as_str(),
            "is older than what it measures",
            "list \"older\"",
        ];
        one(copy.complaints(), &old);
        copy.git(&["commit", "-qam", "another scheduler"]);
        one(copy.complaints(), &old);
        let list = format!("# Faults\n\nNot measured again.\n\n- `{RESULT}`: older\n");
        copy.put(rules::LIST, &list);
        assert_eq!(copy.complaints(), Vec::<String>::new());
        assert_eq!(check(copy.root(), copy.root()).unwrap().exceptions, 1);
        copy.put(source, "int slice;\n");
        one(
            copy.complaints(),
            &[":5:", RESULT, "no exception \"older\" any more"],
        );

        // Without a history nobody knows what is older.
        fs::remove_dir_all(copy.root().join(".git")).unwrap();
        copy.put(source, "long slice;\n");
        let checked = check(copy.root(), copy.root()).unwrap();
        assert!(!checked.has_history);
        assert_eq!(checked.complaints, Vec::<String>::new());
        copy.put(source, "int slice;\n");
        assert_eq!(copy.complaints(), Vec::<String>::new());
    }

    #[test]
    fn figures_without_a_mark_or_samples_and_misses_without_a_cause_are_said() {
        let copy = Copy::new();
        let unmarked = copy.after("docs/README.md", |text| format!("{text}It has 0.97.\n"));
        one(
            unmarked,
            &["docs/README.md: has fractions", "list \"unmarked\""],
        );
        let of_few = format!("<!--[{RESULT} ts_p99_ms scheduler=ufs terminals=6]-->1<!--[]-->");
        copy.edit("docs/README.md", |text| format!("{text}\n{of_few}\n"));
        write(copy.root()).unwrap();
        one(copy.complaints(), &[RESULT, "list \"samples\""]);
        copy.put("docs/README.md", "Nothing.\n");
        one(
            copy.after(MISSED, |text| text.replace("It is so.", "")),
            &[MISSED, "is missed without a cause"],
        );
        copy.put("docs/README.md", "<!--[none.json ts_tps]-->1<!--[]-->\n");
        let error = check(copy.root(), copy.root()).unwrap_err().to_string();
        assert!(
            error.contains("docs/README.md:1: there is no results/none.json"),
            "{error}"
        );
    }
}
