//! Mutexes, in place in the bytes of `pthread_mutex_t`.
//!
//! ```text
//! byte  0  core     the CFL lock
//!      16  kind     glibc's place and values
//!      18  depth    how often the owner locked it beyond the first time
//!      20  extra    the rest of the CFL lock
//!      28  owner    the owning thread, 0 for none; recursive and error-checking kinds
//!      32  held     when the holder got it, as the lock wants it back
//! ```
//!
//! glibc's kind has 32 bits, of which it uses ten; its upper half holds our
//! depth, the only number there is no other place for. All that a static
//! initialiser sets is the lower half; the rest is zero, which is an unlocked
//! lock. So no initialiser has to run.
//!
//! A mutex is ours if its kind is one of the four types that differ only in
//! what they check. What else glibc puts there (robust, priority inheritance
//! and protection, shared between processes, destroyed) is glibc's business,
//! and every operation on such a mutex goes to glibc's function.
//!
//! Invariants:
//!
//! 1. `held` is read and written by the holder only. (Not asserted: a normal mutex
//!    has no owner to compare, and any thread may unlock it.)
//! 2. `owner` is a thread's number exactly while that thread holds the mutex; a
//!    thread compares it with its own number only, so a read while another thread
//!    writes gives the right answer. (Asserted in `acquired`.)
//! 3. `depth` is read and written by the owner only. (Asserted in `acquired`: it is
//!    back at 0.)
//!
//! Like glibc's, a normal mutex may be unlocked by any thread, locked or not.
//!
//! Weaknesses: a recursive mutex is locked at most 65536 times over (then
//! EAGAIN, which POSIX foresees). The owner is a thread number of the kernel's,
//! as with glibc, and with the same consequences: a thread that reuses the number of
//! one that ended without unlocking passes for the owner, and the child of a
//! fork does not own what its parent's thread owned.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use libc::{clockid_t, pthread_mutex_t, pthread_mutexattr_t, timespec};

use crate::lock::{Core, Extra, Hold, Lock};
use crate::{glibc, mode, stats, threads, time};

/// Bits of `kind`: the type, and glibc's notes about lock elision.
const TYPE: u16 = 3;
const ELISION: u16 = 256 | 512;
const NORMAL: u16 = libc::PTHREAD_MUTEX_NORMAL as u16;
const ADAPTIVE: u16 = libc::PTHREAD_MUTEX_ADAPTIVE_NP as u16;

/// The CFL lock and what a kind needs beside it: see the module's drawing.
#[repr(C)]
struct Mutex {
    core: Core,
    kind: AtomicU16,
    depth: AtomicU16,
    extra: Extra,
    owner: AtomicU32,
    held: AtomicU64,
}

const _: () = assert!(size_of::<Mutex>() == 40);
const _: () = assert!(size_of::<Mutex>() <= size_of::<pthread_mutex_t>());
const _: () = assert!(align_of::<Mutex>() <= align_of::<pthread_mutex_t>());

/// The 32-bit word of a mutex whose lower half is the kind; `layout.rs` checks
/// that glibc agrees.
pub(crate) const KIND_WORD: usize = std::mem::offset_of!(Mutex, kind) / 4;

/// The type of a mutex with this word, if it would be ours.
pub(crate) fn type_of_ours(word: u32) -> Option<c_int> {
    is_ours(word as u16).then_some(c_int::from(word as u16 & TYPE))
}

#[inline]
fn is_ours(kind: u16) -> bool {
    kind & !(TYPE | ELISION) == 0
}

// The lower half of glibc's kind is the first.
const _: () = assert!(cfg!(target_endian = "little"));

/// What a thread finds that wants a mutex it may already own.
enum Entry {
    /// It does not own it.
    Wanted,
    /// It does, and this is the answer.
    Owned(c_int),
}

/// Who locks, for the statistics: the address after the call.
pub(crate) type Site = usize;

/// `mutex` as ours, or nothing if it belongs to glibc.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
#[inline]
unsafe fn ours<'a>(mutex: *mut pthread_mutex_t) -> Option<&'a Mutex> {
    // SAFETY: by the caller; all fields are atomic, and any bytes are valid
    // values of them.
    let mutex = unsafe { &*mutex.cast::<Mutex>() };
    (mode::is_cfl() && is_ours(mutex.kind.load(Relaxed))).then_some(mutex)
}

/// `mutex` as ours, if it is of a kind that has no owner and no setting concerns
/// it.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
#[inline]
unsafe fn simple<'a>(mutex: *mut pthread_mutex_t) -> Option<&'a Mutex> {
    // SAFETY: as in `ours`.
    let mutex = unsafe { &*mutex.cast::<Mutex>() };
    let kind = mutex.kind.load(Relaxed) & !ELISION;
    (mode::is_plain() && (kind == NORMAL || kind == ADAPTIVE)).then_some(mutex)
}

/// Whether `mutex` belongs to glibc.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
pub(crate) unsafe fn is_glibcs(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: by the caller.
    unsafe { ours(mutex) }.is_none()
}

/// # Safety
///
/// As for `pthread_mutex_init`.
pub(crate) unsafe fn init(mutex: *mut pthread_mutex_t, attr: *const pthread_mutexattr_t) -> c_int {
    // glibc checks the attributes, clears the bytes and leaves the kind, which
    // is what a mutex of ours begins with. It must not happen while the side
    // is undecided, as it would be in a call from a constructor.
    mode::is_cfl();
    // SAFETY: passed on as it came.
    unsafe { glibc::pthread_mutex_init(mutex, attr) }
}

/// # Safety
///
/// As for `pthread_mutex_destroy`.
pub(crate) unsafe fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(mutex) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_mutex_destroy(mutex) };
    };
    if ours.lock().is_locked() {
        return libc::EBUSY;
    }
    // What glibc leaves, and refuses. The depth is the field's other half.
    ours.kind.store(u16::MAX, Relaxed);
    ours.depth.store(u16::MAX, Relaxed);
    0
}

/// # Safety
///
/// As for `pthread_mutex_lock`.
#[inline]
pub(crate) unsafe fn lock_from(mutex: *mut pthread_mutex_t, site: Site) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { simple(mutex) }) else {
        // SAFETY: by the caller.
        return unsafe { lock_any(mutex, site) };
    };
    if ours.lock().take_uncontended() {
        ours.held.store(Hold::UNMETERED.to_bits(), Relaxed);
        return 0;
    }
    ours.lock_contended()
}

/// Locks a mutex that is not simple. Apart, so that the common case saves no
/// registers for it.
///
/// # Safety
///
/// As for `pthread_mutex_lock`.
#[inline(never)]
unsafe fn lock_any(mutex: *mut pthread_mutex_t, site: Site) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(mutex) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_mutex_lock(mutex) };
    };
    match ours.enter(libc::EDEADLK) {
        Entry::Owned(answer) => answer,
        Entry::Wanted => {
            let since = stats::clock();
            let hold = ours.lock().lock();
            ours.acquired(hold, since, site);
            0
        }
    }
}

/// Locks again what a wait on a condition variable unlocked.
///
/// # Safety
///
/// As for `pthread_mutex_lock`.
pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    unsafe { lock_from(mutex, 0) }
}

/// # Safety
///
/// As for `pthread_mutex_trylock`.
pub(crate) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(mutex) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_mutex_trylock(mutex) };
    };
    match ours.enter(libc::EBUSY) {
        Entry::Owned(answer) => answer,
        Entry::Wanted => match ours.lock().try_lock() {
            Some(hold) => {
                ours.acquired(hold, None, 0);
                0
            }
            None => libc::EBUSY,
        },
    }
}

/// # Safety
///
/// As for `pthread_mutex_timedlock`.
pub(crate) unsafe fn timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(mutex) } {
        // SAFETY: by the caller.
        Some(ours) => ours.lock_until(libc::CLOCK_REALTIME, unsafe { &*until }),
        // SAFETY: passed on as it came.
        None => unsafe { glibc::pthread_mutex_timedlock(mutex, until) },
    }
}

/// # Safety
///
/// As for `pthread_mutex_clocklock`.
pub(crate) unsafe fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: by the caller.
    match unsafe { ours(mutex) } {
        // SAFETY: by the caller.
        Some(ours) => ours.lock_until(clock, unsafe { &*until }),
        // SAFETY: passed on as it came.
        None => unsafe { glibc::pthread_mutex_clocklock(mutex, clock, until) },
    }
}

/// # Safety
///
/// As for `pthread_mutex_unlock`.
#[inline]
pub(crate) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller; a mutex that nobody holds keeps what it is.
    unsafe {
        let Some(ours) = simple(mutex) else {
            return unlock_any(mutex);
        };
        let hold = Hold::from_bits(ours.held.load(Relaxed));
        if hold == Hold::UNMETERED && ours.lock().give_uncontended() {
            return 0;
        }
        ours.unlock_contended(hold)
    }
}

/// Unlocks a mutex that is not simple.
///
/// # Safety
///
/// As for `pthread_mutex_unlock`.
#[inline(never)]
unsafe fn unlock_any(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: by the caller.
    let Some(ours) = (unsafe { ours(mutex) }) else {
        // SAFETY: passed on as it came.
        return unsafe { glibc::pthread_mutex_unlock(mutex) };
    };
    if ours.knows_owner() {
        if ours.owner.load(Relaxed) != threads::id() {
            return libc::EPERM;
        }
        let depth = ours.depth.load(Relaxed);
        if depth > 0 {
            ours.depth.store(depth - 1, Relaxed);
            return 0;
        }
        ours.owner.store(0, Relaxed);
    } else if !ours.lock().is_locked() {
        // Undefined, and without effect with glibc.
        return 0;
    }
    let hold = Hold::from_bits(ours.held.load(Relaxed));
    stats::released(ours.address());
    // SAFETY: the mutex is locked, and `held` is of whoever locked it (1).
    unsafe { ours.lock().unlock(hold) };
    0
}

impl Mutex {
    #[inline]
    fn lock(&self) -> Lock<'_> {
        Lock::new(&self.core, &self.extra)
    }

    /// Locks a simple mutex.
    #[inline(never)]
    fn lock_contended(&self) -> c_int {
        let hold = self.lock().lock_plain();
        self.held.store(hold.to_bits(), Relaxed);
        0
    }

    /// Unlocks a simple mutex.
    ///
    /// # Safety
    ///
    /// If it is locked, `hold` is of whoever locked it.
    #[inline(never)]
    unsafe fn unlock_contended(&self, hold: Hold) -> c_int {
        if self.lock().is_locked() {
            // SAFETY: by the caller.
            unsafe { self.lock().unlock(hold) };
        }
        0
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[inline]
    fn kind(&self) -> c_int {
        (self.kind.load(Relaxed) & TYPE) as c_int
    }

    /// Whether the kind depends on who owns the mutex.
    #[inline]
    fn knows_owner(&self) -> bool {
        let kind = self.kind();
        kind == libc::PTHREAD_MUTEX_RECURSIVE || kind == libc::PTHREAD_MUTEX_ERRORCHECK
    }

    /// Whether the calling thread owns the mutex already: then a recursive
    /// one is locked once more, an error-checking one answers `refusal`.
    #[inline]
    fn enter(&self, refusal: c_int) -> Entry {
        if !self.knows_owner() || self.owner.load(Relaxed) != threads::id() {
            return Entry::Wanted;
        }
        if self.kind() == libc::PTHREAD_MUTEX_ERRORCHECK {
            return Entry::Owned(refusal);
        }
        match self.depth.load(Relaxed).checked_add(1) {
            Some(depth) => {
                self.depth.store(depth, Relaxed);
                Entry::Owned(0)
            }
            None => Entry::Owned(libc::EAGAIN),
        }
    }

    /// The calling thread has got the lock. `since`: when it began to want it,
    /// if that is recorded.
    #[inline]
    fn acquired(&self, hold: Hold, since: Option<u64>, site: Site) {
        self.held.store(hold.to_bits(), Relaxed);
        if self.knows_owner() {
            debug_assert_eq!(self.owner.load(Relaxed), 0, "2");
            debug_assert_eq!(self.depth.load(Relaxed), 0, "3");
            self.owner.store(threads::id(), Relaxed);
        }
        stats::acquired(self.address(), site, since);
    }

    fn lock_until(&self, clock: clockid_t, until: &timespec) -> c_int {
        let Some(deadline) = time::deadline(clock, until) else {
            return libc::EINVAL;
        };
        if let Entry::Owned(answer) = self.enter(libc::EDEADLK) {
            return answer;
        }
        let since = stats::clock();
        // The time matters only if there is something to wait for.
        let hold = match time::is_valid(until) {
            true => self.lock().lock_until(deadline),
            false => match self.lock().try_lock() {
                None => return libc::EINVAL,
                free => free,
            },
        };
        match hold {
            Some(hold) => {
                self.acquired(hold, since, 0);
                0
            }
            None => libc::ETIMEDOUT,
        }
    }
}
