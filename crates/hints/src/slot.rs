//! The hint slot in Rust: what a thread tells the scheduler, with plain stores.
//!
//! ```no_run
//! use giveway_hints::{Tier, slot::Table};
//!
//! # fn checkpoint() {}
//! let table = Table::open(None)?;
//! if let Some(slot) = table.attach() {
//!     slot.set_tier(Tier::Background);
//!     checkpoint();
//! } // the slot is given back here
//! # Ok::<(), giveway_hints::slot::OpenError>(())
//! ```
//!
//! Layout, protocol, invariants and their weakness are in the C header,
//! `giveway/slot.h`; a test compiles it and compares every offset with this
//! file. `claim` has the protocol, which a model checker runs.
//! Source: UFS (paper 000), Sections 4 and 5.2; the paper's map takes a system
//! call for each event, a mapped slot takes none.
//!
//! A [`Table`] is one process's mapping, a [`Slot`] one thread's words in it, and
//! a [`Remote`] lets other threads of the process write its tier and weight. A
//! child of `fork` has the mapping and must attach for itself: it must not use
//! a [`Slot`] that its parent made. It may drop one, which does nothing.

use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::claim::{self, Slots};
use crate::gate::Gate;
use crate::layout::{Page, ReportWords};
use crate::table::Mapping;
use crate::{Tier, Weight};

mod remote;

pub use remote::Remote;

pub use crate::layout::{HELD_MAX, Reader, SLOT_SIZE};
pub use crate::table::{DIR, NAME, OpenError, SOCKET, dir_of};

/// What UFS reports about a slot's owner since it claimed the slot. Times in
/// nanoseconds. As true as the user's programs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// CPU time by [`Tier`]; boosted time counts as background.
    pub run_ns: [u64; 2],
    /// Wake-ups, and the time from wake-up to run, summed.
    pub wakes: u64,
    /// See [`wakes`](Self::wakes).
    pub wake_ns: u64,
    /// Involuntary context switches.
    pub preempted: u64,
    /// Boosts, the CPU time they gave, and how many lasted too long.
    pub boosts: u64,
    /// See [`boosts`](Self::boosts).
    pub boosted_ns: u64,
    /// See [`boosts`](Self::boosts).
    pub expired: u64,
    /// The lock of the latest boost.
    pub last_lock: u64,
    /// How long after the latest boost began its lock was seen released.
    pub last_boost_ns: u64,
    /// Times the slot asked for a tier that its owner has no right to.
    pub refused: u64,
    /// The tier it had when it left a CPU last; `None` before the first report.
    pub tier: Option<Tier>,
}

/// What one slot says of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The owner's thread number, in its own pid namespace.
    pub tid: u32,
    /// That namespace's inode number.
    pub namespace: u32,
    /// `None`: its cgroup's tier.
    pub tier: Option<Tier>,
    /// 100 where the slot has no valid one.
    pub weight: Weight,
}

/// The table of slots, mapped for this process.
///
/// Cloning it is cheap: the mapping stays for as long as the process lives,
/// since slots of other threads may lie in it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    mapping: Mapping,
}

impl Table {
    /// Maps the table of this process's effective user. `dir`: the directory of the
    /// tables; `None`: that in `GIVEWAY_HINTS_DIR`, else [`DIR`].
    ///
    /// # Errors
    /// Says why there is no table for this process. A program goes on without.
    pub fn open(dir: Option<&std::path::Path>) -> Result<Table, OpenError> {
        Mapping::open(dir).map(|mapping| Table { mapping })
    }

    /// The tables of all users, each with its user's number, for root; `dir` as in
    /// [`open`](Self::open). Tables that cannot be opened are left out: for others than
    /// root, all of them.
    pub fn of_all_users(dir: Option<&std::path::Path>) -> Vec<(u32, Table)> {
        let dir = crate::table::dir_or_usual(dir);
        let users = crate::table::users(&dir).into_iter();
        users
            .filter_map(|uid| Some((uid, Mapping::at(dir_of(&dir, uid).join(NAME)).ok()?)))
            .map(|(uid, mapping)| (uid, Table { mapping }))
            .collect()
    }

    /// Whether UFS reads the table now.
    pub fn is_active(&self) -> bool {
        self.mapping.header().scheduler.load(Relaxed) != 0
    }

    /// Whether another table has taken this one's place; opening again finds it.
    pub fn is_replaced(&self) -> bool {
        self.mapping.header().replaced.load(Relaxed) != 0
    }

    /// The table's length in pages: slots are numbered from 1 up to here.
    pub fn nr_slots(&self) -> u32 {
        self.mapping.nr_slots()
    }

    /// Whether slot `index` has an owner.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn has_owner(&self, index: u32) -> bool {
        self.mapping.page(index).owner.load(Relaxed) != 0
    }

    /// How many slots have an owner, and how many there are.
    pub fn usage(&self) -> (u32, u32) {
        let slots = 1..self.nr_slots();
        let used = slots.clone().filter(|&index| self.has_owner(index)).count();
        (used as u32, slots.len() as u32)
    }

    /// What the slots say that count now, each as of some moment of the search.
    pub fn said(&self) -> impl Iterator<Item = Said> {
        self.reports().map(|(said, _)| said)
    }

    /// The same, each with what UFS reports about the slot's owner.
    pub fn reports(&self) -> impl Iterator<Item = (Said, Report)> {
        let pages = (1..self.mapping.nr_slots()).map(|index| self.mapping.page(index));
        pages.filter_map(|page| {
            let owner = page.owner.load(Relaxed);
            let counts = owner != 0 && page.version.load(Acquire) == claim::VERSION;
            let said = || Said {
                tid: owner as u32,
                namespace: (owner >> 32) as u32,
                tier: match page.tier.load(Relaxed) {
                    1 => Some(Tier::Background),
                    2 => Some(Tier::TimeSensitive),
                    _ => None,
                },
                weight: Weight::try_from(u32::from(page.weight.load(Relaxed))).unwrap_or_default(),
            };
            counts.then(|| (said(), page.report.read()))
        })
    }

    /// Takes back the slots whose owner, a thread number and the inode number
    /// of its pid namespace, `is_alive` denies. For the process that keeps the table.
    /// Returns how many.
    pub fn reclaim(&self, mut is_alive: impl FnMut(u32, u32) -> bool) -> usize {
        // All are read before `is_alive` looks, so that it may list the living once.
        let owned = claim::owned(&self.mapping).into_iter();
        owned
            .filter(|&(_, owner)| !is_alive(owner as u32, (owner >> 32) as u32))
            .filter(|&(index, owner)| claim::release(&self.mapping, index, owner))
            .count()
    }

    /// Claims a slot for the calling thread; `None` where there is no room, or while the
    /// thread has a [`Slot`] of this table.
    pub fn attach(&self) -> Option<Slot> {
        let owner = owner(tid())?;
        let (last, in_use) = IN_USE.get();
        // The numbers of a thread that has forked are its, not its child's.
        let in_use = if last == owner { in_use } else { 0 };
        let index = claim::claim_for(&self.mapping, owner, in_use > 0)?;
        IN_USE.set((owner, in_use + 1));
        Some(Slot {
            mapping: self.mapping,
            index,
            owner,
            gate: OnceCell::new(),
            of_one_thread: PhantomData,
        })
    }
}

thread_local! {
    /// The name of the thread that last claimed a slot here, and how many it has: two of
    /// one table would be one page with two owners.
    static IN_USE: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

fn tid() -> u32 {
    // SAFETY: gettid has no precondition.
    unsafe { libc::gettid() as u32 }
}

/// The name of thread `tid` of this pid namespace; `None` without `/proc`.
fn owner(tid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    Some(namespace << 32 | u64::from(tid))
}

/// The calling thread's slot; dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    mapping: Mapping,
    index: u32,
    /// The name that it was claimed by.
    owner: u64,
    /// In the way of other threads, if any were let in.
    gate: OnceCell<Arc<Gate>>,
    /// A slot is obeyed for the thread that claimed it, so it stays with it.
    of_one_thread: PhantomData<*const ()>,
}

impl Slot {
    fn page(&self) -> &Page {
        self.mapping.page(self.index)
    }

    /// Be in `tier` until told otherwise. A tier above the cgroup's takes a
    /// right; without it the cgroup's holds.
    pub fn set_tier(&self, tier: Tier) {
        self.page().tier.store(tier as u8 + 1, Relaxed);
    }

    /// Be in the cgroup's tier again.
    pub fn reset_tier(&self) {
        self.page().tier.store(0, Relaxed);
    }

    /// Have this part of the cgroup's share, compared with its other threads.
    pub fn set_weight(&self, weight: Weight) {
        self.page().weight.store(weight.get() as u16, Relaxed);
    }

    /// Lock numbers of this thread mean the same as those of threads that set
    /// the same domain; 0, the default, is shared by all programs.
    pub fn set_domain(&self, domain: u64) {
        self.page().domain.store(domain, Relaxed);
    }

    /// This thread holds `lock`, until [`release`](Self::release).
    pub fn hold(&self, lock: u64) {
        let locks = &self.page().locks;
        let nheld = locks.nheld.load(Relaxed) as usize;
        if let Some(entry) = locks.held.get(nheld) {
            entry.lock.store(lock, Relaxed);
            locks.nheld.store(nheld as u32 + 1, Release);
        }
    }

    /// It does not any more. Without effect if it was not recorded.
    pub fn release(&self, lock: u64) {
        let locks = &self.page().locks;
        let nheld = (locks.nheld.load(Relaxed) as usize).min(HELD_MAX);
        // Locks are mostly released in the reverse of the order of taking.
        let entry = |i: usize| &locks.held[i].lock;
        if let Some(i) = (0..nheld).rev().find(|&i| entry(i).load(Relaxed) == lock) {
            entry(i).store(entry(nheld - 1).load(Relaxed), Relaxed);
            locks.nheld.store(nheld as u32 - 1, Release);
        }
    }

    /// This thread is about to wait for `lock`, until [`wait_done`](Self::wait_done).
    pub fn wait(&self, lock: u64) {
        self.page().locks.wait.store(lock, Relaxed);
    }

    /// It has the lock, or has given up.
    pub fn wait_done(&self) {
        self.page().locks.wait.store(0, Relaxed);
    }

    /// Locks held and awaited are also to be read there, from now on.
    pub fn set_reader(&self, reader: &Reader) {
        for (place, word) in self.page().reader.iter().zip(reader.words()) {
            place.store(word, Relaxed);
        }
    }

    /// What UFS reports about this thread.
    pub fn report(&self) -> Report {
        self.page().report.read()
    }
}

impl ReportWords {
    /// Word by word, while UFS writes them.
    fn read(&self) -> Report {
        let read = |word: &AtomicU64| word.load(Relaxed);
        // Where UFS has written there is a weight.
        let is_written = self.weight.load(Relaxed) > 0;
        let tier = match self.tier.load(Relaxed) {
            0 => Tier::TimeSensitive,
            _ => Tier::Background,
        };
        Report {
            run_ns: [read(&self.run_ns[0]), read(&self.run_ns[1])],
            wakes: read(&self.wakes),
            wake_ns: read(&self.wake_ns),
            preempted: read(&self.preempted),
            boosts: read(&self.boosts),
            boosted_ns: read(&self.boosted_ns),
            expired: read(&self.expired),
            last_lock: read(&self.last_lock),
            last_boost_ns: read(&self.last_boost_ns),
            refused: read(&self.refused),
            tier: is_written.then_some(tier),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // In the child of a fork the slot, and who is inside its gate, are the parent's.
        if tid() != self.owner as u32 {
            return;
        }
        let (last, in_use) = IN_USE.get();
        debug_assert!(last != self.owner || in_use > 0, "a slot was not counted");
        if last == self.owner {
            IN_USE.set((last, in_use - 1));
        }
        if let Some(gate) = self.gate.get() {
            gate.close();
        }
        claim::release(&self.mapping, self.index, self.owner);
    }
}

impl Slots for Mapping {
    fn nr_slots(&self) -> u32 {
        Mapping::nr_slots(self)
    }

    fn owner(&self, index: u32) -> &AtomicU64 {
        &self.page(index).owner
    }

    fn version(&self, index: u32) -> &AtomicU32 {
        &self.page(index).version
    }

    fn wipe(&self, index: u32) {
        self.wipe_page(index);
    }

    fn claims(&self) -> &AtomicU64 {
        &self.header().claims
    }

    fn reach(&self) -> &AtomicU32 {
        &self.header().reach
    }
}

#[cfg(test)]
mod tests;
