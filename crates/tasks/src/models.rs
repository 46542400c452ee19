//! The real slots, masks, parking and workers under loom: every interleaving of
//! two or three threads, with weak memory.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p giveway-tasks --lib models
//! ```
//!
//! `docs/build/tasks.md` lists what each model finds, with the weakened code that it was
//! seen to find. Workers do not sleep here; sleep has a model of its own. Models are
//! explored up to the two or three preemptions that they need to find these faults, or
//! up to LOOM_MAX_PREEMPTIONS.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::clock::{Clock, VirtualClock};
use crate::error::QueryError;
use crate::group::{Group, QueryId, Ticket};
use crate::mask::UpdateMask;
use crate::morsel::Targets;
use crate::parking::Parking;
use crate::pipeline::{Failure, Morsel, Pipeline, Step};
use crate::policy::Policy;
use crate::query::Query;
use crate::shared::{Settings, Shared};
use crate::sync::{AtomicU32, Relaxed};
use crate::worker::Worker;

const TASK_NS: u64 = 1000;
/// Units of a task: what the startup begins with.
const UNITS: u64 = 16;

/// Explores up to so many preemptions.
fn bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut long = loom::model::Builder::new();
    long.preemption_bound = long.preemption_bound.or(Some(preemptions));
    long.max_branches = 10_000;
    long.check(model);
}

/// What finalization must be alone with.
struct Scratch(UnsafeCell<u32>);

// SAFETY: loom checks what this claims.
unsafe impl Sync for Scratch {}
// SAFETY: as above.
unsafe impl Send for Scratch {}

/// Tasks that look at the scratch, and a finalization that changes it.
struct Probe {
    tasks: u64,
    lanes: usize,
    scratch: Arc<Scratch>,
    clock: Arc<VirtualClock>,
}

impl Pipeline for Probe {
    fn units(&self) -> Option<u64> {
        Some(self.tasks * UNITS)
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn run(&self, _: &Morsel<'_>) -> Result<Step, Failure> {
        self.scratch.0.with(|_| ());
        // One morsel, one task.
        self.clock.advance(TASK_NS);
        Ok(Step::More)
    }

    fn finalize(&self) -> Result<(), Failure> {
        // SAFETY: loom checks that no other thread is there.
        self.scratch.0.with_mut(|count| unsafe { *count += 1 });
        Ok(())
    }
}

struct World {
    shared: Arc<Shared>,
    clock: Arc<VirtualClock>,
}

/// A query that was submitted.
struct Asked {
    group: Arc<Group>,
    scratch: Arc<Scratch>,
}

impl Scratch {
    /// How many finalizations there were. All else has ended.
    fn finalized(&self) -> u32 {
        // SAFETY: all else has ended; loom checks it.
        self.0.with(|count| unsafe { *count })
    }
}

impl Asked {
    /// The query's end, and how many of its pipelines were finalized.
    fn result(self) -> Result<u32, QueryError> {
        let ticket = Ticket { group: self.group };
        assert!(ticket.is_done(), "a query is stranded");
        ticket.wait().map(|_| self.scratch.finalized())
    }
}

impl World {
    fn new(workers: usize, slots: usize) -> World {
        let clock = Arc::new(VirtualClock::default());
        let settings = Settings {
            policy: Policy::Fair,
            slots,
            waiting: usize::MAX,
            targets: Targets {
                task_ns: TASK_NS,
                morsel_ns_min: 1,
                workers,
            },
            tracking_ns: 1,
            refresh_ns: 2,
        };
        World {
            shared: Shared::new(settings, Arc::clone(&clock) as Arc<dyn Clock>),
            clock,
        }
    }

    /// A query of pipelines of so many tasks each.
    fn submit(&self, pipelines: &[u64], lanes: usize) -> Asked {
        let scratch = Arc::new(Scratch(UnsafeCell::new(0)));
        let mut query = Query::new("");
        for &tasks in pipelines {
            query = query.pipeline(Probe {
                tasks,
                lanes,
                scratch: Arc::clone(&scratch),
                clock: Arc::clone(&self.clock),
            });
        }
        let group = self.shared.submit(query).expect("there is room");
        Asked { group, scratch }
    }

    fn worker(&self, number: usize) -> Worker {
        Worker::new(&self.shared, number)
    }
}

fn task(worker: &mut Worker) -> bool {
    let Some(mut running) = worker.begin() else {
        return false;
    };
    worker.execute(&mut running);
    worker.finish(running);
    true
}

fn drive(mut worker: Worker) -> Worker {
    while task(&mut worker) {}
    worker
}

/// Drives workers by turns, until none has anything to do.
fn drive_all(workers: &mut [Worker]) {
    while workers.iter_mut().any(task) {}
}

/// F1 to F4, F6: two workers, two pipelines of one and two tasks.
#[test]
fn a_set_is_finalized_once_and_alone() {
    bounded(2, || {
        let world = World::new(2, 1);
        let group = world.submit(&[2, 1], usize::MAX);
        let other = world.worker(1);
        let other = thread::spawn(move || drive(other));
        let one = drive(world.worker(0));
        let other = other.join().unwrap();
        drive_all(&mut [one, other]);
        assert_eq!(group.result().unwrap(), 2);
    });
}

/// F5: a slot goes from group to group, and sets are freed, while a worker is
/// late.
#[test]
fn a_slot_is_used_again() {
    bounded(2, || {
        let world = World::new(2, 1);
        let first = world.submit(&[1], usize::MAX);
        let second = world.submit(&[1], usize::MAX);
        // Only the table of running groups keeps the first alive.
        let first = Arc::clone(&first.scratch);
        let other = world.worker(1);
        let other = thread::spawn(move || drive(other));
        let one = drive(world.worker(0));
        let other = other.join().unwrap();
        drive_all(&mut [one, other]);
        assert_eq!(second.result().unwrap(), 1);
        assert_eq!(first.finalized(), 1);
    });
}

/// F2, of a worker that is at another slot by then: what it has written is seen.
#[test]
fn a_worker_that_went_on_is_not_waited_for() {
    bounded(3, || {
        let world = World::new(2, 2);
        let first = world.submit(&[2], usize::MAX);
        let second = world.submit(&[1], usize::MAX);
        let mut other = world.worker(1);
        let other = thread::spawn(move || {
            // One of either slot.
            task(&mut other);
            task(&mut other);
            other
        });
        let one = drive(world.worker(0));
        let other = other.join().unwrap();
        drive_all(&mut [one, other]);
        assert_eq!(first.result().unwrap(), 1);
        assert_eq!(second.result().unwrap(), 1);
    });
}

/// A3: a query that comes while the slot's last one ends.
#[test]
fn nobody_waits_while_a_slot_is_free() {
    bounded(3, || {
        let world = World::new(1, 1);
        let first = world.submit(&[1], usize::MAX);
        let worker = world.worker(0);
        let worker = thread::spawn(move || drive(worker));
        let second = world.submit(&[1], usize::MAX);
        let worker = worker.join().unwrap();
        drive_all(&mut [worker]);
        assert_eq!(first.result().unwrap(), 1);
        assert_eq!(second.result().unwrap(), 1);
    });
}

/// A4: a query is cancelled while it goes from one set to the next; afterwards
/// no worker runs any more.
#[test]
fn a_cancelled_query_ends_without_help() {
    bounded(3, || {
        let world = World::new(1, 1);
        let group = world.submit(&[1, 1], usize::MAX);
        let id = QueryId(group.group.word.id);
        let mut worker = world.worker(0);
        let worker = thread::spawn(move || {
            task(&mut worker);
            worker
        });
        world.shared.cancel(id, QueryError::Cancelled);
        let worker = worker.join().unwrap();
        let scratch = Arc::clone(&group.scratch);
        assert!(matches!(group.result(), Err(QueryError::Cancelled)));
        assert!(scratch.finalized() <= 1);
        drop(drive(worker));
    });
}

/// `wake`: a worker that found no lane is called back by the one that leaves.
#[test]
fn a_free_lane_is_not_missed() {
    bounded(3, || {
        let world = World::new(2, 1);
        let group = world.submit(&[2], 1);
        let mut leaver = world.worker(1);
        let leaver = thread::spawn(move || {
            task(&mut leaver);
            leaver
        });
        let worker = drive(world.worker(0));
        let leaver = leaver.join().unwrap();
        // The leaver never comes back.
        drop(drive(worker));
        drop(leaver);
        assert_eq!(group.result().unwrap(), 1);
    });
}

/// `parking`: what is pushed wakes a worker that was about to sleep.
#[test]
fn a_sleeping_worker_is_woken() {
    loom::model(|| {
        let post = Arc::new((UpdateMask::new(64), Parking::new()));
        let pusher = Arc::clone(&post);
        let pusher = thread::spawn(move || {
            pusher.0.push(3);
            pusher.1.wake();
        });
        // Would not return, which loom calls a deadlock.
        post.1.sleep(|| !post.0.is_empty());
        let mut seen = Vec::new();
        post.0.pull(|bit| seen.push(bit));
        assert_eq!(seen, [3]);
        pusher.join().unwrap();
    });
}

/// M1, M2: bits in two words by two threads, with what was written before them.
#[test]
fn no_bit_is_lost_and_none_comes_early() {
    loom::model(|| {
        let said = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let mask = Arc::new(UpdateMask::new(128));
        let pushers: Vec<_> = [vec![3], vec![5, 64]]
            .into_iter()
            .enumerate()
            .map(|(index, bits)| {
                let (said, mask) = (Arc::clone(&said), Arc::clone(&mask));
                thread::spawn(move || {
                    said[index].store(1, Relaxed);
                    bits.into_iter().for_each(|bit| mask.push(bit));
                })
            })
            .collect();
        let mut seen = Vec::new();
        let mut pull = || {
            mask.pull(|bit| {
                assert_eq!(said[usize::from(bit != 3)].load(Relaxed), 1);
                seen.push(bit);
            });
        };
        pull();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        pull();
        seen.sort_unstable();
        assert_eq!(seen, [3, 5, 64]);
    });
}
