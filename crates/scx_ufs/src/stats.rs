//! Statistics: what the BPF program counts, with descriptions, on the socket
//! that the scx tools know.
//!
//! All counters are totals since UFS was loaded, so that any reader may sample at any
//! interval; `--monitor` prints the differences between its samples. Counters are read
//! while CPUs write them: the counters of a sample may disagree by a few events, but no
//! counter decreases.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
// The header has an enum of that name, too.
use ::giveway_tier::Tier;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::bpf_intf::*;
use crate::counters::{Counters, fine_bound_ns, percentile, percentile_ns};
use crate::snapshot::Snapshot;

mod callbacks;
mod hints;
mod work;

pub(crate) use callbacks::CallbackStats;
pub(crate) use hints::HintStats;
pub(crate) use work::{CgroupStats, ThreadStats};

/// One tier.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(
    desc = "one tier, over all CPUs",
    _om_prefix = "tier_",
    _om_label = "tier"
)]
pub struct TierStats {
    #[stat(desc = "wake-ups that found an idle CPU")]
    pub wake_idle: u64,
    #[stat(desc = "wake-ups that preempted background work")]
    pub wake_preempt_background: u64,
    #[stat(desc = "wake-ups that preempted a time-sensitive task ahead in virtual runtime")]
    pub wake_preempt_time_sensitive: u64,
    #[stat(desc = "wake-ups for which the CPU's task was not preempted, but nothing else waited")]
    pub wake_next: u64,
    #[stat(desc = "wake-ups that had to queue")]
    pub wake_queued: u64,
    #[stat(desc = "tasks taken from a queue by a CPU that needed work")]
    pub dispatches: u64,
    #[stat(desc = "those of them that came from another CPU's queue")]
    pub steals: u64,
    #[stat(desc = "slices renewed because no waiting task was further behind")]
    pub keeps: u64,
    #[stat(desc = "virtual runtimes raised to the clock minus the largest lag allowed")]
    pub clamps: u64,
    #[stat(desc = "CPU time in nanoseconds")]
    pub run_ns: u64,
    #[stat(desc = "involuntary context switches of its tasks")]
    pub preempted: u64,
    #[stat(desc = "boosted runs: urgent work waited for a lock of the task")]
    pub boosted_runs: u64,
    #[stat(desc = "runs because the task had waited for the floor's deadline")]
    pub floor_runs: u64,
    #[stat(desc = "sum of the times from wake-up to run in nanoseconds")]
    pub wake_to_run_ns: u64,
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

/// One CPU.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one CPU", _om_prefix = "cpu_", _om_label = "cpu")]
pub struct CpuStats {
    #[stat(desc = "CPU time of time-sensitive tasks in nanoseconds")]
    pub time_sensitive_ns: u64,
    #[stat(desc = "CPU time of background tasks in nanoseconds")]
    pub background_ns: u64,
    #[stat(desc = "time-sensitive wake-ups handled here, wherever the task went")]
    pub wakes: u64,
    #[stat(desc = "preemptions that this CPU asked for")]
    pub preemptions: u64,
    #[stat(desc = "time-sensitive tasks taken from a queue")]
    pub dispatches: u64,
    #[stat(desc = "those of them that came from another CPU's queue")]
    pub steals: u64,
    #[stat(desc = "background tasks taken from the runnable tree")]
    pub background_dispatches: u64,
    #[stat(desc = "overdue tasks run")]
    pub floor_runs: u64,
    #[stat(desc = "involuntary context switches on this CPU")]
    pub preempted: u64,
    #[stat(desc = "boosted tasks run")]
    pub boosted_runs: u64,
    #[stat(desc = "median of the times from wake-up to run here in nanoseconds, upper bound")]
    pub wake_to_run_p50_ns: u64,
    #[stat(
        desc = "99th percentile of the times from wake-up to run here in nanoseconds, upper bound"
    )]
    pub wake_to_run_p99_ns: u64,
    #[stat(
        desc = "times from wake-up to run: entry i counts 2^i to 2^(i+1) ns",
        _om_skip
    )]
    pub wake_to_run_log2_ns: Vec<u64>,
}

/// Everything.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "UFS, totals since it was loaded", top)]
pub struct Metrics {
    #[stat(desc = "CPUs in use")]
    pub nr_cpus: u64,
    #[stat(desc = "cgroups known to UFS")]
    pub nr_cgroups: u64,
    #[stat(desc = "cgroups that count as their parent because too many exist")]
    pub nr_cgroup_overflows: u64,
    #[stat(desc = "moves of a task to another cgroup")]
    pub nr_cgroup_moves: u64,
    #[stat(desc = "changes of cpu.weight")]
    pub nr_weight_changes: u64,
    #[stat(desc = "changes of cpu.max")]
    pub nr_limit_changes: u64,
    #[stat(desc = "times that a cgroup was throttled: it had used up its cpu.max")]
    pub nr_throttles: u64,
    #[stat(desc = "tasks throttled for cpu.max")]
    pub nr_parked: u64,
    #[stat(desc = "throttled tasks that had to be preempted first, since they were queued before")]
    pub nr_parked_late: u64,
    #[stat(desc = "background CPUs taken after the wake-up itself found none")]
    pub nr_late_preemptions: u64,
    #[stat(desc = "tasks queued again since a task of a higher class has taken their CPU")]
    pub nr_handed_back: u64,
    #[stat(desc = "time-sensitive wake-ups on a core that runs other time-sensitive work")]
    pub nr_shared_cores: u64,
    #[stat(desc = "tasks moved at the end of a slice to a core without time-sensitive work")]
    pub nr_moved_apart: u64,
    #[stat(desc = "time-sensitive wake-ups that left their last-level cache")]
    pub nr_left_llc: u64,
    #[stat(desc = "time-sensitive wake-ups that left their NUMA node")]
    pub nr_left_node: u64,
    #[stat(desc = "groups of the runnable tree found without tasks")]
    pub nr_tree_empty: u64,
    #[stat(desc = "looks at the queue of a group that had no task for the CPU")]
    pub nr_tree_ineligible: u64,
    #[stat(desc = "tasks that waited until the floor's deadline")]
    pub nr_floor_moves: u64,
    #[stat(desc = "runs given to such tasks")]
    pub nr_floor_runs: u64,
    #[stat(desc = "runs given to such tasks beyond the floor's share")]
    pub nr_floor_hurried: u64,
    #[stat(desc = "walks of the queue of such tasks that found none for the CPU")]
    pub nr_floor_misses: u64,
    #[stat(desc = "CPUs that UFS takes to be idle now")]
    pub nr_idle_cpus: u64,
    #[stat(desc = "tasks re-queued because their CPU had no other")]
    pub nr_enq_last: u64,
    #[stat(desc = "idle CPUs that the timer woke although work was waiting")]
    pub nr_rescue_kicks: u64,
    #[stat(desc = "callbacks for tasks without a context, treated as time-sensitive")]
    pub nr_no_context: u64,
    #[stat(desc = "counts of waiting tasks or throttled cgroups found below 0: a bug in UFS")]
    pub nr_broken_counts: u64,
    #[stat(desc = "CPUs found marked as running background work while they do not: a bug in UFS")]
    pub nr_broken_bg_cpus: u64,
    #[stat(desc = "locks read of a task that is not the current one: a bug in UFS")]
    pub nr_broken_snapshots: u64,
    #[stat(desc = "groups whose node was found lost or twice in the tree: a bug in UFS")]
    pub nr_broken_trees: u64,
    #[stat(desc = "throttled cgroups whose timer could not be set: a bug in UFS")]
    pub nr_broken_throttles: u64,
    #[stat(desc = "hint slots and boosts")]
    pub hints: HintStats,
    #[stat(desc = "by callback, while the kernel times BPF programs (kernel.bpf_stats_enabled)")]
    pub callbacks: BTreeMap<String, CallbackStats>,
    #[stat(desc = "by tier")]
    pub tiers: BTreeMap<String, TierStats>,
    #[stat(desc = "by CPU")]
    pub cpus: BTreeMap<u32, CpuStats>,
    #[stat(desc = "by number of the cgroup")]
    pub cgroups: BTreeMap<u64, CgroupStats>,
    #[stat(desc = "threads that have a hint slot, by number of the slot")]
    pub threads: BTreeMap<u32, ThreadStats>,
}

impl TierStats {
    fn new(tier: Tier, all: &Counters) -> Self {
        let buckets = all.wake_ns_log2[tier as usize].to_vec();
        let common = Self {
            run_ns: all.run_ns[tier as usize],
            wake_to_run_ns: all.wake_ns[tier as usize],
            preempted: all.of_tier(ufs_stat_UFS_BG_PREEMPTED, tier),
            floor_runs: all.of_tier(ufs_stat_UFS_BG_FLOOR_RUN, tier),
            wake_to_run_p50_ns: percentile_ns(&buckets, 50),
            wake_to_run_p99_ns: percentile_ns(&buckets, 99),
            wake_to_run_log2_ns: buckets,
            ..Self::default()
        };
        match tier {
            Tier::TimeSensitive => Self {
                wake_idle: all.get(ufs_stat_UFS_TS_WAKE_IDLE),
                wake_preempt_background: all.get(ufs_stat_UFS_TS_WAKE_PREEMPT_BG),
                wake_preempt_time_sensitive: all.get(ufs_stat_UFS_TS_WAKE_PREEMPT_TS),
                wake_next: all.get(ufs_stat_UFS_TS_WAKE_NEXT),
                wake_queued: all.get(ufs_stat_UFS_TS_WAKE_QUEUED),
                dispatches: all.get(ufs_stat_UFS_TS_DISPATCH),
                steals: all.get(ufs_stat_UFS_TS_STEAL),
                keeps: all.get(ufs_stat_UFS_TS_KEEP),
                clamps: all.get(ufs_stat_UFS_TS_CLAMP),
                ..common
            },
            Tier::Background => Self {
                wake_idle: all.get(ufs_stat_UFS_BG_WAKE_IDLE),
                wake_next: all.get(ufs_stat_UFS_BG_WAKE_NEXT),
                wake_queued: all.get(ufs_stat_UFS_BG_WAKE_QUEUED),
                dispatches: all.get(ufs_stat_UFS_BG_DISPATCH),
                keeps: all.get(ufs_stat_UFS_BG_KEEP),
                clamps: all.get(ufs_stat_UFS_BG_CLAMP),
                boosted_runs: all.get(ufs_stat_UFS_BOOST_RUN),
                ..common
            },
        }
    }

    fn since(&self, before: &Self) -> Self {
        let buckets: Vec<u64> = self
            .wake_to_run_log2_ns
            .iter()
            .enumerate()
            .map(|(i, n)| n - before.wake_to_run_log2_ns.get(i).unwrap_or(&0))
            .collect();
        Self {
            wake_idle: self.wake_idle - before.wake_idle,
            wake_preempt_background: self.wake_preempt_background - before.wake_preempt_background,
            wake_preempt_time_sensitive: self.wake_preempt_time_sensitive
                - before.wake_preempt_time_sensitive,
            wake_next: self.wake_next - before.wake_next,
            wake_queued: self.wake_queued - before.wake_queued,
            dispatches: self.dispatches - before.dispatches,
            steals: self.steals - before.steals,
            keeps: self.keeps - before.keeps,
            clamps: self.clamps - before.clamps,
            run_ns: self.run_ns - before.run_ns,
            wake_to_run_ns: self.wake_to_run_ns - before.wake_to_run_ns,
            preempted: self.preempted - before.preempted,
            boosted_runs: self.boosted_runs - before.boosted_runs,
            floor_runs: self.floor_runs - before.floor_runs,
            wake_to_run_p50_ns: percentile_ns(&buckets, 50),
            wake_to_run_p99_ns: percentile_ns(&buckets, 99),
            wake_to_run_log2_ns: buckets,
        }
    }
}

impl Metrics {
    /// Metrics of what was seen.
    pub(crate) fn new(seen: &Snapshot) -> Self {
        let mut all = Counters::default();
        for counters in seen.cpus.values() {
            all.add(counters);
        }
        Self {
            nr_cpus: seen.cpus.len() as u64,
            nr_cgroups: seen.nr_cgroups,
            nr_cgroup_overflows: all.get(ufs_stat_UFS_GROUP_OVERFLOW),
            nr_cgroup_moves: all.get(ufs_stat_UFS_CGROUP_MOVE),
            nr_weight_changes: all.get(ufs_stat_UFS_WEIGHT_CHANGE),
            nr_limit_changes: all.get(ufs_stat_UFS_LIMIT_CHANGE),
            nr_throttles: all.get(ufs_stat_UFS_THROTTLE),
            nr_parked: all.get(ufs_stat_UFS_THROTTLED_TASK),
            nr_parked_late: all.get(ufs_stat_UFS_THROTTLED_LATE),
            nr_late_preemptions: all.get(ufs_stat_UFS_LATE_PREEMPT),
            nr_handed_back: all.get(ufs_stat_UFS_HANDED_BACK),
            nr_shared_cores: all.get(ufs_stat_UFS_TS_SHARED_CORE),
            nr_moved_apart: all.get(ufs_stat_UFS_MOVED_APART),
            nr_left_llc: all.get(ufs_stat_UFS_TS_LEFT_LLC),
            nr_left_node: all.get(ufs_stat_UFS_TS_LEFT_NODE),
            nr_tree_empty: all.get(ufs_stat_UFS_TREE_EMPTY),
            nr_tree_ineligible: all.get(ufs_stat_UFS_TREE_INELIGIBLE),
            nr_floor_moves: all.get(ufs_stat_UFS_FLOOR_MOVE),
            nr_floor_runs: all.floor_runs(),
            nr_floor_hurried: all.get(ufs_stat_UFS_FLOOR_HURRIED),
            nr_floor_misses: all.get(ufs_stat_UFS_FLOOR_MISS),
            nr_idle_cpus: seen.nr_idle_cpus,
            nr_enq_last: all.get(ufs_stat_UFS_ENQ_LAST),
            nr_rescue_kicks: all.get(ufs_stat_UFS_RESCUE_KICK),
            nr_no_context: all.get(ufs_stat_UFS_NO_CTX),
            nr_broken_counts: all.get(ufs_stat_UFS_BROKEN_COUNT),
            nr_broken_bg_cpus: all.get(ufs_stat_UFS_BROKEN_BG_CPU),
            nr_broken_snapshots: all.get(ufs_stat_UFS_BROKEN_SNAPSHOT),
            nr_broken_trees: all.get(ufs_stat_UFS_BROKEN_TREE),
            nr_broken_throttles: all.get(ufs_stat_UFS_BROKEN_THROTTLE),
            hints: HintStats::new(&all),
            callbacks: callbacks::measured(),
            tiers: Tier::ALL
                .into_iter()
                .map(|tier| (tier.to_string(), TierStats::new(tier, &all)))
                .collect(),
            cpus: seen
                .cpus
                .iter()
                .map(|(&cpu, counters)| (cpu, CpuStats::new(counters)))
                .collect(),
            cgroups: seen
                .cgroups
                .iter()
                .map(|cgroup| (cgroup.id, CgroupStats::new(cgroup)))
                .collect(),
            threads: seen
                .threads
                .iter()
                .map(|(&slot, thread)| (slot, ThreadStats::new(thread)))
                .collect(),
        }
    }

    fn print<W: Write>(&self, before: &Self, out: &mut W) -> Result<()> {
        let busy_ns: u64 = self.tiers.values().map(|tier| tier.run_ns).sum();
        let busy_before_ns: u64 = before.tiers.values().map(|tier| tier.run_ns).sum();
        writeln!(
            out,
            "[ufs] cpus {} cgroups {} busy {:.3} s floor {} late {} ineligible {} rescued {}",
            self.nr_cpus,
            self.nr_cgroups,
            (busy_ns - busy_before_ns) as f64 / 1e9,
            self.nr_floor_runs - before.nr_floor_runs,
            self.nr_late_preemptions - before.nr_late_preemptions,
            self.nr_tree_ineligible - before.nr_tree_ineligible,
            self.nr_rescue_kicks - before.nr_rescue_kicks,
        )?;
        if self.nr_throttles > before.nr_throttles {
            writeln!(
                out,
                "  cpu.max: throttled {} tasks {}, {} of them late",
                self.nr_throttles - before.nr_throttles,
                self.nr_parked - before.nr_parked,
                self.nr_parked_late - before.nr_parked_late,
            )?;
        }
        let (hints, old) = (&self.hints, &before.hints);
        if hints.slots_found > 0 {
            writeln!(
                out,
                "  hints: tier changes {} | holders preempted {} awaited {} | boosts {} runs {} \
                 for {:.3} s, expired {} | failed reads {}",
                hints.tier_changes - old.tier_changes,
                hints.holders_preempted - old.holders_preempted,
                hints.holders_awaited - old.holders_awaited,
                hints.boosts() - old.boosts(),
                hints.boosted_runs - old.boosted_runs,
                (hints.boosted_ns - old.boosted_ns) as f64 / 1e9,
                hints.expired - old.expired,
                hints.failed_reads - old.failed_reads,
            )?;
        }
        for (name, now) in &self.tiers {
            let none = TierStats::default();
            let tier = now.since(before.tiers.get(name).unwrap_or(&none));
            writeln!(
                out,
                "  {name:>14}: run {:.3} s | wake idle {} over-bg {} over-ts {} next {} queued {} | \
                 dispatch {} steal {} keep {} | wake-to-run p50 {} us p99 {} us",
                tier.run_ns as f64 / 1e9,
                tier.wake_idle,
                tier.wake_preempt_background,
                tier.wake_preempt_time_sensitive,
                tier.wake_next,
                tier.wake_queued,
                tier.dispatches,
                tier.steals,
                tier.keeps,
                tier.wake_to_run_p50_ns / 1000,
                tier.wake_to_run_p99_ns / 1000,
            )?;
        }
        Ok(())
    }
}

impl CpuStats {
    fn new(counters: &Counters) -> Self {
        let [background, time_sensitive] = &counters.wake_ns_log2;
        let both = background.iter().zip(time_sensitive);
        let wakes: Vec<u64> = both.map(|(b, t)| b + t).collect();
        Self {
            time_sensitive_ns: counters.run_ns[Tier::TimeSensitive as usize],
            background_ns: counters.run_ns[Tier::Background as usize],
            wakes: counters.get(ufs_stat_UFS_TS_WAKE_IDLE)
                + counters.get(ufs_stat_UFS_TS_WAKE_PREEMPT_BG)
                + counters.get(ufs_stat_UFS_TS_WAKE_PREEMPT_TS)
                + counters.get(ufs_stat_UFS_TS_WAKE_NEXT)
                + counters.get(ufs_stat_UFS_TS_WAKE_QUEUED),
            preemptions: counters.get(ufs_stat_UFS_TS_WAKE_PREEMPT_BG)
                + counters.get(ufs_stat_UFS_TS_WAKE_PREEMPT_TS)
                + counters.get(ufs_stat_UFS_LATE_PREEMPT),
            dispatches: counters.get(ufs_stat_UFS_TS_DISPATCH),
            steals: counters.get(ufs_stat_UFS_TS_STEAL),
            background_dispatches: counters.get(ufs_stat_UFS_BG_DISPATCH),
            floor_runs: counters.floor_runs(),
            preempted: Tier::ALL
                .into_iter()
                .map(|tier| counters.of_tier(ufs_stat_UFS_BG_PREEMPTED, tier))
                .sum(),
            boosted_runs: counters.get(ufs_stat_UFS_BOOST_RUN),
            wake_to_run_p50_ns: percentile_ns(&wakes, 50),
            wake_to_run_p99_ns: percentile_ns(&wakes, 99),
            wake_to_run_log2_ns: wakes,
        }
    }
}

/// What the statistics server serves: one request is one sample.
pub(crate) fn server_data() -> StatsServerData<(), Metrics> {
    let open: Box<dyn StatsOpener<(), Metrics>> = Box::new(move |_| {
        let read: Box<dyn StatsReader<(), Metrics>> = Box::new(|_args, (request, answer)| {
            request.send(())?;
            answer.recv()?.to_json()
        });
        Ok(read)
    });
    StatsServerData::new()
        .add_meta(TierStats::meta())
        .add_meta(CpuStats::meta())
        .add_meta(HintStats::meta())
        .add_meta(CallbackStats::meta())
        .add_meta(CgroupStats::meta())
        .add_meta(ThreadStats::meta())
        .add_meta(Metrics::meta())
        .add_ops("top", StatsOps { open, close: None })
}

/// Prints the differences between samples taken every `interval`, until
/// `shutdown` or until its output is closed.
pub(crate) fn monitor(interval: Duration, shutdown: Arc<AtomicBool>) -> Result<()> {
    let mut before = Metrics::default();
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || shutdown.load(Ordering::Relaxed),
        |now| {
            // UFS was restarted: its totals began anew.
            if now.tiers.iter().any(|(name, tier)| {
                before
                    .tiers
                    .get(name)
                    .is_some_and(|old| tier.run_ns < old.run_ns)
            }) {
                before = Metrics::default();
            }
            now.print(&before, &mut std::io::stdout())?;
            before = now;
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{BUCKETS, FINE_BUCKETS, Work};
    use crate::snapshot::{Cgroup, Thread};

    #[test]
    fn percentiles_are_upper_bounds_of_their_buckets() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(percentile_ns(&buckets, 50), 0);
        buckets[10] = 98;
        buckets[20] = 2;
        assert_eq!(percentile_ns(&buckets, 50), 2048);
        assert_eq!(percentile_ns(&buckets, 98), 2048);
        assert_eq!(percentile_ns(&buckets, 99), 1 << 21);
    }

    #[test]
    fn fine_buckets_end_where_the_next_begin() {
        // 1024 ns is the beginning of an octave, 1280 its second quarter's.
        assert_eq!(
            [40, 41, 42, 43].map(fine_bound_ns),
            [1280, 1536, 1792, 2048]
        );
        let mut buckets = [0; FINE_BUCKETS];
        assert_eq!(percentile(&buckets, 999, 1000), None);
        (buckets[10], buckets[50]) = (999, 1);
        assert_eq!(percentile(&buckets, 999, 1000), Some(10));
        buckets[50] = 2;
        assert_eq!(percentile(&buckets, 999, 1000), Some(50));
    }

    #[test]
    fn wake_ups_of_a_cpu_are_the_sum_of_their_outcomes() {
        let mut counters = Counters::default();
        for stat in [ufs_stat_UFS_TS_WAKE_IDLE, ufs_stat_UFS_TS_WAKE_QUEUED] {
            counters.count[stat as usize] = 3;
        }
        let metrics = Metrics::new(&Snapshot {
            cpus: BTreeMap::from([(0, counters.clone()), (7, counters)]),
            ..Snapshot::default()
        });
        assert_eq!(metrics.cpus[&7].wakes, 6);
        assert_eq!(metrics.tiers["time_sensitive"].wake_idle, 6);
    }

    #[test]
    fn counters_by_tier_are_not_mixed_up() {
        let mut counters = Counters::default();
        counters.count[ufs_stat_UFS_BG_PREEMPTED as usize] = 5;
        counters.count[ufs_stat_UFS_TS_PREEMPTED as usize] = 7;
        counters.count[ufs_stat_UFS_BG_FLOOR_RUN as usize] = 1;
        counters.count[ufs_stat_UFS_TS_FLOOR_RUN as usize] = 2;
        let metrics = Metrics::new(&Snapshot {
            cpus: BTreeMap::from([(0, counters)]),
            ..Snapshot::default()
        });
        let [urgent, background] =
            ["time_sensitive", "background"].map(|tier| &metrics.tiers[tier]);
        assert_eq!((urgent.preempted, urgent.floor_runs), (7, 2));
        assert_eq!((background.preempted, background.floor_runs), (5, 1));
        assert_eq!(metrics.nr_floor_runs, 3);
        assert_eq!(metrics.cpus[&0].preempted, 12);
    }

    #[test]
    fn published_statistics_are_what_giveway_top_reads() {
        let mut counters = Counters {
            run_ns: [3, 4],
            wake_ns: [0, 5],
            ..Counters::default()
        };
        counters.wake_ns_log2[1][5] = 6;
        counters.count[ufs_stat_UFS_BOOSTS_LEADER as usize] = 20;
        counters.count[ufs_stat_UFS_BG_PREEMPTED as usize] = 7;
        counters.count[ufs_stat_UFS_TS_FLOOR_RUN as usize] = 8;
        counters.count[ufs_stat_UFS_BOOST_RUN as usize] = 9;
        let mut wake_ns_log2 = [0; BUCKETS];
        wake_ns_log2[2] = 10;
        let work = Work {
            run_ns: [11, 12],
            preempted: 13,
            boosted_runs: 14,
            floor_runs: 15,
            wake_ns_log2,
        };
        let published = Metrics::new(&Snapshot {
            cpus: BTreeMap::from([(2, counters)]),
            nr_idle_cpus: 1,
            nr_cgroups: 1,
            cgroups: vec![Cgroup {
                id: 16,
                path: "/a".into(),
                tier: Tier::Background,
                weight: 17,
                throttles: 20,
                throttled_ns: 21,
                work: work.clone(),
            }],
            threads: BTreeMap::from([(
                18,
                Thread {
                    tid: 19,
                    tier: Tier::TimeSensitive,
                    work,
                },
            )]),
        });
        let json = serde_json::to_value(&published).unwrap();
        let read: giveway_watch::sample::Sample = serde_json::from_value(json).unwrap();

        assert_eq!((read.nr_cpus, read.nr_cgroups), (1, 1));
        assert_eq!(read.tiers["time_sensitive"].wake_to_run_ns, 5);
        assert_eq!(read.hints.boosts_leader, 20);
        let tier = read.tiers["time_sensitive"].work("time_sensitive");
        assert_eq!((tier.time_sensitive_ns, tier.floor_runs), (4, 8));
        assert_eq!(tier.wakes.percentile_ns(50), Some(64));
        let tier = read.tiers["background"].work("background");
        assert_eq!(
            (tier.background_ns, tier.preempted, tier.boosted_runs),
            (3, 7, 9)
        );
        let cpu = &read.cpus[&2].work;
        assert_eq!((cpu.time_sensitive_ns, cpu.background_ns), (4, 3));
        assert_eq!((cpu.preempted, cpu.boosted_runs, cpu.floor_runs), (7, 9, 8));
        assert_eq!(cpu.wakes.count(), 6);
        let (cgroup, thread) = (&read.cgroups[&16], &read.threads[&18]);
        assert_eq!((cgroup.path.as_str(), cgroup.weight), ("/a", 17));
        assert_eq!((cgroup.throttles, cgroup.throttled_ns), (20, 21));
        assert_eq!((thread.tid, thread.tier.as_str()), (19, "time_sensitive"));
        for work in [&cgroup.work, &thread.work] {
            assert_eq!((work.background_ns, work.time_sensitive_ns), (11, 12));
            assert_eq!(
                (work.preempted, work.boosted_runs, work.floor_runs),
                (13, 14, 15)
            );
            assert_eq!(work.wakes.percentile_ns(99), Some(8));
        }
    }
}
