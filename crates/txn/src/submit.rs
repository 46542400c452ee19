//! Submitting transactions instead of running them: the worker pool of
//! `giveway-preempt`, with transactions as its tasks.
//!
//! ```text
//!  submit ──▶ admitted? ──▶ queue of a worker ──▶ run, again after conflicts
//!    │          no │                                   │ visible
//!    │             ▼                                   ▼
//!    │        Refused { body, why }              the worker takes the next one
//!    ▼                                                 │
//!  Ticket ◀────────────── durable ◀── the log's writer ┘
//! ```
//!
//! - **A1** Every wait is bounded or asked for: a transaction is in a bounded
//!   queue, or it comes back at once with when to try again, or its submitter has
//!   said for how long to wait ([`Executor::submit_within`]).
//! - **A2** What was admitted is run, or its ticket says why not. A transaction
//!   that meets a conflict is run again until its deadline, however often, and
//!   lets a lower one that is paused below it finish first; it is never dropped.
//! - **A3** A worker does not wait until its transaction is durable. It makes it visible
//!   and goes on; the ticket is good once the log says that it is durable.
//! - **A4** If the disk falls behind, transactions that write are refused at the
//!   door, from half of the backlog's limit on. The other half is for those that were
//!   admitted before.
//!
//! Known weakness: if these write more than that, those that come to commit beyond the
//! limit wait for the disk on their workers, until their deadlines.
//!
//! These are promises to callers, which `tests/submit.rs` checks; no state shows that
//! one is broken, so nothing asserts them.
//!
//! Departure: the paper's driver keeps a backlog at the scheduler and does not run
//! an aborted high-priority transaction again.

mod admission;
mod ticket;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use giveway_preempt::{Level, Pool, Request, Shutdown, Why};
use giveway_tier::Weight;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::preemption;
use crate::txn::{Transaction, TxnOptions};
use admission::Admission;
pub use admission::{ExecutorStats, NotAdmitted, Refused};
pub use ticket::Ticket;

/// What a submitter says about a transaction.
#[derive(Clone, Debug)]
pub struct Submission {
    txn: TxnOptions,
    weight: Weight,
    arrival: Option<Instant>,
}

impl Submission {
    /// A transaction that runs like this; its tier decides how urgent it is.
    pub fn new(txn: TxnOptions) -> Submission {
        Submission {
            txn,
            weight: Weight::DEFAULT,
            arrival: None,
        }
    }

    /// Its share among the background transactions that wait for a worker.
    #[must_use]
    pub fn weight(self, weight: Weight) -> Submission {
        Submission { weight, ..self }
    }

    /// When it was meant to come, if that was not now: latencies are counted from
    /// then.
    #[must_use]
    pub fn arrival(self, arrival: Instant) -> Submission {
        let arrival = Some(arrival);
        Submission { arrival, ..self }
    }
}

impl From<TxnOptions> for Submission {
    fn from(txn: TxnOptions) -> Submission {
        Submission::new(txn)
    }
}

/// Runs transactions on workers that can be preempted.
///
/// ```
/// use giveway_txn::{
///     Database, Executor, Options, Policy, Pool, Schema, Tier, TxnOptions, Type,
/// };
///
/// let db = Database::in_memory(Options::default());
/// let schema = Schema::builder("counters")
///     .column("id", Type::I32)
///     .column("count", Type::I64)
///     .primary_key(["id"]);
/// let counters = db.create_table(schema.build()?)?;
/// let pool = Pool::builder().workers(1).policy(Policy::Wait).build().unwrap();
/// let executor = Executor::new(db, pool);
///
/// let options = TxnOptions::serializable().tier(Tier::TimeSensitive);
/// let ticket = executor.submit(options, move |txn| {
///     let mut row = counters.row();
///     row.set_i32(0, 1).set_i64(1, 41);
///     txn.insert(&counters, &row)
/// })?;
/// ticket.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Executor {
    /// Before the database: tasks that were not run are dropped with it.
    pool: Pool,
    db: Database,
    admission: Arc<Admission>,
}

impl Executor {
    /// Runs transactions of this database on this pool. How many may wait is the
    /// pool's [`capacity`](giveway_preempt::PoolBuilder::capacity), which is the
    /// paper's small one if nobody says.
    pub fn new(db: Database, pool: Pool) -> Executor {
        Executor {
            admission: Arc::new(Admission::new(pool.levels())),
            pool,
            db,
        }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The workers.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Has a transaction run: its function, which may run several times, and then
    /// its commit. Waits for nothing.
    ///
    /// # Errors
    /// The function comes back, with what to do about it.
    pub fn submit<T, F>(
        &self,
        submission: impl Into<Submission>,
        body: F,
    ) -> std::result::Result<Ticket<T>, Refused<F>>
    where
        T: Send + 'static,
        F: FnMut(&Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let Submission {
            txn,
            weight,
            arrival,
        } = submission.into();
        let level = Level::of(txn.tier, self.pool.levels());
        if let Err(why) = self.may_enter(&txn, level) {
            self.admission.refused();
            return Err(Refused { body, why });
        }
        let mut request = Request::at(level).weight(weight);
        if let Some(arrival) = arrival {
            request = request.arrival(arrival);
        }
        // Shared with the task only until it begins, so that the function can
        // come back from a pool that has no place for the task.
        let body = Arc::new(Mutex::new(Some(body)));
        let task = {
            let (body, db) = (Arc::clone(&body), self.db.clone());
            let admission = Arc::clone(&self.admission);
            move || {
                let body = take(&body).expect("the task was admitted, and runs once");
                admission.timed(level, || run(&db, txn, body))
            }
        };
        match self.pool.submit(request, task) {
            Ok(task) => {
                self.admission.admitted();
                Ok(Ticket::new(task, self.db.clone()))
            }
            Err(refused) => {
                self.admission.refused();
                let why = self.explain(refused.why, level);
                // With the task's share of the function gone, it is ours.
                drop(refused);
                let body = take(&body).expect("the task did not run");
                Err(Refused { body, why })
            }
        }
    }

    /// As [`submit`](Self::submit), but waits up to `patience` to be admitted, or
    /// until the transaction's deadline. Not for tasks of the pool, which would
    /// wait for a place that they hold.
    ///
    /// # Errors
    /// The function comes back, with what to do about it.
    pub fn submit_within<T, F>(
        &self,
        patience: Duration,
        submission: impl Into<Submission>,
        mut body: F,
    ) -> std::result::Result<Ticket<T>, Refused<F>>
    where
        T: Send + 'static,
        F: FnMut(&Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let submission = submission.into();
        // A deadline that no clock can show is none.
        let until = Instant::now().checked_add(patience);
        loop {
            let refused = match self.submit(submission.clone(), body) {
                Ok(ticket) => return Ok(ticket),
                Err(refused) => refused,
            };
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            match refused.why.retry_after() {
                Some(after) if !left.is_zero() => std::thread::sleep(after.min(left)),
                _ => return Err(refused),
            }
            body = refused.body;
        }
    }

    /// What is known before asking for a place.
    fn may_enter(&self, txn: &TxnOptions, level: Level) -> std::result::Result<(), NotAdmitted> {
        if txn.deadline.is_some_and(|end| Instant::now() >= end) {
            return Err(NotAdmitted::Late);
        }
        let Some(durable) = self.db.durable().filter(|_| !txn.read_only) else {
            return Ok(());
        };
        // A4: the other half is for those that were admitted before.
        let (backlog, limit) = durable.log().backlog().map_err(NotAdmitted::ReadOnly)?;
        match backlog > limit / 2 {
            true => Err(NotAdmitted::LogBehind {
                backlog,
                retry_after: self.admission.retry_after(level, self.pool.workers()),
            }),
            false => Ok(()),
        }
    }

    fn explain(&self, why: Why, level: Level) -> NotAdmitted {
        match why {
            Why::Full => NotAdmitted::Busy {
                retry_after: self.admission.retry_after(level, self.pool.workers()),
            },
            Why::Starved => NotAdmitted::Starved {
                retry_after: self.admission.retry_after(Level::BASE, self.pool.workers()),
            },
            Why::ShuttingDown => NotAdmitted::Closed,
            Why::NoSuchLevel => unreachable!("the level is made for the pool"),
        }
    }

    /// What was admitted and what became of it.
    pub fn stats(&self) -> ExecutorStats {
        self.admission.stats()
    }

    /// Admits nothing more, runs what was admitted, and returns once it is
    /// durable.
    ///
    /// # Errors
    /// [`Error::Durability`] if the log cannot be written.
    pub fn finish(self) -> Result<()> {
        self.pool.shutdown(Shutdown::Drain);
        self.db.flush()
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    // The contexts of a worker share no such place, but they share the worker.
    let _region = preemption::region();
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The task: the transaction, unless it comes too late.
fn run<T>(
    db: &Database,
    options: TxnOptions,
    body: impl FnMut(&Transaction<'_>) -> Result<T>,
) -> Result<(T, crate::commit::Committed)> {
    match options.deadline {
        Some(deadline) if Instant::now() >= deadline => Err(Error::Timeout),
        _ => db.run_visible(options, body),
    }
}
