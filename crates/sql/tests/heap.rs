//! Freed memory is kept: the pages of a block are cleared once, not each time. A test of
//! its own process, whose allocator it changes.

#![cfg(target_env = "gnu")]

use std::hint::black_box;
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};

/// Too large to be kept by default, small enough for a thread's heap.
const BLOCK: usize = 40 << 20;
const PAGE: usize = 4096;
const ROUNDS: usize = 8;

/// Page faults of a thread that allocates, writes and frees a block so often.
fn faults() -> usize {
    let allocating = || {
        let before = getrusage(UsageWho::RUSAGE_THREAD)
            .unwrap()
            .minor_page_faults();
        for _ in 0..ROUNDS {
            let mut block = Vec::<u8>::with_capacity(BLOCK);
            let room = block.spare_capacity_mut();
            room.iter_mut().step_by(PAGE).for_each(|byte| {
                byte.write(1);
            });
            black_box(block);
        }
        let after = getrusage(UsageWho::RUSAGE_THREAD)
            .unwrap()
            .minor_page_faults();
        (after - before) as usize
    };
    thread::spawn(allocating).join().unwrap()
}

#[test]
fn a_block_s_pages_are_cleared_once() {
    let given_back = faults();
    // With huge pages there would be nothing to see.
    assert!(
        given_back >= ROUNDS * BLOCK / PAGE / 2,
        "{given_back} faults by default"
    );
    giveway_sql::keep_freed_memory();
    let kept = faults();
    assert!(
        kept < 2 * BLOCK / PAGE,
        "{kept} faults, {given_back} by default"
    );
}
