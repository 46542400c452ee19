//! What a submitter says about a task, and what it hears.

use std::time::Instant;

use giveway_tier::{Tier, Weight};

use crate::level::Level;
use crate::task::Ticket;

/// How urgent a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Tier(Tier),
    Level(Level),
}

/// What a submitter says about a task, or about a batch of them.
///
/// A [`Tier`] or a [`Level`] is a request: background work goes to the base,
/// time-sensitive work to the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    urgency: Urgency,
    weight: Weight,
    arrival: Option<Instant>,
}

impl Request {
    /// For this level.
    pub const fn at(level: Level) -> Request {
        Request::new(Urgency::Level(level))
    }

    const fn new(urgency: Urgency) -> Request {
        Request {
            urgency,
            weight: Weight::DEFAULT,
            arrival: None,
        }
    }

    /// How much of a worker's background time such tasks get, compared with
    /// others that wait for it. Above the base it is not looked at.
    pub const fn weight(mut self, weight: Weight) -> Request {
        self.weight = weight;
        self
    }

    /// When the task came, or was meant to come; the moment of submission if
    /// nobody says. Delays and latencies are counted from then.
    pub const fn arrival(mut self, arrival: Instant) -> Request {
        self.arrival = Some(arrival);
        self
    }

    /// The level on workers that have so many.
    pub(crate) fn level(&self, levels: usize) -> Level {
        match self.urgency {
            Urgency::Tier(tier) => Level::of(tier, levels),
            Urgency::Level(level) => level,
        }
    }

    pub(crate) fn share(&self) -> Weight {
        self.weight
    }

    pub(crate) fn arrived(&self) -> Option<Instant> {
        self.arrival
    }
}

impl From<Tier> for Request {
    fn from(tier: Tier) -> Request {
        Request::new(Urgency::Tier(tier))
    }
}

impl From<Level> for Request {
    fn from(level: Level) -> Request {
        Request::at(level)
    }
}

/// Why a task was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// All queues of the level are full. Try again when a task has ended.
    #[error("the queues of all workers are full: try again when a task has ended")]
    Full,
    /// No worker may be taken from its background task now (Section 5). Try
    /// again a little later.
    #[error("background work has waited too long: try again when it has caught up")]
    Starved,
    /// The pool does not take tasks any more.
    #[error("the pool is shutting down: submit to another one")]
    ShuttingDown,
    /// The workers have no such level.
    #[error("the workers have no such level: give PoolBuilder::levels more of them")]
    NoSuchLevel,
}

/// A task that was not taken in: it comes back to its submitter.
#[derive(thiserror::Error)]
#[error("{why}")]
pub struct Refused<F> {
    /// The task.
    pub task: F,
    /// What to do about it.
    pub why: Why,
}

impl<F> std::fmt::Debug for Refused<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused")
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

/// What has become of a batch.
#[derive(Debug)]
#[must_use = "some tasks may have been refused"]
pub struct Batch<F, R> {
    /// One for each task taken in, in order.
    pub tickets: Vec<Ticket<R>>,
    /// The tasks that were not, in order: those after the ones taken in.
    pub refused: Vec<F>,
    /// Why they were not; `None` if all were.
    pub why: Option<Why>,
}
