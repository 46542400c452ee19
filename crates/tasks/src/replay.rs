//! The tuner's simulation: a tracked workload on one worker, under other
//! parameters (Section 4, "Self-Simulation").
//!
//! The worker's own scheduler decides ([`LocalScheduler`]); simulated time advances by
//! what it is charged. Each decision runs a quantum, or the rest of the group if that
//! is less. The paper rounds to whole quanta; then all queries shorter than one would
//! look alike, and the tuning is for those.
//!
//! The simulation ends with the interval. It includes the work that was left then, as
//! far as it is known ([`Job::after_ns`]): whatever the parameters, the worker has as
//! much to do as it had. A group with work left counts as slowed down by the time it
//! has been there.

use std::collections::VecDeque;

use crate::group_word::GroupWord;
use crate::local::{LocalScheduler, Seat};
use crate::order::Order;

/// What a worker ran of a group in the tracking interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) word: GroupWord,
    /// Since the beginning of the interval, ns.
    pub(crate) arrival_ns: u64,
    /// What the worker had run of it before the interval, ns.
    pub(crate) before_ns: u64,
    /// What it ran in the interval, ns; not 0.
    pub(crate) ran_ns: u64,
    /// What is thought to be left of it after the interval, ns.
    pub(crate) after_ns: u64,
}

impl Job {
    /// All of the group's work on this worker: what slowdowns are relative to.
    fn work_ns(&self) -> u64 {
        self.before_ns + self.ran_ns + self.after_ns
    }

    /// What the worker had run of it when the interval was over, ns.
    pub(crate) fn received_ns(&self) -> u64 {
        self.before_ns + self.ran_ns
    }
}

#[cfg(all(test, not(loom)))]
impl Job {
    /// One that came and was done in the interval.
    pub(crate) fn done(id: u64, arrival_ns: u64, ran_ns: u64) -> Job {
        let word = GroupWord {
            id,
            tier: giveway_tier::Tier::TimeSensitive,
            weight: giveway_tier::Weight::DEFAULT,
            is_static: false,
        };
        Job {
            word,
            arrival_ns,
            before_ns: 0,
            ran_ns,
            after_ns: 0,
        }
    }
}

/// A tracking interval.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// In the order of their arrival.
    pub(crate) jobs: Vec<Job>,
    pub(crate) length_ns: u64,
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
    pub(crate) fn new(order: Order, slots: usize, quantum_ns: u64) -> Replay {
        let alone = Seat {
            worker: 0,
            workers: 1,
        };
        Replay {
            local: LocalScheduler::new(order.into(), alone, slots, quantum_ns),
            quantum_ns,
            now_ns: 0,
            next: 0,
            waiting: VecDeque::new(),
            slots: vec![None; slots],
            occupied: 0,
            slowdown: 0.0,
        }
    }

    /// Makes a decision. Returns false when all jobs are done or the interval is over.
    pub(crate) fn decide(&mut self, interval: &Interval) -> bool {
        let jobs = &*interval.jobs;
        if self.now_ns >= interval.length_ns {
            self.stop(jobs);
            return false;
        }
        if self.occupied == 0 && self.waiting.is_empty() {
            match jobs.get(self.next) {
                // Nothing to do until a group arrives.
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
                left_ns: jobs[job].ran_ns + jobs[job].after_ns,
            });
            self.occupied += 1;
            self.local.admit(slot, jobs[job].word, jobs[job].before_ns);
        }
        let slot = self.local.choose().expect("a slot is occupied");
        let occupant = self.slots[slot].as_mut().expect("only these are active");
        let ns = occupant.left_ns.min(self.quantum_ns);
        occupant.left_ns -= ns;
        self.now_ns += ns;
        self.local.charge(slot, ns);
        if occupant.left_ns == 0 {
            let job = occupant.job;
            self.count(&jobs[job]);
            self.slots[slot] = None;
            self.occupied -= 1;
            self.local.disable(slot);
        }
        true
    }

    /// Removes the groups that are left.
    fn stop(&mut self, jobs: &[Job]) {
        let occupants: Vec<_> = self.slots.iter_mut().filter_map(Option::take).collect();
        self.occupied = 0;
        for occupant in occupants {
            self.count(&jobs[occupant.job]);
        }
        while let Some(job) = self.waiting.pop_front() {
            self.count(&jobs[job]);
        }
    }

    /// A job has been there from its arrival until now.
    fn count(&mut self, job: &Job) {
        self.slowdown += (self.now_ns - job.arrival_ns) as f64 / job.work_ns() as f64;
    }

    /// The cost of Equation 3: the sum of the jobs' slowdowns, as far as they are of
    /// this interval.
    pub(crate) fn cost(&self) -> f64 {
        self.slowdown
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::attained::Attained;
    use crate::decay::Decay;

    const MS: u64 = 1_000_000;

    fn job(number: u64, arrival_ms: u64, ran_ms: u64) -> Job {
        Job::done(number, arrival_ms * MS, ran_ms * MS)
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

    /// What a group has had by the end is not taken for all that it needed, and who
    /// waits for a slot waits until the end.
    #[test]
    fn what_is_left_stays_until_the_end() {
        let unfinished = Job {
            after_ns: 80 * MS,
            ..job(1, 0, 20)
        };
        let interval = Interval {
            jobs: vec![unfinished, job(2, 10, 10)],
            length_ns: 30 * MS,
        };
        let mut replay = Replay::new(decay(0.9, 0), 1, 2 * MS);
        while replay.decide(&interval) {}
        assert_eq!(replay.cost(), 30.0 / 100.0 + 20.0 / 10.0);
    }

    fn done(jobs: &[Job]) -> Interval {
        Interval {
            jobs: jobs.to_vec(),
            length_ns: u64::MAX,
        }
    }

    fn cost(jobs: &[Job], slots: usize, lambda: f32, d_start: u32) -> f64 {
        cost_by(jobs, slots, decay(lambda, d_start))
    }

    fn cost_by(jobs: &[Job], slots: usize, order: Order) -> f64 {
        let mut replay = Replay::new(order, slots, 2 * MS);
        while replay.decide(&done(jobs)) {}
        replay.cost()
    }

    fn decay(lambda: f32, d_start: u32) -> Order {
        Order::Decay(Decay::new(lambda, d_start).unwrap())
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

    /// Each of the two rules is replayed as itself: two alike one after the other, or by
    /// turns.
    #[test]
    fn turns_do_not_pay_among_equals() {
        let jobs = [job(1, 0, 40), job(2, 0, 40)];
        let attained = |start| Order::Attained(Attained::new(start, 0.0).unwrap());
        assert_eq!(cost_by(&jobs, 8, attained(20)), 1.0 + 2.0);
        assert_eq!(cost_by(&jobs, 8, attained(0)), 78.0 / 40.0 + 2.0);
    }

    /// What a group had received before the interval counts.
    #[test]
    fn the_past_counts() {
        let old = Job {
            before_ns: 1000 * MS,
            ..job(1, 0, 20)
        };
        let young = job(2, 0, 20);
        let mut replay = Replay::new(decay(0.5, 10), 2, 2 * MS);
        while replay.slots[1].is_some() || replay.now_ns == 0 {
            replay.decide(&done(&[old, young]));
        }
        // All of the young one, and the one task of the old that came first.
        assert_eq!(replay.now_ns, 22 * MS);
    }
}
