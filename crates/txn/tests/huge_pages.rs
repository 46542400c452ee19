//! The heap lies in huge pages whatever the program's allocator does: one that writes to
//! what it gives would make small pages of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;

use giveway_txn::{Database, Options};

#[path = "memory/rows.rs"]
mod rows;
#[path = "memory/table.rs"]
mod table;

use table::table;

/// Writes a byte to what it gives, as allocators do that keep lists in free memory.
struct Writes;

// SAFETY: it is the system's allocator, and a byte of what was allocated is written.
unsafe impl GlobalAlloc for Writes {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: layouts are not empty.
            unsafe { memory.write_volatile(0) };
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Writes = Writes;

/// Bytes of this process in huge pages.
fn huge() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
fn rows_are_in_huge_pages() {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if enabled.is_ok_and(|enabled| enabled.contains("[never]")) {
        println!("SKIPPED: this system has no huge pages");
        return;
    }
    let db = Database::in_memory(Options::default());
    let table = table(&db);
    rows::insert(&db, &table, 0..40_000, 1000);
    // A busy system has not so many of them: then some pages are small.
    let held = db.stats().held_bytes;
    assert!(huge() > held / 4, "{} of {held} bytes", huge());
}
