//! Who owns a slot: claim, release, reclaim (the protocol of `giveway/slot.h`).
//!
//! ```text
//!            claim: owner 0 -> me          wipe, version = 1
//!   FREE ------------------------> CLAIMED ------------------> OBEYED
//!    ^                                                           |
//!    |      release, or reclaim by UFS after the owner's exit:   |
//!    +--------- owner me -> LEAVING, version = 0, owner = 0 -----+
//! ```
//!
//! Several may take the slot of a dead thread back at a time. One of them changes `owner`
//! to [`LEAVING`]; until that one is done, nobody claims the slot, nor takes it back: a
//! thread that is giving its slot back may have lost its CPU for long, and would then
//! clear the `version` of the next owner.
//!
//! Invariants, numbered as in the header:
//! 1. Only the thread that changed `owner` from 0 to its name writes the slot, until
//!    `owner` is changed to [`LEAVING`]; then only whoever did that, until it is 0.
//!    (asserted by the model checker only: in a real table any program of the user may
//!    write any word)
//! 2. `version` is 0 whenever `owner` is 0, and while a claim wipes. (asserted in the
//!    model's `wipe`; in a real table not, as above)
//!
//! A reader that finds its thread's name in `owner` and then [`VERSION`] in
//! `version` sees what that thread, or one of the same name before it, wrote:
//! `version` is stored with release after the wipe, and 0 before it.
//!
//! Known weakness: the kernel may reuse a thread number, and so a name, while a slot of
//! that name is still claimed. The new thread takes the slot over and wipes it; until
//! then UFS applies the old thread's hints to it. Whoever takes back a slot of the old
//! thread may take it from the new one. A program that is killed between two instructions
//! of a release leaves its slot [`LEAVING`] for as long as there is the table.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// The layout of a slot's contents that counts.
pub(crate) const VERSION: u32 = 1;
/// The owner of a slot that somebody is giving back: no thread's name.
pub(crate) const LEAVING: u64 = u64::MAX;
/// Steps that every search takes from a thread's home. A model has fewer.
pub(crate) const PROBES: u32 = if cfg!(loom) { 1 } else { 32 };

/// What the claim protocol needs of a table.
pub(crate) trait Slots {
    /// Pages, the header included; at least 2.
    fn nr_slots(&self) -> u32;
    /// Name of the owner of slot `index` (from 1); 0: free.
    fn owner(&self, index: u32) -> &AtomicU64;
    /// [`VERSION`] while what is in the slot counts.
    fn version(&self, index: u32) -> &AtomicU32;
    /// Zeroes what else is in the slot. Called by its owner only.
    fn wipe(&self, index: u32);
    /// Moved on by every claim and release.
    fn claims(&self) -> &AtomicU64;
    /// The most steps that a claim has taken; below [`PROBES`] it means that many.
    fn reach(&self) -> &AtomicU32;
}

/// The first of the slots that may be this owner's.
pub(crate) fn home(owner: u64, nr_slots: u32) -> u32 {
    (owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 % (nr_slots - 1) + 1
}

/// Every slot, from this owner's home on.
fn steps(owner: u64, nr_slots: u32) -> impl Iterator<Item = u32> {
    let next = move |index: &u32| Some(if index + 1 < nr_slots { index + 1 } else { 1 });
    std::iter::successors(Some(home(owner, nr_slots)), next).take(nr_slots as usize - 1)
}

/// Those of them in which an owner may be: a search ends after as many steps as
/// any claim has taken.
fn window(table: &impl Slots, owner: u64) -> impl Iterator<Item = u32> {
    let reach = table.reach().load(Relaxed).max(PROBES);
    steps(owner, table.nr_slots()).take(reach as usize)
}

/// Claims a slot for `owner`; `None` where all are taken.
#[cfg(test)]
pub(crate) fn claim(table: &impl Slots, owner: u64) -> Option<u32> {
    claim_for(table, owner, false)
}

/// Claims a slot for `owner`, which has another slot in use if `is_second`; `None` where
/// all are taken, or that one is here.
pub(crate) fn claim_for(table: &impl Slots, owner: u64, is_second: bool) -> Option<u32> {
    let free = |(step, index): &(u32, u32)| {
        let word = table.owner(*index);
        if word.load(Relaxed) != 0 {
            return false;
        }
        // First, so that a reader which sees the claim searches far enough.
        if *step >= PROBES {
            table.reach().fetch_max(step + 1, AcqRel);
        }
        word.compare_exchange(0, owner, AcqRel, Relaxed).is_ok()
    };
    // A slot of this name is ours, by an earlier claim or an earlier thread.
    let mine = |index: &u32| table.owner(*index).load(Relaxed) == owner;
    let index = match window(table, owner).find(mine) {
        Some(_) if is_second => return None,
        Some(index) => index,
        None => {
            let mut all = (0..).zip(steps(owner, table.nr_slots()));
            all.find(free).map(|(_, index)| index)?
        }
    };
    // Invariant 2. The fence keeps the wipe behind the 0.
    table.version(index).store(0, Release);
    fence(SeqCst);
    table.wipe(index);
    table.version(index).store(VERSION, Release);
    table.claims().fetch_add(1, Release);
    Some(index)
}

/// Gives back `owner`'s slot; false if it has another owner by now.
pub(crate) fn release(table: &impl Slots, index: u32, owner: u64) -> bool {
    let word = table.owner(index);
    let ours = word.compare_exchange(owner, LEAVING, AcqRel, Relaxed);
    if ours.is_ok() {
        table.version(index).store(0, Release);
        // Nobody else ends this, unless a program of the user writes where it should not.
        let _ = word.compare_exchange(LEAVING, 0, AcqRel, Relaxed);
        table.claims().fetch_add(1, Release);
    }
    ours.is_ok()
}

/// The slots that have owners, with these; not those that somebody is giving back.
pub(crate) fn owned(table: &impl Slots) -> Vec<(u32, u64)> {
    let owners = (1..table.nr_slots()).map(|index| (index, table.owner(index).load(Acquire)));
    owners
        .filter(|&(_, owner)| owner != 0 && owner != LEAVING)
        .collect()
}

/// The slot that is obeyed for `owner`, as UFS looks for it in BPF.
#[cfg(test)]
pub(crate) fn find(table: &impl Slots, owner: u64) -> Option<u32> {
    window(table, owner).find(|&index| {
        table.owner(index).load(Acquire) == owner && table.version(index).load(Acquire) == VERSION
    })
}

#[cfg(test)]
mod model {
    use super::*;

    /// Slots whose contents are one word: the name of the thread that wrote it last.
    pub(super) struct Table {
        claims: AtomicU64,
        reach: AtomicU32,
        slots: Vec<(AtomicU64, AtomicU32, AtomicU64)>,
    }

    impl Table {
        pub(super) fn new(slots: usize) -> Table {
            let slot = |_| (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(0));
            Table {
                claims: AtomicU64::new(0),
                reach: AtomicU32::new(0),
                slots: (0..slots).map(slot).collect(),
            }
        }

        pub(super) fn contents(&self, index: u32) -> &AtomicU64 {
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
            let version = self.version(index).load(Relaxed);
            assert_eq!(version, 0, "slot {index} counts while it is wiped");
            self.contents(index).store(0, Relaxed);
        }
        fn claims(&self) -> &AtomicU64 {
            &self.claims
        }
        fn reach(&self) -> &AtomicU32 {
            &self.reach
        }
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::model::Table;
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn live(table: &Table, owner: u64) {
        if let Some(index) = claim(table, owner) {
            table.contents(index).store(owner, Relaxed);
            assert_eq!(table.contents(index).load(Relaxed), owner);
            release(table, index, owner);
        }
    }

    /// Two threads claim one slot: at most one has it.
    #[test]
    fn a_slot_has_one_owner() {
        loom::model(|| {
            let table = Arc::new(Table::new(1));
            let other = table.clone();
            let thread = thread::spawn(move || live(&other, 7));
            live(&table, 8);
            thread.join().unwrap();
        });
    }

    /// A reader uses only what the thread that it looks for, or the wipe, wrote.
    #[test]
    fn a_reader_never_applies_one_owner_s_hint_to_another() {
        loom::model(|| {
            let table = Arc::new(Table::new(1));
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

    /// While a thread gives its slot back the table is swept, and another one claims the
    /// slot: that one's counts from then on.
    #[test]
    fn a_sweep_leaves_slots_that_are_being_given_back() {
        loom::model(|| {
            let table = Arc::new(Table::new(1));
            let index = claim(&*table, 7).unwrap();
            let (one, two) = (table.clone(), table.clone());
            let leaves = thread::spawn(move || release(&*one, index, 7));
            let sweeps = thread::spawn(move || {
                for (index, owner) in owned(&*two) {
                    let is_alive = [7, 8].contains(&owner);
                    assert!(is_alive || !release(&*two, index, owner));
                }
            });
            let claimed = claim(&*table, 8);
            leaves.join().unwrap();
            sweeps.join().unwrap();
            assert_eq!(find(&*table, 8), claimed);
        });
    }

    /// With one step for a search, the second owner of two slots with one home
    /// is found by its reach: a reader that sees the claim also sees the reach.
    #[test]
    fn a_slot_beyond_the_first_steps_is_found_once_it_is_claimed() {
        loom::model(|| {
            let table = Arc::new(Table::new(2));
            let other = (8..).find(|&owner| home(owner, 3) == home(7, 3)).unwrap();
            claim(&*table, 7).unwrap();
            let before = table.claims().load(Relaxed);
            let claimer = table.clone();
            let thread = thread::spawn(move || claim(&*claimer, other).unwrap());
            if table.claims().load(Acquire) != before {
                assert!(find(&*table, other).is_some());
            }
            thread.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::model::Table;
    use super::*;

    #[test]
    fn a_search_comes_to_every_slot_once_and_skips_the_header() {
        for nr_slots in [2, 3, 33, 1024] {
            for owner in [1, 77, u64::MAX] {
                let mut seen: Vec<u32> = steps(owner, nr_slots).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(1..nr_slots));
            }
        }
    }

    /// Names as processes get them: numbers in a row, with gaps, of one namespace.
    #[test]
    fn every_slot_can_be_claimed_and_is_found() {
        for gap in [1, 3, 4096] {
            let table = Table::new(1023);
            let owners: Vec<u64> = (0..1023)
                .map(|n| 0xeffffffc_u64 << 32 | (700 + n * gap))
                .collect();
            for (nth, &owner) in owners.iter().enumerate() {
                assert!(
                    claim(&table, owner).is_some(),
                    "no room after {nth} of 1023"
                );
            }
            assert!(owners.iter().all(|&owner| find(&table, owner).is_some()));
            assert_eq!(claim(&table, 1), None);
        }
    }

    #[test]
    fn release_leaves_a_slot_that_another_thread_has_taken() {
        let table = Table::new(1);
        let index = claim(&table, 7).unwrap();
        table.owner(index).store(8, Relaxed);
        release(&table, index, 7);
        assert_eq!(find(&table, 8), Some(index));
    }

    /// Whatever is in the header, a search ends and stays in the table.
    #[test]
    fn any_reach_is_harmless() {
        let table = Table::new(40);
        for reach in [0, 1, 39, 40, 41, 1 << 30, u32::MAX] {
            table.reach().store(reach, Relaxed);
            let index = claim(&table, 7).unwrap();
            assert_eq!(find(&table, 7), Some(index));
        }
    }
}
