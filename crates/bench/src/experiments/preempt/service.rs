//! How long requests take alone, and when they should come therefore.
//!
//! The paper's batch every millisecond takes about an eighth of a worker's time
//! on a machine of today, which leaves the rest to Q2. On one that is thirty
//! times slower, as the lab's, it takes four workers' time: every policy is
//! overloaded, and the experiment says nothing about any. What has to stay is
//! the *load*: the part of a worker's time that urgent requests take,
//!
//! ```text
//!   load = requests of a batch for a worker × their mean time alone / interval
//! ```
//!
//! So all of the experiment's times (interval, window, the bound of a stall) are
//! stretched by one factor, which makes the load what was asked for. The factor
//! is measured once and used for every method: they are offered the same.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Urgent requests of the usual batch, for each worker (Section 6.1).
pub(crate) const BATCH: usize = 4;
/// From one usual batch to the next (Section 6.1).
pub(crate) const INTERVAL: Duration = Duration::from_millis(1);

/// Mean times of requests that nothing disturbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Service {
    /// New-Order and Payment, as many of each, in µs.
    pub urgent_us: f64,
    /// Q2, in µs.
    pub q2_us: f64,
}

impl Service {
    /// The part of each worker's time that urgent requests take, if each gets so
    /// many in this time.
    pub(crate) fn load(&self, requests: f64, interval_us: f64) -> f64 {
        requests * self.urgent_us / interval_us
    }

    /// By how much to stretch the usual times for this load.
    pub(crate) fn stretch(&self, load: f64) -> f64 {
        self.load(BATCH as f64, INTERVAL.as_secs_f64() * 1e6) / load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_what_was_asked_for() {
        let slow = Service {
            urgent_us: 1_000.0,
            q2_us: 100e3,
        };
        assert_eq!(slow.load(4.0, 1_000.0), 4.0);
        let stretch = slow.stretch(0.125);
        assert_eq!(stretch, 32.0);
        assert_eq!(slow.load(4.0, stretch * 1_000.0), 0.125);
    }
}
