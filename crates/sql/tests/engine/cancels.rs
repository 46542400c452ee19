//! The 22 queries beside each other, cancelled at random: those that are left are right,
//! and those that have ended leave nothing behind.
//!
//! `GIVEWAY_CANCELS_SECS` makes it go on for longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use giveway_sql::tpch::{Scale, Table};
use giveway_sql::{Engine, MorselTable, Policy, Session, SqlError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::tpch::{expected, text};
use crate::{quiet, rows};

/// Clients, each with a query at a time: more than there are slots.
const CLIENTS: u64 = 24;
const SLOTS: usize = 16;
/// Queries of each client, if nobody asks for a time.
const QUERIES: u32 = 12;

/// How queries have ended.
#[derive(Default)]
struct Ends {
    collected: u32,
    cancelled: u32,
}

/// Asks one query after another; ends half of them early, in one of three ways.
async fn client(
    engine: &Engine,
    session: &Session,
    expected: &[Vec<String>],
    seed: u64,
    until: Option<Instant>,
) -> Ends {
    let mut random = StdRng::seed_from_u64(seed);
    let mut ends = Ends::default();
    let is_over = |asked| match until {
        Some(end) => Instant::now() >= end,
        None => asked == QUERIES,
    };
    let mut asked = 0;
    while !is_over(asked) {
        asked += 1;
        let number = random.random_range(1..=22);
        let what = format!("Q{number}, seed {seed}, query {asked}");
        let running = session.sql(&text(number)).await.unwrap().submit().unwrap();
        let is_early = random.random_bool(0.5);
        if is_early {
            // Half of them at once: others have often ended before it comes to that,
            // since whoever plans a query holds up all clients.
            if random.random_bool(0.5) {
                let pause = Duration::from_micros(random.random_range(0..20_000));
                tokio::time::sleep(pause).await;
            }
            match random.random_range(0..3) {
                0 => drop(running.cancel()),
                1 => drop(engine.cancel(running.id())),
                _ => {
                    drop(running);
                    ends.cancelled += 1;
                    continue;
                }
            }
        }
        match running.collect().await {
            // Also those that had ended before somebody cancelled them.
            Ok(batches) => {
                assert_eq!(rows(&batches), expected[number - 1], "{what}");
                ends.collected += 1;
            }
            Err(SqlError::Cancelled) if is_early => ends.cancelled += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    ends
}

#[tokio::test]
async fn queries_that_are_cancelled_at_random_leave_nothing() {
    let secs = std::env::var("GIVEWAY_CANCELS_SECS");
    let secs = secs
        .ok()
        .map(|text| text.parse().expect("a number of seconds"));
    let until = secs.map(|secs| Instant::now() + Duration::from_secs(secs));
    let engine = Engine::builder()
        .workers(3)
        .slots(SLOTS)
        .waiting(CLIENTS as usize)
        .policy(Policy::Tuned)
        // Parameters change while queries come and go.
        .tuning(Duration::from_millis(100), Duration::from_millis(300))
        .build()
        .unwrap();
    let expected = expected(&engine).await;
    // Tables of its own, to see who still has them.
    let scale = Scale::new(0.01).unwrap();
    let table = |table: Table| {
        let morsels = MorselTable::try_new(table.schema(), table.batches(scale).collect());
        (table, Arc::new(morsels.unwrap()))
    };
    let tables: Vec<_> = Table::ALL.into_iter().map(table).collect();
    let session = engine.session();
    for (table, morsels) in &tables {
        let morsels = Arc::clone(morsels);
        session.register_table(table.name(), morsels as _).unwrap();
    }
    let holders = || tables.iter().map(|(_, morsels)| Arc::strong_count(morsels));
    let before = Vec::from_iter(holders());

    let clients = (0..CLIENTS).map(|seed| client(&engine, &session, &expected, seed, until));
    let ends = join_all(clients).await;
    let collected: u32 = ends.iter().map(|ends| ends.collected).sum();
    let cancelled: u32 = ends.iter().map(|ends| ends.cancelled).sum();
    eprintln!("{collected} queries collected, {cancelled} cancelled");
    assert!(
        collected >= 50 && cancelled >= 50,
        "{collected}, {cancelled}"
    );

    quiet(&engine).await;
    assert_eq!(
        Vec::from_iter(holders()),
        before,
        "somebody still has a table"
    );
    let stats = engine.stats();
    assert!(stats.pool.tunings > 0, "{stats:?}");
    assert_eq!(stats.memory_bytes, 0);
}
