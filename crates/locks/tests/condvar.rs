//! The condition variable: notifications reach who waits, and end waits in no
//! other way than a lock_api user expects.
//!
//! A notification that is lost shows as a thread that waits for ever, so every
//! test has a limit, far beyond what a busy machine needs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use giveway_locks::{Condvar, Mutex, RawCondvar, RawMutex};

/// Runs `body`, which must come to its end.
#[track_caller]
fn ends(body: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = ended.send(());
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
        Err(RecvTimeoutError::Timeout) => panic!("somebody waits for ever"),
    }
}

/// Waits until `count` threads wait for the condition. They count themselves
/// with the lock held, and the condition variable releases it.
fn until_waiting(waiting: &Mutex<u32>, count: u32) {
    while *waiting.lock() < count {
        std::thread::yield_now();
    }
}

#[test]
fn two_threads_take_turns() {
    ends(|| {
        let (turn, changed) = (Mutex::new(0_u32), Condvar::new());
        std::thread::scope(|scope| {
            for own in 0..2 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let mut now = turn.lock();
                        while *now % 2 != own {
                            changed.wait(&mut now);
                        }
                        *now += 1;
                        changed.notify_one();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), 4000);
    });
}

#[test]
fn what_is_pushed_is_taken_once() {
    const EACH: u64 = 2000;
    ends(|| {
        let queue = Mutex::new(VecDeque::new());
        let (filled, emptied) = (Condvar::new(), Condvar::new());
        let mut taken = std::thread::scope(|scope| {
            for producer in 0..3 {
                let (queue, filled, emptied) = (&queue, &filled, &emptied);
                scope.spawn(move || {
                    for item in 0..EACH {
                        let mut items = queue.lock();
                        while items.len() == 2 {
                            emptied.wait(&mut items);
                        }
                        items.push_back(producer * EACH + item);
                        // After the lock is released, as programs often do it.
                        drop(items);
                        filled.notify_one();
                    }
                });
            }
            let consumers = [(); 3].map(|()| {
                scope.spawn(|| {
                    let take = |_| {
                        let mut items = queue.lock();
                        while items.is_empty() {
                            filled.wait(&mut items);
                        }
                        emptied.notify_one();
                        items.pop_front().expect("it is not empty")
                    };
                    (0..EACH).map(take).collect::<Vec<_>>()
                })
            });
            consumers.map(|consumer| consumer.join().unwrap()).concat()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..3 * EACH));
    });
}

/// How many of five waiters one notification wakes, before all others are woken.
fn woken_by_one() -> u32 {
    let (waiting, go) = (Mutex::new(0), Condvar::new());
    let woken = AtomicU32::new(0);
    let first = std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let mut waiting = waiting.lock();
                *waiting += 1;
                go.wait(&mut waiting);
                woken.fetch_add(1, SeqCst);
            });
        }
        until_waiting(&waiting, 5);
        go.notify_one();
        while woken.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        let first = woken.load(SeqCst);
        go.notify_all();
        first
    });
    assert_eq!(woken.load(SeqCst), 5);
    first
}

#[test]
fn one_notification_wakes_one_and_one_for_all_the_others() {
    ends(|| {
        // It also keeps those awake that are still on their way into their sleep, on a
        // busy machine all of them now and then.
        let fewest = (0..20).map(|_| woken_by_one()).min();
        assert!(fewest < Some(5), "one notification wakes all");
    });
}

/// Waits may end without a reason, and then `lock_api` wants no counts.
#[test]
fn notifications_tell_nothing() {
    ends(|| {
        let (lock, go) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut waiting = lock.lock();
                *waiting += 1;
                go.wait(&mut waiting);
            });
            until_waiting(&lock, 1);
            while !waiter.is_finished() {
                assert!(!go.notify_one());
                assert_eq!(go.notify_all(), 0);
            }
        });
    });
}

/// A lock that panics when it is acquired for the second time.
struct PanicsWhenLockedAgain(RawMutex, AtomicU32);

// SAFETY: it is the mutex inside.
unsafe impl lock_api::RawMutex for PanicsWhenLockedAgain {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = PanicsWhenLockedAgain(RawMutex::new(), AtomicU32::new(0));

    type Guard = <RawMutex as lock_api::RawMutex>::Guard;

    fn lock(&self) -> Self::Guard {
        assert_eq!(self.1.fetch_add(1, SeqCst), 0, "locked again");
        self.0.lock()
    }

    fn try_lock(&self) -> Option<Self::Guard> {
        self.0.try_lock()
    }

    unsafe fn unlock(&self, guard: Self::Guard) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.unlock(guard) };
        lock_api::RawCondvar::notify_one(&PANICS);
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

static PANICS: RawCondvar<PanicsWhenLockedAgain> = RawCondvar::new();

/// Nobody gets back a guard of a lock that could not be acquired again.
#[test]
fn a_lock_that_panics_in_a_wait_ends_the_process() {
    use lock_api::{RawCondvar as _, RawMutex as _};

    // SAFETY: the child, of a process with several threads, prints a panic's message at
    // most, and ends by a signal or at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let caught = std::panic::catch_unwind(|| {
            let lock = PanicsWhenLockedAgain::INIT;
            let mut guard = lock.lock();
            // SAFETY: the lock is held by this guard.
            unsafe { PANICS.wait(&lock, &mut guard) };
        });
        // SAFETY: has no preconditions.
        unsafe { libc::_exit(i32::from(caught.is_ok())) }
    }
    let mut status = 0;
    // SAFETY: `pid` is this process's child, and `status` a place for its end.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
}

#[test]
fn a_wait_with_a_limit_ends_by_it_or_by_a_notification_and_has_the_lock_again() {
    ends(|| {
        let (lock, go) = (Mutex::new(()), Condvar::new());
        let mut guard = lock.lock();
        let timed_out = |result: lock_api::WaitTimeoutResult| result.timed_out();
        assert!(timed_out(go.wait_for(&mut guard, Duration::from_millis(5))));
        let free_for_others = || {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| lock.try_lock().is_some());
                other.join().unwrap()
            })
        };
        assert!(!free_for_others());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Had only once the wait has begun.
                drop(lock.lock());
                go.notify_one();
            });
            let long = Duration::from_secs(3600);
            assert!(!timed_out(go.wait_for(&mut guard, long)));
        });
        assert!(!free_for_others());
        drop(guard);
        assert!(free_for_others());
    });
}

/// A mutex whose release is followed by a notification at once, before its
/// thread can do anything else.
struct NotifiesWhenReleased(RawMutex);

static RELEASED: RawCondvar<NotifiesWhenReleased> = RawCondvar::new();

// SAFETY: it is the mutex inside.
unsafe impl lock_api::RawMutex for NotifiesWhenReleased {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = NotifiesWhenReleased(RawMutex::new());

    type Guard = <RawMutex as lock_api::RawMutex>::Guard;

    fn lock(&self) -> Self::Guard {
        self.0.lock()
    }

    fn try_lock(&self) -> Option<Self::Guard> {
        self.0.try_lock()
    }

    unsafe fn unlock(&self, guard: Self::Guard) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.0.unlock(guard) };
        lock_api::RawCondvar::notify_one(&RELEASED);
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

#[test]
fn a_notification_between_the_release_and_the_sleep_is_not_lost() {
    use lock_api::{RawCondvar as _, RawMutex as _};

    ends(|| {
        let lock = NotifiesWhenReleased::INIT;
        let mut guard = lock.lock();
        // SAFETY: the lock is held by this guard.
        unsafe { RELEASED.wait(&lock, &mut guard) };
        // SAFETY: as above.
        unsafe { lock.unlock(guard) };
    });
}
