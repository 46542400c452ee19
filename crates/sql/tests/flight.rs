//! The server as its clients see it.

mod fixture;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandPreparedStatementQuery,
    ProstMessageExt, SqlInfo,
};
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{Action, CancelFlightInfoRequest, FlightDescriptor};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use futures_util::TryStreamExt;
use giveway_sql::server::Server;
use giveway_sql::{Engine, QueryState, QueryStatus};
use giveway_tier::Tier;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::{Code, Request};

use fixture::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_planned_and_its_rows_are_fetched_once() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let sql = "SELECT sum(number) AS sum FROM numbers".to_owned();
    let info = client.execute(sql, None).await.unwrap();
    let schema = info.clone().try_decode_schema().unwrap();
    assert_eq!(schema.field(0).name(), "sum");
    // Nothing has run: the client has not come for the rows.
    assert!(fixture.engine.running().is_empty());
    let rows = fetch(&mut client, info.clone()).await.unwrap();
    assert_eq!(number(&rows), 9999 * 10_000 / 2);
    refused(
        fetch(&mut client, info),
        Code::NotFound,
        "ask the query again",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strings_are_sent_as_every_client_knows_them() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let sql = "SELECT name FROM numbers WHERE number = 17";
    let rows = ask(&mut client, sql).await.unwrap();
    let batch = rows.iter().find(|batch| batch.num_rows() > 0).unwrap();
    assert_eq!(batch.column(0).data_type(), &DataType::LargeUtf8);
    assert_eq!(batch.column(0).as_string::<i64>().value(0), "the number 17");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_belong_to_a_session() {
    let fixture = serve(|builder| builder).await;
    let (mut ann, mut bob) = (fixture.login().await, fixture.login().await);
    ask(&mut ann, "SET giveway.tier = 'background'")
        .await
        .unwrap();
    let tier = "SHOW giveway.tier";
    assert!(text(&ask(&mut ann, tier).await.unwrap()).contains("background"));
    assert!(text(&ask(&mut bob, tier).await.unwrap()).contains("time_sensitive"));

    let mut nobody = fixture.anonymous().await;
    let set = ask(&mut nobody, "SET giveway.tier = 'background'");
    refused(set, Code::FailedPrecondition, "log in").await;
    let set = ask(&mut ann, "SET giveway.tier = 'urgent'");
    refused(set, Code::InvalidArgument, "time_sensitive or background").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_set_what_a_session_does_not() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    client.set_header("giveway-tier", "background");
    client.set_header("giveway-weight", "400");
    let running = tokio::spawn(async move { ask(&mut client, ENDLESS).await });
    fixture.running(1).await;
    let query = fixture.engine.running().remove(0);
    assert_eq!((query.tier, query.weight.get()), (Tier::Background, 400));
    running.abort();

    let mut client = fixture.anonymous().await;
    client.set_header("giveway-weight", "0");
    refused(
        ask(&mut client, "SELECT 1"),
        Code::InvalidArgument,
        "giveway-weight",
    )
    .await;
    let mut client = fixture.anonymous().await;
    client.set_header("giveway-deadline", "1");
    refused(
        ask(&mut client, ENDLESS),
        Code::DeadlineExceeded,
        "deadline",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_end_their_query_alone() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.login().await;
    let wrong = ask(&mut client, "SELEKT 1");
    refused(wrong, Code::InvalidArgument, "SELEKT").await;
    let missing = ask(&mut client, "SELECT * FROM nowhere");
    refused(missing, Code::InvalidArgument, "nowhere").await;
    let division = ask(&mut client, "SELECT 1 / (number - 17) FROM numbers");
    refused(division, Code::FailedPrecondition, "zero").await;
    assert_eq!(number(&ask(&mut client, "SELECT 1").await.unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_are_bound_and_closed() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.login().await;
    let sql = "SELECT count(*) AS count FROM numbers WHERE number < $1".to_owned();
    let mut statement = client.prepare(sql, None).await.unwrap();
    let parameters = statement.parameter_schema().unwrap();
    assert_eq!(parameters.field(0).data_type(), &DataType::Int64);
    assert_eq!(statement.dataset_schema().unwrap().field(0).name(), "count");
    for limit in [10, 20] {
        let limits: ArrayRef = Arc::new(Int64Array::from(vec![limit]));
        let schema = Schema::new(vec![Field::new("$1", DataType::Int64, true)]);
        let row = RecordBatch::try_new(Arc::new(schema), vec![limits]).unwrap();
        statement.set_parameters(row).unwrap();
        let info = statement.execute().await.unwrap();
        assert_eq!(number(&fetch(&mut client, info).await.unwrap()), limit);
    }
    let mut closed = statement.clone();
    statement.close().await.unwrap();
    refused(closed.execute(), Code::NotFound, "prepare it again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_client_creates_all_clients_see() {
    let fixture = serve(|builder| builder).await;
    let (mut ann, mut bob) = (fixture.login().await, fixture.login().await);
    let create = "CREATE TABLE few AS SELECT * FROM numbers WHERE number < 5";
    ann.execute_update(create.to_owned(), None).await.unwrap();
    let count = ask(&mut bob, "SELECT count(*) FROM few").await.unwrap();
    assert_eq!(number(&count), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_can_be_read_only() {
    let fixture = serve(|builder| builder.read_only(true)).await;
    let mut client = fixture.login().await;
    let create = "CREATE TABLE few AS SELECT 1";
    let created = client.execute_update(create.to_owned(), None);
    refused(created, Code::PermissionDenied, "--read-only").await;
    let copied = ask(&mut client, "COPY numbers TO '/tmp/x.csv'");
    refused(copied, Code::PermissionDenied, "--read-only").await;
    // Operators would spill there.
    let spilled = ask(
        &mut client,
        "SET datafusion.runtime.temp_directory = '/tmp/x'",
    );
    refused(spilled, Code::InvalidArgument, "--spill").await;
    let counted = client.execute_update("SELECT * FROM numbers".to_owned(), None);
    assert_eq!(counted.await.unwrap(), 0, "nothing was changed");
    ask(&mut client, "SET giveway.weight = 7").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_find_their_way_around() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let info = client.get_catalogs().await.unwrap();
    assert!(text(&fetch(&mut client, info).await.unwrap()).contains("datafusion"));
    let info = client
        .get_db_schemas(CommandGetDbSchemas::default())
        .await
        .unwrap();
    assert!(text(&fetch(&mut client, info).await.unwrap()).contains("public"));
    let wanted = CommandGetTables {
        table_name_filter_pattern: Some("num%".to_owned()),
        include_schema: true,
        ..CommandGetTables::default()
    };
    let info = client.get_tables(wanted).await.unwrap();
    let tables = fetch(&mut client, info).await.unwrap();
    let rows: usize = tables.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 1);
    assert!(tables[0].column_by_name("table_schema").is_some());
    let info = client.get_table_types().await.unwrap();
    assert!(text(&fetch(&mut client, info).await.unwrap()).contains("VIEW"));
    let info = client
        .get_sql_info(vec![SqlInfo::FlightSqlServerName])
        .await
        .unwrap();
    assert!(text(&fetch(&mut client, info).await.unwrap()).contains("Giveway"));
    let keys = CommandGetPrimaryKeys {
        table: "numbers".to_owned(),
        ..CommandGetPrimaryKeys::default()
    };
    let info = client.get_primary_keys(keys).await.unwrap();
    let keys = fetch(&mut client, info).await.unwrap();
    assert_eq!(keys.iter().map(RecordBatch::num_rows).sum::<usize>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_cancels_its_query() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let leaving = tokio::spawn(async move { ask(&mut client, ENDLESS).await });
    fixture.running(1).await;
    leaving.abort();
    fixture.running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_seen_and_cancelled_in_sql() {
    let fixture = serve(|builder| builder).await;
    let (mut ann, mut bob) = (fixture.login().await, fixture.login().await);
    let running = tokio::spawn(async move { ask(&mut ann, ENDLESS).await });
    fixture.running(1).await;
    let shown = ask(&mut bob, "SHOW giveway.queries").await.unwrap();
    assert!(
        text(&shown).contains("count(*) FROM numbers a"),
        "{}",
        text(&shown)
    );
    let id = number(&shown);
    let cancelled = ask(&mut bob, &format!("CANCEL QUERY {id}")).await.unwrap();
    assert!(text(&cancelled).contains("true"));
    refused(
        async { running.await.unwrap() },
        Code::Cancelled,
        "cancelled",
    )
    .await;
    let again = ask(&mut bob, &format!("SELECT giveway_cancel({id})"))
        .await
        .unwrap();
    assert!(text(&again).contains("false"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_background_cursors_lock_nobody_out() {
    const SLOTS: usize = 8;
    let engine = Engine::builder().workers(2).slots(SLOTS).build().unwrap();
    let fixture = serve_engine(engine, |builder| builder).await;
    let mut cursors = Vec::new();
    for _ in 0..SLOTS + 4 {
        let mut client = fixture.anonymous().await;
        client.set_header("giveway-tier", "background");
        cursors.push(unread(client, LARGE).await);
    }
    fixture.running(cursors.len()).await;
    let mut client = fixture.login().await;
    let one = soon("SELECT 1", ask(&mut client, "SELECT 1")).await;
    assert_eq!(number(&one.unwrap()), 1);
    let list = "SELECT count(*) FROM giveway.queries WHERE state = 'waiting for a slot'";
    let waiting = soon(list, ask(&mut client, list)).await.unwrap();
    assert_eq!(number(&waiting), 6, "a quarter of the slots is not theirs");
    let id = fixture.engine.running().remove(0).id;
    let cancel = format!("SELECT giveway_cancel({id})");
    let cancelled = soon(&cancel, ask(&mut client, &cancel)).await.unwrap();
    assert!(text(&cancelled).contains("true"));
    // Its slot goes to one of the background that waits.
    let is_handed_over = || {
        let queries = fixture.engine.running();
        let is_waiting = |query: &&QueryStatus| query.state == QueryState::WaitingForSlot;
        queries.iter().filter(is_waiting).count() == 5
    };
    wait(is_handed_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_statements_need_neither_a_slot_nor_memory() {
    const LIMIT: usize = 4 << 20;
    let engine = Engine::builder().workers(1).slots(1).memory_limit(LIMIT);
    let engine = engine.spill(std::env::temp_dir(), 0);
    let fixture = serve_engine(engine.build().unwrap(), |builder| builder).await;
    // What waits for its client is more than there is.
    let (_client, rows) = unread(fixture.login().await, LARGE).await;
    let is_full = wait(|| fixture.engine.stats().memory_bytes > LIMIT);
    soon("results are counted", is_full).await;
    let mut client = fixture.login().await;
    for control in [
        "SHOW giveway.queries",
        "SELECT state, count(*) FROM giveway.queries GROUP BY state ORDER BY state",
        "SET giveway.tier = 'background'",
        "SELECT giveway_cancel(id) FROM giveway.queries WHERE sql LIKE '%no such%'",
    ] {
        soon(control, ask(&mut client, control)).await.unwrap();
    }
    // What reads tables beside waits like any other query.
    let work = "SELECT count(*) FROM giveway.queries, numbers";
    let waiting = tokio::spawn({
        let mut client = fixture.login().await;
        async move { ask(&mut client, work).await }
    });
    fixture.running(2).await;
    let id = fixture.engine.running().remove(0).id;
    let cancel = format!("CANCEL QUERY {id}");
    soon(&cancel, ask(&mut client, &cancel)).await.unwrap();
    let rows = async { rows.try_collect::<Vec<_>>().await };
    refused(soon("its end", rows), Code::Cancelled, "cancelled").await;
    let count = soon(work, waiting).await.unwrap().unwrap();
    assert!(number(&count) >= 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recursive_queries_yield_and_can_be_cancelled() {
    let fixture = serve(|builder| builder).await;
    // A worker that never comes back would keep a test that fails from its end.
    std::mem::forget(fixture.engine.clone());
    for recursion in [RECURSION, JOINING_RECURSION] {
        // As many as there are workers, and more.
        let mut timed: Vec<_> = Vec::new();
        for _ in 0..3 {
            let mut client = fixture.anonymous().await;
            client.set_header("giveway-tier", "background");
            client.set_header("giveway-deadline", "2000");
            timed.push(tokio::spawn(
                async move { ask(&mut client, recursion).await },
            ));
        }
        wait(|| fixture.engine.running().len() > 1).await;
        let mut client = fixture.login().await;
        let one = soon("SELECT 1", ask(&mut client, "SELECT 1")).await;
        assert_eq!(number(&one.unwrap()), 1);
        for query in timed {
            let end = async { soon("its deadline", query).await.unwrap() };
            refused(end, Code::DeadlineExceeded, "deadline").await;
        }
        // By name, and because the client has gone.
        let leaving = unread(fixture.login().await, recursion).await;
        let named = unread(fixture.login().await, recursion).await;
        fixture.running(2).await;
        let id = fixture.engine.running().remove(1).id;
        let cancel = format!("CANCEL QUERY {id}");
        soon(&cancel, ask(&mut client, &cancel)).await.unwrap();
        let end = async { named.1.try_collect::<Vec<_>>().await };
        refused(soon("its end", end), Code::Cancelled, "cancelled").await;
        drop(leaving);
        soon("their end", fixture.running(0)).await;
        let count = "SELECT count(*) FROM numbers";
        let count = soon("workers", ask(&mut client, count)).await.unwrap();
        assert_eq!(number(&count), 10_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_logins_locks_nobody_out() {
    let fixture = serve(|builder| builder).await;
    let mut ann = fixture.login().await;
    let set = "SET giveway.tier = 'background'";
    ask(&mut ann, set).await.unwrap();
    let mut flood = fixture.anonymous().await;
    for _ in 0..10_050 {
        // As far as it gets.
        if flood.handshake("mallory", "").await.is_err() {
            break;
        }
    }
    let mut bob = fixture.anonymous().await;
    bob.handshake("bob", "").await.unwrap();
    assert_eq!(number(&ask(&mut bob, "SELECT 1").await.unwrap()), 1);
    let tier = ask(&mut ann, "SHOW giveway.tier").await.unwrap();
    assert!(text(&tier).contains("background"), "her session is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_a_result_may_have_equal_names() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let sql = "SELECT * FROM numbers a JOIN numbers b ON a.number = b.number \
               WHERE a.number = 17";
    let rows = ask(&mut client, sql).await.unwrap();
    let batch = rows.iter().find(|batch| batch.num_rows() > 0).unwrap();
    for column in [1, 3] {
        assert_eq!(batch.schema().field(column).name(), "name");
        let names = batch.column(column).as_string::<i64>();
        assert_eq!(names.value(0), "the number 17");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_have_the_schema_that_was_told() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.login().await;
    for column in [
        "arrow_cast(name, 'Dictionary(Int32, Utf8)')",
        "arrow_cast(name, 'Dictionary(Int8, LargeUtf8)')",
        "make_array(arrow_cast(name, 'Dictionary(Int32, Utf8)'))",
        "named_struct('name', name, 'number', number)",
        "make_array(name)",
        "arrow_cast(make_array(number), 'LargeList(Int64)')",
        "arrow_cast(name, 'BinaryView')",
        "arrow_cast('2026-11-23', 'Date32')",
    ] {
        let sql = format!("SELECT {column} AS c FROM numbers WHERE number = 1");
        let info = client.execute(sql.clone(), None).await.unwrap();
        let told = info.clone().try_decode_schema().unwrap();
        let rows = fetch(&mut client, info).await.unwrap();
        let batch = rows.iter().find(|batch| batch.num_rows() > 0).unwrap();
        assert_eq!(*batch.schema(), told, "{sql}");
        let prepared = client.prepare(sql.clone(), None).await.unwrap();
        let fields = prepared.dataset_schema().unwrap().fields();
        assert_eq!(fields[0].data_type(), told.field(0).data_type(), "{sql}");
        let texts = told.field(0).data_type().to_string();
        assert!(
            !texts.contains("View") && !texts.contains("Dictionary"),
            "{texts}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_keeps_others_out() {
    let fixture = serve(|builder| builder.password("ann", "secret")).await;
    let mut client = fixture.anonymous().await;
    refused(
        ask(&mut client, "SELECT 1"),
        Code::Unauthenticated,
        "log in first",
    )
    .await;
    let mut client = fixture.anonymous().await;
    assert!(client.handshake("ann", "guess").await.is_err());
    let mut client = fixture.anonymous().await;
    client.set_token("0123456789abcdef".to_owned());
    refused(
        ask(&mut client, "SELECT 1"),
        Code::Unauthenticated,
        "log in again",
    )
    .await;
    let mut client = fixture.anonymous().await;
    client.handshake("ann", "secret").await.unwrap();
    assert_eq!(number(&ask(&mut client, "SELECT 1").await.unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_for_background_work_raises_nothing() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (fixture, mut ann, mut reports) = two_logins(engine).await;
    let tier = ask(&mut reports, "SHOW giveway.tier").await.unwrap();
    assert!(text(&tier).contains("background"), "{}", text(&tier));
    let raised = ask(&mut reports, "SET giveway.tier = 'time_sensitive'");
    refused(raised, Code::InvalidArgument, "another user").await;
    let mut headed = reports.clone();
    headed.set_header("giveway-tier", "time_sensitive");
    let raised = ask(&mut headed, "SELECT 1");
    refused(raised, Code::InvalidArgument, "another user").await;
    ask(&mut reports, "SET giveway.weight = 7").await.unwrap();
    // It ends nobody's urgent query, and its own.
    let urgent = tokio::spawn(async move { ask(&mut ann, ENDLESS).await });
    fixture.running(1).await;
    let QueryStatus { id, .. } = fixture.engine.running().remove(0);
    let cancel = format!("SELECT giveway_cancel({id})");
    let said = ask(&mut reports, &cancel).await.unwrap();
    assert!(text(&said).contains("false"), "{}", text(&said));
    // Not at once: what said so may be listed until its client has all of it.
    fixture.running(1).await;
    assert!(fixture.engine.cancel(id));
    assert!(urgent.await.unwrap().is_err());
}

/// A server with two logins: one for everything, and one for work in the background.
async fn two_logins(engine: Engine) -> (Fixture, Client, Client) {
    let fixture = serve_engine(engine, |builder| {
        let builder = builder.password("ann", "secret");
        builder.background_password("reports", "other")
    })
    .await;
    let mut ann = fixture.anonymous().await;
    ann.handshake("ann", "secret").await.unwrap();
    let mut reports = fixture.anonymous().await;
    reports.handshake("reports", "other").await.unwrap();
    (fixture, ann, reports)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_for_background_work_replaces_and_drops_nothing() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (_fixture, mut ann, mut reports) = two_logins(engine).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.csv");
    std::fs::write(&file, "a\n1\n").unwrap();
    ask(&mut ann, "CREATE VIEW mine AS SELECT 1 AS one")
        .await
        .unwrap();
    for statement in [
        "DROP TABLE numbers",
        "DROP TABLE IF EXISTS numbers",
        "DROP VIEW mine",
        "CREATE OR REPLACE TABLE numbers AS SELECT 666 AS number",
        "CREATE OR REPLACE VIEW mine AS SELECT 2 AS one",
        &format!(
            "CREATE OR REPLACE EXTERNAL TABLE numbers STORED AS CSV LOCATION '{}'",
            file.display()
        ),
        &format!("COPY (SELECT 2 AS a) TO '{}'", file.display()),
        &format!(
            "EXPLAIN ANALYZE COPY (SELECT 2 AS a) TO '{}'",
            file.display()
        ),
    ] {
        let asked = ask(&mut reports, statement);
        refused(asked, Code::PermissionDenied, "another user").await;
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\n1\n");
    // It adds.
    let report = "CREATE TABLE report AS SELECT count(*) AS n FROM numbers";
    ask(&mut reports, report).await.unwrap();
    let count = ask(&mut ann, "SELECT n FROM report").await.unwrap();
    assert_eq!(number(&count), 10_000);
    ask(&mut ann, "DROP TABLE report").await.unwrap();
    ask(&mut ann, "CREATE OR REPLACE VIEW mine AS SELECT 2 AS one")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_changes_the_list_of_queries_or_drops_a_schema() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (_fixture, mut ann, mut reports) = two_logins(engine).await;
    for client in [&mut ann, &mut reports] {
        for statement in [
            "DROP VIEW giveway.queries",
            "DROP TABLE giveway.queries",
            "CREATE OR REPLACE VIEW giveway.queries AS SELECT 1 AS id",
            "CREATE OR REPLACE TABLE giveway.queries AS SELECT 1 AS id",
            "CREATE VIEW giveway.mine AS SELECT 1 AS id",
            "CREATE TABLE giveway.mine AS SELECT 1 AS id",
            "DROP SCHEMA giveway CASCADE",
            "DROP SCHEMA public CASCADE",
            "DROP FUNCTION giveway_cancel",
        ] {
            assert!(ask(client, statement).await.is_err(), "{statement}");
        }
        let dropped = ask(client, "DROP SCHEMA public CASCADE");
        refused(dropped, Code::PermissionDenied, "DROP SCHEMA is refused").await;
        let columns = "SELECT id, tier, progress, ran_s, sql FROM giveway.queries";
        ask(client, columns).await.unwrap();
        ask(client, "SELECT giveway_cancel(0)").await.unwrap();
        ask(client, "SELECT count(*) FROM numbers").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cancels_is_in_no_view() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (fixture, mut ann, mut reports) = two_logins(engine).await;
    let dir = tempfile::tempdir().unwrap();
    let external = format!(
        "CREATE EXTERNAL TABLE trap (a BIGINT, c BOOLEAN DEFAULT giveway_cancel(1)) \
         STORED AS CSV LOCATION '{}/'",
        dir.path().display()
    );
    for client in [&mut ann, &mut reports] {
        for statement in [
            "CREATE VIEW trap AS SELECT value AS id, giveway_cancel(value) AS c FROM range(1, 60)",
            "CREATE VIEW trap AS SELECT * FROM (SELECT 1 AS a) WHERE giveway_cancel(a)",
            "CREATE VIEW trap AS SELECT 1 AS a WHERE EXISTS \
             (SELECT 1 FROM range(1, 60) WHERE giveway_cancel(value))",
            "CREATE VIEW trap AS WITH c AS (SELECT giveway_cancel(1)) SELECT * FROM c",
            &external,
        ] {
            let asked = ask(client, statement);
            refused(asked, Code::PermissionDenied, "giveway_cancel").await;
        }
    }
    drop(fixture);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_are_for_those_who_have_the_rights() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let (fixture, mut ann, mut reports) = two_logins(engine).await;
    let (mut asking, mut reporting) = (ann.clone(), reports.clone());
    let running = [
        tokio::spawn(async move { ask(&mut asking, ENDLESS).await }),
        tokio::spawn(async move { ask(&mut reporting, ENDLESS).await }),
    ];
    fixture.running(2).await;
    let list = "SELECT tier, sql FROM giveway.queries";
    let seen = text(&ask(&mut ann, list).await.unwrap());
    assert_eq!(seen.matches("FROM numbers a").count(), 2, "{seen}");
    let seen = text(&ask(&mut reports, list).await.unwrap());
    assert_eq!(seen.matches("FROM numbers a").count(), 1, "{seen}");
    assert!(
        seen.contains("time_sensitive"),
        "it sees that there are others"
    );
    for query in fixture.engine.running() {
        fixture.engine.cancel(query.id);
    }
    for query in running {
        assert!(query.await.unwrap().is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_computes_is_no_control_statement() {
    let engine = Engine::builder().workers(1).slots(1).build().unwrap();
    let fixture = serve_engine(engine, |builder| builder).await;
    let mut client = fixture.login().await;
    let endless = tokio::spawn({
        let mut client = client.clone();
        async move { ask(&mut client, ENDLESS).await }
    });
    fixture.running(1).await;
    for work in [
        "SELECT giveway_cancel(0), levenshtein(repeat('a', 9), repeat('b', 9))",
        "SELECT giveway_cancel(levenshtein(sql, 'x')) FROM giveway.queries",
        "SELECT repeat(sql, 9) FROM giveway.queries",
        "SELECT count(*) FROM giveway.queries WHERE repeat(sql, 9) = 'x'",
    ] {
        let waiting = tokio::spawn({
            let mut client = client.clone();
            async move { ask(&mut client, work).await }
        });
        wait(|| waiting.is_finished() || fixture.engine.running().len() == 2).await;
        assert!(!waiting.is_finished(), "{work}");
        let id = fixture.engine.running().remove(1).id;
        let cancel = format!("CANCEL QUERY {id}");
        soon(&cancel, ask(&mut client, &cancel)).await.unwrap();
        assert!(waiting.await.unwrap().is_err());
    }
    endless.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_ticket_keeps_is_counted() {
    let engine = Engine::builder().workers(2).memory_limit(100 << 20);
    let fixture = serve_engine(engine.build().unwrap(), |builder| builder).await;
    let mut client = fixture.login().await;
    client.set_header("giveway-tier", "background");
    let large = "SELECT repeat('x', 20000000)".to_owned();
    let mut infos = vec![client.execute(large.clone(), None).await.unwrap()];
    let held = fixture.engine.stats().memory_bytes;
    assert!(held >= 20_000_000, "{held} bytes");
    let error = loop {
        match client.execute(large.clone(), None).await {
            Ok(info) => infos.push(info),
            Err(error) => break error.to_string(),
        }
        assert!(infos.len() <= 3, "three quarters are for the background");
    };
    assert!(error.contains("background queries"), "{error}");
    for info in infos {
        let asked = CancelFlightInfoRequest::new(info).encode_to_vec();
        let cancel = Request::new(Action::new("CancelFlightInfo", asked));
        client.do_action(cancel).await.unwrap();
    }
    assert_eq!(fixture.engine.stats().memory_bytes, 0);
    let length = "SELECT CAST(length(repeat('x', 20000000)) AS BIGINT)";
    assert_eq!(number(&ask(&mut client, length).await.unwrap()), 20_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_without_an_end_are_refused() {
    let fixture = serve(|builder| builder).await;
    let mut client = fixture.login().await;
    let asked = ActionCreatePreparedStatementRequest {
        query: "SELECT count(*) FROM numbers WHERE number < $1".to_owned(),
        transaction_id: None,
    };
    let action = Action::new("CreatePreparedStatement", asked.as_any().encode_to_vec());
    let mut answers = client.do_action(Request::new(action)).await.unwrap();
    let body = answers.message().await.unwrap().unwrap().body;
    let prepared: ActionCreatePreparedStatementResult =
        Any::decode(body).unwrap().unpack().unwrap().unwrap();
    let command = CommandPreparedStatementQuery {
        prepared_statement_handle: prepared.prepared_statement_handle,
    };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let schema = Schema::new(vec![Field::new("$1", DataType::Int64, true)]);
    let empty = RecordBatch::new_empty(Arc::new(schema));
    let schema = empty.schema();
    let mut messages = batches_to_flight_data(&schema, vec![empty]).unwrap();
    messages[0].flight_descriptor = Some(descriptor);
    let last = messages.last().unwrap().clone();
    // Nothing is bound by any of them.
    let large = last.with_app_metadata(vec![0; 1 << 20]);
    messages.extend(std::iter::repeat_n(large, 40));
    let mut request = Request::new(futures_util::stream::iter(messages));
    let token = format!("Bearer {}", client.token().unwrap());
    let metadata = request.metadata_mut();
    metadata.insert("authorization", token.parse().unwrap());
    let answer = client.inner_mut().do_put(request).await;
    let answer = match answer {
        Ok(answer) => answer.into_inner().message().await.map(|_| ()),
        Err(status) => Err(status),
    };
    let status = answer.expect_err("40 MiB of parameters");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("16 MiB"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_run_for_servers_of_the_cluster_only() {
    let fixture = serve(|builder| {
        let builder = builder.password("ann", "secret").worker(true);
        builder.cluster_password("servers", "other")
    })
    .await;
    for (user, password, code) in [
        ("ann", "secret", Code::PermissionDenied),
        ("servers", "other", Code::InvalidArgument),
    ] {
        let mut client = fixture.anonymous().await;
        client.handshake(user, password).await.unwrap();
        let mut request = Request::new(Action::new("giveway.run", "no part".to_owned()));
        let token = format!("Bearer {}", client.token().unwrap());
        request
            .metadata_mut()
            .insert("authorization", token.parse().unwrap());
        let status = client.inner_mut().do_action(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{user}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_strangers_are_not_read() {
    let fixture = serve(|builder| builder.password("ann", "secret")).await;
    // Too large for any client: who has logged in is told of that.
    let large = "x".repeat(17 << 20);
    let mut stranger = fixture.anonymous().await;
    let asked = stranger.execute(large.clone(), None);
    refused(asked, Code::Unauthenticated, "log in").await;
    let mut ann = fixture.anonymous().await;
    ann.handshake("ann", "secret").await.unwrap();
    refused(ann.execute(large, None), Code::OutOfRange, "too large").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_are_closed() {
    let fixture = serve(|builder| builder.keepalive(Duration::from_millis(500))).await;
    let address = fixture.url.strip_prefix("http://").unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"PRI * HTTP").await.unwrap();
    for stream in [&mut silent, &mut half] {
        let read = soon("the end of a connection", stream.read(&mut [0; 1])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    let mut client = fixture.anonymous().await;
    assert_eq!(number(&ask(&mut client, "SELECT 1").await.unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_wait_are_bounded() {
    let engine = Engine::builder().workers(1).slots(1).waiting(2);
    let fixture = serve_engine(engine.build().unwrap(), |builder| builder).await;
    let mut running = Vec::new();
    for count in 1..=3 {
        let mut client = fixture.anonymous().await;
        running.push(tokio::spawn(async move { ask(&mut client, ENDLESS).await }));
        fixture.running(count).await;
    }
    let mut client = fixture.anonymous().await;
    let one_more = soon("a refusal", ask(&mut client, ENDLESS));
    refused(one_more, Code::Unavailable, "2 queries are waiting").await;
    // What ends them waits for nothing.
    let cancel = "SELECT giveway_cancel(id) FROM giveway.queries";
    soon(cancel, ask(&mut client, cancel)).await.unwrap();
    for one in running {
        assert!(soon("the end of one", one).await.unwrap().is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_password_only_this_machine_is_served() {
    let builder = Server::builder(session());
    let error = builder
        .bind("0.0.0.0:0".parse().unwrap())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("ask for a password"), "{error}");
    let builder = Server::builder(session()).cluster_password("servers", "other");
    let error = builder.bind("127.0.0.1:0".parse().unwrap()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("ask for a password"), "{error}");
    let builder = Server::builder(session()).password("ann", "secret");
    builder.bind("0.0.0.0:0".parse().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_tells_its_clients() {
    let mut fixture = serve(|builder| builder).await;
    let mut client = fixture.anonymous().await;
    let running = tokio::spawn(async move { ask(&mut client, ENDLESS).await });
    fixture.running(1).await;
    fixture.stop.take().unwrap().send(()).unwrap();
    refused(
        async { running.await.unwrap() },
        Code::Cancelled,
        "cancelled",
    )
    .await;
    fixture.serving.await.unwrap().unwrap();
}

/// Passes bytes between a client and a server, until it is told to be silent; both
/// connections stay open then, as when a machine has lost its power.
async fn relay(to: String, silent: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(to.trim_start_matches("http://"))
            .await
            .unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        for (mut from, mut to) in [(from_client, to_server), (from_server, to_client)] {
            let silent = Arc::clone(&silent);
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from.read(&mut bytes).await {
                    if !silent.load(Relaxed) && to.write_all(&bytes[..length]).await.is_err() {
                        break;
                    }
                }
                // What was passed on stays open.
                std::future::pending::<()>().await;
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_falls_silent_cancels_its_query() {
    let fixture = serve(|builder| builder.keepalive(Duration::from_millis(500))).await;
    let silent = Arc::new(AtomicBool::new(false));
    let url = relay(fixture.url.clone(), Arc::clone(&silent)).await;
    let mut client = connect(&url).await;
    let _asking = tokio::spawn(async move { ask(&mut client, ENDLESS).await });
    fixture.running(1).await;
    // Asked, it answers.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(fixture.engine.running().len(), 1);
    silent.store(true, Relaxed);
    fixture.running(0).await;
}
