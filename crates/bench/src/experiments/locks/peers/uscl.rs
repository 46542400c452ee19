//! u-SCL, the scheduler-cooperative mutex of Patel et al. (EuroSys 2020; reference 48
//! in the CFL paper), as the rival in fairness.
//!
//! A thread owns the lock for a *slice* of 2 ms, in which it takes and gives
//! back the lock as often as it likes without a hand-over. What it held is
//! multiplied by total weight / its weight, and until that much time has passed
//! since it joined, it is *banned*: it sleeps before it may queue again.
//!
//! ```text
//!   tail ──────────────────────────────────────────┐
//!   (slice owner)   next ─► [next in line] ─► [asleep] ─► [asleep]
//!    in, out, in …           sleeps to the end    INIT       INIT
//!                            of the slice, then
//!                            spins: NEXT
//!
//!   node:  INIT ─► NEXT ⇄ RUNNABLE ─► RUNNING
//!           the node before     │  owner releases / owner enters again
//!           became the owner    └► its own exchange, after the slice
//! ```
//!
//! While a slice owner is inside or between two turns, its node is out of the
//! queue and `tail` is [`OWNER`] if nobody waits. The lock is free if `tail` is
//! null or the next in line is RUNNABLE: there is one such token, and whoever
//! takes it by an exchange holds the lock.
//!
//! 1. Nodes belong to the lock and are freed with it; a handle takes one and
//!    gives it back. A stale pointer to a node thus reads some node's state (not
//!    asserted: nothing takes a node out of `Nodes::all`).
//! 2. `next` is written by the holder only, and by an arrival that found the
//!    queue empty or only owned (not asserted: the lock does not record its holder).
//!
//! Departures from the published code (facts about it: slice 2 ms, 8 µs sleeping
//! grain, 20 looks before a yield, weights of nice values, total weight never
//! shrinks, a ban is served before queueing; all kept):
//!
//! - The owner enters again only by the exchange RUNNABLE → NEXT. The original
//!   also enters if the state is below RUNNABLE, after a check of the time; an
//!   owner that is preempted between the two would enter beside the next owner
//!   (argued from the code, not observed). At release the state is always
//!   RUNNABLE, so nothing is lost.
//! - Multiplied before divided: 3/2 is 1.5 and not 1, or a weight of 2 against
//!   1 would be one of 3 against 1.
//! - The next in line sleeps until the end of the slice. The original compares
//!   the futex with a value it never has there and so does not sleep.
//! - Time is the monotonic clock instead of a cycle counter whose frequency is
//!   fixed at compile time.
//!
//! Known weakness, of the algorithm: not work-conserving (a banned thread
//! sleeps while the lock is free), and credit without bound for who stays away.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use giveway_machine::futex::{self, Deadline};

use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};

const SLICE_NS: u64 = 2_000_000;
/// What is shorter is spun, not slept.
const SLEEP_GRAIN_NS: u64 = 8_000;
/// Looks before a yield.
const LOOKS: u32 = 20;

const INIT: u32 = 0;
const NEXT: u32 = 1;
const RUNNABLE: u32 = 2;
const RUNNING: u32 = 3;

/// The value of `tail` that says: owned, and nobody waits. Never followed.
const OWNER: *mut Node = ptr::without_provenance_mut(1);

#[derive(Debug, Default)]
struct Node {
    next: AtomicPtr<Node>,
    state: AtomicU32,
}

/// The lock.
#[derive(Debug)]
pub(super) struct Uscl {
    tail: CachePadded<AtomicPtr<Node>>,
    next: CachePadded<AtomicPtr<Node>>,
    slice_ends_ns: CachePadded<AtomicU64>,
    /// 1 while there is a slice; a futex.
    slice_valid: CachePadded<AtomicU32>,
    total_weight: AtomicU64,
    epoch: Instant,
    nodes: Mutex<Nodes>,
}

#[derive(Debug, Default)]
struct Nodes {
    // Boxed, since handles and the queue point at them.
    #[expect(clippy::vec_box)]
    all: Vec<Box<CachePadded<Node>>>,
    free: Vec<usize>,
}

impl Default for Uscl {
    fn default() -> Self {
        Uscl {
            tail: CachePadded::default(),
            next: CachePadded::default(),
            slice_ends_ns: CachePadded::default(),
            slice_valid: CachePadded::default(),
            total_weight: AtomicU64::new(0),
            epoch: Instant::now(),
            nodes: Mutex::default(),
        }
    }
}

impl Uscl {
    /// Time since the lock was made.
    fn now_ns(&self) -> u64 {
        // Wraps after 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, Nodes> {
        // A list of nodes has no state that a panic could leave half-changed.
        self.nodes
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn slice_is_valid(&self) -> bool {
        self.slice_valid.load(Ordering::Acquire) == 1
    }
}

impl BenchLock for Uscl {
    type Handle<'a> = Thread<'a>;

    fn join(&self, member: &Member) -> Thread<'_> {
        let weight = u64::from(member.weight);
        self.total_weight.fetch_add(weight, Ordering::Relaxed);
        let mut nodes = self.nodes();
        let index = nodes.free.pop().unwrap_or_else(|| {
            nodes.all.push(Box::default());
            nodes.all.len() - 1
        });
        let node = ptr::from_ref(&**nodes.all[index]);
        Thread {
            lock: self,
            index,
            node,
            weight,
            banned_until_ns: self.now_ns(),
            slice_ends_ns: 0,
            began_ns: 0,
        }
    }
}

/// A thread's account with a lock.
#[derive(Debug)]
pub(super) struct Thread<'a> {
    lock: &'a Uscl,
    index: usize,
    node: *const Node,
    weight: u64,
    banned_until_ns: u64,
    /// End of the slice it owned last: names the slice, too.
    slice_ends_ns: u64,
    began_ns: u64,
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.lock.nodes().free.push(self.index);
    }
}

impl Thread<'_> {
    fn node(&self) -> &Node {
        // SAFETY: invariant 1; the lock outlives the handle.
        unsafe { &*self.node }
    }

    /// Takes the lock again within the own slice, before whoever waits.
    fn reenter(&mut self) -> bool {
        let lock = self.lock;
        if !lock.slice_is_valid() {
            return false;
        }
        let ends_ns = lock.slice_ends_ns.load(Ordering::Acquire);
        let mut now_ns = lock.now_ns();
        if ends_ns != self.slice_ends_ns || now_ns >= ends_ns {
            return false;
        }
        let mut next = lock.next.load(Ordering::Acquire);
        if next.is_null() {
            let tail = &lock.tail;
            let taken =
                tail.compare_exchange(ptr::null_mut(), OWNER, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                self.began_ns = now_ns;
                return true;
            }
            // Somebody is arriving, and has not said so in `next` yet.
            wait_until(|| {
                now_ns = lock.now_ns();
                next = lock.next.load(Ordering::Acquire);
                now_ns >= ends_ns || !next.is_null()
            });
            if next.is_null() {
                return false;
            }
        }
        // SAFETY: invariant 1.
        let state = unsafe { &(*next).state };
        let taken = state.compare_exchange(RUNNABLE, NEXT, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            self.began_ns = now_ns;
        }
        taken.is_ok()
    }

    /// Sleeps until the ban is over.
    fn serve_ban(&self) {
        let lock = self.lock;
        loop {
            let left = self.banned_until_ns.saturating_sub(lock.now_ns());
            if left <= SLEEP_GRAIN_NS {
                break;
            }
            std::thread::sleep(Duration::from_nanos(left - left % SLEEP_GRAIN_NS));
        }
        wait_until(|| lock.now_ns() >= self.banned_until_ns);
    }

    /// Queues up and waits until the node before has become the owner.
    fn enqueue(&self) {
        let (lock, node) = (self.lock, self.node());
        let own = self.node.cast_mut();
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.state.store(INIT, Ordering::Relaxed);
        let before = lock.tail.swap(own, Ordering::AcqRel);
        if before.is_null() {
            node.state.store(RUNNABLE, Ordering::Release);
            lock.next.store(own, Ordering::Release);
        } else if before == OWNER {
            node.state.store(NEXT, Ordering::Release);
            lock.next.store(own, Ordering::Release);
        } else {
            // SAFETY: invariant 1; its owner waits for this store before it
            // uses the node anew.
            unsafe { (*before).next.store(own, Ordering::Release) };
            while node.state.load(Ordering::Acquire) == INIT {
                futex::wait(&node.state, INIT, None);
            }
        }
    }

    /// Waits, as the next in line, until the slice has expired or was ended.
    fn outwait_slice(&self) {
        let lock = self.lock;
        let ends_ns = || lock.slice_ends_ns.load(Ordering::Acquire);
        while lock.slice_is_valid() {
            let left = ends_ns().saturating_sub(lock.now_ns());
            if left <= SLEEP_GRAIN_NS {
                break;
            }
            let limit = Duration::from_nanos(left - left % SLEEP_GRAIN_NS);
            futex::wait(&lock.slice_valid, 1, Deadline::after(limit));
        }
        wait_until(|| !lock.slice_is_valid() || lock.now_ns() >= ends_ns());
        lock.slice_valid.store(0, Ordering::Release);
    }

    /// Takes the lock as the next in line, begins a slice, and makes the
    /// successor the next in line.
    fn begin_slice(&mut self) {
        let (lock, node) = (self.lock, self.node());
        wait_until(|| {
            node.state
                .compare_exchange(RUNNABLE, RUNNING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let mut next = node.next.load(Ordering::Acquire);
        if next.is_null() {
            lock.next.store(ptr::null_mut(), Ordering::Release);
            let own = self.node.cast_mut();
            let alone = lock
                .tail
                .compare_exchange(own, OWNER, Ordering::AcqRel, Ordering::Acquire);
            if alone.is_err() {
                wait_until(|| {
                    next = node.next.load(Ordering::Acquire);
                    !next.is_null()
                });
                lock.next.store(next, Ordering::Release);
            }
        } else {
            lock.next.store(next, Ordering::Release);
        }
        self.began_ns = lock.now_ns();
        self.slice_ends_ns = self.began_ns + SLICE_NS;
        let ends_ns = &lock.slice_ends_ns;
        ends_ns.store(self.slice_ends_ns, Ordering::Release);
        lock.slice_valid.store(1, Ordering::Release);
        if !next.is_null() {
            // SAFETY: invariant 1.
            let state = unsafe { &(*next).state };
            state.store(NEXT, Ordering::Release);
            futex::wake(state, 1);
        }
    }
}

// SAFETY: who returns from `lock` took the one token by an exchange (RUNNABLE
// to NEXT or RUNNING, or `tail` from null to OWNER), or queued on a null `tail`
// and thereby became the token's next in line; `unlock` puts it back once, with
// release.
unsafe impl LockHandle for Thread<'_> {
    fn lock(&mut self) {
        if self.reenter() {
            return;
        }
        self.serve_ban();
        self.enqueue();
        self.outwait_slice();
        self.begin_slice();
    }

    unsafe fn unlock(&mut self) {
        let lock = self.lock;
        let mut next = lock.next.load(Ordering::Acquire);
        let mut free = false;
        if next.is_null() {
            let tail = &lock.tail;
            free = tail
                .compare_exchange(OWNER, ptr::null_mut(), Ordering::Release, Ordering::Relaxed)
                .is_ok();
            if !free {
                wait_until(|| {
                    next = lock.next.load(Ordering::Acquire);
                    !next.is_null()
                });
            }
        }
        if !free {
            // SAFETY: invariant 1.
            unsafe { (*next).state.store(RUNNABLE, Ordering::Release) };
        }
        let now_ns = lock.now_ns();
        let held_ns = now_ns.saturating_sub(self.began_ns);
        let total = lock.total_weight.load(Ordering::Relaxed);
        self.banned_until_ns += held_ns * total / self.weight;
        if now_ns < self.banned_until_ns {
            let valid: &AtomicU32 = &lock.slice_valid;
            let ended = valid.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed);
            if ended.is_ok() {
                futex::wake(valid, 1);
            }
        }
    }
}

fn wait_until(mut done: impl FnMut() -> bool) {
    loop {
        for _ in 0..LOOKS {
            if done() {
                return;
            }
        }
        std::thread::yield_now();
    }
}
