//! Texts that are too deep for a thread's stack are refused; those that are not are run.

use giveway_sql::{Engine, SqlError};

use crate::{ask, session};

/// A text with something repeated in it, after what comes before and before what comes after.
fn repeated(before: &str, part: &str, count: usize, after: &str) -> String {
    before.to_owned() + &part.repeat(count) + after
}

#[tokio::test]
async fn chains_are_refused_before_they_overflow_a_stack() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    for text in [
        repeated("SELECT 1", " IS NULL", 100_000, ""),
        repeated("SELECT 1", " + 1", 200_000, ""),
        repeated("SELECT 1", "::INT", 150_000, ""),
        repeated("SELECT (1", " + 1", 100_000, ") this is wrong"),
        repeated("SELECT 1", " UNION SELECT 1", 50_000, ""),
        repeated("SELECT 1, 2", " UNION ALL SELECT 1, 2", 40_000, ""),
        repeated("SELECT 1 FROM region", ", region a", 50_000, ""),
        repeated("SELECT 1", ",\n1", 400_000, ""),
    ] {
        let error = session.sql(&text).await.unwrap_err();
        assert!(matches!(error, SqlError::Plan(_)), "{error}");
        assert!(error.to_string().contains("are read"), "{error}");
    }
    assert_eq!(ask(&session, "SELECT 1").await, ["| 1 |"]);
}

#[tokio::test]
async fn what_is_not_refused_is_run() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    for (text, expected) in [
        (
            repeated("SELECT sum(-1", " - a", 900, ") FROM (SELECT 1 AS a)"),
            "| -901 |",
        ),
        (
            repeated(
                "SELECT count(*) FROM region WHERE r_regionkey = 9",
                " OR r_regionkey = 1",
                990,
                "",
            ),
            "| 1 |",
        ),
        (
            repeated(
                "SELECT bool_and(r_regionkey",
                " IS NOT NULL",
                1300,
                ") FROM region",
            ),
            "| true |",
        ),
        (
            repeated(
                "SELECT count(*) FROM (SELECT 1",
                " UNION ALL SELECT 1",
                490,
                ")",
            ),
            "| 491 |",
        ),
        (
            repeated(
                "SELECT count(*) FROM region WHERE r_regionkey IN (7",
                ", 1",
                10_000,
                ")",
            ),
            "| 1 |",
        ),
    ] {
        assert_eq!(ask(&session, &text).await, [expected], "{}", &text[..40]);
    }
}

#[tokio::test]
async fn views_inside_of_views_are_refused_when_they_are_as_deep() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    ask(&session, "CREATE VIEW v0 AS SELECT 1 AS x").await;
    let mut views = 0;
    let error = loop {
        let sum = repeated("x", " + 1", 400, "");
        let view = format!(
            "CREATE VIEW v{} AS SELECT {sum} AS x FROM v{views}",
            views + 1
        );
        match session.sql(&view).await {
            Ok(_) => views += 1,
            Err(error) => break error,
        }
        assert!(views < 20, "views of any depth");
    };
    assert!(matches!(error, SqlError::Plan(_)), "{error}");
    assert!(error.to_string().contains("views"), "{error}");
    let read = format!("SELECT x FROM v{views}");
    assert_eq!(
        ask(&session, &read).await,
        [format!("| {} |", views * 400 + 1)]
    );
    // Wide instead: each is read twice in the next one.
    ask(&session, "CREATE VIEW w0 AS SELECT 1 AS x").await;
    let mut views = 0;
    let error = loop {
        let before = format!("SELECT * FROM w{views}");
        let view = format!("CREATE VIEW w{} AS {before} UNION ALL {before}", views + 1);
        match session.sql(&view).await {
            Ok(_) => views += 1,
            Err(error) => break error,
        }
        assert!(views < 16, "views of any size");
    };
    assert!(error.to_string().contains("views"), "{error}");
    assert_eq!(ask(&session, "SELECT count(*) FROM w4").await, ["| 16 |"]);
}

#[tokio::test]
async fn options_that_would_allocate_are_refused() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    for set in [
        "SET datafusion.execution.target_partitions = 4000000000",
        "SET datafusion.execution.batch_size = 1000000000000",
        "SET datafusion.sql_parser.recursion_limit = 100000",
        "SET datafusion.runtime.temp_directory = '/tmp/somewhere'",
        "SET datafusion.runtime.memory_limit = '1G'",
        "RESET datafusion.runtime.temp_directory",
    ] {
        let error = session.sql(set).await.unwrap_err().to_string();
        assert!(
            error.contains("write a number") || error.contains("--spill"),
            "{set}: {error}"
        );
    }
    let set = session.sql("SET datafusion.execution.batch_size = 100");
    assert!(set.await.is_ok());
    assert!(!std::path::Path::new("/tmp/somewhere").exists());
}
