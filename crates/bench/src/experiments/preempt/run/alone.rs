//! How long requests take alone.

use std::time::Instant;

use super::cpus::{CpuPlan, Pinned};
use super::workload::Workload;
use crate::experiments::preempt::Service;
use crate::harness::error::{Error, Result};
use crate::workload::oltp::access::Engine;
use crate::workload::oltp::giveway::Giveway;
use crate::workload::oltp::transactions::Terminal;
use crate::workload::tpcc::generate::Inputs;

/// Rounds, of which the median counts: one that lost its CPU is none of the
/// transactions' time.
const ROUNDS: usize = 15;
/// New-Orders, and Payments, of a round.
const OF_EACH: usize = 10;
/// Measures on a worker's CPU, with nobody on the others. The database is
/// one that nothing else is measured on.
pub(super) fn measure(workload: &Workload, seed: u64, cpus: &CpuPlan) -> Result<Service> {
    let _pinned = Pinned::to(cpus.workers[0])?;
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
    use std::time::Duration;

    use super::*;

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
