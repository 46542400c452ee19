//! Who owns a slot: claim, release, reclaim (the protocol of `giveway/slot.h`).
//!
//! ```text
//!            claim: owner 0 -> me          wipe, version = 1
//!   FREE ------------------------> CLAIMED ------------------> OBEYED
//!    ^                                                           |
//!    |      release, or reclaim by UFS after the owner's exit:   |
//!    +----------------- version = 0, owner = 0 ------------------+
//! ```
//!
//! Invariants, numbered as in the header:
//! 1. Only whoever moved `owner` from 0 to its name writes the slot, until it
//!    moves it back.
//! 2. `version` is 0 whenever `owner` is 0, and while a claim wipes.
//!
//! A reader that finds its thread's name in `owner` and then [`VERSION`] in
//! `version` sees what that thread, or one of the same name before it, wrote:
//! `version` is stored with release after the wipe, and 0 before it.
//!
//! Known weakness: a name can come back (thread numbers are reused) while a
//! slot of that name is still claimed. The new thread takes the slot over and
//! wipes it; until it does, it is treated as its predecessor asked.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(test, loom))]
use Ordering::Acquire;
use Ordering::{AcqRel, Relaxed, Release, SeqCst};

/// The layout of a slot's contents that counts.
pub(crate) const VERSION: u32 = 1;
/// Slots that may be a thread's: this many from its home. A model has fewer.
pub(crate) const PROBES: u32 = if cfg!(loom) { 1 } else { 32 };

/// What the claim protocol needs of a table.
pub(crate) trait Slots {
    /// Pages, the header included; at least 2.
    fn nr_slots(&self) -> u32;
    /// Whose slot `index` (from 1) is; 0 is nobody's.
    fn owner(&self, index: u32) -> &AtomicU64;
    /// [`VERSION`] while what is in the slot counts.
    fn version(&self, index: u32) -> &AtomicU32;
    /// Zeroes what else is in the slot. Called by its owner only.
    fn wipe(&self, index: u32);
    /// Moved on by every claim and release.
    fn claims(&self) -> &AtomicU64;
}

/// The first of the slots that may be this owner's.
pub(crate) fn home(owner: u64, nr_slots: u32) -> u32 {
    (owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % (nr_slots - 1) + 1
}

fn window(owner: u64, nr_slots: u32) -> impl Iterator<Item = u32> {
    let next = move |index: &u32| Some(if index + 1 < nr_slots { index + 1 } else { 1 });
    std::iter::successors(Some(home(owner, nr_slots)), next).take(PROBES as usize)
}

/// Claims a slot for `owner`; `None` where its window is full.
pub(crate) fn claim(table: &impl Slots, owner: u64) -> Option<u32> {
    let free = |index: &u32| {
        let word = table.owner(*index);
        word.compare_exchange(0, owner, AcqRel, Relaxed).is_ok()
    };
    // A slot of this name is ours, by an earlier claim or an earlier thread.
    let mine = |index: &u32| table.owner(*index).load(Relaxed) == owner;
    let nr_slots = table.nr_slots();
    let index = window(owner, nr_slots)
        .find(mine)
        .or_else(|| window(owner, nr_slots).find(free))?;
    // Invariant 2. The fence keeps the wipe behind the 0.
    table.version(index).store(0, Release);
    fence(SeqCst);
    table.wipe(index);
    table.version(index).store(VERSION, Release);
    table.claims().fetch_add(1, Release);
    Some(index)
}

/// Gives a slot back.
pub(crate) fn release(table: &impl Slots, index: u32) {
    table.version(index).store(0, Release);
    table.owner(index).store(0, Release);
    table.claims().fetch_add(1, Release);
}

/// Takes a slot back whose owner is dead.
pub(crate) fn reclaim(
    table: &impl Slots,
    index: u32,
    is_dead: &mut impl FnMut(u64) -> bool,
) -> bool {
    let owner = table.owner(index).load(Relaxed);
    if owner == 0 || !is_dead(owner) {
        return false;
    }
    table.version(index).store(0, Release);
    let word = table.owner(index);
    let ours = word.compare_exchange(owner, 0, AcqRel, Relaxed).is_ok();
    table.claims().fetch_add(1, Release);
    ours
}

/// The slot that is obeyed for `owner`, as UFS looks for it in BPF.
#[cfg(all(test, loom))]
pub(crate) fn find(table: &impl Slots, owner: u64) -> Option<u32> {
    window(owner, table.nr_slots()).find(|&index| {
        table.owner(index).load(Acquire) == owner && table.version(index).load(Acquire) == VERSION
    })
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Slots whose contents are one word: the name of whoever wrote it last.
    struct Table {
        claims: AtomicU64,
        slots: Vec<(AtomicU64, AtomicU32, AtomicU64)>,
    }

    impl Table {
        fn new(slots: usize) -> Arc<Table> {
            let slot = |_| (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0));
            Arc::new(Table {
                claims: AtomicU64::new(0),
                slots: (0..slots).map(slot).collect(),
            })
        }

        fn contents(&self, index: u32) -> &AtomicU64 {
            &self.slots[index as usize - 1].2
        }
    }

    impl Slots for Table {
        fn nr_slots(&self) -> u32 {
            self.slots.len() as u32 + 1
        }
        fn owner(&self, index: u32) -> &AtomicU64 {
            &self.slots[index as usize - 1].0
        }
        fn version(&self, index: u32) -> &AtomicU32 {
            &self.slots[index as usize - 1].1
        }
        fn wipe(&self, index: u32) {
            self.contents(index).store(0, Relaxed);
        }
        fn claims(&self) -> &AtomicU64 {
            &self.claims
        }
    }

    fn live(table: &Table, owner: u64) {
        if let Some(index) = claim(table, owner) {
            table.contents(index).store(owner, Relaxed);
            assert_eq!(table.contents(index).load(Relaxed), owner);
            release(table, index);
        }
    }

    /// Two threads, one slot: never both in it.
    #[test]
    fn a_slot_has_one_owner() {
        loom::model(|| {
            let table = Table::new(1);
            let other = table.clone();
            let thread = thread::spawn(move || live(&other, 7));
            live(&table, 8);
            thread.join().unwrap();
        });
    }

    /// A reader obeys only what the thread it asks about, or the wipe, wrote.
    #[test]
    fn a_reader_never_takes_one_owner_s_word_for_another_s() {
        loom::model(|| {
            let table = Table::new(1);
            let (one, two) = (table.clone(), table.clone());
            let first = thread::spawn(move || live(&one, 7));
            let second = thread::spawn(move || live(&two, 8));
            if let Some(index) = find(&*table, 8) {
                let said = table.contents(index).load(Relaxed);
                assert!(said == 8 || said == 0 || find(&*table, 8).is_none());
            }
            first.join().unwrap();
            second.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_window_stays_in_the_table_and_skips_the_header() {
        for nr_slots in [2, 3, 33, 1024] {
            for owner in [1, 77, u64::MAX] {
                let seen: Vec<u32> = window(owner, nr_slots).collect();
                assert_eq!(seen.len(), PROBES as usize);
                assert!(seen.iter().all(|index| (1..nr_slots).contains(index)));
            }
        }
    }
}
