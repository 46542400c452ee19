//! What locks and groups have seen, readable while they run.
//!
//! Counters are kept per profile, and only where the profile asks for them;
//! they are relaxed additions on slow or metered paths. A snapshot is not a
//! consistent cut: its numbers were read one after the other.

use crate::sync::{LooseU64, Relaxed, const_fn};
use crate::thread;

/// The counters of a profile.
pub(crate) struct Counters {
    pub(crate) acquisitions: LooseU64,
    pub(crate) contended: LooseU64,
    pub(crate) steals: LooseU64,
    pub(crate) timeouts: LooseU64,
    pub(crate) hold_ns: LooseU64,
    pub(crate) wait_ns: LooseU64,
    pub(crate) wait_ns_max: LooseU64,
    pub(crate) passes: LooseU64,
    pub(crate) reorders: LooseU64,
    pub(crate) gave_way: LooseU64,
    pub(crate) nobody_matched: LooseU64,
    pub(crate) idles: LooseU64,
    pub(crate) parks: LooseU64,
    pub(crate) wakes: LooseU64,
}

/// What the locks of a profile have seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Times a lock was released after a metered hold.
    pub acquisitions: u64,
    /// Times a thread had to queue.
    pub contended: u64,
    /// Times a thread took a free lock that others waited for.
    pub steals: u64,
    /// Waits that ended by their deadline.
    pub timeouts: u64,
    /// Metered hold time, ns.
    pub hold_ns: u64,
    /// Time in the queue, ns.
    pub wait_ns: u64,
    /// The longest time in the queue, ns.
    pub wait_ns_max: u64,
    /// Times a lock scheduler walked a queue.
    pub passes: u64,
    /// Waiters moved forward.
    pub reorders: u64,
    /// Times a head that had had too much let others go first.
    pub gave_way: u64,
    /// Walks over two or more waiters of which none met all criteria: they go
    /// first come, first served.
    pub nobody_matched: u64,
    /// Times a thread idled under the strict guarantee.
    pub idles: u64,
    /// Times a waiter slept.
    pub parks: u64,
    /// Times a sleeper was woken.
    pub wakes: u64,
}

/// What one thread has had of one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadShare {
    /// The kernel's thread id.
    pub tid: u32,
    /// The thread's weight.
    pub weight: u32,
    /// Metered hold time, ns.
    pub hold_ns: u64,
    /// Metered acquisitions.
    pub acquisitions: u64,
}

/// What a group has had, of all locks.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSnapshot {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Its vLHT, ns of virtual time. Only differences mean something.
    pub vlht_ns: u64,
    /// Metered hold time of its threads, ns.
    pub hold_ns: u64,
    /// Time its threads spent in queues, ns.
    pub wait_ns: u64,
    /// Metered acquisitions of its threads.
    pub acquisitions: u64,
}

/// Jain's fairness index of shares: 1 if all are equal, 1/n if one has all
/// (the paper's reference 32). 1 for no shares.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// Jain's index of hold time per weight.
pub fn jain_by_weight(shares: &[ThreadShare]) -> f64 {
    let per_weight = |share: &ThreadShare| share.hold_ns as f64 / f64::from(share.weight);
    jain(&shares.iter().map(per_weight).collect::<Vec<_>>())
}

/// What each living thread has had of the lock at this address, if the lock
/// keeps statistics or has the scope `Lock`.
pub(crate) fn shares(lock: usize) -> Vec<ThreadShare> {
    let share = |thread: &'static thread::Thread| {
        thread.account(lock).map(|account| ThreadShare {
            tid: thread.tid.load(Relaxed),
            weight: thread.weight(),
            hold_ns: account.hold_ns.load(Relaxed),
            acquisitions: account.acquisitions.load(Relaxed),
        })
    };
    thread::all().filter_map(share).collect()
}

impl Counters {
    const_fn! {
        pub(crate) fn new() -> Counters {
            Counters {
                acquisitions: LooseU64::new(0),
                contended: LooseU64::new(0),
                steals: LooseU64::new(0),
                timeouts: LooseU64::new(0),
                hold_ns: LooseU64::new(0),
                wait_ns: LooseU64::new(0),
                wait_ns_max: LooseU64::new(0),
                passes: LooseU64::new(0),
                reorders: LooseU64::new(0),
                gave_way: LooseU64::new(0),
                nobody_matched: LooseU64::new(0),
                idles: LooseU64::new(0),
                parks: LooseU64::new(0),
                wakes: LooseU64::new(0),
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            acquisitions: self.acquisitions.load(Relaxed),
            contended: self.contended.load(Relaxed),
            steals: self.steals.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            hold_ns: self.hold_ns.load(Relaxed),
            wait_ns: self.wait_ns.load(Relaxed),
            wait_ns_max: self.wait_ns_max.load(Relaxed),
            passes: self.passes.load(Relaxed),
            reorders: self.reorders.load(Relaxed),
            gave_way: self.gave_way.load(Relaxed),
            nobody_matched: self.nobody_matched.load(Relaxed),
            idles: self.idles.load(Relaxed),
            parks: self.parks.load(Relaxed),
            wakes: self.wakes.load(Relaxed),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_for_equal_shares_and_one_nth_for_a_monopoly() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }
}
