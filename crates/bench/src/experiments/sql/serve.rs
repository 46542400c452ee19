//! Our engine, or stock DataFusion, as the protocol has it.
//!
//! Stock DataFusion is as its own command line program has it: the defaults of a session,
//! partitions for the threads, a multi-threaded runtime, no limit on memory. Both engines
//! are of this program: same version, same compiler, same allocator.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use giveway_command::{Context, Failure};
use giveway_sql::{Engine, Session, files};
use tokio::runtime::{Builder, Runtime};

use super::protocol::{Answer, Ask, CELLS_MAX, Ready, Reply, Setup};
use super::row::EngineName;
use crate::workload::rows::rows;

/// Which engine.
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// giveway or datafusion
    #[arg(long)]
    engine: EngineName,
}

/// Answers until the input ends.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let mut lines = std::io::stdin().lock().lines();
    let mut out = std::io::stdout().lock();
    let mut say = |text: String| -> Result<(), Failure> {
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    };
    let Some(setup) = lines.next() else {
        return Ok(());
    };
    let setup: Setup = serde_json::from_str(&setup?).cannot("read the first line")?;
    let runtime = runtime(setup.threads)?;
    let host = runtime.block_on(Host::start(args.engine, &setup))?;
    let ready = Ready {
        version: match args.engine {
            EngineName::Giveway => env!("CARGO_PKG_VERSION").to_owned(),
            _ => datafusion::DATAFUSION_VERSION.to_owned(),
        },
    };
    say(serde_json::to_string(&ready).expect("plain data"))?;
    for line in lines {
        let ask: Ask = serde_json::from_str(&line?).cannot("read a query")?;
        let host = host.clone();
        let job = runtime.spawn(async move { host.answer(&ask.sql).await });
        // A panic is the query's.
        let reply = match runtime.block_on(job) {
            Ok(Ok(answer)) => Reply::Answer(answer),
            Ok(Err(error)) => Reply::Error { error },
            Err(error) => Reply::Error {
                error: error.to_string(),
            },
        };
        say(serde_json::to_string(&reply).expect("plain data"))?;
    }
    Ok(())
}

fn runtime(threads: u32) -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(threads as usize)
        .enable_all()
        .build()
        .cannot("start threads")
}

/// An engine with its tables.
#[derive(Clone)]
enum Host {
    Giveway(Arc<Session>),
    DataFusion(SessionContext),
}

impl Host {
    async fn start(engine: EngineName, setup: &Setup) -> Result<Host, Failure> {
        match engine {
            EngineName::Giveway => {
                let engine = Engine::builder()
                    .workers(setup.threads as usize)
                    .memory_limit(setup.memory_bytes)
                    .build()
                    .map_err(Failure::new)?;
                let session = engine.session();
                for (name, path) in &setup.tables {
                    let registered = files::register(&session, name, path).await;
                    registered.map_err(Failure::new)?;
                }
                Ok(Host::Giveway(Arc::new(session)))
            }
            EngineName::DataFusion => {
                let config = SessionConfig::new().with_target_partitions(setup.threads as usize);
                let context = SessionContext::new_with_config(config);
                for (name, path) in &setup.tables {
                    let options = ParquetReadOptions::default();
                    let path = path.to_string_lossy();
                    let registered = context.register_parquet(name, path, options).await;
                    registered.map_err(Failure::new)?;
                }
                Ok(Host::DataFusion(context))
            }
            EngineName::DuckDb => Err(Failure::new("DuckDB answers by Python")),
        }
    }

    async fn answer(&self, sql: &str) -> Result<Answer, String> {
        let begun = Instant::now();
        let batches = match self {
            Host::Giveway(session) => {
                let query = session.sql(sql).await.map_err(|error| error.to_string())?;
                query.collect().await.map_err(|error| error.to_string())?
            }
            Host::DataFusion(context) => {
                let collected = async { context.sql(sql).await?.collect().await };
                collected
                    .await
                    .map_err(|error: DataFusionError| error.strip_backtrace())?
            }
        };
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let cells = match count <= CELLS_MAX {
            true => Some(rows(&batches).map_err(|error| error.to_string())?),
            false => None,
        };
        Ok(Answer {
            ms,
            rows: count as u64,
            cells,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use giveway_sql::tpch::{Dataset, Scale, Table, query};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn both_engines_answer_from_the_same_files_and_tell_errors() {
        let dir = tempfile::tempdir().unwrap();
        let scale = Scale::new(0.01).unwrap();
        Dataset::new(dir.path(), scale)
            .write(&|_| (), &AtomicBool::new(false))
            .unwrap();
        let tables = Table::ALL.map(|table| {
            let name = table.name();
            (name.to_owned(), dir.path().join(name))
        });
        let setup = Setup {
            threads: 2,
            memory_bytes: 1 << 30,
            tables: tables.into(),
        };
        let runtime = runtime(2).unwrap();
        let sql = query(1, scale).unwrap();
        let answers = [EngineName::Giveway, EngineName::DataFusion].map(|engine| {
            let host = runtime.block_on(Host::start(engine, &setup)).unwrap();
            let error = runtime.block_on(host.answer("SELECT nothing")).unwrap_err();
            assert!(error.contains("nothing"), "{error}");
            let answer = runtime.block_on(host.answer(&sql)).unwrap();
            assert!(answer.ms > 0.0);
            answer.cells.unwrap()
        });
        assert_eq!(answers[0].len(), 4);
        assert_eq!(answers[0], answers[1]);
        assert!(
            runtime
                .block_on(Host::start(EngineName::DuckDb, &setup))
                .is_err()
        );
    }
}
