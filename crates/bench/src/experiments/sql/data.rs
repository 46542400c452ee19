//! Data and queries of a suite, made once and kept.
//!
//! ```text
//!   DIR/tpch-1/TABLE/part-….parquet                      giveway_sql::tpch
//!   DIR/tpcds-1/{TABLE.parquet, queries/NN.sql}          prepare.py
//!   DIR/clickbench-1500/hits.parquet                     prepare.py
//! ```
//!
//! Invariant: a directory of prepare.py under its final name is whole, since it is made
//! under another name and renamed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use giveway_sql::tpch::{self, Dataset, Scale};
use serde::Serialize;

use super::row::EngineName;
use super::suite::Suite;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};

const PREPARE: &str = include_str!("prepare.py");
/// What to do about a Python without TPC-DS.
const REMEDY: &str = "python3 -m venv ds && ds/bin/pip install duckdb==1.5.5 \
                      duckdb-extension-tpcds==1.5.5, then --generator ds/bin/python";

/// Where data is, and who makes it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Below it every suite has a directory.
    pub(super) dir: PathBuf,
    /// A Python with DuckDB, and its extension for TPC-DS.
    pub(super) generator: PathBuf,
    /// A copy of ClickBench.
    pub(super) clickbench: Option<PathBuf>,
}

/// A suite that can be run.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) tables: BTreeMap<String, PathBuf>,
    queries: Vec<Query>,
}

/// A query in the words of each engine.
#[derive(Debug)]
struct Query {
    datafusion: String,
    /// None if they are the same.
    duckdb: Option<String>,
}

impl Prepared {
    /// The text of a query, by its number from 1.
    pub(super) fn query(&self, number: u32, engine: EngineName) -> Option<&str> {
        let query = self.queries.get(number.checked_sub(1)? as usize)?;
        Some(match (engine, &query.duckdb) {
            (EngineName::DuckDb, Some(text)) => text,
            _ => &query.datafusion,
        })
    }
}

#[derive(Serialize)]
struct Job<'a> {
    suite: Suite,
    scale: f64,
    to: &'a Path,
    /// Of ClickBench: the statement that makes the table, and the queries.
    create: String,
    queries: String,
}

impl Source {
    /// Data and queries, made if they are not there.
    ///
    /// # Errors
    /// They cannot be made, with what is missing.
    pub(super) fn prepare(
        &self,
        suite: Suite,
        scale: f64,
        progress: Progress<'_>,
    ) -> Result<Prepared> {
        let dir = self.dir.join(format!("{suite}-{scale}"));
        match suite {
            Suite::TpcH => tpch(&dir, scale, progress),
            Suite::TpcDs => {
                self.make(suite, scale, &dir, (String::new(), String::new()), progress)?;
                let queries = (1..=suite.queries()).map(|number| {
                    let path = dir.join(format!("queries/{number:02}.sql"));
                    let text = read(&path)?;
                    Ok(Query {
                        datafusion: text,
                        duckdb: None,
                    })
                });
                Ok(Prepared {
                    queries: queries.collect::<Result<_>>()?,
                    tables: parquet(&dir)?,
                })
            }
            Suite::ClickBench => {
                let copy = self.copy()?;
                let of = |name: &str| read(&copy.join(name));
                let (datafusion, duckdb) =
                    (of("datafusion/queries.sql")?, of("duckdb/queries.sql")?);
                let texts = (of("duckdb/create.sql")?, duckdb.clone());
                self.make(suite, scale, &dir, texts, progress)?;
                Ok(Prepared {
                    queries: pairs(&datafusion, &duckdb)?,
                    tables: parquet(&dir)?,
                })
            }
        }
    }

    fn copy(&self) -> Result<&Path> {
        self.clickbench.as_deref().ok_or_else(|| {
            Error::Config(
                "ClickBench's queries are not part of this program: clone \
                 https://github.com/ClickHouse/ClickBench and name the directory with \
                 --clickbench"
                    .to_owned(),
            )
        })
    }

    fn make(
        &self,
        suite: Suite,
        scale: f64,
        dir: &Path,
        (create, queries): (String, String),
        progress: Progress<'_>,
    ) -> Result<()> {
        if dir.exists() {
            return Ok(());
        }
        progress(&format!(
            "making the data of {} in {}",
            suite.title(),
            dir.display()
        ));
        fs::create_dir_all(&self.dir).map_err(Error::file("make", &self.dir))?;
        let partial = tempfile::tempdir_in(&self.dir).map_err(Error::file("make", &self.dir))?;
        let job = Job {
            suite,
            scale,
            to: partial.path(),
            create,
            queries,
        };
        run(&self.generator, &job)?;
        fs::rename(partial.keep(), dir).map_err(Error::file("make", dir))
    }
}

/// Has the generator do a job.
fn run(generator: &Path, job: &Job<'_>) -> Result<()> {
    let broken = |what: &'static str| Error::file(what, generator);
    let mut child = Command::new(generator)
        .args(["-c", PREPARE])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(broken("run"))?;
    let mut stdin = child.stdin.take().expect("piped");
    // One that has failed at once says why on its way out.
    let _ = stdin.write_all(&serde_json::to_vec(job).expect("plain data"));
    drop(stdin);
    let output = child.wait_with_output().map_err(broken("wait for"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Program {
        program: generator.display().to_string(),
        status: output.status.to_string(),
        output: format!("{}\nif it lacks a package: {REMEDY}", said.trim_end()),
    })
}

fn tpch(dir: &Path, scale: f64, progress: Progress<'_>) -> Result<Prepared> {
    let failed = |error: tpch::TpchError| Error::Config(error.to_string());
    let factor = Scale::new(scale).map_err(failed)?;
    progress(&format!("TPC-H at scale {scale} in {}", dir.display()));
    Dataset::new(dir, factor)
        .write(&|_| (), &AtomicBool::new(false))
        .map_err(failed)?;
    let queries = tpch::QUERIES.map(|number| {
        Ok(Query {
            datafusion: tpch::query(number, factor).map_err(failed)?,
            duckdb: None,
        })
    });
    let tables = tpch::Table::ALL.map(tpch::Table::name);
    Ok(Prepared {
        queries: queries.collect::<Result<_>>()?,
        tables: tables
            .map(|table| (table.to_owned(), dir.join(table)))
            .into(),
    })
}

/// The tables of a directory of Parquet files.
fn parquet(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut tables = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(Error::file("read", dir))? {
        let path = entry.map_err(Error::file("read", dir))?.path();
        if let (Some("parquet"), Some(name)) = (
            path.extension().and_then(|of| of.to_str()),
            path.file_stem().and_then(|of| of.to_str()),
        ) {
            tables.insert(name.to_owned(), path.clone());
        }
    }
    Ok(tables)
}

/// A query a line, in both dialects.
fn pairs(datafusion: &str, duckdb: &str) -> Result<Vec<Query>> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim().trim_end_matches(';'));
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    let (datafusion, duckdb) = (lines(datafusion), lines(duckdb));
    let wanted = Suite::ClickBench.queries() as usize;
    if (datafusion.len(), duckdb.len()) != (wanted, wanted) {
        return Err(Error::Config(format!(
            "the copy of ClickBench has {} queries for DataFusion and {} for DuckDB instead of \
             {wanted}: use a copy of November 2026",
            datafusion.len(),
            duckdb.len()
        )));
    }
    let both = datafusion.into_iter().zip(duckdb);
    Ok(both
        .map(|(datafusion, duckdb)| Query {
            datafusion,
            duckdb: Some(duckdb),
        })
        .collect())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(dir: &Path) -> Source {
        Source {
            dir: dir.join("data"),
            generator: "false".into(),
            clickbench: None,
        }
    }

    #[test]
    fn tpch_is_made_once_and_has_its_queries() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        for _ in 0..2 {
            let made = source.prepare(Suite::TpcH, 0.01, &mut |_| ()).unwrap();
            assert_eq!(made.tables.len(), 8);
            assert!(made.tables["lineitem"].is_dir());
            for engine in EngineName::ALL {
                assert!(made.query(22, engine).unwrap().contains("substring"));
                assert_eq!(
                    (made.query(0, engine), made.query(23, engine)),
                    (None, None)
                );
            }
        }
    }

    #[test]
    fn what_is_missing_is_named_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut source = source(dir.path());
        let said = |source: &Source, suite| {
            let error = source.prepare(suite, 1.0, &mut |_| ()).unwrap_err();
            error.to_string()
        };
        let error = said(&source, Suite::TpcDs);
        assert!(error.contains("duckdb-extension-tpcds"), "{error}");
        assert_eq!(fs::read_dir(&source.dir).unwrap().count(), 0);
        let error = said(&source, Suite::ClickBench);
        assert!(error.contains("--clickbench"), "{error}");
        source.clickbench = Some(dir.path().to_owned());
        let error = said(&source, Suite::ClickBench);
        assert!(error.contains("datafusion/queries.sql"), "{error}");
    }

    #[test]
    fn dialects_go_together_by_lines() {
        let lines = |word: &str| -> String {
            (1..=43)
                .map(|n| format!("SELECT {n}, '{word}';\n\n"))
                .collect()
        };
        let queries = pairs(&lines("a"), &lines("b")).unwrap();
        let made = Prepared {
            tables: BTreeMap::new(),
            queries,
        };
        assert_eq!(made.query(43, EngineName::Giveway), Some("SELECT 43, 'a'"));
        assert_eq!(made.query(43, EngineName::DuckDb), Some("SELECT 43, 'b'"));
        let error = pairs(&lines("a"), "SELECT 1").unwrap_err().to_string();
        assert!(
            error.contains("43 queries") && error.contains("1 for DuckDB"),
            "{error}"
        );
    }
}
