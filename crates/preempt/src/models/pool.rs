//! The real queue, parking and tickets.

use std::num::NonZeroU32;
use std::time::Duration;

use giveway_tier::Weight;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use crate::level::Level;
use crate::lowering::{Lowering, Standing};
use crate::pool::Alarm;
use crate::presence::{Parking, Presence, Serving};
use crate::queue::{Consumer, Refused, queue};
use crate::task::{Job, Task, TaskError, Ticket};

const LEVEL: Level = Level::new(1);

fn consumer(places: u32) -> Consumer<Box<u32>> {
    queue(NonZeroU32::new(places).unwrap())
}

/// Takes so many values, with their places.
fn take(consumer: &mut Consumer<Box<u32>>, number: usize) -> Vec<u32> {
    let mut values = Vec::new();
    while values.len() < number {
        match consumer.take() {
            Some(value) => {
                consumer.free();
                values.push(*value);
            }
            None => thread::yield_now(),
        }
    }
    values
}

/// Two threads push, the second more than fits; everything arrives, once, in
/// each one's order.
#[test]
fn pushes_arrive_once_and_in_order() {
    loom::model(|| {
        let mut consumer = consumer(2);
        let (one, two) = (consumer.queue().clone(), consumer.queue().clone());
        let one = thread::spawn(move || one.push(Box::new(1)).is_ok());
        let two = thread::spawn(move || {
            two.push(Box::new(2)).is_ok() as usize + two.push(Box::new(3)).is_ok() as usize
        });
        let early = consumer.take().map(|value| *value);
        if early.is_some() {
            consumer.free();
        }
        let pushed = one.join().unwrap() as usize + two.join().unwrap();
        assert!(pushed >= 2, "two places and two values");
        let mut values: Vec<u32> = early.into_iter().collect();
        let missing = pushed - values.len();
        values.extend(take(&mut consumer, missing));
        assert!(consumer.take().is_none());
        let mut sorted = values.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), pushed, "{values:?}");
        let of_two: Vec<u32> = values.into_iter().filter(|value| *value > 1).collect();
        assert!(of_two.is_sorted());
    });
}

/// One place, used again and again: who pushes writes over a slot that was read.
#[test]
fn a_place_is_used_again_only_when_it_was_emptied() {
    loom::model(|| {
        let mut consumer = consumer(1);
        let pusher = consumer.queue().clone();
        let pusher = thread::spawn(move || {
            for number in 0..2 {
                let mut value = Box::new(number);
                while let Err(Refused::Full(back)) = pusher.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        assert_eq!(take(&mut consumer, 2), [0, 1]);
        pusher.join().unwrap();
    });
}

/// Closing: what was accepted is taken, what came later is not accepted.
#[test]
fn a_closed_queue_has_all_that_it_accepted() {
    loom::model(|| {
        let mut consumer = consumer(2);
        let pushers: Vec<_> = (0..2)
            .map(|number| {
                let queue = consumer.queue().clone();
                thread::spawn(move || queue.push(Box::new(number)).is_ok())
            })
            .collect();
        consumer.queue().close();
        let mut taken = 0;
        while !consumer.queue().is_exhausted() {
            match consumer.take() {
                Some(_) => taken += 1,
                None => thread::yield_now(),
            }
        }
        let accepted: usize = pushers
            .into_iter()
            .map(|pusher| pusher.join().unwrap() as usize)
            .sum();
        assert_eq!(taken, accepted);
    });
}

/// Step 2 of `presence`: a worker that sleeps is woken.
#[test]
fn no_push_leaves_a_worker_asleep() {
    loom::model(|| {
        let consumer = consumer(1);
        let parking = Arc::new(Parking::new());
        let pusher = {
            let (queue, parking) = (consumer.queue().clone(), parking.clone());
            thread::spawn(move || {
                queue.push(Box::new(1)).unwrap();
                let _ = parking.notify();
            })
        };
        parking.idle(|| consumer.queue().is_ready(), || false);
        assert!(consumer.queue().is_ready());
        pusher.join().unwrap();
    });
}

/// The same with two rounds, and with a look before sleeping.
#[test]
fn no_push_leaves_a_worker_asleep_in_later_rounds() {
    super::bounded(|| {
        let mut consumer = consumer(2);
        let parking = Arc::new(Parking::new());
        let pusher = {
            let (queue, parking) = (consumer.queue().clone(), parking.clone());
            thread::spawn(move || {
                for number in 0..2 {
                    queue.push(Box::new(number)).unwrap();
                    let _ = parking.notify();
                }
            })
        };
        for _ in 0..2 {
            let queue = consumer.queue().clone();
            parking.idle(|| queue.is_ready(), || false);
            assert!(consumer.take().is_some());
            consumer.free();
        }
        pusher.join().unwrap();
    });
}

/// Step 3 of `presence`: who is told that the worker is idle need not interrupt
/// it, because the worker sees the push when it chooses.
#[test]
fn a_push_to_an_idle_worker_is_seen_when_it_chooses() {
    loom::model(|| {
        let (long, urgent) = (consumer(1), consumer(1));
        long.queue().push(Box::new(0)).unwrap();
        let parking = Arc::new(Parking::new());
        let pusher = {
            let (queue, parking) = (urgent.queue().clone(), parking.clone());
            thread::spawn(move || {
                queue.push(Box::new(1)).unwrap();
                parking.notify()
            })
        };
        parking.idle(
            || long.queue().is_ready() || urgent.queue().is_ready(),
            || false,
        );
        let chose_urgent = urgent.queue().is_ready();
        if pusher.join().unwrap() == Presence::Idle {
            assert!(
                chose_urgent,
                "a long task was chosen, and nobody will interrupt it"
            );
        }
    });
}

/// P2 of `pool::station`: a context that is said to look again does.
#[test]
fn a_context_that_is_serving_finds_what_was_pushed() {
    loom::model(|| {
        let mut consumer = consumer(1);
        let shared = Arc::new((Parking::new(), Serving::new()));
        let pusher = {
            let (queue, shared) = (consumer.queue().clone(), shared.clone());
            thread::spawn(move || {
                queue.push(Box::new(1)).unwrap();
                let _ = shared.0.notify();
                shared.1.will_look(LEVEL)
            })
        };
        let mut found = false;
        shared.1.begin(LEVEL);
        loop {
            if consumer.take().is_some() {
                found = true;
                continue;
            }
            shared.1.end(LEVEL);
            if !consumer.queue().is_ready() {
                break;
            }
            shared.1.begin(LEVEL);
        }
        if pusher.join().unwrap() {
            assert!(found, "the context has left, and nobody will request it");
        }
    });
}

/// A worker that lowers itself while urgent work comes is raised.
#[test]
fn a_worker_with_urgent_work_is_not_lowered() {
    struct Lowered(Arc<AtomicBool>);
    impl Lowering for Lowered {
        fn lower(&self, _: Weight) {
            self.0.store(true, Relaxed);
        }
        fn raise(&self) {
            self.0.store(false, Relaxed);
        }
    }
    loom::model(|| {
        let urgent = consumer(1);
        let lowered = Arc::new(AtomicBool::new(false));
        let shared = Arc::new((Parking::new(), Standing::new()));
        let way = Box::new(Lowered(lowered.clone()));
        shared.1.attach(way, Duration::ZERO, 0);
        let pusher = {
            let (queue, shared) = (urgent.queue().clone(), shared.clone());
            thread::spawn(move || {
                queue.push(Box::new(1)).unwrap();
                let _ = shared.0.notify();
                shared.1.raise();
            })
        };
        let ready = || urgent.queue().is_ready();
        shared.1.background(Weight::DEFAULT, 1, ready);
        pusher.join().unwrap();
        assert!(
            !lowered.load(Relaxed),
            "urgent work, and nobody raises the worker"
        );
    });
}

/// The result reaches the ticket, and whoever waits is woken.
#[test]
fn a_ticket_gets_the_result() {
    loom::model(|| {
        let job = std::sync::Arc::new(Job::new(|| 7));
        let ticket = Ticket::new(std::sync::Arc::clone(&job));
        let worker = thread::spawn(move || {
            assert!(job.begin());
            job.run();
            job.finish();
        });
        assert_eq!(ticket.wait(), Ok(7));
        worker.join().unwrap();
    });
}

/// A task runs or is cancelled, never both, never neither.
#[test]
fn a_task_runs_or_is_cancelled() {
    loom::model(|| {
        let job = std::sync::Arc::new(Job::new(|| 7));
        let ticket = Ticket::new(std::sync::Arc::clone(&job));
        let worker = thread::spawn(move || {
            let runs = job.begin();
            if runs {
                job.run();
                job.finish();
            } else {
                job.give_up();
            }
            runs
        });
        let cancelled = ticket.cancel();
        let outcome = ticket.wait();
        assert_eq!(worker.join().unwrap(), !cancelled);
        match cancelled {
            true => assert_eq!(outcome, Err(TaskError::Cancelled)),
            false => assert_eq!(outcome, Ok(7)),
        }
    });
}

/// The ticking thread is woken, and sees what it was woken for.
#[test]
fn an_alarm_that_rings_is_heard() {
    loom::model(|| {
        let shared = Arc::new((Alarm::new(), AtomicBool::new(false)));
        let ringer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.store(true, Relaxed);
                shared.0.ring();
            })
        };
        while !shared.1.load(Relaxed) {
            shared.0.sleep(None);
        }
        ringer.join().unwrap();
    });
}
