//! The pages of `docs/results`: every kept result as its table, generated so that no
//! number is typed.
//!
//! A page is a function of the files below `results/` that belong to its experiment. A
//! test compares the pages with the files, so a report that changes shows where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::read::{experiment_of, read_reports};
use crate::experiments::ALL;
use crate::harness::environment::Environment;
use crate::harness::error::{Error, Result};
use crate::harness::files;

/// Writes the page of every experiment that has results into `docs`.
///
/// # Errors
/// A file that cannot be read or written, or that is no results file.
pub(crate) fn write(results: &Path, docs: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, text) in pages(results)? {
        let path = docs.join(format!("{name}.md"));
        files::replace(&path, text.as_bytes())?;
        written.push(path);
    }
    Ok(written)
}

/// The pages by the names of their experiments.
pub(crate) fn pages(results: &Path) -> Result<BTreeMap<&'static str, String>> {
    let mut sections: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in result_files(results)? {
        sections
            .entry(experiment_of(&file)?)
            .or_default()
            .push(file);
    }
    let mut pages = BTreeMap::new();
    for experiment in ALL {
        let Some(files) = sections.get(experiment.name) else {
            continue;
        };
        let mut page = format!(
            "# Results: {}\n\n{}.\nFrom: {}.\n\n\
             Generated from the files below `results/` by `giveway bench report --docs`: \
             newest first, nothing left out. How it is measured is in the \
             [index](../README.md).\n",
            experiment.name, experiment.summary, experiment.section
        );
        for file in files {
            page += &section(results, file)?;
        }
        pages.insert(experiment.name, page);
    }
    Ok(pages)
}

/// A results file as a part of its page.
fn section(results: &Path, file: &Path) -> Result<String> {
    let report = read_reports(&[file.to_owned()])?;
    let name = file.strip_prefix(results).unwrap_or(file).display();
    Ok(format!(
        "\n## {name}\n\n{}\n\n```\n{}\n```\n\n{}\n",
        provenance(report.environment()),
        report.table().trim_end(),
        report.sentence()
    ))
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
    if clock == "native" && !cpu_model.is_empty() {
        text += &format!(" ({cpu_model})");
    }
    if !postgresql.is_empty() {
        text += &format!(", PostgreSQL {postgresql}");
    }
    text + "."
}

/// The results files, the newest directory first.
fn result_files(results: &Path) -> Result<Vec<PathBuf>> {
    let entries = |dir: &Path| -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(dir).map_err(Error::file("read", dir))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths
            .collect::<std::io::Result<Vec<PathBuf>>>()
            .map_err(Error::file("read", dir))?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for dir in entries(results)?.into_iter().rev() {
        if dir.is_dir() {
            let is_json = |path: &PathBuf| path.extension().is_some_and(|of| of == "json");
            files.extend(entries(&dir)?.into_iter().filter(is_json));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root of the repository.
    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn pages_of_results_are_those_of_the_files() {
        let pages = pages(&root().join("results")).unwrap();
        assert_eq!(pages.len(), ALL.len(), "an experiment has no result");
        for (name, text) in pages {
            let file = root().join("docs/results").join(format!("{name}.md"));
            let page = fs::read_to_string(&file).unwrap_or_default();
            assert!(
                page == text,
                "{} is not what its result files come to: run `giveway bench report --docs`",
                file.display()
            );
        }
    }
}
