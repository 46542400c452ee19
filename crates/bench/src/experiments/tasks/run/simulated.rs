//! The mix in virtual time: the worker pool's own code on TPC-H's sizes
//! (`giveway_tasks::simulation`), without an engine.
//!
//! What a policy does is told apart here from what the machine does: the same seed gives the
//! same row on every machine, to the nanosecond. There are no caches, no memory and no
//! operators that cannot be divided; `mix` has those.

use std::time::Duration;

use giveway_tasks::simulation::{self, Arrival, tpch};
use giveway_tasks::{Policy, Pool};

use super::settings::Settings;
use super::trace::{Due, Phase, trace};
use crate::experiments::tasks::TasksCell;
use crate::experiments::tasks::kind::Kind;
use crate::experiments::tasks::row::{Arrived, Measured, Sample};
use crate::harness::error::{Error, Result};

fn work_ms(kind: Kind) -> f64 {
    tpch::work_ms(kind.query, kind.large)
}

/// Runs the cell's trace under a policy, in no time.
pub(super) fn measure(
    cell: &TasksCell,
    policy: Policy,
    settings: &Settings,
    seconds: f64,
) -> Result<Measured> {
    let load = cell.load.expect("cells with arrivals have a load");
    let phases = [Phase::paper(seconds)];
    let due = trace(&phases, load, settings.workers, cell.seed, work_ms);
    let arrivals: Vec<Arrival> = due.iter().map(arrival).collect();
    let pool = Pool::builder()
        .workers(settings.workers as usize)
        .tuning(settings.tracking, settings.refresh)
        .policy(policy);
    let run =
        simulation::run(&pool, &arrivals).map_err(|error| Error::Config(error.to_string()))?;
    let workers = f64::from(settings.workers);
    let sample = |(due, outcome): (&Due, &simulation::Outcome)| Sample {
        kind: due.kind,
        long: due.long,
        phase: due.phase,
        due_ms: ms(due.at),
        latency_ms: outcome.latency_ns as f64 / 1e6,
        alone_ms: work_ms(due.kind) / workers,
    };
    let samples: Vec<Sample> = due.iter().zip(&run.queries).map(sample).collect();
    let work_s: f64 = due.iter().map(|due| work_ms(due.kind) / 1e3).sum();
    let span_s = run.end_ns as f64 / 1e9;
    Ok(Measured::Arrived(Box::new(Arrived {
        seconds,
        span_s,
        offered: work_s / seconds / workers,
        // Until the end of the last query, which comes soon after the last arrival.
        busy: work_s / span_s / workers,
        tuning_s: (
            settings.tracking.as_secs_f64(),
            settings.refresh.as_secs_f64(),
        ),
        samples,
        ..Arrived::default()
    })))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn arrival(due: &Due) -> Arrival {
    Arrival {
        class: usize::from(due.long),
        ..Arrival::new(due.at.as_nanos() as u64, (work_ms(due.kind) * 1e6) as u64)
    }
}
