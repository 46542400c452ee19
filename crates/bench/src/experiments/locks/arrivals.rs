//! Threads that come while others fight for the lock: how soon is a newcomer
//! served, and does it leave the others their share?
//!
//! Arrivals are due at seeded times. A newcomer is a thread the lock has never
//! seen; an intermittent thread comes back after an absence. Each stays for a
//! while, asking again and again, and leaves. The wait that counts is that of its
//! first turn, from its asking; how late the machine let it ask is kept beside
//! it, since with more threads than CPUs a woken thread waits for a CPU first.

use std::time::Duration;

use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::lock::{BenchLock, Member};
use super::scenario::{Arrivals, Scenario};
use super::turn::{Field, Tally, turn, waits};
use super::work::steps_for;

/// What became of all arrivals.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) count: u64,
    /// Waits for the first turn after an arrival.
    pub(crate) first_ns: Histogram<u64>,
    /// From the time an arrival was due to its asking.
    pub(crate) late_ns: Histogram<u64>,
    /// Turns of others before the first one.
    pub(crate) first_bypass_max: u64,
    /// Time that arrivals held the lock while they stayed.
    pub(crate) held_ns: u64,
    /// Time that they stayed.
    pub(crate) stayed_ns: u64,
    /// Turns in all.
    pub(crate) turns: u64,
}

impl Arrived {
    fn new() -> Self {
        Arrived {
            count: 0,
            first_ns: waits(),
            late_ns: waits(),
            first_bypass_max: 0,
            held_ns: 0,
            stayed_ns: 0,
            turns: 0,
        }
    }
}

/// Lets threads arrive until the window's length is over; the caller's thread
/// only starts them.
pub(crate) fn run<L: BenchLock>(
    field: &Field<'_, L>,
    arrivals: &Arrivals,
    scenario: &Scenario,
) -> Arrived {
    let mut random = ChaCha8Rng::seed_from_u64(scenario.seed);
    let mut arrived = Arrived::new();
    let begun_ns = field.now_ns();
    let end_ns = begun_ns + (scenario.seconds * 1e9) as u64;
    let mut gap = || (arrivals.every_ns as f64 * random.random_range(0.5..1.5)) as u64;
    let mut due_ns = begun_ns + gap();
    // The panic of an arrival ends the run with its scope.
    while due_ns < end_ns {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if arrivals.new_threads {
                    sleep_until(field, due_ns);
                }
                let mut handle = field.lock.join(&Member::EQUAL);
                loop {
                    sleep_until(field, due_ns);
                    stay(field, &mut handle, arrivals, due_ns, &mut arrived);
                    due_ns = (due_ns + gap()).max(field.now_ns());
                    if arrivals.new_threads || due_ns >= end_ns {
                        break;
                    }
                }
            });
        });
    }
    arrived
}

/// One stay, from the first asking to the end of its time.
fn stay<L: BenchLock>(
    field: &Field<'_, L>,
    handle: &mut L::Handle<'_>,
    arrivals: &Arrivals,
    due_ns: u64,
    arrived: &mut Arrived,
) {
    let steps = steps_for(arrivals.inside_ns);
    let first = turn(field, handle, steps);
    arrived.count += 1;
    arrived
        .first_ns
        .saturating_record(first.began_ns - first.asked_ns);
    arrived
        .late_ns
        .saturating_record(first.asked_ns.saturating_sub(due_ns));
    arrived.first_bypass_max = arrived.first_bypass_max.max(first.bypass);
    let leaves_ns = first.began_ns + arrivals.stays_ns;
    let mut tally = Tally::new();
    let mut last = first;
    loop {
        tally.count(&last, true, false);
        if last.ended_ns >= leaves_ns {
            break;
        }
        last = turn(field, handle, steps);
    }
    arrived.held_ns += tally.held_ns;
    arrived.stayed_ns += last.ended_ns - first.began_ns;
    arrived.turns += tally.turns_ever();
}

fn sleep_until<L>(field: &Field<'_, L>, due_ns: u64) {
    let left = due_ns.saturating_sub(field.now_ns());
    std::thread::sleep(Duration::from_nanos(left));
}
