//! What a fork leaves behind: queues of threads that the child does not have.
//!
//! glibc's child has the memory of every thread and only the one that forked.
//! A lock that such a thread holds stays locked, here as with glibc. But a
//! queue of waiters must be given up, because glibc reuses their stacks. So
//! the process has a generation, which the child raises before any of its
//! other code runs; queues that carry another one are stale (`cond.rs`, and
//! the core for its own). Handlers run in the child in the order in which they
//! were registered, and ours is registered when the mode is decided, at the
//! first lock, before those of the program.
//!
//! `vfork` and `posix_spawn` share the parent's memory and run no handlers;
//! their child may take no locks anyway.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{stats, threads};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How often this process's ancestors forked on the way to it, up to 30 bits.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Relaxed) & (u32::MAX >> 2)
}

/// Has the child of every fork begin a new generation.
pub(crate) fn register() {
    // SAFETY: the handler may run in a child of a process with many threads:
    // it allocates nothing and takes no lock.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

extern "C" fn child() {
    GENERATION.fetch_add(1, Relaxed);
    giveway_locks::raw::after_fork_in_child();
    threads::fork_child();
    stats::fork_child();
}
