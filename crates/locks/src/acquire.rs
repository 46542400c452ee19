//! Acquiring when it is not free for the taking (Sections 3.2.1, 3.3, 3.4.4).
//!
//! ```text
//!            free, no queue ─────────────────────────────► holder
//! thread ──► queue, free, may steal ─────────────────────► holder
//!    │                                                       ▲
//!    ▼            made head               free, or claimed   │
//! follower ─────────────────────► head ──────────────────────┘
//!    │  ▲ └─ deadline: ABANDONED   │ └─ deadline: next is made head
//!    │  └──── over-served: gives way
//!    └─ spins, sleeps; walks the queue while it has the role
//! ```
//!
//! A follower sleeps soon. The head watches the lock for as long as that pays,
//! then sleeps too, with `HEAD_PARKED` set, so that the next release wakes it. It
//! never yields: the kernel runs a thread that yields after all others, so one of
//! two threads that yielded in turn held the lock ten times as long as the other.
//!
//! Running threads that may steal go first while the head wakes up. What they
//! may take is bounded: each by the slice; all of them by `CLAIMED`, which the
//! head sets when it has waited for long, and which keeps all others out. A thread
//! that only tries is bounded alike.
//! So a lock is never handed to a sleeping thread, except by a thread that must not
//! hold it any more.
//!
//! Under the strict guarantee an over-served head leaves a free lock alone: it
//! gives way to waiters, and idles if there are none, until another thread has
//! caught up (and therefore queues) or until the threshold of Section 3.4.4.
//!
//! | module | decides |
//! | --- | --- |
//! | `arrival` | whether to queue at all |
//! | `follower` | when a waiter is made head, or its deadline has passed |
//! | `head` | when to take the lock |
//! | `role` | which waiter schedules the queue, and when |
//! | `succession` | which waiter is head next |
//! | `sleep` | how to wait without a CPU |
//! | `spin` | how long to wait with one |

mod arrival;
mod follower;
mod head;
#[cfg(all(test, loom))]
mod models;
mod role;
mod sleep;
mod spin;
mod succession;

pub(crate) use arrival::try_once;

use arrival::{alone, beside_the_queue, lease, sampled_start, steal, take_unwanted};

use crate::criteria::Policy;
use crate::node::{Node, Standing, node};
use crate::raw::{HoldStart, Kind, LockRef};
use crate::sync::{LooseU64, Relaxed};
use crate::thread::Thread;
use crate::{clock, fork, group, thread};
use giveway_machine::futex::Deadline;

/// Acquires a lock that was not free and unwanted a moment ago. `None` if the
/// deadline has passed.
#[cold]
pub(crate) fn contended(
    lock: LockRef<'_>,
    kind: Kind,
    deadline: Option<Deadline>,
) -> Option<HoldStart> {
    fork::check(lock);
    let policy = Policy::of(lock);
    let strict = policy.settings.strict();
    let thread = thread::current();
    if !strict && let Some(state) = take_unwanted(lock) {
        if let Some(thread) = thread {
            lease(&policy, thread, state);
        }
        return Some(sampled_start(thread));
    }
    let Some((thread, own)) = thread.and_then(|thread| Some((thread, thread.own_node()?))) else {
        return beside_the_queue(lock, deadline);
    };
    let standing = policy.standing(thread);
    let entitled = !strict || alone(lock, thread) || policy.left(standing, thread.weight()) >= 0;
    if strict && entitled && take_unwanted(lock).is_some() {
        return Some(HoldStart::now());
    }
    let barging = policy.settings.barging(kind == Kind::Mutex);
    if barging
        && entitled
        && let Some(state) = steal(&policy, standing, thread.weight(), true)
    {
        if !strict {
            lease(&policy, thread, state);
        }
        return Some(sampled_start(Some(thread)));
    }
    thread.end_lease();
    let came = clock::now();
    let mut waiter = Waiter {
        policy,
        kind,
        deadline,
        barging,
        thread,
        standing,
        me: own,
        node: node(own),
        mean: 0,
        last: 0,
        claimed: false,
    };
    waiter.count(|counters| &counters.contended);
    let acquired = waiter.queue();
    let waited = clock::ns(clock::now().saturating_sub(came));
    waiter.enter_wait(waited, acquired);
    acquired.then(HoldStart::now)
}

/// [`contended`] without a deadline.
#[cold]
#[inline(never)]
pub(crate) fn contended_for_ever(lock: LockRef<'_>, kind: Kind) -> HoldStart {
    loop {
        if let Some(start) = contended(lock, kind, None) {
            return start;
        }
    }
}

/// How a stage of waiting ended.
enum End {
    /// The waiter is the head now.
    IsHead,
    /// The waiter has acquired the lock and is out of the queue.
    Acquired,
    /// The waiter has let others go first and is a follower again.
    GaveWay,
    /// The deadline has passed and the waiter is out of the queue.
    TimedOut,
}

/// A thread in the queue.
struct Waiter<'a> {
    policy: Policy<'a>,
    kind: Kind,
    deadline: Option<Deadline>,
    barging: bool,
    thread: &'static Thread,
    standing: Standing,
    me: u32,
    node: &'static Node,
    /// The average that the latest walk went by.
    mean: u64,
    /// The last of the waiters that the latest walk found next in line; 0 if
    /// there was no walk or none was found.
    last: u32,
    /// Whether `CLAIMED` is this head's.
    claimed: bool,
}

impl Waiter<'_> {
    /// Queues until the lock is acquired (true) or the deadline passes (false).
    fn queue(&mut self) -> bool {
        let mut end = self.enqueue();
        loop {
            end = match end {
                End::IsHead => self.as_head(),
                End::GaveWay => self.as_follower(),
                End::Acquired => return true,
                End::TimedOut => return false,
            };
        }
    }

    fn weight(&self) -> u32 {
        self.thread.weight()
    }

    /// What is left of the thread's slice, ns of virtual time.
    fn left(&self) -> i64 {
        self.policy.left(self.standing, self.weight())
    }

    fn count(&self, counter: impl Fn(&crate::stats::Counters) -> &LooseU64) {
        self.add(counter, 1);
    }

    fn add(&self, counter: impl Fn(&crate::stats::Counters) -> &LooseU64, by: u64) {
        if by > 0 && self.policy.settings.statistics() {
            counter(&self.policy.settings.counters).fetch_add(by, Relaxed);
        }
    }

    fn enter_wait(&self, waited_ns: u64, acquired: bool) {
        if !acquired {
            self.count(|counters| &counters.timeouts);
        }
        self.add(|counters| &counters.wait_ns, waited_ns);
        if self.policy.settings.statistics() {
            let longest = &self.policy.settings.counters.wait_ns_max;
            longest.fetch_max(waited_ns, Relaxed);
        }
        if group::in_use() {
            group::waited(self.standing.gid, waited_ns);
        }
    }
}
