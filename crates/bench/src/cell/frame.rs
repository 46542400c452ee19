//! What the cells of an experiment have in common.

use crate::cell::config::CellConfig;

/// What all cells of an experiment have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
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
}

impl Frame {
    /// The cells that `of` makes of each repeat's, all of one repeat before the
    /// next, so that a run which is cut short has whole repeats and what is
    /// compared was measured close together.
    pub(crate) fn cells<I: IntoIterator<Item = CellConfig>>(
        &self,
        of: impl Fn(CellConfig) -> I,
    ) -> Vec<CellConfig> {
        let repeats = (0..self.repeat).map(|repeat| CellConfig {
            cpus: self.cpus,
            client_cpus: CellConfig::default_client_cpus(self.cpus),
            warmup_s: self.warmup_s,
            seconds: self.seconds,
            repeat,
            seed: self.seed + u64::from(repeat),
            ..CellConfig::default()
        });
        repeats.flat_map(of).collect()
    }
}
