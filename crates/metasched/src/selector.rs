//! Selects the scheduler that should be attached: by the clock, or by demand.
//!
//! ```text
//!   four policies, hand ──► Schedule ──► Rotation ─┐
//!                                                  ├─► Selector ──► the wanted one
//!   phase_aware: Phases ◄── demand ◄──── Watch ────┘
//! ```
//!
//! A [`Rotation`] passes turns on by the clock. A [`Watch`] samples what each
//! application demands and lets [`Phases`] decide. It samples only while
//! the wanted scheduler, or its substitute, is attached: demand during a swap tells of
//! the swap and not of a phase.
//!
//! Known weakness of `Watch`: a barred scheduler stays wanted, and Linux's own runs
//! instead, although a third one might be better.

use std::path::PathBuf;
use std::time::Duration;

use crate::host::Host;
use crate::phase::Phases;
use crate::policy::{Schedule, Turn};

/// How often demand is sampled. A phase is followed after a few samples at best.
const SAMPLE: Duration = Duration::from_millis(20);

/// How the wanted scheduler is selected.
#[derive(Debug)]
pub enum Selector {
    /// Turns by the clock.
    Turns(Rotation),
    /// What runs now.
    Phases(Watch),
}

impl Selector {
    /// The scheduler that should be in force.
    pub fn wanted(&self) -> &str {
        match self {
            Selector::Turns(rotation) => &rotation.turn().scheduler,
            Selector::Phases(watch) => watch.phases.current(),
        }
    }

    /// All schedulers that may come to be wanted.
    pub fn schedulers(&self) -> Vec<&str> {
        match self {
            Selector::Turns(rotation) => {
                let turns = rotation.schedule.turns.iter();
                turns.map(|turn| turn.scheduler.as_str()).collect()
            }
            Selector::Phases(watch) => watch.phases.schedulers().collect(),
        }
    }

    /// Takes in what has happened; whether another scheduler is wanted now.
    /// `is_settled` says whether what was wanted is in force, or whatever stands
    /// in for it.
    pub fn advance(&mut self, host: &mut impl Host, is_settled: bool) -> bool {
        match self {
            Selector::Turns(rotation) => {
                let before = rotation.at;
                rotation.advance(host.now(), is_settled);
                rotation.at != before
            }
            Selector::Phases(watch) => watch.advance(host, is_settled),
        }
    }

    /// How long from now until it should be looked at again, if that is known.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        match self {
            Selector::Turns(rotation) => rotation.left(now),
            Selector::Phases(_) => Some(SAMPLE),
        }
    }

    /// The rotation, where turns are followed.
    pub fn rotation(&self) -> Option<&Rotation> {
        match self {
            Selector::Turns(rotation) => Some(rotation),
            Selector::Phases(_) => None,
        }
    }

    /// Goes by another selector; a turn that both have goes on.
    pub fn replace(&mut self, next: Selector) {
        match (self, next) {
            (Selector::Turns(rotation), Selector::Turns(next)) => rotation.replace(next.schedule),
            (old, next) => *old = next,
        }
    }
}

/// The current turn.
#[derive(Debug)]
pub struct Rotation {
    schedule: Schedule,
    at: usize,
    /// Since when its scheduler has been in force.
    since: Option<Duration>,
}

impl Rotation {
    /// From the first turn on.
    pub fn new(schedule: Schedule) -> Rotation {
        Rotation {
            schedule,
            at: 0,
            since: None,
        }
    }

    /// Goes by another schedule. The scheduler whose turn it is keeps it, if it
    /// has one in the new schedule.
    pub fn replace(&mut self, schedule: Schedule) {
        let now = &self.turn().scheduler;
        let same = schedule.turns.iter().position(|t| t.scheduler == *now);
        *self = match same {
            Some(at) => Rotation {
                schedule,
                at,
                since: self.since,
            },
            None => Rotation::new(schedule),
        };
    }

    /// The turn.
    pub fn turn(&self) -> &Turn {
        &self.schedule.turns[self.at]
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Passes the turn on if it has lasted. `is_settled` says whether its
    /// scheduler is in force, or whatever stands in for it.
    pub fn advance(&mut self, now: Duration, is_settled: bool) {
        if !is_settled {
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now - since >= self.turn().timeslice && self.schedule.turns.len() > 1 {
            self.at = (self.at + 1) % self.schedule.turns.len();
            self.since = None;
        }
    }

    /// How long the turn lasts from now on, if it has begun.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        let gone = now.checked_sub(self.since?)?;
        Some(self.turn().timeslice.saturating_sub(gone))
    }
}

/// Looks at what the applications demand.
#[derive(Debug)]
pub struct Watch {
    phases: Phases,
    /// Of the applications, in the order that `phases` knows.
    cgroups: Vec<PathBuf>,
    /// The last sample: when, and what had been demanded until then.
    last: Option<(Duration, Vec<f64>)>,
}

impl Watch {
    /// Of applications in these cgroups, in the order that `phases` knows.
    pub fn new(phases: Phases, cgroups: Vec<PathBuf>) -> Watch {
        Watch {
            phases,
            cgroups,
            last: None,
        }
    }

    fn advance(&mut self, host: &mut impl Host, is_settled: bool) -> bool {
        let now = host.now();
        if !is_settled {
            self.last = None;
            return false;
        }
        let is_due = |(at, _): &(Duration, Vec<f64>)| now - *at >= SAMPLE;
        if !self.last.as_ref().is_none_or(is_due) {
            return false;
        }
        let demanded = host.demanded(&self.cgroups);
        let Some((at, before)) = self.last.replace((now, demanded)) else {
            return false;
        };
        let (_, demanded) = self.last.as_ref().expect("it was put there");
        // Less than before: the cgroup is another one of the same name.
        let pairs = demanded.iter().zip(&before);
        let demand: Vec<f64> = pairs.map(|(new, old)| (new - old).max(0.0)).collect();
        let wanted = self.phases.current().to_owned();
        self.phases.observe(&demand, now - at) != wanted
    }
}
