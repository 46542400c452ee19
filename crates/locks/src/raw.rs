//! The lock without Rust's types around it, for C programs and for the types in
//! [`mutex`](crate::mutex).
//!
//! A lock is a [`Core`] and an [`Extra`] that a [`LockRef`] brings together.
//! Zeroed memory is an unlocked lock with the default profile; nothing has to be
//! destroyed; the memory must stay where it is while the lock is in use.
//!
//! Nothing here allocates, panics or changes `errno`.

use crate::acquire;
use crate::node;
use crate::options::Profile;
use crate::release;
use crate::state::{self, CLAIMED, LEASED_WITH, LOCKED, METERED, TAIL};
pub use crate::state::{Core, Extra};
use crate::stats::{self, ThreadShare};
use crate::sync::{Acquire, Relaxed, Release, fence};
use crate::{clock, fork, thread, topology};
use giveway_machine::futex::Deadline;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By spinning, then by giving the CPU to others (Section 3.2).
    Spin,
    /// By spinning, then by sleeping (Section 3.3).
    Mutex,
}

/// When a hold began. The holder gives it back to the lock.
///
/// 0 and 1 are no times: the hold is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lock is released with the start of its hold"]
pub struct HoldStart(u64);

impl HoldStart {
    /// Nobody contended lately.
    pub const UNMETERED: HoldStart = HoldStart(0);
    /// The lock is contended, but this hold was not drawn to be measured.
    pub(crate) const SKIPPED: HoldStart = HoldStart(1);

    /// A hold that begins now.
    pub(crate) fn now() -> HoldStart {
        HoldStart(clock::now().max(2))
    }

    /// The number to keep beside a lock in C.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The hold that [`to_bits`](Self::to_bits) was called on.
    pub const fn from_bits(bits: u64) -> HoldStart {
        HoldStart(bits)
    }

    #[inline]
    pub(crate) fn is_metered(self) -> bool {
        self.0 > 1
    }
}

/// A lock, wherever its parts lie.
#[derive(Clone, Copy)]
pub struct LockRef<'a> {
    pub(crate) core: &'a Core,
    pub(crate) extra: &'a Extra,
}

impl<'a> LockRef<'a> {
    /// A lock of these two parts, which belong together from their creation on.
    #[inline]
    pub const fn new(core: &'a Core, extra: &'a Extra) -> LockRef<'a> {
        LockRef { core, extra }
    }

    /// Acquires.
    #[inline]
    pub fn lock(self, kind: Kind) -> HoldStart {
        if self.take_uncontended() {
            return HoldStart::UNMETERED;
        }
        if kind == Kind::Mutex && self.take_leased() {
            return HoldStart::SKIPPED;
        }
        acquire::contended_for_ever(self, kind)
    }

    /// Acquires, unless the deadline passes.
    #[inline]
    pub fn lock_until(self, kind: Kind, deadline: Deadline) -> Option<HoldStart> {
        if self.take_uncontended() {
            return Some(HoldStart::UNMETERED);
        }
        let start = acquire::contended(self, kind, Some(deadline));
        if start.is_none() {
            thread::end_of_turn();
        }
        start
    }

    /// Acquires if nobody holds the lock. While others wait for it this fails as well,
    /// unless [`lock`](Self::lock) would let the thread go before them.
    #[inline]
    pub fn try_lock(self, kind: Kind) -> Option<HoldStart> {
        if self.take_uncontended() {
            return Some(HoldStart::UNMETERED);
        }
        acquire::try_once(self, kind)
    }

    /// Acquires if nobody holds the lock and nobody has contended for it lately;
    /// the hold starts [`UNMETERED`](HoldStart::UNMETERED).
    #[inline]
    pub fn take_uncontended(self) -> bool {
        // Looking first saves a contended lock an exchange that would fail.
        let state = &self.core.state;
        state.load(Relaxed) == 0 && state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Acquires a contended lock that was found to be this thread's to take a few
    /// holds ago, if it is free and nobody has queued since.
    #[inline]
    fn take_leased(self) -> bool {
        let state = self.core.load();
        thread::has_lease(self.key(), state & (LEASED_WITH | LOCKED | CLAIMED))
            && (self.core.state)
                .compare_exchange(state, state | LOCKED, Acquire, Relaxed)
                .is_ok()
    }

    /// Releases what [`take_uncontended`](Self::take_uncontended) has acquired,
    /// unless somebody has contended for it since: then this does nothing and
    /// [`unlock`](Self::unlock) must be called.
    ///
    /// # Safety
    /// The current thread holds the lock, and has acquired it that way.
    #[inline]
    pub unsafe fn give_uncontended(self) -> bool {
        (self.core.state)
            .compare_exchange(LOCKED, 0, Release, Relaxed)
            .is_ok()
    }

    /// [`take_uncontended`](Self::take_uncontended) without atomic instructions.
    ///
    /// # Safety
    /// The process has one thread.
    #[inline]
    pub unsafe fn take_alone(self) -> bool {
        let free = self.core.load() == 0;
        if free {
            self.core.state.store(LOCKED, Relaxed);
        }
        free
    }

    /// [`give_uncontended`](Self::give_uncontended) without atomic instructions.
    ///
    /// # Safety
    /// As there, and the process has one thread.
    #[inline]
    pub unsafe fn give_alone(self) -> bool {
        let unwanted = self.core.load() == LOCKED;
        if unwanted {
            self.core.state.store(0, Relaxed);
        }
        unwanted
    }

    /// Releases.
    ///
    /// # Safety
    /// The current thread has acquired the lock, got `start` for it, and not
    /// released it since.
    #[inline]
    pub unsafe fn unlock(self, start: HoldStart) {
        if start.is_metered() {
            release::settle(self, start);
        }
        release::release(self, start);
    }

    /// Whether somebody holds the lock.
    #[inline]
    pub fn is_locked(self) -> bool {
        self.core.load() & LOCKED != 0
    }

    /// Whether somebody waits for the lock in its queue.
    pub fn has_waiters(self) -> bool {
        self.core.load() & TAIL != 0
    }

    /// How many threads are queued for the lock, or about to be. Looks at the
    /// nodes of all locks, so it is for tests and diagnosis.
    pub fn waiters(self) -> usize {
        node::queued_at(self.key())
    }

    /// The number of the lock's profile; 0 is the default one.
    #[inline]
    pub fn profile_index(self) -> u16 {
        self.extra.profile()
    }

    /// Gives the lock a profile, for all acquisitions from the next on. Meant
    /// for locks that nobody uses yet; if somebody does, those that are in the
    /// queue go by the old or the new one.
    pub fn set_profile(self, profile: Profile) {
        self.extra.set_profile(profile.index());
        if profile.metered() {
            self.core.state.fetch_or(METERED, Relaxed);
        }
    }

    /// What each living thread has had of the lock. Kept for locks with
    /// statistics or the scope [`Lock`](crate::Scope::Lock); at most the last 8
    /// locks of each thread.
    pub fn shares(self) -> Vec<ThreadShare> {
        stats::shares(self.key())
    }

    /// What tells this lock from others.
    #[inline]
    pub(crate) fn key(self) -> usize {
        std::ptr::from_ref(self.core).addr()
    }
}

/// Gets everything ready that is otherwise made ready on first use: the clock's
/// rate (0.2 ms) and the topology.
pub fn prepare() {
    clock::prepare();
    topology::sockets();
    crate::sync::cpus();
}

/// Gives back the `pthread_key` by which the ends of threads are noticed, for a
/// program that needs all keys of the process. False if there was none. From
/// then on the slots of threads that have ended are found by asking the kernel,
/// when new threads need slots.
pub fn give_back_key() -> bool {
    thread::at_exit::give_back()
}

/// The current thread's slot, which names it as an owner: never 0, the same
/// after a fork, reused after the thread's end. `None` if all slots are taken.
#[inline]
pub fn current_slot() -> Option<u16> {
    match thread::current_index() {
        0 => None,
        index => Some(index as u16),
    }
}

/// For the child of a fork, before it uses a lock, for instance in a
/// `pthread_atfork` handler: forgets the threads that did not come along, and
/// with them all queues. A lock that one of them held stays locked for ever, as
/// POSIX has it; one that the forking thread held can be released.
pub fn after_fork_in_child() {
    thread::after_fork();
    fork::next_generation();
    // Later slow paths must see both.
    fence(crate::sync::Release);
}

/// The average that the lock scheduler has published, ns of virtual time, and
/// the socket. For tests and curiosity.
pub fn verdict(lock: LockRef<'_>) -> Option<(u64, u32)> {
    lock.core
        .verdict()
        .map(|verdict| (verdict.avg, verdict.sid))
}

#[cfg(loom)]
pub use crate::node::soil_for_test;

const _: () = assert!(state::TAIL >> 48 == 0xffff);
