//! What UFS reads about a pool's workers. A plain file of the table's layout stands
//! for the table.

mod crew;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use giveway_hints::slot::{NAME, SLOT_SIZE, Table};
use giveway_preempt::{HintSlot, Policy, Pool, Request};
use giveway_tier::{Tier, Weight};

use crew::{Flag, HIGH, occupy, one};

/// A table with this many pages, the header included.
fn table(pages: u32) -> (tempfile::TempDir, Table) {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = vec![0; pages as usize * SLOT_SIZE];
    bytes[..8].copy_from_slice(b"giveway\0");
    bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
    bytes[12..16].copy_from_slice(&pages.to_ne_bytes());
    let mut file = File::create(dir.path().join(NAME)).unwrap();
    file.write_all(&bytes).unwrap();
    let table = Table::open(Some(dir.path())).unwrap();
    (dir, table)
}

/// The thread that has the only slot of a table of two pages, its tier and weight
/// as UFS reads them: 0 is the cgroup's tier and 1 the background.
fn said(dir: &Path) -> (u32, u8, u16) {
    let bytes = std::fs::read(dir.join(NAME)).unwrap();
    let slot = &bytes[SLOT_SIZE..];
    let thread = u32::from_ne_bytes(slot[..4].try_into().unwrap());
    (thread, slot[12], u16::from_ne_bytes([slot[14], slot[15]]))
}

fn hinted(table: Option<Table>) -> Pool {
    let lower = move |_| Box::new(HintSlot::attach(table.as_ref())) as _;
    let builder = one(Policy::Wait).lowering(Duration::ZERO, lower);
    builder.build().unwrap()
}

#[test]
fn a_worker_is_in_the_background_tier_until_urgent_work_comes() {
    let (dir, table) = table(2);
    let pool = hinted(Some(table));
    let worker = pool.submit(HIGH, thread_number).unwrap().wait().unwrap();
    assert_eq!(said(dir.path()), (worker, 0, 0));
    let light = Request::from(Tier::Background).weight(Weight::try_from(7).unwrap());
    let (started, go) = (Flag::default(), Flag::default());
    let (starts, waits) = (started.clone(), go.clone());
    let task = move || {
        starts.raise();
        assert!(waits.wait());
    };
    drop(pool.submit(light, task).unwrap());
    assert!(started.wait());
    assert_eq!(said(dir.path()), (worker, 1, 7));
    // The worker is busy and is not interrupted: this thread speaks for it.
    let urgent = pool.submit(HIGH, || ()).unwrap();
    assert_eq!(said(dir.path()), (worker, 0, 0));
    go.raise();
    urgent.wait().unwrap();
}

#[test]
fn a_slot_goes_with_its_worker() {
    let (dir, table) = table(2);
    let pool = hinted(Some(table));
    let go = occupy(&pool);
    assert_eq!(said(dir.path()).1, 1);
    go.raise();
    drop(pool);
    assert_eq!(said(dir.path()).0, 0, "nobody's");
    assert!(HintSlot::attach(Some(&table)).is_attached());
}

#[test]
fn a_thread_that_attaches_again_keeps_its_slot() {
    let (dir, table) = table(2);
    let first = HintSlot::attach(Some(&table));
    let again = HintSlot::attach(Some(&table));
    assert!(first.is_attached() && again.is_attached());
    assert_eq!(said(dir.path()).0, thread_number());
    assert!(!HintSlot::attach(None).is_attached());
    assert_eq!(said(dir.path()).0, 0, "nobody's");
}

#[test]
fn a_pool_without_a_hint_table_still_works() {
    let pool = hinted(None);
    let go = occupy(&pool);
    go.raise();
    pool.submit(HIGH, || ()).unwrap().wait().unwrap();
}

#[test]
fn a_worker_without_a_hint_slot_still_works() {
    let (dir, table) = table(2);
    let _mine = HintSlot::attach(Some(&table));
    let pool = hinted(Some(table));
    let go = occupy(&pool);
    assert_eq!(said(dir.path()), (thread_number(), 0, 0));
    go.raise();
}

/// The calling thread, as the kernel counts threads.
fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
