//! Queues do not survive a fork.
//!
//! The child has one thread, but its locks still name the nodes of waiters that
//! exist only in the parent. Each lock keeps the generation it was last used in; a
//! fork begins a new one, and the first slow path that finds an old number empties
//! the queue. That happens before a thread of the new generation has queued,
//! because queueing is a slow path. Locks without waiters need nothing, so the fast
//! path does not look.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw::LockRef;
use crate::state::{LOCKED, METERED};
use crate::sync::{AcqRel, Acquire, give_cpu};

/// The generation of this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// While the queue is being emptied.
const BUSY: u16 = u16::MAX;

/// Begins a new generation.
pub(crate) fn next_generation() {
    let next = |now| Some((now + 1) % u32::from(BUSY));
    let _ = GENERATION.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}

/// Empties the queue of a lock that comes from before a fork.
#[inline]
pub(crate) fn check(lock: LockRef<'_>) {
    let current = GENERATION.load(Ordering::Relaxed) as u16;
    if lock.extra.generation() != current {
        reset(lock, current);
    }
}

#[cold]
fn reset(lock: LockRef<'_>, current: u16) {
    loop {
        let found = lock.extra.generation();
        if found == current {
            // Pairs with the release of who has emptied it.
            crate::sync::fence(Acquire);
            return;
        }
        if found != BUSY && lock.extra.replace_generation(found, BUSY) {
            let keep = |state| Some(state & (LOCKED | METERED));
            let _ = lock.core.state.fetch_update(AcqRel, Acquire, keep);
            lock.extra.replace_generation(BUSY, current);
            return;
        }
        give_cpu();
    }
}
