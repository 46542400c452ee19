//! Results files of any experiment as reports.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::experiments::ALL;
use crate::harness::error::{Error, Result};
use crate::report::AnyReport;

/// Reads results files of one experiment as one report.
///
/// # Errors
/// A file that is no results file; rows that are not comparable, see
/// [`Report::merge`](crate::report::Report::merge).
pub(crate) fn read_reports(files: &[PathBuf]) -> Result<Box<dyn AnyReport>> {
    let Some(first) = files.first() else {
        return Err(Error::Config("no results files are given".to_owned()));
    };
    let name = experiment_of(first)?;
    for file in files {
        let other = experiment_of(file)?;
        if other != name {
            return Err(Error::Mixed {
                what: "experiments",
                left: name,
                right: other,
            });
        }
    }
    match ALL.iter().find(|experiment| experiment.name == name) {
        Some(experiment) => experiment.read(files),
        None => {
            let known = ALL.iter().map(|experiment| experiment.name);
            Err(Error::Results {
                path: first.clone(),
                reason: format!(
                    "experiment '{name}' is none of {}",
                    Vec::from_iter(known).join(", ")
                ),
            })
        }
    }
}

fn experiment_of(file: &Path) -> Result<String> {
    #[derive(Deserialize)]
    struct Head {
        experiment: String,
    }
    let unfit = |reason: String| Error::Results {
        path: file.to_owned(),
        reason,
    };
    let text = fs::read(file).map_err(|error| unfit(error.to_string()))?;
    let head: Head = serde_json::from_slice(&text).map_err(|error| unfit(error.to_string()))?;
    Ok(head.experiment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::page;

    fn sample(name: &str, file: &Path) {
        let experiment = ALL.iter().find(|experiment| experiment.name == name);
        (experiment.unwrap().write_sample)(file).unwrap();
    }

    #[test]
    fn the_rows_are_read_as_what_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let mut figures = String::new();
        for experiment in ALL {
            let file = dir.path().join(experiment.name);
            (experiment.write_sample)(&file).unwrap();
            let report = read_reports(&[file]).unwrap();
            figures += &format!("{}\n", experiment.name);
            for figure in report.figures() {
                let text = figure.text();
                let texts = [figure.what.as_str(), figure.place, figure.paper, &text];
                let widths = texts.map(|text| text.chars().count());
                let mut columns = widths.iter().zip(page::COLUMNS);
                assert!(columns.all(|(width, most)| *width <= most), "{figure:?}");
                figures += &format!("  {}\n", texts.join(" | "));
            }
        }
        // What the samples' numbers make of each of the papers'.
        assert_eq!(figures, page::golden("figures.txt"));
        let (mixed_file, locks_file) = (dir.path().join("a"), dir.path().join("b"));
        sample("mixed", &mixed_file);
        sample("locks", &locks_file);
        let table = |file: &PathBuf| read_reports(std::slice::from_ref(file)).unwrap().table();
        assert!(table(&mixed_file).contains("TPC-C"));
        assert!(table(&locks_file).contains("u-scl"));
        let error = read_reports(&[mixed_file, locks_file]).err().unwrap();
        assert!(
            error.to_string().contains("different experiments"),
            "{error}"
        );
    }

    #[test]
    fn an_experiment_that_is_not_known_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.json");
        fs::write(&file, "{\"experiment\": \"x\"}").unwrap();
        let error = read_reports(&[file]).err().unwrap().to_string();
        assert!(error.contains("'x' is none of mixed, placement"), "{error}");
    }
}
