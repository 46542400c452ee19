//! The claim to a transaction's result: first it runs, then it becomes durable.
//!
//! | stage | waits for | leaves when |
//! | --- | --- | --- |
//! | `Running` | the worker | the transaction is visible, or has failed |
//! | `Settling` | the log's writer | it is durable, or in doubt |
//! | `Taken` | nothing | |

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use giveway_preempt::TaskError;

use crate::commit::Committed;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::log::DurabilityError;

/// What a task of the pool returns.
type Outcome<T> = Result<(T, Committed)>;

/// The claim to a transaction's result. It can be waited for, polled as a future,
/// or used to cancel the transaction. A dropped ticket lets it run all the same.
#[must_use = "the ticket has the result; drop it explicitly to let the transaction run unobserved"]
pub struct Ticket<T> {
    stage: Stage<T>,
    db: Database,
}

enum Stage<T> {
    Running(giveway_preempt::Ticket<Outcome<T>>),
    Settling(T, Committed, Option<Arc<Settled>>),
    Taken,
}

/// How a function called by the log's writer tells a future. Without a lock: a task that
/// polls may be preempted at any instruction, and the writer, for whom all commits wait,
/// must not wait for it (R1).
#[derive(Default)]
struct Settled {
    durable: OnceLock<std::result::Result<(), DurabilityError>>,
    waker: AtomicWaker,
}

impl<T> Ticket<T> {
    pub(super) fn new(task: giveway_preempt::Ticket<Outcome<T>>, db: Database) -> Ticket<T> {
        Ticket {
            stage: Stage::Running(task),
            db,
        }
    }

    /// Waits until the transaction is committed, as durable as the database's
    /// options say.
    ///
    /// # Errors
    /// What it failed with; [`Error::NotRun`] if it did not run to its end.
    ///
    /// # Panics
    /// Inside a task of a pool: the worker would wait for what it has to run
    /// itself.
    pub fn wait(mut self) -> Result<T> {
        self.stage = match self.take_stage() {
            Stage::Running(task) => {
                let (value, committed) = flatten(task.wait())?;
                Stage::Settling(value, committed, None)
            }
            stage => stage,
        };
        self.durable(None)?;
        Ok(self.value())
    }

    /// As [`wait`](Self::wait), but no longer than `timeout`. Gives the ticket back
    /// if there is no result by then; the transaction goes on.
    ///
    /// # Errors
    /// The outer error is the ticket, the inner one that of [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(mut self, timeout: Duration) -> std::result::Result<Result<T>, Ticket<T>> {
        let deadline = Instant::now().checked_add(timeout);
        match self.take_stage() {
            Stage::Running(task) => match task.wait_timeout(timeout) {
                Ok(outcome) => match flatten(outcome) {
                    Ok((value, committed)) => {
                        self.stage = Stage::Settling(value, committed, None);
                    }
                    Err(error) => return Ok(Err(error)),
                },
                Err(task) => {
                    self.stage = Stage::Running(task);
                    return Err(self);
                }
            },
            stage => self.stage = stage,
        }
        match self.durable(deadline) {
            Err(Error::Durability(error)) if matches!(*error, DurabilityError::NotYet(_)) => {
                Err(self)
            }
            durable => Ok(durable.map(|()| self.value())),
        }
    }

    /// The result, if it is there.
    ///
    /// # Errors
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn try_take(self) -> std::result::Result<Result<T>, Ticket<T>> {
        match &self.stage {
            Stage::Running(task) if !task.is_done() => Err(self),
            _ => self.wait_timeout(Duration::ZERO),
        }
    }

    /// Keeps the transaction from starting. True if it will never run; false if
    /// it has started.
    pub fn cancel(&self) -> bool {
        match &self.stage {
            Stage::Running(task) => task.cancel(),
            Stage::Settling(..) | Stage::Taken => false,
        }
    }

    fn take_stage(&mut self) -> Stage<T> {
        std::mem::replace(&mut self.stage, Stage::Taken)
    }

    /// Waits until what was committed is durable.
    fn durable(&self, deadline: Option<Instant>) -> Result<()> {
        let Stage::Settling(_, committed, _) = &self.stage else {
            panic!("the result of a transaction was taken before");
        };
        self.db.inner().wait_committed(*committed, deadline)
    }

    fn value(&mut self) -> T {
        match self.take_stage() {
            Stage::Settling(value, ..) => value,
            Stage::Running(_) | Stage::Taken => unreachable!("it is durable, and not taken"),
        }
    }
}

/// One error for both that can be missing: a result of the task, and one of the
/// transaction.
fn flatten<T>(outcome: std::result::Result<Outcome<T>, TaskError>) -> Outcome<T> {
    outcome.unwrap_or_else(|error| Err(Error::NotRun(error)))
}

// The value is moved out whole, never pinned.
impl<T> Unpin for Ticket<T> {}

impl<T> Future for Ticket<T> {
    type Output = Result<T>;

    /// # Panics
    /// If polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Stage::Running(task) = &mut self.stage {
            let Poll::Ready(outcome) = Pin::new(task).poll(context) else {
                return Poll::Pending;
            };
            match flatten(outcome) {
                Ok((value, committed)) => self.stage = Stage::Settling(value, committed, None),
                Err(error) => {
                    self.stage = Stage::Taken;
                    return Poll::Ready(Err(error));
                }
            }
        }
        let Ticket { stage, db } = &mut *self;
        let Stage::Settling(_, committed, settled) = stage else {
            panic!("the result of a transaction was taken before");
        };
        let settled = settled.get_or_insert_with(|| Settled::when(db, *committed));
        let Poll::Ready(durable) = settled.poll(context.waker()) else {
            return Poll::Pending;
        };
        let value = self.value();
        Poll::Ready(durable.map(|()| value).map_err(Error::from))
    }
}

impl Settled {
    /// Learns when the transaction is durable.
    fn when(db: &Database, committed: Committed) -> Arc<Settled> {
        let settled: Arc<Settled> = Arc::default();
        let theirs = Arc::clone(&settled);
        db.when_committed(committed, Box::new(move |durable| theirs.set(durable)));
        settled
    }

    fn set(&self, durable: std::result::Result<(), DurabilityError>) {
        let first = self.durable.set(durable).is_ok();
        debug_assert!(first, "W3");
        // The executor's code, on the log's thread: the log goes on whatever it does.
        let _ = catch_unwind(AssertUnwindSafe(|| self.waker.wake()));
    }

    fn poll(&self, waker: &Waker) -> Poll<std::result::Result<(), DurabilityError>> {
        if self.durable.get().is_none() {
            self.waker.register(waker);
        }
        // It may have been set before the waker was there.
        match self.durable.get() {
            Some(durable) => Poll::Ready(durable.clone()),
            None => Poll::Pending,
        }
    }
}

impl<T> std::fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage: &dyn std::fmt::Debug = match &self.stage {
            Stage::Running(task) => task,
            Stage::Settling(..) => &"visible",
            Stage::Taken => &"taken",
        };
        f.debug_struct("Ticket").field("stage", stage).finish()
    }
}
