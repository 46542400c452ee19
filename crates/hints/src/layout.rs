//! The table's bytes: the header and a slot, as `include/giveway/hints.h` has them.
//!
//! All of it is atomics, unused parts too: other processes write those when they wipe a
//! slot, and a reference to plain memory would promise that nobody does.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Locks that a slot records as held; others are not known.
pub const HELD_MAX: usize = 200;
/// Bytes of a slot, and of the header.
pub const SLOT_SIZE: usize = 4096;

/// Page 0.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) nr_slots: AtomicU32,
    pub(crate) claims: AtomicU64,
    pub(crate) scheduler: AtomicU64,
    pub(crate) replaced: AtomicU32,
    pub(crate) reach: AtomicU32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lock: AtomicU64,
    pub(crate) mode: AtomicU32,
    pub(crate) pad: AtomicU32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct LockRecord {
    pub(crate) version: AtomicU32,
    pub(crate) nheld: AtomicU32,
    pub(crate) wait: AtomicU64,
    pub(crate) wait_spin: AtomicU64,
    pub(crate) spin: AtomicU64,
    pub(crate) held: [Held; HELD_MAX],
}

/// What UFS writes about a slot's owner.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ReportWords {
    pub(crate) run_ns: [AtomicU64; 2],
    pub(crate) wakes: AtomicU64,
    pub(crate) wake_ns: AtomicU64,
    pub(crate) preempted: AtomicU64,
    pub(crate) boosts: AtomicU64,
    pub(crate) boosted_ns: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) last_lock: AtomicU64,
    pub(crate) last_boost_ns: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) tier: AtomicU32,
    pub(crate) weight: AtomicU32,
}

/// Where a program keeps the same facts that the slot has, for a server that
/// does not record them in the slot: `struct giveway_reader`, which explains
/// the fields. Addresses are the owner's own; 0 switches a part off.
#[expect(missing_docs, reason = "the header's fields, under their names")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    pub nheld_addr: u64,
    pub held_addr: u64,
    pub wait_event_ptr_addr: u64,
    pub lwlock_tranche_off: u32,
    pub lwlock_state_off: u32,
    pub lwlock_has_waiters_bit: u32,
    pub wait_event_lwlock_class: u32,
    pub wait_event_lock_class: u32,
    pub wait_event_spin: u32,
    pub ev_group_procarray: u32,
    pub ev_group_xact: u32,
    pub my_proc_addr: u64,
    pub proc_waitlock_off: u32,
    pub lock_proclocks_off: u32,
    pub proclock_link_off: u32,
    pub proclock_proc_off: u32,
    pub proc_pid_off: u32,
}

impl Reader {
    /// As it lies in the slot.
    pub(crate) fn words(&self) -> [u64; 11] {
        let pair = |low: u32, high: u32| {
            let [a, b, c, d] = low.to_ne_bytes();
            let [e, f, g, h] = high.to_ne_bytes();
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        [
            self.nheld_addr,
            self.held_addr,
            self.wait_event_ptr_addr,
            pair(self.lwlock_tranche_off, self.lwlock_state_off),
            pair(self.lwlock_has_waiters_bit, self.wait_event_lwlock_class),
            pair(self.wait_event_lock_class, self.wait_event_spin),
            pair(self.ev_group_procarray, self.ev_group_xact),
            self.my_proc_addr,
            pair(self.proc_waitlock_off, self.lock_proclocks_off),
            pair(self.proclock_link_off, self.proclock_proc_off),
            pair(self.proc_pid_off, 0),
        ]
    }
}

/// A slot as it lies in the table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) owner: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) tier: AtomicU8,
    pub(crate) max_tier: AtomicU8,
    pub(crate) weight: AtomicU16,
    pub(crate) domain: AtomicU64,
    pub(crate) wait_kind: AtomicU64,
    pub(crate) pad0: [AtomicU64; 4],
    pub(crate) locks: LockRecord,
    pub(crate) pad1: [AtomicU64; 36],
    pub(crate) reader: [AtomicU64; 11],
    pub(crate) pad2: [AtomicU64; 21],
    pub(crate) report: ReportWords,
    pub(crate) pad3: [AtomicU64; 20],
}

const _: () = assert!(size_of::<Page>() == SLOT_SIZE);
