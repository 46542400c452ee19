//! The mix on the pool of `giveway-preempt`, under any of its policies.

use std::time::Instant;

use giveway_preempt::{Goal, Level, Policy, Pool, PoolStats, Request, Shutdown, Threshold, Ticker};
use giveway_tier::Tier;

use super::cases::{Case, Sharing};
use super::cpus::CpuPlan;
use super::driver::{Task, Workers};
use crate::harness::error::{Error, Result};

/// The pool, with the calling thread as its scheduling thread.
pub(crate) struct PoolWorkers(Pool);

impl PoolWorkers {
    pub(crate) fn start(case: &Case, policy: Policy, cpus: &CpuPlan) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::Config(format!("the pool cannot run '{}': {error}", case.title()))
        };
        let places = u32::try_from(case.high_queue).map_err(|error| failed(&error))?;
        let mut pool = Pool::builder()
            .workers(cpus.workers.len())
            .pin(cpus.workers.iter().copied())
            .capacity(Level::new(0), 1)
            .capacity(Level::new(1), places)
            .policy(policy)
            .ticker(Ticker::Caller);
        pool = match case.sharing {
            Sharing::Threshold(share) => {
                pool.threshold(Threshold::new(share).map_err(|error| failed(&error))?)
            }
            Sharing::Tuned(share) => pool.goal(Goal::CpuShare(share)),
        };
        Ok(PoolWorkers(pool.build().map_err(|error| failed(&error))?))
    }

    /// Ends the workers; what they counted.
    pub(crate) fn stop(self) -> PoolStats {
        let stats = self.0.stats();
        // Everything has ended already.
        self.0.shutdown(Shutdown::Drain);
        stats
    }
}

impl Workers for PoolWorkers {
    fn offer_low(&mut self, due: Instant, task: Task) -> bool {
        let request = Request::from(Tier::Background).arrival(due);
        self.0.submit(request, task).is_ok()
    }

    fn offer_high(&mut self, due: Instant, batch: &mut Vec<Task>) {
        let request = Request::from(Tier::TimeSensitive).arrival(due);
        let placed = self.0.submit_batch(request, batch.drain(..));
        *batch = placed.refused;
    }

    fn tick(&mut self) {
        self.0.tick();
    }
}
