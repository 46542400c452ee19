//! What hints cost, and what they are good for, in the ordinary mixed workload
//! (UFS paper, Sections 6.1 and 6.7): TPC-C beside Q17 or a maintenance job,
//! MIN:MAX, under UFS, with priorities by SQL roles.
//!
//! | arm | the server says | UFS |
//! | --- | --- | --- |
//! | off | nothing of locks | has tiers and weights |
//! | counted | what it holds and awaits | reads it, and counts whom it would boost |
//! | on | the same | boosts, too |
//!
//! Each arm is measured for each server with the same seeds, so that a ratio is
//! one of two runs which differ in nothing else. "off" to "on" is the cost;
//! "counted" to "on" is what boosts are worth. One more pair per server is run
//! while the kernel times UFS's callbacks. That slows them down, so its
//! throughput does not count.

pub(crate) mod cli;
pub(crate) mod report;

use crate::cell::config::{CellConfig, Mix};
use crate::cell::record::cell_rows;
use crate::cell::setup::{Build, By, Hints};
use crate::harness::scheduler::Scheduler;
use crate::workload::background::Job;

/// The cells of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HintPlan {
    /// Servers, each with the hints that it can give.
    pub hints: Vec<Hints>,
    /// What runs in the background. Q17 reads tables that TPC-C does not use;
    /// maintenance shares the log with it.
    pub job: Job,
    /// CPUs of the server.
    pub cpus: u32,
    /// Seconds of warm-up.
    pub warmup_s: f64,
    /// Seconds of the window.
    pub seconds: f64,
    /// Repeats of every cell.
    pub repeat: u32,
    /// Seed of the first repeat; the others count on from it.
    pub seed: u64,
    /// Whether to run the pair whose callbacks are timed.
    pub time_callbacks: bool,
}

/// What UFS is told, and what it does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arm {
    /// No hints.
    Off,
    /// Hints are read, and nobody is boosted.
    Counted,
    /// Hints are read and heeded.
    On,
}

impl Arm {
    /// All arms, in the order in which they are measured.
    pub(crate) const ALL: [Arm; 3] = [Arm::Off, Arm::Counted, Arm::On];

    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Arm::Off => "off",
            Arm::Counted => "counted",
            Arm::On => "on",
        }
    }
}

impl HintPlan {
    /// The cells, all of one repeat before the next.
    pub(crate) fn cells(&self) -> Vec<CellConfig> {
        let mut cells = Vec::new();
        for repeat in 0..self.repeat {
            for hints in &self.hints {
                cells.extend(Arm::ALL.map(|arm| self.cell(*hints, arm, repeat)));
            }
        }
        let servers = self.hints.iter().filter(|_| self.time_callbacks);
        for (hints, arm) in servers.flat_map(|hints| [(hints, Arm::Off), (hints, Arm::On)]) {
            cells.push(CellConfig {
                time_callbacks: true,
                ..self.cell(*hints, arm, 0)
            });
        }
        cells
    }

    fn cell(&self, hints: Hints, arm: Arm, repeat: u32) -> CellConfig {
        CellConfig {
            scheduler: Scheduler::Ufs,
            mix: Mix::MinMax,
            cpus: self.cpus,
            client_cpus: CellConfig::default_client_cpus(self.cpus),
            by: By::Roles,
            job: self.job,
            server: hints.build(),
            hints: match arm {
                Arm::Off => Hints::Off,
                Arm::Counted | Arm::On => hints,
            },
            boost: arm != Arm::Counted,
            warmup_s: self.warmup_s,
            seconds: self.seconds,
            repeat,
            seed: self.seed + u64::from(repeat),
            ..CellConfig::default()
        }
    }
}

cell_rows! {
    /// A row of the experiment: one of the mixed workload.
    HintRow, "hint-overhead"
}

impl HintRow {
    /// The server that ran.
    pub(crate) fn server(&self) -> Build {
        self.0.server
    }

    /// The arm that it belongs to.
    pub(crate) fn arm(&self) -> Arm {
        match (self.0.hints, self.0.counted_only) {
            (Hints::Off, _) => Arm::Off,
            (_, true) => Arm::Counted,
            (_, false) => Arm::On,
        }
    }

    /// Whether it was slowed down by the timing of callbacks.
    pub(crate) fn is_timed(&self) -> bool {
        self.0
            .ufs
            .as_ref()
            .is_some_and(|ufs| !ufs.callbacks.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_differ_in_hints_alone_and_share_their_seeds() {
        let plan = HintPlan {
            hints: vec![Hints::Stock, Hints::Patched],
            job: Job::Vacuum,
            cpus: 2,
            warmup_s: 1.0,
            seconds: 4.0,
            repeat: 5,
            seed: 7,
            time_callbacks: true,
        };
        let cells = plan.cells();
        assert_eq!(cells.len(), 5 * 2 * 3 + 4);
        assert!(cells.iter().all(|cell| cell.validate().is_ok()));
        let (off, on) = (&cells[3], &cells[5]);
        assert_eq!((off.server, on.server), (Build::Patched, Build::Patched));
        let made_equal = CellConfig {
            hints: Hints::Patched,
            ..off.clone()
        };
        assert_eq!(made_equal, *on);
        let counted: Vec<_> = cells.iter().filter(|cell| !cell.boost).collect();
        assert!(counted.len() == 10 && counted.iter().all(|cell| cell.hints != Hints::Off));
    }
}
