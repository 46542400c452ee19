//! Long matrix products, interrupted by short requests: the pool without a
//! database.
//!
//! One worker multiplies matrices, each product a background task of some
//! milliseconds. Every millisecond a request comes, a search in a table that
//! takes some microseconds. How long do requests take, and what do they cost the
//! products, under each policy?
//!
//! ```text
//! cargo run --release -p giveway-preempt --example matrix -- [SECONDS] [POLICY...]
//! ```
//!
//! The main thread is the scheduling thread: it submits requests when they are
//! due, and ticks in between. With fewer than two CPUs it shares the worker's.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use giveway_preempt::{
    Delivery, Level, Metric, Policy, Pool, RegionAlloc, Request, Shutdown, Summary, Ticker, Ticket,
    Tier, handcrafted_yield_point, poll_record,
};

// Both kinds of work allocate, and share the heap.
#[global_allocator]
static ALLOCATOR: RegionAlloc<std::alloc::System> = RegionAlloc(std::alloc::System);

const SIZE: usize = 384;
const INTERVAL: Duration = Duration::from_millis(1);

type Matrix = Vec<[f64; SIZE]>;

/// The product of two matrices. A row of the right one is what a database would
/// call a record.
fn multiply(left: &Matrix, right: &Matrix) -> Matrix {
    let mut product = vec![[0.0; SIZE]; SIZE];
    for (to, factors) in product.iter_mut().zip(left) {
        for (factor, row) in factors.iter().zip(right) {
            poll_record();
            for (sum, value) in to.iter_mut().zip(row) {
                *sum += factor * value;
            }
        }
        handcrafted_yield_point();
    }
    product
}

/// A short request: how many words of a table start like that.
fn search(table: &[String], start: &str) -> usize {
    let from = table.partition_point(|word| word.as_str() < start);
    let matching = table[from..]
        .iter()
        .take_while(|word| word.starts_with(start));
    // Each is copied, so that requests allocate as well.
    matching.fold(0, |count, word| {
        black_box(word.to_uppercase());
        count + 1
    })
}

/// What a policy achieved.
struct Outcome {
    latency: Summary,
    products_per_s: f64,
    refused: u64,
}

fn run(policy: Policy, time: Duration) -> Result<Outcome, Box<dyn std::error::Error>> {
    let builder = Pool::builder()
        .workers(1)
        .policy(policy)
        .ticker(Ticker::Caller);
    let pool = match std::thread::available_parallelism()?.get() {
        1 => builder.build()?,
        _ => builder.pin([0]).build()?,
    };
    let matrix: Arc<Matrix> = Arc::new(vec![[1.5; SIZE]; SIZE]);
    let table: Vec<String> = (0..100_000).map(|number| format!("{number:06}")).collect();
    let table = Arc::new(table);

    let mut products: Vec<Ticket<f64>> = Vec::new();
    let start = Instant::now();
    let mut due = start;
    while start.elapsed() < time {
        products.retain(|ticket| !ticket.is_done());
        if products.len() < 2 {
            let matrix = Arc::clone(&matrix);
            let product = move || multiply(&matrix, &matrix)[7][7];
            products.extend(pool.submit(Tier::Background, product).ok());
        }
        if Instant::now() >= due {
            let table = Arc::clone(&table);
            let request = move || search(&table, "0123");
            let urgent = Request::from(Tier::TimeSensitive).arrival(due);
            // A request that finds the queue full is given up, and counted.
            drop(pool.submit(urgent, request));
            due += INTERVAL;
        }
        pool.tick();
    }
    let stats = pool.stats();
    let outcome = Outcome {
        latency: Summary::from(&pool.histogram(Level::new(1), Metric::Latency)),
        products_per_s: stats.levels[0].run as f64 / time.as_secs_f64(),
        refused: stats.levels[1].refused_full,
    };
    pool.shutdown(Shutdown::Drain);
    Ok(outcome)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(3.0), |text| text.parse())?;
    let mut policies = arguments
        .map(|text| text.parse())
        .collect::<Result<Vec<Policy>, _>>()?;
    if policies.is_empty() {
        let poll = Policy::Preempt {
            delivery: Delivery::Poll,
        };
        policies = vec![
            Policy::Wait,
            Policy::COOPERATIVE,
            // A row of the product is about as long as thousand blocks of Q2.
            "handcrafted:1".parse()?,
            Policy::PREEMPT,
            Policy::best(),
            poll,
        ];
    }
    println!("latency of requests, µs                                          products");
    println!("policy                 p50      p90      p99    p99.9  refused  per second");
    for policy in policies {
        let outcome = run(policy, Duration::from_secs_f64(seconds))?;
        let micros = |ns: u64| ns as f64 / 1000.0;
        let Summary {
            p50_ns,
            p90_ns,
            p99_ns,
            p999_ns,
            ..
        } = outcome.latency;
        println!(
            "{:<17} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8} {:>11.1}",
            policy.to_string(),
            micros(p50_ns),
            micros(p90_ns),
            micros(p99_ns),
            micros(p999_ns),
            outcome.refused,
            outcome.products_per_s,
        );
    }
    Ok(())
}
