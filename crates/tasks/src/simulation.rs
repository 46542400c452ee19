//! The whole scheduler with a virtual clock: the workers, slots and morsels of a pool,
//! on one thread, with pipelines that only advance the clock. The same trace gives the
//! same result on every machine, to the nanosecond.
//!
//! ```text
//!   next of:  a query arrives    ──▶ submit
//!             a task ends        ──▶ finish
//!   then:     idle workers with news ──▶ begin, execute: ends at now + what it took
//! ```
//!
//! A task's morsels are taken when it begins, all at once; in a pool other
//! workers take theirs in between. Everything else happens in the order of
//! virtual time. The search for parameters takes no virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use giveway_tier::{Tier, Weight};
use serde::Serialize;

use crate::clock::{Clock, VirtualClock};
use crate::group::Ticket;
use crate::local::SplitMix;
use crate::order::Order;
use crate::pipeline::{Failure, Morsel, Pipeline, Step};
use crate::pool::{BuildError, Builder};
use crate::query::Query;
use crate::shared::Shared;
use crate::worker::{Running, Worker};

/// A query of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrival {
    /// Since the beginning, ns.
    pub at_ns: u64,
    /// Its tier.
    pub tier: Tier,
    /// Its weight.
    pub weight: Weight,
    /// What its pipelines cost, one after the other.
    pub pipelines: Vec<Cost>,
    /// Which kind of query of its mix it is, for readers of the results.
    pub class: usize,
}

/// What a pipeline costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// How many units it has.
    pub units: u64,
    /// What a unit takes, ns.
    pub unit_ns: u64,
}

impl Arrival {
    /// A time-sensitive query of one pipeline that keeps one worker busy for so
    /// long, in units of 1 µs.
    pub fn new(at_ns: u64, work_ns: u64) -> Arrival {
        Arrival {
            at_ns,
            tier: Tier::DEFAULT,
            weight: Weight::DEFAULT,
            pipelines: vec![Cost {
                units: work_ns.div_ceil(1000),
                unit_ns: 1000,
            }],
            class: 0,
        }
    }

    /// What the query takes one worker, ns.
    pub fn work_ns(&self) -> u64 {
        self.pipelines
            .iter()
            .map(|cost| cost.units * cost.unit_ns)
            .sum()
    }
}

/// What became of a query of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// From its arrival to its end, ns.
    pub latency_ns: u64,
    /// What it took workers, ns.
    pub ran_ns: u64,
}

/// What became of a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Query by query, as in the trace.
    pub queries: Vec<Outcome>,
    /// When the last one ended, ns.
    pub end_ns: u64,
    /// How many tasks were run, those of the tuner included.
    pub tasks: u64,
    /// By what queries are ordered at the end, with policies that have parameters.
    pub order: Option<Order>,
    /// How often they were tuned.
    pub tunings: u64,
}

/// A pipeline that only takes time.
struct Timed {
    clock: Arc<VirtualClock>,
    cost: Cost,
}

impl Pipeline for Timed {
    fn units(&self) -> Option<u64> {
        Some(self.cost.units)
    }

    fn run(&self, morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let range = morsel.range();
        self.clock
            .advance((range.end - range.start) * self.cost.unit_ns);
        Ok(Step::More)
    }
}

/// Runs a trace, whose queries are in the order of their arrival.
///
/// # Errors
/// What is wrong with the builder.
///
/// # Panics
/// If the trace is not in order, or the builder's wait queue has no place for all
/// of its queries.
pub fn run(builder: &Builder, trace: &[Arrival]) -> Result<Run, BuildError> {
    let settings = builder.settings()?;
    let clock = Arc::new(VirtualClock::default());
    let shared = Shared::new(settings, Arc::clone(&clock) as Arc<dyn Clock>);
    let mut workers: Vec<Worker> = (0..settings.targets.workers)
        .map(|number| Worker::new(&shared, number))
        .collect();
    let mut running: Vec<Option<Running>> = workers.iter().map(|_| None).collect();
    // Ends of tasks, with their workers.
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut tickets: Vec<Ticket> = Vec::with_capacity(trace.len());
    let mut now_ns = 0;
    loop {
        let arrival = trace.get(tickets.len());
        let end = ends.peek().map(|Reverse(end)| *end);
        match (arrival, end) {
            (Some(arrival), end) if end.is_none_or(|(end_ns, _)| arrival.at_ns < end_ns) => {
                assert!(arrival.at_ns >= now_ns || end.is_none(), "a trace in order");
                now_ns = now_ns.max(arrival.at_ns);
                clock.set(now_ns);
                tickets.push(submit(&shared, &clock, arrival));
            }
            (_, Some((end_ns, worker))) => {
                ends.pop();
                now_ns = end_ns;
                clock.set(now_ns);
                let task = running[worker].take().expect("a task that ends was begun");
                workers[worker].finish(task);
                // Looks for the next one below, also without news.
                begin(
                    &mut workers[worker],
                    &mut running[worker],
                    worker,
                    &clock,
                    now_ns,
                    &mut ends,
                );
            }
            (None, None) => break,
            (Some(_), None) => unreachable!("an arrival comes before no end"),
        }
        // What a worker begins may be news for another.
        while let Some(worker) = (0..workers.len())
            .find(|&worker| running[worker].is_none() && workers[worker].has_news())
        {
            begin(
                &mut workers[worker],
                &mut running[worker],
                worker,
                &clock,
                now_ns,
                &mut ends,
            );
        }
    }
    let queries = tickets.into_iter().map(|ticket| {
        assert!(ticket.is_done(), "a query of the trace is stranded");
        let report = ticket.wait().expect("timed pipelines do not fail");
        Outcome {
            latency_ns: report.latency_ns,
            ran_ns: report.ran_ns,
        }
    });
    Ok(Run {
        queries: queries.collect(),
        end_ns: now_ns,
        tasks: shared
            .counters
            .iter()
            .map(|counters| counters.read().tasks)
            .sum(),
        order: shared.order(),
        tunings: shared.tunings.load(std::sync::atomic::Ordering::Relaxed),
    })
}

fn submit(shared: &Shared, clock: &Arc<VirtualClock>, arrival: &Arrival) -> Ticket {
    let mut query = Query::new("").tier(arrival.tier).weight(arrival.weight);
    for &cost in &arrival.pipelines {
        let clock = Arc::clone(clock);
        query = query.pipeline(Timed { clock, cost });
    }
    match shared.submit(query) {
        Ok(group) => Ticket { group },
        Err(refused) => panic!("a query of the trace was refused: {refused}"),
    }
}

/// Has a worker begin a task if it finds one.
fn begin(
    worker: &mut Worker,
    running: &mut Option<Running>,
    number: usize,
    clock: &VirtualClock,
    now_ns: u64,
    ends: &mut BinaryHeap<Reverse<(u64, usize)>>,
) {
    if let Some(mut task) = worker.begin() {
        worker.execute(&mut task);
        ends.push(Reverse((clock.now_ns(), number)));
        *running = Some(task);
    }
    clock.set(now_ns);
}

/// A mix of short queries and of ones ten times as long, 3:1, that arrive at
/// random (Section 5.1). Either kind is spread over a decade, about as TPC-H's
/// queries are at one scale factor.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mix {
    /// The middle of what a short query takes one worker, ns.
    pub short_ns: u64,
    /// How many queries.
    pub queries: usize,
    /// How many workers the load is meant for.
    pub workers: usize,
    /// The load: 1 is as much as they can do.
    pub load: f64,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Mix {
    /// How long a query is on average, ns of one worker.
    pub fn mean_ns(&self) -> f64 {
        // The mean of 10^u over -1/2 < u < 1/2.
        let spread = (10f64.sqrt() - 10f64.sqrt().recip()) / 10f64.ln();
        (3.0 + 10.0) / 4.0 * spread * self.short_ns as f64
    }

    /// The trace, from this moment on. Short queries are of class 0, long ones of
    /// class 1.
    pub fn trace(&self, from_ns: u64) -> Vec<Arrival> {
        let mut random = SplitMix(self.seed);
        let gap_ns = self.mean_ns() / self.workers as f64 / self.load;
        let mut at_ns = from_ns as f64;
        let arrival = |_| {
            at_ns += -(1.0 - random.unit()).ln() * gap_ns;
            let class = usize::from(random.next().is_multiple_of(4));
            let scale = [1.0, 10.0][class] * 10f64.powf(random.unit() - 0.5);
            Arrival {
                class,
                ..Arrival::new(at_ns as u64, (self.short_ns as f64 * scale) as u64)
            }
        };
        (0..self.queries).map(arrival).collect()
    }
}

pub mod tpch;

#[cfg(test)]
mod tests;
