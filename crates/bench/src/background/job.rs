//! The jobs: what each needs before it can run, and one round of it.
//!
//! | job | loop | a round |
//! | --- | --- | --- |
//! | `q17` | in the server, a notice after each round | the query |
//! | `vacuum`, `create-index`, `open-transaction` | in the client | statements, one round trip each |
//! | `pg_dump` | a program | one run of it, with a connection of its own |
//!
//! VACUUM and CREATE INDEX lock their table against themselves, so each worker
//! has a part of `lineitem` for its own. `open-transaction` is the control to the
//! jobs of maintenance: it keeps a snapshot as they do, for longer than the usual
//! window, and takes no CPU.

use crate::Result;
use crate::postgres::Session;
use crate::setup::Job;

/// How a worker does its work.
pub(super) enum Work {
    /// A statement that ends with its backend; each notice is a round.
    Endless(&'static str),
    /// Statements of one round.
    Statements(Vec<String>),
    /// A program of the server's, with these arguments beyond where to connect.
    Program(&'static str, &'static [&'static str]),
}

/// A worker's part of `lineitem`.
fn part(worker: u32) -> String {
    format!("lineitem_part_{worker}")
}

/// The work of one worker.
pub(super) fn work(job: Job, worker: u32) -> Work {
    let part = part(worker);
    match job {
        Job::Q17 => Work::Endless("CALL q17_loop()"),
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
        Job::PgDump => Work::Program(
            "pg_dump",
            &["--table=lineitem", "--table=part", "--file=/dev/null"],
        ),
    }
}

/// Makes what `workers` workers need.
pub(super) fn prepare(session: &Session, job: Job, workers: u32) -> Result<()> {
    match job {
        Job::Q17 | Job::PgDump | Job::OpenTransaction => return Ok(()),
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
