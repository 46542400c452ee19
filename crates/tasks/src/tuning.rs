//! Parameters that follow the workload (Section 4).
//!
//! ```text
//!   k·t_r          k·t_r + t_t                    (k+1)·t_r
//!     ├──────────────┤                               ├────
//!     │ track worker │ search, as a query of the     │
//!     │ 0's groups   │ pool, in tasks of t_max       │
//!                                   └▶ all workers get the parameters
//! ```
//!
//! The paper has the tracking worker stop for 20 to 100 ms and search. On a
//! machine with two workers that is half the machine, and a delay that short
//! queries would notice. Here the search is a query like any other: one lane,
//! time-sensitive (as background work it would wait for the load that it is
//! needed for), scheduled and charged like the rest.
//!
//! What the paper leaves open, and how it is here:
//!
//! * Groups that were there before the interval arrive at its beginning and keep
//!   what they had received, which is what their priority depends on. Their slowdown
//!   is relative to that and what they got, so that all intervals of a query add up to
//!   its own. Relative to what they got alone, pieces of long queries would look like
//!   the shortest of all: with intervals of a second on two busy workers, tuning for
//!   them brought the mean slowdown to 1.2 times that of the best parameters, and
//!   so it is within 1.06 of it.
//! * Of groups that are there after it, the rest of their work is estimated
//!   (`remainder`). Taken for done, they would be what the tuning is for: where queries
//!   pile up, dozens of long ones have had little and pass for short, and what ends
//!   *them* early is close to fair, which is the worst for the short ones. With 1.08
//!   times the work that two workers can do, that brought the mean slowdown to 1.13 to
//!   1.41 times the best of a grid; with the estimate it is 1.04 to 1.05
//!   (`tuning_helps_under_overload`).
//! * With fewer than two groups nothing is tuned: no parameters make a difference.

mod remainder;
mod search;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, Weak};

use crate::clock::Clock;
use crate::group_word::GroupWord;
use crate::pipeline::{Failure, Morsel, Pipeline, Step};
use crate::query::Query;
use crate::replay::{Interval, Job};
use crate::shared::{Settings, Shared};

pub(crate) use search::Search;

/// The name of the query that searches.
pub const TUNER: &str = "tuner";
/// How many groups are tracked at most; then the interval ends early. It bounds
/// what a flood of tiny queries costs: 6 MB, and a search of some seconds of one
/// worker, in tasks.
const GROUPS_MAX: usize = 1 << 16;

/// Logs what one worker runs, at times.
#[derive(Debug)]
pub(crate) struct Tracker {
    tracking_ns: u64,
    refresh_ns: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Until then, nothing is tracked; 0 before the first look at the clock.
    Off { until_ns: u64 },
    On {
        since_ns: u64,
        jobs: HashMap<u64, Job>,
    },
}

impl Tracker {
    /// `None` if the policy is not tuned.
    pub(crate) fn new(settings: &Settings) -> Option<Tracker> {
        settings.policy.is_tuned().then_some(Tracker {
            tracking_ns: settings.tracking_ns,
            refresh_ns: settings.refresh_ns,
            state: State::Off { until_ns: 0 },
        })
    }

    /// A group has come to the worker.
    pub(crate) fn came(&mut self, word: GroupWord, clock: &dyn Clock) {
        if let State::On { since_ns, jobs } = &mut self.state {
            let arrival_ns = clock.now_ns().saturating_sub(*since_ns);
            jobs.insert(
                word.id,
                Job {
                    word,
                    arrival_ns,
                    before_ns: 0,
                    ran_ns: 0,
                    after_ns: 0,
                },
            );
        }
    }

    /// The worker has run a task of a group, of which it had run `before_ns`.
    pub(crate) fn ran(&mut self, word: GroupWord, before_ns: u64, ns: u64) {
        if let State::On { jobs, .. } = &mut self.state {
            let job = jobs.entry(word.id).or_insert(Job {
                word,
                arrival_ns: 0,
                before_ns,
                ran_ns: 0,
                after_ns: 0,
            });
            job.ran_ns += ns;
        }
    }

    /// Begins or ends an interval if it is time.
    pub(crate) fn turn(&mut self, shared: &Shared) {
        let now_ns = shared.clock.now_ns();
        match &mut self.state {
            State::Off { until_ns } if now_ns >= *until_ns => {
                self.state = State::On {
                    since_ns: now_ns,
                    jobs: HashMap::new(),
                };
            }
            State::On { since_ns, jobs }
                if now_ns - *since_ns >= self.tracking_ns || jobs.len() >= GROUPS_MAX =>
            {
                let until_ns = *since_ns + self.refresh_ns;
                let interval = Interval {
                    jobs: std::mem::take(jobs).into_values().collect(),
                    length_ns: now_ns - *since_ns,
                };
                self.state = State::Off { until_ns };
                submit(shared, interval);
            }
            State::Off { .. } | State::On { .. } => {}
        }
    }
}

/// Has the workload searched.
fn submit(shared: &Shared, mut interval: Interval) {
    let settings = &shared.settings;
    let jobs = &mut interval.jobs;
    jobs.retain(|job| job.ran_ns > 0);
    jobs.sort_unstable_by_key(|job| (job.arrival_ns, job.word.id));
    if jobs.len() < 2 {
        return;
    }
    let holders = (0..settings.slots).filter_map(|slot| shared.slots.holder(slot));
    let unfinished = holders.map(|word| word.id).collect();
    remainder::estimate(jobs, &unfinished);
    let quantum_ns = settings.targets.task_ns;
    let Some(current) = shared.order() else {
        return;
    };
    let search = Search::new(
        interval,
        settings.policy,
        current,
        settings.slots,
        quantum_ns,
    );
    let pipeline = Tuner {
        shared: shared.weak(),
        search: Mutex::new(search),
    };
    // A pool that is full or shutting down goes on with the parameters it has.
    let _ = shared.submit(Query::new(TUNER).pipeline(pipeline));
}

/// Decisions of a step: some 20 µs, of which a task has as many as fit.
const DECISIONS_PER_STEP: usize = 256;

/// The search as a pipeline.
struct Tuner {
    shared: Weak<Shared>,
    search: Mutex<Search>,
}

impl Pipeline for Tuner {
    fn units(&self) -> Option<u64> {
        None
    }

    fn lanes(&self) -> usize {
        1
    }

    fn run(&self, _morsel: &Morsel<'_>) -> Result<Step, Failure> {
        let Some(shared) = self.shared.upgrade() else {
            return Ok(Step::Exhausted);
        };
        let began_ns = shared.clock.now_ns();
        let mut search = self.search.lock().expect("one lane");
        let has_more = (0..DECISIONS_PER_STEP).all(|_| search.advance());
        let took_ns = shared.clock.now_ns().saturating_sub(began_ns);
        shared.tuning_ns.fetch_add(took_ns, Relaxed);
        match has_more {
            true => Ok(Step::More),
            false => Ok(Step::Exhausted),
        }
    }

    fn finalize(&self) -> Result<(), Failure> {
        let best = self.search.lock().expect("one lane").best();
        if let Some(shared) = self.shared.upgrade() {
            shared.set_order(best);
            shared.tunings.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}
