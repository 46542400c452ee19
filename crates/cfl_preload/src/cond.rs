//! Condition variables, in place in the bytes of `pthread_cond_t`.
//!
//! Problem: glibc's condition variables unlock and lock the mutex by calls
//! inside glibc, which would take our mutexes for its own. So waiting, waking
//! and destroying are all done here.
//!
//! ```text
//! byte  0  lock      generation << 2 | free, held or contended
//!       8  first     the waiter that has waited longest, or null
//!      16  last
//!      24  tickets   waiters that ever came
//!      32  pins      signalled waiters that have not seen it yet
//!      36  flags     glibc's place and bits: 1 shared between processes, 2 CLOCK_MONOTONIC
//! ```
//!
//! All zero is an empty condition variable, so static initialisers work. One
//! whose flags say that it is shared between processes belongs to glibc
//! (`shared.rs`); glibc keeps that bit at the same place.
//!
//! A waiter queues a `Waiter` of its own stack, unlocks the mutex, and sleeps
//! until the waiter's `state` says that it was signalled. Waking is in the
//! order of coming: a condition says that *a* waiter may go on, and who then
//! gets the mutex is for the mutex to decide, by weight.
//!
//! ```text
//! WAITING --signal---------> SIGNALLED   out of the queue; holds a pin
//!    |------broadcast------> RELEASED    out of the queue
//!    '------timeout, cancel-> LEAVING    still queued; takes itself out
//! ```
//!
//! Invariants:
//!
//! 1. The queue is read and changed only with `lock` held.
//! 2. A waiter in the queue is WAITING or LEAVING, and its frame is alive: it
//!    returns only after it was made SIGNALLED or RELEASED, or took itself out.
//! 3. Who makes a waiter SIGNALLED or RELEASED does not touch it afterwards,
//!    except to wake the address, which needs no memory there.
//! 4. A RELEASED waiter does not touch the condition variable, so that may be
//!    destroyed as soon as a broadcast returns. For waiters that are LEAVING or
//!    hold a pin, destroying waits; they are on their way out.
//! 5. A waiter that was signalled and is cancelled passes the signal on, and
//!    holds its pin until it has.
//! 6. Whoever holds `lock` cannot be cancelled and runs a bounded number of
//!    steps.
//!
//! Fork: the child has the queue but not the threads in it, whose stacks glibc
//! reuses. The lock therefore carries the generation, a count of forks
//! (`fork.rs`); who finds another one empties the queue and drops the pins.
//!
//! Weakness: a broadcast wakes with one system call per waiter.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, timespec};

use crate::futex::{self, Errno};
use crate::{fork, glibc, mode, mutex, shared};

/// Bits of `flags`.
const SHARED: u32 = 1;
const MONOTONIC: u32 = 2;

/// Values of `lock` below the generation.
const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const GENERATION_SHIFT: u32 = 2;

/// Values of `Waiter::state`.
const WAITING: u32 = 0;
const SIGNALLED: u32 = 1;
const LEAVING: u32 = 2;
const RELEASED: u32 = 3;

/// Addresses that a broadcast collects before it wakes them.
const BATCH: usize = 32;

/// A condition variable: see the module's drawing.
#[repr(C)]
pub(crate) struct Cond {
    lock: AtomicU32,
    first: AtomicPtr<Waiter>,
    last: AtomicPtr<Waiter>,
    tickets: AtomicU64,
    pins: AtomicU32,
    flags: AtomicU32,
}

const _: () = assert!(size_of::<Cond>() <= size_of::<pthread_cond_t>());
const _: () = assert!(align_of::<Cond>() <= align_of::<pthread_cond_t>());
const _: () = assert!(std::mem::offset_of!(Cond, flags) == 36);

/// One thread that waits.
struct Waiter {
    state: AtomicU32,
    /// Its place in the order of coming.
    ticket: u64,
    next: AtomicPtr<Waiter>,
    previous: AtomicPtr<Waiter>,
    cond: *const Cond,
    mutex: *mut pthread_mutex_t,
}

unsafe extern "C-unwind" {
    /// `cancel.c`.
    fn giveway_cfl_sleep(
        cancelled: unsafe extern "C" fn(*mut c_void),
        waiter: *mut c_void,
        state: *const AtomicU32,
        expected: u32,
        clock_flag: c_int,
        deadline: *const timespec,
    ) -> c_int;
}

/// `cond` as ours, or nothing if it belongs to glibc.
///
/// # Safety
///
/// `cond` points to an initialised condition variable.
unsafe fn ours<'a>(cond: *mut pthread_cond_t) -> Option<&'a Cond> {
    // SAFETY: by the caller; all fields are atomic, and any bytes are valid
    // values of them.
    let cond = unsafe { &*cond.cast::<Cond>() };
    (mode::is_cfl() && cond.flags.load(Relaxed) & SHARED == 0).then_some(cond)
}

/// # Safety
///
/// As for `pthread_cond_init`.
pub(crate) unsafe fn init(cond: *mut pthread_cond_t, attr: *const pthread_condattr_t) -> c_int {
    let (mut shared, mut clock) = (libc::PTHREAD_PROCESS_PRIVATE, libc::CLOCK_REALTIME);
    if !attr.is_null() {
        // SAFETY: by the caller, an initialised attribute object.
        unsafe {
            libc::pthread_condattr_getpshared(attr, &mut shared);
            libc::pthread_condattr_getclock(attr, &mut clock);
        }
    }
    if !mode::is_cfl() || shared == libc::PTHREAD_PROCESS_SHARED {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_cond_init(cond, attr) };
    }
    let flags = match clock {
        libc::CLOCK_MONOTONIC => MONOTONIC,
        _ => 0,
    };
    // SAFETY: by the caller, memory for a condition variable that nobody uses.
    unsafe {
        cond.write_bytes(0, 1);
        (*cond.cast::<Cond>()).flags.store(flags, Relaxed);
    }
    0
}

/// # Safety
///
/// As for `pthread_cond_destroy`.
pub(crate) unsafe fn destroy(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(cond) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_cond_destroy(cond) };
    };
    // Nobody may be waiting, so whoever is queued is on its way out (4).
    loop {
        ours.lock();
        let empty = ours.first.load(Relaxed).is_null() && ours.pins.load(Acquire) == 0;
        ours.unlock();
        if empty {
            return 0;
        }
        std::thread::yield_now();
    }
}

/// # Safety
///
/// As for `pthread_cond_signal`.
pub(crate) unsafe fn signal(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(cond) } {
        Some(ours) => ours.signal(),
        // SAFETY: passed on as it came.
        None => unsafe { shared::signal(cond) },
    }
}

/// # Safety
///
/// As for `pthread_cond_broadcast`.
pub(crate) unsafe fn broadcast(cond: *mut pthread_cond_t) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(cond) } {
        Some(ours) => ours.broadcast(),
        // SAFETY: passed on as it came.
        None => unsafe { shared::broadcast(cond) },
    }
}

/// How long to wait: for ever, or until a time of the condition variable's
/// clock or of a given one.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Signalled,
    Time(*const timespec),
    ClockTime(clockid_t, *const timespec),
}

/// # Safety
///
/// As for `pthread_cond_wait`, `_timedwait` and `_clockwait`.
pub(crate) unsafe fn wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: Until,
) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(cond) }) else {
        // SAFETY: passed on as it came.
        return unsafe { shared::wait(cond, mutex, until) };
    };
    let (clock, deadline) = match until {
        Until::Signalled => (libc::CLOCK_MONOTONIC, ptr::null()),
        Until::Time(time) if ours.flags.load(Relaxed) & MONOTONIC != 0 => {
            (libc::CLOCK_MONOTONIC, time)
        }
        Until::Time(time) => (libc::CLOCK_REALTIME, time),
        Until::ClockTime(clock, time) => (clock, time),
    };
    let Some(clock_flag) = futex::clock_flag(clock) else {
        return libc::EINVAL;
    };
    // SAFETY: by the caller, a time where it is not null.
    let time = unsafe { deadline.as_ref() };
    if time.is_some_and(|time| !futex::is_valid(time)) {
        return libc::EINVAL;
    }

    let errno = Errno::save();
    let mut waiter = Waiter {
        state: AtomicU32::new(WAITING),
        ticket: 0,
        next: AtomicPtr::default(),
        previous: AtomicPtr::default(),
        cond: ours,
        mutex,
    };
    ours.enqueue(&mut waiter);
    // Queued before the mutex is unlocked, so that no signal is missed that is
    // sent with the mutex held.
    // SAFETY: by the caller, the thread's own mutex; if it is not, the mutex
    // says so where its kind can tell.
    let unlocked = unsafe { mutex::unlock(mutex) };
    if unlocked != 0 {
        ours.abandon(&waiter);
        errno.restore();
        return unlocked;
    }
    // A time before the epoch is one the kernel does not take.
    let mut timed_out = time.is_some_and(|time| time.tv_sec < 0);
    while !timed_out && waiter.state.load(Acquire) == WAITING {
        // SAFETY: the waiter and the deadline outlive the call. No frame
        // between here and the caller of this library has anything to drop, so
        // the stack can be unwound from inside.
        let woken = unsafe {
            giveway_cfl_sleep(
                cancelled,
                ptr::from_mut(&mut waiter).cast(),
                &waiter.state,
                WAITING,
                clock_flag,
                deadline,
            )
        };
        timed_out = woken == libc::ETIMEDOUT;
    }
    let result = match timed_out && ours.leave(&waiter) {
        true => libc::ETIMEDOUT,
        false => {
            ours.see(&waiter);
            0
        }
    };
    // SAFETY: as above.
    let locked = unsafe { mutex::lock(mutex) };
    errno.restore();
    match locked {
        0 => result,
        _ => locked,
    }
}

/// Called while the stack of a cancelled thread is unwound; `cancel.c`.
unsafe extern "C" fn cancelled(waiter: *mut c_void) {
    // SAFETY: the waiter that `wait` passed to `giveway_cfl_sleep`, whose frame
    // is still there; likewise its condition variable, whose user waits for it.
    unsafe {
        let waiter = &*waiter.cast::<Waiter>();
        (*waiter.cond).abandon(waiter);
        // What is to be told if this fails goes to nobody: the thread ends.
        mutex::lock(waiter.mutex);
    }
}

impl Cond {
    fn lock(&self) {
        let generation = fork::generation() << GENERATION_SHIFT;
        let mut spins = 0;
        // Who has slept cannot know whether others still do.
        let mut taken = HELD;
        loop {
            let word = self.lock.load(Relaxed);
            if word & !0b11 != generation {
                // The queue is of threads that this process does not have, or
                // of no threads at all.
                let won = self
                    .lock
                    .compare_exchange(word, generation | HELD, Acquire, Relaxed);
                if won.is_ok() {
                    self.first.store(ptr::null_mut(), Relaxed);
                    self.last.store(ptr::null_mut(), Relaxed);
                    self.pins.store(0, Relaxed);
                    return;
                }
            } else if word & 0b11 == FREE {
                let won = self
                    .lock
                    .compare_exchange(word, generation | taken, Acquire, Relaxed);
                if won.is_ok() {
                    return;
                }
            } else if spins < 50 {
                spins += 1;
                std::hint::spin_loop();
            } else {
                let contended = generation | CONTENDED;
                if word == contended
                    || (self
                        .lock
                        .compare_exchange(word, contended, Relaxed, Relaxed))
                    .is_ok()
                {
                    futex::wait(&self.lock, contended);
                    taken = CONTENDED;
                }
            }
        }
    }

    fn unlock(&self) {
        let generation = fork::generation() << GENERATION_SHIFT;
        if self.lock.swap(generation | FREE, Release) & 0b11 == CONTENDED {
            futex::wake_one(&self.lock);
        }
    }

    /// Appends `waiter`, which stays where it is until it has left.
    fn enqueue(&self, waiter: &mut Waiter) {
        self.lock();
        waiter.ticket = self.tickets.load(Relaxed);
        self.tickets.store(waiter.ticket + 1, Relaxed);
        let last = self.last.load(Relaxed);
        waiter.previous.store(last, Relaxed);
        // SAFETY: the lock is held (1), so `last` is a live waiter (2).
        match unsafe { last.as_ref() } {
            Some(last) => last.next.store(waiter, Relaxed),
            None => self.first.store(waiter, Relaxed),
        }
        self.last.store(waiter, Relaxed);
        self.unlock();
    }

    /// Closes the gap between two neighbours. The lock is held (1).
    fn join(&self, previous: *mut Waiter, next: *mut Waiter) {
        // SAFETY: both are in the queue, hence alive (2).
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.store(next, Relaxed),
                None => self.first.store(next, Relaxed),
            }
            match next.as_ref() {
                Some(next) => next.previous.store(previous, Relaxed),
                None => self.last.store(previous, Relaxed),
            }
        }
    }

    /// The waiter gives up. Whether it did: if not, it was woken before.
    fn leave(&self, waiter: &Waiter) -> bool {
        // From here on nobody wakes it, and destroying waits for it (4).
        let left = waiter
            .state
            .compare_exchange(WAITING, LEAVING, Acquire, Acquire);
        if left.is_ok() {
            self.lock();
            self.join(waiter.previous.load(Relaxed), waiter.next.load(Relaxed));
            self.unlock();
        }
        left.is_ok()
    }

    /// The waiter, woken, knows it. The last touch of the condition variable.
    fn see(&self, waiter: &Waiter) {
        if waiter.state.load(Relaxed) == SIGNALLED {
            self.pins.fetch_sub(1, Release);
        }
    }

    /// The waiter gives up and does not want a signal either (5).
    fn abandon(&self, waiter: &Waiter) {
        if !self.leave(waiter) && waiter.state.load(Relaxed) == SIGNALLED {
            self.signal();
            self.see(waiter);
        }
    }

    fn signal(&self) -> c_int {
        // An empty queue needs no lock: a waiter that the caller has to wake
        // queued itself before it unlocked the mutex under which the caller
        // changed what it waits for.
        if self.first.load(Acquire).is_null() {
            return 0;
        }
        let mut woken = [ptr::null(); 1];
        let count = self.take(&mut woken, u64::MAX, SIGNALLED);
        for address in &woken[..count] {
            futex::wake_one(*address);
        }
        0
    }

    fn broadcast(&self) -> c_int {
        if self.first.load(Acquire).is_null() {
            return 0;
        }
        // Those who come while this goes on are not meant.
        let newest = self.tickets.load(Relaxed);
        loop {
            let mut woken = [ptr::null(); BATCH];
            let count = self.take(&mut woken, newest, RELEASED);
            for address in &woken[..count] {
                futex::wake_one(*address);
            }
            if count < BATCH {
                return 0;
            }
        }
    }

    /// Makes the waiters that came first, and before the ticket `newest`,
    /// SIGNALLED or RELEASED; stores the addresses that wake them, and returns
    /// how many.
    fn take(&self, woken: &mut [*const AtomicU32], newest: u64, as_state: u32) -> usize {
        let mut count = 0;
        self.lock();
        let mut next = self.first.load(Relaxed);
        // SAFETY: the lock is held (1), so what the queue leads to is alive (2).
        while let Some(waiter) = unsafe { next.as_ref() } {
            if count == woken.len() || waiter.ticket >= newest {
                break;
            }
            // Read now: once woken, the waiter's frame may be gone (3).
            let previous = waiter.previous.load(Relaxed);
            next = waiter.next.load(Relaxed);
            let address: *const AtomicU32 = &waiter.state;
            if as_state == SIGNALLED {
                // Before the waiter can see that it has one.
                self.pins.fetch_add(1, Relaxed);
            }
            let won = (waiter.state).compare_exchange(WAITING, as_state, Release, Relaxed);
            if won.is_ok() {
                self.join(previous, next);
                woken[count] = address;
                count += 1;
            } else if as_state == SIGNALLED {
                // LEAVING: it takes itself out.
                self.pins.fetch_sub(1, Relaxed);
            }
        }
        self.unlock();
        count
    }
}
