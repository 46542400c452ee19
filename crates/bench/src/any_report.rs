//! Reports whose kind of rows is known only when the file has been looked at.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::hint_overhead::HintRow;
use crate::inversion::InversionRow;
use crate::locks::LockRow;
use crate::meta::MetaRow;
use crate::ml::MlRow;
use crate::oversubscription::OversubscriptionRow;
use crate::placement::PlacementRow;
use crate::preempt::PreemptRow;
use crate::report::Figure;
use crate::result::{Environment, Record, Report, Row};
use crate::rocksdb::RocksRow;
use crate::tasks::TasksRow;
use crate::wakeup::WakeupRow;
use crate::weights::WeightsRow;
use crate::{Error, Result, experiments};

/// A report of some experiment.
pub trait AnyReport {
    /// Text of at most 80 columns.
    fn table(&self) -> String;

    /// A self-contained page with plots.
    fn page(&self) -> String;

    /// What the reader should see, in one sentence.
    fn sentence(&self) -> String;

    /// What the paper has, beside these rows.
    fn figures(&self) -> Vec<Figure>;

    /// Where the rows come from.
    fn environment(&self) -> &Environment;
}

impl<R: Record> AnyReport for Report<R> {
    fn table(&self) -> String {
        Report::table(self)
    }

    fn page(&self) -> String {
        Report::page(self)
    }

    fn sentence(&self) -> String {
        Report::sentence(self)
    }

    fn figures(&self) -> Vec<Figure> {
        R::figures(self)
    }

    fn environment(&self) -> &Environment {
        &self.environment
    }
}

/// Reads results files of one experiment as one report.
///
/// # Errors
/// A file that is no results file; rows that are not comparable, see
/// [`Report::merge`].
pub fn read_reports(files: &[PathBuf]) -> Result<Box<dyn AnyReport>> {
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
    match name.as_str() {
        "mixed" => merged::<Row>(files),
        "placement" => merged::<PlacementRow>(files),
        "weights" => merged::<WeightsRow>(files),
        "oversubscription" => merged::<OversubscriptionRow>(files),
        "wakeup" => merged::<WakeupRow>(files),
        "ml" => merged::<MlRow>(files),
        "hint-overhead" => merged::<HintRow>(files),
        "locks" => merged::<LockRow>(files),
        "preempt" => merged::<PreemptRow>(files),
        "inversion" => merged::<InversionRow>(files),
        "meta" => merged::<MetaRow>(files),
        "rocksdb" => merged::<RocksRow>(files),
        "tasks" => merged::<TasksRow>(files),
        _ => {
            let known = experiments().iter().map(|experiment| experiment.name);
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
    let text = fs::read(file).map_err(Error::file("read", file))?;
    let head: Head = serde_json::from_slice(&text).map_err(|error| Error::Results {
        path: file.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(head.experiment)
}

fn merged<R: Record + 'static>(files: &[PathBuf]) -> Result<Box<dyn AnyReport>> {
    let mut reports = files.iter().map(|file| Report::<R>::read(file));
    let mut whole = reports.next().expect("there is a first file")?;
    for next in reports {
        whole.merge(next?)?;
    }
    Ok(Box::new(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        hint_overhead, inversion, locks, meta, mixed, ml, oversubscription, overview, placement,
        preempt, rocksdb, tasks, wakeup, weights,
    };

    #[test]
    fn the_rows_are_read_as_what_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let mut figures = String::new();
        for experiment in experiments() {
            let file = dir.path().join(experiment.name);
            // Every experiment has rows that are read back.
            match experiment.name {
                "mixed" => mixed::samples::report().write(&file).unwrap(),
                "placement" => placement::samples::report().write(&file).unwrap(),
                "weights" => weights::samples::report().write(&file).unwrap(),
                "oversubscription" => oversubscription::samples::report().write(&file).unwrap(),
                "wakeup" => wakeup::samples::report().write(&file).unwrap(),
                "ml" => ml::samples::report().write(&file).unwrap(),
                "hint-overhead" => hint_overhead::samples::report().write(&file).unwrap(),
                "locks" => locks::samples::report().write(&file).unwrap(),
                "preempt" => preempt::samples::report().write(&file).unwrap(),
                "inversion" => inversion::samples::report().write(&file).unwrap(),
                "meta" => meta::samples::report().write(&file).unwrap(),
                "rocksdb" => rocksdb::samples::report().write(&file).unwrap(),
                "tasks" => tasks::samples::report().write(&file).unwrap(),
                other => panic!("no samples of {other}"),
            }
            let report = read_reports(&[file]).unwrap();
            figures += &format!("{}\n", experiment.name);
            for figure in report.figures() {
                let text = figure.text();
                let texts = [figure.what.as_str(), figure.place, figure.paper, &text];
                let widths = texts.map(|text| text.chars().count());
                let mut columns = widths.iter().zip(overview::COLUMNS);
                assert!(columns.all(|(width, most)| *width <= most), "{figure:?}");
                figures += &format!("  {}\n", texts.join(" | "));
            }
        }
        // What the samples' numbers make of each of the papers'.
        assert_eq!(figures, overview::golden("figures.txt"));
        let (mixed_file, locks_file) = (dir.path().join("a"), dir.path().join("b"));
        mixed::samples::report().write(&mixed_file).unwrap();
        locks::samples::report().write(&locks_file).unwrap();
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
