//! The engine against stock DataFusion, and against what goes wrong.

mod cancels;
mod depth;
mod failures;
mod files;
mod plans;
mod statements;
mod steps;
mod tpch;

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use giveway_sql::tpch::{Scale, Table};
use giveway_sql::{Engine, MorselTable, Session};

/// The rows as text, in any order.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows: Vec<String> = (batches.iter().filter(|batch| batch.num_rows() > 0))
        .flat_map(|batch| {
            let text = pretty_format_batches(std::slice::from_ref(batch))
                .unwrap()
                .to_string();
            let lines = text.lines().skip(3).filter(|line| line.starts_with('|'));
            lines.map(squeezed).collect::<Vec<_>>()
        })
        .collect();
    rows.sort();
    rows
}

/// Columns are as wide as their widest value, which differs by batch.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// TPC-H in memory, made once for all tests.
fn tables() -> &'static [(Table, Arc<MorselTable>)] {
    static TABLES: OnceLock<Vec<(Table, Arc<MorselTable>)>> = OnceLock::new();
    TABLES.get_or_init(|| {
        let scale = Scale::new(0.01).unwrap();
        let table = |table: Table| {
            let batches = table.batches(scale).collect();
            let morsels = MorselTable::try_new(table.schema(), batches).unwrap();
            (table, Arc::new(morsels))
        };
        Table::ALL.into_iter().map(table).collect()
    })
}

/// A session of this engine on TPC-H.
fn session(engine: &Engine) -> Session {
    let session = engine.session();
    for (table, morsels) in tables() {
        session
            .register_table(table.name(), Arc::clone(morsels) as _)
            .unwrap();
    }
    session
}

/// The result of a statement on the engine, as rows of text.
async fn ask(session: &Session, sql: &str) -> Vec<String> {
    rows(&session.sql(sql).await.unwrap().collect().await.unwrap())
}

/// Waits until the engine has nothing to do, and holds nothing.
async fn quiet(engine: &Engine) {
    for _ in 0..1000 {
        if engine.running().is_empty() && engine.stats().memory_bytes == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!(
        "after 10 s: {:?}, {} bytes",
        engine.running(),
        engine.stats().memory_bytes
    );
}
