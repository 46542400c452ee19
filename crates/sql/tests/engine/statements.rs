//! Whatever SQL there is: what has nothing to cut, what is cut in unusual places, what
//! stock DataFusion runs by itself.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use giveway_sql::{Engine, SqlError, Stock};
use giveway_tier::Tier;

use crate::{ask, quiet, rows, session};

#[tokio::test]
async fn results_equal_those_of_stock_datafusion() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let stock = Stock::new(2).unwrap();
    let session = session(&engine);
    for sql in [
        // Nothing to cut.
        "SELECT 1 AS one, 'x' AS letter",
        "SELECT * FROM nation WHERE n_nationkey = 7",
        "VALUES (1, 'a'), (2, NULL)",
        "SELECT * FROM generate_series(1, 20000) AS t(n) WHERE n % 1000 = 1",
        // Nothing comes.
        "SELECT * FROM lineitem WHERE l_orderkey < 0",
        "SELECT count(*), sum(l_quantity) FROM lineitem WHERE l_orderkey < 0",
        "SELECT n_name FROM nation, (SELECT * FROM region WHERE false) r WHERE n_regionkey = r_regionkey",
        "SELECT * FROM orders LIMIT 0",
        // Exactly as many as wanted.
        "SELECT count(*) FROM (SELECT * FROM lineitem LIMIT 12345)",
        "SELECT l_orderkey, l_linenumber FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 10 OFFSET 12345",
        "SELECT count(*) FROM (SELECT l_orderkey FROM lineitem WHERE l_quantity > 10 LIMIT 777)",
        // Several inputs.
        "SELECT count(*) FROM (SELECT o_orderkey FROM orders UNION ALL SELECT l_orderkey FROM lineitem)",
        "SELECT o_orderkey FROM orders WHERE o_orderkey < 100 UNION SELECT l_orderkey FROM lineitem WHERE l_orderkey < 100",
        "SELECT n_nationkey FROM nation INTERSECT SELECT r_regionkey FROM region",
        "SELECT n_nationkey FROM nation EXCEPT SELECT r_regionkey FROM region",
        "SELECT count(*), min(n_name), max(r_name) FROM nation CROSS JOIN region",
        "SELECT count(*) FROM nation a JOIN nation b ON a.n_nationkey < b.n_nationkey",
        "SELECT a.n_name, b.r_name FROM nation a FULL JOIN region b ON a.n_nationkey = b.r_regionkey + 22",
        "SELECT count(*), sum(o_orderkey) FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_totalprice > 100000",
        "SELECT count(*), sum(c_custkey) FROM orders RIGHT JOIN customer ON c_custkey = o_custkey AND o_totalprice > 100000",
        "SELECT count(*) FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders)",
        "SELECT count(*) FROM customer WHERE EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey AND o_totalprice > c_acctbal * 20)",
        "SELECT count(*) FROM customer WHERE c_custkey IN (SELECT o_custkey FROM orders) OR c_acctbal < 0",
        // Keys that equal nothing, and those that equal each other.
        "SELECT x, y FROM (VALUES (1), (2), (NULL), (NULL)) a(x) FULL JOIN (VALUES (1), (NULL), (3)) b(y) ON x = y",
        "SELECT x, y FROM (VALUES (1), (2), (NULL), (NULL)) a(x) JOIN (VALUES (1), (NULL), (3)) b(y) ON x IS NOT DISTINCT FROM y",
        "SELECT x FROM (VALUES (1), (2), (NULL)) a(x) WHERE NOT EXISTS (SELECT 1 FROM (VALUES (1), (NULL)) b(y) WHERE x = y)",
        "SELECT x FROM (VALUES (1), (2)) a(x) WHERE x NOT IN (SELECT y FROM (VALUES (1), (NULL)) b(y))",
        // Subqueries in subqueries.
        "SELECT count(*) FROM orders WHERE o_totalprice > (SELECT avg(o_totalprice) FROM orders WHERE o_custkey > (SELECT avg(c_custkey) FROM customer))",
        "SELECT (SELECT max(n_nationkey) FROM nation) + (SELECT count(*) FROM region) AS sum",
        "SELECT (SELECT n_name FROM nation WHERE n_nationkey = 99) IS NULL AS missing",
        // Orders, windows, groupings.
        "SELECT o_orderkey, row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderkey) FROM orders WHERE o_custkey < 50",
        "SELECT sum(o_totalprice) OVER (ORDER BY o_orderkey ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM orders WHERE o_orderkey < 500",
        "SELECT o_orderpriority, o_orderstatus, count(*) FROM orders GROUP BY CUBE (o_orderpriority, o_orderstatus)",
        "SELECT count(DISTINCT l_suppkey), count(DISTINCT l_returnflag) FROM lineitem",
        "SELECT l_orderkey, array_agg(l_linenumber ORDER BY l_linenumber) FROM lineitem WHERE l_orderkey < 40 GROUP BY l_orderkey",
        "SELECT approx_distinct(l_partkey) > 1000 AS many FROM lineitem",
        "SELECT o_clerk, median(o_totalprice) FROM orders GROUP BY o_clerk HAVING count(*) > 20",
        // Executed more than once, or by itself.
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT sum(i), count(*) FROM n",
        "SELECT unnest([1, 2, 3]) AS n",
        "SHOW giveway.tier",
    ] {
        let plan = || async {
            session
                .sql(sql)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error}"))
        };
        let expected = stock.collect(plan().await).await.unwrap();
        let got = plan().await.collect().await;
        let got = got.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(rows(&got), rows(&expected), "{sql}");
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn a_query_can_be_asked_again_beside_itself() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let sql = "SELECT count(*) FROM orders WHERE o_totalprice > \
               (SELECT avg(o_totalprice) FROM orders)";
    let first = session.sql(sql).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(first.again().await.unwrap().submit().unwrap());
    }
    let expected = rows(&first.collect().await.unwrap());
    for other in others {
        assert_eq!(rows(&other.collect().await.unwrap()), expected);
    }
}

#[tokio::test]
async fn a_limit_holds_for_lanes_that_run_at_the_same_time() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let arrived = Arc::new(AtomicUsize::new(0));
    let function = {
        let arrived = Arc::clone(&arrived);
        move |arguments: &[ColumnarValue]| {
            arrived.fetch_add(1, Relaxed);
            // Until both workers are here, so that both have a batch to push.
            let begun = Instant::now();
            while arrived.load(Relaxed) < 2 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            Ok(arguments[0].clone())
        }
    };
    session.context().register_udf(create_udf(
        "together",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(function),
    ));
    let sql = "SELECT l_orderkey FROM lineitem WHERE together(l_orderkey) > 0 LIMIT 777";
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    assert!(arrived.load(Relaxed) >= 2);
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        777
    );
}

#[tokio::test]
async fn orders_are_kept() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let sql = "SELECT l_orderkey * 8 + l_linenumber AS place FROM lineitem ORDER BY place DESC";
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let places: Vec<i64> = (batches.iter())
        .flat_map(|batch| {
            use datafusion::arrow::array::AsArray;
            use datafusion::arrow::datatypes::Int64Type;
            let column = batch.column(0).as_primitive::<Int64Type>();
            column.values().to_vec()
        })
        .collect();
    assert!(places.len() > 50_000);
    assert!(places.is_sorted_by(|a, b| a > b));
}

#[tokio::test]
async fn plans_are_explained_and_analyzed() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let sql = "SELECT o_custkey, count(*) FROM orders GROUP BY o_custkey";
    let plan = ask(&session, &format!("EXPLAIN {sql}")).await.join("\n");
    // Those that run: the plan is cut at its exchange.
    let shown = [
        "pipeline 1",
        "MorselSourceExec",
        "pipeline 2",
        "rows of pipeline 1, by Hash",
    ];
    assert!(shown.iter().all(|part| plan.contains(part)), "{plan}");
    assert!(!plan.contains("RepartitionExec"), "{plan}");
    let join = "EXPLAIN SELECT count(*) FROM orders JOIN customer ON o_custkey = c_custkey";
    let plan = ask(&session, join).await.join("\n");
    assert!(
        plan.contains("HashJoin: enter them into hash tables"),
        "{plan}"
    );
    let plan = ask(&session, &format!("EXPLAIN ANALYZE {sql}"))
        .await
        .join("\n");
    assert!(
        plan.contains("AggregateExec") && plan.contains("output_rows"),
        "{plan}"
    );
}

#[tokio::test]
async fn statements_change_their_session_alone() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (one, two) = (session(&engine), session(&engine));
    ask(&one, "SET giveway.tier = 'background'").await;
    ask(&one, "SET giveway.weight = 250").await;
    ask(&one, "SET giveway.deadline = 60000").await;
    let options = one.options();
    assert_eq!(
        (options.tier, options.weight.get()),
        (Tier::Background, 250)
    );
    assert_eq!(options.deadline.unwrap().as_secs(), 60);
    assert_eq!(two.options().tier, Tier::TimeSensitive);
    let error = one
        .sql("SET giveway.tier = 'urgent'")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("urgent") && error.contains("background"),
        "{error}"
    );
    let error = one
        .sql("SET giveway.colour = 'red'")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("colour") && error.contains("tier, weight"),
        "{error}"
    );

    ask(
        &one,
        "CREATE TABLE dear AS SELECT * FROM orders WHERE o_totalprice > 200000",
    )
    .await;
    let dear = ask(
        &one,
        "SELECT count(*), min(o_totalprice) > 200000 FROM dear",
    )
    .await;
    assert_ne!(dear, ["| 0 | |"]);
    assert!(one.sql("CREATE TABLE dear AS SELECT 1").await.is_err());
    ask(&one, "CREATE TABLE IF NOT EXISTS dear AS SELECT 1").await;
    ask(&one, "CREATE OR REPLACE TABLE dear AS SELECT 1 AS one").await;
    assert_eq!(ask(&one, "SELECT * FROM dear").await, ["| 1 |"]);
    assert!(two.sql("SELECT * FROM dear").await.is_err());
    ask(&one, "CREATE VIEW nations AS SELECT n_name FROM nation").await;
    assert_eq!(ask(&one, "SELECT count(*) FROM nations").await, ["| 25 |"]);
    ask(&one, "DROP TABLE dear").await;
    assert!(one.sql("SELECT * FROM dear").await.is_err());
    quiet(&engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_replaced_is_always_there() {
    const TIMES: usize = 60;
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    for create in ["SCHEMA s", "DATABASE d", "SCHEMA d.s"] {
        ask(&session, &format!("CREATE {create}")).await;
    }
    for name in ["t", "s.t", "d.s.t"] {
        ask(&session, &format!("CREATE TABLE {name} AS SELECT 1 AS x")).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let readers = [(); 2].map(|()| {
            let (session, is_over) = (session.clone(), Arc::clone(&is_over));
            let read = format!("SELECT x FROM {name}");
            tokio::spawn(async move {
                while !is_over.load(Relaxed) {
                    let read = session.sql(&read).await;
                    drop(read.expect("the table is there"));
                }
            })
        });
        let writers = ["TABLE", "VIEW"].map(|kind| {
            let session = session.clone();
            let write = format!("CREATE OR REPLACE {kind} {name} AS SELECT 1 AS x");
            tokio::spawn(async move {
                for _ in 0..TIMES {
                    drop(session.sql(&write).await.expect("each of several succeeds"));
                }
            })
        });
        for writer in writers {
            writer.await.unwrap();
        }
        is_over.store(true, Relaxed);
        for reader in readers {
            reader.await.unwrap();
        }
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn a_replacement_that_fails_leaves_the_table() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (dir.path().join("good.csv"), dir.path().join("bad.parquet"));
    std::fs::write(&good, "x\n2\n").unwrap();
    std::fs::write(&bad, "this is no Parquet file").unwrap();
    ask(&session, "CREATE TABLE t AS SELECT 1 AS x").await;
    let external = |kind: &str, path: &std::path::Path| {
        let path = path.display();
        format!("CREATE OR REPLACE EXTERNAL TABLE t STORED AS {kind} LOCATION '{path}'")
    };
    for wrong in [
        external("PARQUET", &bad),
        external("STONE", &good),
        "CREATE OR REPLACE VIEW t AS SELECT * FROM nation a, nation b".to_owned(),
        "CREATE OR REPLACE TABLE t AS SELECT 1 / (n_nationkey - n_nationkey) FROM nation"
            .to_owned(),
    ] {
        session.sql(&wrong).await.expect_err(&wrong);
        assert_eq!(ask(&session, "SELECT x FROM t").await, ["| 1 |"], "{wrong}");
    }
    ask(&session, &external("CSV", &good)).await;
    assert_eq!(ask(&session, "SELECT x FROM t").await, ["| 2 |"]);
    ask(&session, "CREATE OR REPLACE VIEW t AS SELECT 3 AS x").await;
    assert_eq!(ask(&session, "SELECT x FROM t").await, ["| 3 |"]);
}

#[tokio::test]
async fn reset_restores_the_default() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    for (option, value, default) in [
        ("tier", "background", "time_sensitive"),
        ("weight", "7", "100"),
        ("deadline", "100000", "0"),
    ] {
        ask(&session, &format!("SET giveway.{option} = '{value}'")).await;
        let show = format!("SHOW giveway.{option}");
        assert!(ask(&session, &show).await[0].contains(value));
        ask(&session, &format!("RESET giveway.{option}")).await;
        assert!(ask(&session, &show).await[0].contains(default), "{option}");
    }
    let wrong = session.sql("RESET giveway.colour").await.unwrap_err();
    assert!(wrong.to_string().contains("tier, weight"), "{wrong}");
    // What a session may be at most stays.
    let mut options = session.options();
    options.tier_max = Tier::Background;
    session.set_options(options);
    ask(&session, "RESET giveway.tier").await;
    assert_eq!(session.options().tier, Tier::Background);
    assert_eq!(session.options().tier_max, Tier::Background);
}

#[tokio::test]
async fn tables_in_memory_are_counted_and_bounded() {
    const LIMIT: usize = 64 << 20;
    let engine = Engine::builder().workers(2).memory_limit(LIMIT);
    let engine = engine.build().unwrap();
    let session = session(&engine);
    ask(&session, "SET datafusion.execution.batch_size = 20").await;
    let large = "CREATE TABLE large AS SELECT value, repeat('y', 100000 + value % 2) AS s \
                 FROM range(0, 2000)";
    let error = session.sql(large).await.unwrap_err();
    assert!(matches!(error, SqlError::OutOfMemory(_)), "{error}");
    assert!(error.to_string().contains("tables in memory"), "{error}");
    quiet(&engine).await;
    // What is dropped, or replaced, makes room.
    let half = "CREATE OR REPLACE TABLE half AS SELECT value, repeat('y', 100000) AS s \
                FROM range(0, 70)";
    for _ in 0..3 {
        ask(&session, half).await;
        ask(&session, "DROP TABLE half").await;
    }
    quiet(&engine).await;
}

#[test]
fn no_runtime_is_needed_to_wait() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    let answer = async {
        let query = session.sql("SELECT count(*) FROM lineitem").await.unwrap();
        query.collect().await.unwrap()
    };
    let mut answer = std::pin::pin!(answer);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    let batches: Vec<RecordBatch> = loop {
        match answer.as_mut().poll(context) {
            std::task::Poll::Ready(batches) => break batches,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(rows(&batches), ["| 60175 |"]);
}
