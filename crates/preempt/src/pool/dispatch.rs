//! Which worker gets a task, and how it learns of it (Sections 4.1 and 5).
//!
//! **Placement.** Workers take turns. Of a batch, a worker gets as many tasks as
//! its queue has places for, then the next worker gets the rest; every worker
//! that got some is notified once: *batched on-demand preemption*. Unlike the
//! paper, whose workers are always busy, idle workers come first: preempting
//! one worker while another one spins has no use.
//!
//! **Starvation.** A worker whose background work has waited too long gets no
//! urgent task, and is not interrupted.
//!
//! **Notification.** An idle worker is woken if it sleeps. One that has told the
//! kernel that it runs background work only is raised first (`lowering`). A busy
//! one is sent a request, if the policy interrupts, unless the context of the level
//! is at work: it will look at its queue again before it stops (P2 of `station`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::clock;
use crate::context::current_level;
use crate::delivery::Delivery;
use crate::level::Level;
use crate::pool::request::{Batch, Refused, Request, Why};
use crate::pool::station::Entry;
use crate::pool::{Desk, Inner, Pool};
use crate::presence::Presence;
use crate::queue;
use crate::region::region;
use crate::task::{Job, Ticket};

impl Pool {
    /// Hands a task to a worker, and has the worker preempted if it runs a less
    /// urgent one and the policy says so. Waits for nothing; any thread may call
    /// it, also inside a task.
    ///
    /// # Errors
    /// The task comes back, with what to do about it.
    pub fn submit<F, R>(
        &self,
        request: impl Into<Request>,
        task: F,
    ) -> Result<Ticket<R>, Refused<F>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let mut batch = self.place(request.into(), std::iter::once(task));
        match (batch.tickets.pop(), batch.refused.pop(), batch.why) {
            (Some(ticket), _, _) => Ok(ticket),
            (None, Some(task), Some(why)) => Err(Refused { task, why }),
            _ => unreachable!("a task is taken in, or refused for a reason"),
        }
    }

    /// Hands tasks to workers, as many to one as fit, and notifies each of them
    /// once. The iterator is run to its end before the first is handed over.
    ///
    /// # Panics
    /// If the iterator does; then nothing is submitted.
    pub fn submit_batch<F, R>(
        &self,
        request: impl Into<Request>,
        tasks: impl IntoIterator<Item = F>,
    ) -> Batch<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        // All at once: between a push and the notification nothing may wait or panic.
        let tasks: Vec<F> = tasks.into_iter().collect();
        self.place(request.into(), tasks.into_iter())
    }

    /// Hands tasks to workers, from an iterator that neither waits nor panics.
    fn place<F, R>(&self, request: Request, mut tasks: impl Iterator<Item = F>) -> Batch<F, R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        let level = request.level(self.levels());
        if level.index() >= self.levels() {
            return Batch {
                tickets: Vec::new(),
                refused: tasks.collect(),
                why: Some(Why::NoSuchLevel),
            };
        }
        let mut placing = Placing {
            job: tasks.next().map(Job::new).map(Arc::new),
            rest: tasks,
            tickets: Vec::new(),
            why: None,
        };
        let now = clock::now();
        let arrival = request.arrived().map_or(now, clock::at);
        for desk in self.inner.order() {
            let entry = |task: Arc<Job<F, R>>| Entry {
                task,
                weight: request.share(),
                arrival,
            };
            if self.inner.is_starved(desk, level, now) {
                placing.why = Some(Why::Starved);
            } else if placing.fill(desk, level, entry) > 0 {
                self.inner.notify(desk, level);
            }
            if placing.job.is_none() || placing.why == Some(Why::ShuttingDown) {
                break;
            }
        }
        let batch = placing.end();
        self.inner.count(level, &batch);
        batch
    }
}

/// Tasks on their way to workers.
struct Placing<F, R, I> {
    /// The next one; `None` if all are placed.
    job: Option<Arc<Job<F, R>>>,
    rest: I,
    tickets: Vec<Ticket<R>>,
    /// What the worker asked last had against it.
    why: Option<Why>,
}

impl<F, R, I> Placing<F, R, I>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
    I: Iterator<Item = F>,
{
    /// Gives a worker what fits; returns how many that was.
    fn fill(
        &mut self,
        desk: &Desk,
        level: Level,
        entry: impl Fn(Arc<Job<F, R>>) -> Entry,
    ) -> usize {
        let queue = &desk.station.queues[level.index()];
        let before = self.tickets.len();
        while let Some(job) = self.job.take() {
            let pushed = {
                // Known weakness of `queue`: nobody should stop in between.
                let _region = region();
                queue.push(entry(Arc::clone(&job)))
            };
            match pushed {
                Ok(()) => {
                    self.tickets.push(Ticket::new(job));
                    self.job = self.rest.next().map(Job::new).map(Arc::new);
                }
                Err(refused) => {
                    self.why = Some(match &refused {
                        queue::Refused::Full(_) => Why::Full,
                        queue::Refused::Closed(_) => Why::ShuttingDown,
                    });
                    drop(refused);
                    self.job = Some(job);
                    break;
                }
            }
        }
        self.tickets.len() - before
    }

    fn end(self) -> Batch<F, R> {
        let refused: Vec<F> = (self.job.map(Job::into_closure).into_iter())
            .chain(self.rest)
            .collect();
        Batch {
            why: self.why.filter(|_| !refused.is_empty()),
            tickets: self.tickets,
            refused,
        }
    }
}

impl Inner {
    /// In which order workers are asked: in turns, idle ones first, who are asked
    /// again if that was not enough.
    fn order(&self) -> impl Iterator<Item = &Desk> {
        let first = self.turn.fetch_add(1, Relaxed) % self.desks.len();
        let (late, early) = self.desks.split_at(first);
        let turns = || early.iter().chain(late);
        let idle = turns().filter(|desk| self.desks.len() > 1 && desk.station.parking.is_idle());
        idle.chain(turns())
    }

    /// Before pushing (Section 5): whether the worker's background work has
    /// waited too long.
    fn is_starved(&self, desk: &Desk, level: Level, now: u64) -> bool {
        level != Level::BASE
            && desk
                .station
                .starvation
                .exceeds(self.common.threshold(), now)
    }

    /// Sees to it that a worker learns of what was pushed.
    fn notify(&self, desk: &Desk, level: Level) {
        let presence = desk.station.parking.notify();
        if level != Level::BASE {
            let _region = region();
            desk.station.standing.raise();
        }
        if presence == Presence::Busy
            && level != Level::BASE
            && self.common.interrupts()
            && !desk.station.serving.will_look(level)
        {
            self.interrupt(desk, level);
        }
    }

    /// Requests a preemption; with a thread that ticks, makes sure that it will
    /// be repeated if need be.
    pub(crate) fn interrupt(&self, desk: &Desk, level: Level) {
        let Some(alarm) = &self.common.alarm else {
            desk.remote.preempt(level);
            return;
        };
        match self.common.policy().delivery() {
            // Most requests are taken sooner than the thread would wake up. A
            // worker may be asking for itself, and could wait for long.
            Some(Delivery::Hybrid { grace }) if current_level().is_none() => {
                desk.remote.preempt_within(level, grace + MARGIN);
            }
            _ => {
                desk.remote.preempt(level);
            }
        }
        if !desk.remote.outstanding().is_empty() {
            alarm.ring();
        }
    }

    fn count<F, R>(&self, level: Level, batch: &Batch<F, R>) {
        let books = &self.submissions[level.index()];
        books.submitted.add(batch.tickets.len() as u64);
        let refused = batch.refused.len() as u64;
        match batch.why {
            Some(Why::Full) => books.refused_full.add(refused),
            Some(Why::Starved) => books.refused_starved.add(refused),
            Some(Why::ShuttingDown | Why::NoSuchLevel) | None => {}
        }
    }
}

/// What a submitter waits beyond the grace of a `Hybrid` request, so that it
/// sends the signal itself.
const MARGIN: Duration = Duration::from_micros(1);
