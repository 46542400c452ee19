//! Workers that take tasks, the urgent ones first: Figure 5 as a library.
//!
//! ```text
//!   submitters, or a scheduling thread           each worker
//!   ─────────────────────────────────    ───────────────────────────────
//!   submit, submit_batch                  queue per level ─▶ contexts
//!     1 choose a worker                     idle: spins, then sleeps
//!     2 is its background work starved?
//!     3 push what fits
//!     4 wake it, or request one preemption
//!   tick
//!     repeats requests, resumes what was put off, tunes the threshold
//! ```
//!
//! The paper's scheduling thread (Section 4.1) dispatches what its admission
//! control lets through. Here the submitter does so: pushing is lock-free, any
//! number of threads may do it, and a task that is not admitted comes back as a
//! value. What needs a clock is [`Pool::tick`], called by a thread of the pool
//! or, with [`Ticker::Caller`], by a scheduling thread that its user has anyway.
//!
//! | module | question |
//! | --- | --- |
//! | `request` | What does a submitter give, and get? |
//! | `common`, `station` | What does a worker know, what do its contexts run? |
//! | `dispatch` | Which worker gets a task, and how does it learn of it? |
//! | `tick` | What needs a clock? |
//! | `watch` | Does a worker wait for itself? |
//! | `builder`, `unrun` | How does a pool begin and end? |

mod builder;
mod common;
mod dispatch;
mod request;
mod station;
mod tick;
mod unrun;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use hdrhistogram::Histogram;

use crate::clock;
use crate::context::current_level;
use crate::error::DeliveryError;
use crate::level::Level;
use crate::mutex::RegionMutex;
use crate::policy::Policy;
use crate::remote::Remote;
use crate::starvation::Threshold;
use crate::stats::{LevelReading, Metric, PoolStats, Submissions, WorkerStats};
use crate::tuning::Verdict;

pub use builder::{BuildError, PoolBuilder};
pub use request::{Batch, Refused, Request, Why};
pub(crate) use station::Station;
pub use unrun::Unrun;
pub use watch::{Holder, Stall};
pub(crate) use watch::{Name, Occupation};

use common::{Common, Stop};
pub(crate) use tick::Alarm;
use tick::Tuning;
use watch::Sight;

/// Who calls [`Pool::tick`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ticker {
    /// A thread of the pool, which sleeps while nothing is outstanding. Every
    /// request wakes it, which costs the submitter a system call.
    #[default]
    Thread,
    /// The pool's user, in the loop of a scheduling thread. Then submitting never
    /// waits for anything.
    Caller,
}

/// What becomes of tasks that have not started when a pool shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// They run first.
    Drain,
    /// They are returned to whoever shuts the pool down.
    Return,
}

/// A worker, as the pool sees it.
struct Member {
    station: Arc<Station>,
    remote: Remote,
    thread: JoinHandle<()>,
}

/// A worker, as a submitter sees it.
struct Desk {
    station: Arc<Station>,
    remote: Remote,
    sight: Sight,
}

/// What the pool's threads share.
struct Inner {
    common: Arc<Common>,
    desks: Box<[Desk]>,
    /// One for each level.
    submissions: Box<[Submissions]>,
    /// Whose turn it is.
    turn: AtomicUsize,
    tuning: Option<RegionMutex<Tuning>>,
    /// Where statistics count from; empty before the first reset.
    counted_from: RegionMutex<Vec<LevelReading>>,
    /// What the watching thread sleeps on.
    watch_alarm: Alarm,
}

/// Workers that take tasks, the urgent ones first.
///
/// Dropping a pool lets running tasks end and drops those that have not started.
/// Who shares it with its own tasks must not let the last of them drop it: that
/// panics, as [`shutdown`](Pool::shutdown) does inside a task.
pub struct Pool {
    inner: Arc<Inner>,
    /// The workers', and after them those that tick and watch.
    threads: RegionMutex<Vec<JoinHandle<()>>>,
}

impl Pool {
    /// A pool that is not built yet.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    fn new(
        common: Arc<Common>,
        members: Vec<Member>,
        submissions: Vec<Submissions>,
        tuning: Option<Tuning>,
    ) -> Pool {
        let mut threads = Vec::new();
        let mut desks = Vec::new();
        for member in members {
            threads.push(member.thread);
            desks.push(Desk {
                station: member.station,
                remote: member.remote,
                sight: Sight::new(),
            });
        }
        Pool {
            inner: Arc::new(Inner {
                common,
                desks: desks.into(),
                submissions: submissions.into(),
                turn: AtomicUsize::new(0),
                tuning: tuning.map(RegionMutex::new),
                counted_from: RegionMutex::new(Vec::new()),
                watch_alarm: Alarm::new(),
            }),
            threads: RegionMutex::new(threads),
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.inner.desks.len()
    }

    /// How many levels there are, the base included.
    pub fn levels(&self) -> usize {
        self.inner.submissions.len()
    }

    /// When workers leave background work.
    pub fn policy(&self) -> Policy {
        self.inner.common.policy()
    }

    /// Changes the policy, for tasks that run as well: a context notices at the
    /// latest after 65536 records.
    ///
    /// # Errors
    /// The policy's delivery needs workers that were started with it. The policy
    /// is then what it was, but some workers may have the new delivery.
    pub fn set_policy(&self, policy: Policy) -> Result<(), DeliveryError> {
        if let Some(delivery) = policy.delivery() {
            for desk in &self.inner.desks {
                desk.remote.set_delivery(delivery)?;
            }
        }
        self.inner.common.set_policy(policy);
        Ok(())
    }

    /// The starvation threshold in force.
    pub fn threshold(&self) -> Threshold {
        self.inner.common.threshold()
    }

    /// Changes the starvation threshold. With a goal, the next window changes it
    /// again.
    pub fn set_threshold(&self, threshold: Threshold) {
        self.inner.common.set_threshold(threshold);
    }

    /// What the pool has done.
    pub fn stats(&self) -> PoolStats {
        let inner = &*self.inner;
        let now = clock::now();
        let levels = self.readings();
        let levels = levels.iter().zip(0..).map(|(reading, index)| {
            let level = Level::new(index);
            let queued = inner
                .desks
                .iter()
                .map(|desk| desk.station.queues[level.index()].len());
            reading.stats(level, queued.sum())
        });
        let workers = inner.desks.iter().map(|desk| {
            let in_line = desk.station.starvation.in_line(now);
            let (stalls, stall) = desk.sight.read();
            WorkerStats {
                requests: desk.remote.counters(),
                starvation: desk.station.starvation.level(now),
                in_line_ns: in_line.total_ns,
                higher_ns: in_line.higher_ns,
                idle: desk.station.parking.is_idle(),
                stalls,
                stall,
            }
        });
        PoolStats {
            policy: self.policy(),
            threshold: self.threshold(),
            tuning: self.verdict(),
            levels: levels.collect(),
            workers: workers.collect(),
        }
    }

    /// How the goal fares; `None` without a goal.
    pub fn verdict(&self) -> Option<Verdict> {
        let tuning = self.inner.tuning.as_ref()?;
        Some(tuning.lock().verdict())
    }

    /// What was recorded of a level since the last reset, over all workers, ns.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn histogram(&self, level: Level, metric: Metric) -> Histogram<u64> {
        self.readings()[level.index()].metric(metric).histogram()
    }

    /// Lets the statistics of levels count from now on, for instance after a
    /// warm-up.
    pub fn reset_stats(&self) {
        let readings = self.inner.readings();
        *self.inner.counted_from.lock() = readings;
    }

    /// All levels since the last reset.
    fn readings(&self) -> Vec<LevelReading> {
        let readings = self.inner.readings();
        let mut from = self.inner.counted_from.lock().clone();
        from.resize_with(readings.len(), LevelReading::default);
        let since = readings.into_iter().zip(&from);
        since.map(|(reading, from)| reading.since(from)).collect()
    }

    /// Refuses new tasks, deals with those that have not started, lets the
    /// running ones end, and ends the workers. Nothing that was taken in is lost:
    /// it has run, was cancelled, or is returned.
    ///
    /// The second call waits for nothing and returns nothing.
    ///
    /// # Panics
    /// Inside a task of a pool, which would wait for its own end. If a worker has
    /// panicked outside of tasks, with its panic.
    pub fn shutdown(&self, how: Shutdown) -> Vec<Unrun> {
        assert!(
            current_level().is_none(),
            "a pool is shut down from outside of its tasks"
        );
        let inner = &*self.inner;
        let stop = match how {
            Shutdown::Drain => Stop::Drain,
            Shutdown::Return => Stop::Return,
        };
        if !inner.common.set_stop(stop) {
            return Vec::new();
        }
        for desk in &inner.desks {
            for queue in &desk.station.queues {
                queue.close();
            }
            // Busy workers see it at the next task boundary.
            let _ = desk.station.parking.notify();
        }
        let mut threads = std::mem::take(&mut *self.threads.lock());
        let others = threads.split_off(inner.desks.len());
        threads.into_iter().for_each(builder::join);
        if let Some(alarm) = &inner.common.alarm {
            alarm.ring();
        }
        inner.watch_alarm.ring();
        others.into_iter().for_each(builder::join);
        std::mem::take(&mut *inner.common.unrun.lock())
    }
}

impl Inner {
    /// All levels since the start.
    fn readings(&self) -> Vec<LevelReading> {
        let level = |(index, submissions): (usize, &Submissions)| {
            let books = self.desks.iter().map(|desk| &desk.station.books[index]);
            LevelReading::of(submissions, books)
        };
        self.submissions.iter().enumerate().map(level).collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.shutdown(Shutdown::Return));
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("workers", &self.workers())
            .field("levels", &self.levels())
            .field("policy", &self.policy())
            .field("threshold", &self.threshold())
            .finish_non_exhaustive()
    }
}
