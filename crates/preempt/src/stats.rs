//! What a pool has done, readable at any time.
//!
//! A context writes its level's books without locks, inside a region; readers
//! may see a task counted in one place and not yet in the other. Nothing is
//! reset: [`Pool::reset_stats`](crate::Pool::reset_stats) remembers where to
//! count from.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::histogram::{Reading, Recording};
use crate::level::Level;
use crate::mail::Counters;
use crate::policy::Policy;
use crate::pool::Stall;
use crate::starvation::Threshold;
use crate::sync::{AtomicU64, Relaxed};
use crate::task::Ended;
use crate::tuning::Verdict;

/// A counter.
#[derive(Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn new() -> Count {
        Count(AtomicU64::new(0))
    }

    /// Adds, where there is one writer.
    pub(crate) fn add_alone(&self, number: u64) {
        self.0.store(self.0.load(Relaxed) + number, Relaxed);
    }

    /// Adds, where there are several.
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What one context has done. Its own code writes, inside regions.
#[derive(Debug)]
pub(crate) struct Books {
    run: Count,
    panicked: Count,
    pub(crate) cancelled: Count,
    pub(crate) queue_delay: Recording,
    run_time: Recording,
    latency: Recording,
}

impl Books {
    pub(crate) fn new() -> Books {
        Books {
            run: Count::new(),
            panicked: Count::new(),
            cancelled: Count::new(),
            queue_delay: Recording::new(),
            run_time: Recording::new(),
            latency: Recording::new(),
        }
    }

    /// How many tasks have ended.
    pub(crate) fn run(&self) -> u64 {
        self.run.get()
    }

    pub(crate) fn metric(&self, metric: Metric) -> &Recording {
        match metric {
            Metric::QueueDelay => &self.queue_delay,
            Metric::RunTime => &self.run_time,
            Metric::Latency => &self.latency,
        }
    }

    /// Enters a task that has ended.
    pub(crate) fn close(&self, ended: Ended, run_ns: u64, latency_ns: u64) {
        self.run.add_alone(1);
        if ended == Ended::Panicked {
            self.panicked.add_alone(1);
        }
        self.run_time.record(run_ns);
        self.latency.record(latency_ns);
    }
}

/// What submitters have done at one level.
#[derive(Debug)]
pub(crate) struct Submissions {
    pub(crate) submitted: Count,
    pub(crate) refused_full: Count,
    pub(crate) refused_starved: Count,
}

impl Submissions {
    pub(crate) fn new() -> Submissions {
        Submissions {
            submitted: Count::new(),
            refused_full: Count::new(),
            refused_starved: Count::new(),
        }
    }
}

/// Everything countable of a level, at some moment or between two.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelReading {
    submitted: u64,
    refused_full: u64,
    refused_starved: u64,
    run: u64,
    panicked: u64,
    cancelled: u64,
    queue_delay: Reading,
    run_time: Reading,
    latency: Reading,
}

impl LevelReading {
    /// What submitters and all workers' contexts of a level have entered.
    pub(crate) fn of<'a>(
        submissions: &Submissions,
        books: impl Iterator<Item = &'a Books>,
    ) -> LevelReading {
        let mut reading = LevelReading {
            submitted: submissions.submitted.get(),
            refused_full: submissions.refused_full.get(),
            refused_starved: submissions.refused_starved.get(),
            ..LevelReading::default()
        };
        for books in books {
            reading.run += books.run.get();
            reading.panicked += books.panicked.get();
            reading.cancelled += books.cancelled.get();
            reading.queue_delay.add(&books.queue_delay.read());
            reading.run_time.add(&books.run_time.read());
            reading.latency.add(&books.latency.read());
        }
        reading
    }

    /// What has happened since `earlier`.
    pub(crate) fn since(self, earlier: &LevelReading) -> LevelReading {
        LevelReading {
            submitted: self.submitted - earlier.submitted,
            refused_full: self.refused_full - earlier.refused_full,
            refused_starved: self.refused_starved - earlier.refused_starved,
            run: self.run - earlier.run,
            panicked: self.panicked - earlier.panicked,
            cancelled: self.cancelled - earlier.cancelled,
            queue_delay: self.queue_delay.since(&earlier.queue_delay),
            run_time: self.run_time.since(&earlier.run_time),
            latency: self.latency.since(&earlier.latency),
        }
    }

    pub(crate) fn metric(&self, metric: Metric) -> &Reading {
        match metric {
            Metric::QueueDelay => &self.queue_delay,
            Metric::RunTime => &self.run_time,
            Metric::Latency => &self.latency,
        }
    }

    pub(crate) fn stats(&self, level: Level, queued: u64) -> LevelStats {
        LevelStats {
            level,
            submitted: self.submitted,
            refused_full: self.refused_full,
            refused_starved: self.refused_starved,
            queued,
            run: self.run,
            panicked: self.panicked,
            cancelled: self.cancelled,
            queue_delay: Summary::of(&self.queue_delay),
            run_time: Summary::of(&self.run_time),
            latency: Summary::of(&self.latency),
        }
    }
}

/// What there are histograms of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// From arrival to start, ns.
    QueueDelay,
    /// From start to end, with what preempted the task, ns.
    RunTime,
    /// From arrival to end, ns.
    Latency,
}

/// A distribution in a few numbers, all but the first in ns, known to 1.6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values there are. If none, the rest is 0.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// Half of them are not above it.
    pub p50_ns: u64,
    /// 90 % of them are not above it.
    pub p90_ns: u64,
    /// 99 % of them are not above it.
    pub p99_ns: u64,
    /// 99.9 % of them are not above it.
    pub p999_ns: u64,
    /// The largest.
    pub max_ns: u64,
}

impl Summary {
    pub(crate) fn of(reading: &Reading) -> Summary {
        let count = reading.len();
        let quantile = |quantile| reading.quantile(quantile).unwrap_or(0);
        Summary {
            count,
            mean_ns: reading.sum().checked_div(count).unwrap_or(0),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: quantile(1.0),
        }
    }
}

impl From<&Histogram<u64>> for Summary {
    /// The same numbers of a histogram that was recorded elsewhere, ns.
    fn from(histogram: &Histogram<u64>) -> Summary {
        Summary {
            count: histogram.len(),
            mean_ns: histogram.mean() as u64,
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

/// A level of all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelStats {
    /// Which one.
    pub level: Level,
    /// Tasks taken in.
    pub submitted: u64,
    /// Tasks refused because the queues were full.
    pub refused_full: u64,
    /// Tasks refused because background work had waited too long.
    pub refused_starved: u64,
    /// Tasks that wait now.
    pub queued: u64,
    /// Tasks that have ended, those that panicked included.
    pub run: u64,
    /// Tasks that have panicked.
    pub panicked: u64,
    /// Cancelled tasks that a worker has come across.
    pub cancelled: u64,
    /// From arrival to start.
    pub queue_delay: Summary,
    /// From start to end, with what preempted the task.
    pub run_time: Summary,
    /// From arrival to end.
    pub latency: Summary,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Requests to preempt it, and what became of them, since the start.
    pub requests: Counters,
    /// The starvation level L of its background work now, 0 to 1.
    pub starvation: f64,
    /// For how long its background work was in line or running, since the start,
    /// ns.
    pub in_line_ns: u64,
    /// For how long of that it was at a higher level, ns.
    pub higher_ns: u64,
    /// Whether it waits for work.
    pub idle: bool,
    /// How often it stood still, because a task waited for a lock for long while
    /// another of its tasks, which may hold the lock, was stopped.
    #[serde(default)]
    pub stalls: u64,
    /// Who waits for what, and who may have it, while it stands still.
    #[serde(default)]
    pub stall: Option<Stall>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStats {
    /// When workers leave background work.
    pub policy: Policy,
    /// The starvation threshold L_max in force.
    pub threshold: Threshold,
    /// How the goal fares; `None` without a goal.
    pub tuning: Option<Verdict>,
    /// From the base up, since the last reset.
    pub levels: Vec<LevelStats>,
    /// One for each worker.
    pub workers: Vec<WorkerStats>,
}
