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

/// Where a writer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    worker: Option<giveway_preempt::WorkerId>,
    level: giveway_preempt::Level,
}

impl Writer {
    /// A thread that is no worker.
    pub(crate) const ELSEWHERE: Writer = Writer {
        worker: None,
        level: giveway_preempt::Level::BASE,
    };

    /// The running context.
    #[inline]
    pub(crate) fn here() -> Writer {
        Writer {
            worker: giveway_preempt::current_worker(),
            level: giveway_preempt::current_level().unwrap_or(giveway_preempt::Level::BASE),
        }
    }

    /// Whether it is paused below the running context: on the same worker, at a lower
    /// level. Only then does [`yield_below`] help; anywhere else it goes on by itself.
    pub(crate) fn is_below(self) -> bool {
        let here = Writer::here();
        here.worker.is_some() && self.worker == here.worker && self.level < here.level
    }
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
