//! What goes wrong in a query ends that query alone, and leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use futures_util::StreamExt;
use giveway_sql::{Engine, QueryState, RunningQuery, Session, Shutdown, SqlError};
use giveway_tier::Tier;

use crate::{ask, quiet, session};

/// Runs for minutes.
const LONG: &str = "SELECT count(*) FROM lineitem a JOIN lineitem b \
     ON a.l_quantity = b.l_quantity AND a.l_extendedprice < b.l_extendedprice \
     AND a.l_comment < b.l_comment AND a.l_shipdate < b.l_commitdate";

async fn error(session: &Session, sql: &str) -> SqlError {
    match session.sql(sql).await {
        Err(error) => error,
        Ok(query) => query.collect().await.unwrap_err(),
    }
}

/// The engine still answers, and has nothing left of what failed.
async fn unharmed(engine: &Engine, session: &Session) {
    assert_eq!(ask(session, "SELECT count(*) FROM region").await, ["| 5 |"]);
    quiet(engine).await;
}

#[tokio::test]
async fn errors_say_what_is_wrong() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    for (sql, word) in [
        ("SELEC 1", "SELEC"),
        ("SELECT x FROM nation", "n_name"),
        ("SELECT * FROM nowhere", "nowhere"),
    ] {
        let error = error(&session, sql).await;
        assert!(matches!(error, SqlError::Plan(_)), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
    for (sql, word) in [
        (
            "SELECT sum(1 / (n_nationkey - 7)) FROM nation",
            "Divide by zero",
        ),
        ("SELECT arrow_cast(n_name, 'Int64') FROM nation", "ALGERIA"),
        (
            "SELECT (SELECT n_nationkey FROM nation) FROM region",
            "more than one row",
        ),
    ] {
        let error = error(&session, sql).await;
        assert!(matches!(error, SqlError::Execution(_)), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn a_panic_ends_its_query() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    session.context().register_udf(create_udf(
        "explode",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(|_: &[ColumnarValue]| panic!("a function's defect")),
    ));
    let beside = session
        .sql("SELECT count(*), sum(l_tax) FROM lineitem")
        .await
        .unwrap();
    let beside = beside.submit().unwrap();
    let sql = "SELECT sum(explode(l_orderkey)) FROM lineitem";
    match error(&session, sql).await {
        SqlError::Panicked(message) => assert!(message.contains("a function's defect")),
        other => panic!("{other:?}"),
    }
    assert_eq!(beside.collect().await.unwrap()[0].num_rows(), 1);
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn memory_runs_out_for_one() {
    let engine = Engine::builder()
        .workers(2)
        .memory_limit(4 << 20)
        .build()
        .unwrap();
    let session = session(&engine);
    let sql = "SELECT count(*) FROM (SELECT l_orderkey, l_comment, count(*) FROM lineitem GROUP BY l_orderkey, l_comment)";
    let error = error(&session, sql).await;
    assert!(matches!(error, SqlError::OutOfMemory(_)), "{error:?}");
    assert!(error.to_string().contains("memory_limit"), "{error}");
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn queries_wait_while_memory_is_short() {
    const LIMIT: usize = 3 << 20;
    let engine = Engine::builder().workers(1).memory_limit(LIMIT);
    // What is unread stays in memory.
    let engine = engine.spill(std::env::temp_dir(), 0).build().unwrap();
    let session = session(&engine);
    register_numbers(&session, 40);
    let sql = "SELECT number FROM numbers LIMIT 1000000";
    let mut holder = session.sql(sql).await.unwrap().submit().unwrap().stream();
    let first = holder.next().await.unwrap();
    first.unwrap();
    assert!(
        holder.status().memory_bytes > LIMIT / 4 * 3,
        "{:?}",
        holder.status()
    );
    let waiting = session.sql("SELECT count(*) FROM region").await.unwrap();
    let waiting = waiting.submit().unwrap();
    let also = session.sql("SELECT 1").await.unwrap().submit().unwrap();
    assert_eq!(waiting.status().state, QueryState::WaitingForMemory);
    assert_eq!(engine.running().len(), 3);
    assert!(also.cancel());
    assert!(matches!(also.collect().await, Err(SqlError::Cancelled)));
    drop(holder);
    assert_eq!(waiting.collect().await.unwrap()[0].num_rows(), 1);
    unharmed(&engine, &session).await;
}

/// A table of batches of 64 KiB, which a query keeps between two pipelines until its
/// client has taken them.
fn register_numbers(session: &Session, batches: usize) {
    let batch = |_| {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8192));
        RecordBatch::try_from_iter([("number", numbers)]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..batches).map(batch).collect();
    session
        .register_batches("numbers", batches[0].schema(), batches)
        .unwrap();
}

#[tokio::test]
async fn background_queries_leave_memory_to_others() {
    const LIMIT: usize = 12 << 20;
    let engine = Engine::builder().workers(1).memory_limit(LIMIT);
    // What is unread stays in memory.
    let engine = engine.spill(std::env::temp_dir(), 0).build().unwrap();
    let session = session(&engine);
    register_numbers(&session, 40);
    let sql = "SELECT number FROM numbers LIMIT 1000000";
    let background = || async {
        let query = session.sql(sql).await.unwrap();
        query.tier(Tier::Background).submit().unwrap()
    };
    // Nobody reads these: 2.5 MiB between two pipelines, and 1 MiB that is made.
    let mut holders = Vec::new();
    for _ in 0..4 {
        let query = background().await;
        let begun = Instant::now();
        while query.status().memory_bytes < 5 << 19 && begun.elapsed() < SOON / 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        holders.push(query);
    }
    let urgent = session.sql(sql).await.unwrap().collect();
    let urgent = tokio::time::timeout(SOON, urgent).await;
    let rows = urgent.expect("time-sensitive queries have memory").unwrap();
    let rows: usize = rows.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 40 * 8192);
    let is_waiting = |query: &RunningQuery| query.status().state == QueryState::WaitingForMemory;
    let waiting: Vec<_> = holders.extract_if(.., |query| is_waiting(query)).collect();
    assert_eq!((holders.len(), waiting.len()), (2, 2));

    // Who takes more than all of them may have, ends; with the reason.
    drop(waiting);
    holders.truncate(1);
    let all = "SELECT number FROM (SELECT * FROM numbers UNION ALL SELECT * FROM numbers \
               UNION ALL SELECT * FROM numbers) LIMIT 1000000";
    let query = session.sql(all).await.unwrap().tier(Tier::Background);
    let error = tokio::time::timeout(SOON, query.collect()).await;
    let error = error.unwrap().unwrap_err();
    assert!(matches!(error, SqlError::OutOfMemory(_)), "{error:?}");
    assert!(
        error.to_string().contains("background queries hold"),
        "{error}"
    );
    drop(holders);
    unharmed(&engine, &session).await;
}

/// The table's rows, and twice these, kept between two pipelines.
const ONCE: &str = "SELECT number FROM numbers LIMIT 1000000";
const TWICE: &str = "SELECT number FROM (SELECT * FROM numbers UNION ALL SELECT * FROM numbers) \
                     LIMIT 1000000";

/// An engine, and two background queries that nobody reads: they hold 3.5 MiB each of 12.
async fn with_two_in_the_background(
    change: impl FnOnce(giveway_sql::Builder) -> giveway_sql::Builder,
) -> (Engine, Session, [RunningQuery; 2]) {
    let engine = Engine::builder().workers(1).memory_limit(12 << 20);
    // What is unread stays in memory.
    let engine = change(engine).spill(std::env::temp_dir(), 0);
    let engine = engine.build().unwrap();
    let session = session(&engine);
    register_numbers(&session, 40);
    let mut holders = Vec::new();
    for _ in 0..2 {
        holders.push(unread(&session, Tier::Background).await);
    }
    (engine, session, holders.try_into().unwrap())
}

/// A query that nobody reads, when it holds 3 MiB.
async fn unread(session: &Session, tier: Tier) -> RunningQuery {
    let query = session.sql(ONCE).await.unwrap().tier(tier);
    let query = query.submit().unwrap();
    let begun = Instant::now();
    while query.status().memory_bytes < 3 << 20 {
        assert!(begun.elapsed() < SOON, "{:?}", query.status());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    query
}

#[tokio::test]
async fn memory_of_the_background_keeps_no_time_sensitive_query_waiting() {
    for keep in [false, true] {
        let (engine, session, holders) =
            with_two_in_the_background(|engine| engine.keep_background(keep)).await;
        // More than three quarters of the limit are reserved, and an eighth by this.
        let urgent = unread(&session, Tier::TimeSensitive).await;
        let another = session.sql("SELECT 1").await.unwrap().submit().unwrap();
        let is_waiting = another.status().state == QueryState::WaitingForMemory;
        assert_eq!(is_waiting, keep);
        drop((urgent, holders));
        another.collect().await.unwrap();
        unharmed(&engine, &session).await;
    }
}

#[tokio::test]
async fn a_background_query_gives_its_memory_to_a_time_sensitive_one() {
    let (engine, session, [older, younger]) = with_two_in_the_background(|engine| engine).await;
    // 7 MiB, and 5 are free.
    let urgent = session.sql(TWICE).await.unwrap().submit().unwrap();
    let mut urgent = urgent.stream();
    let first = tokio::time::timeout(SOON, urgent.next()).await.unwrap();
    first.unwrap().expect("time-sensitive queries have memory");
    // The rows that it has not read are given back, too.
    let begun = Instant::now();
    while younger.status().memory_bytes > 0 {
        assert!(begun.elapsed() < SOON, "{:?}", younger.status());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let error = younger.collect().await.unwrap_err();
    assert!(matches!(error, SqlError::GaveWay), "{error:?}");
    assert!(error.to_string().contains("--keep-background"), "{error}");
    drop(urgent);
    // One is enough.
    let rows = older.collect().await.unwrap();
    let rows: usize = rows.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 40 * 8192);
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn background_queries_keep_their_memory_if_the_engine_is_told_so() {
    let (engine, session, holders) =
        with_two_in_the_background(|engine| engine.keep_background(true)).await;
    let error = session.sql(TWICE).await.unwrap().collect().await;
    let error = error.unwrap_err();
    assert!(matches!(error, SqlError::OutOfMemory(_)), "{error:?}");
    for holder in holders {
        holder.collect().await.expect("nobody has ended it");
    }
    unharmed(&engine, &session).await;
}

/// What a test waits for at most before it fails.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn deadlines_are_kept_beside_explain_analyze() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let (entered, is_over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let hold = {
        let (entered, is_over) = (Arc::clone(&entered), Arc::clone(&is_over));
        move |arguments: &[ColumnarValue]| {
            entered.fetch_add(1, Relaxed);
            let begun = Instant::now();
            while !is_over.load(Relaxed) && begun.elapsed() < 3 * SOON {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(arguments[0].clone())
        }
    };
    session.context().register_udf(create_udf(
        "hold",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(hold),
    ));
    let sql = "EXPLAIN ANALYZE SELECT hold(r_regionkey) FROM region";
    let analyze = || async { session.sql(sql).await.unwrap().submit().unwrap() };
    let analyses = [analyze().await, analyze().await];
    // Each has a thread of its own.
    let begun = Instant::now();
    while entered.load(Relaxed) < 2 && begun.elapsed() < SOON {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let entered = entered.load(Relaxed);
    let deadline = Duration::from_millis(100);
    let query = session.sql(LONG).await.unwrap().deadline(deadline);
    let told = tokio::time::timeout(SOON, query.collect()).await;
    is_over.store(true, Relaxed);
    assert!(
        matches!(told, Ok(Err(SqlError::DeadlineExceeded))),
        "{told:?}"
    );
    assert_eq!(entered, 2);
    for analysis in analyses {
        assert!(analysis.collect().await.unwrap()[0].num_rows() > 0);
    }
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn queries_are_cancelled() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let long = || async { session.sql(LONG).await.unwrap().submit().unwrap() };
    // By its client, by its name, by its deadline, and because nobody waits.
    let query = long().await;
    assert!(query.cancel());
    assert!(matches!(query.collect().await, Err(SqlError::Cancelled)));

    let query = long().await;
    while query.status().ran_ns == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let status = engine
        .running()
        .into_iter()
        .find(|status| status.id == query.id());
    assert_eq!(status.unwrap().sql, LONG);
    assert!(query.progress() < 1.0);
    let id = query.id();
    assert!(engine.cancel(id));
    assert!(matches!(query.collect().await, Err(SqlError::Cancelled)));

    let query = session
        .sql(LONG)
        .await
        .unwrap()
        .deadline(Duration::from_millis(50));
    assert!(matches!(
        query.collect().await,
        Err(SqlError::DeadlineExceeded)
    ));

    drop(long().await);
    let mut stream = long().await.stream();
    let polled = futures_util::poll!(stream.next());
    assert!(polled.is_pending());
    drop(stream);
    unharmed(&engine, &session).await;
    assert!(!engine.cancel(id), "it has ended");
}

#[tokio::test]
async fn a_slow_client_delays_no_other_query() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    let query = session
        .sql("SELECT * FROM lineitem, nation, region")
        .await
        .unwrap();
    let mut slow = query.submit().unwrap().stream();
    assert!(slow.next().await.unwrap().unwrap().num_rows() > 0);
    assert_eq!(
        ask(&session, "SELECT count(*) FROM lineitem").await,
        ["| 60175 |"]
    );
    drop(slow);
    unharmed(&engine, &session).await;
}

#[tokio::test]
async fn an_engine_shuts_down() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let long = session.sql(LONG).await.unwrap().submit().unwrap();
    engine.shutdown(Shutdown::Cancel).await;
    assert!(matches!(long.collect().await, Err(SqlError::ShutDown)));
    let late = session.sql("SELECT 1").await.unwrap().submit();
    assert!(matches!(late, Err(SqlError::ShutDown)));

    let engine = Engine::builder().workers(2).build().unwrap();
    let session = crate::session(&engine);
    let query = session.sql("SELECT count(*) FROM lineitem").await.unwrap();
    let query = query.submit().unwrap();
    engine.shutdown(Shutdown::Drain).await;
    assert_eq!(query.collect().await.unwrap()[0].num_rows(), 1);
}

#[test]
fn builders_refuse_what_cannot_be() {
    let refused = |builder: giveway_sql::Builder| builder.build().unwrap_err().to_string();
    assert!(refused(Engine::builder().workers(0)).contains("at least 1"));
    assert!(refused(Engine::builder().memory_limit(1000)).contains("1 MiB"));
    assert!(refused(Engine::builder().partitions(0)).contains("1 to 4096"));
}
