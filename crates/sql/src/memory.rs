//! Memory accounting: one pool for the engine, an account per query.
//!
//! DataFusion's operators reserve what they hold from a pool; exchanges and join
//! tables of this crate do the same. The pool gives until its limit is reached and
//! refuses then, which ends the query that asked. Each query sees the pool through an
//! account of its own, so that the live view shows each query's memory, and a test finds
//! a leak: what is left in the account of a query that has ended.
//!
//! ```text
//!   account of a time-sensitive query ─▶ `Urgent` ──────────┐
//!                                                          ▼
//!   account of a background query ─▶ background ≤ 3/4 ─▶ engine's pool
//!   account of a control statement ─▶ a small pool of its own
//!   tables that were created in a tier ≤ 1/4 ─▶ that tier's
//! ```
//!
//! Background queries share an account that is limited: what they hold may stay for as
//! long as their clients do not read. The rest is for time-sensitive queries alone. These
//! may have more while it is free, and when it is not, background queries give way:
//!
//! ```text
//!   try_grow of a time-sensitive query
//!     │ the pool is full
//!     ▼
//!   would it have room without background queries? ── no ──▶ refused, nobody is ended
//!     │ yes
//!     ▼
//!   the youngest that holds enough is ended ─▶ its memory comes back ─▶ granted
//!   (if none does, the one that holds most, and again)
//! ```
//!
//! U1. The limit holds at all times: a query that asks waits until memory has come back.
//!     (not asserted: `Urgent` grows by the pool's own `try_grow` only)
//! U2. It waits for steps that other threads run, and for nothing that its own thread would
//!     have to do: whoever ends a query that no worker is working for drops it, too. So the
//!     wait is as long as a step of a plan, and at most [`GIVEN_BACK`].
//!
//! Departures: nothing is spilled to disk, since a worker that writes to a disk does not
//! work for another query. So no operator is asked to spill (`can_spill`): the query that is
//! ended would have been the only one to have its rows written and read again. And a worker
//! waits (U2), where it does not elsewhere: DataFusion's operators ask for memory in the
//! middle of a step.
//!
//! Known weakness: what outlives its query does not give way, and does not ask: tables of
//! `CREATE TABLE … AS`, and in a cluster rows that wait for the next stage.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use datafusion::common::{Result, resources_err};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

use crate::admission::Admission;

/// How long a query waits for the memory of those that are being ended.
const GIVEN_BACK: Duration = Duration::from_millis(500);
/// How long it waits before it looks again.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// A view of a pool: one query's, or that of all background queries.
#[derive(Debug)]
pub(crate) struct Account {
    pool: Arc<dyn MemoryPool>,
    limit: Limit,
    used: AtomicUsize,
    peak: AtomicUsize,
}

/// What an account may hold, beside what its pool allows.
#[derive(Debug)]
struct Limit {
    bytes: usize,
    /// Whose limit it is, for the error of a refused query.
    of: &'static str,
}

impl Account {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>) -> Account {
        Account::limited(pool, usize::MAX, "")
    }

    /// An account that holds so many bytes at most; `of` says whose it is.
    pub(crate) fn limited(pool: Arc<dyn MemoryPool>, bytes: usize, of: &'static str) -> Account {
        Account {
            pool,
            limit: Limit { bytes, of },
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }
    }

    /// What the query holds now, bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The most it has held, bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    fn add(&self, bytes: usize) {
        let used = self.used.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(used, Relaxed);
    }

    /// Adds what the limit has room for, or nothing; what is held then, bytes.
    fn try_add(&self, bytes: usize) -> Result<usize> {
        let added = self.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(bytes)
                .filter(|&used| used <= self.limit.bytes)
        });
        match added {
            Ok(before) => Ok(before + bytes),
            Err(used) => resources_err!(
                "{bytes} bytes more: {} hold {used} of the {} that they may",
                self.limit.of,
                self.limit.bytes
            ),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "account of {} bytes in {}", self.used(), self.pool)
    }
}

impl MemoryPool for Account {
    fn name(&self) -> &str {
        "account"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        self.add(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
        self.used.fetch_sub(shrink, Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let used = self.try_add(additional)?;
        let grown = self.pool.try_grow(reservation, additional);
        match grown {
            Ok(()) => self.peak.fetch_max(used, Relaxed),
            Err(_) => self.used.fetch_sub(additional, Relaxed),
        };
        grown
    }

    fn reserved(&self) -> usize {
        self.used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

/// The engine's pool, as time-sensitive queries see it: background queries give way.
#[derive(Debug)]
pub(crate) struct Urgent {
    pool: Arc<dyn MemoryPool>,
    admission: Arc<Admission>,
}

impl Urgent {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, admission: Arc<Admission>) -> Urgent {
        Urgent { pool, admission }
    }
}

impl fmt::Display for Urgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for Urgent {
    fn name(&self) -> &str {
        "urgent"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let Err(refused) = self.pool.try_grow(reservation, additional) else {
            return Ok(());
        };
        let until = Instant::now() + GIVEN_BACK;
        while self.admission.make_room(additional) {
            // U1.
            if self.pool.try_grow(reservation, additional).is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                break;
            }
            // U2.
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(refused)
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    #[test]
    fn accounts_share_a_limit_and_are_kept_apart() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let one = Arc::new(Account::new(Arc::clone(&pool)));
        let two = Arc::new(Account::new(Arc::clone(&pool)));
        let of = |account: &Arc<Account>| {
            let account: Arc<dyn MemoryPool> = Arc::clone(account) as _;
            MemoryConsumer::new("test").register(&account)
        };
        let first = of(&one);
        first.try_grow(700).unwrap();
        let second = of(&two);
        assert!(second.try_grow(400).is_err());
        second.try_grow(300).unwrap();
        assert_eq!((one.used(), two.used(), pool.reserved()), (700, 300, 1000));
        first.shrink(500);
        drop(second);
        assert_eq!((one.used(), two.used(), pool.reserved()), (200, 0, 200));
        assert_eq!((one.peak(), two.peak()), (700, 300));
    }

    #[test]
    fn a_limited_account_leaves_the_rest_to_others() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let limited = Account::limited(Arc::clone(&pool), 600, "those");
        let limited: Arc<dyn MemoryPool> = Arc::new(limited);
        let query: Arc<dyn MemoryPool> = Arc::new(Account::new(Arc::clone(&limited)));
        let inside = MemoryConsumer::new("test").register(&query);
        inside.try_grow(500).unwrap();
        let error = inside.try_grow(200).unwrap_err().to_string();
        assert!(error.contains("those hold 500 of the 600"), "{error}");
        assert_eq!((limited.reserved(), pool.reserved()), (500, 500));
        // What the pool refuses is in no account.
        let other = MemoryConsumer::new("test").register(&pool);
        other.try_grow(450).unwrap();
        assert!(inside.try_grow(80).is_err());
        assert_eq!((limited.reserved(), pool.reserved()), (500, 950));
    }
}
