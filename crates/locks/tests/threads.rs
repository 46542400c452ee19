//! Threads that end: their slots are used again, and no queue keeps a place for
//! one that has gone.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard, OnceLock};
use std::time::Duration;

use giveway_locks::{Mutex, Options, RawMutex, raw};

/// Slots are the process's, so the tests that count them take turns.
fn turn() -> StdGuard<'static, ()> {
    static TURN: StdMutex<()> = StdMutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Slots used at a time here, with those of threads that are just ending.
const SLOTS_AT_A_TIME: u16 = 64;

/// The slot of a new thread. If slots had been lost, it were a high one: those
/// given back last are used first, and new ones in order.
fn next_slot() -> u16 {
    let slot = std::thread::spawn(raw::current_slot).join().unwrap();
    slot.expect("there are thousands")
}

/// A lock whose every acquisition takes the slow way, and thus a slot.
fn slow_lock() -> Mutex<u32> {
    let profile = Options::default().statistics(true).register("slow");
    Mutex::from_raw(RawMutex::with_profile(profile.unwrap()), 0)
}

#[test]
fn more_threads_than_there_are_slots_can_come_one_after_the_other() {
    let _turn = turn();
    let before = next_slot();
    for _ in 0..20_000 {
        assert!(next_slot() < before + SLOTS_AT_A_TIME);
    }
}

#[test]
fn a_thread_that_timed_out_and_ended_blocks_no_other() {
    let _turn = turn();
    let (lock, before) = (Mutex::new(0_u32), next_slot());
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let guard = lock.lock();
            let give_up = || {
                let soon = Duration::from_micros(100);
                assert!(lock.try_lock_for(soon).is_none());
            };
            // The first is the head of the queue, the others leave their nodes
            // behind for somebody to find.
            let quitters = [(); 3].map(|()| scope.spawn(give_up));
            for quitter in quitters {
                quitter.join().unwrap();
            }
            // These have their slots, behind the abandoned nodes.
            for _ in 0..3 {
                scope.spawn(|| *lock.lock() += 1);
            }
            // SAFETY: only looks at the raw lock.
            while !unsafe { lock.raw() }.as_ref().has_waiters() {
                std::thread::yield_now();
            }
            drop(guard);
        });
    }
    assert_eq!(lock.into_inner(), 600);
    assert!(next_slot() < before + SLOTS_AT_A_TIME);
}

static LATE: OnceLock<Mutex<u32>> = OnceLock::new();
/// Held by the test as long as threads end.
static BUSY: Mutex<()> = Mutex::new(());
static LATE_LOCKS: AtomicU32 = AtomicU32::new(0);

/// Locks when the thread's slot has been given back: keys are destroyed in the
/// order in which they were made, and this one was made after the locks'. With
/// a value above 1 it asks to be called again.
unsafe extern "C" fn lock_late(value: *mut c_void) {
    *LATE.get().unwrap().lock() += 1;
    // Waiting in vain takes a slot, too.
    assert!(BUSY.try_lock_for(Duration::ZERO).is_none());
    LATE_LOCKS.fetch_add(1, SeqCst);
    if value.addr() > 1 {
        late_key(value.addr() - 1);
    }
}

/// Has the thread lock so many times after its end.
fn late_key(times: usize) {
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        // The locks' key is made with the first slot.
        assert!(raw::current_slot().is_some());
        let mut key = 0;
        // SAFETY: a place for the key, and a destructor that takes any value.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(lock_late)) };
        assert_eq!(made, 0);
        key
    });
    // SAFETY: the key was made above and is never deleted.
    unsafe { libc::pthread_setspecific(*key, ptr::without_provenance(times)) };
}

/// Locks while the thread's local variables are dropped.
struct LocksWhenDropped;

impl Drop for LocksWhenDropped {
    fn drop(&mut self) {
        *LATE.get().unwrap().lock() += 1;
        LATE_LOCKS.fetch_add(1, SeqCst);
    }
}

std::thread_local! {
    static LOCAL: LocksWhenDropped = const { LocksWhenDropped };
}

#[test]
fn locks_taken_by_destructors_keep_no_slot() {
    let _turn = turn();
    let (lock, _busy) = (LATE.get_or_init(slow_lock), BUSY.lock());
    let before = next_slot();
    for _ in 0..500 {
        let threads = [(); 4].map(|()| {
            std::thread::spawn(|| {
                LOCAL.with(|_| ());
                late_key(3);
                for _ in 0..5 {
                    *lock.lock() += 1;
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }
    let (late, all) = (2000 * 4, 2000 * (5 + 4));
    assert_eq!((LATE_LOCKS.load(SeqCst), *lock.lock()), (late, all));
    let after = next_slot();
    assert!(after < before + SLOTS_AT_A_TIME, "{after}, before {before}");
}

/// The start of a thread that is cancelled before it queues.
extern "C" fn lock_once(lock: *mut c_void) -> *mut c_void {
    // SAFETY: the caller joins this thread before the lock goes.
    let (lock, cancelled) = unsafe { &*lock.cast::<(Mutex<u32>, AtomicBool)>() };
    while !cancelled.load(SeqCst) {
        std::hint::spin_loop();
    }
    *lock.lock() += 1;
    ptr::without_provenance_mut(42)
}

/// A thread cannot end in the queue: waiting is no cancellation point.
#[test]
fn a_cancelled_thread_waits_on_until_it_has_had_the_lock() {
    let shared = (Mutex::new(0_u32), AtomicBool::new(false));
    let guard = shared.0.lock();
    let mut thread = 0;
    // SAFETY: the thread is joined before `shared` goes, and gets it as what it
    // takes it for.
    let made = unsafe {
        let argument = ptr::from_ref(&shared).cast_mut().cast();
        libc::pthread_create(&mut thread, ptr::null(), lock_once, argument)
    };
    assert_eq!(made, 0);
    // SAFETY: the thread was made and not joined.
    assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
    shared.1.store(true, SeqCst);
    // SAFETY: only looks at the raw lock.
    while !unsafe { shared.0.raw() }.as_ref().has_waiters() {
        std::thread::yield_now();
    }
    // Long enough to fall asleep.
    std::thread::sleep(Duration::from_millis(20));
    drop(guard);
    let mut said = ptr::null_mut();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut said) }, 0);
    assert_eq!(said.addr(), 42);
    assert_eq!(*shared.0.lock(), 1);
}
