//! Who is asked when.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::client::Client;
use super::compare::difference;
use super::data::{Prepared, Source};
use super::protocol::{Answer, Setup};
use super::row::{EngineName, SqlRow};
use super::suite::Suite;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// One query of a suite, on every engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) suite: Suite,
    /// The scale factor, or thousands of rows.
    pub(super) scale: f64,
    pub(super) query: u32,
}

impl Cell {
    pub(super) fn title(&self) -> String {
        format!("{} Q{}", self.suite, self.query)
    }
}

/// What holds for all cells.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) source: Source,
    pub(super) engines: Vec<EngineName>,
    /// A Python that has DuckDB.
    pub(super) python: PathBuf,
    pub(super) threads: u32,
    pub(super) memory_bytes: usize,
    pub(super) repeat: u32,
    pub(super) timeout: Duration,
}

/// Engines with the data of one suite, which the cells of the suite share.
pub(super) struct Bench {
    settings: Settings,
    open: Mutex<Option<Open>>,
}

struct Open {
    suite: Suite,
    prepared: Prepared,
    engines: Vec<(EngineName, Client)>,
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Bench {
        Bench {
            settings,
            open: Mutex::new(None),
        }
    }

    /// Asks one query of all engines.
    ///
    /// # Errors
    /// The data cannot be had. What an engine fails at is in its rows.
    pub(super) fn run(&self, cell: &Cell, progress: Progress<'_>) -> Result<Vec<SqlRow>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(|open| open.suite != cell.suite) {
            // The engines of the last suite give their memory back first.
            *open = None;
            *open = Some(self.open(cell, progress)?);
        }
        let open = open.as_mut().expect("opened above");
        let mut firsts = Vec::new();
        for (engine, client) in &mut open.engines {
            let text = open.prepared.query(cell.query, *engine);
            let text = text.ok_or_else(|| {
                Error::Config(format!("{} has no query {}", cell.suite, cell.query))
            })?;
            progress(&format!("{} on {engine}", cell.title()));
            firsts.push(client.ask(text));
        }
        let differs = differences(&firsts);
        let mut rows = Vec::new();
        for repeat in 0..self.settings.repeat {
            let count = open.engines.len();
            for turn in 0..count {
                let which = (repeat as usize + turn) % count;
                let (engine, client) = &mut open.engines[which];
                let text = open
                    .prepared
                    .query(cell.query, *engine)
                    .expect("asked above");
                // What has failed is not tried again.
                let answer = match &firsts[which] {
                    Ok(_) => client.ask(text),
                    Err(error) => Err(error.clone()),
                };
                let (ms, length, failed) = match answer {
                    Ok(answer) => (Some(answer.ms), answer.rows, None),
                    Err(error) => (None, 0, Some(brief(&error))),
                };
                rows.push(SqlRow {
                    suite: cell.suite,
                    scale: cell.scale,
                    query: cell.query,
                    engine: *engine,
                    version: client.version().to_owned(),
                    repeat,
                    threads: self.settings.threads,
                    ms,
                    rows: length,
                    failed,
                    differs: differs[which].clone(),
                });
            }
        }
        Ok(rows)
    }

    fn open(&self, cell: &Cell, progress: Progress<'_>) -> Result<Open> {
        let Settings {
            source,
            engines,
            python,
            threads,
            memory_bytes,
            timeout,
            ..
        } = &self.settings;
        let prepared = source.prepare(cell.suite, cell.scale, progress)?;
        let setup = Setup {
            threads: *threads,
            memory_bytes: *memory_bytes,
            tables: prepared.tables.clone(),
        };
        let own =
            std::env::current_exe().map_err(Error::file("find", Path::new("/proc/self/exe")))?;
        let client = |engine: &EngineName| {
            let client = Client::new(*engine, &own, python, &setup, *timeout);
            (*engine, client)
        };
        Ok(Open {
            suite: cell.suite,
            engines: engines.iter().map(client).collect(),
            prepared,
        })
    }
}

/// How each answer differs from that of the next engine in the list which has one; the
/// last is nobody's to judge.
fn differences(answers: &[Result<Answer, String>]) -> Vec<Option<String>> {
    let of = |(index, answer): (usize, &Result<Answer, String>)| {
        let found = answer.as_ref().ok()?;
        let expected = answers[index + 1..]
            .iter()
            .find_map(|other| other.as_ref().ok())?;
        difference(expected, found).map(|text| brief(&text))
    };
    answers.iter().enumerate().map(of).collect()
}

/// The beginning of a text, on one line.
fn brief(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cell: &str) -> Result<Answer, String> {
        Ok(Answer {
            ms: 1.0,
            rows: 1,
            cells: Some(vec![vec![cell.to_owned()]]),
        })
    }

    #[test]
    fn an_answer_is_compared_with_the_next_one_that_is_there() {
        let same = differences(&[answer("1"), answer("1.0"), answer("1")]);
        assert_eq!(same, [None, None, None]);
        let wrong = differences(&[answer("2"), Err("no".to_owned()), answer("1")]);
        assert!(wrong[0].as_ref().unwrap().contains('2'), "{wrong:?}");
        assert_eq!(wrong[1..], [None, None]);
    }

    #[test]
    fn a_failed_engine_has_rows_that_say_why() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            source: Source {
                dir: dir.path().to_owned(),
                generator: "false".into(),
                clickbench: None,
            },
            engines: vec![EngineName::DuckDb],
            python: "/nonexistent/python".into(),
            threads: 1,
            memory_bytes: 1 << 30,
            repeat: 3,
            timeout: Duration::from_secs(5),
        };
        let cell = Cell {
            suite: Suite::TpcH,
            scale: 0.01,
            query: 6,
        };
        let rows = Bench::new(settings).run(&cell, &mut |_| ()).unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row.ms, None);
            assert!(row.failed.unwrap().contains("/nonexistent/python"));
        }
    }
}
