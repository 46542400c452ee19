//! The condition variable: notifications reach who waits, and end waits in no
//! other way than a lock_api user expects.
//!
//! A notification that is lost shows as a thread that waits for ever, so every
//! test has a limit, far beyond what a busy machine needs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use giveway_locks::raw::HoldStart;
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

#[test]
fn one_notification_wakes_one_and_one_for_all_the_others() {
    ends(|| {
        let (waiting, go) = (Mutex::new(0), Condvar::new());
        let woken = AtomicU32::new(0);
        assert!(!go.notify_one(), "nobody waits");
        assert_eq!(go.notify_all(), 0);
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    let mut waiting = waiting.lock();
                    *waiting += 1;
                    go.wait(&mut waiting);
                    woken.fetch_add(1, SeqCst);
                });
            }
            until_waiting(&waiting, 5);
            // Who has released the lock may still be on its way into its sleep.
            while !go.notify_one() {
                std::thread::yield_now();
            }
            while woken.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            let first = woken.load(SeqCst);
            go.notify_all();
            // A notification that met nobody asleep kept some from sleeping.
            assert!((1..5).contains(&first), "{first} woken by one");
        });
        assert_eq!(woken.load(SeqCst), 5);
    });
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

    type Guard = HoldStart;

    fn lock(&self) -> HoldStart {
        self.0.lock()
    }

    fn try_lock(&self) -> Option<HoldStart> {
        self.0.try_lock()
    }

    unsafe fn unlock(&self, guard: HoldStart) {
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
