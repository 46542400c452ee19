//! All experiments together: which were run, how they ended, and where their
//! results are. What a directory holds:
//!
//! ```text
//!   runs.json                     how each ended; written anew after each
//!   NAME.json, NAME.html          rows and page of an experiment
//!   NAME.txt, NAME.log            its table, and what it said meanwhile
//!   raw/                          rows as cells ended, of every try
//!   index.html, overview.txt, overview.md, overview.json
//!                                 all of it beside the papers' figures
//! ```
//!
//! An experiment is done if it ended well with the same command, on the same
//! machine, from the same commit, and its rows are there. A program that was
//! built from uncommitted changes has no commit of its own: nothing that it did
//! counts as done.

pub(crate) mod all;
mod docs;
pub(crate) mod page;
mod read;
pub(crate) mod report;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::experiments::ALL;
use crate::harness::error::{Error, Result};
use crate::harness::files;
use crate::report::AnyReport;
use crate::runner::experiment::Registered;

use read::read_reports;

/// The name of the file that says how experiments ended.
const RUNS: &str = "runs.json";

/// How an experiment ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// All of it was measured.
    Done,
    /// Some of it or none was, and why.
    Failed(String),
    /// It was told to stop.
    Interrupted,
}

/// Which program measured, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The commit of the program.
    pub commit: String,
    /// The machine's name.
    pub machine: String,
}

impl Origin {
    /// Whether the same origin again is the same program.
    fn is_certain(&self) -> bool {
        !self.commit.ends_with("-dirty") && self.commit != "unknown"
    }
}

/// One experiment that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The experiment.
    pub experiment: String,
    /// The arguments that repeat it, without those that name files.
    pub command: Vec<String>,
    /// By whom, and where.
    #[serde(flatten)]
    pub origin: Origin,
    /// How it ended.
    pub outcome: Outcome,
    /// What it took, in seconds.
    pub took_s: f64,
}

/// Experiments that were run into a directory.
#[derive(Debug)]
pub(crate) struct Runs {
    dir: PathBuf,
    runs: Vec<Run>,
}

impl Runs {
    /// Those of a directory; none if there is none.
    ///
    /// # Errors
    /// A file that is none of ours.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let file = dir.join(RUNS);
        let runs = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| Error::Results {
                path: file,
                reason: error.to_string(),
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::file("read", &file)(error)),
        };
        Ok(Runs {
            dir: dir.to_owned(),
            runs,
        })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of an experiment with this extension.
    pub(crate) fn file(&self, experiment: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{experiment}.{extension}"))
    }

    /// How an experiment ended last.
    pub(crate) fn get(&self, experiment: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.experiment == experiment)
    }

    /// Whether there is nothing left to do for this command.
    pub(crate) fn is_done(&self, experiment: &str, command: &[String], origin: &Origin) -> bool {
        let done = self.get(experiment).is_some_and(|run| {
            run.outcome == Outcome::Done && run.command == command && run.origin == *origin
        });
        done && origin.is_certain() && self.file(experiment, "json").exists()
    }

    /// Keeps how an experiment ended, in place of how it ended before.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn keep(&mut self, run: Run) -> Result<()> {
        self.runs.retain(|old| old.experiment != run.experiment);
        self.runs.push(run);
        let text = serde_json::to_string_pretty(&self.runs).expect("runs are plain data");
        files::replace(&self.dir.join(RUNS), text.as_bytes())
    }
}

/// One experiment as the overview has it.
pub(crate) struct Section {
    pub(crate) experiment: Registered,
    pub(crate) run: Run,
    /// What its rows say; or why they do not.
    pub(crate) report: Result<Box<dyn AnyReport>>,
}

/// Everything that was run, beside what the papers have.
pub(crate) struct Overview {
    pub(crate) sections: Vec<Section>,
}

impl Overview {
    /// Of the experiments that were run, in the order in which they are listed.
    pub(crate) fn of(runs: &Runs) -> Self {
        let section = |experiment: &Registered| {
            let run = runs.get(experiment.name)?.clone();
            Some(Section {
                experiment: *experiment,
                report: read_reports(&[runs.file(experiment.name, "json")]),
                run,
            })
        };
        Overview {
            sections: ALL.iter().filter_map(section).collect(),
        }
    }

    /// Writes it in all its forms; answers with the page's file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<PathBuf> {
        let page = dir.join("index.html");
        files::replace(&dir.join("overview.txt"), self.table().as_bytes())?;
        files::replace(&dir.join("overview.md"), self.markdown().as_bytes())?;
        files::replace(&dir.join("overview.json"), self.json().as_bytes())?;
        files::replace(&page, self.page().as_bytes())?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            commit: "0123".to_owned(),
            machine: "here".to_owned(),
        }
    }

    fn run(outcome: Outcome) -> Run {
        Run {
            experiment: "mixed".to_owned(),
            command: vec!["bench".to_owned(), "mixed".to_owned()],
            origin: origin(),
            outcome,
            took_s: 1.5,
        }
    }

    #[test]
    fn how_experiments_ended_lasts_and_the_last_end_counts() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new");
        let mut runs = Runs::read(&dir).unwrap();
        assert_eq!(runs.get("mixed"), None);
        runs.keep(run(Outcome::Failed("no guest".to_owned())))
            .unwrap();
        let other = Run {
            experiment: "ml".to_owned(),
            ..run(Outcome::Interrupted)
        };
        runs.keep(other.clone()).unwrap();
        runs.keep(run(Outcome::Done)).unwrap();
        let again = Runs::read(&dir).unwrap();
        assert_eq!(again.get("mixed"), Some(&run(Outcome::Done)));
        assert_eq!(again.get("ml"), Some(&other));
        assert_eq!(again.runs.len(), 2);
        fs::write(dir.join(RUNS), "{").unwrap();
        let error = Runs::read(&dir).unwrap_err().to_string();
        assert!(error.contains(RUNS), "{error}");
    }

    #[test]
    fn only_the_same_command_of_the_same_commit_and_machine_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut runs = Runs::read(dir.path()).unwrap();
        let command = run(Outcome::Done).command;
        runs.keep(run(Outcome::Done)).unwrap();
        assert!(!runs.is_done("mixed", &command, &origin()), "no rows");
        fs::write(runs.file("mixed", "json"), "").unwrap();
        assert!(runs.is_done("mixed", &command, &origin()));
        assert!(!runs.is_done("ml", &command, &origin()));
        assert!(!runs.is_done("mixed", &command[..1], &origin()));
        let elsewhere = Origin {
            machine: "there".to_owned(),
            ..origin()
        };
        assert!(!runs.is_done("mixed", &command, &elsewhere));
        runs.keep(run(Outcome::Interrupted)).unwrap();
        assert!(!runs.is_done("mixed", &command, &origin()));
        for commit in ["0123-dirty", "unknown"] {
            let unsure = Origin {
                commit: commit.to_owned(),
                ..origin()
            };
            let changed = Run {
                origin: unsure.clone(),
                ..run(Outcome::Done)
            };
            runs.keep(changed).unwrap();
            assert!(!runs.is_done("mixed", &command, &unsure), "{commit}");
        }
    }
}
