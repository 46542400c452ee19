//! What takes long is done in steps, whatever is joined and grouped.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use giveway_sql::{Engine, Session, Stock};

use crate::{ask, quiet, rows};

const BATCHES: usize = 20;
const BATCH_ROWS: usize = 8192;

/// A table whose rows are all different: a number, and text of two kinds.
fn register(session: &Session) {
    let batch = |batch: usize| {
        let rows = batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS;
        let text = |row: usize| (row % 11 != 5).then(|| format!("row number {row}"));
        let texts: Vec<Option<String>> = rows.clone().map(text).collect();
        let columns: [(&str, ArrayRef, bool); 3] = [
            (
                "number",
                Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64))),
                false,
            ),
            ("word", Arc::new(StringArray::from(texts.clone())), true),
            ("phrase", Arc::new(StringViewArray::from_iter(texts)), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..BATCHES).map(batch).collect();
    session
        .register_batches("t", batches[0].schema(), batches)
        .unwrap();
}

/// Turns of pipelines that are called so: they are counted when the last who knows the
/// query has dropped it, which may be a moment after its end.
async fn turns(engine: &Engine, operators: &str) -> u64 {
    for _ in 0..1000 {
        let turns = engine.stats().turns;
        if let Some(found) = turns.iter().find(|turns| turns.operators == operators) {
            return found.turns.iter().sum();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    0
}

#[tokio::test]
async fn a_build_side_is_gathered_batch_by_batch() {
    // No step has time for a second batch.
    let engine = Engine::builder()
        .workers(2)
        .partitions(1)
        .task_duration(Duration::from_micros(1))
        .build()
        .unwrap();
    let session = engine.session();
    register(&session);
    let sql = "SELECT count(*), count(a.word), max(a.word), max(b.phrase), sum(a.number) \
               FROM t a JOIN t b ON a.number = b.number AND a.phrase = b.phrase";
    let all = BATCHES * BATCH_ROWS;
    let equal = (0..all).filter(|row| row % 11 != 5);
    let (count, sum) = (equal.clone().count(), equal.sum::<usize>());
    let last = "row number 99999";
    assert_eq!(
        ask(&session, sql).await,
        [format!("| {count} | {count} | {last} | {last} | {sum} |")]
    );
    quiet(&engine).await;
    let turns = turns(&engine, "HashJoin > gather").await;
    assert!(turns >= 3 * BATCHES as u64, "{turns} turns");
}

#[tokio::test]
async fn a_frequent_key_costs_a_join_its_chain_once() {
    let engine = Engine::builder().workers(2).partitions(1).build().unwrap();
    let session = engine.session();
    register(&session);
    // Pairs: six thousand million, of which none is wanted.
    let side = |name: &str| format!("(SELECT number % 3 / 2 AS key FROM t) {name}");
    let (left, right) = (side("a"), side("b"));
    let all = BATCHES * BATCH_ROWS;
    let ones = (0..all).filter(|row| row % 3 == 2).count();
    for (kind, expected) in [
        ("LEFT SEMI", ones),
        ("LEFT ANTI", all - ones),
        ("RIGHT SEMI", all - ones),
        ("RIGHT ANTI", ones),
    ] {
        let sql = format!("SELECT count(*) FROM {left} {kind} JOIN {right} ON a.key = b.key + 1");
        assert_eq!(
            ask(&session, &sql).await,
            [format!("| {expected} |")],
            "{sql}"
        );
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn many_groups_are_those_of_stock_datafusion() {
    let engine = Engine::builder().workers(2).partitions(2).build().unwrap();
    let stock = Stock::new(2).unwrap();
    let session = engine.session();
    register(&session);
    for sql in [
        "SELECT count(*), sum(c), sum(s), max(m) FROM \
         (SELECT number, count(*) c, sum(number) s, max(word) m FROM t GROUP BY number)",
        "SELECT count(*), sum(a) FROM \
         (SELECT word, phrase, avg(number) a FROM t GROUP BY word, phrase HAVING avg(number) > 100)",
        "SELECT count(*), sum(d) FROM \
         (SELECT number % 200000 n, count(DISTINCT word) d FROM t GROUP BY n)",
        "SELECT count(*), sum(a.c), sum(b.c) FROM \
         (SELECT number n, count(*) c FROM t GROUP BY n) a JOIN \
         (SELECT number / 2 n, count(*) c FROM t GROUP BY number / 2) b ON a.n = b.n",
        "SELECT number, count(*) c FROM t GROUP BY number ORDER BY number DESC LIMIT 3",
        "SELECT count(*) FROM (SELECT DISTINCT phrase, word FROM t)",
    ] {
        let plan = || async { session.sql(sql).await.unwrap() };
        let expected = stock.collect(plan().await).await.unwrap();
        let got = plan().await.collect().await.unwrap();
        assert_eq!(rows(&got), rows(&expected), "{sql}");
    }
    quiet(&engine).await;
}
