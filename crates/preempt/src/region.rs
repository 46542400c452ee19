//! Non-preemptible regions and poll points (Section 4.4).
//!
//! A region is a stretch of code in which its context is not preempted: latches
//! are held, or something is half changed that the preempting context would
//! see. Regions nest. A request that arrives inside is not lost, as in the
//! published code, but kept in the mail; the exit of the outermost region takes
//! it.
//!
//! ```text
//! depth 0 ──enter──► 1 ──enter──► 2 ──exit──► 1 ──exit──► 0 ── mail? ──► preempted here
//!                              ▲ request: kept
//! ```
//!
//! Entering and leaving are a load and a store each, with no atomic operation:
//! only this context changes the count (L1).

use std::marker::PhantomData;

use crate::context;
use crate::local::{self, Local};

/// A stretch in which the current context is not preempted. Its end takes what
/// became due meanwhile, if no other region is open.
///
/// ```compile_fail
/// fn elsewhere(_: impl Send) {}
/// elsewhere(giveway_preempt::region()); // A region belongs to its context.
/// ```
///
/// Forgetting a region is safe, but its context is not preempted until its task, or the
/// body of its level, ends. A thread's own work, which is level 0 without a pool, must
/// not end with one: dropping the [`Worker`](crate::Worker) panics then.
#[must_use = "a region lasts as long as this value lives"]
#[derive(Debug)]
pub struct Region {
    /// Neither Send nor Sync: the count it will lower is this context's.
    context: PhantomData<*mut ()>,
}

/// Opens a region: the current context is not preempted while it lives.
#[inline(always)]
pub fn region() -> Region {
    local::with(Local::enter);
    Region {
        context: PhantomData,
    }
}

impl Drop for Region {
    #[inline(always)]
    fn drop(&mut self) {
        local::with(|local| {
            if local.exit() {
                look(local);
            }
        });
    }
}

/// A place where the context may be preempted by a request that no signal or
/// user interrupt brings, or that could not be taken when it came. Inside a
/// region it does nothing.
#[inline(always)]
pub fn poll_point() {
    local::with(look);
}

/// Closes the regions that a task which has ended has forgotten.
#[inline]
pub(crate) fn close_all() {
    local::with(Local::close_all);
}

/// Takes what is due; the caller may be inside a region.
#[inline(always)]
fn look(local: &Local) {
    if local.due() != 0 {
        context::take_due_here();
    }
}

/// Whether the current context is inside a region.
#[inline]
pub fn in_region() -> bool {
    local::with(Local::depth) != 0
}

/// Whether a poll point outside of all regions would preempt the current
/// context.
#[inline]
pub fn is_due() -> bool {
    local::with(|local| local.due() != 0)
}

/// Withdraws what was requested for the caller's own level, because the caller
/// is about to look at its queue and will find the work itself.
///
/// Call it *before* looking: then a request that comes later belongs to work
/// that may have been missed, and stays. Without it the worker may be sent up
/// once more for an empty queue, which does no harm.
#[inline]
pub fn acknowledge() {
    local::with(|local| {
        if let Some(context) = local.context() {
            local.mail().acknowledge(context.level());
        }
    });
}
