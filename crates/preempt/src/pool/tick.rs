//! What needs a clock: requests to repeat, work to resume, a threshold to tune.
//!
//! A request that found its worker in code that cannot be left is repeated
//! ([`Remote::rearm`](crate::Remote::rearm)). Urgent work that was put off,
//! because background work had waited too long, is requested for again when the
//! background work has caught up; the published code leaves it until the
//! background task ends or the next batch comes. And once in a while the
//! threshold's controller looks at what it has done.

use std::time::Duration;

use crate::clock;
use crate::histogram::Reading;
use crate::level::Level;
use crate::pool::common::Stop;
use crate::pool::watch::LOOK;
use crate::pool::{Desk, Inner, Pool};
use crate::starvation::{InLine, Threshold};
use crate::stats::{Books, Metric};
use crate::sync::{Acquire, Relaxed, Release, Word};
use crate::tuning::{Goal, Tuner, Verdict, Window};

/// What the ticking thread sleeps on.
pub(crate) struct Alarm {
    state: Word,
}

const TICKING: u32 = 0;
const RUNG: u32 = 1;
const SLEEPING: u32 = 2;

impl Alarm {
    pub(crate) fn new() -> Alarm {
        Alarm {
            state: Word::new(TICKING),
        }
    }

    /// Has the thread tick at once.
    pub(crate) fn ring(&self) {
        if self.state.value.swap(RUNG, Release) == SLEEPING {
            self.state.wake();
        }
    }

    /// Sleeps until it rings, or for so long.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let word = &self.state.value;
        if word
            .compare_exchange(TICKING, SLEEPING, Relaxed, Relaxed)
            .is_ok()
        {
            self.state.sleep_while(SLEEPING, timeout);
        }
        // What was done before it rang is seen by the tick that follows.
        word.swap(TICKING, Acquire);
    }
}

/// The least that the ticking thread sleeps: the kernel's timers are no better.
const NAP: Duration = Duration::from_micros(50);
/// How often a pool with a goal looks whether a window is over.
const LOOK_NS: u64 = 50_000_000;

impl Pool {
    /// Repeats requests that found their worker in code that cannot be left,
    /// resumes urgent work that was put off for the sake of background work, and
    /// tunes the threshold. Returns after how long it wants to be called again;
    /// `None` if not before something is submitted.
    ///
    /// With [`Ticker::Caller`](crate::Ticker::Caller), for the loop of a
    /// scheduling thread; a thread of the pool does it otherwise.
    pub fn tick(&self) -> Option<Duration> {
        self.inner.tick()
    }

    /// Starts a thread that ticks.
    pub(super) fn start_ticker(&self) -> std::io::Result<()> {
        let inner = std::sync::Arc::clone(&self.inner);
        let thread = std::thread::Builder::new()
            .name("giveway-tick".to_owned())
            .spawn(move || {
                let alarm = inner
                    .common
                    .alarm
                    .as_ref()
                    .expect("a pool that ticks has an alarm");
                while inner.has_workers() {
                    alarm.sleep(inner.tick().map(|after| after.max(NAP)));
                }
            })?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl Pool {
    /// Starts a thread that watches for workers that wait for themselves.
    pub(super) fn start_watch(&self) -> std::io::Result<()> {
        let inner = std::sync::Arc::clone(&self.inner);
        let thread = std::thread::Builder::new()
            .name("giveway-watch".to_owned())
            .spawn(move || {
                while inner.has_workers() {
                    inner.watch_alarm.sleep(Some(LOOK));
                    inner.watch();
                }
            })?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl Inner {
    /// Whether there is, or will be, somebody to request something of: tasks that
    /// run before the pool stops are preempted as well.
    fn has_workers(&self) -> bool {
        let mut desks = self.desks.iter();
        self.common.stop() == Stop::No || desks.any(|desk| desk.remote.is_alive())
    }

    fn tick(&self) -> Option<Duration> {
        let now = clock::now();
        let desks = self.desks.iter().flat_map(|desk| {
            let resume = self.resume(desk, now).map(Duration::from_nanos);
            // After resuming, which may have requested something.
            [resume, desk.remote.rearm()]
        });
        let tuned = self.tune(now).map(Duration::from_nanos);
        desks.chain([tuned]).flatten().min()
    }

    /// Requests again what was put off, if it may run by now; otherwise returns
    /// when it may, ns from now.
    fn resume(&self, desk: &Desk, now: u64) -> Option<u64> {
        let station = &*desk.station;
        let levels = 1..self.submissions.len() as u8;
        let put_off = levels.map(Level::new).rev().find(|&level| {
            station.queues[level.index()].is_ready()
                && !station.serving.will_look(level)
                && !desk.remote.outstanding().contains(level)
        })?;
        if !self.common.interrupts() || station.parking.is_idle() {
            return None;
        }
        match station
            .starvation
            .until_within(self.common.threshold(), now)?
        {
            0 => {
                desk.remote.preempt(put_off);
                None
            }
            after => Some(after),
        }
    }

    /// Judges a window if one is over; returns when to look again, ns from now.
    fn tune(&self, now: u64) -> Option<u64> {
        let tuning = self.tuning.as_ref()?;
        // Whoever else ticks does it.
        if let Some(mut tuning) = tuning.try_lock()
            && let Some(threshold) = tuning.look(self, now)
        {
            self.common.set_threshold(threshold);
        }
        Some(LOOK_NS)
    }
}

/// The controller, and where its window began.
pub(crate) struct Tuning {
    tuner: Tuner,
    began: Option<Began>,
}

/// All that a window is the difference of.
struct Began {
    at: u64,
    in_line: InLine,
    higher_tasks: u64,
    latency: Reading,
    background: Reading,
}

impl Tuning {
    pub(crate) fn new(goal: Goal) -> Tuning {
        Tuning {
            tuner: Tuner::new(goal),
            began: None,
        }
    }

    pub(crate) fn threshold(&self) -> Threshold {
        self.tuner.threshold()
    }

    pub(crate) fn verdict(&self) -> Verdict {
        self.tuner.verdict()
    }

    /// Ends the window if it has lasted long enough; then returns the threshold.
    fn look(&mut self, inner: &Inner, now: u64) -> Option<Threshold> {
        if let Some(began) = &self.began {
            // Somebody else who ticks may have read a later clock and judged before.
            let length_ns = now.checked_sub(began.at)?;
            let higher_tasks = inner.higher_tasks() - began.higher_tasks;
            if !self.tuner.is_due(length_ns, higher_tasks) {
                return None;
            }
        }
        let next = Began {
            at: now,
            in_line: inner.in_line(now),
            higher_tasks: inner.higher_tasks(),
            latency: inner.reading(1.., Metric::Latency),
            background: inner.reading(..1, Metric::RunTime),
        };
        let began = self.began.replace(next)?;
        let next = self.began.as_ref()?;
        let latency = next.latency.clone().since(&began.latency);
        let background = next.background.clone().since(&began.background);
        let length_ns = now - began.at;
        Some(
            self.tuner.observe(&Window {
                length_ns,
                workers_ns: length_ns * inner.desks.len() as u64,
                higher_tasks: latency.len(),
                latency_ns: latency.quantile(self.tuner.quantile()).unwrap_or(0),
                tasks: background.len(),
                in_line_ns: next.in_line.total_ns.saturating_sub(began.in_line.total_ns),
                higher_ns: next
                    .in_line
                    .higher_ns
                    .saturating_sub(began.in_line.higher_ns),
                longest_ns: background.quantile(1.0).unwrap_or(0),
            }),
        )
    }
}

impl Inner {
    fn books<'a>(
        &'a self,
        levels: impl std::slice::SliceIndex<[Books], Output = [Books]> + Clone + 'a,
    ) -> impl Iterator<Item = &'a Books> {
        let desks = self.desks.iter();
        desks.flat_map(move |desk| &desk.station.books[levels.clone()])
    }

    /// Tasks above the base that have ended.
    fn higher_tasks(&self) -> u64 {
        self.books(1..).map(Books::run).sum()
    }

    fn in_line(&self, now: u64) -> InLine {
        let mut all = InLine::default();
        for desk in &self.desks {
            let one = desk.station.starvation.in_line(now);
            all.total_ns += one.total_ns;
            all.higher_ns += one.higher_ns;
        }
        all
    }

    fn reading(
        &self,
        levels: impl std::slice::SliceIndex<[Books], Output = [Books]> + Clone,
        metric: Metric,
    ) -> Reading {
        let mut all = Reading::default();
        for books in self.books(levels) {
            all.add(&books.metric(metric).read());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Ticker;

    #[test]
    fn who_ticks_with_an_older_clock_judges_nothing() {
        let goal = Goal::CpuShare(0.5);
        let pool = Pool::builder().workers(1).ticker(Ticker::Caller);
        let pool = pool.goal(goal).build().unwrap();
        let mut tuning = pool.inner.tuning.as_ref().unwrap().lock();
        let now = clock::now();
        assert!(tuning.look(&pool.inner, now).is_none());
        assert!(tuning.look(&pool.inner, now - 1).is_none());
        assert_eq!(tuning.began.as_ref().unwrap().at, now);
    }
}
