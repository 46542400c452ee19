//! What a debugger is told: which threads are workers, and where their contexts lie.
//!
//! A debugger shows threads. A paused task is none: it is a stack that its worker has
//! left, and its registers are on that stack. `gdb/giveway_preempt.py` finds them
//! through [`WORKERS`], in a process or in a core dump:
//!
//! ```text
//! WORKERS ─► Entry ─► Entry ─► null       one for each worker
//!              ├ thread, levels
//!              ├ trail ─► which level runs, where the others were stopped
//!              └ saved ─► each level's stack pointer, if it does not run
//! ```
//!
//! The debugger stops all threads at any instruction and reads without a lock. So the
//! list is whole at every instruction:
//!
//! - **G1** An entry is complete before it is linked, and lives until it is unlinked.
//! - **G2** Linking and unlinking are each one store of a pointer that the debugger
//!   follows.
//!
//! All types here, `Trail` and `Saved` are `repr(C)`: the script knows the offsets, and
//! needs no debug information. Whoever changes one raises [`VERSION`]. [`WORKERS`] has a
//! section of its own, whose name also a stripped program has. If a program contains this
//! crate twice, in two versions or in a library, each puts its list there.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Relaxed, Release},
};

use crate::arch::Saved;
use crate::context::Contexts;
use crate::mutex::RegionMutex;
use crate::trail::{LEVELS, Trail};

/// Of the layout.
const VERSION: usize = 1;

/// All workers of the process, the youngest first.
#[used]
#[unsafe(link_section = "giveway_workers")]
static WORKERS: Workers = Workers {
    version: VERSION,
    first: AtomicPtr::new(ptr::null_mut()),
};

/// Held by who changes the list. A debugger does not take it.
static CHANGE: RegionMutex<()> = RegionMutex::new(());

#[repr(C)]
struct Workers {
    version: usize,
    first: AtomicPtr<Entry>,
}

/// One worker.
#[repr(C)]
struct Entry {
    next: AtomicPtr<Entry>,
    /// As the kernel numbers threads.
    thread: usize,
    levels: usize,
    trail: *const Trail,
    saved: [*const Saved; LEVELS],
}

/// A worker's place in the list, until it is dropped. The entry is a box's, kept as a
/// pointer, since the list has the same one.
pub(crate) struct Listed(*mut Entry);

impl Listed {
    /// Lists the current thread with these contexts.
    ///
    /// # Safety
    /// The contexts live until this value is dropped (G1).
    pub(crate) unsafe fn here(contexts: &Contexts) -> Listed {
        let mut saved = [ptr::null(); LEVELS];
        for (place, context) in saved.iter_mut().zip(contexts.list()) {
            *place = context.saved().cast_const();
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let _change = CHANGE.lock();
        let entry = Box::into_raw(Box::new(Entry {
            next: AtomicPtr::new(WORKERS.first.load(Relaxed)),
            thread: thread as usize,
            levels: contexts.list().len(),
            trail: contexts.route().trail(),
            saved,
        }));
        WORKERS.first.store(entry, Release);
        Listed(entry)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _change = CHANGE.lock();
        let mut link = &WORKERS.first;
        while link.load(Relaxed) != self.0 {
            // SAFETY: every entry from the first to ours is linked, so it lives (G1),
            // and nobody else changes the list while we hold the lock.
            link = unsafe { &(*link.load(Relaxed)).next };
        }
        // SAFETY: `here` made it from a box, which nobody has taken back.
        let entry = unsafe { Box::from_raw(self.0) };
        link.store(entry.next.load(Relaxed), Release);
    }
}
