//! Forks of a process whose threads contend: the child goes on with what its
//! thread holds or finds free, and the parent does not notice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex as StdMutex, MutexGuard as StdGuard};
use std::time::Duration;

use giveway_locks::{Mutex, raw};

/// Forks while `lock` is held by the calling thread and others wait for it.
/// The child runs `child` and must come to its end; a child that hangs is
/// killed by its alarm.
#[track_caller]
fn fork_while_others_wait(lock: &Mutex<u64>, child: impl FnOnce(&Mutex<u64>) -> bool) {
    // One fork at a time: the child of another test has none of its threads.
    static TURN: StdMutex<()> = StdMutex::new(());
    let _turn: StdGuard<'_, ()> = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let guard = lock.lock();
    // SAFETY: only looks at the raw lock.
    while !unsafe { lock.raw() }.as_ref().has_waiters() {
        std::thread::yield_now();
    }
    // SAFETY: the child calls functions that glibc keeps usable in the child of
    // a process with many threads, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    assert_ne!(pid, -1);
    if pid == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(30) };
        raw::after_fork_in_child();
        drop(guard);
        let good = child(lock);
        // SAFETY: as above.
        unsafe { libc::_exit(if good { 42 } else { 1 }) }
    }
    drop(guard);
    let mut status = 0;
    // SAFETY: the process is this one's child, and `status` a place for its end.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    let (exited, code) = (libc::WIFEXITED(status), libc::WEXITSTATUS(status));
    assert!(exited && code == 42, "the child ended with {status:#x}");
}

/// Sets the flag also if a test fails, so that threads which wait for it end.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `body` while three threads contend for the lock; all their turns count.
fn while_contended(lock: &Mutex<u64>, body: impl FnOnce()) {
    let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    *lock.lock() += 1;
                    turns.fetch_add(1, SeqCst);
                }
            });
        }
        let _stop = SetAtEnd(&stop);
        body();
        // They still get the lock.
        let before = turns.load(SeqCst);
        while turns.load(SeqCst) < before + 100 {
            std::thread::yield_now();
        }
    });
    assert_eq!(*lock.lock(), turns.load(SeqCst));
}

#[test]
fn the_child_goes_on_and_the_parent_does_not_notice() {
    let lock = Mutex::new(0);
    while_contended(&lock, || {
        for _ in 0..20 {
            let slot = raw::current_slot();
            fork_while_others_wait(&lock, |lock| {
                // Alone first, then against threads of its own.
                let before = *lock.lock();
                // So many that they use all slots which the parent's had.
                let together = Barrier::new(24);
                let contend = || {
                    together.wait();
                    (0..200).for_each(|_| *lock.lock() += 1);
                    let slot = raw::current_slot();
                    together.wait();
                    slot
                };
                let (own, others) = std::thread::scope(|scope| {
                    let others = [(); 23].map(|()| scope.spawn(contend));
                    (contend(), others.map(|other| other.join().unwrap()))
                });
                own == slot && !others.contains(&slot) && *lock.lock() == before + 24 * 200
            });
        }
    });
}

#[test]
fn a_child_of_the_child_goes_on_too() {
    let lock = Mutex::new(0);
    while_contended(&lock, || {
        fork_while_others_wait(&lock, |lock| {
            let guard = lock.lock();
            // SAFETY: as in `fork_while_others_wait`; this process has one thread.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: has no preconditions.
                unsafe { libc::alarm(20) };
                raw::after_fork_in_child();
                drop(guard);
                *lock.lock() += 1;
                // SAFETY: has no preconditions.
                unsafe { libc::_exit(42) }
            }
            drop(guard);
            let mut status = 0;
            // SAFETY: the process is this one's child.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 42
        });
    });
}

#[test]
fn locks_held_by_threads_of_the_parent_stay_locked() {
    let (lock, other) = (Mutex::new(0), Mutex::new(()));
    let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = other.lock();
            held.store(true, SeqCst);
            while !done.load(SeqCst) {
                std::thread::yield_now();
            }
        });
        let _done = SetAtEnd(&done);
        while !held.load(SeqCst) {
            std::thread::yield_now();
        }
        while_contended(&lock, || {
            fork_while_others_wait(&lock, |_| {
                let soon = Duration::from_millis(5);
                other.try_lock().is_none() && other.try_lock_for(soon).is_none()
            });
        });
    });
    assert!(other.try_lock().is_some());
}
