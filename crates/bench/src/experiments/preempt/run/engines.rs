//! TPC-C on one core: our engine and others, in turn.
//!
//! All engines are loaded with the same rows and run the same inputs. They take
//! turns of a fixed length in an order that the seed shuffles, so that a
//! neighbour on the machine meets all of them alike; a turn's throughput is one
//! sample. Every database is checked at the end.

use std::time::{Duration, Instant};

use giveway_txn::Isolation;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::cpus::{Pinned, allowed};
use crate::experiments::preempt::row::Throughput;
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::workload::oltp::access::Engine;
use crate::workload::oltp::check::consistency;
use crate::workload::oltp::giveway::Giveway;
use crate::workload::oltp::load::load;
use crate::workload::oltp::redb::Redb;
use crate::workload::oltp::sled::Sled;
use crate::workload::oltp::sqlite::{self, Sqlite};
use crate::workload::oltp::transactions::Terminal;
use crate::workload::tpcc::generate::{Input, Inputs, Size};

/// Transactions that are run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All five, as dealt from the deck.
    Standard,
    /// New-Order and Payment by turns, as in the mix with Q2.
    Interactive,
}

impl Mix {
    pub(crate) const ALL: [Mix; 2] = [Mix::Standard, Mix::Interactive];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mix::Standard => "standard",
            Mix::Interactive => "interactive",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    pub(crate) seed: u64,
    pub(crate) warehouses: u32,
    pub(crate) size: Size,
    /// Length of a turn.
    pub(crate) slice: Duration,
    /// Turns of each engine and mix, after one that is not counted.
    pub(crate) rounds: u32,
}

/// Inputs are made so many at a time, while the clock stands: what a terminal does
/// is no engine's.
const BATCH: usize = 64;

/// How many engines there are.
pub(crate) const ENGINES: usize = 4;

/// A database and its only user.
struct Runner<E> {
    engine: E,
    inputs: Inputs,
    terminal: Terminal,
    turns: Turns,
    cpu: usize,
}

/// Runners, whatever their engine.
trait Rival {
    fn name(&self) -> &'static str;
    fn turn(&mut self, mix: Mix) -> Result<(f64, u64)>;
    fn check(&self) -> Result<()>;
    fn row(&self, mix: Mix) -> Throughput;
}

impl<E: Engine> Runner<E> {
    fn new(engine: E, turns: Turns, cpu: usize, progress: Progress<'_>) -> Result<Self> {
        let Turns {
            seed,
            warehouses,
            size,
            ..
        } = turns;
        load(&engine, seed, warehouses, size, progress)?;
        let inputs = Inputs::sized(seed, 0, warehouses, size);
        Ok(Runner {
            terminal: Terminal::new(inputs.home(), 0),
            engine,
            inputs,
            turns,
            cpu,
        })
    }
}

impl<E: Engine> Rival for Runner<E> {
    fn name(&self) -> &'static str {
        E::NAME
    }

    /// Transactions a second, and repeated attempts.
    fn turn(&mut self, mix: Mix) -> Result<(f64, u64)> {
        let (mut count, mut retries) = (0, 0);
        let mut taken = Duration::ZERO;
        while taken < self.turns.slice {
            let inputs: [Input; BATCH] = std::array::from_fn(|at| match (mix, at % 2) {
                (Mix::Standard, _) => self.inputs.next().expect("inputs never end"),
                (Mix::Interactive, 0) => self.inputs.new_order(),
                (Mix::Interactive, _) => self.inputs.payment(),
            });
            let begun = Instant::now();
            for input in &inputs {
                let ended = self.engine.run(&mut self.terminal.order(input));
                retries += ended.map_err(|failure| failure.named(E::NAME))?.1;
            }
            taken += begun.elapsed();
            count += BATCH;
        }
        Ok((count as f64 / taken.as_secs_f64(), retries))
    }

    fn check(&self) -> Result<()> {
        consistency(&self.engine, self.turns.size)
    }

    fn row(&self, mix: Mix) -> Throughput {
        Throughput {
            mix: mix.name().to_owned(),
            isolation: E::ISOLATION.to_owned(),
            durability: E::DURABILITY.to_owned(),
            warehouses: self.turns.warehouses,
            cpu: self.cpu,
            slice_s: self.turns.slice.as_secs_f64(),
            per_s: Vec::new(),
            retries: 0,
        }
    }
}

/// The engines' names and rows.
pub(crate) fn measure(
    turns: Turns,
    progress: Progress<'_>,
) -> Result<Vec<(&'static str, Throughput)>> {
    let cpu = *allowed()?.last().expect("this thread has a CPU");
    let _pinned = Pinned::to(cpu)?;
    let failed = |engine: &'static str, error: &dyn std::fmt::Display| Error::Engine {
        engine,
        reason: error.to_string(),
    };
    let giveway =
        Giveway::new(Isolation::Serializable).map_err(|error| failed(Giveway::NAME, &error))?;
    let connection = sqlite::open().map_err(|error| failed(Sqlite::NAME, &error))?;
    let redb = Redb::new().map_err(|error| failed(Redb::NAME, &error))?;
    let sled = Sled::new().map_err(|error| failed(Sled::NAME, &error))?;
    let mut rivals: [Box<dyn Rival + '_>; ENGINES] = [
        Box::new(Runner::new(giveway, turns, cpu, progress)?),
        Box::new(Runner::new(Sqlite::new(&connection), turns, cpu, progress)?),
        Box::new(Runner::new(redb, turns, cpu, progress)?),
        Box::new(Runner::new(sled, turns, cpu, progress)?),
    ];
    let mut rows: Vec<(&'static str, Throughput)> = Vec::new();
    let mut random = ChaCha8Rng::seed_from_u64(turns.seed);
    for mix in Mix::ALL {
        let mut of_mix: Vec<Throughput> = rivals.iter().map(|rival| rival.row(mix)).collect();
        let mut order: Vec<usize> = (0..rivals.len()).collect();
        // The first turn warms caches, and is not kept.
        for round in 0..=turns.rounds {
            order.shuffle(&mut random);
            for &number in &order {
                let rival = &mut rivals[number];
                progress(&format!(
                    "{}: {} mix, turn {round}",
                    rival.name(),
                    mix.name()
                ));
                let (per_s, retries) = rival.turn(mix)?;
                if round > 0 {
                    of_mix[number].per_s.push(per_s.round());
                    of_mix[number].retries += retries;
                }
            }
        }
        rows.extend(rivals.iter().map(|rival| rival.name()).zip(of_mix));
    }
    for rival in &rivals {
        progress(&format!("{}: checking", rival.name()));
        rival.check()?;
    }
    Ok(rows)
}
