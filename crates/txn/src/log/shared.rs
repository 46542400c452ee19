//! What transactions and the writer share.
//!
//! Transactions fill the slots and ring; the writer empties them and moves the
//! frontier. Nothing else of an open log is reached from both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use giveway_locks::Mutex;

use super::alarm::Alarm;
use super::disk::Disk;
use super::doorbell::Doorbell;
use super::frontier::Frontier;
use super::options::DurabilityOptions;
use super::segment::Closed;
use super::slots::Slots;
use super::stats::Counters;

/// An open log, but for its thread.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: DurabilityOptions,
    pub(super) slots: Slots,
    pub(super) frontier: Frontier,
    pub(super) doorbell: Doorbell,
    pub(super) files: Mutex<Files>,
    pub(super) counters: Counters,
    pub(super) alarm: Arc<Alarm>,
    /// Somebody does not want to wait for the policy's interval.
    pub(super) urgent: AtomicBool,
    pub(super) stop: AtomicBool,
}

/// The log's segments.
pub(super) struct Files {
    /// Oldest first.
    pub(super) closed: Vec<Closed>,
    /// The number of the first batch of the one that is being written.
    pub(super) current: u64,
}

impl Shared {
    pub(super) fn ring_urgently(&self) {
        self.urgent.store(true, Ordering::SeqCst);
        self.doorbell.ring_urgently();
    }

    /// Whether the writer has a reason not to sleep.
    pub(super) fn has_work(&self) -> bool {
        self.slots.backlog() > 0 || self.is_urgent()
    }

    /// Whether it has a reason not to let work gather.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::SeqCst)
            || self.stop.load(Ordering::SeqCst)
            || self.slots.backlog() > self.options.backlog_bytes_max / 2
    }
}
