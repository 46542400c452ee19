//! Locks under one harness: who gets how much of a lock, at what price.
//!
//! ```text
//!   LockPlan ─► experiments ─► cases ─┬► each lock ─► contend ─► LockRow
//!                                     └► all locks in turn: uncontended
//! ```
//!
//! The experiments are those of CFL (paper 004), Sections 4.5 and 4.6, and the
//! promises of Section 3.4; [`LockExperiment`] lists them. Each lock runs in
//! code compiled for it (`lock`, `kind`), on critical sections of a fixed number of
//! instructions (`work`), and every run checks that the lock excluded.
//!
//! Where it runs is not known here: natively, or in a guest whose CPUs keep
//! the same pace.

mod arrivals;
mod cell;
pub(crate) mod cli;
mod contend;
mod experiment;
mod guests;
mod kind;
mod lock;
mod numa;
mod peers;
pub(crate) mod report;
mod rounds;
mod row;
mod scenario;
mod turn;
mod uncontended;
mod usage;
mod work;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

pub use experiment::LockExperiment;
pub use peers::{LibraryLock, locks};
pub use row::{ArrivalRow, Contended, LockRow, NumaRow, SetRow, Waits};

use experiment::Case;
use kind::Kind;
use row::Frame;
use scenario::Scenario;

use crate::harness::Progress;
use crate::harness::error::{Error, Result};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct LockPlan {
    /// Which experiments.
    pub experiments: Vec<LockExperiment>,
    /// Names of locks; none: all.
    pub locks: Vec<String>,
    /// Locks from shared libraries.
    pub libraries: Vec<LibraryLock>,
    /// Thread counts; none: what is usual for each experiment.
    pub threads: Vec<u32>,
    /// Length of a window; a tenth of it passes before.
    pub seconds: f64,
    /// How often everything is measured.
    pub repeat: u32,
    /// Seed of repeat 0.
    pub seed: u64,
    /// Makes all work so many times as long.
    pub scale: f64,
    /// Rounds of uncontended pairs.
    pub rounds: u32,
}

impl Default for LockPlan {
    fn default() -> Self {
        LockPlan {
            experiments: LockExperiment::ALL.to_vec(),
            locks: Vec::new(),
            libraries: Vec::new(),
            threads: Vec::new(),
            seconds: 1.0,
            repeat: 1,
            seed: 1,
            scale: 1.0,
            rounds: 101,
        }
    }
}

impl LockPlan {
    /// A first look: short windows, two thread counts.
    pub fn quick(self) -> Self {
        LockPlan {
            seconds: 0.2,
            threads: vec![4, 8],
            rounds: 21,
            ..self
        }
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// Unknown locks, libraries that do not load, a single thread, no locks.
    pub fn validate(&self) -> Result<()> {
        if let Some(count) = self
            .threads
            .iter()
            .find(|count| !(2..=1024).contains(*count))
        {
            return Err(Error::Config(format!(
                "{count} threads cannot contend here: choose 2 to 1024"
            )));
        }
        peers::chosen(&self.locks, &self.libraries).map(|_| ())
    }

    /// How many rows it makes.
    ///
    /// # Errors
    /// As [`LockPlan::validate`].
    pub fn rows(&self) -> Result<usize> {
        let kinds = peers::chosen(&self.locks, &self.libraries)?;
        let count = |experiment: &LockExperiment| {
            let cases = experiment.cases(&self.threads).len();
            cases * concerned(&kinds, *experiment).len()
        };
        let once: usize = self.experiments.iter().map(count).sum();
        Ok(once * self.repeat as usize)
    }

    /// Measures everything on this machine; one line of `progress` for each
    /// row. Locks take their turns in an order that the seed shuffles.
    ///
    /// # Errors
    /// As [`LockPlan::validate`]; a lock that let two threads in.
    pub fn run(&self, progress: Progress<'_>) -> Result<Vec<LockRow>> {
        self.validate()?;
        let kinds = peers::chosen(&self.locks, &self.libraries)?;
        let mut rows = Vec::new();
        for repeat in 0..self.repeat {
            let seed = self.seed + u64::from(repeat);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for &experiment in &self.experiments {
                let mut kinds = concerned(&kinds, experiment);
                kinds.shuffle(&mut random);
                let frame = Frame {
                    experiment,
                    repeat,
                    seed,
                    scale: self.scale,
                };
                for case in experiment.cases(&self.threads) {
                    let case = case.scaled(self.scale);
                    self.measure(frame, &case, &kinds, &mut rows, progress)?;
                }
            }
        }
        Ok(rows)
    }

    fn measure(
        &self,
        frame: Frame,
        case: &Case,
        kinds: &[&Kind],
        rows: &mut Vec<LockRow>,
        progress: Progress<'_>,
    ) -> Result<()> {
        if frame.experiment == LockExperiment::Uncontended {
            progress(&format!(
                "{}: {} locks in turn",
                frame.experiment,
                kinds.len()
            ));
            let samples = uncontended::samples(kinds, self.rounds, frame.seed)?;
            rows.extend(kinds.iter().zip(samples).map(|(kind, samples)| {
                LockRow::alone(frame, case, &kind.name, kind.traits.fair, samples)
            }));
            return Ok(());
        }
        for kind in kinds {
            progress(&format!(
                "{} {}, {} threads: {}",
                frame.experiment, case.name, case.threads, kind.name
            ));
            let outcome = kind
                .measured
                .contend(&Scenario {
                    sets: case.sets.clone(),
                    seconds: self.seconds,
                    warmup_s: self.seconds / 10.0,
                    seed: frame.seed,
                    arrivals: case.arrivals,
                })
                .map_err(|error| error.of_lock(&kind.name))?;
            let (name, fair) = (&kind.name, kind.traits.fair);
            rows.push(LockRow::contended(frame, case, name, fair, &outcome));
        }
        Ok(())
    }
}

fn concerned(kinds: &[Kind], experiment: LockExperiment) -> Vec<&Kind> {
    kinds
        .iter()
        .filter(|kind| experiment.concerns(&kind.name, kind.traits))
        .collect()
}

#[cfg(test)]
mod tests;
