//! The 22 queries give what stock DataFusion gives for the same plans, alone and
//! beside each other, whoever goes first.

use giveway_sql::tpch::{QUERIES, Scale, query};
use giveway_sql::{Engine, Policy, Stock};

use crate::{quiet, rows, session};

pub(crate) fn text(number: usize) -> String {
    query(number, Scale::new(0.01).unwrap()).unwrap()
}

/// What stock DataFusion answers, by query.
pub(crate) async fn expected(engine: &Engine) -> Vec<Vec<String>> {
    let stock = Stock::new(2).unwrap();
    let session = session(engine);
    let mut expected = Vec::new();
    for number in QUERIES {
        let query = session.sql(&text(number)).await.unwrap();
        expected.push(rows(&stock.collect(query).await.unwrap()));
    }
    expected
}

#[tokio::test]
async fn every_query_alone() {
    let engine = Engine::builder().workers(2).build().unwrap();
    let expected = expected(&engine).await;
    let session = session(&engine);
    for (number, expected) in QUERIES.zip(&expected) {
        let query = session.sql(&text(number)).await.unwrap();
        let (batches, report) = query.submit().unwrap().collect_with_report().await.unwrap();
        assert_eq!(&rows(&batches), expected, "Q{number}");
        assert!(report.ran_ns > 0 && report.tasks > 0, "{report:?}");
    }
    // All joins are cut into tasks.
    let turns = engine.stats().turns;
    let mut operators = turns.iter().map(|turns| turns.operators.as_str());
    assert!(operators.any(|operators| operators == "HashJoin > enter"));
    let whole = turns.iter().find(|turns| {
        let mut names = turns.operators.split(" > ");
        names.next() != Some("HashJoin") && names.any(|name| name == "HashJoin")
    });
    assert_eq!(whole.map(|turns| &turns.operators), None);
    // The tables are small, and some of the answers are empty; not all.
    assert!(expected.iter().filter(|rows| !rows.is_empty()).count() >= 18);
    quiet(&engine).await;
}

#[tokio::test]
async fn eight_at_a_time_under_every_policy() {
    let [decay, las] = ["decay:0.9,4", "las"].map(|policy| policy.parse().unwrap());
    let mut answers = None;
    for policy in [
        Policy::Fifo,
        Policy::Fair,
        Policy::Lottery { seed: 3 },
        Policy::Balanced,
        las,
        decay,
        Policy::Tuned,
        Policy::Adaptive,
    ] {
        let engine = Engine::builder().workers(3).policy(policy).build().unwrap();
        if answers.is_none() {
            answers = Some(expected(&engine).await);
        }
        let expected = answers.as_ref().unwrap();
        let session = session(&engine);
        let numbers: Vec<usize> = QUERIES.collect();
        for eight in numbers.chunks(8) {
            let mut running = Vec::new();
            for &number in eight {
                let query = session.sql(&text(number)).await.unwrap();
                running.push((number, query.submit().unwrap()));
            }
            for (number, query) in running {
                let batches = query.collect().await.unwrap();
                assert_eq!(rows(&batches), expected[number - 1], "Q{number}, {policy}");
            }
        }
        quiet(&engine).await;
    }
}
