//! Virtual lock hold time.
//!
//! A hold of `d` nanoseconds moves the holder's vLHT by `d × 100 / weight`, so
//! twice the weight moves half as fast and is owed twice the time (the paper's
//! Figure 3, line 30, multiplies by the priority where its text, and CFS,
//! divide; we divide).
//!
//! Two scopes. `Thread`, the paper's: one vLHT for all locks, kept in the
//! thread. `Lock`: one per thread and lock. The latter lives in a small table
//! of the thread, or of the group, indexed by the lock's address, because a
//! lock must stay small. A full table forgets its accounts in turn, whether they are in
//! use or not; their owner is then a newcomer to that lock, and starts where newcomers
//! start (see [`criteria`](crate::criteria)): so does a group that is favoured there.
//!
//! An account is written by the holder of its lock only, hence by one thread at
//! a time, but for a table entry that is being forgotten by another lock's
//! holder in the same group: then a charge may be lost or land in the wrong
//! account, which costs a little fairness and no safety.

use crate::options::Scope;
use crate::sync::{LooseU32, LooseU64, LooseUsize, Relaxed, const_fn};

/// The weight of who does not ask for one.
pub(crate) const DEFAULT_WEIGHT: u32 = 100;

/// A measured hold, with those that it stands for.
pub(crate) struct Hold {
    /// The lock's address.
    pub(crate) lock: usize,
    pub(crate) scope: Scope,
    /// Of all of them together.
    pub(crate) ns: u64,
    pub(crate) holds: u64,
    /// When it ended, in ticks.
    pub(crate) now: u64,
}

/// What one thread, or one group, has had of one lock.
pub(crate) struct Account {
    lock: LooseUsize,
    vlht: LooseU64,
    /// What the last division left over.
    rest: LooseU32,
    /// Whether the vLHT has been compared with others' yet.
    placed: LooseU32,
    /// Metered hold time, ns, not weighted.
    pub(crate) hold_ns: LooseU64,
    pub(crate) acquisitions: LooseU64,
}

/// Adds to a number that nobody else writes at the same time.
#[inline]
pub(crate) fn add(number: &LooseU64, by: u64) {
    number.store(number.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Accounts by lock.
pub(crate) struct Accounts<const N: usize> {
    entries: [Account; N],
    /// The next entry to forget.
    hand: LooseU32,
}

macro_rules! accounts {
    ($make:expr) => {
        Accounts {
            entries: $make,
            hand: LooseU32::new(0),
        }
    };
}

macro_rules! account {
    () => {
        Account {
            lock: LooseUsize::new(0),
            vlht: LooseU64::new(0),
            rest: LooseU32::new(0),
            placed: LooseU32::new(0),
            hold_ns: LooseU64::new(0),
            acquisitions: LooseU64::new(0),
        }
    };
}

impl Account {
    const_fn! {
        pub(crate) fn zero() -> Account {
            account!()
        }
    }

    /// Moves the vLHT by a hold, for a thread or group of this weight (0 is
    /// "not set"); returns by how much, in ns. What division leaves over counts
    /// next time: short holds of heavy threads are a few ns each.
    pub(crate) fn charge(&self, held_ns: u64, weight: u32) -> u64 {
        let charge = match weight {
            0 | DEFAULT_WEIGHT => held_ns,
            _ => {
                let scaled = held_ns.saturating_mul(DEFAULT_WEIGHT.into());
                let scaled = scaled.saturating_add(self.rest.load(Relaxed).into());
                self.rest
                    .store((scaled % u64::from(weight)) as u32, Relaxed);
                scaled / u64::from(weight)
            }
        };
        add(&self.vlht, charge);
        charge
    }

    /// Starts anew.
    pub(crate) fn clear(&self) {
        self.vlht.store(0, Relaxed);
        self.placed.store(0, Relaxed);
        self.hold_ns.store(0, Relaxed);
        self.acquisitions.store(0, Relaxed);
    }

    /// The virtual lock hold time, ns.
    pub(crate) fn vlht(&self) -> u64 {
        self.vlht.load(Relaxed)
    }

    /// Whether the account has been placed, so that its vLHT can be compared with others'.
    #[inline]
    pub(crate) fn is_placed(&self) -> bool {
        self.placed.load(Relaxed) != 0
    }

    /// Whether [`place`](Self::place) with this or a greater lag may change
    /// anything.
    #[inline]
    pub(crate) fn lags(&self, reference: u64, lag: u64) -> bool {
        !self.is_placed() || self.vlht().saturating_add(lag) < reference
    }

    /// Starvation prevention (Section 3.4.3): an account that was never placed
    /// is put at `reference`, one that lags by more than `lag` at that distance
    /// from it.
    pub(crate) fn place(&self, reference: u64, lag: u64) {
        let lag = if self.is_placed() { lag } else { 0 };
        self.placed.store(1, Relaxed);
        self.vlht.fetch_max(reference.saturating_sub(lag), Relaxed);
    }
}

impl<const N: usize> Accounts<N> {
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) const fn zero() -> Self {
        accounts!([const { account!() }; N])
    }

    #[cfg(any(loom, shuttle))]
    pub(crate) fn zero() -> Self {
        accounts!(std::array::from_fn(|_| account!()))
    }

    /// The account for the lock at this address, if there is one.
    pub(crate) fn find(&self, lock: usize) -> Option<&Account> {
        self.entries
            .iter()
            .find(|entry| entry.lock.load(Relaxed) == lock)
    }

    /// The account for the lock at this address, perhaps an empty one.
    pub(crate) fn open(&self, lock: usize) -> &Account {
        if let Some(entry) = self.find(lock) {
            return entry;
        }
        let free = self
            .entries
            .iter()
            .find(|entry| entry.lock.load(Relaxed) == 0);
        let entry = free.unwrap_or_else(|| {
            let hand = self.hand.fetch_add(1, Relaxed);
            &self.entries[hand as usize % N]
        });
        entry.clear();
        entry.lock.store(lock, Relaxed);
        entry
    }

    /// Forgets all accounts.
    pub(crate) fn clear(&self) {
        for entry in &self.entries {
            entry.lock.store(0, Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn twice_the_weight_moves_half_as_fast() {
        for (weight, expected) in [
            (0, 1000),
            (100, 1000),
            (200, 500),
            (1, 100_000),
            (10_000, 10),
        ] {
            assert_eq!(Account::zero().charge(1000, weight), expected);
        }
    }

    #[test]
    fn nothing_is_lost_in_division() {
        let account = Account::zero();
        for _ in 0..9216 {
            account.charge(1000, 9216);
        }
        assert_eq!(account.vlht(), 100_000);
    }

    #[test]
    fn a_full_table_forgets_one_account_and_keeps_the_others() {
        let accounts = Accounts::<2>::zero();
        accounts.open(10).charge(1, 0);
        accounts.open(20).charge(2, 0);
        assert_eq!(accounts.open(30).vlht(), 0);
        assert!(accounts.find(10).is_none());
        assert_eq!(accounts.open(20).vlht(), 2);
    }
}
