//! A small bank: transfers that somebody waits for, and an audit that nobody does.
//!
//! ```text
//! cargo run --release -p giveway-txn --example bank -- [directory] [seconds] [policy]
//! cargo run --release -p giveway-txn --example bank -- bank.db 5 wait
//! ```
//!
//! Transfers arrive 2000 times a second, whether or not the bank keeps up, and are
//! acknowledged when they are on disk. Behind them, a worker adds up all accounts
//! again and again, and finds the same sum each time. Under the policy `wait` a
//! transfer waits for an audit to end; under `hybrid` it interrupts it. The
//! accounts are in the directory, and still there the next time.

use std::alloc::System;
use std::collections::VecDeque;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use giveway_txn::Direction::Forward;
use giveway_txn::{
    Database, DurabilityOptions, Executor, KeyRange, Level, Metric, Options, Policy, Pool,
    RegionAlloc, Result, Schema, Submission, Table, Ticket, Tier, Transaction, TxnOptions, Type,
};

#[global_allocator]
static ALLOCATOR: RegionAlloc<System> = RegionAlloc(System);

const ACCOUNTS: i64 = 20_000;
const OPENING: i64 = 1_000;
const BETWEEN: Duration = Duration::from_micros(500);

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "bank.db".to_owned());
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let policy = arguments
        .next()
        .map_or(Ok(Policy::best()), |text| text.parse())?;

    let db = Database::open(&directory, Options::default(), DurabilityOptions::new())?;
    println!("{:?}", db.recovery().expect("it has files"));
    let accounts = open_accounts(&db)?;
    let pool = Pool::builder().workers(1).policy(policy);
    let pool = pool.capacity(Level::new(1), 64).build()?;
    let executor = Executor::new(db.clone(), pool);

    let (mut waiting, mut latencies) = (VecDeque::new(), Vec::new());
    let (mut refused, mut audits, mut audit) = (0, 0, None);
    let (began, mut due) = (Instant::now(), Duration::ZERO);
    while due < Duration::from_secs(seconds) {
        thread::sleep(due.saturating_sub(began.elapsed()));
        let options = TxnOptions::snapshot().tier(Tier::TimeSensitive);
        let submission = Submission::new(options).arrival(began + due);
        match executor.submit(submission, transfer(&accounts, due.as_micros() as i64)) {
            Ok(ticket) => waiting.push_back((due, ticket)),
            Err(_) => refused += 1,
        }
        audit = match audit.map(Ticket::try_take) {
            None => {
                let options = TxnOptions::read_only().tier(Tier::Background);
                executor.submit(options, sum(&accounts)).ok()
            }
            Some(Err(ticket)) => Some(ticket),
            Some(Ok(total)) => {
                assert_eq!(total?, ACCOUNTS * OPENING, "money was lost");
                audits += 1;
                None
            }
        };
        // Tickets become good in the order of commits: look at the oldest.
        while let Some((arrived, ticket)) = waiting.pop_front() {
            match ticket.try_take() {
                Ok(done) => latencies.push(done.map(|()| began.elapsed() - arrived)?),
                Err(ticket) => {
                    waiting.push_front((arrived, ticket));
                    break;
                }
            }
        }
        due += BETWEEN;
    }
    for (arrived, ticket) in waiting {
        latencies.push(ticket.wait().map(|()| began.elapsed() - arrived)?);
    }

    latencies.sort_unstable();
    let committed = latencies.len();
    println!("{policy}: {committed} transfers, {refused} refused, {audits} audits");
    let visible = executor.pool().histogram(Level::new(1), Metric::Latency);
    println!("arrival to   visible    durable");
    for part in [0.5, 0.9, 0.99, 0.999] {
        let durable = latencies[(committed as f64 * part) as usize];
        let visible = Duration::from_nanos(visible.value_at_quantile(part));
        println!("p{:<8} {visible:>10.1?} {durable:>10.1?}", part * 100.0);
    }
    println!("{:?}", db.log_stats().expect("it has files"));
    Ok(executor.finish()?)
}

/// The accounts, opened if this is the first time.
fn open_accounts(db: &Database) -> Result<Table> {
    let schema = || {
        let schema = Schema::builder("accounts").column("id", Type::I64);
        schema
            .column("balance", Type::I64)
            .primary_key(["id"])
            .build()
    };
    let accounts = db
        .table("accounts")
        .or_else(|_| db.create_table(schema()?))?;
    db.run(TxnOptions::snapshot(), |txn| {
        for id in 0..ACCOUNTS {
            if txn.get(&accounts, id)?.is_none() {
                let mut row = accounts.row();
                row.set_i64(0, id).set_i64(1, OPENING);
                txn.insert(&accounts, &row)?;
            }
        }
        Ok(())
    })?;
    Ok(accounts)
}

/// Moves one unit between two accounts that depend on the number.
fn transfer(
    accounts: &Table,
    number: i64,
) -> impl FnMut(&Transaction<'_>) -> Result<()> + Send + 'static {
    let accounts = accounts.clone();
    let from = number.wrapping_mul(7919).rem_euclid(ACCOUNTS);
    move |txn| {
        for (id, change) in [(from, -1), ((from + 1) % ACCOUNTS, 1)] {
            txn.update(&accounts, id, |row| {
                row.set_i64(1, row.i64(1) + change);
            })?;
        }
        Ok(())
    }
}

/// Adds up all accounts.
fn sum(accounts: &Table) -> impl FnMut(&Transaction<'_>) -> Result<i64> + Send + 'static {
    let accounts = accounts.clone();
    move |txn| {
        let rows = txn.scan(&accounts, KeyRange::all(), Forward)?;
        rows.map(|row| row.map(|row| row.i64(1))).sum()
    }
}
