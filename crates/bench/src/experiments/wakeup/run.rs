//! The threads: who asks whom, and what is recorded.
//!
//! Those who have asked a message thread stand in a list without a lock: a worker
//! puts itself in front (compare-and-swap), the message thread takes all of them
//! (swap), so there is no thread that others wait for in between.
//!
//! A worker is parked until it is answered. Parking has a token: who is unparked
//! first does not sleep, so there is no wake-up to lose between asking and
//! sleeping, nor for the message thread between its look at the list and its own
//! sleep. At the end `stop` is set before everybody is unparked once more, and all
//! look at it before they sleep again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::WakeupPlan;
use super::work::{CpuLocks, Matrices};
use crate::workload::tpcc::terminal::Window;

/// What a request waits for the network, before it computes.
const NETWORK: Duration = Duration::from_micros(100);
/// Latencies that can be told apart, in nanoseconds, to three digits.
const LATENCY_NS: (u64, u64) = (100, 600_000_000_000);

/// What was recorded inside the window.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// From being woken to running, in nanoseconds.
    pub(super) wakeups: Histogram<u64>,
    /// From running to the end of the work.
    pub(super) requests: Histogram<u64>,
}

impl Default for Recorded {
    fn default() -> Self {
        let (least, most) = LATENCY_NS;
        let histogram =
            || Histogram::new_with_bounds(least, most, 3).expect("the bounds and digits are valid");
        Recorded {
            wakeups: histogram(),
            requests: histogram(),
        }
    }
}

impl Recorded {
    fn add(&mut self, other: &Recorded) {
        let alike = "all histograms have the same bounds";
        self.wakeups.add(&other.wakeups).expect(alike);
        self.requests.add(&other.requests).expect(alike);
    }
}

/// A message thread and its workers.
struct Team {
    message: OnceLock<Thread>,
    /// The worker that asked last, from 1; 0: nobody waits.
    asked: AtomicUsize,
    workers: Vec<Worker>,
}

/// What others know of a worker.
#[derive(Default)]
struct Worker {
    thread: OnceLock<Thread>,
    /// Who asked before it, as in [`Team::asked`].
    before: AtomicUsize,
    /// When it was woken, in nanoseconds of [`Clock`].
    woken_ns: AtomicU64,
    answered: AtomicBool,
}

/// Time that fits an atomic.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

impl Team {
    fn new(workers: u32) -> Self {
        Team {
            message: OnceLock::new(),
            asked: AtomicUsize::new(0),
            workers: (0..workers).map(|_| Worker::default()).collect(),
        }
    }

    /// Puts a worker in front of those who wait.
    fn ask(&self, number: usize) {
        let worker = &self.workers[number];
        let mut first = self.asked.load(Ordering::Relaxed);
        loop {
            worker.before.store(first, Ordering::Relaxed);
            // Release: who takes the list sees `before` and all that came earlier.
            let changed = self.asked.compare_exchange_weak(
                first,
                number + 1,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => break,
                Err(other) => first = other,
            }
        }
        unpark(&self.message);
    }

    /// Wakes everybody who waits.
    fn answer(&self, clock: Clock) {
        // Acquire: see `ask`.
        let mut next = self.asked.swap(0, Ordering::Acquire);
        let now = clock.now_ns();
        while let Some(number) = next.checked_sub(1) {
            let worker = &self.workers[number];
            // Read first: once it is answered, the worker may ask again.
            next = worker.before.load(Ordering::Relaxed);
            worker.woken_ns.store(now, Ordering::Relaxed);
            // Release: who sees the answer sees the time.
            worker.answered.store(true, Ordering::Release);
            unpark(&worker.thread);
        }
    }

    /// The message thread.
    fn deliver(&self, clock: Clock, stop: &AtomicBool) {
        loop {
            let last = stop.load(Ordering::SeqCst);
            self.answer(clock);
            if last {
                break;
            }
            thread::park();
        }
        for worker in &self.workers {
            unpark(&worker.thread);
        }
    }

    /// Asks, and waits for the answer; for how long it was woken before it ran,
    /// unless it was stopped instead.
    fn wait(&self, number: usize, clock: Clock, stop: &AtomicBool) -> Option<u64> {
        let worker = &self.workers[number];
        worker.answered.store(false, Ordering::Relaxed);
        self.ask(number);
        loop {
            if worker.answered.load(Ordering::Acquire) {
                let woken_ns = worker.woken_ns.load(Ordering::Relaxed);
                return Some(clock.now_ns().saturating_sub(woken_ns));
            }
            if stop.load(Ordering::SeqCst) {
                return None;
            }
            thread::park();
        }
    }
}

/// All threads have said who they are before any of them begins.
fn unpark(thread: &OnceLock<Thread>) {
    if let Some(thread) = thread.get() {
        thread.unpark();
    }
}

/// What the threads of all teams share.
struct Setup<'a> {
    plan: &'a WakeupPlan,
    window: Window,
    clock: Clock,
    locks: CpuLocks,
    ready: Barrier,
    stop: AtomicBool,
}

impl Setup<'_> {
    /// A worker's thread.
    fn work(&self, team: &Team, number: usize) -> Recorded {
        let mut recorded = Recorded::default();
        let mut matrices = Matrices::new(self.plan.footprint_kib);
        let _ = team.workers[number].thread.set(thread::current());
        self.ready.wait();
        while let Some(wakeup_ns) = team.wait(number, self.clock, &self.stop) {
            let begun = Instant::now();
            if self.window.contains(begun) {
                recorded.wakeups.saturating_record(wakeup_ns);
            }
            thread::sleep(NETWORK);
            {
                let _guard = self.locks.here();
                (0..self.plan.operations).for_each(|_| matrices.multiply());
            }
            let ended = Instant::now();
            if self.window.contains(ended) {
                let ns = (ended - begun).as_nanos() as u64;
                recorded.requests.saturating_record(ns);
            }
        }
        recorded
    }
}

/// Runs all threads to the end of the window, and adds up what they recorded.
pub(super) fn run(plan: &WakeupPlan, window: Window) -> Recorded {
    let teams = (0..plan.message_threads).map(|_| Team::new(plan.workers()));
    let teams: Vec<Team> = teams.collect();
    let threads = plan.message_threads * (plan.workers() + 1);
    let setup = Setup {
        plan,
        window,
        clock: Clock(Instant::now()),
        locks: CpuLocks::new(plan.cpus),
        ready: Barrier::new(threads as usize),
        stop: AtomicBool::new(false),
    };
    let mut sum = Recorded::default();
    thread::scope(|scope| {
        let setup = &setup;
        let mut workers = Vec::new();
        for team in &teams {
            scope.spawn(|| {
                let _ = team.message.set(thread::current());
                setup.ready.wait();
                team.deliver(setup.clock, &setup.stop);
            });
            let numbers = 0..team.workers.len();
            workers.extend(numbers.map(|number| scope.spawn(move || setup.work(team, number))));
        }
        thread::sleep(window.end.saturating_duration_since(Instant::now()));
        setup.stop.store(true, Ordering::SeqCst);
        teams.iter().for_each(|team| unpark(&team.message));
        for worker in workers {
            sum.add(&worker.join().expect("a worker does not panic"));
        }
    });
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> WakeupPlan {
        WakeupPlan {
            cpus: 2,
            message_threads: 2,
            worker_threads: 3,
            footprint_kib: 4,
            operations: 1,
            ..WakeupPlan::default()
        }
    }

    #[test]
    fn all_workers_are_woken_again_and_again_and_all_threads_end() {
        let length = Duration::from_millis(300);
        let before = Instant::now();
        let recorded = run(&plan(), Window::after(Duration::ZERO, length));
        assert!(before.elapsed() >= length);
        // Six workers, a request in some 200 µs: a few for each on any machine.
        assert!(recorded.requests.len() > 30, "{}", recorded.requests.len());
        // Each request was woken for; at the edges one may be outside.
        let difference = recorded.wakeups.len().abs_diff(recorded.requests.len());
        assert!(difference <= 6, "{difference}");
        // The network is in the request, and not in the wake-up.
        assert!(recorded.requests.min() >= NETWORK.as_nanos() as u64);
        assert!(recorded.wakeups.min() < NETWORK.as_nanos() as u64);
    }

    #[test]
    fn nothing_outside_the_window_is_recorded() {
        let late = Window::after(Duration::from_secs(3600), Duration::from_secs(1));
        let closed = Window {
            end: Instant::now() + Duration::from_millis(50),
            ..late
        };
        assert_eq!(run(&plan(), closed).requests.len(), 0);
    }

    #[test]
    fn everybody_who_asked_is_answered_with_one_time() {
        let team = Team::new(3);
        let clock = Clock(Instant::now());
        [0, 2].into_iter().for_each(|number| team.ask(number));
        team.answer(clock);
        let answered = |number: usize| team.workers[number].answered.load(Ordering::Relaxed);
        assert_eq!([0, 1, 2].map(answered), [true, false, true]);
        let woken = |number: usize| team.workers[number].woken_ns.load(Ordering::Relaxed);
        assert_eq!(woken(0), woken(2));
        // Nobody waits any more.
        team.workers[0].answered.store(false, Ordering::Relaxed);
        team.answer(clock);
        assert!(!answered(0));
    }
}
