//! A task from submission to result, and the submitter's ticket.
//!
//! ```text
//!              worker                     worker
//!   QUEUED ───────────────▶ RUNNING ───────────────────▶ DONE
//!      │  begin                        finish
//!      ├───────────────▶ CANCELLED     by the ticket
//!      └───────────────▶ NOT_RUN       by the pool, when it shuts down
//! ```
//!
//! Closure and result share one cell, whose owner follows from the state.
//!
//! Invariants:
//!
//! - **T1** `QUEUED` is left once, by a compare-exchange; the thread that makes it
//!   owns the cell. For `CANCELLED` and `NOT_RUN` that is until the cell is emptied,
//!   right away. (Asserted in `discard` and `give_up`: the closure is still there.)
//! - **T2** `RUNNING` is left by the worker that entered it, which owns the cell
//!   until then. (Asserted in `run` and `finish`.)
//! - **T3** In `DONE`, the cell is the ticket's, of which there is one. (Asserted in
//!   `take`.)
//!
//! The bit `WAITER` beside the state says that a thread sleeps until it changes; if
//! it is not set, the worker makes no system call.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;

use crate::context::current_level;
use crate::pool::Name;
use crate::sync::{AcqRel, Acquire, Relaxed, UnsafeCell, Word};

const QUEUED: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const CANCELLED: u32 = 3;
const NOT_RUN: u32 = 4;
const WAITER: u32 = 8;

/// Why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The task panicked; its message. The worker goes on. Submit the task
    /// again only if its author says that it may be.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// Its ticket cancelled it before it started.
    #[error("the task was cancelled before it started")]
    Cancelled,
    /// The pool shut down before the task started.
    #[error("the pool shut down before the task started: submit it to another pool")]
    NotRun,
}

/// How a task ended, for the worker's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned,
    Panicked,
}

/// A task as a worker sees it.
pub(crate) trait Task: Send + Sync {
    /// Claims the task for running; false if it must not run any more.
    fn begin(&self) -> bool;
    /// Runs it, once, after [`begin`](Self::begin).
    fn run(&self) -> Ended;
    /// Tells the ticket, after [`run`](Self::run).
    fn finish(&self);
    /// Tells the ticket that the task will not run; nothing if it has begun.
    fn give_up(&self);
    /// What it is called.
    fn name(&self) -> Name;
}

/// A task as its ticket sees it.
trait Outcome<R>: Send + Sync {
    fn head(&self) -> &Head;
    /// Drops the closure of a task that the caller has taken out of `QUEUED`.
    fn discard(&self);
    /// Moves the result out, in `DONE`, for the ticket.
    fn take(&self) -> Result<R, TaskError>;
}

/// What does not depend on the types of closure and result.
struct Head {
    state: Word,
    waker: AtomicWaker,
}

pub(crate) struct Job<F, R> {
    head: Head,
    cell: UnsafeCell<Cell<F, R>>,
}

enum Cell<F, R> {
    Closure(F),
    Result(Result<R, TaskError>),
    Empty,
}

// SAFETY: the cell has one owner at a time (T1 to T3), and ownership goes from
// thread to thread by acquire and release of the state.
unsafe impl<F: Send, R: Send> Sync for Job<F, R> {}

impl Head {
    fn state(&self) -> u32 {
        // Pairs with the release in `leave` and `claim`.
        self.state.value.load(Acquire) & !WAITER
    }

    /// Goes from `QUEUED` to another state (T1); false if that was left before.
    fn claim(&self, to: u32) -> bool {
        let to = |word: u32| (word & !WAITER == QUEUED).then_some(word | to);
        self.state.value.fetch_update(AcqRel, Relaxed, to).is_ok()
    }

    /// Announces a final state.
    fn conclude(&self, state: u32) {
        if self.state.value.swap(state, AcqRel) & WAITER != 0 {
            self.state.wake();
        }
        self.waker.wake();
    }

    /// Waits for a final state; false if the deadline came first.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        loop {
            // Who takes the result looks again, in order.
            let word = self.state.value.load(Relaxed);
            if is_final(word) {
                return true;
            }
            let timeout = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if timeout.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let marked = self.state.value.fetch_or(WAITER, AcqRel) | WAITER;
            if !is_final(marked) {
                self.state.sleep_while(marked, timeout);
            }
        }
    }
}

fn is_final(word: u32) -> bool {
    word & !WAITER >= DONE
}

impl<F, R> Job<F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    pub(crate) fn new(closure: F) -> Job<F, R> {
        Job {
            head: Head {
                state: Word::new(QUEUED),
                waker: AtomicWaker::new(),
            },
            cell: UnsafeCell::new(Cell::Closure(closure)),
        }
    }

    /// The closure of a job that no worker and no ticket has seen.
    pub(crate) fn into_closure(job: Arc<Self>) -> F {
        let job = Arc::into_inner(job).expect("a job that was refused is the submitter's alone");
        // SAFETY: the job is the caller's alone, and so is the cell.
        match unsafe { job.replace(Cell::Empty) } {
            Cell::Closure(closure) => closure,
            _ => unreachable!("nobody has begun it"),
        }
    }

    /// Replaces what is in the cell.
    ///
    /// # Safety
    /// The caller owns the cell (T1 to T3).
    unsafe fn replace(&self, with: Cell<F, R>) -> Cell<F, R> {
        // SAFETY: as the caller promises.
        self.cell
            .with_mut(|cell| unsafe { std::mem::replace(&mut *cell, with) })
    }
}

impl<F, R> Task for Job<F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    fn name(&self) -> Name {
        std::any::type_name::<F>
    }

    fn begin(&self) -> bool {
        self.head.claim(RUNNING)
    }

    fn run(&self) -> Ended {
        // SAFETY: T2; `begin` has made the state RUNNING for this caller.
        let Cell::Closure(closure) = (unsafe { self.replace(Cell::Empty) }) else {
            unreachable!("T2: a running task has its closure until it is run");
        };
        // What the closure has left half done is its own business: nothing of
        // it is looked at afterwards.
        let result = catch_unwind(AssertUnwindSafe(closure)).map_err(|panic| {
            let text = message(&*panic);
            discard(panic);
            text
        });
        let ended = match result {
            Ok(_) => Ended::Returned,
            Err(_) => Ended::Panicked,
        };
        // SAFETY: T2.
        unsafe { self.replace(Cell::Result(result.map_err(TaskError::Panicked))) };
        ended
    }

    fn finish(&self) {
        debug_assert_eq!(self.head.state(), RUNNING, "T2");
        self.head.conclude(DONE);
    }

    fn give_up(&self) {
        if self.head.claim(NOT_RUN) {
            self.discard();
            self.head.conclude(NOT_RUN);
        }
    }
}

impl<F, R> Outcome<R> for Job<F, R>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    fn head(&self) -> &Head {
        &self.head
    }

    fn discard(&self) {
        // SAFETY: T1, as the caller says.
        let cell = unsafe { self.replace(Cell::Empty) };
        debug_assert!(matches!(cell, Cell::Closure(_)), "T1");
    }

    fn take(&self) -> Result<R, TaskError> {
        debug_assert_eq!(self.head.state(), DONE, "T3");
        // SAFETY: T3, as the caller says.
        match unsafe { self.replace(Cell::Empty) } {
            Cell::Result(result) => result,
            _ => panic!("the result of a task was taken before"),
        }
    }
}

/// Runs code of whoever submitted a task, for which nobody waits any more; whether it
/// panicked, which ends with that.
pub(crate) fn contain(foreign: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(foreign)) {
        Ok(()) => false,
        Err(panic) => {
            discard(panic);
            true
        }
    }
}

/// Drops what a panic has left. If that panics as well, what is left then leaks.
fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}

/// The claim to a task's result. It can be waited for, polled as a future, or
/// used to cancel the task. A dropped ticket lets the task run all the same.
#[must_use = "the ticket has the result; drop it explicitly to let the task run unobserved"]
pub struct Ticket<R> {
    job: Arc<dyn Outcome<R>>,
}

impl<R: Send + 'static> Ticket<R> {
    pub(crate) fn new<F>(job: Arc<Job<F, R>>) -> Ticket<R>
    where
        F: FnOnce() -> R + Send + 'static,
    {
        Ticket { job }
    }
}

impl<R> Ticket<R> {
    /// Waits for the result.
    ///
    /// # Errors
    /// The task has none; see [`TaskError`].
    ///
    /// # Panics
    /// Inside a task of a pool: the worker would wait for what it has to run
    /// itself.
    pub fn wait(self) -> Result<R, TaskError> {
        assert_outside();
        self.job.head().wait(None);
        self.result()
    }

    /// Waits for the result, but no longer than `timeout`. Gives the ticket back
    /// if the task is not done by then; it is not cancelled.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<R, TaskError>, Ticket<R>> {
        assert_outside();
        // A deadline that no clock can show is none.
        let deadline = Instant::now().checked_add(timeout);
        if self.job.head().wait(deadline) {
            Ok(self.result())
        } else {
            Err(self)
        }
    }

    /// The result, if the task is done.
    ///
    /// # Errors
    /// The outer error gives the ticket back; the inner one is that of
    /// [`wait`](Self::wait).
    pub fn try_take(self) -> Result<Result<R, TaskError>, Ticket<R>> {
        if self.is_done() {
            Ok(self.result())
        } else {
            Err(self)
        }
    }

    /// Whether the task has ended, one way or another.
    pub fn is_done(&self) -> bool {
        is_final(self.job.head().state())
    }

    /// Keeps the task from starting, and drops its closure. True if it will
    /// never run; false if it has started.
    ///
    /// Its place in the queue stays in use until the worker comes across it.
    pub fn cancel(&self) -> bool {
        let head = self.job.head();
        if head.claim(CANCELLED) {
            self.job.discard();
            head.conclude(CANCELLED);
        }
        matches!(head.state(), CANCELLED | NOT_RUN)
    }

    /// The result of a task in a final state.
    fn result(&self) -> Result<R, TaskError> {
        match self.job.head().state() {
            DONE => self.job.take(),
            CANCELLED => Err(TaskError::Cancelled),
            NOT_RUN => Err(TaskError::NotRun),
            _ => unreachable!("only called in a final state"),
        }
    }
}

impl<R> Future for Ticket<R> {
    type Output = Result<R, TaskError>;

    /// # Panics
    /// If polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_done() {
            self.job.head().waker.register(context.waker());
            // The task may have ended before the waker was there.
            if !self.is_done() {
                return Poll::Pending;
            }
        }
        Poll::Ready(self.result())
    }
}

impl<R> std::fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match self.job.head().state() {
            QUEUED => "queued",
            RUNNING => "running",
            DONE => "done",
            CANCELLED => "cancelled",
            _ => "not run",
        };
        f.debug_struct("Ticket").field("state", &state).finish()
    }
}

fn assert_outside() {
    assert!(
        current_level().is_none(),
        "a task must not wait for another task of its pool: poll the ticket, or chain the tasks"
    );
}
