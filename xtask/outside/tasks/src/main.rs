//! Two groups of queries on one pool, with giveway-tasks alone.
//!
//! Reports are in the background tier and keep both workers busy. Look-ups are
//! time-sensitive: each ends while the reports still run.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use giveway_tasks::{Failure, Morsel, Pipeline, Pool, Query, Step, Tier};

/// Reads this many rows.
struct Scan(u64);

impl Pipeline for Scan {
    fn units(&self) -> Option<u64> {
        Some(self.0)
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        for row in morsel.range() {
            black_box(row);
        }
        Ok(Step::More)
    }
}

/// Comes in steps until it is told that it is enough.
struct Report(Arc<AtomicBool>, Instant);

/// How long a report waits for that before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

impl Pipeline for Report {
    fn units(&self) -> Option<u64> {
        None
    }

    fn run(&self, _: &Morsel<'_>) -> Result<Step, Failure> {
        for row in 0..10_000 {
            black_box(row);
        }
        match self.0.load(Relaxed) {
            true => Ok(Step::Exhausted),
            false if self.1.elapsed() > PATIENCE => Err("no look-up has ended".into()),
            false => Ok(Step::More),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().workers(2).build()?;
    let enough = Arc::new(AtomicBool::new(false));
    let report = |number| {
        let pipeline = Report(Arc::clone(&enough), Instant::now());
        let query = Query::new(format!("report {number}")).tier(Tier::Background);
        pool.submit(query.pipeline(pipeline))
    };
    let reports = [report(1)?, report(2)?];
    let mut slowest_ns = 0;
    for number in 1..=20 {
        let lookup = Query::new(format!("look-up {number}")).pipeline(Scan(1_000));
        slowest_ns = pool.submit(lookup)?.wait()?.latency_ns.max(slowest_ns);
    }
    let slowest = Duration::from_nanos(slowest_ns);
    println!("slowest of 20 look-ups beside two reports: {slowest:?}");
    enough.store(true, Relaxed);
    for report in reports {
        report.wait()?;
    }
    Ok(())
}
