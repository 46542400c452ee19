//! Which engine has its turn when.
//!
//! ```text
//!   repeat ─ columns, threads ─┬ load ─ A ─ B ─ C ─ F ─ D
//!                              └ load ─ E
//!   a workload:   turn 1 of each engine, turn 2 of each, …    each time in another order
//! ```
//!
//! The order of workloads is YCSB's: those that add no row share what was loaded, D adds
//! rows and is last, E begins anew. Every engine asks the same operations of a turn. A
//! neighbour on the machine meets all engines alike, since turns are short; an engine's
//! latencies are those of all its turns together.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use super::process::{Process, Setup, Used};
use super::row::{Latency, OltpEngine, OltpRow, OltpWorkload, Operation};
use super::turn::{Turn, histogram};
use crate::harness::Progress;
use crate::harness::error::{Error, Result};
use crate::harness::number::Spread;

/// Turns of each engine and workload.
const TURNS: u32 = 4;
/// The warm-up of a turn, as a share of what counts.
const WARMUP: f64 = 0.25;

/// A workload on every engine, once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) workload: OltpWorkload,
    pub(super) columns: u32,
    pub(super) threads: u32,
    pub(super) repeat: u32,
    pub(super) seed: u64,
}

impl Cell {
    pub(super) fn title(&self) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        format!(
            "{}, {} column{}, {} thread{}, repeat {}",
            self.workload,
            self.columns,
            plural(self.columns),
            self.threads,
            plural(self.threads),
            self.repeat + 1
        )
    }
}

/// The place of a workload in the order in which they are run.
pub(super) fn place(workload: OltpWorkload) -> usize {
    const ORDER: [OltpWorkload; 6] = [
        OltpWorkload::A,
        OltpWorkload::B,
        OltpWorkload::C,
        OltpWorkload::F,
        OltpWorkload::D,
        OltpWorkload::E,
    ];
    let place = ORDER.iter().position(|of| *of == workload);
    place.expect("every workload has its place")
}

/// What holds for all cells.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) engines: Vec<OltpEngine>,
    pub(super) rows: u64,
    /// What counts of each engine's time in a cell.
    pub(super) seconds: f64,
    /// Where engines' files go.
    pub(super) dir: PathBuf,
}

/// Engines with their rows, which cells share.
pub(super) struct Bench {
    settings: Settings,
    open: Mutex<Option<Open>>,
}

struct Open {
    /// Columns, threads, repeat.
    shape: (u32, u32, u32),
    state: State,
    engines: Vec<Process>,
}

/// What was done to the rows since they were loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Some were read or changed.
    Used,
    /// Some were added.
    Grown,
}

impl State {
    /// Whether a workload may begin with them: E on rows that lie as they were loaded.
    fn suits(self, workload: OltpWorkload) -> bool {
        match self {
            State::Used => workload != OltpWorkload::E,
            State::Grown => false,
        }
    }

    fn after(workload: OltpWorkload) -> Self {
        match workload {
            OltpWorkload::D | OltpWorkload::E => State::Grown,
            _ => State::Used,
        }
    }
}

/// What an engine's turns add up to.
struct Sum {
    latencies: Vec<(Operation, Histogram<u64>)>,
    turns: Vec<Used>,
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Bench {
        Bench {
            settings,
            open: Mutex::new(None),
        }
    }

    /// Runs one workload on all engines.
    ///
    /// # Errors
    /// An engine fails, or loses a row.
    pub(super) fn run(&self, cell: &Cell, progress: Progress<'_>) -> Result<Vec<OltpRow>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = (cell.columns, cell.threads, cell.repeat);
        // Those that do not suit give their memory back first. Those of a cell that fails
        // are not kept: one may have ended.
        let suits = |open: &Open| open.shape == shape && open.state.suits(cell.workload);
        let kept = open.take().filter(suits);
        let mut engines = match kept {
            Some(kept) => kept.engines,
            None => self.load(cell, progress)?,
        };
        let mut random = ChaCha8Rng::seed_from_u64(cell.seed);
        let mut order: Vec<usize> = (0..engines.len()).collect();
        let mut sums: Vec<Sum> = engines.iter().map(|_| Sum::new()).collect();
        let slice = self.settings.seconds / f64::from(TURNS);
        for turn in 0..TURNS {
            order.shuffle(&mut random);
            for &at in &order {
                let engine = &mut engines[at];
                progress(&format!(
                    "{}: turn {}, {}",
                    cell.title(),
                    turn + 1,
                    engine.engine()
                ));
                sums[at].add(engine.turn(Turn {
                    workload: cell.workload,
                    warmup_s: slice * WARMUP,
                    seconds: slice,
                    seed: cell.seed << 8 | u64::from(turn),
                })?);
            }
        }
        // A turn may be one long operation, all of them may not.
        let idle = sums.iter().position(|sum| sum.latencies.is_empty());
        if let Some(at) = idle {
            return Err(Error::Queries {
                who: engines[at].engine().to_string(),
                reason: "no operation ended in its turns: give more --seconds".to_owned(),
            });
        }
        let rows = engines.iter().zip(sums);
        let rows = rows.map(|(engine, sum)| self.row(cell, engine, sum));
        let rows = rows.collect();
        *open = Some(Open {
            shape,
            state: State::after(cell.workload),
            engines,
        });
        Ok(rows)
    }

    fn load(&self, cell: &Cell, progress: Progress<'_>) -> Result<Vec<Process>> {
        let mut engines = Vec::new();
        for &engine in &self.settings.engines {
            progress(&format!("{}: loading {engine}", cell.title()));
            engines.push(Process::start(&Setup {
                engine,
                rows: self.settings.rows,
                columns: cell.columns,
                threads: cell.threads,
                seed: cell.seed,
                dir: self.settings.dir.clone(),
            })?);
        }
        Ok(engines)
    }

    fn row(&self, cell: &Cell, engine: &Process, sum: Sum) -> OltpRow {
        let median = |of: fn(&Used) -> f64| {
            let spread = Spread::of(sum.turns.iter().map(of));
            spread.map_or(0.0, |spread| spread.median)
        };
        let latency = sum
            .latencies
            .iter()
            .map(|(operation, of)| (*operation, Latency::of(of)));
        OltpRow {
            engine: engine.engine(),
            version: engine.version().to_owned(),
            workload: cell.workload,
            columns: cell.columns,
            threads: cell.threads,
            rows: self.settings.rows,
            repeat: cell.repeat,
            seed: cell.seed,
            seconds: self.settings.seconds / f64::from(TURNS),
            turns: TURNS,
            per_s: median(|used| used.took.per_s).round(),
            latency: latency.collect(),
            cpus: (median(|used| used.cpus) * 100.0).round() / 100.0,
            memory_mib: sum.turns.last().map_or(0, |used| used.memory_mib),
            huge_mib: sum.turns.last().map_or(0, |used| used.huge_mib),
        }
    }
}

impl Sum {
    fn new() -> Self {
        Sum {
            latencies: Vec::new(),
            turns: Vec::new(),
        }
    }

    fn add(&mut self, mut used: Used) {
        for (operation, counts) in std::mem::take(&mut used.took.counts) {
            let known = self.latencies.iter().position(|(of, _)| *of == operation);
            let at = known.unwrap_or_else(|| {
                self.latencies.push((operation, histogram()));
                self.latencies.len() - 1
            });
            for (ns, count) in counts {
                self.latencies[at].1.saturating_record_n(ns, count);
            }
        }
        self.turns.push(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_begin_with_rows_as_they_were_loaded() {
        let after = |workload| State::after(workload);
        assert!(after(OltpWorkload::A).suits(OltpWorkload::D));
        assert!(!after(OltpWorkload::C).suits(OltpWorkload::E));
        assert!(!after(OltpWorkload::D).suits(OltpWorkload::E));
        assert!(!after(OltpWorkload::E).suits(OltpWorkload::C));
    }

    #[test]
    fn turns_add_up() {
        let used = |ns, count, per_s| Used {
            took: super::super::turn::Took {
                counts: [(Operation::Read, vec![(ns, count)])].into(),
                per_s,
            },
            cpus: 1.0,
            memory_mib: 7,
            huge_mib: 2,
        };
        let mut sum = Sum::new();
        sum.add(used(100, 3, 10.0));
        sum.add(used(900, 1, 30.0));
        let (operation, latencies) = &sum.latencies[0];
        assert_eq!((*operation, latencies.len()), (Operation::Read, 4));
        let latency = Latency::of(latencies);
        assert_eq!((latency.p50_us, latency.max_us), (0.1, 0.9));
    }
}
