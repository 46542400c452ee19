/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reweight: rescales the lag of background groups when hierarchical weights change.
 *
 * The scale of a group (group.bpf.h) is the virtual time that it is charged for one
 * nanosecond; it depends on which groups compete. So the lag of a group, its distance
 * to the clock, stands for an amount of CPU time:
 *
 *	distance to the clock = CPU time * scale
 *
 * When groups start or stop to compete, or a weight changes, the scale changes, but
 * not the CPU time that was used. So the distance is rescaled, as EEVDF does at
 * reweight. Otherwise a group that ran while many competed would repay at their scale:
 *
 *	y (weight 1) beside z (3), x (10, half of a CPU by cpu.max) on one CPU
 *
 *	x competes:	y is 10 ms ahead at a scale of 14: 140 ms of virtual time
 *	x is throttled:	without rescaling, at a scale of 4, y waits for 35 ms instead
 *			of 10
 *
 * The distance must be rescaled before the clock moves on, so a timer does it at once:
 * it reweights all groups that compete, takes the waiting ones out of the runnable tree
 * and inserts them again with new keys. If the group that caused the change owns less
 * than 1/32 of the tier, no timer is set; each group is then reweighted when it is next
 * charged or inserted into the tree.
 *
 * In the time-sensitive tier each task has its own virtual runtime. There a change of
 * cpu.weight clamps the waiting tasks again; other changes do nothing.
 *
 * A CPU that finds the tree empty meanwhile keeps its task, or is woken when groups are
 * back (see miss()).
 */
#ifndef UFS_REWEIGHT_H
#define UFS_REWEIGHT_H

/* Set when a change of weights concerns waiting time-sensitive tasks. */
u32 rekey_ts_wanted;

/* Rescale a group's distance to its clock from its old scale to the present one. */
__once int reweight(u32 index)
{
	struct group *g = group(index);
	u64 before_scale = g->lag_scale, scale = group_scale(index, GIVEWAY_TIER_BACKGROUND);
	u64 clock = clock_of(index), before = READ_ONCE(g->vtime), distance;
	u64 most = (BEHIND_AWAKE + nr_cpu_ids) * bg_slice_ns;
	bool ahead = (s64)(before - clock) > 0;

	/* A group that does not compete gets its scale when it does. */
	if (!g->in[GIVEWAY_TIER_BACKGROUND].active || before_scale == scale)
		return 0;
	/* Lets one of several callers through. */
	if (__sync_val_compare_and_swap(&g->lag_scale, before_scale, scale) != before_scale ||
	    !before_scale)
		return 0;
	distance = ahead ? before - clock : clock - before;
	/* The clamp allows less, and the fixed point has room for no more. */
	if (distance > 1ULL << 55)
		distance = 1ULL << 55;
	distance = (distance << SCALE_SHIFT) / before_scale;
	/* The fixed point of a scale has room for no more. */
	if (most > 1ULL << 29)
		most = 1ULL << 29;
	if (distance > most)
		distance = most;
	distance = scaled(distance, scale);
	/* What is charged meanwhile stays charged. */
	__sync_fetch_and_add(&g->vtime, (ahead ? clock + distance : clock - distance) - before);
	return 0;
}

/* Reweight all groups that compete, and insert those in the tree again with new keys. */
__once int reweight_all(void)
{
	u32 aside = 0, i, nr = READ_ONCE(nr_groups);
	s32 index;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (READ_ONCE(group(i)->in[GIVEWAY_TIER_BACKGROUND].load))
			reweight(i);
	}
	/* Keeps the verifier from following each list of groups by itself. */
	__sink(aside);
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		index = tree_pop();
		if (index < 0)
			break;
		/* As in bg_pick(). */
		group(index)->next_aside = aside;
		aside = index + 1;
	}
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (!aside)
			break;
		index = (aside - 1) & (UFS_GROUPS_MAX - 1);
		aside = group(index)->next_aside;
		tree_insert(index);
	}
	return 0;
}

static __noinline int rekey_ts(u64 dsq)
{
	struct task_struct *p;
	u32 walked = 0;

	/* To the verifier an unknown number, so that it need not walk them all. */
	__sink(walked);
	bpf_for_each(scx_dsq, p, dsq, 0) {
		struct task_ctx *tc;
		u64 before;

		if (++walked > WALK_MAX)
			break;
		tc = task_ctx(p);
		if (!tc)
			continue;
		before = tc->vtime;
		ts_clamp(tc, task_scale(tc), BEHIND_AWAKE);
		if (tc->vtime == before)
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, tc->vtime);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dsq, 0);
	}
	return 0;
}

static int on_reweight_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	u32 i;

	/* As in on_floor_timer(). */
	bpf_rcu_read_lock();
	if (__sync_lock_test_and_set(&rekey_ts_wanted, 0) && READ_ONCE(ts_waiting)) {
		bpf_for(i, 0, nr_cpu_ids) {
			if (READ_ONCE(cpu_ctx(i)->ts_waiting))
				rekey_ts(TS_DSQ + i);
		}
	}
	bpf_rcu_read_unlock();
	reweight_all();
	return 0;
}

/* Call when the set of competing groups, or a weight, has changed. */
__once int reweight_soon(void)
{
	start_timer(TIMER_REWEIGHT, 0);
	return 0;
}

#endif
