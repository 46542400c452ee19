/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The floor: no task waits for ever (a departure from the paper).
 *
 * The kernel ejects a scheduler when any of its tasks has been runnable for
 * 30 s (or ops.timeout_ms) without running. Strict tiers do that to background
 * work under time-sensitive saturation, and weights of 1 to 10000 do it inside
 * a tier. So:
 *
 *   1. A timer looks at every waiting task, in whatever queue, and at the same
 *      age that the kernel's watchdog looks at (runnable_at). Queue order is
 *      virtual runtime, not age, so the whole queue is walked.
 *   2. A task older than the deadline moves to the floor's queue, first come
 *      first served, which every CPU serves before anything else, but at most
 *      once per interval: slice / share.
 *   3. From there it runs for the floor's slice as if time-sensitive, so that
 *      the next wake-up does not take the CPU back at once.
 *
 * A CPU that finds no task for itself there, since all are pinned elsewhere, does not
 * walk the queue again until another task has been added.
 *
 * If N tasks are overdue, an interval longer than deadline / N would not serve
 * them in time; it is shortened to that, down to the slice, and the runs that
 * came early are counted (UFS_FLOOR_HURRIED). One CPU alone then serves
 * deadline / slice tasks per deadline, which also covers tasks pinned to it.
 *
 * A task thus waits for at most two deadlines and a timer period, which is why
 * the loader wants the deadline to be a third of the watchdog's or less.
 *
 * Known weaknesses: slices end at the timer tick, so a floor run lasts up to one
 * tick; more than deadline / tick overdue tasks pinned to one CPU do not fit.
 *
 * The same timer retires idle groups and, as the last resort of the protocols in
 * placement.bpf.h, bg_tree.bpf.h and throttle_queue.bpf.h, releases tasks that are no
 * longer throttled and wakes an idle CPU if work waits.
 */
#ifndef UFS_FLOOR_H
#define UFS_FLOOR_H

#define TIMER_NS (50 * 1000 * 1000ULL)

extern unsigned CONFIG_HZ __kconfig;

static __noinline int floor_collect(u64 dsq)
{
	u64 now = bpf_jiffies64(), limit = floor_deadline_ms * CONFIG_HZ / 1000;
	struct task_struct *p;
	u32 walked = 0;

	/* To the verifier an unknown number, so that it need not walk them all. */
	__sink(walked);
	bpf_for_each(scx_dsq, p, dsq, 0) {
		struct task_ctx *tc;
		u64 waits;

		if (++walked > WALK_MAX)
			break;
		if ((s64)(now - p->scx.runnable_at - limit) < 0)
			continue;
		tc = task_ctx(p);
		if (!tc || !begin_move(&tc->floor, &floor_waiting))
			continue;
		waits = READ_ONCE(tc->waits);
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, floor_slice_ns);
		if (!scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, FLOOR_DSQ, 0)) {
			/* It left the queue before it could be moved. */
			undo_move(&tc->floor, &floor_waiting);
			continue;
		}
		stat_inc(UFS_FLOOR_MOVE);
		/* It is in its queue no more, unless it has run since and is in another. */
		if (waits && __sync_val_compare_and_swap(&tc->waits, waits, WAITS_NOT) == waits)
			uncount_waiting(waits);
		/* A full barrier: CPUs that found nothing look again. */
		__sync_fetch_and_add(&floor_seq, 1);
	}
	return 0;
}

/* In dispatch, before anything else. */
static __always_inline bool floor_dispatch(struct cpu_ctx *cc)
{
	u64 interval = floor_interval_ns, waiting = READ_ONCE(floor_waiting), fit, now, seq;
	bool hurried = false;

	if (likely(!waiting))
		return false;
	/* Mostly the overdue are many and pinned to another CPU. */
	seq = READ_ONCE(floor_seq);
	if (seq == cc->floor_seen)
		return false;
	fit = floor_deadline_ms * 1000000 / waiting;
	if (fit < interval) {
		interval = fit > floor_slice_ns ? fit : floor_slice_ns;
		hurried = true;
	}
	now = scx_bpf_now();
	if (time_before(now, cc->floor_next))
		return false;
	if (!scx_bpf_dsq_move_to_local(FLOOR_DSQ, 0)) {
		cc->floor_seen = seq;
		stat_inc(UFS_FLOOR_MISS);
		return false;
	}
	cc->floor_next = now + interval;
	if (hurried)
		stat_inc(UFS_FLOOR_HURRIED);
	return true;
}

static int on_floor_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now();
	u32 i, nr = READ_ONCE(nr_groups);

	/* Older verifiers, as Linux 6.12's, take a timer that a sleepable callback has
	 * set for sleepable, and let no such program walk a queue without this. */
	bpf_rcu_read_lock();
	if (READ_ONCE(ts_waiting)) {
		bpf_for(i, 0, nr_cpu_ids) {
			if (READ_ONCE(cpu_ctx(i)->ts_waiting))
				floor_collect(TS_DSQ + i);
		}
	}
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (READ_ONCE(group(i)->nr_waiting))
			floor_collect(BG_DSQ + i);
		retire_idle_group(i, GIVEWAY_TIER_BACKGROUND, now);
		retire_idle_group(i, GIVEWAY_TIER_TIME_SENSITIVE, now);
	}
	if (limits_on && READ_ONCE(nr_throttled_tasks)) {
		floor_collect(THROTTLED_DSQ);
		release_throttled();
	}
	bpf_rcu_read_unlock();
	renew_affinity(nr);
	compute_parts(nr);
	if (READ_ONCE(ts_waiting) || READ_ONCE(bg_waiting) || READ_ONCE(floor_waiting)) {
		const struct cpumask *idle = scx_bpf_get_idle_cpumask();

		bpf_for(i, 0, nr_cpu_ids) {
			if (!bpf_cpumask_test_cpu(i, idle))
				continue;
			/* Throttled tasks may be overdue while CPUs are idle. */
			if (READ_ONCE(ts_waiting) || bg_work_for(i))
				stat_inc(UFS_RESCUE_KICK);
			else if (!READ_ONCE(floor_waiting))
				continue;
			scx_bpf_kick_cpu(i, SCX_KICK_IDLE);
		}
		scx_bpf_put_idle_cpumask(idle);
	}
	bpf_timer_start(timer, TIMER_NS, 0);
	return 0;
}

#endif
