//! DuckDB, in a process of its own: Python's package and a driver that this module
//! hands to it.
//!
//! It has the same rows, from Parquet files that are written for it, as many threads,
//! and the CPUs of as many. Its plans are not made beforehand, as the interface has no
//! such thing: a millisecond or so of each latency.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use giveway_sql::tpch::{Dataset, Table, query};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::alone::{Alone, Once};
use super::data::Sizes;
use super::drive::{Play, collected};
use super::failure::failed;
use super::settings::Settings;
use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::row::Arrived;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

const DRIVER: &str = include_str!("duckdb.py");

/// Data in files, and a Python that has DuckDB.
pub(super) struct DuckDb {
    python: PathBuf,
    dir: TempDir,
    queries: Vec<(&'static str, String)>,
    kinds: Vec<Kind>,
}

#[derive(Serialize)]
struct Job<'a> {
    cpus: Vec<usize>,
    threads: u32,
    memory_bytes: usize,
    partial: bool,
    data: BTreeMap<&'static str, PathBuf>,
    tables: [&'static str; 8],
    /// Of which data, and the text.
    queries: &'a [(&'static str, String)],
    /// When which query is due, s; none to run each alone.
    trace: Vec<(f64, usize)>,
    seconds: f64,
    patience_s: f64,
}

#[derive(Deserialize)]
struct Answer {
    version: String,
    #[serde(default)]
    alone_ms: Vec<f64>,
    /// When each query ended, s, or why it failed; none if it has not.
    #[serde(default)]
    ends: Vec<Option<(Option<f64>, Option<String>)>>,
    #[serde(default)]
    busy: f64,
}

impl DuckDb {
    /// Why it cannot be had, if so: text for the user.
    pub(super) fn missing(python: &Path) -> Option<String> {
        let asked = Command::new(python).args(["-c", "import duckdb"]).output();
        let how = "python3 -m venv duck && duck/bin/pip install duckdb, then --python \
                   duck/bin/python";
        match asked {
            Ok(answer) if answer.status.success() => None,
            Ok(_) => Some(format!("{} has no package duckdb: {how}", python.display())),
            Err(error) => Some(format!("{}: {error}: {how}", python.display())),
        }
    }

    /// Writes the data.
    pub(super) fn prepare(python: &Path, data: &Sizes, progress: Progress<'_>) -> Result<DuckDb> {
        let dir = tempfile::tempdir().map_err(|error| failed("duckdb", error))?;
        for (size, data) in [("small", &data.small), ("large", &data.large)] {
            progress(&format!("Parquet files at scale {} for DuckDB", data.scale));
            Dataset::new(dir.path().join(size), data.scale)
                .threads(2)
                .write(&|_| (), &AtomicBool::new(false))
                .map_err(|error| failed("duckdb", error))?;
        }
        let kinds: Vec<Kind> = Kind::both().collect();
        let queries = kinds.iter().map(|kind| {
            let text = query(kind.query.into(), data.of(*kind).scale);
            let size = if kind.large { "large" } else { "small" };
            text.map(|text| (size, text))
                .map_err(|error| failed(kind, error))
        });
        Ok(DuckDb {
            python: python.to_owned(),
            queries: queries.collect::<Result<_>>()?,
            dir,
            kinds,
        })
    }

    /// Every query alone on one thread.
    pub(super) fn alone(&self, settings: &Settings) -> Result<Alone> {
        let job = self.job(settings, 1, false);
        let answer = self.ask(&job)?;
        let once = |ms: &f64| Once {
            latency_ms: *ms,
            work_ms: *ms,
        };
        let queries = self.kinds.iter().copied();
        Ok(Alone::new(queries.zip(answer.alone_ms.iter().map(once))))
    }

    /// Plays a trace.
    pub(super) fn play(
        &self,
        settings: &Settings,
        partial: bool,
        play: &Play<'_>,
    ) -> Result<Arrived> {
        let number = |kind| self.kinds.iter().position(|one| *one == kind);
        let trace = play.trace.iter().map(|due| {
            let query = number(due.kind).expect("all kinds are known");
            (due.at.as_secs_f64(), query)
        });
        let job = Job {
            trace: trace.collect(),
            seconds: play.length.as_secs_f64(),
            patience_s: play.patience.as_secs_f64(),
            ..self.job(settings, play.threads, partial)
        };
        let answer = self.ask(&job)?;
        let ended = answer.ends.into_iter().map(|end| match end? {
            (Some(end_s), _) => Some(Ok(Duration::from_secs_f64(end_s))),
            (None, why) => Some(Err(why.unwrap_or_default())),
        });
        Ok(Arrived {
            version: answer.version,
            ..collected(play, &Vec::from_iter(ended), answer.busy)
        })
    }

    fn job(&self, settings: &Settings, threads: u32, partial: bool) -> Job<'_> {
        Job {
            cpus: cpus(threads),
            threads,
            memory_bytes: settings.memory_bytes,
            partial,
            data: ["small", "large"]
                .map(|size| (size, self.dir.path().join(size)))
                .into(),
            tables: Table::ALL.map(Table::name),
            queries: &self.queries,
            trace: Vec::new(),
            seconds: 0.0,
            patience_s: 0.0,
        }
    }

    fn ask(&self, job: &Job<'_>) -> Result<Answer> {
        let program = || self.python.display().to_string();
        let broken = |what: &'static str| Error::file(what, &self.python);
        let mut child = Command::new(&self.python)
            .args(["-c", DRIVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(broken("run"))?;
        let mut stdin = child.stdin.take().expect("piped");
        let text = serde_json::to_vec(job).expect("a job is plain data");
        // A driver that has failed at once says why on its way out.
        let _ = stdin.write_all(&text);
        drop(stdin);
        let output = child.wait_with_output().map_err(broken("wait for"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let failed = |reason: &str| Error::Program {
            program: program(),
            status: output.status.to_string(),
            output: format!("{reason}{said}"),
        };
        if !output.status.success() {
            return Err(failed(""));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(&format!("{error}\n")))
    }
}

/// The first CPUs that this process may use.
fn cpus(count: u32) -> Vec<usize> {
    let own = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let usable = (0..CpuSet::count()).filter(|cpu| own.is_set(*cpu) == Ok(true));
    usable.take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_duckdb_the_user_hears_how_to_get_it() {
        let missing = DuckDb::missing(Path::new("/nonexistent/python")).unwrap();
        assert!(missing.contains("/nonexistent/python"), "{missing}");
        assert!(missing.contains("pip install duckdb") && missing.contains("--python"));
        // A program that succeeds has everything; one that fails has not.
        assert_eq!(DuckDb::missing(Path::new("true")), None);
        assert!(
            DuckDb::missing(Path::new("false"))
                .unwrap()
                .contains("no package")
        );
    }

    #[test]
    fn an_answer_is_read_with_ends_failures_and_gaps() {
        let text = r#"{"ends": [[1.5, null], [null, "why"], null], "busy": 0.5,
                       "version": "2.0.0"}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        let ends = answer.ends;
        assert_eq!(ends[0], Some((Some(1.5), None)));
        assert_eq!(ends[1], Some((None, Some("why".to_owned()))));
        assert_eq!(ends[2], None);
    }
}
