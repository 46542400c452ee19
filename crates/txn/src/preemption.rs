//! The engine's side of preemption: where it must not happen, where it may be
//! taken, and what a transaction does about one that is paused below it.
//!
//! The rules, from Section 4.4 of the paper and from what our own latches need:
//!
//! - **R1** A latch is held, and a commit timestamp is drawn and decided upon,
//!   only inside a [`region`]. So nobody ever waits for a paused context, but
//!   for record conflicts, which are errors and not waits.
//! - **R2** Reading needs no region. Index descents, version chains and scans
//!   can be preempted at any instruction.
//! - **R3** Every record read and every step to another index node is a place
//!   where a polling or cooperative policy may act.

/// While it lives, its context is not preempted. Nests.
pub(crate) struct Region(());

/// Enters a non-preemptible region.
#[inline(always)]
pub(crate) fn region() -> Region {
    Region(())
}

impl Drop for Region {
    #[inline(always)]
    fn drop(&mut self) {}
}

/// Whether the context is inside a region.
#[inline(always)]
pub(crate) fn in_region() -> bool {
    true
}

/// A place where a due preemption may be taken.
#[inline(always)]
pub(crate) fn poll_point() {}

/// A record was read: a poll point that a cooperative policy counts.
#[inline(always)]
pub(crate) fn record_read() {}

/// The level of the running context; 0 for threads that are no workers.
#[inline(always)]
pub(crate) fn level() -> u8 {
    0
}

/// Lets what this context preempted run to the end of its task. False if there
/// is nothing.
pub(crate) fn yield_below() -> bool {
    false
}
