//! What a thread brings to a lock: weight, group, vLHT, a node.
//!
//! A thread takes a slot when it first meets a contended lock and gives it back
//! when it ends. The way there is made for locks that an allocator uses: the
//! thread-local variable is a plain number without a destructor, and the slot comes
//! from a slab. The end of the thread is noticed by a `pthread_key` (`at_exit`),
//! whose destructor frees the slot. A thread that locks after that, in another
//! key's destructor, takes a temporary slot, which its next release or time-out
//! frees.
//!
//! If all slots are taken, a thread goes on without one: it is not charged, and
//! waits beside the queue.
//!
//! Invariants:
//! - **T1** A slot is written by the thread that has it; others only read it,
//!   but for `weight` and `gid`, which are single words. (Asserted in `charge`.)
//! - **T2** `node` is 0 or a node that the thread owns (N2) whenever the thread
//!   does not wait. (Asserted in `own_node`: it is in no queue.)

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod at_exit;

use crate::account::{Account, Accounts, DEFAULT_WEIGHT, Hold, add};
use crate::group::{Group, GroupError};
use crate::options::Scope;
use crate::slab::{Slab, Slot};
use crate::sync::{AtomicU32, LooseU32, LooseU64, LooseUsize, MODEL, Relaxed};
use giveway_machine::errno;

use crate::{clock, held, node, topology};

/// As many threads can have met a contended lock and live, in one process.
const THREADS: usize = node::NODES;
/// Locks per thread whose accounts are told apart.
const LOCKS: usize = 8;
/// With how many others a thread is compared that comes to a lock which cannot tell
/// where it stands: it should not take longer than to wait.
const PEERS: usize = 256;
/// After a hold shorter than this, ns, some of the next are not measured.
const SHORT_NS: u64 = 500;
/// How long those last together at most, ns, if they are as short.
const UNMEASURED_NS: u64 = 8_000;
/// How many they are at most, as a power of two; and where they are counted for
/// statistics, which are to be up to date.
const UNMEASURED_BITS: u32 = 7;
const UNMEASURED_BITS_COUNTED: u32 = 4;
/// In the thread-local number: the key's destructor has run.
const LATE: u32 = 1 << 31;

crate::sync::model_static! {
    static SLAB: Slab<Thread, THREADS> = Slab::new();
}
crate::sync::local_number! {
    static SLOT;
}

/// A thread's slot.
#[repr(align(512))]
pub(crate) struct Thread {
    link: AtomicU32,
    /// 0 while the slot is free.
    pub(crate) tid: LooseU32,
    pub(crate) weight: LooseU32,
    pub(crate) gid: LooseU32,
    /// Across locks.
    total: Account,
    /// When the thread last released a metered lock, in ticks.
    last: LooseU64,
    node: LooseU32,
    /// Virtual time, ns, that is not in the process's total yet.
    gathered: LooseU32,
    /// The lock at which the thread last idled and no other thread came.
    alone_at: LooseUsize,
    /// Socket plus 1; 0 is "never looked".
    sid: LooseU32,
    sid_age: LooseU32,
    /// How many holds after the last one that was measured go unmeasured, and
    /// how many of them are still to come.
    unmeasured: LooseU32,
    skip: LooseU32,
    /// The lock that the thread may acquire without asking again, as long as
    /// holds go unmeasured and the lock's state is this one; 0 for none.
    lease: LooseUsize,
    leased_with: LooseU64,
    /// Whether the group was chosen by a call, which rules do not undo.
    chosen: LooseU32,
    accounts: Accounts<LOCKS>,
}

macro_rules! thread {
    ($total:expr, $accounts:expr) => {
        Thread {
            link: AtomicU32::new(0),
            tid: LooseU32::new(0),
            weight: LooseU32::new(0),
            gid: LooseU32::new(0),
            total: $total,
            last: LooseU64::new(0),
            node: LooseU32::new(0),
            gathered: LooseU32::new(0),
            alone_at: LooseUsize::new(0),
            sid: LooseU32::new(0),
            sid_age: LooseU32::new(0),
            unmeasured: LooseU32::new(0),
            skip: LooseU32::new(0),
            lease: LooseUsize::new(0),
            leased_with: LooseU64::new(0),
            chosen: LooseU32::new(0),
            accounts: $accounts,
        }
    };
}

impl Slot for Thread {
    #[cfg(not(any(loom, shuttle)))]
    const ZERO: Thread = thread!(Account::zero(), Accounts::zero());
    #[cfg(any(loom, shuttle))]
    fn zero() -> Thread {
        thread!(Account::zero(), Accounts::zero())
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Puts the current thread into a group.
pub fn join(group: Group) {
    if let Some(thread) = current() {
        thread.gid.store(group.gid(), Relaxed);
        thread.chosen.store(1, Relaxed);
    }
}

/// The current thread's group.
pub fn group() -> Group {
    current().map_or(Group::ROOT, |thread| {
        Group::from_gid(thread.gid.load(Relaxed))
    })
}

/// Sets the current thread's weight inside its group, 1 to 10000. Takes effect
/// with its next release of a lock.
///
/// # Errors
/// If the weight is out of range.
pub fn set_weight(weight: u32) -> Result<(), GroupError> {
    if !(1..=10_000).contains(&weight) {
        return Err(GroupError::Weight(weight));
    }
    if let Some(thread) = current() {
        thread.weight.store(weight, Relaxed);
    }
    Ok(())
}

/// The current thread's vLHT across locks, in ns of virtual time.
pub fn vlht_ns() -> u64 {
    current().map_or(0, |thread| thread.total.vlht())
}

/// The socket that the current thread is on, or was lately, as locks see it;
/// see [`Topology`](crate::Topology).
pub fn socket() -> u32 {
    current().map_or(0, Thread::socket)
}

/// The index of the current thread's slot, taking one if need be; 0 if all are
/// taken.
#[inline]
pub(crate) fn current_index() -> u32 {
    let slot = SLOT.with(|slot| slot.get());
    if slot & !LATE != 0 {
        slot & !LATE
    } else {
        take_slot(slot)
    }
}

/// The current thread's slot.
#[inline]
pub(crate) fn current() -> Option<&'static Thread> {
    match current_index() {
        0 => None,
        index => Some(SLAB.get(index)),
    }
}

/// Whether the current thread has a lease of this lock, whose state is `state` as
/// far as it matters; uses up a part of it.
#[inline]
pub(crate) fn has_lease(lock: usize, state: u64) -> bool {
    // Slot 0 is never handed out and has no lease. Nor has a thread in its last
    // destructors: its number names no slot.
    let thread = SLAB.get(SLOT.with(|slot| slot.get()));
    thread.lease.load(Relaxed) == lock
        && thread.leased_with.load(Relaxed) == state
        && thread.skips_measuring()
}

/// Frees a temporary slot. Called when the thread has released a lock, unless by
/// the one exchange that needs no slot, and when it has waited in vain.
#[inline]
pub(crate) fn end_of_turn() {
    let slot = SLOT.with(|slot| slot.get());
    if slot & LATE != 0 && slot != LATE {
        SLOT.with(|own| own.set(LATE));
        free_slot(slot & !LATE);
    }
}

/// All slots in use.
pub(crate) fn all() -> impl Iterator<Item = &'static Thread> {
    SLAB.known()
        .map(|(_, thread)| thread)
        .filter(|thread| thread.tid.load(Relaxed) != 0)
}

/// In the child of a fork: only the current thread is left.
pub(crate) fn after_fork() {
    let index = SLOT.with(|slot| slot.get()) & !LATE;
    for (other, thread) in SLAB.known() {
        if other != index {
            thread.tid.store(0, Relaxed);
            thread.accounts.clear();
            thread.node.store(0, Relaxed);
        }
    }
    SLAB.keep_only(&[index]);
    at_exit::after_fork();
    let own_node = SLAB.get(index).node.load(Relaxed);
    node::SLAB.keep_only(&[own_node]);
    for (other, abandoned) in node::SLAB.known() {
        if other != own_node {
            abandoned.leave();
        }
    }
    if index != 0 {
        SLAB.get(index).lease.store(0, Relaxed);
        SLAB.get(index).tid.store(kernel_id(), Relaxed);
    }
}

#[cold]
fn take_slot(late: u32) -> u32 {
    if at_exit::is_blind() {
        free_slots_of_the_dead();
    }
    let Some(index) = SLAB.take() else {
        return 0;
    };
    let thread = SLAB.get(index);
    for number in [
        &thread.weight,
        &thread.gid,
        &thread.node,
        &thread.sid,
        &thread.unmeasured,
        &thread.skip,
        &thread.chosen,
    ] {
        number.store(0, Relaxed);
    }
    thread.alone_at.store(0, Relaxed);
    thread.lease.store(0, Relaxed);
    thread.total.clear();
    thread.last.store(0, Relaxed);
    thread.accounts.clear();
    thread.tid.store(kernel_id(), Relaxed);
    SLOT.with(|slot| slot.set(index | late));
    if late == 0 {
        at_exit::arm(index);
        crate::rules::apply();
    }
    index
}

/// Frees the slots of threads that have ended unnoticed, if none is free and
/// there are twice as many as after the last time. A thread number that is in
/// use again hides a dead thread, until its new owner ends as well.
fn free_slots_of_the_dead() {
    /// So many slots are not worth the look.
    const FEW: u32 = 64;
    static LIVING: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(FEW);
    if SLAB.has_free() || SLAB.used() < LIVING.load(Relaxed).saturating_mul(2) {
        return;
    }
    let mut living = 0;
    for (index, thread) in SLAB.known() {
        let tid = thread.tid.load(Relaxed);
        if tid == 0 {
            continue;
        }
        if is_alive(tid) {
            living += 1;
        } else if thread
            .tid
            .compare_exchange(tid, 0, Relaxed, Relaxed)
            .is_ok()
        {
            // Nobody else frees it, and its owner is gone.
            free_slot(index);
        }
    }
    LIVING.store(living.max(FEW), Relaxed);
}

/// Whether this process has a thread of this number.
fn is_alive(tid: u32) -> bool {
    errno::preserving(|errno| {
        // SAFETY: signal 0 is none; the call only asks.
        unsafe {
            let missing = libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) != 0;
            !missing || *errno != libc::ESRCH
        }
    })
}

fn free_slot(index: u32) {
    let thread = SLAB.get(index);
    let node = thread.node.load(Relaxed);
    if node != 0 {
        thread.node.store(0, Relaxed);
        node::SLAB.give(node);
    }
    thread.tid.store(0, Relaxed);
    SLAB.give(index);
}

fn kernel_id() -> u32 {
    if crate::sync::MODEL || cfg!(miri) {
        return 1;
    }
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// The threads of a model take their slots with them.
#[cfg(any(loom, shuttle))]
pub(crate) mod at_exit {
    pub(super) fn arm(_index: u32) {}
    pub(super) fn is_blind() -> bool {
        false
    }
    pub(crate) fn give_back() -> bool {
        false
    }
    pub(super) fn after_fork() {}
}

impl Thread {
    /// A node of the thread's own (T2), or `None` if all are taken.
    pub(crate) fn own_node(&self) -> Option<u32> {
        match self.node.load(Relaxed) {
            0 => {
                let node = node::SLAB.take()?;
                self.node.store(node, Relaxed);
                Some(node)
            }
            node => {
                debug_assert!(MODEL || !node::node(node).is_queued(), "T2");
                Some(node)
            }
        }
    }

    /// The node now belongs to the queue (N2).
    pub(crate) fn lose_node(&self) {
        self.node.store(0, Relaxed);
    }

    /// The socket the thread is on, or was lately.
    pub(crate) fn socket(&self) -> u32 {
        if topology::sockets() == 1 {
            return 0;
        }
        let (known, age) = (self.sid.load(Relaxed), self.sid_age.load(Relaxed));
        if known != 0 && age < topology::REFRESH {
            self.sid_age.store(age + 1, Relaxed);
            return known - 1;
        }
        let sid = topology::socket(known.checked_sub(1));
        self.sid.store(sid + 1, Relaxed);
        self.sid_age.store(0, Relaxed);
        sid
    }

    /// The account that decides at this lock.
    pub(crate) fn account_for(&self, lock: usize, scope: Scope) -> &Account {
        match scope {
            Scope::Thread => &self.total,
            Scope::Lock => self.accounts.open(lock),
        }
    }

    /// The vLHT of other threads, of this group if one is given, that this lock can
    /// compare, and when each last released a metered lock, in ticks. Of many threads
    /// it looks at the first [`PEERS`].
    pub(crate) fn peers(
        &self,
        gid: Option<u32>,
        lock: usize,
        scope: Scope,
    ) -> impl Iterator<Item = (u64, u64)> {
        let is_peer = move |thread: &&'static Thread| {
            !std::ptr::eq(*thread, self) && gid.is_none_or(|gid| gid == thread.gid())
        };
        all().take(PEERS).filter(is_peer).filter_map(move |thread| {
            let account = match scope {
                Scope::Thread => &thread.total,
                Scope::Lock => thread.accounts.find(lock)?,
            };
            (account.is_placed()).then(|| (account.vlht(), thread.last_seen()))
        })
    }

    /// When the thread last released a metered lock, in ticks.
    pub(crate) fn last_seen(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Notes that the thread has idled at this lock and no other came.
    pub(crate) fn is_alone_at(&self, lock: usize) {
        self.alone_at.store(lock, Relaxed);
    }

    /// Whether this lock is the one of the last [`is_alone_at`](Self::is_alone_at).
    pub(crate) fn was_alone_at(&self, lock: usize) -> bool {
        self.alone_at.load(Relaxed) == lock
    }

    /// Enters a hold; returns what it cost in virtual time. With `detailed`,
    /// the account for this lock is kept even if another one decides.
    pub(crate) fn charge(&self, hold: &Hold, detailed: bool) -> u64 {
        debug_assert!(MODEL || self.is_current(), "T1");
        let weight = self.weight.load(Relaxed);
        let charge = self
            .account_for(hold.lock, hold.scope)
            .charge(hold.ns, weight);
        if hold.scope == Scope::Lock || detailed {
            let account = self.accounts.open(hold.lock);
            add(&account.hold_ns, hold.ns);
            add(&account.acquisitions, hold.holds);
        }
        if hold.scope == Scope::Thread {
            held::add(&self.gathered, charge);
        }
        self.last.store(hold.now, Relaxed);
        charge
    }

    /// Whether the slot is the current thread's. For assertions.
    fn is_current(&self) -> bool {
        let slot = SLOT.with(|slot| slot.get()) & !LATE;
        std::ptr::eq(self, SLAB.get(slot))
    }

    /// Whether the next hold, which met no queue, goes unmeasured.
    #[inline]
    pub(crate) fn skips_measuring(&self) -> bool {
        let skip = self.skip.load(Relaxed);
        if skip == 0 {
            return false;
        }
        self.skip.store(skip - 1, Relaxed);
        true
    }

    /// Lets the thread acquire a lock without asking again while holds go
    /// unmeasured and these bits of the lock's state do not change.
    pub(crate) fn set_lease(&self, lock: usize, with: u64) {
        self.lease.store(lock, Relaxed);
        self.leased_with.store(with, Relaxed);
    }

    /// Has the thread ask again.
    pub(crate) fn end_lease(&self) {
        self.lease.store(0, Relaxed);
    }

    /// What a hold of this length counts for, in ns and number, together with
    /// those that were skipped before it. Draws how many are to be skipped next.
    pub(crate) fn sampled(&self, held_ns: u64, now: u64, statistics: bool) -> (u64, u64) {
        let skipped = u64::from(self.unmeasured.load(Relaxed) - self.skip.load(Relaxed));
        let bits = match held_ns {
            SHORT_NS.. => 0,
            _ if statistics => UNMEASURED_BITS_COUNTED,
            _ => (UNMEASURED_NS / held_ns.max(1))
                .ilog2()
                .min(UNMEASURED_BITS),
        };
        let skip = clock::draw(now) & ((1 << bits) - 1);
        self.unmeasured.store(skip, Relaxed);
        self.skip.store(skip, Relaxed);
        (held_ns + skipped * held_ns.min(SHORT_NS), skipped + 1)
    }

    /// The group.
    pub(crate) fn gid(&self) -> u32 {
        self.gid.load(Relaxed)
    }

    /// The thread's account for a lock, if it is kept.
    pub(crate) fn account(&self, lock: usize) -> Option<&Account> {
        self.accounts.find(lock)
    }

    /// The weight, 100 if none was set.
    pub(crate) fn weight(&self) -> u32 {
        match self.weight.load(Relaxed) {
            0 => DEFAULT_WEIGHT,
            weight => weight,
        }
    }

    /// Puts the thread into a group by rule, unless a call has chosen one.
    pub(crate) fn assign(&self, gid: u32) {
        if self.chosen.load(Relaxed) == 0 {
            self.gid.store(gid, Relaxed);
        }
    }
}

/// Moves the current thread's vLHT, so that a model meets unequal threads.
#[cfg(any(loom, shuttle))]
pub fn charge_for_test(virtual_ns: u64) {
    if let Some(thread) = current() {
        thread.total.charge(virtual_ns, 0);
    }
}

/// Takes a slot and a node for each of so many threads of a model, before they
/// run: in which order they would take them is the slab's business, and is
/// checked there.
#[cfg(loom)]
pub fn seats_for_test(count: u32) {
    for _ in 0..count {
        let index = SLAB.take().expect("no more threads than slots");
        SLAB.get(index).tid.store(index, Relaxed);
        let _ = SLAB.get(index).own_node();
    }
}

/// Gives one of these slots, counted from 1, to the current thread.
#[cfg(loom)]
pub fn sit_for_test(index: u32) {
    SLOT.with(|slot| slot.set(index));
}
