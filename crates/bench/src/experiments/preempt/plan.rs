//! What is to be measured.

use super::PreemptExperiment;
use crate::workload::tpcc::generate::Size;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreemptPlan {
    /// Which experiments.
    pub experiments: Vec<PreemptExperiment>,
    /// Numbers of workers in `scaling`, of which the largest is used in the
    /// others; none: every number that leaves the scheduling thread a CPU.
    pub workers: Vec<u32>,
    /// Length of a window before it is stretched; a tenth of it passes before.
    pub seconds: f64,
    /// The part of the workers' time that the usual batches are to take: all
    /// times of the mix are stretched accordingly. None: they are the paper's.
    pub load: Option<f64>,
    /// How often everything is measured.
    pub repeat: u32,
    /// Seed of repeat 0.
    pub seed: u64,
    /// How large a warehouse is.
    pub size: Size,
    /// TPC-H scale of Q2's tables.
    pub q2_scale: f64,
    /// Rounds of single operations.
    pub rounds: u32,
    /// UFS's program and arguments, to run OS threads on it as well.
    pub ufs: Option<Vec<String>>,
}

impl Default for PreemptPlan {
    fn default() -> Self {
        PreemptPlan {
            experiments: PreemptExperiment::ALL.to_vec(),
            workers: Vec::new(),
            seconds: 10.0,
            load: None,
            repeat: 1,
            seed: 1,
            size: Size::FULL,
            q2_scale: 0.05,
            rounds: 101,
            ufs: None,
        }
    }
}

impl PreemptPlan {
    /// A first look: short windows.
    pub(crate) fn quick(self) -> Self {
        PreemptPlan {
            seconds: 1.0,
            rounds: 21,
            ..self
        }
    }
}
