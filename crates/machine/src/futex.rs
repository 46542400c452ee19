//! Sleeping until a word changes, and waking the threads that sleep.
//!
//! Every wait may end without a reason; callers look at their word again. A
//! sleep never loses a wake-up as long as the waker changes the word first: the
//! kernel compares under its own lock before it sleeps.
//!
//! A thread often wakes others as its last step, when the sleeper may already have seen
//! the change, gone on, and freed the memory the word was in. So [`wait`] takes a
//! reference, because the kernel reads the word, and [`wake`] an address,
//! because the kernel does not: waking goes by the number alone (a private
//! futex is known by its address space and address). If something else lives
//! there by now and sleeps on it, that sleep ends without a reason, as any may.
//!
//! The system calls preserve `errno`, because they run inside functions of the
//! C library that do. They read and write it for that, so this futex is not for
//! `giveway-preempt`: there a thread sleeps whose thread-locals another thread uses.
//! That crate makes the system call without the C library.
//!
//! Under a model checker (`--cfg loom`, `--cfg shuttle`) the word is the checker's, the
//! kernel's promise is kept by its locks, and every deadline has passed when it is
//! looked at.

use std::time::{Duration, Instant};

#[cfg(not(any(loom, shuttle)))]
use crate::errno;

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(shuttle)]
use shuttle::sync::atomic::AtomicU32;
#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic::AtomicU32;

/// When waiting ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// A time of `CLOCK_MONOTONIC`, in nanoseconds.
    Monotonic(u64),
    /// A time of `CLOCK_REALTIME`, in nanoseconds; it moves when the system's
    /// date is changed.
    Realtime(u64),
}

impl Deadline {
    /// So far from now. `None` if that is beyond what the clock can count.
    pub fn after(timeout: Duration) -> Option<Deadline> {
        let timeout = u64::try_from(timeout.as_nanos()).ok()?;
        let end = clock_ns(libc::CLOCK_MONOTONIC).checked_add(timeout)?;
        // The kernel's time is signed.
        (end <= i64::MAX as u64).then_some(Deadline::Monotonic(end))
    }

    /// The deadline that an [`Instant`] means.
    pub fn at(instant: Instant) -> Option<Deadline> {
        Deadline::after(instant.saturating_duration_since(Instant::now()))
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        if cfg!(any(loom, shuttle)) {
            return true;
        }
        match self {
            Deadline::Monotonic(end) => clock_ns(libc::CLOCK_MONOTONIC) >= end,
            Deadline::Realtime(end) => clock_ns(libc::CLOCK_REALTIME) >= end,
        }
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid place for the result; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Woken, or the word was different, or for no reason.
    Woken,
    /// The deadline has passed.
    TimedOut,
}

/// Sleeps while `word` is `expected`, until woken or until the deadline.
#[cfg(not(any(loom, shuttle)))]
pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> WaitResult {
    let (clock, end) = match deadline {
        None => (0, None),
        Some(Deadline::Monotonic(ns)) => (0, Some(ns)),
        Some(Deadline::Realtime(ns)) => (libc::FUTEX_CLOCK_REALTIME, Some(ns)),
    };
    let end = end.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let end = end.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    errno::preserving(|errno| {
        // SAFETY: `word` is a valid aligned 32-bit word for the whole call, and
        // `end` is null or points to a timespec that outlives it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | clock,
                expected,
                end,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        // SAFETY: `errno` is this thread's, as `preserving` says.
        if result == -1 && unsafe { *errno } == libc::ETIMEDOUT {
            WaitResult::TimedOut
        } else {
            WaitResult::Woken
        }
    })
}

/// Wakes up to `count` sleepers of `word`, which need not exist any more;
/// returns how many.
#[cfg(not(any(loom, shuttle)))]
pub fn wake(word: *const AtomicU32, count: u32) -> usize {
    errno::preserving(|_| {
        // SAFETY: the address of a private futex is a name to the kernel, which
        // neither reads nor writes there.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.addr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                count.min(i32::MAX as u32),
            )
        };
        usize::try_from(woken).unwrap_or(0)
    })
}

#[cfg(any(loom, shuttle))]
pub use model::{wait, wake};

/// The kernel's promise in the words of a model checker: compare and sleep are
/// one step, a wake-up reaches who sleeps and nobody who comes later. A wake-up
/// that never comes leaves its sleeper asleep, which the checker reports as a
/// deadlock.
#[cfg(any(loom, shuttle))]
mod model {
    use super::{AtomicU32, Deadline, WaitResult};
    #[cfg(loom)]
    use loom::sync::{Condvar, Mutex};
    #[cfg(shuttle)]
    use shuttle::sync::{Condvar, Mutex};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    // A static that the checker starts afresh in every execution. It is no lock that
    // the model sees: it is never waited for.
    #[cfg(loom)]
    loom::lazy_static! {
        static ref BUCKETS: std::sync::Mutex<Vec<(usize, Arc<Bucket>)>> = std::sync::Mutex::new(Vec::new());
    }
    #[cfg(shuttle)]
    shuttle::lazy_static! {
        static ref BUCKETS: std::sync::Mutex<Vec<(usize, Arc<Bucket>)>> = std::sync::Mutex::new(Vec::new());
    }

    /// The sleepers of one word.
    struct Bucket {
        /// Wake-ups so far.
        wakes: Mutex<u64>,
        woken: Condvar,
    }

    fn bucket(word: *const AtomicU32) -> Arc<Bucket> {
        let name = word.addr();
        let mut buckets = BUCKETS.lock().expect("the model does not panic");
        if let Some((_, bucket)) = buckets.iter().find(|(other, _)| *other == name) {
            return bucket.clone();
        }
        let bucket = Arc::new(Bucket {
            wakes: Mutex::new(0),
            woken: Condvar::new(),
        });
        buckets.push((name, bucket.clone()));
        bucket
    }

    /// See the module above.
    pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<Deadline>) -> WaitResult {
        let bucket = bucket(word);
        let mut wakes = bucket.wakes.lock().expect("the model does not panic");
        if word.load(SeqCst) != expected {
            return WaitResult::Woken;
        }
        if deadline.is_some() {
            drop(wakes);
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(shuttle)]
            shuttle::thread::yield_now();
            return WaitResult::TimedOut;
        }
        let before = *wakes;
        while *wakes == before {
            wakes = bucket.woken.wait(wakes).expect("the model does not panic");
        }
        WaitResult::Woken
    }

    /// See the module above. Wakes all sleepers of the word, which a caller
    /// cannot tell from wake-ups without a reason.
    pub fn wake(word: *const AtomicU32, _count: u32) -> usize {
        let bucket = bucket(word);
        *bucket.wakes.lock().expect("the model does not panic") += 1;
        bucket.woken.notify_all();
        1
    }
}
