//! Groups: threads that share one allotment of lock time (Section 3.4.2).
//!
//! A group has a weight and a vLHT of its own, which moves with every hold of
//! any of its threads. The lock scheduler favours the waiting group with the
//! lowest one, `min_gid`, and inside it the threads below the group's average.
//!
//! Departure: the paper sums the vLHT of a group's *waiting* threads. Such a sum
//! falls when a thread leaves the queue and rises when another of the same group
//! joins, so a group with more waiters looks better served than it is. We keep
//! an account per group, as CFS does per task group.
//!
//! Group 0, the root, is for threads of no group. It takes part as one group as
//! soon as another one exists; until then none of this costs anything.

use std::fmt;

use crate::account::{Account, Accounts, DEFAULT_WEIGHT, Hold};
use crate::clock;
use crate::options::Scope;
use crate::slab::{Slab, Slot};
use crate::stats::GroupSnapshot;
use crate::sync::{Acquire, AtomicU32, LooseU32, LooseU64, Relaxed, Release};

/// Groups, with the root, that can exist at a time.
const GROUPS: usize = if crate::sync::MODEL { 5 } else { 1024 };
/// Locks per group whose vLHT are told apart with [`Scope::Lock`].
const LOCKS: usize = 16;
/// Bytes kept of a name.
const NAME: usize = 64;

crate::sync::model_static! {
    static SLAB: Slab<Slotted, GROUPS> = Slab::new();
}
// Written with the lock below held; read without.
crate::sync::model_static! {
    static IN_USE: LooseU32 = LooseU32::new(0);
}
/// One maker of groups at a time.
static MAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());

struct Slotted {
    link: AtomicU32,
    weight: LooseU32,
    /// Across locks.
    total: Account,
    /// When a thread of the group last released a metered lock, in ticks.
    last: LooseU64,
    hold_ns: LooseU64,
    wait_ns: LooseU64,
    acquisitions: LooseU64,
    accounts: Accounts<LOCKS>,
    name_len: LooseU32,
    name: [LooseU64; NAME / 8],
}

macro_rules! slotted {
    ($total:expr, $accounts:expr, $name:expr) => {
        Slotted {
            link: AtomicU32::new(0),
            weight: LooseU32::new(0),
            total: $total,
            last: LooseU64::new(0),
            hold_ns: LooseU64::new(0),
            wait_ns: LooseU64::new(0),
            acquisitions: LooseU64::new(0),
            accounts: $accounts,
            name_len: LooseU32::new(0),
            name: $name,
        }
    };
}

impl Slot for Slotted {
    #[cfg(not(any(loom, shuttle)))]
    const ZERO: Slotted = slotted!(
        Account::zero(),
        Accounts::zero(),
        [const { LooseU64::new(0) }; NAME / 8]
    );
    #[cfg(any(loom, shuttle))]
    fn zero() -> Slotted {
        slotted!(
            Account::zero(),
            Accounts::zero(),
            std::array::from_fn(|_| LooseU64::new(0))
        )
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

/// Why a group could not be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The name is unusable.
    #[error("group name '{0}' is empty or longer than {NAME} bytes; choose another")]
    Name(String),
    /// The weight is out of range.
    #[error("weight {0} is not a whole number from 1 to 10000")]
    Weight(u32),
    /// There is no room for another group.
    #[error("there are {0} groups already; use fewer, or put threads together")]
    TooMany(usize),
}

/// A handle to a group. Groups live as long as the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group(u32);

impl Group {
    /// The threads of no group.
    pub const ROOT: Group = Group(0);

    /// The group with this name (1 to 64 bytes), made with weight 100 if there
    /// is none yet.
    ///
    /// # Errors
    /// If the name is unusable or there are too many groups.
    pub fn new(name: &str) -> Result<Group, GroupError> {
        if name.is_empty() || name.len() > NAME {
            return Err(GroupError::Name(name.to_owned()));
        }
        let _making = MAKING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(group) = Group::find(name) {
            return Ok(group);
        }
        let gid = SLAB.take().ok_or(GroupError::TooMany(GROUPS - 1))?;
        let slot = SLAB.get(gid);
        slot.weight.store(DEFAULT_WEIGHT, Relaxed);
        for (word, bytes) in slot.name.iter().zip(name.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        slot.name_len.store(name.len() as u32, Release);
        IN_USE.store(gid.max(IN_USE.load(Relaxed)), Release);
        Ok(Group(gid))
    }

    /// Sets the weight, 1 to 10000, in the units of cgroup v2's `cpu.weight`.
    /// Takes effect with the next release of a lock.
    ///
    /// # Errors
    /// If the weight is out of range.
    pub fn weight(self, weight: u32) -> Result<Group, GroupError> {
        if !(1..=10_000).contains(&weight) {
            return Err(GroupError::Weight(weight));
        }
        SLAB.get(self.0).weight.store(weight, Relaxed);
        Ok(self)
    }

    /// The group with this name, if there is one.
    pub fn find(name: &str) -> Option<Group> {
        Group::all().find(|group| group.name() == name)
    }

    /// All groups but the root.
    pub fn all() -> impl Iterator<Item = Group> {
        (1..=IN_USE.load(Acquire)).map(Group)
    }

    /// The name; `root` for the root.
    pub fn name(self) -> String {
        let slot = SLAB.get(self.0);
        let len = slot.name_len.load(Acquire) as usize;
        if self.0 == 0 {
            return "root".to_owned();
        }
        let words = slot
            .name
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes());
        let bytes: Vec<u8> = words.take(len).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What the group has had so far.
    pub fn statistics(self) -> GroupSnapshot {
        let slot = SLAB.get(self.0);
        GroupSnapshot {
            name: self.name(),
            weight: weight(self.0),
            vlht_ns: slot.total.vlht(),
            hold_ns: slot.hold_ns.load(Relaxed),
            wait_ns: slot.wait_ns.load(Relaxed),
            acquisitions: slot.acquisitions.load(Relaxed),
        }
    }

    pub(crate) fn gid(self) -> u32 {
        self.0
    }

    pub(crate) fn from_gid(gid: u32) -> Group {
        Group(gid)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({})", self.name())
    }
}

/// Whether there is a group besides the root.
#[inline]
pub(crate) fn in_use() -> bool {
    IN_USE.load(Relaxed) != 0
}

/// The weight of a group.
#[inline]
pub(crate) fn weight(gid: u32) -> u32 {
    match SLAB.get(gid).weight.load(Relaxed) {
        0 => DEFAULT_WEIGHT,
        weight => weight,
    }
}

/// The vLHT of a group, ns of virtual time, as this lock sees it; `None` if it has
/// forgotten the group, or has not met it yet.
pub(crate) fn vlht(gid: u32, lock: usize, scope: Scope) -> Option<u64> {
    let slot = SLAB.get(gid);
    match scope {
        Scope::Thread => Some(slot.total.vlht()),
        Scope::Lock => placed_vlht(slot.accounts.find(lock)?),
    }
}

fn placed_vlht(account: &Account) -> Option<u64> {
    account.is_placed().then(|| account.vlht())
}

/// The vLHT of the groups but this one that this lock can compare, and when a thread of
/// each last released a metered lock, in ticks.
pub(crate) fn others(
    gid: u32,
    lock: usize,
    scope: Scope,
) -> impl Iterator<Item = (u64, clock::Ticks)> {
    let all = 0..=IN_USE.load(Acquire);
    all.filter(move |&other| other != gid)
        .filter_map(move |other| {
            let slot = SLAB.get(other);
            let account = match scope {
                Scope::Thread => &slot.total,
                Scope::Lock => slot.accounts.find(lock)?,
            };
            Some((placed_vlht(account)?, last_seen(other)))
        })
}

/// When a thread of the group last released a metered lock, in ticks; 0 if none has.
pub(crate) fn last_seen(gid: u32) -> clock::Ticks {
    SLAB.get(gid).last.load(Relaxed)
}

/// Enters a hold of one of the group's threads. The caller holds the lock.
pub(crate) fn charge(gid: u32, hold: &Hold) {
    let slot = SLAB.get(gid);
    account_for(gid, hold.lock, hold.scope).charge(hold.ns, slot.weight.load(Relaxed));
    slot.hold_ns.fetch_add(hold.ns, Relaxed);
    slot.acquisitions.fetch_add(hold.holds, Relaxed);
    slot.last.store(hold.now, Relaxed);
}

/// Enters a wait of one of the group's threads.
pub(crate) fn waited(gid: u32, wait_ns: u64) {
    SLAB.get(gid).wait_ns.fetch_add(wait_ns, Relaxed);
}

/// The account that decides at this lock.
pub(crate) fn account_for(gid: u32, lock: usize, scope: Scope) -> &'static Account {
    let slot = SLAB.get(gid);
    match scope {
        Scope::Thread => &slot.total,
        Scope::Lock => slot.accounts.open(lock),
    }
}
