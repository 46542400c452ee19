//! Statistics of hint slots and boosts.

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::{Counters, fine_bound_ns, percentile, percentile_ns};
use crate::bpf_intf::*;

/// Hint slots and boosts.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(
    desc = "hint slots and boosts, over all CPUs",
    _om_prefix = "hints_",
    _om_label = "hints"
)]
pub struct HintStats {
    #[stat(desc = "slots found for the thread that owns them")]
    pub slots_found: u64,
    #[stat(desc = "slots taken back from threads that exited")]
    pub slots_reclaimed: u64,
    #[stat(desc = "changes of a task's tier by its slot")]
    pub tier_changes: u64,
    #[stat(desc = "reads of a slot that asks for a tier without the right to it")]
    pub refused: u64,
    #[stat(desc = "reads of a task's memory that failed")]
    pub failed_reads: u64,
    #[stat(desc = "boosts of the holder of the very lock that is waited for")]
    pub boosts_lock: u64,
    #[stat(desc = "boosts of a holder of a lock in the tranche that is waited for")]
    pub boosts_tranche: u64,
    #[stat(desc = "boosts of a holder that may lead the waiter's group")]
    pub boosts_leader: u64,
    #[stat(desc = "boosts of a preempted task because a waiter spun")]
    pub boosts_rescue: u64,
    #[stat(desc = "boosts of a holder of the heavyweight lock that is waited for")]
    pub boosts_blocker: u64,
    #[stat(desc = "boosts ended by their time limit")]
    pub expired: u64,
    #[stat(desc = "runs of boosted tasks ahead of their tier")]
    pub boosted_runs: u64,
    #[stat(desc = "boosted tasks taken out of their group's queue")]
    pub fetched: u64,
    #[stat(desc = "boosted runs that a waiter ended as it woke up")]
    pub yielded: u64,
    #[stat(desc = "background tasks preempted while holding a lightweight lock or spinlock")]
    pub holders_preempted: u64,
    #[stat(desc = "those whose lock time-sensitive work waited for before they ran again")]
    pub holders_awaited: u64,
    #[stat(desc = "time-sensitive tasks preempted while holding a lightweight lock or spinlock")]
    pub ts_holders_preempted: u64,
    #[stat(desc = "slices of time-sensitive tasks that were extended because they held one")]
    pub extended: u64,
    #[stat(desc = "sleeps of time-sensitive tasks for lightweight locks")]
    pub lock_waits: u64,
    #[stat(desc = "99.9th percentile of their lengths in nanoseconds, upper bound")]
    pub lock_wait_p999_ns: u64,
    #[stat(
        desc = "their lengths: entry 4 i + j counts from 2^i (1 + j/4) ns on",
        _om_skip
    )]
    pub lock_wait_ns: Vec<u64>,
    #[stat(desc = "CPU time of boosted tasks in nanoseconds, a part of background's")]
    pub boosted_ns: u64,
    #[stat(desc = "median length of a boost in nanoseconds, upper bound")]
    pub boost_p50_ns: u64,
    #[stat(desc = "99th percentile of the lengths of boosts in nanoseconds, upper bound")]
    pub boost_p99_ns: u64,
}

impl HintStats {
    pub(super) fn new(all: &Counters) -> Self {
        Self {
            slots_found: all.get(ufs_stat_UFS_HINT_SLOT),
            slots_reclaimed: all.get(ufs_stat_UFS_HINT_RECLAIM),
            tier_changes: all.get(ufs_stat_UFS_HINT_TIER),
            refused: all.get(ufs_stat_UFS_HINT_REFUSED),
            failed_reads: all.get(ufs_stat_UFS_READ_FAIL),
            boosts_lock: all.get(ufs_stat_UFS_BOOSTS_LOCK),
            boosts_tranche: all.get(ufs_stat_UFS_BOOSTS_TRANCHE),
            boosts_leader: all.get(ufs_stat_UFS_BOOSTS_LEADER),
            boosts_rescue: all.get(ufs_stat_UFS_BOOSTS_RESCUE),
            boosts_blocker: all.get(ufs_stat_UFS_BOOSTS_BLOCKER),
            expired: all.get(ufs_stat_UFS_BOOST_EXPIRED),
            boosted_runs: all.get(ufs_stat_UFS_BOOST_RUN),
            fetched: all.get(ufs_stat_UFS_BOOST_FETCH),
            yielded: all.get(ufs_stat_UFS_BOOST_YIELD),
            holders_preempted: all.get(ufs_stat_UFS_HOLDER_PREEMPTED),
            holders_awaited: all.get(ufs_stat_UFS_HOLDER_AWAITED),
            ts_holders_preempted: all.get(ufs_stat_UFS_TS_HOLDER_PREEMPTED),
            extended: all.get(ufs_stat_UFS_EXTENDED),
            lock_waits: all.lock_wait_ns.iter().sum(),
            lock_wait_p999_ns: percentile(&all.lock_wait_ns, 999, 1000).map_or(0, fine_bound_ns),
            lock_wait_ns: all.lock_wait_ns.to_vec(),
            boosted_ns: all.boosted_ns,
            boost_p50_ns: percentile_ns(&all.boost_ns_log2, 50),
            boost_p99_ns: percentile_ns(&all.boost_ns_log2, 99),
        }
    }

    /// Boosts of every kind.
    pub(super) fn boosts(&self) -> u64 {
        self.boosts_lock
            + self.boosts_tranche
            + self.boosts_leader
            + self.boosts_rescue
            + self.boosts_blocker
    }
}
