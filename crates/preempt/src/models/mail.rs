//! The real mail and outbox, between senders and a worker.
//!
//! The worker's thread plays its handler as well. The kernel's part, to have it run
//! when a signal was sent, is a flag, which orders as much as the kernel's lock
//! around pending signals does. Contexts are not modelled: going to a level is
//! taking it from the mail.

use std::io;

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
use loom::thread;

use super::bounded;
use crate::level::{Level, Levels};
use crate::mail::{Mail, Requested};
use crate::outbox::{How, Outbox};
use crate::queue::queue;
use crate::sync::UnsafeCell;

const HIGH: Level = Level::new(1);
const TOP: Level = Level::new(2);
/// Longer than any wait between two interrupts.
const STEP_NS: u64 = 10_000_000;

/// A worker's mail, and the signal that the kernel has for it.
struct Desk {
    outbox: Outbox,
    signal: AtomicBool,
}

impl Desk {
    fn new() -> Arc<Desk> {
        Arc::new(Desk {
            outbox: Outbox::new(),
            signal: AtomicBool::new(false),
        })
    }

    fn mail(&self) -> &Mail {
        self.outbox.mail()
    }

    fn request(&self, level: Level, how: How, now: u64) -> Requested {
        self.outbox.request(level, how, now, || self.send())
    }

    fn rearm(&self, now: u64) {
        if !self.mail().outstanding().is_empty() {
            self.outbox.rearm(now, false, |_| self.send());
        }
    }

    /// As above, of interrupts that can be lost. A signal is not.
    fn watch(&self, now: u64) {
        if !self.mail().outstanding().is_empty() {
            self.outbox.rearm(now, true, |_| self.send());
        }
    }

    fn send(&self) -> io::Result<()> {
        self.signal.swap(true, AcqRel);
        Ok(())
    }

    /// Runs the handler if there is a signal. `lets_in` is the gates' answer.
    fn interrupted(&self, mut lets_in: impl FnMut() -> bool) {
        if !self.signal.swap(false, AcqRel) {
            return;
        }
        self.mail().arrive();
        let due = || Levels(self.mail().due(Relaxed) & Level::BASE.above());
        if !due().is_empty() && !lets_in() {
            return self.outbox.refused();
        }
        while let Some(level) = due().highest() {
            self.mail().take(level);
        }
    }

    /// Rearms, and runs the handler, until nothing happens any more.
    fn settle(&self, from: u64) {
        for step in 1..8 {
            self.rearm(from + step * STEP_NS);
            self.interrupted(|| true);
        }
    }
}

/// M2: two requests for the handler at once, with the handler in between.
#[test]
fn a_request_for_the_handler_is_opened() {
    bounded(|| {
        let desk = Desk::new();
        let senders = [HIGH, TOP].map(|level| {
            let desk = desk.clone();
            thread::spawn(move || {
                desk.request(level, How::Interrupt, 1);
            })
        });
        let handler = || {
            if desk.signal.swap(false, AcqRel) {
                desk.mail().arrive();
            }
        };
        handler();
        for sender in senders {
            sender.join().unwrap();
            handler();
        }
        let due = Levels(desk.mail().due(Relaxed) & 0xffff);
        assert_eq!(
            due,
            Levels(HIGH.bit() | TOP.bit()),
            "left in the upper half"
        );
    });
}

/// M3, for what poll points take and for what the handler takes.
#[test]
fn a_worker_that_takes_a_level_sees_what_its_requester_did() {
    for how in [How::Flag, How::Interrupt] {
        loom::model(move || {
            let shared = Arc::new((Desk::new(), UnsafeCell::new(0)));
            let sender = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.with_mut(|work| {
                        // SAFETY: nobody else has it before the request (M3).
                        unsafe { *work = 7 };
                    });
                    shared.0.request(HIGH, how, 1);
                })
            };
            let desk = &shared.0;
            for _ in 0..2 {
                if desk.signal.swap(false, AcqRel) {
                    desk.mail().arrive();
                }
                if desk.mail().due(Relaxed) & HIGH.bit() != 0 {
                    desk.mail().take(HIGH);
                    let work = shared.1.with_mut(|work| {
                        // SAFETY: its requester is done with it (M3).
                        unsafe { *work }
                    });
                    assert_eq!(work, 7);
                    break;
                }
                thread::yield_now();
            }
            sender.join().unwrap();
        });
    }
}

/// A context that withdraws its requests looks at its queue after that: what was
/// pushed before a request that it withdrew, it finds.
#[test]
fn an_acknowledged_push_is_found() {
    loom::model(|| {
        let mut consumer = queue::<Box<u32>>(std::num::NonZeroU32::MIN);
        let desk = Desk::new();
        let sender = {
            let (desk, queue) = (desk.clone(), consumer.queue().clone());
            thread::spawn(move || {
                queue.push(Box::new(1)).unwrap();
                desk.request(HIGH, How::Flag, 1);
            })
        };
        desk.mail().acknowledge(HIGH);
        let found = consumer.take().is_some();
        sender.join().unwrap();
        let still = desk.mail().outstanding().contains(HIGH);
        assert!(found || still, "the work is there, and nobody will look");
    });
}

/// M1: however two requests and the worker meet, the books agree.
#[test]
fn every_request_is_counted_once() {
    loom::model(|| {
        let desk = Desk::new();
        let sender = {
            let desk = desk.clone();
            thread::spawn(move || desk.request(HIGH, How::Interrupt, 1))
        };
        let own = thread::spawn({
            let desk = desk.clone();
            move || desk.mail().post(HIGH)
        });
        desk.mail().take(HIGH);
        desk.mail().acknowledge(HIGH);
        let new = [sender, own].map(|sender| u64::from(sender.join().unwrap() == Requested::New));
        let counted = desk.mail().counters();
        let outstanding = desk.mail().outstanding().len() as u64;
        assert_eq!(counted.requested, new.iter().sum::<u64>());
        assert_eq!(counted.requested + counted.merged, 2);
        assert_eq!(
            counted.requested,
            counted.taken + counted.acknowledged + outstanding
        );
    });
}

/// O1: a request for the flag alone, made while somebody else sends the interrupt
/// for an older one. The worker never polls.
#[test]
fn a_flag_that_nobody_sees_is_followed_by_an_interrupt() {
    bounded(|| {
        let desk = Desk::new();
        desk.request(TOP, How::Flag, 1);
        let ticker = {
            let desk = desk.clone();
            thread::spawn(move || desk.rearm(STEP_NS))
        };
        let sender = {
            let desk = desk.clone();
            thread::spawn(move || {
                desk.request(HIGH, How::Flag, 1);
            })
        };
        desk.interrupted(|| true);
        ticker.join().unwrap();
        desk.interrupted(|| true);
        sender.join().unwrap();
        desk.settle(2 * STEP_NS);
        let left = desk.mail().outstanding();
        assert!(left.is_empty(), "{left:?} waits for an interrupt");
    });
}

/// O2: an interrupt is refused while somebody sends the next one.
#[test]
fn an_interrupt_that_was_refused_is_sent_again() {
    bounded(|| {
        let desk = Desk::new();
        desk.request(HIGH, How::Interrupt, 1);
        let ticker = {
            let desk = desk.clone();
            thread::spawn(move || {
                desk.rearm(STEP_NS);
                desk.rearm(2 * STEP_NS);
            })
        };
        for _ in 0..3 {
            desk.interrupted(|| false);
        }
        ticker.join().unwrap();
        // The last refusal is of what the ticker sent last.
        desk.interrupted(|| false);
        desk.settle(3 * STEP_NS);
        assert!(
            desk.mail().outstanding().is_empty(),
            "nobody sends it again"
        );
    });
}

/// O4: the first interrupt does not come, or comes while the signal in its place does, and
/// another request relies on it.
#[test]
fn an_interrupt_that_was_lost_is_followed_by_a_signal() {
    for late in [false, true] {
        bounded(move || {
            let desk = Desk::new();
            desk.outbox.request(HIGH, How::Interrupt, 1, || Ok(()));
            desk.watch(STEP_NS);
            let ticker = {
                let desk = desk.clone();
                thread::spawn(move || desk.watch(2 * STEP_NS))
            };
            let sender = {
                let desk = desk.clone();
                thread::spawn(move || {
                    desk.request(TOP, How::Interrupt, 1);
                })
            };
            if late {
                desk.send().unwrap();
            }
            desk.interrupted(|| true);
            ticker.join().unwrap();
            sender.join().unwrap();
            for step in 3..6 {
                desk.interrupted(|| true);
                desk.watch(step * STEP_NS);
            }
            desk.interrupted(|| true);
            let left = desk.mail().outstanding();
            assert!(left.is_empty(), "{left:?} waits for an interrupt");
        });
    }
}
