//! Plays a trace: an open loop, as queries come whatever becomes of those before.
//!
//! ```text
//!   driver:  sleep until due ─▶ hand over ─▶ …            ─▶ count ends, give up in time
//!                                  │                            ▲
//!   client:                 submit, wait for the result ────────┘
//! ```
//!
//! A latency runs from when a query was due, so a driver or a client that is late
//! flatters nobody. Plans were made before; making them is not measured. The driver and
//! the client are two threads beside the workers; what they take from them, they take
//! from all that are compared.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::alone::Alone;
use super::host::{SharedHost, runtime};
use super::trace::Due;
use crate::experiments::tasks::row::{Arrived, Sample};
use crate::harness::error::Result;

/// What is to be played.
pub(super) struct Play<'a> {
    pub(super) trace: &'a [Due],
    /// For how long queries come.
    pub(super) length: Duration,
    /// When those that have not ended are given up, after that.
    pub(super) patience: Duration,
    pub(super) threads: u32,
    /// What slowdowns are relative to.
    pub(super) alone: &'a Alone,
}

/// Plays the trace. Queries that fail, or have not ended in time, are counted.
///
/// # Errors
/// A plan could not be copied.
pub(super) fn play(host: &SharedHost, play: &Play<'_>) -> Result<Arrived> {
    let plans = play.trace.iter().map(|due| host.query(due.kind));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    let client = runtime();
    let handle = client.handle().clone();
    let (end, ends) = channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut ended: Vec<Option<Result<Duration, String>>> = vec![None; play.trace.len()];
    let busy = thread::scope(|scope| {
        scope.spawn(move || {
            // Ends with an error when the driver is done; queries that are still
            // running are dropped with the runtime, which cancels them.
            let _ = client.block_on(stopped);
        });
        let begun = Instant::now();
        let cpu_before = host.cpu();
        for ((due, plan), index) in play.trace.iter().zip(plans).zip(0_usize..) {
            thread::sleep(due.at.saturating_sub(begun.elapsed()));
            let (host, end) = (Arc::clone(host), end.clone());
            handle.spawn(async move {
                let result = host.run(plan).await.map(drop);
                let result = result.map_err(|error| error.to_string());
                // Nobody listens once the run is given up.
                let _ = end.send((index, result.map(|()| begun.elapsed())));
            });
        }
        thread::sleep(play.length.saturating_sub(begun.elapsed()));
        let cpu_s = host.cpu().since_s(&cpu_before);
        let busy = cpu_s / begun.elapsed().as_secs_f64() / f64::from(play.threads);
        let give_up = begun + play.length + play.patience;
        drop(end);
        // Until all have ended, or time is up.
        while let Ok((index, result)) =
            ends.recv_timeout(give_up.saturating_duration_since(Instant::now()))
        {
            ended[index] = Some(result);
        }
        drop(stop);
        busy
    });
    Ok(collected(play, &ended, busy))
}

/// The row of what became of each query, in the order of the trace.
pub(super) fn collected(
    play: &Play<'_>,
    ended: &[Option<Result<Duration, String>>],
    busy: f64,
) -> Arrived {
    let give_up = play.length + play.patience;
    let mut arrived = Arrived {
        seconds: play.length.as_secs_f64(),
        busy,
        ..Arrived::default()
    };
    let mut span = Duration::ZERO;
    let mut work_ms = 0.0;
    for (due, ended) in play.trace.iter().zip(ended) {
        let alone = play.alone.of(due.kind);
        work_ms += alone.work_ms;
        let end = match ended {
            Some(Ok(end)) => *end,
            None => {
                arrived.unfinished += 1;
                give_up
            }
            Some(Err(why)) => {
                arrived.failed.0 += 1;
                if arrived.failed.1.is_empty() {
                    arrived.failed.1 = format!("{}: {why}", due.kind);
                }
                continue;
            }
        };
        span = span.max(end);
        arrived.samples.push(Sample {
            kind: due.kind,
            long: due.long,
            phase: due.phase,
            due_ms: due.at.as_secs_f64() * 1e3,
            latency_ms: end.saturating_sub(due.at).as_secs_f64() * 1e3,
            alone_ms: alone.latency_ms,
        });
    }
    arrived.span_s = span.as_secs_f64();
    arrived.offered = work_ms / 1e3 / arrived.seconds / f64::from(play.threads);
    arrived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::tasks::kind::Kind;
    use crate::experiments::tasks::run::alone::Once;

    #[test]
    fn latencies_run_from_due_times_and_nobody_is_forgotten() {
        let kind = Kind {
            query: 6,
            large: false,
        };
        let due = |at_s| Due {
            at: Duration::from_secs(at_s),
            kind,
            long: false,
            phase: 0,
        };
        let alone = Alone::new([(
            kind,
            Once {
                latency_ms: 500.0,
                work_ms: 800.0,
            },
        )]);
        let trace = [due(1), due(2), due(3)];
        let play = Play {
            trace: &trace,
            length: Duration::from_secs(4),
            patience: Duration::from_secs(6),
            threads: 2,
            alone: &alone,
        };
        let ended = [
            Some(Ok(Duration::from_secs(2))),
            Some(Err("no memory".to_owned())),
            None,
        ];
        let arrived = collected(&play, &ended, 0.5);
        let latencies: Vec<f64> = arrived.samples.iter().map(|one| one.latency_ms).collect();
        // The last had waited for 7 s when the run was given up.
        assert_eq!(latencies, [1_000.0, 7_000.0]);
        assert_eq!(arrived.samples[0].slowdown(), 2.0);
        assert_eq!(arrived.unfinished, 1);
        assert_eq!(arrived.failed, (1, "Q6 small: no memory".to_owned()));
        // 3 · 0.8 s of work in 2 · 4 s.
        assert!((arrived.offered - 0.3).abs() < 1e-9);
    }
}
