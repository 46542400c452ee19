/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max: the CPU time that a cgroup may use in a period.
 *
 * The kernel enforces cpu.max for its own scheduler only; a sched_ext scheduler
 * is told the numbers. Here a limited group has a budget. Whatever its tasks and
 * those of the groups below it use is taken from it, and from every limited
 * group's above it. At the beginning of each period a quota is added. A group
 * with nothing left is throttled: its tasks and those of all groups below do not run
 * until it has budget again (throttle_queue.bpf.h says how).
 *
 *	quota 30 ms of 100 ms
 *
 *	left	 30 \          28 \          30 \
 *		     \             \             \
 *		  0 --\-------------\-------------\-----
 *		  -2 throttled    0 throttled    ...
 *		  0            100           200          ms
 *
 * OVERRUN IS DEBT. CPU time is billed when a task leaves its CPU and at every tick, so
 * each CPU that runs the group may overrun by a tick. The budget is then negative, and
 * the next quota pays for it: over several periods the group gets exactly its quota.
 * Tasks that run although they are throttled (from the floor, or boosted lock holders)
 * make debts too. Debt that quotas would not pay in half of the floor's deadline is
 * forgiven, so that each of many tasks runs before the floor has to run it.
 *
 * A budget is refilled when it is next looked at, so a group that is not
 * throttled needs no timer. A throttled one has a timer set to its next period. Its
 * tasks are released by one timer for all groups.
 *
 * Budget that is not used in a period is lost, except for cpu.max.burst.
 *
 * INVARIANTS
 *   1. .throttled goes from 0 to 1 by a compare and swap in spend(), which arms the
 *      timer afterwards, and from 1 to 0 in the timer's callback only. (not asserted:
 *      each change is one atomic operation; another one would break 2)
 *   2. nr_throttled_groups is the number of groups with .throttled, and is raised before
 *      .throttled is. (asserted in count_down(): it does not fall below 0)
 *   3. A throttled group's timer is armed: by spend(), then by its own callback until
 *      the group is not throttled. (asserted there: UFS_BROKEN_THROTTLE)
 *
 * WEAKNESSES: a cgroup that shares its parent's group (UFS_GROUP_OVERFLOW) has no
 * limit of its own, nor does one UFS_DEPTH_MAX levels above the task. On a CPU
 * without a tick (nohz_full) CPU time is billed at the end of a slice. On many CPUs with
 * a quota of less than a tick on each, the group uses more than its quota, since debts
 * are forgiven.
 */
#ifndef UFS_LIMIT_H
#define UFS_LIMIT_H

#define UNLIMITED (~0ULL)
/* Quotas added at a time: more than any debt takes, and no overflow. */
#define REFILLS_MAX (1ULL << 16)

struct limit {
	u64 quota_ns;		/* for a period; 0: the group is not limited */
	u64 period_ns;
	u64 burst_ns;		/* may be left over */
	u64 debt_max_ns;
	u64 period_start;
	s64 left_ns;
	u64 throttled_since;
	u32 throttled;
	u32 has_timer;
	/* For the statistics. */
	u64 throttles;
	u64 throttled_ns;
} __attribute__((aligned(64)));

struct limit limits[UFS_GROUPS_MAX];
/* Groups that are limited, and that are throttled. While they are 0, all that
 * cpu.max costs is to find that out. */
u32 nr_limits __begins_line = 0;
u32 nr_throttled_groups = 0;

struct limit_timer {
	struct bpf_timer timer;
};

/* By group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UFS_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct limit_timer);
} limit_timers SEC(".maps");

static __always_inline struct limit *limit_of(u32 index)
{
	return &limits[index & (UFS_GROUPS_MAX - 1)];
}

static __always_inline bool has_limits(void)
{
	return limits_on && unlikely(READ_ONCE(nr_limits));
}

/* ---- Budgets ---- */

/* Add the quotas of the periods that have begun since the last refill. */
static __always_inline void refill(struct limit *l, u64 now)
{
	u64 start = READ_ONCE(l->period_start), period = l->period_ns, periods;
	s64 before, left;

	if (!period || time_delta(now, start) < period)
		return;
	periods = (now - start) / period;
	/* Lets one of several callers through. */
	if (__sync_val_compare_and_swap(&l->period_start, start, start + periods * period) != start)
		return;
	if (periods > REFILLS_MAX)
		periods = REFILLS_MAX;
	before = READ_ONCE(l->left_ns);
	left = before < -(s64)l->debt_max_ns ? -(s64)l->debt_max_ns : before;
	left += periods * l->quota_ns;
	if (left > (s64)(l->quota_ns + l->burst_ns))
		left = l->quota_ns + l->burst_ns;
	/* What is spent meanwhile stays spent. */
	__sync_fetch_and_add(&l->left_ns, left - before);
}

/* Time until the next period begins. */
static __always_inline u64 until_refill(struct limit *l, u64 now)
{
	return time_delta(l->period_start + l->period_ns, now);
}

static __always_inline void spend(u32 index, u64 used, u64 now)
{
	struct limit *l = limit_of(index);
	struct limit_timer *entry;

	if (!READ_ONCE(l->quota_ns))
		return;
	/* Before the refill: it was used in the period that has ended. */
	__sync_fetch_and_sub(&l->left_ns, used);
	refill(l, now);
	if (READ_ONCE(l->left_ns) > 0 || READ_ONCE(l->throttled))
		return;
	__sync_fetch_and_add(&nr_throttled_groups, 1);
	if (__sync_val_compare_and_swap(&l->throttled, 0, 1)) {
		__sync_fetch_and_sub(&nr_throttled_groups, 1);
		return;
	}
	l->throttled_since = now;
	l->throttles++;
	stat_inc(UFS_THROTTLE);
	entry = bpf_map_lookup_elem(&limit_timers, &index);
	if (!entry) {
		scx_bpf_error("group %u has no entry for its timer", index);
		return;
	}
	/* Another CPU's refill may have come in between: then for no period. */
	if (bpf_timer_start(&entry->timer, READ_ONCE(l->left_ns) > 0 ? 0 : until_refill(l, now), 0))
		note_broken(UFS_BROKEN_THROTTLE);
}

/* Take @used nanoseconds from the budgets of a group and of all above it. */
__once int spend_upwards(u32 index, u64 used, u64 now)
{
	u32 level;

	bpf_for(level, 0, UFS_DEPTH_MAX) {
		index &= UFS_GROUPS_MAX - 1;
		if (!index)
			break;
		spend(index, used, now);
		index = groups[index].parent;
	}
	return 0;
}

/* Take what a task has used since it was last billed from the budgets. */
static __always_inline void bill(struct task_ctx *tc, u64 now)
{
	u64 used = time_delta(now, tc->billed_at);

	tc->billed_at = now;
	if (has_limits() && tc->group)
		spend_upwards(tc->group, used, now);
}

/* Whether a group or one above it is throttled. */
__once u32 group_is_throttled(u32 index)
{
	u32 level;

	bpf_for(level, 0, UFS_DEPTH_MAX) {
		index &= UFS_GROUPS_MAX - 1;
		if (!index)
			break;
		if (READ_ONCE(limits[index].throttled))
			return true;
		index = groups[index].parent;
	}
	return false;
}

/* ---- Setting, changing and removing limits ---- */

/* A throttled group's next period has begun, or its limit has changed. */
static int on_limit_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	struct limit *l = limit_of(*key);
	u64 now = scx_bpf_now();

	if (READ_ONCE(l->quota_ns)) {
		refill(l, now);
		if (READ_ONCE(l->left_ns) <= 0) {
			if (bpf_timer_start(timer, until_refill(l, now), 0))
				note_broken(UFS_BROKEN_THROTTLE);
			return 0;
		}
	}
	if (__sync_lock_test_and_set(&l->throttled, 0)) {
		count_down(&nr_throttled_groups);
		l->throttled_ns += time_delta(now, l->throttled_since);
	}
	start_timer(TIMER_RELEASE, 0);
	return 0;
}

/* Set what a group may use, all in microseconds, and forgive its debts. */
static __noinline int set_limit(u32 index, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct limit *l = limit_of(index);
	struct limit_timer *entry;
	u64 quota_ns = 0, before;
	s32 err;

	entry = bpf_map_lookup_elem(&limit_timers, &index);
	if (!entry)
		return -ENOENT;
	/* What all CPUs cannot exceed is no limit; UNLIMITED is what the kernel says. */
	if (quota_us < period_us * nr_cpu_ids)
		quota_ns = quota_us * 1000;
	if (quota_ns && !l->has_timer) {
		err = bpf_timer_init(&entry->timer, &limit_timers, CLOCK_MONOTONIC);
		/* It is there already if an earlier attachment has made it. Without memory
		 * for it there is no limit: better than no cgroup. */
		if (err && err != -EBUSY)
			return err;
		bpf_timer_set_callback(&entry->timer, on_limit_timer);
		l->has_timer = 1;
	}
	if (quota_ns) {
		l->period_ns = period_us * 1000;
		l->burst_ns = burst_us < quota_us ? burst_us * 1000 : quota_ns;
		l->debt_max_ns = quota_ns;
		if (floor_deadline_ms * 500 > period_us)
			l->debt_max_ns = quota_ns * (floor_deadline_ms * 500 / period_us);
		l->period_start = scx_bpf_now();
		l->left_ns = quota_ns;
	}
	before = __sync_lock_test_and_set(&l->quota_ns, quota_ns);
	if (!before && quota_ns)
		__sync_fetch_and_add(&nr_limits, 1);
	else if (before && !quota_ns)
		__sync_fetch_and_sub(&nr_limits, 1);
	/* The callback has the tasks released, or sets the timer again. */
	if (READ_ONCE(l->throttled))
		bpf_timer_start(&entry->timer, 0, 0);
	return 0;
}

#endif
