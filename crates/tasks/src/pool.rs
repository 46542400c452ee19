//! Threads that work for queries.
//!
//! A pool starts its threads when it is built and ends them when it is shut down
//! or dropped. Shutting down refuses new queries, lets those that are there end
//! (or stops them), and then joins the threads: no thread, and no pipeline, is
//! left behind.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::clock::{Clock, Monotonic};
use crate::error::QueryError;
use crate::group::{QueryId, QueryView, Ticket};
use crate::morsel::Targets;
use crate::policy::Policy;
use crate::query::{Query, Refused};
use crate::shared::{Settings, Shared};
use crate::stats::PoolStats;
use crate::sync::thread::{self, JoinHandle};
use crate::worker::Worker;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No worker.
    #[error("a pool needs workers: give Builder::workers at least 1")]
    NoWorkers,
    /// No query could run, or more than a worker can look through in a microsecond.
    #[error("{0} slots: give Builder::slots 1 to {max}", max = Builder::SLOTS_MAX)]
    Slots(usize),
    /// A task would take no time, or for ever.
    #[error("tasks of {0:?}: give Builder::task_duration 1 µs to 1 s")]
    TaskDuration(Duration),
    /// There would be no time between two searches.
    #[error(
        "tracking {tracking:?} every {refresh:?}: give Builder::tuning a refresh \
         duration longer than its tracking duration, and that longer than 0"
    )]
    Tuning {
        /// t_t.
        tracking: Duration,
        /// t_r.
        refresh: Duration,
    },
    /// A thread could not be started.
    #[error("no thread: {0}; fewer workers need fewer threads")]
    Thread(#[from] io::Error),
}

/// How a pool is made. What is not said is as in the paper, but for the
/// policy.
#[derive(Clone, Debug)]
pub struct Builder {
    workers: usize,
    slots: usize,
    waiting: usize,
    task: Duration,
    policy: Policy,
    tracking: Duration,
    refresh: Duration,
    stack_bytes: usize,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            workers: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            slots: 128,
            waiting: usize::MAX,
            task: Duration::from_millis(2),
            policy: Policy::default(),
            tracking: Duration::from_secs(20),
            refresh: Duration::from_secs(60),
            stack_bytes: STACK_BYTES,
        }
    }
}

impl Builder {
    /// The most slots a pool can have.
    pub const SLOTS_MAX: usize = 65_536;

    /// How many worker threads; as many as CPUs by default (Section 2.2).
    pub fn workers(mut self, workers: usize) -> Builder {
        self.workers = workers;
        self
    }

    /// How many queries may run at a time; 128 by default (Section 2.3). The
    /// rest waits: time-sensitive queries first, then the first to come. A quarter is
    /// kept for time-sensitive queries.
    pub fn slots(mut self, slots: usize) -> Builder {
        self.slots = slots;
        self
    }

    /// How many queries of each tier may wait for a slot; any number by default.
    /// Others are refused.
    pub fn waiting(mut self, waiting: usize) -> Builder {
        self.waiting = waiting;
        self
    }

    /// How long a task should take (t_max), also the quantum of policies; 2 ms by
    /// default (Section 3.1).
    pub fn task_duration(mut self, task: Duration) -> Builder {
        self.task = task;
        self
    }

    /// The order of queries; [`Policy::Adaptive`] by default.
    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// For how long queries are tracked (t_t), and how often (t_r): 20 s and 60 s
    /// by default (Section 4).
    pub fn tuning(mut self, tracking: Duration, refresh: Duration) -> Builder {
        self.tracking = tracking;
        self.refresh = refresh;
        self
    }

    /// The stack of a worker's thread, bytes; 2 MiB by default. Memory is taken as it is
    /// used.
    pub fn stack(mut self, bytes: usize) -> Builder {
        self.stack_bytes = bytes;
        self
    }

    /// What this comes to.
    ///
    /// # Errors
    /// Each variant of [`BuildError`] says what to change.
    pub(crate) fn settings(&self) -> Result<Settings, BuildError> {
        if self.workers == 0 {
            return Err(BuildError::NoWorkers);
        }
        if !(1..=Builder::SLOTS_MAX).contains(&self.slots) {
            return Err(BuildError::Slots(self.slots));
        }
        if !(Duration::from_micros(1)..=Duration::from_secs(1)).contains(&self.task) {
            return Err(BuildError::TaskDuration(self.task));
        }
        if self.tracking.is_zero() || self.refresh <= self.tracking {
            return Err(BuildError::Tuning {
                tracking: self.tracking,
                refresh: self.refresh,
            });
        }
        let task_ns = self.task.as_nanos() as u64;
        Ok(Settings {
            policy: self.policy,
            slots: self.slots,
            waiting: self.waiting,
            targets: Targets {
                task_ns,
                morsel_ns_min: task_ns / MORSELS_PER_TASK_MAX,
                workers: self.workers,
            },
            tracking_ns: u64::try_from(self.tracking.as_nanos()).unwrap_or(u64::MAX),
            refresh_ns: u64::try_from(self.refresh.as_nanos()).unwrap_or(u64::MAX / 2),
        })
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// Each variant of [`BuildError`] says what to change. No thread is left
    /// behind.
    pub fn build(&self) -> Result<Pool, BuildError> {
        let clock = Arc::new(Monotonic::new());
        Pool::start(self.settings()?, clock, self.stack_bytes)
    }
}

/// As the standard library has it.
const STACK_BYTES: usize = 2 << 20;

/// t_max over t_min. The paper leaves t_min open; sixteen morsels in a task cost
/// some µs of its 2 ms, and workers finish within an eighth of a millisecond of
/// each other.
const MORSELS_PER_TASK_MAX: u64 = 16;

/// What becomes of the queries of a pool that is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// All are run to their end, those that wait included.
    Drain,
    /// They end with [`QueryError::ShutDown`], after the morsels that are being run.
    Cancel,
}

/// Workers, and the queries they work for. Dropping it shuts it down as
/// [`Shutdown::Cancel`].
///
/// ```
/// use giveway_tasks::{Failure, Morsel, Pipeline, Pool, Query, Step};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Adds up a column, morsel by morsel.
/// struct Sum {
///     column: Vec<u64>,
///     sum: Arc<AtomicU64>,
/// }
///
/// impl Pipeline for Sum {
///     fn units(&self) -> Option<u64> {
///         Some(self.column.len() as u64)
///     }
///
///     fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
///         let range = morsel.range();
///         let part: u64 = self.column[range.start as usize..range.end as usize].iter().sum();
///         self.sum.fetch_add(part, Ordering::Relaxed);
///         Ok(Step::More)
///     }
/// }
///
/// let pool = Pool::builder().workers(2).build()?;
/// let sum = Arc::new(AtomicU64::new(0));
/// let column = (1..=100_000).collect();
/// let query = Query::new("sum").pipeline(Sum { column, sum: Arc::clone(&sum) });
/// let report = pool.submit(query)?.wait()?;
/// assert_eq!(sum.load(Ordering::Relaxed), 5_000_050_000);
/// assert!(report.morsels > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool as in the paper, to be changed.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Workers on threads with such stacks, with this clock.
    pub(crate) fn start(
        settings: Settings,
        clock: Arc<dyn Clock>,
        stack_bytes: usize,
    ) -> Result<Pool, BuildError> {
        // Its drop ends those that were started if one cannot be.
        let mut pool = Pool {
            shared: Shared::new(settings, clock),
            threads: Vec::new(),
        };
        for number in 0..settings.targets.workers {
            let mut worker = Worker::new(&pool.shared, number);
            let thread = thread::Builder::new()
                .name(format!("giveway-tasks-{number}"))
                .stack_size(stack_bytes)
                .spawn(move || worker.work())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Takes a query in; it runs as soon as there is a slot. Waits for nothing; any
    /// thread may call it, also a pipeline. If there is a slot, this calls the first
    /// pipeline's [`units`](crate::Pipeline::units).
    ///
    /// # Errors
    /// The query comes back, with what to do about it.
    pub fn submit(&self, query: Query) -> Result<Ticket, Refused> {
        let group = self.shared.submit(query)?;
        Ok(Ticket { group })
    }

    /// Ends a query early: nothing more of it is begun, and it ends with
    /// [`QueryError::Cancelled`] after the morsels that are being run. False if it
    /// has ended already, or ends for another reason.
    pub fn cancel(&self, query: QueryId) -> bool {
        self.shared.cancel(query, QueryError::Cancelled)
    }

    /// The queries that wait or run, in the order of their arrival.
    pub fn queries(&self) -> Vec<QueryView> {
        self.shared.queries()
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> PoolStats {
        let (running, waiting) = self.shared.load();
        PoolStats {
            workers: self
                .shared
                .counters
                .iter()
                .map(|counters| counters.read())
                .collect(),
            running,
            waiting,
            order: self.shared.order(),
            tunings: self.shared.tunings.load(Relaxed),
            tuning_ns: self.shared.tuning_ns.load(Relaxed),
        }
    }

    /// Takes no more queries, ends those that are there, and joins the threads.
    ///
    /// # Panics
    /// If a worker calls it: it would wait for itself.
    pub fn shutdown(mut self, how: Shutdown) -> PoolStats {
        assert!(!self.is_worker(), "a worker cannot wait for its own end");
        self.end(how);
        self.stats()
    }

    fn is_worker(&self) -> bool {
        let me = thread::current().id();
        self.threads.iter().any(|thread| thread.thread().id() == me)
    }

    fn end(&mut self, how: Shutdown) {
        self.shared.refuse_all();
        if how == Shutdown::Cancel {
            self.shared.cancel_all();
        }
        // A worker that drops the last of its pool leaves the rest to the others
        // and itself: all find nothing to do when the queries have ended.
        let is_worker = self.is_worker();
        if !is_worker && !self.threads.is_empty() {
            self.shared.drain();
        }
        self.shared.exit();
        for thread in self.threads.drain(..) {
            if !is_worker && thread.join().is_err() {
                unreachable!("callers' panics end with their query");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end(Shutdown::Cancel);
    }
}
