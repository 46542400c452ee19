//! What transactions and the writer share.
//!
//! Transactions fill the slots and ring; the writer empties them and moves the
//! frontier. Nothing else of an open log is reached from both sides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use giveway_locks::Mutex;

use super::alarm::Alarm;
use super::disk::Disk;
use super::doorbell::Doorbell;
use super::frontier::{Callback, Frontier};
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
    pub(super) tables: Mutex<Tables>,
    pub(super) files: Mutex<Files>,
    pub(super) counters: Counters,
    pub(super) alarm: Arc<Alarm>,
    /// Somebody does not want to wait for the policy's interval.
    pub(super) urgent: AtomicBool,
    pub(super) stop: AtomicBool,
}

/// Tables, as far as the log is concerned.
pub(super) struct Tables {
    /// All tables, those included that are not usable yet.
    pub(super) schemas: BTreeMap<u32, Vec<u8>>,
    /// Records of new tables, and who waits for them.
    pub(super) unwritten: Vec<(Vec<u8>, Callback)>,
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

    pub(super) fn take_tables(&self) -> Vec<(Vec<u8>, Callback)> {
        std::mem::take(&mut self.tables.lock().unwritten)
    }

    /// After a failure: who waits for a new table is told. Who comes later sees
    /// the failure, which was set before the tables were locked here.
    pub(super) fn refuse_tables(&self, taken: Vec<Callback>) {
        let left = self.take_tables().into_iter().map(|(_, creator)| creator);
        for creator in taken.into_iter().chain(left) {
            self.frontier.when_settled(u64::MAX, creator);
        }
    }
}
