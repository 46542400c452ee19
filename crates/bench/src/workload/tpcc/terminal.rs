//! One terminal: a connection, an endless sequence of inputs, and a record of
//! what happened inside the window.
//!
//! A transaction's latency runs from the start of its first attempt to its
//! commit; it is counted where its end lies inside the window, whatever its
//! start, so that no long transaction is lost. Attempts that lose a race with
//! another transaction (serialization failure, deadlock) are retried with the
//! same inputs, and counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;

use super::generate::{Inputs, Kind};
use super::statements::Statements;
use super::transactions::{End, Executor, Failure};
use crate::harness::error::{Error, Result};
use crate::workload::postgres::{Address, Session};

/// The span of time in which everything is counted.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its first instant.
    pub start: Instant,
    /// The first instant after it.
    pub end: Instant,
}

impl Window {
    /// A window of `length` that begins after `warmup`, counted from now.
    pub fn after(warmup: Duration, length: Duration) -> Self {
        let start = Instant::now() + warmup;
        Window {
            start,
            end: start + length,
        }
    }

    /// Whether an instant lies inside.
    pub fn contains(&self, instant: Instant) -> bool {
        self.start <= instant && instant < self.end
    }
}

/// Transactions that ended inside the window, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// New orders, with those that were to be rolled back (clause 2.4.1.4).
    pub new_order: u64,
    /// Payments.
    pub payment: u64,
    /// Order status queries.
    pub order_status: u64,
    /// Deliveries.
    pub delivery: u64,
    /// Stock level queries.
    pub stock_level: u64,
    /// New orders that were rolled back as their inputs demand.
    pub rolled_back: u64,
    /// Attempts that lost a race and were made again.
    pub retries: u64,
}

impl Counts {
    /// All transactions.
    pub fn total(&self) -> u64 {
        self.new_order + self.payment + self.order_status + self.delivery + self.stock_level
    }

    fn add(&mut self, kind: Kind, end: End) {
        *match kind {
            Kind::NewOrder => &mut self.new_order,
            Kind::Payment => &mut self.payment,
            Kind::OrderStatus => &mut self.order_status,
            Kind::Delivery => &mut self.delivery,
            Kind::StockLevel => &mut self.stock_level,
        } += 1;
        self.rolled_back += u64::from(end == End::RolledBack);
    }
}

/// What terminals recorded.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Transactions by type.
    pub counts: Counts,
    /// Latencies in nanoseconds, 3 significant digits, 1 µs to 10 minutes.
    pub latency_ns: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let latency_ns = Histogram::new_with_bounds(1_000, 600_000_000_000, 3)
            .expect("the bounds and digits are valid");
        Tally {
            counts: Counts::default(),
            latency_ns,
        }
    }
}

impl Tally {
    /// Adds what another terminal recorded.
    pub fn add(&mut self, other: &Tally) {
        let (sum, more) = (&mut self.counts, other.counts);
        sum.new_order += more.new_order;
        sum.payment += more.payment;
        sum.order_status += more.order_status;
        sum.delivery += more.delivery;
        sum.stock_level += more.stock_level;
        sum.rolled_back += more.rolled_back;
        sum.retries += more.retries;
        self.latency_ns
            .add(&other.latency_ns)
            .expect("all tallies have the same bounds");
    }
}

/// A connected terminal with its statements prepared.
pub struct Terminal {
    session: Session,
    statements: Statements,
    inputs: Inputs,
}

impl Terminal {
    /// Connects terminal `number` (from 0) to the server.
    pub fn connect(address: &Address, number: u32, seed: u64, warehouses: u32) -> Result<Self> {
        let options = [
            ("default_transaction_isolation", "repeatable\\ read"),
            // The plans that a long-lived connection ends up with, from the
            // first execution on rather than the sixth.
            ("plan_cache_mode", "force_generic_plan"),
        ];
        let name = format!("terminal-{number}");
        let session = Session::connect_at(address, &name, &options)?;
        let statements = session
            .wait(Statements::prepare(&session.client))
            .map_err(Error::sql("preparing TPC-C's statements"))?;
        Ok(Terminal {
            session,
            statements,
            inputs: Inputs::new(seed, number, warehouses),
        })
    }

    /// The process of the server that serves this terminal.
    pub fn backend_pid(&self) -> i32 {
        self.session.backend_pid()
    }

    /// Runs transactions until `stop` is set, and records those of the window.
    pub fn run(mut self, window: Window, stop: &AtomicBool) -> Result<Tally> {
        let mut tally = Tally::default();
        let executor = Executor {
            client: &self.session.client,
            statements: &self.statements,
            home: self.inputs.home(),
        };
        self.session.wait(async {
            // Relaxed: the flag guards no data, and a transaction more does no
            // harm.
            while !stop.load(Ordering::Relaxed) {
                let input = self.inputs.next().expect("inputs never end");
                let started = Instant::now();
                let mut retries = 0;
                let end = loop {
                    match executor.run(&input).await {
                        Ok(end) => break end,
                        Err(failure) => {
                            give_up_unless_retryable(failure)?;
                            let rolled_back = executor.client.batch_execute("ROLLBACK").await;
                            rolled_back.map_err(Error::sql("rolling back"))?;
                            retries += 1;
                        }
                    }
                };
                let ended = Instant::now();
                if window.contains(ended) {
                    tally.counts.add(input.kind(), end);
                    tally.counts.retries += retries;
                    tally
                        .latency_ns
                        .saturating_record((ended - started).as_nanos() as u64);
                }
            }
            Ok(tally)
        })
    }
}

/// Whether the same inputs may succeed at the next attempt.
fn give_up_unless_retryable(failure: Failure) -> Result<()> {
    match failure {
        Failure::Taken => Ok(()),
        Failure::Missing(what) => Err(Error::Config(format!(
            "TPC-C: a {what} is missing from the database; prepare the data again"
        ))),
        Failure::Sql(error) => match error.code() {
            Some(code)
                if *code == SqlState::T_R_SERIALIZATION_FAILURE
                    || *code == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                Ok(())
            }
            _ => Err(Error::sql("running a TPC-C transaction")(error)),
        },
    }
}
