//! The open loop: requests come at fixed times, whatever becomes of them
//! (Section 6.1).
//!
//! ```text
//!   due:   |t0        |t0+a       |t0+2a      …      a: arrival interval
//!          ├ a Q2 for every free place
//!          ├ a batch of workers × places urgent requests, all stamped with the
//!          │ time they are due; placed worker by worker, in turn
//!          └ what finds no place is tried again until the next batch is due, then
//!            dropped and counted
//! ```
//!
//! The calling thread is the scheduling thread. It spins: a timer of the kernel
//! would be late by more than what is measured. Where it is late itself, requests
//! carry the time at which they were due, so its delay is part of their latency
//! and is reported beside it, as are the latencies of requests that met no stall
//! of it (`stalls`).
//!
//! A request belongs to the window if it was due in it. After the window no more
//! come, and those in the queues are awaited, so that slow ones are not lost.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::stalls::Watch;
use super::workload::{Kind, Request, Requests};
use crate::experiments::preempt::row::{Latency, Mixed, Stalls, latencies};
use crate::harness::error::{Error, Result};

/// After the window, requests in queues have this long to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A request on its way to a worker.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Where requests are run.
pub(crate) trait Workers {
    /// Takes a background request, if a worker has a place for it.
    fn offer_low(&mut self, due: Instant, task: Task) -> bool;

    /// Takes as many urgent requests as there are places, worker by worker, and
    /// tells each worker once. What is left stays in order.
    fn offer_high(&mut self, due: Instant, batch: &mut Vec<Task>);

    /// Called again and again by the scheduling thread.
    fn tick(&mut self);
}

/// When requests come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// From one batch to the next.
    pub(crate) interval: Duration,
    /// Urgent requests of a batch.
    pub(crate) batch: usize,
    /// Background requests that fit in all queues.
    pub(crate) low_places: usize,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
    /// What the scheduling thread does not look at the clock for longer than this
    /// is a stall.
    pub(crate) stall: Duration,
}

impl Arrivals {
    /// How many requests there can be in all.
    pub(crate) fn slots(&self) -> usize {
        let whole = (self.warmup + self.window).as_nanos();
        let batches = whole / self.interval.as_nanos().max(1) + 2;
        batches as usize * (self.batch + self.low_places)
    }
}

/// What came of a run.
pub(crate) struct Driven {
    /// First and last instant of the window.
    pub(crate) window: (Instant, Instant),
    /// Urgent requests due in the window.
    pub(crate) urgent: u64,
    /// Those of them that found no place before the next batch.
    pub(crate) dropped: u64,
    /// How late batches were generated, in ns.
    pub(crate) late_ns: Histogram<u64>,
    /// When the scheduling thread stood still.
    pub(crate) watch: Watch,
}

/// Drives the workers to the end of the window and beyond, until they are idle.
pub(crate) fn drive(
    arrivals: &Arrivals,
    requests: &mut Requests,
    workers: &mut impl Workers,
) -> Result<Driven> {
    let start = Instant::now();
    let window = (
        start + arrivals.warmup,
        start + arrivals.warmup + arrivals.window,
    );
    let mut driven = Driven {
        window,
        urgent: 0,
        dropped: 0,
        late_ns: latencies(),
        watch: Watch::from(start, arrivals.stall),
    };
    let mut due = start;
    let mut taken = 0;
    let mut batch: Vec<Task> = Vec::with_capacity(arrivals.batch);
    while due < window.1 {
        let now = wait_until(due, workers, &mut driven.watch);
        let counts = due >= window.0;
        if counts {
            driven
                .late_ns
                .saturating_record((now - due).as_nanos() as u64);
        }
        // Not until no place is free: workers may free them as fast as they are
        // taken while this thread is off its CPU.
        for _ in 0..arrivals.low_places {
            if !workers.offer_low(due, task(requests.q2(due))) {
                break;
            }
            taken += 1;
        }
        batch.extend((0..arrivals.batch).map(|_| {
            // A large batch takes longer to make than a stall is long.
            driven.watch.now();
            task(requests.urgent(due))
        }));
        let next = due + arrivals.interval;
        loop {
            workers.offer_high(due, &mut batch);
            if batch.is_empty() || driven.watch.now() >= next {
                break;
            }
            workers.tick();
            std::hint::spin_loop();
        }
        taken += (arrivals.batch - batch.len()) as u64;
        if counts {
            driven.urgent += arrivals.batch as u64;
            driven.dropped += batch.len() as u64;
        }
        batch.clear();
        due = next;
    }
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    while requests.ended() < taken {
        if driven.watch.now() > deadline {
            return Err(Error::Config(format!(
                "requests did not end within {} s after the window: give the workers CPUs of \
                 their own",
                DRAIN_TIMEOUT.as_secs()
            )));
        }
        workers.tick();
        std::hint::spin_loop();
    }
    Ok(driven)
}

fn task(request: Request) -> Task {
    Box::new(move || request.run())
}

/// Spins until an instant; the time then.
fn wait_until(due: Instant, workers: &mut impl Workers, watch: &mut Watch) -> Instant {
    loop {
        let now = watch.now();
        if now >= due {
            return now;
        }
        workers.tick();
        std::hint::spin_loop();
    }
}

/// Latencies and completions of one kind.
struct Ended {
    /// Of requests due in the window, in ns.
    latency_ns: Histogram<u64>,
    /// Of those of them that met no stall.
    calm_ns: Histogram<u64>,
    /// Requests that ended inside the window, whenever they were due.
    inside: u64,
}

impl Ended {
    /// Counts a request that was due at `due` and took `ns`.
    fn add(&mut self, (from, to): (Instant, Instant), watch: &Watch, due: Instant, ns: u64) {
        let end = due + Duration::from_nanos(ns);
        if (from..to).contains(&due) {
            self.latency_ns.saturating_record(ns);
            if watch.is_calm(due, end) {
                self.calm_ns.saturating_record(ns);
            }
        }
        if (from..to).contains(&end) {
            self.inside += 1;
        }
    }
}

impl Driven {
    /// What the run itself says about it; the rest of the row is its caller's.
    pub(crate) fn measured(&self, arrivals: &Arrivals, requests: &Requests) -> Mixed {
        let seconds = arrivals.window.as_secs_f64();
        let [new_order, payment, q2] =
            [Kind::NewOrder, Kind::Payment, Kind::Q2].map(|kind| self.ended(requests, kind));
        let all = |of: &Ended| Latency::of(&of.latency_ns, of.inside as f64 / seconds);
        let calm = |of: &Ended| Latency::of(&of.calm_ns, of.calm_ns.len() as f64 / seconds);
        let stalls = Vec::from_iter(self.watch.between(self.window.0, self.window.1));
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        Mixed {
            seconds,
            warmup_s: arrivals.warmup.as_secs_f64(),
            arrival_us: us(arrivals.interval),
            batch: arrivals.batch,
            new_order: all(&new_order),
            payment: all(&payment),
            q2: all(&q2),
            urgent: self.urgent,
            dropped: self.dropped,
            late: Latency::of(&self.late_ns, 1.0 / arrivals.interval.as_secs_f64()),
            stalls: Some(Stalls {
                over_us: us(self.watch.over()),
                count: stalls.len() as u64,
                total_ms: us(stalls.iter().sum()) / 1e3,
                longest_us: us(stalls.iter().copied().max().unwrap_or_default()),
                new_order: calm(&new_order),
                payment: calm(&payment),
                q2: calm(&q2),
            }),
            ..Mixed::default()
        }
    }

    /// What came of the requests of a kind.
    fn ended(&self, requests: &Requests, kind: Kind) -> Ended {
        let mut ended = Ended {
            latency_ns: latencies(),
            calm_ns: latencies(),
            inside: 0,
        };
        let (from, to) = self.window;
        for (of, due, taken) in requests.outcomes() {
            let Some(ns) = taken.filter(|_| of == kind) else {
                continue;
            };
            ended.add((from, to), &self.watch, due, ns);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_belong_to_the_window_they_were_due_in_and_calm_ones_met_no_stall() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut watch = Watch::from(at(0), Duration::from_micros(100));
        // A stall from 400 to 700.
        for us in [100, 200, 300, 400, 700, 800] {
            watch.see(at(us));
        }
        let mut ended = Ended {
            latency_ns: latencies(),
            calm_ns: latencies(),
            inside: 0,
        };
        // Due before the window, calm, disturbed, and ended after the window.
        for (due, us) in [(50, 100), (110, 20), (390, 400), (710, 500)] {
            ended.add((at(100), at(800)), &watch, at(due), us * 1_000);
        }
        let counts = (ended.latency_ns.len(), ended.calm_ns.len(), ended.inside);
        assert_eq!(counts, (3, 2, 3));
        assert!(ended.calm_ns.min() < 21_000 && ended.latency_ns.max() >= 500_000);
    }
}
