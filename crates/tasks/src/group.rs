//! A resource group: the task sets of one query, in order, and the query's result
//! (Section 2.2).
//!
//! A group lives as long as a worker may read one of its sets: the table of running
//! groups holds it from before its first set is posted in a slot until after the slot
//! has been emptied or has another group (F5 of `slots`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as LooseU64, AtomicUsize as LooseUsize};
use std::task::{Context, Poll, Waker};

use serde::Serialize;

use crate::error::QueryError;
use crate::group_word::GroupWord;
use crate::query::Query;
use crate::shared::contained;
use crate::sync::{Acquire, AtomicBool, Condvar, Mutex, Relaxed, Release, lock, wait};
use crate::task_set::TaskSet;

/// What all task sets of a group share.
pub(crate) struct Tally {
    stopped: AtomicBool,
    verdict: Mutex<Verdict>,
    ran_ns: LooseU64,
    tasks: LooseU64,
    morsels: LooseU64,
}

/// Whether a group was stopped. The first reason stays, and one that comes after
/// the group's end is none.
enum Verdict {
    Open,
    Stopped(QueryError),
    Told,
}

impl Tally {
    fn new() -> Tally {
        Tally {
            stopped: AtomicBool::new(false),
            verdict: Mutex::new(Verdict::Open),
            ran_ns: LooseU64::new(0),
            tasks: LooseU64::new(0),
            morsels: LooseU64::new(0),
        }
    }

    /// Nothing more of the group is begun, nor any of its sets finalized. Whether
    /// this is the reason that its end will say.
    pub(crate) fn stop(&self, reason: QueryError) -> bool {
        let mut verdict = lock(&self.verdict);
        let is_first = matches!(*verdict, Verdict::Open);
        let unheard = match is_first {
            true => {
                *verdict = Verdict::Stopped(reason);
                None
            }
            false => Some(reason),
        };
        drop(verdict);
        self.stopped.store(true, Release);
        contained(|| drop(unheard));
        is_first
    }

    /// Why the group was stopped, if it was. It has come to its end.
    fn tell(&self) -> Option<QueryError> {
        match std::mem::replace(&mut *lock(&self.verdict), Verdict::Told) {
            Verdict::Stopped(reason) => Some(reason),
            Verdict::Open | Verdict::Told => None,
        }
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Acquire)
    }

    /// A task of the group is over.
    pub(crate) fn add(&self, ns: u64, morsels: u64) {
        self.add_ns(ns);
        self.tasks.fetch_add(1, Relaxed);
        self.morsels.fetch_add(morsels, Relaxed);
    }

    /// A worker was busy with the group for so long.
    pub(crate) fn add_ns(&self, ns: u64) {
        self.ran_ns.fetch_add(ns, Relaxed);
    }
}

/// What a query took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The query's name.
    pub name: String,
    /// How long it waited for a slot, ns.
    pub queued_ns: u64,
    /// From its submission to its end, ns.
    pub latency_ns: u64,
    /// For how long workers were busy with it, ns, all together.
    pub ran_ns: u64,
    /// How many tasks it was cut into.
    pub tasks: u64,
    /// How many morsels, or steps, these had.
    pub morsels: u64,
}

pub(crate) struct Group {
    pub(crate) word: GroupWord,
    pub(crate) name: String,
    pub(crate) sets: Box<[TaskSet]>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) submitted_ns: u64,
    admitted_ns: LooseU64,
    /// How many sets have been activated.
    reached: LooseUsize,
    end: Mutex<End>,
    ended: Condvar,
}

enum End {
    Pending(Option<Waker>),
    Done(Result<Report, QueryError>),
    Taken,
}

/// `admitted_ns` of a group that waits.
const NOT_YET: u64 = u64::MAX;

impl Group {
    /// A query of a pool, submitted now. Ids are given in the order of submission.
    pub(crate) fn new(id: u64, query: Query, submitted_ns: u64) -> Group {
        let word = GroupWord {
            id,
            tier: query.tier,
            weight: query.weight,
            is_static: query.is_static,
        };
        let tally = Arc::new(Tally::new());
        let sets = (query.pipelines.into_iter().enumerate())
            .map(|(index, pipeline)| TaskSet::new(word, index, pipeline, Arc::clone(&tally)))
            .collect();
        Group {
            word,
            name: query.name,
            sets,
            tally,
            submitted_ns,
            admitted_ns: LooseU64::new(NOT_YET),
            reached: LooseUsize::new(0),
            end: Mutex::new(End::Pending(None)),
            ended: Condvar::new(),
        }
    }

    /// The group has got a slot.
    pub(crate) fn admit(&self, now_ns: u64) {
        self.admitted_ns.store(now_ns, Relaxed);
    }

    /// The set has become the group's current one.
    pub(crate) fn reach(&self, index: usize) {
        self.reached.store(index + 1, Relaxed);
    }

    /// Reports the end, once.
    pub(crate) fn complete(&self, now_ns: u64) {
        let admitted_ns = match self.admitted_ns.load(Relaxed) {
            NOT_YET => now_ns,
            admitted_ns => admitted_ns,
        };
        let report = Report {
            name: self.name.clone(),
            queued_ns: admitted_ns.saturating_sub(self.submitted_ns),
            latency_ns: now_ns.saturating_sub(self.submitted_ns),
            ran_ns: self.tally.ran_ns.load(Relaxed),
            tasks: self.tally.tasks.load(Relaxed),
            morsels: self.tally.morsels.load(Relaxed),
        };
        let result = match self.tally.tell() {
            Some(reason) => Err(reason),
            None => Ok(report),
        };
        let before = std::mem::replace(&mut *lock(&self.end), End::Done(result));
        self.ended.notify_all();
        match before {
            End::Pending(Some(waker)) => contained(|| waker.wake()),
            End::Pending(None) => {}
            End::Done(_) | End::Taken => unreachable!("a group ends once"),
        }
    }

    /// What is known of the query while it runs.
    pub(crate) fn view(&self, now_ns: u64) -> QueryView {
        let reached = self.reached.load(Relaxed);
        let current = reached.checked_sub(1).map(|index| &self.sets[index]);
        QueryView {
            id: QueryId(self.word.id),
            name: self.name.clone(),
            tier: self.word.tier,
            weight: self.word.weight,
            is_waiting: self.admitted_ns.load(Relaxed) == NOT_YET,
            age_ns: now_ns.saturating_sub(self.submitted_ns),
            ran_ns: self.tally.ran_ns.load(Relaxed),
            pipeline: reached,
            pipelines: self.sets.len(),
            progress: current.map_or(0.0, TaskSet::progress),
        }
    }
}

/// Names a query of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct QueryId(pub(crate) u64);

impl std::fmt::Display for QueryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A query that waits or runs.
#[derive(Clone, Debug, Serialize)]
pub struct QueryView {
    /// What to cancel it by.
    pub id: QueryId,
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: giveway_tier::Tier,
    /// Its weight.
    pub weight: giveway_tier::Weight,
    /// Whether it has no slot yet.
    pub is_waiting: bool,
    /// Since its submission, ns.
    pub age_ns: u64,
    /// For how long workers were busy with it, ns, all together.
    pub ran_ns: u64,
    /// Which pipeline it has reached, from 1; 0 before the first.
    pub pipeline: usize,
    /// How many there are.
    pub pipelines: usize,
    /// How much of that pipeline has been taken up, 0 to 1; always 0 for one that
    /// comes in steps.
    pub progress: f64,
}

/// A submitted query: waits for it, as a thread or as a future. The query goes on
/// without its ticket.
#[must_use = "the ticket says whether the query succeeded"]
pub struct Ticket {
    pub(crate) group: Arc<Group>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &self.id())
            .field("name", &self.group.name)
            .field("is_done", &self.is_done())
            .finish()
    }
}

impl Ticket {
    /// What to cancel the query by.
    pub fn id(&self) -> QueryId {
        QueryId(self.group.word.id)
    }

    /// Whether the query has ended.
    pub fn is_done(&self) -> bool {
        !matches!(*lock(&self.group.end), End::Pending(_))
    }

    /// Waits for the query's end. Not to be called from a pipeline: workers do not
    /// block.
    ///
    /// # Errors
    /// Why the query has no result.
    pub fn wait(self) -> Result<Report, QueryError> {
        let mut end = lock(&self.group.end);
        loop {
            match std::mem::replace(&mut *end, End::Taken) {
                End::Done(result) => return result,
                pending @ End::Pending(_) => {
                    *end = pending;
                    end = wait(&self.group.ended, end);
                }
                End::Taken => {
                    drop(end);
                    panic!("the ticket was polled to its end before");
                }
            }
        }
    }
}

impl Future for Ticket {
    type Output = Result<Report, QueryError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Wakers are made and dropped by code of the caller: not under the lock.
        let waker = context.waker().clone();
        let mut end = lock(&self.group.end);
        match std::mem::replace(&mut *end, End::Taken) {
            End::Done(result) => Poll::Ready(result),
            End::Pending(before) => {
                *end = End::Pending(Some(waker));
                drop(end);
                drop(before);
                Poll::Pending
            }
            End::Taken => {
                drop(end);
                panic!("the ticket was polled to its end before");
            }
        }
    }
}
