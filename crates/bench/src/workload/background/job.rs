//! The jobs: what each needs before it can run, and one round of it.
//!
//! | job | loop | a round |
//! | --- | --- | --- |
//! | `q17` | in the server, a notice after each round | the query |
//! | `logistic-regression` | the same | one training |
//! | `vacuum`, `create-index`, `open-transaction`, `scan` | in the client | statements, one round trip each |
//! | `pg_dump` | a program | one run of it, with a connection of its own |
//!
//! VACUUM and CREATE INDEX lock their table against themselves, so each worker
//! has a part of `lineitem` for its own. `open-transaction` is the control to the
//! jobs of maintenance: it keeps a snapshot as they do, for longer than the usual
//! window, and takes no CPU.
//!
//! A scan passes the server's buffers by if its table has more than a fourth of
//! their pages; so each page is read from the disk, in every round. The table has
//! one row in each page, so that counting them takes little of the CPU. Its workers
//! are parallel ones, which divide it: sessions that scan one table would read the
//! same pages at the same time, once for all.
//!
//! The regression (UFS paper, Section 6.8) is scikit-learn's, called by PL/Python:
//! is an order late, by what is known of it when it is shipped? It reads its table
//! anew each time, so that a round is PostgreSQL's work as well as the library's.

use super::Job;
use crate::harness::error::{Error, Result};
use crate::workload::postgres::Session;

/// How a worker does its work.
pub(super) enum Work {
    /// A statement that ends with its backend; each notice is a round.
    Endless(&'static str),
    /// Statements of one round.
    Statements(Vec<String>),
    /// A program of the server's, with these arguments beyond where to connect.
    Program(&'static str, &'static [&'static str]),
}

/// The regression: its table, one training, and the loop. The answer is the share
/// of rows that the trained model has right.
///
/// One thread, whatever library the linear algebra comes from: more of them would
/// be more than a connection has. That is said before the first import.
const LOGISTIC_REGRESSION: &str = r#"
CREATE TABLE IF NOT EXISTS shipment AS
  SELECT l_receiptdate > l_commitdate AS late,
         ARRAY[l_quantity, l_extendedprice, l_discount, l_tax,
               l_commitdate - l_shipdate]::float8[] AS known
    FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 1000;
CREATE OR REPLACE FUNCTION logistic_regression() RETURNS float8 LANGUAGE plpython3u AS $$
import os
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
rows = plpy.execute("SELECT late, known FROM shipment")
late = [row["late"] for row in rows]
known = [row["known"] for row in rows]
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(known, late)
return model.score(known, late)
$$;
CREATE OR REPLACE PROCEDURE logistic_regression_loop() LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM logistic_regression();
    COMMIT;
    RAISE NOTICE 'logistic regression';
  END LOOP;
END
$$"#;

/// Processes that scan a table at once.
const SCANNERS: u32 = 8;
/// Most of a fourth of a page, and not so much that it is compressed.
const ROW_BYTES: u32 = 1900;

/// A worker's part of `lineitem`.
fn part(worker: u32) -> String {
    format!("lineitem_part_{worker}")
}

/// What a worker scans.
fn scanned(worker: u32) -> String {
    format!("scanned_{worker}")
}

/// The work of one worker.
pub(super) fn work(job: Job, worker: u32) -> Work {
    let part = part(worker);
    match job {
        Job::Q17 => Work::Endless("CALL q17_loop()"),
        Job::LogisticRegression => Work::Endless("CALL logistic_regression_loop()"),
        // A fourth of the rows, spread over all pages, since orders have up to
        // seven lines.
        Job::Vacuum => Work::Statements(vec![
            format!("UPDATE {part} SET l_tax = l_tax WHERE l_linenumber = 1"),
            format!("VACUUM (FREEZE) {part}"),
        ]),
        Job::CreateIndex => Work::Statements(vec![
            format!("CREATE INDEX {part}_shipdate ON {part} (l_shipdate, l_quantity)"),
            format!("DROP INDEX {part}_shipdate"),
        ]),
        Job::OpenTransaction => Work::Statements(vec![
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1".into(),
            "SELECT pg_sleep(10)".into(),
            "COMMIT".into(),
        ]),
        Job::Scan => Work::Statements(vec![format!("SELECT count(*) FROM {}", scanned(worker))]),
        Job::PgDump => Work::Program(
            "pg_dump",
            &["--table=lineitem", "--table=part", "--file=/dev/null"],
        ),
    }
}

/// What a worker's connection does once before it begins, so that what it loads
/// first is not measured: importing Python's libraries takes as long as many
/// rounds.
pub(super) const fn rehearsal(job: Job) -> Option<&'static str> {
    match job {
        Job::LogisticRegression => Some("SELECT logistic_regression()"),
        // The table says how many workers; what they cost is no reason against them.
        Job::Scan => Some(
            "SET max_parallel_workers_per_gather = 8; SET max_parallel_workers = 8; \
             SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
        ),
        _ => None,
    }
}

/// Makes what `workers` workers need.
pub(super) fn prepare(session: &Session, job: Job, workers: u32) -> Result<()> {
    match job {
        Job::Q17 | Job::PgDump | Job::OpenTransaction => return Ok(()),
        Job::LogisticRegression => return prepare_regression(session),
        Job::Scan => return prepare_scan(session, workers),
        Job::Vacuum | Job::CreateIndex => {}
    }
    for worker in 0..workers {
        let part = part(worker);
        // Whole orders, so that every part has the same mixture of rows.
        session.execute(
            "dividing lineitem among the workers",
            &format!(
                "CREATE TABLE {part} AS SELECT * FROM lineitem \
                 WHERE l_orderkey % {workers} = {worker}; \
                 ALTER TABLE {part} ADD PRIMARY KEY (l_orderkey, l_linenumber); \
                 CREATE INDEX {part}_part ON {part} (l_partkey)"
            ),
        )?;
    }
    Ok(())
}

/// Made and vacuumed by way of small rings, so that it is not in the server's buffers;
/// frozen, so that no scan writes; all of it on the disk before the first one.
fn prepare_scan(session: &Session, workers: u32) -> Result<()> {
    let what = "making what is scanned";
    for worker in 0..workers {
        let table = scanned(worker);
        let workers = SCANNERS - 1;
        session.execute(
            what,
            &format!(
                "CREATE TABLE {table} WITH (parallel_workers = {workers}, fillfactor = 25) AS \
                 SELECT repeat('x', {ROW_BYTES}) FROM generate_series(1, (\
                   SELECT setting::int / 4 + 1000 FROM pg_settings WHERE name = 'shared_buffers'))"
            ),
        )?;
        session.execute(what, &format!("VACUUM (FREEZE) {table}"))?;
    }
    session.execute(what, "CHECKPOINT")
}

fn prepare_regression(session: &Session) -> Result<()> {
    let row = session
        .wait(session.client.query_one(
            "SELECT count(*) > 0, current_setting('server_version_num')::int / 10000 \
             FROM pg_available_extensions WHERE name = 'plpython3u'",
            &[],
        ))
        .map_err(Error::sql("looking for plpython3u"))?;
    let (found, major): (bool, i32) = (row.get(0), row.get(1));
    if !found {
        let packages = Job::LogisticRegression.packages(major.unsigned_abs());
        return Err(Error::Config(format!(
            "this PostgreSQL has no Python: install the packages {}",
            packages.join(" and ")
        )));
    }
    let what = "making what the logistic regression takes";
    session.execute(what, "CREATE EXTENSION IF NOT EXISTS plpython3u")?;
    session.execute(what, LOGISTIC_REGRESSION)
}
