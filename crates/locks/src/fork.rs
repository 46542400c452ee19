//! Queues do not survive a fork.
//!
//! The child has one thread, but its locks still name the nodes of waiters that
//! exist only in the parent. Each lock keeps the generation it was last used in; a
//! fork begins a new one, and the first slow path that finds an old number empties
//! the queue. That happens before a thread of the new generation has queued,
//! because queueing is a slow path. Locks without waiters need nothing, so the fast
//! path does not look.
//!
//! Who empties a queue marks the lock with its generation meanwhile. A fork may take
//! such a mark along, but not the thread that set it: a mark of an older generation is
//! nobody's, and the queue is emptied once more.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw::LockRef;
use crate::state::{LOCKED, METERED};
use crate::sync::{AcqRel, Acquire, give_cpu};

/// The generation of this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// With the generation of who empties the queue: it is being emptied.
const BUSY: u16 = 1 << 15;

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
        let busy = BUSY | current;
        if found != busy && lock.extra.replace_generation(found, busy) {
            let keep = |state| Some(state & (LOCKED | METERED));
            let _ = lock.core.state.fetch_update(AcqRel, Acquire, keep);
            // Only this thread takes the mark away; the profile beside it may change.
            while !lock.extra.replace_generation(busy, current) {}
            return;
        }
        give_cpu();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::raw::{Core, Extra};
    use crate::state;

    /// The fork came while a thread emptied the queue, which is not in the child.
    #[test]
    fn a_queue_that_was_being_emptied_at_the_fork_is_emptied() {
        let (core, extra) = (Core::in_state(state::with_tail(LOCKED, 7)), Extra::new());
        let (before, after) = (4, 5);
        assert!(extra.replace_generation(0, BUSY | before));
        reset(LockRef::new(&core, &extra), after);
        assert_eq!(extra.generation(), after);
        assert_eq!(core.load(), LOCKED);
    }
}
