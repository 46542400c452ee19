//! What the BPF program counts, as numbers: of CPUs, and of the tasks of a group or a
//! slot; and what is read off its histograms.

// The header has an enum of that name, too.
use ::giveway_tier::Tier;

use crate::bpf_intf::*;

pub(crate) const BUCKETS: usize = ufs_limits_UFS_HIST_BUCKETS as usize;
pub(crate) const FINE_BUCKETS: usize = ufs_limits_UFS_FINE_BUCKETS as usize;

/// The counters of one CPU, or the sum of several.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    /// Indexed by `enum ufs_stat`.
    pub count: [u64; ufs_stat_UFS_STAT_SLOTS as usize],
    /// Indexed by tier.
    pub run_ns: [u64; 2],
    /// Sums of the times from wake-up to run, indexed by tier.
    pub wake_ns: [u64; 2],
    /// Indexed by tier and bucket.
    pub wake_ns_log2: [[u64; BUCKETS]; 2],
    pub boosted_ns: u64,
    /// Indexed by bucket.
    pub boost_ns_log2: [u64; BUCKETS],
    /// Indexed by bucket, four to an octave.
    pub lock_wait_ns: [u64; FINE_BUCKETS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            count: [0; ufs_stat_UFS_STAT_SLOTS as usize],
            run_ns: [0; 2],
            wake_ns: [0; 2],
            wake_ns_log2: [[0; BUCKETS]; 2],
            boosted_ns: 0,
            boost_ns_log2: [0; BUCKETS],
            lock_wait_ns: [0; FINE_BUCKETS],
        }
    }
}

impl Counters {
    /// Adds `other`, field by field.
    pub(crate) fn add(&mut self, other: &Counters) {
        for (sum, n) in self.count.iter_mut().zip(other.count) {
            *sum += n;
        }
        self.boosted_ns += other.boosted_ns;
        for (sum, n) in self.boost_ns_log2.iter_mut().zip(other.boost_ns_log2) {
            *sum += n;
        }
        for (sum, n) in self.lock_wait_ns.iter_mut().zip(other.lock_wait_ns) {
            *sum += n;
        }
        for tier in 0..2 {
            self.run_ns[tier] += other.run_ns[tier];
            self.wake_ns[tier] += other.wake_ns[tier];
            for (sum, n) in self.wake_ns_log2[tier]
                .iter_mut()
                .zip(other.wake_ns_log2[tier])
            {
                *sum += n;
            }
        }
    }

    pub(crate) fn get(&self, stat: ufs_stat) -> u64 {
        self.count[stat as usize]
    }

    /// A counter of `tier`, where that of the background is `background` and
    /// that of the other tier is the next.
    pub(crate) fn of_tier(&self, background: ufs_stat, tier: Tier) -> u64 {
        self.count[background as usize + tier as usize]
    }

    pub(crate) fn floor_runs(&self) -> u64 {
        let of = |tier| self.of_tier(ufs_stat_UFS_BG_FLOOR_RUN, tier);
        Tier::ALL.into_iter().map(of).sum()
    }
}

/// What some tasks did and got, as the BPF program counts it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Indexed by tier.
    pub run_ns: [u64; 2],
    pub preempted: u64,
    pub boosted_runs: u64,
    pub floor_runs: u64,
    /// Indexed by bucket.
    pub wake_ns_log2: [u64; BUCKETS],
}

impl Work {
    /// Adds `other`, field by field.
    pub(crate) fn add(&mut self, other: &Work) {
        for (sum, n) in self.run_ns.iter_mut().zip(other.run_ns) {
            *sum += n;
        }
        self.preempted += other.preempted;
        self.boosted_runs += other.boosted_runs;
        self.floor_runs += other.floor_runs;
        for (sum, n) in self.wake_ns_log2.iter_mut().zip(other.wake_ns_log2) {
            *sum += n;
        }
    }
}

/// The bucket in which `part` of `whole` of everything counted is reached; none
/// of nothing.
pub(crate) fn percentile(buckets: &[u64], part: u64, whole: u64) -> Option<usize> {
    let total: u64 = buckets.iter().sum();
    let wanted = (total * part).div_ceil(whole).max(1);
    let mut seen = 0;
    buckets.iter().position(|n| {
        seen += n;
        seen >= wanted
    })
}

/// Upper bound of the bucket in which the `percent`-th percentile lies.
pub(crate) fn percentile_ns(buckets: &[u64], percent: u64) -> u64 {
    percentile(buckets, percent, 100).map_or(0, |bucket| 1 << (bucket + 1))
}

/// Upper bound of a bucket of those that are four to an octave.
pub(crate) fn fine_bound_ns(bucket: usize) -> u64 {
    let (octave, quarter) = (bucket / 4, bucket as u64 % 4);
    (5 + quarter) << octave >> 2
}
