//! The search for the order that would have been best (Section 4, "Optimizer"), a decision
//! at a time.
//!
//! Of decaying priorities, for each of seven d_start, the least that leave 5 %, 10 %, ...
//! 35 % of the tracked work without decay, λ is refined by a directional search:
//!
//! ```text
//!   α = 1, λ = the best of last time (0.9 at first)
//!   7 times:  evaluate λ ± 0.05 α, as far as they are in [0, 1]
//!             the better one is better than λ:   λ = it,  α = 1.5 α
//!             otherwise:                                  α = 0.5 α
//! ```
//!
//! The best of all wins: 7 · (1 + 7 · 2) replays at most, whatever the workload.
//!
//! Of least attained service, `start` is 0 and the least numbers with which 5 %, 10 %, ...
//! 35 %, 50 %, 75 % and all of the tracked work are in the first stage: from turns to first
//! come, first served. Nothing is refined: between two of these there is little to gain
//! (`the_default_is_close_to_the_best`). That is 11 replays at most. The floor is no
//! parameter of the search, since it is a promise to those that wait; the replays keep it.

use std::collections::VecDeque;

use crate::attained::Attained;
use crate::decay::Decay;
use crate::order::Order;
use crate::policy::Policy;
use crate::replay::{Interval, Job, Replay};

const STEPS: u32 = 7;
const STEP_WIDTH: f32 = 0.05;
/// The best of a hundred in one interval is so in part by chance: least attained service
/// without a first stage, which `adaptive` begins with, is left for one that costs at most so
/// much of it. Without, tuning by intervals of some twenty queries brought the mean slowdown
/// of short ones to 1.27 times that of the rule it began with.
const MARGIN: f64 = 0.9;

/// A search that can be run piece by piece.
#[derive(Debug)]
pub(crate) struct Search {
    interval: Interval,
    slots: usize,
    quantum_ns: u64,
    /// First points that have not been begun.
    starts: VecDeque<Order>,
    /// The one that is being refined.
    refining: Option<Refining>,
    /// The best of those that have been refined, with its cost.
    best: (Order, f64),
}

#[derive(Debug)]
struct Refining {
    /// The current point and its cost; none before it has been replayed.
    cost: f64,
    order: Order,
    alpha: f32,
    steps_left: u32,
    /// Points of this step that have not been replayed.
    points: VecDeque<Order>,
    /// The best point of this step.
    found: Option<(Order, f64)>,
    replay: (Order, Replay),
}

impl Search {
    /// A search for what a policy would have done best with in an interval.
    pub(crate) fn new(
        interval: Interval,
        policy: Policy,
        current: Order,
        slots: usize,
        quantum_ns: u64,
    ) -> Search {
        let attained = match policy {
            Policy::Adaptive => attained_starts(&interval.jobs, quantum_ns),
            _ => Vec::new(),
        };
        let decay = decay_starts(&interval.jobs, current, quantum_ns);
        Search {
            interval,
            slots,
            quantum_ns,
            starts: attained.into_iter().chain(decay).collect(),
            refining: None,
            best: (current, f64::INFINITY),
        }
    }

    /// The order to use, after [`advance`](Self::advance) has returned false.
    pub(crate) fn best(&self) -> Order {
        self.best.0
    }

    /// Makes one decision of a replay. False when the search is over.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(refining) = &mut self.refining else {
            let Some(start) = self.starts.pop_front() else {
                return false;
            };
            self.refining = Some(self.refine(start));
            return true;
        };
        if refining.replay.1.decide(&self.interval) {
            return true;
        }
        refining.replayed();
        match refining.points.pop_front() {
            Some(order) => {
                let replay = Replay::new(order, self.slots, self.quantum_ns);
                refining.replay = (order, replay);
            }
            None => {
                let (best, cost) = self.best;
                let bar = match best == Order::Attained(Attained::INITIAL) {
                    true => MARGIN * cost,
                    false => cost,
                };
                if refining.cost < bar {
                    self.best = (refining.order, refining.cost);
                }
                self.refining = None;
            }
        }
        true
    }

    fn refine(&self, order: Order) -> Refining {
        Refining {
            cost: f64::INFINITY,
            order,
            alpha: 1.0,
            steps_left: match order {
                Order::Decay(_) => STEPS,
                Order::Attained(_) => 0,
            },
            points: VecDeque::new(),
            found: None,
            replay: (order, Replay::new(order, self.slots, self.quantum_ns)),
        }
    }
}

impl Refining {
    /// Takes the replay's cost in, and decides which points come next; none if this
    /// one has been refined.
    fn replayed(&mut self) {
        let (order, replay) = &self.replay;
        let cost = replay.cost();
        if self.cost.is_infinite() {
            self.cost = cost;
        } else if self.found.is_none_or(|(_, least)| cost < least) {
            self.found = Some((*order, cost));
        }
        if !self.points.is_empty() {
            return;
        }
        match self.found.take() {
            Some((order, cost)) if cost < self.cost => {
                self.order = order;
                self.cost = cost;
                self.alpha *= 1.5;
            }
            Some(_) => self.alpha *= 0.5,
            // The first point, which is where the steps begin.
            None => {}
        }
        while let Order::Decay(decay) = self.order
            && self.points.is_empty()
            && self.steps_left > 0
        {
            self.steps_left -= 1;
            for width in [STEP_WIDTH, -STEP_WIDTH] {
                let lambda = decay.lambda() + self.alpha * width;
                if let Ok(decay) = Decay::new(lambda, decay.d_start()) {
                    self.points.push_back(Order::Decay(decay));
                }
            }
            if self.points.is_empty() {
                // A step too wide to stay in the space: no point is better.
                self.alpha *= 0.5;
            }
        }
    }
}

/// Where the search among decaying priorities begins: λ as it is, and 5 % to 35 % of the
/// work without decay.
fn decay_starts(jobs: &[Job], current: Order, quantum_ns: u64) -> Vec<Order> {
    let current = match current {
        Order::Decay(decay) => decay,
        Order::Attained(_) => Decay::INITIAL,
    };
    let mut starts: Vec<u32> = (1..=7)
        .map(|twentieth| least_start(jobs, f64::from(twentieth) * 0.05, quantum_ns))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    (starts.into_iter())
        .map(|d_start| Order::Decay(point(current.lambda(), d_start)))
        .collect()
}

/// The points among least attained service.
fn attained_starts(jobs: &[Job], quantum_ns: u64) -> Vec<Order> {
    let parts = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.5, 0.75, 1.0];
    // With one more quantum than d_start, since that counts from 0.
    let start = |part| least_start(jobs, part, quantum_ns).saturating_add(1);
    let mut starts: Vec<u32> = [0].into_iter().chain(parts.map(start)).collect();
    starts.dedup();
    let floor = Attained::INITIAL.floor();
    (starts.into_iter())
        .map(|start| Attained::new(start, floor).expect("the floor of such a rule"))
        .map(Order::Attained)
        .collect()
}

fn point(lambda: f32, d_start: u32) -> Decay {
    Decay::new(lambda, d_start).expect("lambda comes from such a pair")
}

/// The least d_start with which this part of the work is run without decay.
fn least_start(jobs: &[Job], part: f64, quantum_ns: u64) -> u32 {
    let all: u64 = jobs.iter().map(|job| job.ran_ns).sum();
    let undecayed = |d_start: u32| -> u64 {
        // Equation 2: quanta 0 to d_start run at p0.
        let end_ns = (u64::from(d_start) + 1).saturating_mul(quantum_ns);
        jobs.iter()
            .map(|job| end_ns.saturating_sub(job.before_ns).min(job.ran_ns))
            .sum()
    };
    let enough = |d_start| undecayed(d_start) as f64 >= part * all as f64;
    let (mut low, mut high) = (0, u32::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        match enough(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::local::SplitMix;

    const MS: u64 = 1_000_000;

    /// Three short jobs of `short_ms` for each of ten times that, at nine tenths of
    /// the load that fits.
    fn mix(short_ms: u64, count: u64) -> Vec<Job> {
        let mut random = SplitMix(7);
        let mut now = 0.0;
        let mean_ms = (3 * short_ms + 10 * short_ms) as f64 / 4.0;
        (1..=count)
            .map(|number| {
                now += -(1.0 - random.unit()).ln() * mean_ms / 0.9;
                let factor = match random.next() % 4 {
                    0 => 10,
                    _ => 1,
                };
                Job::done(number, (now * MS as f64) as u64, factor * short_ms * MS)
            })
            .collect()
    }

    /// The same with sizes that are spread over a decade each.
    fn spread(short_ms: u64, count: u64) -> Vec<Job> {
        let mut random = SplitMix(9);
        let mut jobs = mix(short_ms, count);
        for job in &mut jobs {
            job.ran_ns = (job.ran_ns as f64 * 10f64.powf(random.unit() - 0.5)) as u64;
        }
        jobs
    }

    fn done(jobs: &[Job]) -> Interval {
        Interval {
            jobs: jobs.to_vec(),
            length_ns: u64::MAX,
        }
    }

    fn found(jobs: &[Job]) -> Decay {
        match found_by(Policy::Tuned, jobs) {
            Order::Decay(decay) => decay,
            Order::Attained(attained) => panic!("{attained:?} is not of the paper"),
        }
    }

    fn found_by(policy: Policy, jobs: &[Job]) -> Order {
        let first = policy.order().unwrap();
        let mut search = Search::new(done(jobs), policy, first, 128, 2 * MS);
        while search.advance() {}
        search.best()
    }

    fn cost(jobs: &[Job], order: Order) -> f64 {
        let mut replay = Replay::new(order, 128, 2 * MS);
        let interval = done(jobs);
        while replay.decide(&interval) {}
        replay.cost()
    }

    #[test]
    fn starts_leave_the_part_undecayed() {
        // 10 quanta and 90 quanta: with d_start = 4, 10 of 100 are undecayed.
        let jobs = [Job::done(1, 0, 20 * MS), Job::done(2, 0, 180 * MS)];
        assert_eq!(least_start(&jobs, 0.10, 2 * MS), 4);
        assert_eq!(least_start(&jobs, 0.11, 2 * MS), 5);
        // Beyond the short one's end, each quantum is worth one.
        assert_eq!(least_start(&jobs, 0.35, 2 * MS), 24);
        assert_eq!(least_start(&jobs, 1.0, 2 * MS), 89);
    }

    /// The point of it all: what is found depends on the workload, and is about as
    /// good as the best point of a grid over the whole space.
    #[test]
    fn the_search_comes_close_to_the_grid() {
        for short_ms in [5, 100] {
            let jobs = mix(short_ms, 300);
            let mut grid = f64::INFINITY;
            for lambda in [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0] {
                for d_start in [0, 2, 5, 10, 20, 50, 100, 200, 500] {
                    grid = grid.min(cost(&jobs, Order::Decay(point(lambda, d_start))));
                }
            }
            let decay = found(&jobs);
            let tuned = cost(&jobs, Order::Decay(decay));
            let fair = cost(&jobs, Order::Decay(point(1.0, 0)));
            assert!(tuned <= 1.1 * grid, "{short_ms}: {tuned}, grid {grid}");
            assert!(tuned <= 0.8 * fair, "{short_ms}: {tuned}, fair {fair}");
        }
        let (early, late) = (found(&mix(5, 300)), found(&mix(100, 300)));
        assert!(early.d_start() < late.d_start(), "{early:?} {late:?}");
    }

    /// Which rule is best depends on the workload: turns if sizes differ, the first to come
    /// if they do not.
    #[test]
    fn the_rule_follows_the_workload() {
        for short_ms in [5, 100] {
            let jobs = spread(short_ms, 300);
            let adaptive = found_by(Policy::Adaptive, &jobs);
            assert!(matches!(adaptive, Order::Attained(_)), "{adaptive:?}");
            let tuned = cost(&jobs, found_by(Policy::Tuned, &jobs));
            let adaptive = cost(&jobs, adaptive);
            assert!(adaptive < tuned, "{short_ms}: {adaptive}, tuned {tuned}");
        }
        let alike: Vec<Job> = (0..300)
            .map(|i| Job::done(i + 1, 55 * i * MS, 50 * MS))
            .collect();
        let crowd: Vec<Job> = alike
            .iter()
            .map(|job| Job {
                arrival_ns: job.arrival_ns / 2,
                ..*job
            })
            .collect();
        let Order::Attained(attained) = found_by(Policy::Adaptive, &crowd) else {
            panic!("decay");
        };
        assert!(attained.start() >= 25, "{attained:?}");
    }

    #[test]
    fn a_search_ends_whatever_the_jobs() {
        let same = [Job::done(1, 0, 1), Job::done(2, 0, 1)];
        let decay = found(&same);
        assert_eq!(decay.d_start(), 0);
    }
}
