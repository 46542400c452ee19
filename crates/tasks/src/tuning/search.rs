//! The search for parameters (Section 4, "Optimizer"), a decision at a time.
//!
//! For each of seven d_start, the least that leave 5 %, 10 %, ... 35 % of the
//! tracked work without decay, λ is refined by a directional search:
//!
//! ```text
//!   α = 1, λ = the best of last time (0.9 at first)
//!   7 times:  evaluate λ ± 0.05 α, as far as they are in [0, 1]
//!             the better one is better than λ:   λ = it,  α = 1.5 α
//!             otherwise:                                  α = 0.5 α
//! ```
//!
//! The best of all wins: 7 · (1 + 7 · 2) replays at most, whatever the workload.

use std::collections::VecDeque;

use crate::decay::Decay;
use crate::replay::{Interval, Job, Replay};

const STEPS: u32 = 7;
const STEP_WIDTH: f32 = 0.05;

/// A search that can be run piece by piece.
#[derive(Debug)]
pub(crate) struct Search {
    interval: Interval,
    slots: usize,
    quantum_ns: u64,
    first_lambda: f32,
    /// Values of d_start that have not been begun.
    starts: VecDeque<u32>,
    /// The one that is being refined.
    refining: Option<Refining>,
    /// The best of those that have been refined, with its cost.
    best: (Decay, f64),
}

#[derive(Debug)]
struct Refining {
    /// The current point and its cost; none before it has been replayed.
    cost: f64,
    decay: Decay,
    alpha: f32,
    steps_left: u32,
    /// Points of this step that have not been replayed.
    points: VecDeque<Decay>,
    /// The best point of this step.
    found: Option<(Decay, f64)>,
    replay: (Decay, Replay),
}

impl Search {
    /// A search for what would have been best in an interval.
    pub(crate) fn new(interval: Interval, current: Decay, slots: usize, quantum_ns: u64) -> Search {
        let mut starts: VecDeque<u32> = (1..=7)
            .map(|twentieth| least_start(&interval.jobs, f64::from(twentieth) * 0.05, quantum_ns))
            .collect();
        starts.make_contiguous().sort_unstable();
        let mut last = None;
        starts.retain(|&start| last.replace(start) != Some(start));
        Search {
            interval,
            slots,
            quantum_ns,
            first_lambda: current.lambda(),
            starts,
            refining: None,
            best: (current, f64::INFINITY),
        }
    }

    /// The parameters to use, after [`advance`](Self::advance) has returned false.
    pub(crate) fn best(&self) -> Decay {
        self.best.0
    }

    /// Makes one decision of a replay. False when the search is over.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(refining) = &mut self.refining else {
            let Some(d_start) = self.starts.pop_front() else {
                return false;
            };
            self.refining = Some(self.refine(point(self.first_lambda, d_start)));
            return true;
        };
        if refining.replay.1.decide(&self.interval) {
            return true;
        }
        refining.replayed();
        match refining.points.pop_front() {
            Some(decay) => {
                let replay = Replay::new(decay, self.slots, self.quantum_ns);
                refining.replay = (decay, replay);
            }
            None => {
                if refining.cost < self.best.1 {
                    self.best = (refining.decay, refining.cost);
                }
                self.refining = None;
            }
        }
        true
    }

    fn refine(&self, decay: Decay) -> Refining {
        Refining {
            cost: f64::INFINITY,
            decay,
            alpha: 1.0,
            steps_left: STEPS,
            points: VecDeque::new(),
            found: None,
            replay: (decay, Replay::new(decay, self.slots, self.quantum_ns)),
        }
    }
}

impl Refining {
    /// Takes the replay's cost in, and decides which points come next; none if this
    /// one has been refined.
    fn replayed(&mut self) {
        let (decay, replay) = &self.replay;
        let cost = replay.cost();
        if self.cost.is_infinite() {
            self.cost = cost;
        } else if self.found.is_none_or(|(_, least)| cost < least) {
            self.found = Some((*decay, cost));
        }
        if !self.points.is_empty() {
            return;
        }
        match self.found.take() {
            Some((decay, cost)) if cost < self.cost => {
                self.decay = decay;
                self.cost = cost;
                self.alpha *= 1.5;
            }
            Some(_) => self.alpha *= 0.5,
            // The first point, which is where the steps begin.
            None => {}
        }
        while self.points.is_empty() && self.steps_left > 0 {
            self.steps_left -= 1;
            let (lambda, d_start) = (self.decay.lambda(), self.decay.d_start());
            for width in [STEP_WIDTH, -STEP_WIDTH] {
                let lambda = lambda + self.alpha * width;
                if let Ok(decay) = Decay::new(lambda, d_start) {
                    self.points.push_back(decay);
                }
            }
            if self.points.is_empty() {
                // A step too wide to stay in the space: no point is better.
                self.alpha *= 0.5;
            }
        }
    }
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

    fn done(jobs: &[Job]) -> Interval {
        Interval {
            jobs: jobs.to_vec(),
            length_ns: u64::MAX,
        }
    }

    fn found(jobs: &[Job]) -> Decay {
        let mut search = Search::new(done(jobs), Decay::INITIAL, 128, 2 * MS);
        while search.advance() {}
        search.best()
    }

    fn cost(jobs: &[Job], decay: Decay) -> f64 {
        let mut replay = Replay::new(decay, 128, 2 * MS);
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
                    grid = grid.min(cost(&jobs, point(lambda, d_start)));
                }
            }
            let decay = found(&jobs);
            let tuned = cost(&jobs, decay);
            let fair = cost(&jobs, point(1.0, 0));
            assert!(tuned <= 1.1 * grid, "{short_ms}: {tuned}, grid {grid}");
            assert!(tuned <= 0.8 * fair, "{short_ms}: {tuned}, fair {fair}");
        }
        let (early, late) = (found(&mix(5, 300)), found(&mix(100, 300)));
        assert!(early.d_start() < late.d_start(), "{early:?} {late:?}");
    }

    #[test]
    fn a_search_ends_whatever_the_jobs() {
        let same = [Job::done(1, 0, 1), Job::done(2, 0, 1)];
        let decay = found(&same);
        assert_eq!(decay.d_start(), 0);
    }
}
