//! Statistics by cgroup, and by thread that has a hint slot.

use giveway_tier::Tier;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::counters::percentile_ns;
use crate::snapshot::{Cgroup, Thread};

/// One cgroup.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(
    desc = "one cgroup, its own tasks only, by its number",
    _om_prefix = "cgroup_",
    _om_label = "cgroup"
)]
pub struct CgroupStats {
    #[stat(desc = "path; names of more than 31 bytes are cut", _om_skip)]
    pub path: String,
    #[stat(desc = "tier of its tasks that have no hint slot", _om_skip)]
    pub tier: String,
    #[stat(desc = "cpu.weight")]
    pub weight: u64,
    #[stat(desc = "times that it was throttled: it had used up its cpu.max")]
    pub throttles: u64,
    #[stat(desc = "time for which it was throttled in nanoseconds")]
    pub throttled_ns: u64,
    #[stat(desc = "CPU time of its time-sensitive tasks in nanoseconds")]
    pub time_sensitive_ns: u64,
    #[stat(desc = "CPU time of its background tasks in nanoseconds")]
    pub background_ns: u64,
    #[stat(desc = "involuntary context switches of its tasks")]
    pub preempted: u64,
    #[stat(desc = "boosted runs: urgent work waited for a lock of the task")]
    pub boosted_runs: u64,
    #[stat(desc = "runs because the task had waited for the floor's deadline")]
    pub floor_runs: u64,
    #[stat(desc = "median of the times from wake-up to run in nanoseconds, upper bound")]
    pub wake_to_run_p50_ns: u64,
    #[stat(desc = "99th percentile of the times from wake-up to run in nanoseconds, upper bound")]
    pub wake_to_run_p99_ns: u64,
    #[stat(
        desc = "times from wake-up to run: entry i counts 2^i to 2^(i+1) ns",
        _om_skip
    )]
    pub wake_to_run_log2_ns: Vec<u64>,
}

/// One thread that has a hint slot.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(
    desc = "one thread that has a hint slot, since it got it, by number of the slot",
    _om_prefix = "thread_",
    _om_label = "slot"
)]
pub struct ThreadStats {
    #[stat(desc = "its number in the pid namespace of scx_ufs", _om_skip)]
    pub tid: u64,
    #[stat(desc = "its tier when it last left a CPU", _om_skip)]
    pub tier: String,
    #[stat(desc = "CPU time while time-sensitive in nanoseconds")]
    pub time_sensitive_ns: u64,
    #[stat(desc = "CPU time while background in nanoseconds")]
    pub background_ns: u64,
    #[stat(desc = "involuntary context switches")]
    pub preempted: u64,
    #[stat(desc = "boosted runs: urgent work waited for a lock of the thread")]
    pub boosted_runs: u64,
    #[stat(desc = "runs because it had waited for the floor's deadline")]
    pub floor_runs: u64,
    #[stat(desc = "median of its times from wake-up to run in nanoseconds, upper bound")]
    pub wake_to_run_p50_ns: u64,
    #[stat(desc = "99th percentile of its times from wake-up to run in nanoseconds, upper bound")]
    pub wake_to_run_p99_ns: u64,
    #[stat(
        desc = "times from wake-up to run: entry i counts 2^i to 2^(i+1) ns",
        _om_skip
    )]
    pub wake_to_run_log2_ns: Vec<u64>,
}

impl CgroupStats {
    pub(super) fn new(cgroup: &Cgroup) -> Self {
        let work = &cgroup.work;
        Self {
            path: cgroup.path.clone(),
            tier: cgroup.tier.to_string(),
            weight: cgroup.weight.into(),
            throttles: cgroup.throttles,
            throttled_ns: cgroup.throttled_ns,
            time_sensitive_ns: work.run_ns[Tier::TimeSensitive as usize],
            background_ns: work.run_ns[Tier::Background as usize],
            preempted: work.preempted,
            boosted_runs: work.boosted_runs,
            floor_runs: work.floor_runs,
            wake_to_run_p50_ns: percentile_ns(&work.wake_ns_log2, 50),
            wake_to_run_p99_ns: percentile_ns(&work.wake_ns_log2, 99),
            wake_to_run_log2_ns: work.wake_ns_log2.to_vec(),
        }
    }
}

impl ThreadStats {
    pub(super) fn new(thread: &Thread) -> Self {
        let work = &thread.work;
        Self {
            tid: thread.tid.into(),
            tier: thread.tier.to_string(),
            time_sensitive_ns: work.run_ns[Tier::TimeSensitive as usize],
            background_ns: work.run_ns[Tier::Background as usize],
            preempted: work.preempted,
            boosted_runs: work.boosted_runs,
            floor_runs: work.floor_runs,
            wake_to_run_p50_ns: percentile_ns(&work.wake_ns_log2, 50),
            wake_to_run_p99_ns: percentile_ns(&work.wake_ns_log2, 99),
            wake_to_run_log2_ns: work.wake_ns_log2.to_vec(),
        }
    }
}
