/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prices: what becomes of leads when weights change.
 *
 * Virtual runtime is paid at a price, the scale of a group (group.bpf.h), and the
 * price depends on who competes. A group that is ahead of its clock, or behind it,
 * has used so much more, or less, than its part of the CPU time:
 *
 *	distance to the clock = CPU time * price
 *
 * When others come or go, or weights are changed, the price changes, and CPU time
 * that has been used is what it was. So the distance changes with the price, as
 * EEVDF has it where it reweights. Else whoever ran while many competed would pay for
 * it when few do, at the price of many:
 *
 *	y (weight 1) beside z (3), x (10, half of a CPU by cpu.max) on one CPU
 *
 *	x competes:	y has used 10 ms too much, at the price of 14: 140 ms ahead
 *	x is held:	still so: at the price of 4 it stands aside for 35 ms instead
 *			of 10
 *
 * The distance has to change before the clock moves on, so a timer sees to it at once:
 * it reprices all groups that compete, takes those that wait out of the runnable tree,
 * and puts them back with keys of today. That is not done for a group that owns less
 * than a part in 32 of the tier; then each is repriced when it is next charged, or
 * comes back to the tree.
 *
 * In the time-sensitive tier, where each task has its own virtual runtime, a change
 * of cpu.weight has those that wait clamped anew; other changes are left alone.
 *
 * A CPU that finds the tree empty meanwhile goes on with what it runs, or is woken when
 * groups are back (see miss()).
 */
#ifndef UFS_PRICE_H
#define UFS_PRICE_H

struct price_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct price_timer);
} price_timers SEC(".maps");

/* Set when a change of weights concerns waiting time-sensitive tasks. */
u32 rekey_ts_wanted;

/* Have what a group is ahead or behind cost today's price. */
__once int reprice(u32 index)
{
	struct group *g = group(index);
	u64 price = g->price, scale = group_scale(index, GIVEWAY_TIER_BACKGROUND);
	u64 clock = clock_of(index), before = READ_ONCE(g->vtime), distance;
	u64 most = (BEHIND_AWAKE + nr_cpu_ids) * bg_slice_ns;
	bool ahead = (s64)(before - clock) > 0;

	/* One that does not compete gets a price when it does. */
	if (!g->in[GIVEWAY_TIER_BACKGROUND].active || price == scale)
		return 0;
	/* Lets one of several through. */
	if (__sync_val_compare_and_swap(&g->price, price, scale) != price || !price)
		return 0;
	distance = ahead ? before - clock : clock - before;
	/* The clamp allows less, and the fixed point has room for no more. */
	if (distance > 1ULL << 55)
		distance = 1ULL << 55;
	distance = (distance << SCALE_SHIFT) / price;
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

/* Reprice all groups that compete, and have those in the tree re-enter it with keys
 * of today. */
__once int reprice_all(void)
{
	u32 aside = 0, i, nr = READ_ONCE(nr_groups);
	s32 index;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (READ_ONCE(group(i)->in[GIVEWAY_TIER_BACKGROUND].load))
			reprice(i);
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

static int on_price_timer(void *map, int *key, struct bpf_timer *timer)
{
	u32 i;

	/* As in on_timer(). */
	bpf_rcu_read_lock();
	if (__sync_lock_test_and_set(&rekey_ts_wanted, 0) && READ_ONCE(ts_waiting)) {
		bpf_for(i, 0, nr_cpu_ids) {
			if (READ_ONCE(cpu_ctx(i)->ts_waiting))
				rekey_ts(TS_DSQ + i);
		}
	}
	bpf_rcu_read_unlock();
	reprice_all();
	return 0;
}

static s32 init_price_timer(void)
{
	struct price_timer *entry;
	u32 key = 0;
	s32 err;

	entry = bpf_map_lookup_elem(&price_timers, &key);
	if (!entry)
		return -ENOENT;
	err = bpf_timer_init(&entry->timer, &price_timers, CLOCK_MONOTONIC);
	/* It is there already if this is not the first attachment. */
	if (err && err != -EBUSY)
		return err;
	return bpf_timer_set_callback(&entry->timer, on_price_timer);
}

/* Who competes has changed, or a weight. */
__once int reprice_soon(void)
{
	struct price_timer *entry;
	u32 key = 0;

	entry = bpf_map_lookup_elem(&price_timers, &key);
	if (entry)
		bpf_timer_start(&entry->timer, 0, 0);
	return 0;
}

#endif
