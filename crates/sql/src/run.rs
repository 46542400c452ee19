//! A query from its submission to its end.
//!
//! ```text
//!  submit ──▶ WAITING ──▶ SUBMITTED ──▶ ENDED
//!             (memory)    (slot, workers)
//!                │             │
//!                └── cancel ───┴── deadline
//! ```
//!
//! Each query has an attendant, a task on a thread that runs nothing else (`side_thread`): it
//! waits for memory, gives the query to the pool, and waits for its end. Results do not
//! pass through it, nor does the end of a query that succeeds: the last pipeline tells the
//! client itself. Whoever stops a query tells its client at once, the timer of a deadline
//! (`timer`) too; the query is out of the engine when the steps that run have ended.
//!
//! E1. A query is in the engine's list from its submission until its attendant is done.
//!     (asserted in `Admission::left`)
//! E2. The first reason to stop stays: the client of a query that missed its deadline
//!     is told of the deadline, not of a cancel. (not asserted: a `OnceLock` is set once,
//!     and `Results` keeps the first end)
//! E3. When a query is out of the list, its memory has been given back, except for rows
//!     that wait for its client: the attendant drops the query first, and what tells how far
//!     it is, and the next in line is admitted after that. If it has failed, the rows are
//!     given back, too. (not asserted: rows that wait are in the same
//!     account; `queries_that_are_cancelled_at_random_leave_nothing` tests the sum)

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Instant, SystemTime};

use giveway_tasks as tasks;
use giveway_tasks::{QueryView, Report, Ticket};
use tokio::sync::Notify;

use crate::engine::Inner;
use crate::error::SqlError;
use crate::memory::Account;
use crate::options::QueryOptions;
use crate::progress::{Stage, progress};
use crate::query::{QueryId, QueryState, QueryStatus};
use crate::results::Results;
use crate::timer::Due;

pub(crate) struct Run {
    pub(crate) id: QueryId,
    pub(crate) text: String,
    pub(crate) options: QueryOptions,
    /// Whether it is to run whatever else does: see `live`.
    pub(crate) is_control: bool,
    pub(crate) since: SystemTime,
    pub(crate) began: Instant,
    pub(crate) results: Arc<Results>,
    pub(crate) account: Arc<Account>,
    pub(crate) stages: Vec<Arc<Stage>>,
    pub(crate) engine: Weak<Inner>,
    phase: Mutex<Phase>,
    /// Why it is to stop: E2.
    reason: OnceLock<SqlError>,
    stopped: Notify,
    /// The deadline has passed.
    expired: Notify,
    ended: Notify,
}

enum Phase {
    Waiting,
    Submitted(tasks::QueryId),
    /// With its report, if it succeeded: set together, so that both are seen.
    Ended(Option<Report>),
}

impl Run {
    /// A query that waits.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        id: QueryId,
        text: String,
        options: QueryOptions,
        is_control: bool,
        results: Arc<Results>,
        account: Arc<Account>,
        stages: Vec<Arc<Stage>>,
        engine: Weak<Inner>,
    ) -> Run {
        Run {
            id,
            text,
            options,
            is_control,
            since: SystemTime::now(),
            began: Instant::now(),
            results,
            account,
            stages,
            engine,
            phase: Mutex::new(Phase::Waiting),
            reason: OnceLock::new(),
            stopped: Notify::new(),
            expired: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Sees to it that the query ends. False if it has ended already, or is to end for
    /// another reason.
    pub(crate) fn cancel(&self, reason: SqlError) -> bool {
        let phase = crate::lock(&self.phase);
        if matches!(*phase, Phase::Ended(_)) {
            return false;
        }
        let is_why = self.tell(reason);
        if let (Phase::Submitted(id), Some(engine)) = (&*phase, self.engine.upgrade()) {
            engine.pool_of(self).cancel(*id);
        }
        drop(phase);
        self.stopped.notify_one();
        is_why
    }

    /// Tells its client, which need not wait for the end; whether this is why: E2.
    fn tell(&self, reason: SqlError) -> bool {
        let is_why = self.reason.set(reason).is_ok();
        let reason = self.reason.get().expect("set by now");
        self.results.end(Err(stopped_for(reason)));
        is_why
    }

    /// Whether it is to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.reason.get().is_some()
    }

    pub(crate) fn progress(&self) -> f64 {
        progress(&self.stages)
    }

    fn view(&self) -> Option<QueryView> {
        let Phase::Submitted(id) = *crate::lock(&self.phase) else {
            return None;
        };
        let engine = self.engine.upgrade()?;
        let queries = engine.pool_of(self).queries();
        queries.into_iter().find(|view| view.id == id)
    }

    pub(crate) fn status(&self) -> QueryStatus {
        let view = self.view();
        self.status_with(view.as_ref())
    }

    /// Its status, as the pool sees it.
    pub(crate) fn status_with(&self, view: Option<&QueryView>) -> QueryStatus {
        let (state, report) = match (&*crate::lock(&self.phase), view) {
            (Phase::Waiting, _) => (QueryState::WaitingForMemory, None),
            (Phase::Submitted(_), Some(view)) if view.is_waiting => {
                (QueryState::WaitingForSlot, None)
            }
            (Phase::Submitted(_), Some(_)) => (QueryState::Running, None),
            (Phase::Submitted(_), None) => (QueryState::Ended, None),
            (Phase::Ended(report), _) => (QueryState::Ended, report.clone()),
        };
        QueryStatus {
            id: self.id,
            sql: self.text.clone(),
            tier: self.options.tier,
            weight: self.options.weight,
            state,
            progress: self.progress(),
            since: self.since,
            age_ns: match &report {
                Some(report) => report.latency_ns,
                None => self.began.elapsed().as_nanos() as u64,
            },
            ran_ns: match (view, &report) {
                (Some(view), _) => view.ran_ns,
                (None, Some(report)) => report.ran_ns,
                (None, None) => 0,
            },
            pipeline: view.map_or(0, |view| view.pipeline),
            pipelines: self.stages.len(),
            memory_bytes: self.account.used(),
            memory_bytes_max: self.account.peak(),
        }
    }

    /// The pool's name for it, if it has one.
    pub(crate) fn in_pool(&self) -> Option<tasks::QueryId> {
        match *crate::lock(&self.phase) {
            Phase::Submitted(id) => Some(id),
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// Waits until the query is out of the engine.
    ///
    /// # Errors
    /// It had no success, and the error has been taken with the result.
    pub(crate) async fn report(&self) -> Result<Report, SqlError> {
        loop {
            let ended = self.ended.notified();
            if let Phase::Ended(report) = &*crate::lock(&self.phase) {
                return report.clone().ok_or(SqlError::Cancelled);
            }
            ended.await;
        }
    }

    fn end(&self, result: Result<Report, SqlError>) {
        let (report, error) = match result {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(error)),
        };
        // Before its client learns of it, and may ask.
        *crate::lock(&self.phase) = Phase::Ended(report);
        if let Some(error) = error {
            self.results.end(Err(error));
            self.results.release();
        }
        self.ended.notify_waiters();
    }

    /// Gives the query to the pool, unless it is to stop.
    pub(crate) fn start(&self, engine: &Inner, query: tasks::Query) -> Result<Ticket, SqlError> {
        let mut phase = crate::lock(&self.phase);
        if self.is_stopped() {
            return Err(SqlError::Cancelled);
        }
        let ticket = (engine.pool_of(self).submit(query)).map_err(|refused| match refused.why {
            tasks::Why::ShuttingDown => SqlError::ShutDown,
            why => SqlError::Refused(why),
        })?;
        *phase = Phase::Submitted(ticket.id());
        Ok(ticket)
    }

    /// The attendant: waits for what the query is waiting for, and then for its end.
    pub(crate) async fn attend(self: Arc<Self>, engine: Arc<Inner>, start: Start) {
        let life = self.live(&engine, start);
        let result = {
            let mut life = std::pin::pin!(life);
            tokio::select! {
                result = &mut life => result,
                () = self.expired.notified() => {
                    self.cancel(SqlError::DeadlineExceeded);
                    life.await
                }
            }
        };
        let result = match (result, self.reason.get()) {
            (Err(SqlError::Cancelled), Some(reason)) => Err(stopped_for(reason)),
            (result, _) => result,
        };
        // E3.
        self.stages.iter().for_each(|stage| stage.release());
        engine.admission.left(self.id);
        self.end(result);
    }

    async fn live(&self, engine: &Arc<Inner>, start: Start) -> Result<Report, SqlError> {
        let ticket = match start {
            Start::Now(ticket) => ticket,
            Start::Later(query, admitted) => {
                tokio::select! {
                    _ = admitted => {}
                    () = self.stopped.notified() => return Err(SqlError::Cancelled),
                }
                self.start(engine, query)?
            }
        };
        Ok(ticket.await?)
    }
}

/// Bytes of a text that lists of queries have: they are made of all queries.
const SHOWN_MAX: usize = 4096;

/// The beginning of a text, for lists.
pub(crate) fn shown(text: &str) -> String {
    match text.len() {
        0..=SHOWN_MAX => text.to_owned(),
        _ => format!("{} …", &text[..text.floor_char_boundary(SHOWN_MAX)]),
    }
}

/// Its deadline.
impl Due for Run {
    fn due(&self) {
        if matches!(*crate::lock(&self.phase), Phase::Ended(_)) {
            return;
        }
        self.tell(SqlError::DeadlineExceeded);
        // D1 of `timer`: the attendant stops the query.
        self.expired.notify_one();
    }
}

/// What the client of a query is told that was stopped.
fn stopped_for(reason: &SqlError) -> SqlError {
    match reason {
        SqlError::DeadlineExceeded => SqlError::DeadlineExceeded,
        SqlError::ShutDown => SqlError::ShutDown,
        SqlError::GaveWay => SqlError::GaveWay,
        _ => SqlError::Cancelled,
    }
}

/// How a query begins.
pub(crate) enum Start {
    /// The pool has it.
    Now(Ticket),
    /// When there is memory.
    Later(tasks::Query, tokio::sync::oneshot::Receiver<()>),
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}
