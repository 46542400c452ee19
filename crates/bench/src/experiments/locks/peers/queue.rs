//! The queue of Mellor-Crummey and Scott, with two ways to wait in it:
//! spinning (`mcs`), and spinning shortly before sleeping (`fifo`). Both hand
//! the lock to the waiter that came first; the second is what a fair blocking
//! mutex does.
//!
//! ```text
//!   tail ───────────────────────────┐
//!   [holder] ─next─► [waiter] ─next─► [waiter] ─next─► null
//! ```
//!
//! 1. A node belongs to one handle and is in one queue at most, from `lock` to
//!    the end of `unlock` (not asserted: handles are borrowed mutably, which the
//!    compiler checks).
//! 2. The thread that swapped a node out of `tail` sets that node's `next`; the node's
//!    owner waits for that before it leaves. So no thread touches a node after its
//!    owner's `unlock` has returned, except for a wake-up, which uses only an address
//!    (not asserted: a node does not say who uses it; the locks' tests run this one).

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use giveway_machine::futex;

use super::spin;
use crate::experiments::locks::lock::{BenchLock, LockHandle, Member};

const WAITING: u32 = 0;
const ASLEEP: u32 = 1;
const GRANTED: u32 = 2;

/// Looks at its node before a waiter of `fifo` sleeps: some microseconds, about
/// what a wake-up costs.
const LOOKS: u32 = 1000;

#[derive(Debug, Default)]
pub(super) struct Node {
    next: AtomicPtr<Node>,
    state: AtomicU32,
}

/// How a waiter waits for its node, and is told.
pub(super) trait Wait: Send + Sync {
    fn wait(state: &AtomicU32);
    fn grant(state: *const AtomicU32);
}

/// Waits by spinning.
#[derive(Debug, Default)]
pub(super) struct Spin;

impl Wait for Spin {
    fn wait(state: &AtomicU32) {
        spin::wait_until(|| state.load(Ordering::Acquire) == GRANTED);
    }

    fn grant(state: *const AtomicU32) {
        // SAFETY: by invariant 2 the waiter's node is there until it is granted.
        unsafe { (*state).store(GRANTED, Ordering::Release) };
    }
}

/// Waits by spinning shortly, then sleeping.
#[derive(Debug, Default)]
pub(super) struct SpinThenPark;

impl Wait for SpinThenPark {
    fn wait(state: &AtomicU32) {
        for _ in 0..LOOKS {
            if state.load(Ordering::Acquire) == GRANTED {
                return;
            }
            std::hint::spin_loop();
        }
        let asleep = state.compare_exchange(WAITING, ASLEEP, Ordering::Acquire, Ordering::Acquire);
        if asleep.is_ok() {
            while state.load(Ordering::Acquire) != GRANTED {
                futex::wait(state, ASLEEP, None);
            }
        }
    }

    fn grant(state: *const AtomicU32) {
        // SAFETY: by invariant 2 the waiter's node is there until it is granted.
        if unsafe { (*state).swap(GRANTED, Ordering::Release) } == ASLEEP {
            futex::wake(state, 1);
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue<W> {
    tail: CachePadded<AtomicPtr<Node>>,
    wait: PhantomData<W>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Queue {
            tail: CachePadded::default(),
            wait: PhantomData,
        }
    }
}

#[derive(Debug)]
pub(super) struct Waiter<'a, W> {
    queue: &'a Queue<W>,
    node: Box<CachePadded<Node>>,
}

impl<W: Wait> BenchLock for Queue<W> {
    type Handle<'a>
        = Waiter<'a, W>
    where
        W: 'a;

    fn join(&self, _member: &Member) -> Waiter<'_, W> {
        Waiter {
            queue: self,
            node: Box::default(),
        }
    }
}

// SAFETY: a thread returns from `lock` if the queue was empty or its
// predecessor granted, which a predecessor does once, in `unlock`; the grant's
// release pairs with the waiter's acquire, and the swap of `tail` with the
// exchange in `unlock`.
unsafe impl<W: Wait> LockHandle for Waiter<'_, W> {
    fn lock(&mut self) {
        let node: &Node = &self.node;
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.state.store(WAITING, Ordering::Relaxed);
        let own = ptr::from_ref(node).cast_mut();
        let before = self.queue.tail.swap(own, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: by invariant 2 its owner waits for this store.
            unsafe { (*before).next.store(own, Ordering::Release) };
            W::wait(&node.state);
        }
    }

    unsafe fn unlock(&mut self) {
        let node: &Node = &self.node;
        let own = ptr::from_ref(node).cast_mut();
        let mut next = node.next.load(Ordering::Acquire);
        if next.is_null() {
            let tail = &self.queue.tail;
            if tail
                .compare_exchange(own, ptr::null_mut(), Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            spin::wait_until(|| {
                next = node.next.load(Ordering::Acquire);
                !next.is_null()
            });
        }
        // SAFETY: by invariant 2 the successor's node is there until granted.
        W::grant(unsafe { &raw const (*next).state });
    }
}
