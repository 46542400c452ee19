/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract between the BPF program and its loader: limits, counters and
 * the layout of everything that the loader reads or writes. bindgen turns this
 * file into Rust, so it must compile with and without vmlinux.h.
 *
 * Times are in nanoseconds unless a name ends in another unit.
 */
#ifndef UFS_INTF_H
#define UFS_INTF_H

#include <giveway/tier.h>

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef int s32;
#endif

enum ufs_limits {
	/* Powers of two: an index is bounded by a mask, which costs one instruction. */
	UFS_CPUS_MAX = 1024,
	UFS_GROUPS_MAX = 4096,
	UFS_CPU_WORDS = UFS_CPUS_MAX / 64,
	/* Last-level caches and NUMA nodes together. */
	UFS_DOMAINS_MAX = 512,
	UFS_THREADS_MAX = 16,
	/* Levels of the cgroup tree that count in a hierarchical weight. */
	UFS_DEPTH_MAX = 16,
	UFS_LABEL_LEN = 32,
	UFS_LABELS_MAX = 4,
	UFS_NAME_LEN = 32,
	UFS_HIST_BUCKETS = 32,
	/* Of a histogram with four buckets to an octave. */
	UFS_FINE_BUCKETS = 4 * UFS_HIST_BUCKETS,
	/* Places in which the CPUs count for a group: CPU modulo this. */
	UFS_SHARDS = 8,
	/* Tables of hint slots, one for each user that has one; pages of a table, the
	 * header included; and pages of all of them. */
	UFS_TABLES_MAX = 16,
	UFS_TABLE_SLOTS_MAX = 4096,
	UFS_SLOTS_MAX = 16384,
	UFS_SLOT_WORDS = UFS_SLOTS_MAX / 64,
	UFS_HELD_SEEN = 8,
	UFS_BLOCKERS = 4,
};

/* Why a task is boosted: what links its waiter to it. */
enum ufs_boost {
	UFS_BOOST_NONE = 0,
	UFS_BOOST_LOCK,		/* the very lock, by number */
	UFS_BOOST_TRANCHE,	/* a lightweight lock of the tranche, with waiters */
	UFS_BOOST_LEADER,	/* the waiter's work is done by some holder */
	UFS_BOOST_RESCUE,	/* the waiter spins, and its lock's holder is not known */
	UFS_BOOST_BLOCKER,	/* a heavyweight lock, by its list of holders */
};

/* One counter for every branch that a reader of the statistics asks about. */
enum ufs_stat {
	/* Where a time-sensitive wake-up went; the five add up to its wake-ups, but for
	 * those that were throttled. */
	UFS_TS_WAKE_IDLE,
	UFS_TS_WAKE_PREEMPT_BG,
	UFS_TS_WAKE_PREEMPT_TS,
	UFS_TS_WAKE_NEXT,
	UFS_TS_WAKE_QUEUED,
	/* The same for background: to an idle CPU, as the next of its CPU, or into its
	 * group's queue. */
	UFS_BG_WAKE_IDLE,
	UFS_BG_WAKE_NEXT,
	UFS_BG_WAKE_QUEUED,
	/* What dispatch did. */
	UFS_TS_DISPATCH,
	UFS_TS_STEAL,
	UFS_TS_KEEP,
	UFS_BG_DISPATCH,
	UFS_BG_KEEP,
	/* A CPU taken from background work after the wake-up's own choice was made. */
	UFS_LATE_PREEMPT,
	/* Tasks queued again because a task of a higher class has taken their CPU. */
	UFS_HANDED_BACK,
	UFS_TS_CLAMP,
	UFS_BG_CLAMP,
	/* The runnable tree: groups found empty, and groups set aside for this CPU. */
	UFS_TREE_EMPTY,
	UFS_TREE_INELIGIBLE,
	UFS_FLOOR_MOVE,
	/* By enum giveway_tier, in its order. */
	UFS_BG_FLOOR_RUN,
	UFS_TS_FLOOR_RUN,
	/* Floor runs that came earlier than the share allows, to meet the deadline. */
	UFS_FLOOR_HURRIED,
	UFS_ENQ_LAST,
	/* Idle CPUs that the timer had to wake although work was waiting. */
	UFS_RESCUE_KICK,
	UFS_CGROUP_MOVE,
	UFS_WEIGHT_CHANGE,
	/* cgroups that share their parent's group because all groups were taken. */
	UFS_GROUP_OVERFLOW,
	/* Tasks or cgroups without a context, treated as time-sensitive in the root. */
	UFS_NO_CTX,
	/* Hints: slots found, taken back, changes of tier and weight, rights missing. */
	UFS_HINT_SLOT,
	UFS_HINT_RECLAIM,
	UFS_HINT_TIER,
	UFS_HINT_REFUSED,
	/* Reads of a task's memory that failed. */
	UFS_READ_FAIL,
	/* Boosts by enum ufs_boost, in its order. */
	UFS_BOOSTS_LOCK,
	UFS_BOOSTS_TRANCHE,
	UFS_BOOSTS_LEADER,
	UFS_BOOSTS_RESCUE,
	UFS_BOOSTS_BLOCKER,
	UFS_BOOST_EXPIRED,
	/* Boosted tasks run ahead of their tier; taken from a group's queue for it;
	 * interrupted by a waiter that woke up. */
	UFS_BOOST_RUN,
	UFS_BOOST_FETCH,
	UFS_BOOST_YIELD,
	/* Background tasks preempted while they held a lock; those of them whose lock
	 * time-sensitive work waited for before they ran again. */
	UFS_HOLDER_PREEMPTED,
	UFS_HOLDER_AWAITED,
	/* Time-sensitive ones preempted likewise; slices extended for a lock. */
	UFS_TS_HOLDER_PREEMPTED,
	UFS_EXTENDED,
	/* Involuntary context switches: by tier, as above. */
	UFS_BG_PREEMPTED,
	UFS_TS_PREEMPTED,
	/* Several threads to a core: wake-ups that had to share one with time-sensitive
	 * work; tasks that left such a core at the end of a slice. */
	UFS_TS_SHARED_CORE,
	UFS_MOVED_APART,
	/* Wake-ups whose CPU is not in the previous one's cache, or node. */
	UFS_TS_LEFT_LLC,
	UFS_TS_LEFT_NODE,
	/* cpu.max: budgets used up; tasks throttled for it; those of them that had to be
	 * preempted, since they were queued before. */
	UFS_THROTTLE,
	UFS_THROTTLED_TASK,
	UFS_THROTTLED_LATE,
	UFS_LIMIT_CHANGE,
	/* Walks of the floor's queue that found no task for the CPU. */
	UFS_FLOOR_MISS,
	/* Invariants found broken: 0, unless UFS has a bug. A count of waiting tasks, or of
	 * throttled groups, below 0; bg_cpus shows a CPU that runs no background work; a
	 * snapshot of a task that is not the current one; a group whose node is not where
	 * it must be; a throttled group without a timer. */
	UFS_BROKEN_COUNT,
	UFS_BROKEN_BG_CPU,
	UFS_BROKEN_SNAPSHOT,
	UFS_BROKEN_TREE,
	UFS_BROKEN_THROTTLE,
	UFS_NR_STATS,
	/* A power of two, so that an index can be masked. */
	UFS_STAT_SLOTS = 64,
};

/* Written only by the CPU it belongs to, read by the loader. */
struct ufs_cpu_stats {
	u64 count[UFS_STAT_SLOTS];
	/* CPU time by tier; boosted time is part of background. */
	u64 run_ns[2];
	u64 boosted_ns;
	/* From the beginning of a boost to its end, in buckets as below. */
	u64 boost_ns_log2[UFS_HIST_BUCKETS];
	/* Sleeps of time-sensitive tasks for lightweight locks, until they run
	 * again; bucket 4 i + j counts from 2^i (1 + j/4) ns on. */
	u64 lock_wait_ns[UFS_FINE_BUCKETS];
	/* Wake-up to run by tier: the sum, and a histogram; bucket i counts [2^i, 2^(i+1)) ns, bucket 0 also 0. */
	u64 wake_ns[2];
	u64 wake_ns_log2[2][UFS_HIST_BUCKETS];
} __attribute__((aligned(64)));

/* What the tasks of one group did, on the CPUs of one shard. Written atomically,
 * since several CPUs share it; buckets as above. */
struct ufs_work {
	u64 run_ns[2];
	u64 preempted;
	u64 boosted_runs;
	u64 floor_runs;
	u32 wake_ns_log2[UFS_HIST_BUCKETS];
} __attribute__((aligned(64)));

/* Where a CPU is; see topology.bpf.h. */
struct ufs_place {
	u32 core;	/* the first of its CPUs */
	u32 sibling;	/* the next of them, in a circle */
	u32 llc;	/* among the domains */
	u32 node;
};

/* Whose each table of hint slots is. Written by the loader, which only adds to it
 * while UFS is attached: the number last. */
struct ufs_tables {
	u32 nr;
	u32 uid[UFS_TABLES_MAX];
};

/* A name, or the beginning of a name, that puts a cgroup into a tier. */
struct ufs_label {
	char text[UFS_LABEL_LEN];
	u32 len;
};

#endif
