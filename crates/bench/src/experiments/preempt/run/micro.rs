//! What single operations cost: regions, poll points, switches, delivery.
//!
//! A round is a loop of [`COUNT`] operations; its time divided by their number is
//! a sample, and every sample is kept. The loop itself, a fraction of a ns, is
//! part of it.

use std::hint::black_box;
use std::time::Instant;

use giveway_preempt::{Delivery, Level, Worker, poll_point, poll_record, region, yield_to};

use super::cpus::{CpuPlan, Pinned};
use crate::experiments::preempt::row::{Delivery as DeliveryRow, Measured, Operation};
use crate::experiments::preempt::{POLL_POINT, POLL_RECORD, REGION, SWITCH};
use crate::harness::error::{Error, Result};

/// Operations of a round: long beside a reading of the clock, short beside a time
/// slice.
const COUNT: u32 = 10_000;
/// Requests of which delivery is measured.
const REQUESTS: u32 = 2_000;

/// How many rows [`measure`] makes.
pub(crate) fn rows(deliveries: &[Delivery]) -> usize {
    4 + deliveries.len()
}

/// Measures everything on the first worker's CPU.
pub(crate) fn measure(
    cpus: &CpuPlan,
    deliveries: &[Delivery],
    rounds: u32,
) -> Result<Vec<(String, Measured)>> {
    let mut rows = operations(cpus, rounds)?;
    for delivery in deliveries {
        let latency = delivery
            .measure(REQUESTS)
            .map_err(|error| Error::Config(format!("delivery by {delivery}: {error}")))?;
        rows.push((
            delivery.to_string(),
            Measured::Delivery(DeliveryRow { latency }),
        ));
    }
    Ok(rows)
}

fn operations(cpus: &CpuPlan, rounds: u32) -> Result<Vec<(String, Measured)>> {
    let _pinned = Pinned::to(cpus.workers[0])?;
    let _worker = Worker::builder()
        .delivery(Delivery::Poll)
        .level("urgent", |_| ())
        .enter()
        .map_err(|error| Error::Config(format!("cannot become a worker: {error}")))?;
    let row = |name: &str, ns: Vec<f64>| (name.to_owned(), Measured::Operation(Operation { ns }));
    let away_and_back = || black_box(yield_to(Level::new(1)));
    // A yield is two switches and an empty body.
    let switch = samples(rounds, away_and_back)
        .into_iter()
        .map(|ns| ns / 2.0);
    Ok(vec![
        row(SWITCH, switch.collect()),
        row(REGION, samples(rounds, || drop(black_box(region())))),
        row(POLL_POINT, samples(rounds, poll_point)),
        row(POLL_RECORD, samples(rounds, poll_record)),
    ])
}

/// ns of one operation in each round; the first round is not kept.
fn samples<T>(rounds: u32, mut operation: impl FnMut() -> T) -> Vec<f64> {
    let mut round = || {
        let begun = Instant::now();
        for _ in 0..COUNT {
            operation();
        }
        begun.elapsed().as_nanos() as f64 / f64::from(COUNT)
    };
    round();
    (0..rounds).map(|_| (round() * 1e3).round() / 1e3).collect()
}
