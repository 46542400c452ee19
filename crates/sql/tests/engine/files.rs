//! Tables that are files: what they hold, and how streams share them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, LargeStringArray, RecordBatch, StringArray,
};
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_plan::ExecutionPlan;
use futures_util::StreamExt;
use giveway_sql::{Engine, Session, Stock, files};

use crate::{ask, quiet, rows, session};

#[tokio::test]
async fn files_are_tables() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (format, name) in [("PARQUET", "orders.parquet"), ("CSV", "orders.csv")] {
        let copied = ask(
            &session,
            &format!("COPY orders TO '{}' STORED AS {format}", path(name)),
        )
        .await;
        assert_eq!(copied, ["| 15000 |"]);
    }
    session
        .register_parquet("p", &path("orders.parquet"), Default::default())
        .await
        .unwrap();
    session
        .register_csv("c", &path("orders.csv"), Default::default())
        .await
        .unwrap();
    let sql =
        "SELECT o_orderpriority, count(*), sum(o_totalprice) FROM orders GROUP BY o_orderpriority";
    let expected = ask(&session, sql).await;
    assert_eq!(expected.len(), 5);
    assert_eq!(ask(&session, &sql.replace("orders", "p")).await, expected);
    let count = "SELECT o_orderpriority, count(*) FROM orders GROUP BY o_orderpriority";
    assert_eq!(
        ask(&session, &count.replace("orders", "c")).await,
        ask(&session, count).await
    );
    let missing = session
        .register_parquet("q", &path("none.parquet"), Default::default())
        .await;
    assert!(missing.is_err() || session.sql("SELECT x FROM q").await.is_err());
    quiet(&engine).await;
}

#[tokio::test]
async fn json_lines_and_compressed_files_are_tables() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let sql = "SELECT n_nationkey, n_name FROM nation";
    for (name, options) in [
        ("lines.ndjson", "STORED AS JSON"),
        (
            "packed.csv.gz",
            "STORED AS CSV OPTIONS ('format.compression' 'gzip', 'format.has_header' 'true')",
        ),
        (
            "zipped.jsonl.zst",
            "STORED AS JSON OPTIONS ('format.compression' 'zstd')",
        ),
    ] {
        let copy = format!("COPY ({sql}) TO '{}' {options}", path(name).display());
        assert_eq!(ask(&session, &copy).await, ["| 25 |"]);
        files::register(&session, "read", &path(name))
            .await
            .unwrap();
        let read = "SELECT sum(n_nationkey), max(n_name) FROM read";
        assert_eq!(ask(&session, read).await, ["| 300 | VIETNAM |"], "{name}");
        session.context().deregister_table("read").unwrap();
    }
    let bytes = std::fs::read(path("packed.csv.gz")).unwrap();
    assert_eq!(bytes[..2], [0x1f, 0x8b], "it is compressed");
    let found = files::register_all(&session, dir.path()).await.unwrap();
    assert_eq!(found.names, ["lines", "packed", "zipped"]);
    quiet(&engine).await;
}

#[tokio::test]
async fn rows_are_added_to_a_directory_of_parquet_files() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let dir = tempfile::tempdir().unwrap();
    let location = dir.path().join("few");
    let create = format!(
        "CREATE EXTERNAL TABLE few (n_nationkey BIGINT, n_name VARCHAR) STORED AS PARQUET \
         LOCATION '{}/'",
        location.display()
    );
    std::fs::create_dir(&location).unwrap();
    ask(&session, &create).await;
    for region in 0..2 {
        let insert = format!(
            "INSERT INTO few SELECT n_nationkey, n_name FROM nation WHERE n_regionkey = {region}"
        );
        assert_eq!(ask(&session, &insert).await, ["| 5 |"]);
    }
    assert_eq!(ask(&session, "SELECT count(*) FROM few").await, ["| 10 |"]);
    let other = engine.session();
    files::register(&other, "few", &location).await.unwrap();
    assert_eq!(ask(&other, "SELECT count(*) FROM few").await, ["| 10 |"]);
    quiet(&engine).await;
}

/// A directory with one file, of this name.
fn directory(parent: &Path, name: &str, rows: &str) -> PathBuf {
    let dir = parent.join(format!("of {name}"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join(name), rows).unwrap();
    dir
}

/// The files of a directory, also those below it.
fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<PathBuf> = entries
        .flat_map(|entry| match entry.path() {
            path if path.is_dir() => files_in(&path),
            path => vec![path],
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_table_has_the_files_that_are_there_when_it_is_asked() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = engine.session();
    let parent = tempfile::tempdir().unwrap();
    let dir = directory(parent.path(), "one.json", "{\"a\": 1}\n");
    files::register(&session, "t", &dir).await.unwrap();
    let count = "SELECT count(*) FROM t";
    assert_eq!(ask(&session, count).await, ["| 1 |"]);
    std::fs::write(dir.join("two.json"), "{\"a\": 2}\n{\"a\": 3}\n").unwrap();
    assert_eq!(ask(&session, count).await, ["| 3 |"], "a file has come");
    std::fs::remove_file(dir.join("one.json")).unwrap();
    assert_eq!(ask(&session, count).await, ["| 2 |"], "a file has gone");
    // Whoever asks while rows are being added.
    let insert = session.sql("INSERT INTO t VALUES (4)").await.unwrap();
    assert_eq!(ask(&session, count).await, ["| 2 |"]);
    insert.collect().await.unwrap();
    assert_eq!(ask(&session, count).await, ["| 3 |"], "rows have come");
    quiet(&engine).await;
}

#[tokio::test]
async fn added_rows_are_read_again_whatever_the_files_are_called() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let parent = tempfile::tempdir().unwrap();
    for (name, rows) in [
        ("x.csv", "a,b\n1,old\n"),
        ("x.tsv", "a\tb\n1\told\n"),
        ("x.json", "{\"a\": 1, \"b\": \"old\"}\n"),
        ("x.jsonl", "{\"a\": 1, \"b\": \"old\"}\n"),
        ("x.ndjson", "{\"a\": 1, \"b\": \"old\"}\n"),
        ("x.csv.gz", ""),
        ("x.jsonl.zst", ""),
    ] {
        let dir = directory(parent.path(), name, rows);
        let session = engine.session();
        if let Some((kind, packed)) = [("CSV", "gz"), ("JSON", "zst")]
            .into_iter()
            .find(|(_, packed)| name.ends_with(packed))
        {
            let compression = packed.replace("gz", "gzip").replace("zst", "zstd");
            let header = if kind == "CSV" {
                ", 'format.has_header' 'true'"
            } else {
                ""
            };
            let copy = format!(
                "COPY (SELECT 1 AS a, 'old' AS b) TO '{}' STORED AS {kind} \
                 OPTIONS ('format.compression' '{compression}'{header})",
                dir.join(name).display()
            );
            std::fs::remove_file(dir.join(name)).unwrap();
            ask(&session, &copy).await;
        }
        files::register(&session, "t", &dir).await.unwrap();
        let insert = "INSERT INTO t VALUES (10, 'new'), (11, 'a\tb,\"c\"')";
        assert_eq!(ask(&session, insert).await, ["| 2 |"], "{name}");
        let read = "SELECT count(*), sum(a), max(b) FROM t";
        assert_eq!(ask(&session, read).await, ["| 3 | 22 | old |"], "{name}");
        // As after a restart.
        let later = Engine::builder().workers(1).build().unwrap().session();
        files::register(&later, "t", &dir).await.unwrap();
        assert_eq!(ask(&later, read).await, ["| 3 | 22 | old |"], "{name}");
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn added_rows_have_the_types_of_the_files_that_are_there() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let texts = || ["x", "y"].into_iter();
    let short: ArrayRef = Arc::new(StringArray::from_iter_values(texts()));
    let long: ArrayRef = Arc::new(LargeStringArray::from_iter_values(texts()));
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values(texts()));
    for (name, column) in [("short", short), ("long", long), ("bytes", bytes)] {
        let dir = directory(parent.path(), name, "");
        std::fs::remove_file(dir.join(name)).unwrap();
        let batch = RecordBatch::try_from_iter([("b", column)]).unwrap();
        write_groups(&dir.join("1.parquet"), &batch, 10);
        let session = engine.session();
        files::register(&session, "t", &dir).await.unwrap();
        for _ in 0..2 {
            let insert = "INSERT INTO t SELECT arrow_cast('z', 'BinaryView')";
            let insert = match name {
                "bytes" => insert,
                _ => "INSERT INTO t VALUES ('z')",
            };
            assert_eq!(ask(&session, insert).await, ["| 1 |"], "{name}");
        }
        let later = Engine::builder().workers(1).build().unwrap().session();
        let read = "SELECT count(*) FROM t WHERE b = 'z'";
        files::register(&later, "t", &dir).await.unwrap();
        assert_eq!(ask(&later, read).await, ["| 2 |"], "{name}");
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn rows_are_added_all_together_or_not_at_all() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let parent = tempfile::tempdir().unwrap();
    for (name, rows) in [
        ("x.csv", "a,b\n1,old\n"),
        ("x.json", "{\"a\": 1, \"b\": \"old\"}\n"),
    ] {
        let dir = directory(parent.path(), name, rows);
        let session = engine.session();
        files::register(&session, "t", &dir).await.unwrap();
        // Many files, if it were for DataFusion.
        let set = "SET datafusion.execution.soft_max_rows_per_output_file = 10000";
        ask(&session, set).await;
        let insert = "INSERT INTO t SELECT 1 / (99999 - value), 'new' FROM range(1, 100000)";
        let insert = session.sql(insert).await.unwrap();
        let error = insert.collect().await.unwrap_err().to_string();
        assert!(error.contains("Divide by zero"), "{error}");
        assert_eq!(files_in(&dir), [dir.join(name)], "it has failed");
        // Somebody stops to wait.
        let endless = "INSERT INTO t SELECT value, 'new' FROM range(1, 1000000000000)";
        let running = session.sql(endless).await.unwrap().submit().unwrap();
        let is_writing = || {
            let is_staged = |path: &PathBuf| *path != dir.join(name);
            files_in(&dir).iter().any(is_staged)
        };
        for _ in 0..1000 {
            if is_writing() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(running);
        quiet(&engine).await;
        let count = "SELECT count(*) FROM t";
        assert_eq!(ask(&session, count).await, ["| 1 |"], "it was cancelled");
        let insert = "INSERT INTO t SELECT value, 'new' FROM range(1, 100000)";
        assert_eq!(ask(&session, insert).await, ["| 99999 |"]);
        assert_eq!(ask(&session, count).await, ["| 100000 |"]);
        let tables = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
        let tables = tables.filter(|entry| entry.path().is_file()).count();
        assert_eq!(tables, 2, "one file is put in place at once");
        let staged = std::fs::read_dir(dir.join(".giveway")).unwrap();
        assert_eq!(staged.count(), 0, "nothing is left");
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn rows_are_added_to_partitions_and_to_files_of_any_name() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = session(&engine);
    let parent = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("parts", "STORED AS PARQUET PARTITIONED BY (r)"),
        ("any", "STORED AS CSV"),
    ] {
        let dir = parent.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let create = format!(
            "CREATE EXTERNAL TABLE {name} (n VARCHAR, r BIGINT) {options} LOCATION '{}/'",
            dir.display()
        );
        ask(&session, &create).await;
        let insert = format!("INSERT INTO {name} SELECT n_name, n_regionkey FROM nation");
        assert_eq!(ask(&session, &insert).await, ["| 25 |"], "{name}");
        let read = format!("SELECT count(*), max(n), sum(r) FROM {name}");
        assert_eq!(
            ask(&session, &read).await,
            ["| 25 | VIETNAM | 50 |"],
            "{name}"
        );
    }
    quiet(&engine).await;
}

#[tokio::test]
async fn text_with_newlines_inside_of_quotes_is_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = "a,b\n".to_owned();
    for row in 0..3000 {
        rows += &format!("{},\"{}\"\n", 10_000_000 + row, "7,evil\n".repeat(30));
    }
    std::fs::write(dir.path().join("nl.csv"), &rows).unwrap();
    std::fs::write(
        dir.path().join("tabs.tsv"),
        rows.replace(",\"", "\t\"").replace("a,b", "a\tb"),
    )
    .unwrap();
    let engine = Engine::builder().workers(2).partitions(8).build().unwrap();
    let session = engine.session();
    let set = "SET datafusion.optimizer.repartition_file_min_size = 1";
    ask(&session, set).await;
    let found = files::register_all(&session, dir.path()).await.unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE external STORED AS CSV LOCATION '{}'",
        dir.path().join("nl.csv").display()
    );
    ask(&session, &create).await;
    for table in found.names.iter().map(String::as_str).chain(["external"]) {
        let sql = format!("SELECT CAST(a AS BIGINT) / 10000000, count(*) FROM {table} GROUP BY 1");
        assert_eq!(ask(&session, &sql).await, ["| 1 | 3000 |"], "{table}");
    }
    quiet(&engine).await;
}

/// Rows of a morsel: a batch, and half a kilobyte each, so that it is large enough.
const MORSEL_ROWS: usize = 8192;
const ROWS: usize = 4 * MORSEL_ROWS;
/// Parts of text are as long as each other, so those with short numbers have some rows
/// more.
const MORE_ROWS: usize = 64;

fn wide() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let fillers = (0..ROWS).map(|row| format!("row {row:0>516}"));
    let fillers: ArrayRef = Arc::new(StringArray::from_iter_values(fillers));
    RecordBatch::try_from_iter([("number", numbers), ("filler", fillers)]).unwrap()
}

/// Rows as Parquet, in row groups of so many.
fn write_groups(path: &Path, batch: &RecordBatch, rows: usize) {
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(rows))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// The same rows as Parquet, in four row groups, and as CSV.
fn write_wide(dir: &Path) {
    write_groups(&dir.join("groups.parquet"), &wide(), MORSEL_ROWS);
    let file = std::fs::File::create(dir.join("lines.csv")).unwrap();
    csv::Writer::new(file).write(&wide()).unwrap();
}

/// A function of numbers that stays with the first one until all but a morsel of the
/// others have been seen, or for some seconds; counts what came too late for that.
fn wait_for_others(session: &Session) -> Arc<AtomicUsize> {
    let seen = AtomicUsize::new(0);
    let missing = Arc::new(AtomicUsize::new(usize::MAX));
    let function = {
        let missing = Arc::clone(&missing);
        move |arguments: &[ColumnarValue]| {
            let ColumnarValue::Array(numbers) = &arguments[0] else {
                panic!("a column is an array")
            };
            let is_first = numbers.as_primitive::<Int64Type>().values().contains(&0);
            if !is_first {
                seen.fetch_add(numbers.len(), Relaxed);
                return Ok(arguments[0].clone());
            }
            let all = ROWS - MORSEL_ROWS.max(numbers.len()) - MORE_ROWS;
            let begun = Instant::now();
            while seen.load(Relaxed) < all && begun.elapsed() < Duration::from_secs(10) {
                std::thread::yield_now();
            }
            missing.store(all.saturating_sub(seen.load(Relaxed)), Relaxed);
            Ok(arguments[0].clone())
        }
    };
    session.context().register_udf(create_udf(
        "wait_for_others",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(function),
    ));
    missing
}

#[tokio::test]
async fn a_slow_lane_keeps_a_morsel_and_not_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    write_wide(dir.path());
    for name in ["groups.parquet", "lines.csv"] {
        // Two streams: DataFusion divides the file in two.
        let engine = Engine::builder().workers(2).partitions(2).build().unwrap();
        let session = engine.session();
        let path = dir.path().join(name);
        match name {
            // Whoever made it says that no line is inside of quotes.
            "lines.csv" => {
                let create = format!(
                    "CREATE EXTERNAL TABLE wide STORED AS CSV LOCATION '{}' \
                     OPTIONS ('format.newlines_in_values' 'false')",
                    path.display()
                );
                ask(&session, &create).await;
            }
            _ => files::register(&session, "wide", &path).await.unwrap(),
        }
        let missing = wait_for_others(&session);
        let sql = "SELECT sum(wait_for_others(number)), max(octet_length(filler)) FROM wide";
        let sum = ROWS * (ROWS - 1) / 2;
        assert_eq!(ask(&session, sql).await, [format!("| {sum} | 520 |")]);
        assert_eq!(missing.load(Relaxed), 0, "rows of {name} that were kept");
        quiet(&engine).await;
    }
}

#[tokio::test]
async fn what_an_unread_scan_holds_is_bounded() {
    const LIMIT: usize = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.parquet");
    // A row group is 16 MiB of text, and is read at once.
    write_groups(&path, &wide(), ROWS);
    let engine = Engine::builder().workers(1).memory_limit(LIMIT);
    let engine = engine.spill(std::env::temp_dir(), 0).build().unwrap();
    let session = engine.session();
    files::register(&session, "wide", &path).await.unwrap();
    let mut unread = Vec::new();
    for _ in 0..5 {
        let query = session.sql("SELECT * FROM wide").await.unwrap();
        let mut stream = query.submit().unwrap().stream();
        let first = tokio::time::timeout(Duration::from_secs(5), stream.next()).await;
        // Who finds none left is refused, or waits.
        if let Ok(Some(Ok(_))) = first {
            unread.push(stream);
        }
    }
    let held = unread[0].status().memory_bytes;
    assert!(held >= 16 << 20, "{held} bytes counted of a row group");
    assert!(unread.len() <= 3, "{} have read theirs", unread.len());
    let held = engine.stats().memory_bytes;
    assert!(held <= LIMIT + (4 << 20), "{held} bytes");
    drop(unread);
    quiet(&engine).await;
}

#[tokio::test]
async fn morsels_have_what_stock_datafusion_reads() {
    let dir = tempfile::tempdir().unwrap();
    write_wide(dir.path());
    let engine = Engine::builder().workers(2).build().unwrap();
    let stock = Stock::new(2).unwrap();
    let session = engine.session();
    let found = files::register_all(&session, dir.path()).await.unwrap();
    assert_eq!(found.names, ["groups", "lines"]);
    for table in found.names {
        for sql in [
            "SELECT count(*), sum(number), max(filler) FROM t",
            // Pruned but for one row group.
            "SELECT count(*), max(filler) FROM t WHERE number BETWEEN 9000 AND 9999",
            "SELECT count(*) FROM t WHERE number < 0",
            "SELECT count(*) FROM (SELECT number, filler FROM t LIMIT 20000)",
        ] {
            let sql = sql.replace(" t", &format!(" {table}"));
            let plan = || async { session.sql(&sql).await.unwrap() };
            let expected = stock.collect(plan().await).await.unwrap();
            let got = plan().await.collect().await.unwrap();
            assert_eq!(rows(&got), rows(&expected), "{sql}");
        }
    }
    quiet(&engine).await;
}

/// Rows with keys in order, so that row groups have bounds: some of them NULL.
fn keyed(range: std::ops::Range<i64>) -> RecordBatch {
    let key = |row: i64| (row % 1000 != 7).then_some(row);
    let numbers: ArrayRef = Arc::new(range.clone().map(key).collect::<Int64Array>());
    let words = range.map(|row| key(row).map(|row| format!("w{row:06}")));
    let words: ArrayRef = Arc::new(words.collect::<StringArray>());
    RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
}

/// A file of ten row groups, the same rows in memory, and what build sides have: keys of one
/// row group, and some of all.
async fn keys(engine: &Engine, dir: &Path) -> Session {
    let all = keyed(0..10_000);
    let path = dir.join("all.parquet");
    write_groups(&path, &all, 1000);
    let session = engine.session();
    files::register(&session, "big", &path).await.unwrap();
    let spread = (0..10).map(|group| keyed(group * 1000 + 500..group * 1000 + 501));
    for (name, batches) in [
        ("plain", vec![all]),
        ("few", vec![keyed(4000..4020)]),
        ("spread", spread.collect()),
    ] {
        let schema = batches[0].schema();
        session.register_batches(name, schema, batches).unwrap();
    }
    session
}

/// The rows that a plan's scans of files have read.
fn rows_read(plan: &Arc<dyn ExecutionPlan>) -> usize {
    match plan.is::<DataSourceExec>() {
        true => plan.metrics().and_then(|metrics| metrics.output_rows()),
        false => Some(plan.children().into_iter().map(rows_read).sum()),
    }
    .unwrap_or(0)
}

#[tokio::test]
async fn a_scan_skips_what_a_finished_build_cannot_match() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::builder().workers(2).build().unwrap();
    let session = keys(&engine, dir.path()).await;
    // How many row groups of the file are read.
    let cases = [
        (
            1,
            "SELECT count(*) FROM few JOIN big ON few.number = big.number",
        ),
        (
            1,
            "SELECT count(*) FROM few JOIN big ON few.word = big.word",
        ),
        (
            1,
            "SELECT count(*) FROM few JOIN big ON few.number + 3000 = big.number",
        ),
        (
            1,
            "SELECT count(*), count(big.number) FROM few LEFT JOIN big USING (number)",
        ),
        (
            1,
            "SELECT count(*) FROM big WHERE number IN (SELECT number FROM few)",
        ),
        (
            1,
            "SELECT count(*) FROM few WHERE NOT EXISTS (SELECT * FROM big WHERE word = few.word)",
        ),
        // Keys of all row groups.
        (
            10,
            "SELECT count(*) FROM spread JOIN big ON spread.number = big.number",
        ),
        // Nothing is built, so nothing is read.
        (
            0,
            "SELECT count(*) FROM big WHERE number IN (SELECT number FROM few WHERE number < 0)",
        ),
        (
            0,
            "SELECT count(*) FROM big WHERE number IN (SELECT number FROM few WHERE word IS NULL)",
        ),
        // Rows without a partner come out.
        (
            10,
            "SELECT count(*), count(few.number) FROM few RIGHT JOIN big USING (number)",
        ),
        (
            10,
            "SELECT count(*) FROM big WHERE number NOT IN (SELECT number FROM few)",
        ),
        // NULL equals NULL, which has no bounds.
        (
            10,
            "SELECT count(*) FROM few JOIN big ON few.number IS NOT DISTINCT FROM big.number",
        ),
    ];
    // The build side in one table, and in one for each partition.
    for rows_of_one_table in ["1000000", "0"] {
        for limit in ["", "_rows"] {
            let set = format!(
                "SET datafusion.optimizer.hash_join_single_partition_threshold{limit} = \
                 {rows_of_one_table}"
            );
            assert!(ask(&session, &set).await.is_empty());
        }
        for (groups, sql) in cases {
            let plain = ask(&session, &sql.replace("big", "plain")).await;
            let query = session.sql(sql).await.unwrap();
            let plan = Arc::clone(query.plan());
            let got = rows(&query.collect().await.unwrap());
            assert_eq!(got, plain, "{sql}");
            assert_eq!(rows_read(&plan), groups * 1000, "{sql}");
        }
    }
    quiet(&engine).await;
}
