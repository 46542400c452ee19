//! What is to be measured.

use giveway_preempt::Delivery;

use super::PreemptExperiment;
use crate::workload::tpcc::generate::Size;

/// The ways of delivery, in the order in which they are run and shown.
pub(crate) const DELIVERIES: [Delivery; 4] = [
    Delivery::Poll,
    Delivery::Signal,
    Delivery::HYBRID,
    Delivery::UserInterrupt,
];

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PreemptPlan {
    /// Which experiments.
    pub experiments: Vec<PreemptExperiment>,
    /// By which deliveries policies preempt, some of [`DELIVERIES`] in their order.
    pub deliveries: Vec<Delivery>,
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
            // What every machine has.
            deliveries: DELIVERIES[..3].to_vec(),
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
    /// Whether the machine has to have user interrupts.
    pub(crate) fn needs_user_interrupts(&self) -> bool {
        self.deliveries.contains(&Delivery::UserInterrupt)
    }

    /// The deliveries that interrupt.
    pub(crate) fn interrupting(&self) -> impl Iterator<Item = Delivery> {
        let all = self.deliveries.iter().copied();
        all.filter(|delivery| *delivery != Delivery::Poll)
    }

    /// A first look: short windows.
    pub(crate) fn quick(self) -> Self {
        PreemptPlan {
            seconds: 1.0,
            rounds: 21,
            ..self
        }
    }
}
