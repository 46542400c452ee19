//! The context-local words: the depth of regions, the mail, the context itself.
//!
//! The words live in a thread-local without destructor, so that signal handlers
//! and the allocator may use them. Every context has the thread-locals of some
//! thread of its own (module `donor`), so they are the context-local storage
//! of the paper's Section 4.3.
//!
//! A thread that is no worker has mail that is never written to, and no mask:
//! regions and poll points cost it the same few instructions and do nothing.
//!
//! Invariants, which the rest of the crate cites:
//!
//! - **L1** `depth` is written by the code of its context only, and by its
//!   signal handlers, which leave it as they found it. Plain loads and stores
//!   are enough; they are atomic only because a handler reads them too. (Asserted
//!   in `exit`, and in `context::interrupted` for handlers.)
//! - **L2** `mail`, `mask` and `context` are written while the context does not
//!   run, or inside a region of it, by the worker's own thread. (Asserted in `bind`,
//!   `unbind` and `set_mask`, but for the thread: to ask for it is a system call.)
//! - **L3** While `context` is not null, the worker's contexts, and `mail`, live. (Not
//!   asserted: nothing marks freed memory; the caller of `bind` promises it.)
//! - **L4** `floor`, `ceiling` and `spare` are written as `mail` is (L2). The handler of a
//!   user interrupt stays on the interrupted stack if its pointer is in `floor..ceiling`,
//!   and else runs on the spare one, whose top is `spare`. The gate `Stack` asks the same of
//!   the same words. So who is on the spare stack is refused, and returns before anybody
//!   else of the worker can come there: one is enough. (Not asserted: only the assembly
//!   knows which it took; the test `nothing_is_written_below_a_stack_that_has_no_room`.)

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use crate::context::Context;
use crate::mail::Mail;

/// The context-local words.
pub(crate) struct Local {
    /// How many regions are open.
    depth: AtomicU32,
    /// The levels that may preempt this context: those above its own, but for
    /// those that wait in `yield_below`. Empty on threads that are no workers.
    mask: AtomicU32,
    mail: AtomicPtr<Mail>,
    context: AtomicPtr<Context>,
    /// The stack pointers at which the context has room for a handler (L4).
    floor: AtomicUsize,
    ceiling: AtomicUsize,
    /// The top of the stack that a handler has otherwise.
    spare: AtomicUsize,
}

/// Where the words of [`Local`] are that assembly reads.
#[cfg(target_arch = "x86_64")]
pub(crate) mod offset {
    use std::mem::offset_of;

    use super::Local;

    pub(crate) const FLOOR: usize = offset_of!(Local, floor);
    pub(crate) const CEILING: usize = offset_of!(Local, ceiling);
    pub(crate) const SPARE: usize = offset_of!(Local, spare);
}

/// Where threads that are no workers look for mail.
#[cfg(not(loom))]
static NO_MAIL: Mail = Mail::new();

#[cfg(not(loom))]
const fn no_mail() -> *mut Mail {
    ptr::from_ref(&NO_MAIL).cast_mut()
}

/// The model checker's atomics cannot be static: in models, who is no worker has
/// none and does not look ([`Local::due`]).
#[cfg(loom)]
const fn no_mail() -> *mut Mail {
    ptr::null_mut()
}

thread_local! {
    static LOCAL: Local = const { Local {
        depth: AtomicU32::new(0),
        mask: AtomicU32::new(0),
        mail: AtomicPtr::new(no_mail()),
        context: AtomicPtr::new(ptr::null_mut()),
        floor: AtomicUsize::new(0),
        ceiling: AtomicUsize::new(usize::MAX),
        spare: AtomicUsize::new(0),
    } };
}

/// Runs `f` on the words of the current context.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&Local) -> R) -> R {
    LOCAL.with(f)
}

impl Local {
    /// Opens a region.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
        // Nothing of the region moves in front of it.
        compiler_fence(SeqCst);
    }

    /// Closes a region; whether it was the outermost. Does not look at mail.
    #[inline(always)]
    pub(crate) fn exit(&self) -> bool {
        // Nothing of the region moves behind it, and no look at the mail in
        // front of it: a handler that comes before the store leaves mail, one
        // that comes after it preempts.
        compiler_fence(SeqCst);
        debug_assert_ne!(self.depth(), 0, "L1");
        let depth = self.depth.load(Relaxed) - 1;
        self.depth.store(depth, Relaxed);
        compiler_fence(SeqCst);
        depth == 0
    }

    /// Closes all regions, which nobody will: they were forgotten.
    #[inline]
    pub(crate) fn close_all(&self) {
        compiler_fence(SeqCst);
        self.depth.store(0, Relaxed);
        compiler_fence(SeqCst);
    }

    /// How many regions are open.
    #[inline(always)]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Relaxed)
    }

    /// Where requests to this context's worker arrive.
    #[inline(always)]
    pub(crate) fn mail(&self) -> &Mail {
        // SAFETY: the pointer is to NO_MAIL or, by L3, to a living worker's.
        unsafe { &*self.mail.load(Relaxed) }
    }

    /// What is due that may preempt this context.
    #[inline(always)]
    pub(crate) fn due(&self) -> u32 {
        if cfg!(loom) && self.mask() == 0 {
            return 0;
        }
        self.mail().due(Relaxed) & self.mask()
    }

    /// The levels that may preempt this context.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u32 {
        self.mask.load(Relaxed)
    }

    /// The context; `None` on threads that are no workers.
    #[inline(always)]
    pub(crate) fn context(&self) -> Option<&Context> {
        // SAFETY: by L3 the pointer is null or to a living context.
        unsafe { self.context.load(Relaxed).as_ref() }
    }

    /// Whether a handler may use the stack that this pointer is into (L4).
    pub(crate) fn has_room(&self, stack_pointer: usize) -> bool {
        (self.floor.load(Relaxed)..self.ceiling.load(Relaxed)).contains(&stack_pointer)
    }

    /// Whether the words may be written: their context does not run, or is inside a
    /// region (L2). For assertions.
    fn may_change(&self) -> bool {
        self.depth() != 0 || with(|here| !ptr::eq(here, self))
    }

    /// Which levels may preempt this context from now on.
    pub(crate) fn set_mask(&self, mask: u32) {
        debug_assert!(self.may_change(), "L2");
        self.mask.store(mask, Relaxed);
    }

    /// Makes this the storage of a context that does not run yet, or of the
    /// base, which is inside a region (L2). Handlers have the `room` of its stack, and
    /// below the top `spare` where that is not enough.
    ///
    /// # Safety
    /// The pointers stay valid until [`unbind`](Self::unbind) (L3).
    pub(crate) unsafe fn bind(
        &self,
        context: *const Context,
        mail: *const Mail,
        room: Range<usize>,
        spare: usize,
    ) {
        debug_assert!(self.may_change(), "L2");
        debug_assert!(self.context().is_none(), "D2");
        self.spare.store(spare, Relaxed);
        self.floor.store(room.start, Relaxed);
        self.ceiling.store(room.end, Relaxed);
        self.mail.store(mail.cast_mut(), Relaxed);
        self.context.store(context.cast_mut(), Relaxed);
    }

    /// Makes this the storage of no worker's context, outside of all regions.
    pub(crate) fn unbind(&self) {
        debug_assert!(self.may_change(), "L2");
        self.mask.store(0, Relaxed);
        self.context.store(ptr::null_mut(), Relaxed);
        self.mail.store(no_mail(), Relaxed);
        self.floor.store(0, Relaxed);
        self.ceiling.store(usize::MAX, Relaxed);
    }
}
