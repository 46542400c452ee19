//! The engine's side of preemption: where it must not happen, where it may be
//! taken, and what a transaction does about one that is paused below it.
//!
//! The rules, from Section 4.4 of the paper and from what our own latches need:
//!
//! - **R1** A latch is held, and a commit timestamp is drawn and decided upon,
//!   only inside a [`region`]. So no thread ever waits for a paused context: record
//!   conflicts are errors, not waits. (Asserted as L4 and F2.)
//! - **R2** Reading needs no region. Index descents, version chains and scans
//!   can be preempted at any instruction. (Not asserted: it is a permission;
//!   `tests/paused.rs` uses it.)
//! - **R3** Every record read and every step to another index node is a place
//!   where a polling or cooperative policy may act. (Not asserted: a missing place
//!   costs latency only.)

pub(crate) use giveway_preempt::{
    Region, in_region, poll_point, poll_record as record_read, region,
};

/// The level of the running context; 0 for threads that are no workers.
#[inline]
pub(crate) fn level() -> u8 {
    giveway_preempt::current_level().map_or(0, |level| level.get())
}

/// Whether the running context is a worker's lowest: all that are urgent go before it.
pub(crate) fn gives_way() -> bool {
    giveway_preempt::current_level() == Some(giveway_preempt::Level::BASE)
}

/// Lets what this context preempted run to the end of its task. False if there
/// is nothing.
pub(crate) fn yield_below() -> bool {
    giveway_preempt::yield_below() == giveway_preempt::Yielded::Ran
}
