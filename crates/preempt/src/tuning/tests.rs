//! The controller against curves with a known edge, and against a worker that is
//! simulated on a virtual clock, with the starvation account that real workers
//! have.

use std::collections::VecDeque;

use super::*;
use crate::starvation::Starvation;

const MS: u64 = 1_000_000;

fn latency(within: Duration) -> Goal {
    Goal::Latency {
        quantile: 0.99,
        within,
    }
}

/// A window in which the latency was this share of what is wanted.
fn strained(strain: f64) -> Window {
    Window {
        length_ns: 100 * MS,
        workers_ns: 100 * MS,
        higher_tasks: 1000,
        latency_ns: (strain * 1e9) as u64,
        tasks: 10,
        in_line_ns: 100 * MS,
        ..Window::default()
    }
}

/// Runs windows in which the latency is good at and above `edge` and bad below;
/// returns the threshold of each, and whether it broke the goal.
fn search(tuner: &mut Tuner, edge: f64, bad: f64, windows: usize) -> Vec<(f64, bool)> {
    (0..windows)
        .map(|_| {
            let at = tuner.threshold().get();
            let broken = at < edge;
            tuner.observe(&strained(if broken { bad } else { 0.5 }));
            (at, broken)
        })
        .collect()
}

#[test]
fn the_tuner_finds_the_edge_and_rarely_crosses_it_again() {
    for bad in [1.1, 50.0] {
        for hundredths in (5..=100).step_by(5) {
            let edge = f64::from(hundredths) / 100.0;
            let mut tuner = Tuner::new(latency(Duration::from_secs(1)));
            search(&mut tuner, edge, bad, 300);
            let rest = search(&mut tuner, edge, bad, 500);
            let broken = rest.iter().filter(|(_, broken)| *broken).count();
            assert!(broken <= 25, "edge {edge}, {bad}: {broken} of 500 broken");
            let mean = rest.iter().map(|(at, _)| at).sum::<f64>() / 500.0;
            assert!(
                (mean - edge).abs() <= 0.03,
                "edge {edge}, {bad}: rests at {mean}"
            );
        }
    }
}

#[test]
fn a_load_that_grows_is_followed_in_a_few_windows() {
    for (before, after) in [(0.1, 0.9), (0.05, 1.0), (0.5, 0.7)] {
        let mut tuner = Tuner::new(latency(Duration::from_secs(1)));
        search(&mut tuner, before, 5.0, 300);
        let broken = search(&mut tuner, after, 5.0, 100);
        let kept = broken.iter().position(|(_, broken)| !broken);
        assert!(
            kept.is_some_and(|windows| windows <= 7),
            "{before} to {after}: {kept:?}"
        );
    }
}

#[test]
fn a_load_that_shrinks_is_followed_as_well() {
    let mut tuner = Tuner::new(latency(Duration::from_secs(1)));
    search(&mut tuner, 0.9, 5.0, 300);
    let rest = search(&mut tuner, 0.2, 5.0, 300);
    assert!(rest.last().unwrap().0 < 0.25, "{:?}", rest.last());
}

#[test]
fn without_anything_to_judge_by_nothing_changes() {
    for goal in [
        latency(Duration::from_secs(1)),
        Goal::CpuShare(0.5),
        Goal::TasksPerSecond(10.0),
    ] {
        let mut tuner = Tuner::new(goal);
        let before = tuner.threshold();
        for _ in 0..100 {
            tuner.observe(&Window {
                length_ns: 100 * MS,
                workers_ns: 100 * MS,
                ..Window::default()
            });
        }
        assert_eq!(
            (tuner.threshold(), tuner.verdict()),
            (before, Verdict::Unknown)
        );
    }
}

#[test]
fn a_goal_out_of_reach_is_said_to_be() {
    let mut tuner = Tuner::new(latency(Duration::from_secs(1)));
    search(&mut tuner, 2.0, 5.0, 20);
    assert_eq!(
        (tuner.threshold().get(), tuner.verdict()),
        (1.0, Verdict::OutOfReach)
    );
    let mut tuner = Tuner::new(Goal::TasksPerSecond(1000.0));
    for _ in 0..20 {
        tuner.observe(&strained(0.0));
    }
    assert_eq!(
        (tuner.threshold().get(), tuner.verdict()),
        (0.0, Verdict::OutOfReach)
    );
}

#[test]
fn windows_wait_for_samples_and_for_long_background_tasks() {
    let mut tuner = Tuner::new(latency(Duration::from_secs(1)));
    assert!(!tuner.is_due(99 * MS, 10_000));
    assert!(!tuner.is_due(1900 * MS, 499));
    assert!(tuner.is_due(100 * MS, 500));
    assert!(tuner.is_due(2000 * MS, 20));
    assert!(!tuner.is_due(60_000 * MS, 19));
    tuner.observe(&Window {
        longest_ns: 100 * MS,
        ..strained(0.5)
    });
    assert!(!tuner.is_due(299 * MS, 500));
    assert!(tuner.is_due(300 * MS, 500));
}

#[test]
fn invalid_goals_are_refused() {
    let second = Duration::from_secs(1);
    for bad in [
        Goal::Latency {
            quantile: 99.0,
            within: second,
        },
        Goal::Latency {
            quantile: f64::NAN,
            within: second,
        },
        latency(Duration::ZERO),
        Goal::CpuShare(30.0),
        Goal::CpuShare(f64::NAN),
        Goal::TasksPerSecond(0.0),
        Goal::TasksPerSecond(f64::INFINITY),
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
    for good in [
        latency(second),
        Goal::CpuShare(0.0),
        Goal::TasksPerSecond(0.1),
    ] {
        assert_eq!(good.check(), Ok(()));
    }
}

/// One worker, background tasks always in line, urgent ones at random intervals,
/// tried again until they are taken in.
struct Worker {
    now: u64,
    account: Starvation,
    threshold: Threshold,
    /// Mean time between urgent tasks, and what each takes.
    interval: u64,
    urgent_ns: u64,
    background_ns: u64,
    random: u64,
    next_arrival: u64,
    waiting: VecDeque<u64>,
    /// What the background task has left.
    left: u64,
    latencies: Vec<u64>,
    tasks: u64,
}

impl Worker {
    fn new(interval: u64, urgent_ns: u64, background_ns: u64) -> Worker {
        let worker = Worker {
            now: 1000,
            account: Starvation::new(),
            threshold: Threshold::DISABLED,
            interval,
            urgent_ns,
            background_ns,
            random: 0x9e37_79b9_7f4a_7c15,
            next_arrival: 1000,
            waiting: VecDeque::new(),
            left: background_ns,
            latencies: Vec::new(),
            tasks: 0,
        };
        worker.account.open(worker.now);
        worker
    }

    /// Uniform between nothing and twice the mean.
    fn gap(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (2 * self.interval)
    }

    /// Runs for so long.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            while self.next_arrival <= self.now {
                self.waiting.push_back(self.next_arrival);
                self.next_arrival += self.gap();
            }
            let starved = self.account.until_within(self.threshold, self.now);
            match self.waiting.front() {
                Some(&arrival) if starved == Some(0) => {
                    self.waiting.pop_front();
                    self.account.go_up(self.now);
                    self.now += self.urgent_ns;
                    self.account.come_down(self.now);
                    self.latencies.push(self.now - arrival);
                }
                waits => {
                    let event = match (waits, starved) {
                        // Whoever waits may go on after that.
                        (Some(_), Some(after)) => self.now + after,
                        _ => self.next_arrival,
                    };
                    let step = self.left.min(event - self.now).max(1);
                    self.now += step;
                    self.left = self.left.saturating_sub(step);
                }
            }
            if self.left == 0 {
                self.tasks += 1;
                self.left = self.background_ns;
                self.account.close(self.now);
                self.account.open(self.now);
            }
        }
    }

    /// Runs one window at this threshold.
    fn window(&mut self, threshold: Threshold, length: u64) -> Window {
        self.threshold = threshold;
        self.latencies.clear();
        let (tasks, before, began) = (self.tasks, self.account.in_line(self.now), self.now);
        self.run(length);
        let after = self.account.in_line(self.now);
        self.latencies.sort_unstable();
        let p99 = (self.latencies.len() * 99).div_ceil(100).checked_sub(1);
        Window {
            length_ns: self.now - began,
            workers_ns: self.now - began,
            higher_tasks: self.latencies.len() as u64,
            latency_ns: p99.map_or(0, |index| self.latencies[index]),
            tasks: self.tasks - tasks,
            in_line_ns: after.total_ns - before.total_ns,
            higher_ns: after.higher_ns - before.higher_ns,
            longest_ns: self.background_ns,
        }
    }

    /// Lets a controller run for so many windows; returns the windows.
    fn tuned(&mut self, tuner: &mut Tuner, windows: usize) -> Vec<Window> {
        let run = |_| {
            let window = self.window(tuner.threshold(), 200 * MS);
            tuner.observe(&window);
            window
        };
        (0..windows).map(run).collect()
    }
}

#[test]
fn the_level_never_exceeds_the_threshold_by_more_than_a_task() {
    for threshold in [0.1, 0.5, 0.9] {
        let threshold = Threshold::new(threshold).unwrap();
        // More urgent work than fits.
        let mut worker = Worker::new(20_000, 30_000, 5 * MS);
        let window = worker.window(threshold, 1000 * MS);
        let share = window.higher_ns as f64 / window.in_line_ns as f64;
        // Per background task of 5 ms one urgent one too many.
        let bound = threshold.get() + 0.030 / 5.0;
        assert!(share <= bound, "{threshold}: {share}");
        assert!(share >= threshold.get() - 0.02, "{threshold}: {share}");
    }
}

#[test]
fn a_latency_is_kept_with_the_lowest_threshold_that_keeps_it() {
    let worker = || Worker::new(100_000, 40_000, 5 * MS);
    let goal = Duration::from_millis(1);
    // The lowest of the fixed thresholds that keep it.
    let keeps = |hundredths: &u32| {
        let threshold = Threshold::new(f64::from(*hundredths) / 100.0).unwrap();
        let mut worker = worker();
        worker.window(threshold, 1000 * MS);
        worker.window(threshold, 2000 * MS).latency_ns <= goal.as_nanos() as u64
    };
    let edge = f64::from((1..=100).find(keeps).unwrap()) / 100.0;
    let (mut worker, mut tuner) = (worker(), Tuner::new(latency(goal)));
    worker.tuned(&mut tuner, 200);
    let rest = worker.tuned(&mut tuner, 300);
    let broken = rest
        .iter()
        .filter(|window| window.latency_ns > goal.as_nanos() as u64);
    assert!(broken.count() <= 45, "of 300 windows");
    let at = tuner.threshold().get();
    assert!(
        (at - edge).abs() <= 0.1,
        "tuned to {at}, the edge is {edge}"
    );
}

#[test]
fn a_share_of_the_cpu_is_kept_under_overload() {
    for share in [0.1, 0.3, 0.7] {
        let mut worker = Worker::new(20_000, 30_000, 5 * MS);
        let mut tuner = Tuner::new(Goal::CpuShare(share));
        worker.tuned(&mut tuner, 100);
        let rest = worker.tuned(&mut tuner, 200);
        let mean = |of: fn(&Window) -> u64| rest.iter().map(of).sum::<u64>() as f64;
        let had = 1.0 - mean(|window| window.higher_ns) / mean(|window| window.in_line_ns);
        assert!((had - share).abs() <= 0.03, "{had} instead of {share}");
        let kept =
            |window: &&Window| window.higher_ns as f64 <= (1.0 - share) * window.in_line_ns as f64;
        let kept = rest.iter().filter(kept).count();
        assert!(kept >= 170, "{share} was kept in {kept} of 200 windows");
    }
}

#[test]
fn a_rate_of_background_tasks_is_kept_under_overload() {
    // Alone, 200 tasks a second.
    let mut worker = Worker::new(20_000, 30_000, 5 * MS);
    let mut tuner = Tuner::new(Goal::TasksPerSecond(80.0));
    worker.tuned(&mut tuner, 100);
    let rest = worker.tuned(&mut tuner, 200);
    let rate = rest.iter().map(|window| window.tasks).sum::<u64>() as f64 / 40.0;
    assert!((80.0..100.0).contains(&rate), "{rate} tasks a second");
}

#[test]
fn a_burst_of_urgent_work_is_let_through_in_time() {
    let goal = Duration::from_millis(1);
    let mut worker = Worker::new(1_000_000, 40_000, 5 * MS);
    let mut tuner = Tuner::new(latency(goal));
    worker.tuned(&mut tuner, 200);
    assert!(tuner.threshold().get() < 0.3, "{:?}", tuner.threshold());
    worker.interval = 60_000;
    let burst = worker.tuned(&mut tuner, 30);
    let kept = |window: &Window| window.latency_ns <= goal.as_nanos() as u64;
    // What has piled up meanwhile has to be worked off first.
    let first = burst.iter().position(kept);
    assert!(first.is_some_and(|windows| windows <= 10), "{first:?}");
}
