//! The tuner's simulation: a tracked workload on one worker, under other
//! parameters (Section 4, "Self-Simulation").
//!
//! The worker's own scheduler decides ([`LocalScheduler`]); time is what it is
//! charged with. Each decision is worth a quantum, or what the group has left if
//! that is less. The paper rounds to whole quanta; then queries shorter than one
//! would all look alike, and those are the ones that the tuning is for.

use std::collections::VecDeque;

use crate::brief::Brief;
use crate::decay::Decay;
use crate::local::{LocalScheduler, Seat};
use crate::policy::Policy;

/// What a worker ran of a group in the tracking interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) brief: Brief,
    /// Since the beginning of the interval, ns.
    pub(crate) arrival_ns: u64,
    /// What the worker had run of it before the interval, ns.
    pub(crate) before_ns: u64,
    /// What it ran in the interval, ns; not 0.
    pub(crate) ran_ns: u64,
}

impl Job {
    /// All that is known of the group's work: what slowdowns are relative to.
    fn known_ns(&self) -> u64 {
        self.before_ns + self.ran_ns
    }
}

/// A simulation that can be run piece by piece.
#[derive(Debug)]
pub(crate) struct Replay {
    local: LocalScheduler,
    quantum_ns: u64,
    now_ns: u64,
    /// The next job to arrive.
    next: usize,
    /// Jobs beyond the slots.
    waiting: VecDeque<usize>,
    slots: Vec<Option<Occupant>>,
    occupied: usize,
    slowdown: f64,
}

#[derive(Clone, Copy, Debug)]
struct Occupant {
    job: usize,
    left_ns: u64,
}

impl Replay {
    pub(crate) fn new(decay: Decay, slots: usize, quantum_ns: u64) -> Replay {
        let alone = Seat {
            worker: 0,
            workers: 1,
        };
        Replay {
            local: LocalScheduler::new(Policy::Decay(decay), alone, slots, quantum_ns),
            quantum_ns,
            now_ns: 0,
            next: 0,
            waiting: VecDeque::new(),
            slots: vec![None; slots],
            occupied: 0,
            slowdown: 0.0,
        }
    }

    /// Makes a decision. Returns false when all jobs, which are in the order of
    /// their arrival, are done.
    pub(crate) fn decide(&mut self, jobs: &[Job]) -> bool {
        if self.occupied == 0 && self.waiting.is_empty() {
            match jobs.get(self.next) {
                // Nothing to do until somebody comes.
                Some(job) => self.now_ns = self.now_ns.max(job.arrival_ns),
                None => return false,
            }
        }
        while jobs
            .get(self.next)
            .is_some_and(|job| job.arrival_ns <= self.now_ns)
        {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        while self.occupied < self.slots.len()
            && let Some(job) = self.waiting.pop_front()
        {
            let slot = self.slots.iter().position(Option::is_none);
            let slot = slot.expect("fewer are occupied than there are");
            self.slots[slot] = Some(Occupant {
                job,
                left_ns: jobs[job].ran_ns,
            });
            self.occupied += 1;
            self.local.admit(slot, jobs[job].brief, jobs[job].before_ns);
        }
        let slot = self.local.choose().expect("a slot is occupied");
        let occupant = self.slots[slot].as_mut().expect("only these are active");
        let ns = occupant.left_ns.min(self.quantum_ns);
        occupant.left_ns -= ns;
        self.now_ns += ns;
        self.local.charge(slot, ns);
        if occupant.left_ns == 0 {
            let job = &jobs[occupant.job];
            self.slowdown += (self.now_ns - job.arrival_ns) as f64 / job.known_ns() as f64;
            self.slots[slot] = None;
            self.occupied -= 1;
            self.local.disable(slot);
        }
        true
    }

    /// The cost of Equation 3: the sum of the slowdowns of the jobs that are done, as
    /// far as they are of this interval.
    pub(crate) fn cost(&self) -> f64 {
        self.slowdown
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use giveway_hints::{Tier, Weight};

    const MS: u64 = 1_000_000;

    fn job(number: u64, arrival_ms: u64, ran_ms: u64) -> Job {
        Job {
            brief: Brief {
                number,
                tier: Tier::TimeSensitive,
                weight: Weight::DEFAULT,
                is_static: false,
            },
            arrival_ns: arrival_ms * MS,
            before_ns: 0,
            ran_ns: ran_ms * MS,
        }
    }

    /// The last piece of a long query is none of the short queries that the tuning is
    /// for: what it waits for here counts beside all that it has had.
    #[test]
    fn a_piece_of_a_long_query_does_not_pass_for_a_short_one() {
        let short = job(1, 0, 10);
        let piece = Job {
            before_ns: 990 * MS,
            ..job(2, 0, 10)
        };
        let cost = |jobs: [Job; 1]| cost(&jobs, 4, 0.9, 0);
        assert_eq!(cost([short]), 1.0);
        assert_eq!(cost([piece]), 0.01);
    }

    fn cost(jobs: &[Job], slots: usize, lambda: f32, d_start: u32) -> f64 {
        let mut replay = Replay::new(Decay::new(lambda, d_start).unwrap(), slots, 2 * MS);
        while replay.decide(jobs) {}
        replay.cost()
    }

    #[test]
    fn alone_nothing_is_slower() {
        let jobs = [job(1, 5, 3), job(2, 100, 200), job(3, 400, 1)];
        assert_eq!(cost(&jobs, 4, 0.9, 0), 3.0);
    }

    #[test]
    fn two_at_once_share() {
        // By turns of 2 ms, the first ends after 7 of 8 ms.
        let jobs = [job(1, 0, 4), job(2, 0, 4)];
        assert_eq!(cost(&jobs, 4, 1.0, 0), 6.0 / 4.0 + 8.0 / 4.0);
        // With one slot, one after the other.
        assert_eq!(cost(&jobs, 1, 1.0, 0), 1.0 + 2.0);
    }

    #[test]
    fn decay_helps_the_short_against_the_long() {
        let mut jobs = vec![job(1, 0, 2000)];
        jobs.extend((0..50).map(|i| job(i + 2, 100 + 30 * i, 4)));
        let fair = cost(&jobs, 128, 1.0, 0);
        let decayed = cost(&jobs, 128, 0.8, 4);
        assert!(decayed < 0.8 * fair, "{decayed} {fair}");
    }

    /// What a group had received before the interval counts.
    #[test]
    fn the_past_counts() {
        let old = Job {
            before_ns: 1000 * MS,
            ..job(1, 0, 20)
        };
        let young = job(2, 0, 20);
        let mut replay = Replay::new(Decay::new(0.5, 10).unwrap(), 2, 2 * MS);
        while replay.slots[1].is_some() || replay.now_ns == 0 {
            replay.decide(&[old, young]);
        }
        // All of the young one, and the one task of the old that came first.
        assert_eq!(replay.now_ns, 22 * MS);
    }
}
