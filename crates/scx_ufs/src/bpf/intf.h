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
	/* Levels of the cgroup tree that count in a hierarchical weight. */
	UFS_DEPTH_MAX = 16,
	UFS_LABEL_LEN = 32,
	UFS_LABELS_MAX = 4,
	UFS_NAME_LEN = 32,
	UFS_HIST_BUCKETS = 32,
};

/* One counter for every branch that a reader of the statistics asks about. */
enum ufs_stat {
	/* Where a time-sensitive wake-up went; the four add up to its wake-ups. */
	UFS_TS_WAKE_IDLE,
	UFS_TS_WAKE_PREEMPT_BG,
	UFS_TS_WAKE_PREEMPT_TS,
	UFS_TS_WAKE_QUEUED,
	/* The same for background: an idle CPU was waiting, or the group's queue. */
	UFS_BG_WAKE_IDLE,
	UFS_BG_WAKE_QUEUED,
	/* What dispatch did. */
	UFS_TS_DISPATCH,
	UFS_TS_STEAL,
	UFS_TS_KEEP,
	UFS_BG_DISPATCH,
	UFS_BG_KEEP,
	/* A CPU taken from background work after the wake-up's own choice was made. */
	UFS_LATE_PREEMPT,
	UFS_TS_CLAMP,
	UFS_BG_CLAMP,
	/* The runnable tree: groups found empty, and groups set aside for this CPU. */
	UFS_TREE_EMPTY,
	UFS_TREE_INELIGIBLE,
	UFS_FLOOR_MOVE,
	UFS_FLOOR_RUN,
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
	UFS_NR_STATS,
};

/* Written only by the CPU it belongs to, read by the loader. */
struct ufs_cpu_stats {
	u64 count[UFS_NR_STATS];
	/* CPU time by tier. */
	u64 run_ns[2];
	/* Wake-up to run by tier; bucket i counts [2^i, 2^(i+1)) ns, bucket 0 also 0. */
	u64 wake_ns_log2[2][UFS_HIST_BUCKETS];
} __attribute__((aligned(64)));

/* A name, or the beginning of a name, that puts a cgroup into a tier. */
struct ufs_label {
	char text[UFS_LABEL_LEN];
	u32 len;
};

#endif
