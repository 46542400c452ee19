//! A worker that waits for a lock that its own paused task holds: it is seen, named
//! and said. Times are generous; only a failed test waits them out.

mod crew;

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use giveway_preempt::{Level, Policy, Pool, Stall};

use crew::{Flag, HIGH, LONG, one};

/// A lock that sleeps, and whose owner need not be the one who gives it up, so that
/// a test can end what it has begun.
#[derive(Default)]
struct Lock(AtomicU32);

impl Lock {
    fn lock(&self) {
        while self.0.swap(1, SeqCst) == 1 {
            self.futex(libc::FUTEX_WAIT);
        }
    }

    fn unlock(&self) {
        self.0.store(0, SeqCst);
        self.futex(libc::FUTEX_WAKE);
    }

    fn futex(&self, operation: libc::c_int) {
        let word = self.0.as_ptr();
        // SAFETY: the word lives; without a timeout, the rest is not looked at.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, 1, std::ptr::null::<()>()) };
    }
}

fn stall(pool: &Pool) -> Option<Stall> {
    pool.stats().workers[0].stall.clone()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_worker_that_waits_for_its_own_paused_task_names_the_lock_and_its_owner() {
    for policy in ["signal", "hybrid"] {
        let pool = one(policy.parse::<Policy>().unwrap()).build().unwrap();
        let (lock, held, go) = (Arc::new(Lock::default()), Flag::default(), Flag::default());
        let low = {
            let (lock, held, go) = (Arc::clone(&lock), held.clone(), go.clone());
            let task = move || {
                lock.lock();
                held.raise();
                go.wait()
            };
            pool.submit(Level::BASE, task).unwrap()
        };
        assert!(held.wait());
        let high = {
            let lock = Arc::clone(&lock);
            pool.submit(HIGH, move || lock.lock()).unwrap()
        };
        wait_until("it is seen", || stall(&pool).is_some());
        let seen = stall(&pool).unwrap();
        assert_eq!(
            (seen.level, seen.lock),
            (HIGH, lock.0.as_ptr().addr() as u64)
        );
        assert!(seen.task.contains("pool_watch"), "{seen:?}");
        assert_eq!(seen.holders.len(), 1);
        let owner = &seen.holders[0];
        assert_eq!(owner.level, Level::BASE);
        assert!(owner.task.contains("pool_watch") && owner.stopped_at.is_some());
        let json = serde_json::to_value(pool.stats()).unwrap();
        assert_eq!(json["workers"][0]["stalls"], 1);
        // It goes on, and then nothing is said of it any more.
        lock.unlock();
        go.raise();
        high.wait().unwrap();
        assert!(low.wait().unwrap());
        wait_until("it is over", || stall(&pool).is_none());
        assert_eq!(pool.stats().workers[0].stalls, 1);
    }
}

#[test]
fn a_worker_that_computes_or_waits_with_nothing_paused_does_not_stand_still() {
    let pool = one("signal".parse::<Policy>().unwrap()).build().unwrap();
    // Waits, with nothing below it that has begun.
    let lock = Arc::new(Lock::default());
    lock.lock();
    let waits = {
        let lock = Arc::clone(&lock);
        pool.submit(HIGH, move || lock.lock()).unwrap()
    };
    sleep(Duration::from_millis(1100));
    assert_eq!(pool.stats().workers[0].stalls, 0);
    lock.unlock();
    waits.wait().unwrap();
    // Computes, on top of a task that is paused.
    let (began, go) = (Flag::default(), Flag::default());
    let low = {
        let (began, go) = (began.clone(), go.clone());
        let task = move || {
            began.raise();
            go.wait()
        };
        pool.submit(Level::BASE, task).unwrap()
    };
    assert!(began.wait());
    let high = {
        let go = go.clone();
        pool.submit(HIGH, move || go.wait()).unwrap()
    };
    sleep(Duration::from_millis(1100));
    assert_eq!(pool.stats().workers[0].stalls, 0);
    go.raise();
    assert!(high.wait().unwrap() && low.wait().unwrap());
}

/// What the child process of the test below does: both tasks want the lock of
/// standard output and of standard error.
#[test]
fn child() {
    if std::env::var_os("GIVEWAY_WATCH_CHILD").is_none() {
        return;
    }
    std::thread::spawn(|| {
        sleep(LONG);
        // SAFETY: it ends the process without taking a lock.
        unsafe { libc::_exit(1) }
    });
    let pool = one("signal".parse::<Policy>().unwrap()).build().unwrap();
    let held = Flag::default();
    let low = {
        let held = held.clone();
        let task = move || {
            let _locks = (std::io::stdout().lock(), std::io::stderr().lock());
            held.raise();
            Flag::default().wait()
        };
        pool.submit(Level::BASE, task).unwrap()
    };
    assert!(held.wait());
    let high = pool.submit(HIGH, || write!(std::io::stderr(), "never"));
    drop(high.unwrap().wait());
    drop(low);
}

#[test]
fn a_self_deadlock_is_reported_even_while_standard_error_is_locked() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("GIVEWAY_WATCH_CHILD", "1")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("stood still")));
    child.kill().unwrap();
    child.wait().unwrap();
    let line = line.expect("the child says it");
    for part in [
        "worker 0 has stood still",
        "level 1 (pool_watch::child",
        "may be held by level 0 (pool_watch::child",
        "of the program",
        "rules 1, 3",
    ] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
}
