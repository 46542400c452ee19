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

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::place::{Pinned, Place};
use super::workload::Workload;
use crate::oltp::access::Engine;
use crate::oltp::giveway::Giveway;
use crate::oltp::transactions::Terminal;
use crate::tpcc::generate::Inputs;
use crate::{Error, Result};

/// Rounds, of which the median counts: one that lost its CPU is none of the
/// transactions' time.
const ROUNDS: usize = 15;
/// New-Orders, and Payments, of a round.
const OF_EACH: usize = 10;
/// Urgent requests of the usual batch, for each worker (Section 6.1).
pub(crate) const BATCH: usize = 4;
/// From one usual batch to the next (Section 6.1).
pub(crate) const INTERVAL: Duration = Duration::from_millis(1);

/// Mean times of requests that nothing disturbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// New-Order and Payment, as many of each, in µs.
    pub urgent_us: f64,
    /// Q2, in µs.
    pub q2_us: f64,
}

impl Service {
    /// Measures on a worker's CPU, with nobody on the others. The database is
    /// one that nothing else is measured on.
    pub(crate) fn measure(workload: &Workload, seed: u64, place: &Place) -> Result<Self> {
        let _pinned = Pinned::to(place.workers[0])?;
        let mut inputs = Inputs::sized(seed, 0, workload.warehouses, workload.size);
        let mut terminal = Terminal::new(inputs.home(), 0);
        let engine = &workload.engine;
        let urgent = median_us(2 * OF_EACH, || {
            for _ in 0..OF_EACH {
                for input in [inputs.new_order(), inputs.payment()] {
                    let ended = engine.run(&mut terminal.order(&input));
                    ended.map_err(|failure| failure.named(Giveway::NAME))?;
                }
            }
            Ok(())
        });
        let q2 = median_us(1, || {
            let offers = workload.q2.run().map_err(|error| Error::Engine {
                engine: Giveway::NAME,
                reason: error.to_string(),
            })?;
            std::hint::black_box(offers);
            Ok(())
        });
        Ok(Service {
            urgent_us: urgent?,
            q2_us: q2?,
        })
    }

    /// The part of each worker's time that urgent requests take, if each gets so
    /// many in this time.
    pub fn load(&self, requests: f64, interval_us: f64) -> f64 {
        requests * self.urgent_us / interval_us
    }

    /// By how much to stretch the usual times for this load.
    pub(crate) fn stretch(&self, load: f64) -> f64 {
        self.load(BATCH as f64, INTERVAL.as_secs_f64() * 1e6) / load
    }
}

/// The median of the rounds' means, in µs.
fn median_us(requests: usize, mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    // Not kept: caches are cold.
    round()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        round()?;
        rounds.push(begun.elapsed().as_secs_f64() * 1e6 / requests as f64);
    }
    rounds.sort_by(f64::total_cmp);
    let nearest = |us: f64| (us * 1e3).round() / 1e3;
    Ok(nearest(rounds[ROUNDS / 2]))
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

    #[test]
    fn the_middle_round_counts() {
        let mut rounds = 0;
        let us = median_us(2, || {
            rounds += 1;
            // The first, which is not kept, and one that lost its CPU.
            if [1, 7].contains(&rounds) {
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        });
        assert!(us.unwrap() < 5e3);
        assert_eq!(rounds, ROUNDS + 1);
    }
}
