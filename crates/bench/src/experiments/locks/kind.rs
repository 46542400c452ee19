//! A lock as it is chosen by name, and how a run gets at its type.
//!
//! What is chosen at run time is a whole run: a [`Kind`] is a name and a
//! [`Measured`], whose functions take milliseconds and more.
//!
//! ```text
//!   name ──► Kind ──► Measured ──► contend::run::<L>     a run under contention
//!                        │    └──► Rounds::serve::<L>    rounds without any
//!                        └ made from a closure that makes an L
//! ```

use std::fmt;
use std::marker::PhantomData;

use super::contend::{self, Outcome};
use super::lock::BenchLock;
use super::rounds::Rounds;
use super::scenario::Scenario;
use crate::harness::error::Result;

/// What can be measured of a lock whose type is no longer known.
pub(crate) trait Measured: Send + Sync {
    /// One run under contention.
    fn contend(&self, scenario: &Scenario) -> Result<Outcome>;

    /// The lock with the calling thread alone: rounds of uncontended pairs,
    /// as they are asked for.
    fn alone(&self, rounds: &Rounds) -> Result<()>;
}

/// A lock as `--locks` names it.
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) traits: Traits,
    pub(crate) measured: Box<dyn Measured>,
}

impl Kind {
    /// A lock made by `make`, anew for every run.
    pub(crate) fn new<L, F>(name: impl Into<String>, about: &'static str, make: F) -> Self
    where
        L: BenchLock + 'static,
        F: Fn() -> Result<L> + Send + Sync + 'static,
    {
        Kind {
            name: name.into(),
            about,
            traits: Traits::default(),
            measured: Box::new(Maker(make, PhantomData)),
        }
    }

    pub(crate) fn with(mut self, traits: Traits) -> Self {
        self.traits = traits;
        self
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("name", &self.name)
            .field("traits", &self.traits)
            .finish_non_exhaustive()
    }
}

/// What a lock promises; experiments about a promise leave the others out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Shares hold time, so that it is no rival in throughput for its own sake.
    pub(crate) fair: bool,
    /// Shares by weight.
    pub(crate) weighted: bool,
    /// Takes no lock at all: a baseline for uncontended calls.
    pub(crate) baseline: bool,
}

struct Maker<F, L>(F, PhantomData<fn() -> L>);

impl<L, F> Measured for Maker<F, L>
where
    L: BenchLock + 'static,
    F: Fn() -> Result<L> + Send + Sync,
{
    fn contend(&self, scenario: &Scenario) -> Result<Outcome> {
        contend::run(&(self.0)()?, scenario)
    }

    fn alone(&self, rounds: &Rounds) -> Result<()> {
        rounds.serve(&(self.0)()?);
        Ok(())
    }
}
