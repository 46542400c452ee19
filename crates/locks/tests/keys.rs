//! A process that needs all its `pthread_key`s: the locks' own is given back,
//! and the slots of threads that end from then on are found all the same.
//!
//! A program of its own, because that cannot be undone.

use std::ptr;
use std::thread;

use giveway_locks::{Mutex, Options, RawMutex, raw};

/// All the keys that the process can still get.
fn take_all() -> Vec<libc::pthread_key_t> {
    let mut keys = Vec::new();
    loop {
        let mut key = 0;
        // SAFETY: a place for the key; without a destructor.
        match unsafe { libc::pthread_key_create(&mut key, None) } {
            0 => keys.push(key),
            refused => {
                assert_eq!(refused, libc::EAGAIN);
                return keys;
            }
        }
    }
}

/// The highest slot that threads have which come after one another, eight at a
/// time, and use this lock.
fn highest_slot(lock: &Mutex<u32>, threads: u32) -> u16 {
    let rounds = (0..threads / 8).map(|_| {
        thread::scope(|scope| {
            let work = || {
                *lock.lock() += 1;
                raw::current_slot().expect("there are thousands")
            };
            let running = [(); 8].map(|()| scope.spawn(work));
            running
                .map(|thread| thread.join().unwrap())
                .into_iter()
                .max()
        })
    });
    rounds.max().flatten().unwrap()
}

#[test]
fn a_program_can_have_all_keys_and_loses_no_slots_by_it() {
    // A lock whose every acquisition takes the slow way, and thus a slot.
    let profile = Options::default().statistics(true).register("slow");
    let lock = Mutex::from_raw(RawMutex::with_profile(profile.unwrap()), 0);
    assert!(highest_slot(&lock, 800) < 64);
    let keys = take_all();
    assert!(raw::give_back_key(), "the locks have a key");
    assert!(!raw::give_back_key(), "and only one");
    let last = take_all();
    assert_eq!(last.len(), 1);
    // The key is the program's: no lock writes to it any more.
    assert!(highest_slot(&lock, 8_000) < 300, "slots were lost");
    assert_eq!(*lock.lock(), 8_800);
    for key in keys.into_iter().chain(last) {
        // SAFETY: the key exists.
        assert_eq!(unsafe { libc::pthread_getspecific(key) }, ptr::null_mut());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::pthread_key_delete(key) }, 0);
    }
}
