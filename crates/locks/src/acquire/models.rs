//! Single steps of the queue under loom, each with as few threads as it takes.
//!
//! The models of `tests/loom.rs` run the whole lock, where most steps are
//! ordered twice: by the message that one waiter sends another, and by the lock
//! changing hands. An ordering that is missing in one is then made up for by the
//! other. Here one waiter meets one other, in a queue that is there from the
//! start:
//!
//! ```text
//! 1 HEAD ──► 2 ──► 3 ABANDONED ──► 4
//! ```
//!
//! Who reads a link before it is ordered finds an old one, hence a node that
//! has gone, and unlinks or frees it once more. After each model the queue is
//! walked and the free nodes are counted, so that every such thing shows (N2,
//! N3), and so does a second head or role (N4, N5). Which ordering each model
//! was seen to need is listed in `docs/build/locks.md`.

use super::role::Seen;
use super::*;
use crate::node::{ABANDONED, HEAD, PARKED, ROLE, SLAB, soil_for_test};
use crate::raw::{Core, Extra};
use crate::release;
use crate::state::{self, LOCKED, LS_TAKEN};
use crate::sync::{check, relax};
use crate::thread::{seats_for_test, sit_for_test};
use loom::sync::Arc;
use std::time::Duration;

struct Lock {
    core: Core,
    extra: Extra,
}

/// How the waiter in a seat, which is its node too, finds itself at first.
#[derive(Clone, Copy)]
struct Seat {
    word: u32,
    vlht: u64,
}

const fn seat(word: u32, vlht: u64) -> Seat {
    Seat { word, vlht }
}

/// Two threads, for which the model's first one waits.
fn together<A: 'static, B: 'static>(
    lock: &Arc<Lock>,
    one: fn(&Lock) -> A,
    other: fn(&Lock) -> B,
) -> (A, B) {
    let (first, second) = (lock.clone(), lock.clone());
    let one = loom::thread::spawn(move || one(&first));
    let other = loom::thread::spawn(move || other(&second));
    (one.join().unwrap(), other.join().unwrap())
}

/// Has had nothing.
const POOR: u64 = 0;
/// Has had far more than a slice.
const RICH: u64 = 100_000_000;

/// Runs `body` in every order, with a lock in whose queue these waiters are.
fn model<const N: usize>(flags: u64, seats: [Seat; N], body: fn(Arc<Lock>)) {
    check(move || {
        soil_for_test();
        seats_for_test(4);
        let last = N as u32;
        let lock = Arc::new(Lock {
            core: Core::in_state(state::with_tail(flags, last)),
            extra: Extra::new(),
        });
        for (at, seat) in (1..).zip(seats) {
            let standing = Standing {
                vlht: seat.vlht,
                ..Standing::default()
            };
            node(at).prepare(lock.lock_ref().key(), standing);
            node(at).tell(seat.word);
            node(at).prev.store(at - 1, Relaxed);
            let next = if at == last { 0 } else { at + 1 };
            node(at).next.store(next, Relaxed);
        }
        body(lock);
    });
}

impl Lock {
    fn lock_ref(&self) -> LockRef<'_> {
        LockRef::new(&self.core, &self.extra)
    }

    /// The waiter in a seat, as the current thread.
    fn waiter(&self, seat: u32) -> Waiter<'_> {
        sit_for_test(seat);
        Waiter {
            policy: Policy::of(self.lock_ref()),
            kind: Kind::Spin,
            deadline: None,
            barging: false,
            thread: thread::current().expect("a seat is a slot"),
            standing: node(seat).standing(),
            me: seat,
            node: node(seat),
            mean: 0,
            last: 0,
            claimed: false,
        }
    }

    /// These wait, in this order; the first, and no other, is head; there is one
    /// lock scheduler or the role is vacant; these nodes are free, once.
    fn assert_queue(&self, expected: &[u32], free: &[u32]) {
        let state = self.core.load();
        let mut roles = 0;
        let mut before = 0;
        for &at in expected {
            if before != 0 {
                assert_eq!(node(before).next.load(Relaxed), at, "behind {before}");
                assert_eq!(node(at).prev.load(Relaxed), before, "ahead of {at}");
            }
            let word = node(at).word.load(Relaxed);
            assert_eq!(word & HEAD != 0, before == 0, "a head at {at}");
            roles += u32::from(word & ROLE != 0);
            before = at;
        }
        assert_eq!(node(before).next.load(Relaxed), 0, "behind the last");
        assert_eq!(state::tail(state), before, "the tail");
        assert_eq!(roles, u32::from(state & LS_TAKEN != 0), "lock schedulers");
        for _ in free {
            let freed = SLAB.take().expect("a free node");
            assert!(free.contains(&freed), "{freed} was freed");
        }
        assert_eq!(SLAB.take(), None, "a node was freed twice");
    }
}

impl Waiter<'_> {
    /// One walk over the queue.
    fn walk(&mut self, is_head: bool) {
        self.schedule(&mut Seen::default(), is_head);
    }

    /// Does not wait for the lock any longer than for its turn.
    fn leave_when_head(&mut self) {
        self.deadline = Some(Deadline::Monotonic(0));
        assert!(matches!(self.as_head(), End::TimedOut));
    }
}

/// Link: who walks while another queues finds it as it was prepared, or not at
/// all.
#[test]
fn a_linked_node_is_seen_as_prepared() {
    model(LS_TAKEN, [seat(HEAD | ROLE, POOR)], |lock| {
        // Node 3 was never queued; it is where the old link of 2 leads.
        node(2).next.store(3, Relaxed);
        node(3).next.store(0, Relaxed);
        let walk = |lock: &Lock| {
            let mut head = lock.waiter(1);
            head.walk(true);
            head.last
        };
        let (last, ()) = together(&lock, walk, |lock| queue_rich(lock, 2));
        // Its old vLHT is 0, as 3's is.
        assert_eq!(last, 0, "moved forward for what it was before");
        lock.assert_queue(&[1, 2], &[]);
    });
}

/// Tell: a head that is made one by a head which leaves without the lock sees
/// the queue as that one left it.
#[test]
fn a_new_head_sees_the_queue_as_the_old_one_left_it() {
    let seats = [
        seat(HEAD, POOR),
        seat(0, RICH),
        seat(ABANDONED, POOR),
        seat(0, RICH),
    ];
    model(LOCKED, seats, |lock| {
        let next = |lock: &Lock| {
            let mut next = lock.waiter(2);
            assert!(matches!(next.as_follower(), End::IsHead));
            next.leave_when_head();
        };
        together(&lock, |lock| lock.waiter(1).leave_when_head(), next);
        lock.assert_queue(&[4], &[3]);
    });
}

/// Role: who is given it sees the links that the one before wrote.
#[test]
fn the_next_scheduler_sees_the_queue_as_the_last_left_it() {
    let seats = [
        seat(HEAD | ROLE, POOR),
        seat(0, RICH),
        seat(ABANDONED, POOR),
        seat(0, RICH),
    ];
    model(LS_TAKEN, seats, |lock| {
        assert!(matches!(inherit(&lock), End::IsHead));
        lock.assert_queue(&[2, 4], &[3]);
    });
}

/// The same where the heir goes on from the memo, and takes no census first.
#[test]
fn the_next_scheduler_sees_the_rest_as_the_last_left_it() {
    let seats = [
        seat(HEAD | ROLE, RICH),
        seat(0, POOR),
        seat(0, RICH),
        seat(ABANDONED, POOR),
    ];
    model(LS_TAKEN, seats, |lock| {
        assert!(matches!(inherit(&lock), End::IsHead));
        lock.assert_queue(&[2, 3], &[4]);
    });
}

/// The head walks, acquires, and hands on role and place; the next one waits for
/// them, and walks if it gets the role first.
fn inherit(lock: &Arc<Lock>) -> End {
    let head = |lock: &Lock| {
        let mut head = lock.waiter(1);
        head.walk(true);
        while !head.acquire(lock.core.load(), lock.core.load()) {
            relax();
        }
    };
    together(lock, head, |lock| lock.waiter(2).as_follower()).1
}

/// Vacant role: who takes it sees the links that the one who dropped it wrote.
#[test]
fn a_dropped_role_is_taken_with_its_links() {
    let seats = [
        seat(HEAD, POOR),
        seat(ROLE, POOR),
        seat(ABANDONED, POOR),
        seat(0, RICH),
    ];
    model(LS_TAKEN, seats, |lock| {
        let follower = |lock: &Lock| {
            let mut follower = lock.waiter(2);
            follower.walk(false);
            follower.drop_role();
        };
        together(&lock, take_role_and_walk, follower);
        lock.assert_queue(&[1, 2, 4], &[3]);
    });
}

/// The same when the role is vacant because its heir sleeps.
#[test]
fn a_role_refused_by_a_sleeper_is_taken_with_its_links() {
    let seats = [
        seat(HEAD, RICH),
        seat(ROLE, RICH),
        seat(ABANDONED, POOR),
        seat(PARKED, POOR),
    ];
    model(LS_TAKEN, seats, |lock| {
        together(&lock, take_role_and_walk, |lock| lock.waiter(2).walk(false));
        // The head has moved 4, the only one below the average.
        lock.assert_queue(&[1, 4, 2], &[3]);
    });
}

fn take_role_and_walk(lock: &Lock) {
    let mut head = lock.waiter(1);
    while !head.take_role() {
        relax();
    }
    head.walk(true);
}

/// A waiter that comes late, and will not be moved.
fn queue_rich(lock: &Lock, seat: u32) {
    let mut waiter = lock.waiter(seat);
    waiter.standing.vlht = RICH;
    assert!(matches!(waiter.enqueue(), End::GaveWay));
}

/// Unlink: the last waiter is taken out while another queues behind it.
#[test]
fn an_abandoned_tail_is_unlinked_while_another_queues() {
    let seats = [seat(HEAD | ROLE, POOR), seat(ABANDONED, POOR)];
    model(LS_TAKEN, seats, |lock| {
        let walk = |lock: &Lock| lock.waiter(1).walk(true);
        together(&lock, walk, |lock| queue_rich(lock, 3));
        lock.assert_queue(&[1, 3], &[2]);
    });
}

/// Reorder: the last waiter goes first while another queues behind it.
#[test]
fn the_tail_is_moved_while_another_queues() {
    let seats = [seat(HEAD | ROLE, RICH), seat(0, RICH), seat(0, POOR)];
    model(LS_TAKEN, seats, |lock| {
        let walk = |lock: &Lock| lock.waiter(1).walk(true);
        together(&lock, walk, |lock| queue_rich(lock, 4));
        lock.assert_queue(&[1, 3, 2, 4], &[]);
    });
}

/// Giving way: the head goes behind the last waiter while another queues there.
#[test]
fn a_head_gives_way_while_another_queues() {
    let seats = [seat(HEAD | ROLE, RICH), seat(0, POOR)];
    model(LS_TAKEN, seats, |lock| {
        let gives_way = |lock: &Lock| {
            let mut head = lock.waiter(1);
            head.walk(true);
            assert!(head.may_give_way());
            assert!(matches!(head.give_way(), End::GaveWay));
        };
        together(&lock, gives_way, |lock| queue_rich(lock, 3));
        lock.assert_queue(&[2, 1, 3], &[]);
    });
}

/// Abandoning: a waiter gives up while it is made the head, and is either.
#[test]
fn a_waiter_is_made_head_or_abandons() {
    let seats = [seat(HEAD, POOR), seat(0, POOR), seat(0, POOR)];
    model(LOCKED, seats, |lock| {
        let gives_up = |lock: &Lock| {
            let mut waiter = lock.waiter(2);
            waiter.deadline = Some(Deadline::Monotonic(0));
            waiter.as_follower()
        };
        let (_, end) = together(&lock, |lock| lock.waiter(1).leave(), gives_up);
        match end {
            End::IsHead => lock.assert_queue(&[2, 3], &[]),
            End::TimedOut => lock.assert_queue(&[3], &[2]),
            _ => unreachable!("a follower neither acquires nor gives way"),
        }
    });
}

/// Parking: a hold that was not measured is charged from when the head that
/// waited for it went to sleep, not from an earlier sleep of the same node.
#[test]
fn a_hold_is_charged_from_when_its_waiter_slept() {
    let clock = crate::VirtualClock::install();
    clock.advance(Duration::from_millis(1));
    model(LOCKED, [seat(HEAD, POOR)], |lock| {
        node(1).parked_at.store(2, Relaxed);
        let release = |lock: &Lock| {
            sit_for_test(2);
            release::release(lock.lock_ref(), HoldStart::SKIPPED);
            assert!(thread::vlht_ns() < 1000, "charged from an earlier sleep");
        };
        together(&lock, |lock| lock.waiter(1).sleep_as_head(false), release);
    });
}

/// Succession: the holder leaves waking the next head to its release. That head has
/// woken up by its deadline in the meantime, leaves, and the head after it sleeps:
/// the release wakes that one, or loom finds that it sleeps for ever.
#[test]
fn a_head_that_leaves_before_it_is_woken_takes_no_wake_up_along() {
    let seats = [seat(HEAD, POOR), seat(PARKED, POOR), seat(0, POOR)];
    model(0, seats, |lock| {
        let waits = |lock: &Lock, seat, deadline| {
            let mut waiter = lock.waiter(seat);
            (waiter.kind, waiter.deadline) = (Kind::Mutex, deadline);
            if let End::IsHead = waiter.as_follower() {
                if let End::Acquired = waiter.as_head() {
                    release::release(lock.lock_ref(), HoldStart::UNMETERED);
                }
            }
        };
        let (second, third) = (lock.clone(), lock.clone());
        let threads = [
            loom::thread::spawn(move || {
                // Its sleep ends by the deadline.
                node(2).untell(PARKED);
                waits(&second, 2, Some(Deadline::Monotonic(0)));
            }),
            loom::thread::spawn(move || waits(&third, 3, None)),
        ];
        let mut head = lock.waiter(1);
        head.barging = true;
        while !head.acquire(lock.core.load(), lock.core.load()) {
            relax();
        }
        release::release(lock.lock_ref(), HoldStart::UNMETERED);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(lock.core.load() & LOCKED, 0);
        assert_eq!(state::tail(lock.core.load()), 0, "all have gone");
    });
}
