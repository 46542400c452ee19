//! Donor threads, which lend a context their stack and thread-locals (the paper's
//! Section 4.3 and its footnote 2). Libraries see an ordinary thread, and no
//! internals of the loader are copied.
//!
//! The donor blocks all signals, says where its thread-locals are and how much
//! of its stack is free, and sleeps until it gets both back. Meanwhile the
//! worker's thread runs the context on them:
//!
//! ```text
//! donor's stack   ┌──────────────────────────┐ high
//!                 │ start of the thread      │
//!                 │ lend(), asleep in futex  │◄─ the donor's stack pointer
//!                 │ GAP: what the sleep uses │
//!                 ├──────────────────────────┤◄─ Lent::top
//!                 │ the context              │
//!                 │            ▼             │
//!                 ├──────────────────────────┤ low
//!                 │ guard page               │
//!                 └──────────────────────────┘
//! ```
//!
//! The published code takes the thread-locals from such a thread, but the stack
//! from the heap. With both from one thread, the bounds that the C library and
//! Rust's overflow handler know are true, there is a guard page, and the
//! destructors of thread-locals run when the donor ends.
//!
//! Invariants:
//!
//! - **D1** From `READY` to `BACK` the donor executes nothing but its sleep,
//!   which uses no thread-local and less stack than the gap. (Not asserted: the donor
//!   sleeps; `tests/storm.rs` checks what contexts have on their stacks.)
//! - **D2** Every context keeps one stack and one set of thread-locals for life,
//!   so addresses of thread-locals that the compiler keeps stay right. (Asserted in
//!   `Local::bind`.)

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use rustix::thread::futex;

use crate::arch;
use crate::local::{self, Local};

/// What the donor's sleep may use of the stack.
const GAP: usize = 16 << 10;
/// The least stack of a donor: the gap, a panic in an unoptimised program, and
/// the frames of two signals.
pub(crate) const LEAST_STACK: usize = 128 << 10;

const STARTING: u32 = 0;
const READY: u32 = 1;
const BACK: u32 = 2;

/// A thread whose stack and thread-locals a context may use. Dropping it
/// gives them back and waits for the thread's end.
pub(crate) struct Donor {
    state: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    lent: Lent,
}

/// What is lent.
#[derive(Clone)]
pub(crate) struct Lent {
    pub(crate) local: *const Local,
    pub(crate) thread_pointer: usize,
    /// The first address above what may be used; a multiple of 16.
    pub(crate) top: *mut u8,
    pub(crate) stack: Range<usize>,
}

// SAFETY: the pointers are to a thread that sleeps while they are used (D1).
unsafe impl Send for Lent {}

impl Donor {
    /// Starts a thread with this name and this much stack that does nothing.
    pub(crate) fn start(name: String, stack_bytes: usize) -> io::Result<Donor> {
        let state = Arc::new(AtomicU32::new(STARTING));
        let (give, take) = mpsc::channel();
        let thread = Builder::new().name(name).stack_size(stack_bytes).spawn({
            let state = Arc::clone(&state);
            move || lend(give, &state)
        })?;
        let lent = take.recv().expect("a donor says what it lends");
        while state.load(Acquire) == STARTING {
            // A failed sleep is a short one.
            let _ = futex::wait(&state, futex::Flags::PRIVATE, STARTING, None);
        }
        Ok(Donor {
            state,
            thread: Some(thread),
            lent,
        })
    }

    /// What may be used until the donor is dropped.
    pub(crate) fn lent(&self) -> &Lent {
        &self.lent
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        self.state.store(BACK, Release);
        let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        let thread = self.thread.take().expect("a donor is dropped once");
        if thread.join().is_err() {
            // A destructor of one of the context's thread-locals panicked; std
            // has printed it, and the thread is gone as wanted.
        }
    }
}

/// The donor's whole life.
fn lend(give: mpsc::Sender<Lent>, state: &AtomicU32) {
    block_all_signals();
    let here = 0u8;
    let top = (&raw const here).addr().saturating_sub(GAP) & !15;
    let sent = give.send(Lent {
        local: local::with(|local| local as *const Local),
        thread_pointer: arch::thread_pointer(),
        top: std::ptr::with_exposed_provenance_mut(top),
        stack: stack_bounds(),
    });
    // The channel uses thread-locals: it has to be gone before D1 begins.
    drop(give);
    if sent.is_err() {
        return;
    }
    state.store(READY, Release);
    let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
    while state.load(Acquire) != BACK {
        // Neither errno nor anything else of the thread's is touched.
        let _ = futex::wait(state, futex::Flags::PRIVATE, READY, None);
    }
}

/// Blocks every signal for this thread: its stack has no room for their frames.
fn block_all_signals() {
    // SAFETY: plain data, filled before use; blocking signals has no
    // preconditions.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let code = libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        assert_eq!(code, 0, "blocking signals does not fail");
    }
}

/// The current thread's stack, without its guard page.
pub(crate) fn stack_bounds() -> Range<usize> {
    // SAFETY: plain data that the C library fills, and frees what it allocated
    // for it.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let code = libc::pthread_getattr_np(libc::pthread_self(), &mut attributes);
        assert_eq!(code, 0, "a running thread has attributes");
        let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
        let code = libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        assert_eq!(code, 0, "a running thread has a stack");
        libc::pthread_attr_destroy(&mut attributes);
        low.addr()..low.addr() + bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_lends_a_stack_within_its_bounds_and_ends() {
        let donor = Donor::start("donor".into(), LEAST_STACK).unwrap();
        let lent = donor.lent();
        assert!(lent.stack.contains(&lent.top.addr()));
        assert!(lent.top.addr() - lent.stack.start >= LEAST_STACK / 2);
        assert_ne!(lent.thread_pointer, arch::thread_pointer());
        drop(donor);
    }
}
