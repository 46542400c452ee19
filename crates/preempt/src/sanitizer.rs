//! What AddressSanitizer and ThreadSanitizer are told of contexts; compiled under them only
//! (`--cfg asan`, `--cfg tsan`).
//!
//! Both keep what they know of a thread in its thread-locals. A context has the stack and
//! the thread-locals of one thread, its donor, for life (D2). So to a sanitizer a switch
//! changes nothing: it takes the context for the donor, and the donor's call stack, bounds
//! of its stack and name are right for it. The interface for fibers
//! (`__tsan_switch_to_fiber`, `__sanitizer_start_switch_fiber`) is for switches that keep
//! the thread-locals, and replaces the state in them. Here it would leave the state of one
//! context in the thread-locals of another.
//!
//! Two things are not seen:
//!
//! - Order. To ThreadSanitizer the contexts of a worker are threads that run side by side.
//!   They run one after the other (C1), so whatever a context did before it stopped happens
//!   before whatever the next one does: [`stops`] and [`goes_on`], around each switch.
//! - The end of a context. Its root never returns, so AddressSanitizer goes on watching the
//!   gaps between the variables of its frames, while the donor uses that part of its stack
//!   anew: [`ends`].

#[cfg(asan)]
use std::ops::Range;

unsafe extern "C" {
    #[cfg(tsan)]
    safe fn __tsan_release(address: *const ());
    #[cfg(tsan)]
    safe fn __tsan_acquire(address: *const ());
    #[cfg(asan)]
    fn __asan_unpoison_memory_region(start: *const (), bytes: usize);
}

/// The context that runs is about to stop, so that this one goes on.
#[cfg(tsan)]
pub(crate) fn stops<T>(for_context: *const T) {
    __tsan_release(for_context.cast());
}

/// This context was stopped until now. Before it touches any memory.
#[cfg(tsan)]
pub(crate) fn goes_on<T>(context: *const T) {
    __tsan_acquire(context.cast());
}

/// The context that was stopped on this part of a stack does not go on any more.
///
/// # Safety
/// Nobody else uses it.
#[cfg(asan)]
pub(crate) unsafe fn ends(stack: Range<usize>) {
    let start = std::ptr::with_exposed_provenance(stack.start);
    // SAFETY: the caller's promise.
    unsafe { __asan_unpoison_memory_region(start, stack.len()) };
}
