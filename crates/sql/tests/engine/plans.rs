//! Statements whose plan would take any time or any memory are refused at once.

use std::time::Duration;

use giveway_sql::{Engine, Session, SqlError};

use crate::{ask, session};

/// When a refusal has to be there; the plans that are refused would take minutes, or more
/// memory than there is.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A statement is refused, and this is the remedy.
async fn is_refused(session: &Session, text: &str, remedy: &str) {
    let shown = &text[..text.len().min(100)];
    let planned = tokio::time::timeout(AT_ONCE, session.sql(text)).await;
    let Err(error) = planned.unwrap_or_else(|_| panic!("it is being planned: {shown}")) else {
        panic!("it is planned: {shown}")
    };
    assert!(matches!(error, SqlError::Plan(_)), "{error:?}: {shown}");
    assert!(error.to_string().contains(remedy), "{error}: {shown}");
}

/// A `WITH` of so many queries, each of which reads the one before twice.
fn doubling(queries: usize, columns: &str) -> String {
    let one = |number: usize| {
        let before = number - 1;
        format!(", q{number} AS (SELECT {columns} FROM q{before} x, q{before} y)")
    };
    let queries_of_it: String = (1..=queries).map(one).collect();
    format!("WITH q0 AS (SELECT 1 AS n){queries_of_it} SELECT count(*) FROM q{queries}")
}

#[tokio::test]
async fn a_with_whose_queries_double_is_refused() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let large = session(&engine);
    for columns in ["*", "x.n"] {
        is_refused(&large, &doubling(30, columns), "--plan-size").await;
    }
    assert_eq!(ask(&large, &doubling(5, "x.n")).await, ["| 1 |"]);
    let engine = Engine::builder().workers(1).plan_size(50).build().unwrap();
    let small = session(&engine);
    is_refused(&small, &doubling(5, "x.n"), "more than 50 queries").await;
    // Names are few, and operators more.
    is_refused(&small, &doubling(4, "x.n"), "more than 50 operators").await;
    assert_eq!(ask(&small, &doubling(2, "x.n")).await, ["| 1 |"]);
}

#[tokio::test]
async fn constants_that_are_large_or_take_long_are_refused() {
    let engine = Engine::builder().workers(1).build().unwrap();
    let session = session(&engine);
    let replaced = (0..40).fold("'a'".to_owned(), |text, _| {
        format!("replace({text}, 'a', 'aa')")
    });
    let many = ["repeat('x', 5000000)"; 10].join(" || ");
    for constant in [
        "repeat('x', 1000000000)",
        "repeat(repeat('x', 30000), 30000)",
        "rpad('x', 1000000000, 'y')",
        &replaced,
        &many,
        "levenshtein(repeat('a', 500000), repeat('b', 500000))",
        "array_repeat(1, 1000000000)",
        "array_resize([1], 1000000000, 2)",
        "range(0, 100000000000)",
        "generate_series(TIMESTAMP '1970-01-01', TIMESTAMP '2070-01-01', INTERVAL '1 second')",
    ] {
        let text = format!("SELECT {constant}");
        is_refused(&session, &text, "constants of more than 32 MiB").await;
    }
    for text in [
        "SELECT count(*) FROM region WHERE r_name = repeat('x', 1000000000)",
        "VALUES (repeat('x', 1000000000))",
        "SELECT * FROM range(0, length(repeat('x', 1000000000)))",
        "EXPLAIN SELECT repeat('x', 1000000000)",
    ] {
        is_refused(&session, text, "constants of more than 32 MiB").await;
    }
    for (text, answer) in [
        ("SELECT length(repeat('x', 20000000))", "| 20000000 |"),
        ("SELECT lpad('7', 3, '0')", "| 007 |"),
        ("SELECT levenshtein('kitten', 'sitting')", "| 3 |"),
        ("SELECT range(0, 3)", "| [0, 1, 2] |"),
        // What is made of columns is no constant.
        (
            "SELECT max(length(repeat(r_name, 500000))) FROM region",
            "| 5500000 |",
        ),
    ] {
        assert_eq!(ask(&session, text).await, [answer], "{text}");
    }
}
