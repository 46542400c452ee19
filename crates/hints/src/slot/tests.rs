//! A plain file of the layout stands for the table: what lands where, and what
//! a next owner finds.

use std::fs::File;
use std::io::Write as _;

use super::*;

/// A plain file with the layout of a table of `nr_slots` pages.
fn file(nr_slots: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut pages = vec![0; nr_slots as usize * SLOT_SIZE];
    pages[..8].copy_from_slice(b"giveway\0");
    pages[8..12].copy_from_slice(&1u32.to_ne_bytes());
    pages[12..16].copy_from_slice(&nr_slots.to_ne_bytes());
    let mut file = File::create(dir.path().join(NAME)).unwrap();
    file.write_all(&pages).unwrap();
    dir
}

#[test]
fn what_slots_say_is_listed_while_it_counts() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    assert_eq!(table.said().count(), 0);
    let slot = table.attach().unwrap();
    let said: Vec<Said> = table.said().collect();
    assert_eq!((said[0].tier, said[0].weight), (None, Weight::DEFAULT));
    // SAFETY: gettid has no precondition.
    assert_eq!(said[0].tid, unsafe { libc::gettid() } as u32);
    slot.set_tier(Tier::TimeSensitive);
    slot.set_weight(Weight::MAX);
    let said: Vec<Said> = table.said().collect();
    assert_eq!(said.len(), 1);
    assert_eq!(
        (said[0].tier, said[0].weight),
        (Some(Tier::TimeSensitive), Weight::MAX)
    );
    // Garbage says nothing.
    slot.page().tier.store(77, Relaxed);
    slot.page().weight.store(60_000, Relaxed);
    let said: Vec<Said> = table.said().collect();
    assert_eq!((said[0].tier, said[0].weight), (None, Weight::DEFAULT));
    slot.page().version.store(0, Relaxed);
    assert_eq!(table.said().count(), 0);
}

#[test]
fn stores_land_where_the_header_says() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    slot.set_tier(Tier::Background);
    slot.set_weight(Weight::MAX);
    slot.set_domain(5);
    for lock in [10, 11, 12] {
        slot.hold(lock);
    }
    slot.release(10);
    slot.wait(99);
    let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
    let at = slot.index as usize * SLOT_SIZE;
    assert_eq!(bytes[at + 12], 1);
    assert_eq!(bytes[at + 14..at + 16], 10_000u16.to_ne_bytes());
    assert_eq!(bytes[at + 16], 5);
    assert_eq!(bytes[at + 68], 2, "locks held");
    assert_eq!(bytes[at + 72], 99);
    assert_eq!((bytes[at + 96], bytes[at + 112]), (12, 11));
    drop(slot);
    let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
    assert_eq!(
        bytes[at..at + 12],
        [0; 12],
        "owner and version after release"
    );
    assert_eq!(bytes[16], 2, "claims");
}

#[test]
fn a_new_owner_gets_a_zeroed_slot_and_a_full_table_gives_none() {
    let dir = file(2);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    slot.set_tier(Tier::Background);
    slot.hold(1);
    std::thread::spawn(move || assert!(table.attach().is_none()))
        .join()
        .unwrap();
    drop(slot);
    let slot = table.attach().unwrap();
    assert_eq!(slot.page().tier.load(Relaxed), 0);
    assert_eq!(slot.page().locks.nheld.load(Relaxed), 0);
}

#[test]
fn a_remote_writes_the_slot_until_its_owner_releases_it() {
    let dir = file(2);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    let said = |slot: &Slot| {
        (
            slot.page().tier.load(Relaxed),
            slot.page().weight.load(Relaxed),
        )
    };
    let remote = slot.remote();
    let other = remote.clone();
    let set = std::thread::spawn(move || other.set(Tier::Background, Weight::MAX));
    assert!(set.join().unwrap());
    assert_eq!(said(&slot), (1, 10_000));
    assert!(slot.remote().reset());
    assert_eq!(said(&slot), (0, 0));
    drop(slot);
    // The slot belongs to another thread now, for which the handle is not valid.
    let slot = table.attach().unwrap();
    assert!(!remote.set(Tier::Background, Weight::MAX));
    assert!(!remote.reset());
    assert_eq!(said(&slot), (0, 0));
}

#[test]
fn a_thread_has_one_slot_of_a_table_at_a_time() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    slot.set_tier(Tier::Background);
    // Mapped anew it is the same table.
    for again in [table, Table::open(Some(dir.path())).unwrap()] {
        assert!(again.attach().is_none());
    }
    let other = file(4);
    let other = Table::open(Some(other.path())).unwrap();
    assert!(other.attach().is_some());
    assert_eq!(slot.page().tier.load(Relaxed), 1);
    drop(slot);
    assert!(table.attach().is_some());
}

#[test]
fn a_child_of_fork_leaves_its_parent_s_slot() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    // SAFETY: the child drops the slot, which allocates nothing and takes no lock of
    // another thread, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(slot);
        // SAFETY: has no preconditions.
        unsafe { libc::_exit(0) }
    }
    let mut status = 0;
    // SAFETY: `pid` is this process's child, and `status` a place for its end.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(table.usage(), (1, 3));
    assert!(table.has_owner(slot.index));
}

#[test]
fn only_slots_of_dead_threads_are_reclaimed() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    let slot = table.attach().unwrap();
    // A thread that ends without giving its slot back, as by kill -9.
    let dead = std::thread::spawn(move || {
        std::mem::forget(table.attach().unwrap());
        // SAFETY: gettid has no precondition.
        unsafe { libc::gettid() }
    });
    let dead = dead.join().unwrap() as u32;
    assert_eq!(table.usage(), (2, 3));
    assert_eq!(table.reclaim(|tid, _| tid != dead), 1);
    assert_eq!(table.usage(), (1, 3));
    assert_eq!(table.reclaim(|tid, _| tid != dead), 0);
    assert_ne!(slot.page().owner.load(Relaxed), 0);
}

#[test]
fn a_thread_that_begins_after_the_living_were_listed_keeps_its_slot() {
    let dir = file(4);
    let table = Table::open(Some(dir.path())).unwrap();
    let at = |index| (1..).find(|&owner| claim::home(owner, 4) == index).unwrap();
    let claim = |index| claim::claim(&table.mapping, at(index)).unwrap();
    claim(1);
    let mut living: Option<Vec<u32>> = None;
    let swept = table.reclaim(|tid, _| {
        let living = living.get_or_insert_with(|| {
            claim(3);
            Vec::new()
        });
        living.contains(&tid)
    });
    assert_eq!((swept, table.usage().0), (1, 1));
}

#[test]
fn locks_beyond_the_limit_are_not_recorded_and_release_has_no_effect() {
    let dir = file(2);
    let slot = Table::open(Some(dir.path())).unwrap().attach().unwrap();
    for lock in 1..=HELD_MAX as u64 + 5 {
        slot.hold(lock);
    }
    slot.release(HELD_MAX as u64 + 3);
    assert_eq!(slot.page().locks.nheld.load(Relaxed) as usize, HELD_MAX);
    slot.release(1);
    assert_eq!(slot.page().locks.nheld.load(Relaxed) as usize, HELD_MAX - 1);
}

#[test]
fn invalid_tables_are_refused_with_the_reason() {
    let dir = file(4);
    let open = || Table::open(Some(dir.path())).unwrap_err();
    let path = dir.path().join(NAME);
    let shortened = File::options().write(true).open(&path).unwrap();
    shortened.set_len(3 * SLOT_SIZE as u64).unwrap();
    assert!(matches!(open(), OpenError::Foreign { .. }));
    std::fs::remove_file(&path).unwrap();
    let message = open().to_string();
    assert!(matches!(open(), OpenError::Absent { .. }) && message.contains("giveway start"));
}
