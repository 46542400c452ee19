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
 *      the next wake-up does not take the CPU back at once. Then the CPU rests: it serves
 *      nobody from there for as long as makes the run the floor's share of the time.
 *   4. While no CPU runs background work, each background task that waits is owed a part
 *      of that time, --floor-least, and what it runs for, by whatever way, is taken off.
 *      Once it is owed what it would be after a deadline without CPU time, it is overdue
 *      at each look of the timer, until it is owed nothing.
 *
 * 4 is for what a starved task holds. The age alone does not show it: a task that gets
 * some microseconds now and then, while all others sleep, is never old. A report then ends
 * thousands of times later, and until then its snapshot keeps dead rows from being pruned,
 * which transactions then visit: strict priority cost them a seventh of their CPU time.
 * Where weights and not tiers make a task wait, nothing is owed, as weights may be meant
 * to be extreme.
 *
 * A CPU that finds no task for itself there, since all are pinned elsewhere, does not
 * walk the queue again until another task has been added.
 *
 * If N tasks are overdue, intervals and rests longer than deadline / N would not serve
 * them in time. Intervals are shortened to that, down to the slice, and rests to half of
 * it, as they end at a tick. The runs that came early are counted (UFS_FLOOR_HURRIED).
 * One CPU alone then serves deadline / slice tasks per deadline, which also covers tasks
 * pinned to it. Who is owed time joins that queue only while it is short: nobody hurries
 * for it, and the others wait for one run of each CPU longer at most.
 *
 * A task thus waits for at most two deadlines and a timer period, which is why
 * the loader wants the deadline to be a third of the watchdog's or less.
 *
 * Known weaknesses: slices end at the timer tick, so a floor run lasts up to one
 * tick; more than deadline / tick overdue tasks pinned to one CPU do not fit; nothing is
 * owed to a background task on CPUs that time-sensitive ones fill while others run
 * background work that it may not join.
 *
 * The same timer retires idle groups and, as the last resort of the protocols in
 * placement.bpf.h, bg_tree.bpf.h and throttle_queue.bpf.h, releases tasks that are no
 * longer throttled and wakes an idle CPU if work waits.
 */
#ifndef UFS_FLOOR_H
#define UFS_FLOOR_H

#define TIMER_NS (50 * 1000 * 1000ULL)

extern unsigned CONFIG_HZ __kconfig;

/* Whether no CPU runs background work by its own right. */
static __always_inline bool tier_starves(void)
{
	u64 found = 0;
	u32 i;

	bpf_for(i, 0, nr_cpu_words)
		found |= READ_ONCE(bg_cpus[i & (UFS_CPU_WORDS - 1)]);
	return !found;
}

/* By the timer, while the tier starves: the task waits. Whether it is overdue for that. */
static __always_inline bool owe(struct task_ctx *tc)
{
	s64 most = floor_deadline_ms * 1000000 / 100 * floor_least;

	if (READ_ONCE(tc->owed) < most)
		__sync_fetch_and_add(&tc->owed, TIMER_NS / 100 * floor_least);
	else
		WRITE_ONCE(tc->is_paid, floor_least != 0);
	return READ_ONCE(tc->is_paid);
}

/* In the task's own callbacks: it has run for @used. The timer may add to what it is owed
 * meanwhile: then this run is not taken off. What the last run from the floor lasted too
 * long is owed by the task; nothing else is. */
static __always_inline void pay_owed(struct task_ctx *tc, u64 used)
{
	s64 owed = READ_ONCE(tc->owed), left = owed - (s64)used;

	if (left <= 0) {
		if (!READ_ONCE(tc->is_paid))
			left = owed < 0 ? owed : 0;
		WRITE_ONCE(tc->is_paid, 0);
	}
	__sync_val_compare_and_swap(&tc->owed, owed, left);
}

/* A run from the floor of @ran has ended on the CPU of @cc. */
static __always_inline void rest_after_floor(struct cpu_ctx *cc, u64 now, u64 ran)
{
	cc->floor_rests = now + ran * (floor_interval_ns - floor_slice_ns) / floor_slice_ns;
}

/* Whether the queue is so short that one more makes nobody hurry. */
static __always_inline bool floor_has_room(void)
{
	/* A rest after a run of a tick is as long as some intervals. */
	u64 unhurried = floor_deadline_ms * 1000000 / floor_interval_ns / 8;
	u64 room = nr_cpu_ids < unhurried ? nr_cpu_ids : unhurried;

	return READ_ONCE(floor_waiting) < (room ?: 1);
}

/* @owes: what waits there is background work, and its tier starves. */
static __noinline int floor_collect(u64 dsq, bool owes)
{
	u64 now = bpf_jiffies64(), limit = floor_deadline_ms * CONFIG_HZ / 1000;
	struct task_struct *p;
	u32 walked = 0;

	/* To the verifier an unknown number, so that it need not walk them all. */
	__sink(walked);
	bpf_for_each(scx_dsq, p, dsq, 0) {
		struct task_ctx *tc;
		bool overdue;
		u64 waits;

		if (++walked > WALK_MAX)
			break;
		overdue = (s64)(now - p->scx.runnable_at - limit) >= 0;
		if (!overdue && !owes)
			continue;
		tc = task_ctx(p);
		if (!tc)
			continue;
		if (owes && owe(tc) && floor_has_room())
			overdue = true;
		if (!overdue || !begin_move(&tc->floor, &floor_waiting))
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
	u64 waiting = READ_ONCE(floor_waiting), interval = floor_interval_ns, fit, now, seq;
	bool hurried;

	if (likely(!waiting))
		return false;
	/* Mostly the overdue are many and pinned to another CPU. */
	seq = READ_ONCE(floor_seq);
	if (seq == cc->floor_seen)
		return false;
	now = scx_bpf_now();
	fit = floor_deadline_ms * 1000000 / waiting;
	if (fit < interval)
		interval = fit > floor_slice_ns ? fit : floor_slice_ns;
	hurried = interval < floor_interval_ns || time_before(now, cc->floor_rests);
	if (time_before(now, cc->floor_began + interval) ||
	    (time_before(now, cc->floor_rests) && time_before(now, cc->floor_began + fit / 2)))
		return false;
	if (!scx_bpf_dsq_move_to_local(FLOOR_DSQ, 0)) {
		cc->floor_seen = seq;
		stat_inc(UFS_FLOOR_MISS);
		return false;
	}
	cc->floor_began = now;
	if (hurried)
		stat_inc(UFS_FLOOR_HURRIED);
	return true;
}

static int on_floor_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	u64 now = scx_bpf_now();
	u32 i, nr = READ_ONCE(nr_groups);
	bool starves = tier_starves();

	/* Older verifiers, as Linux 6.12's, take a timer that a sleepable callback has
	 * set for sleepable, and let no such program walk a queue without this. */
	bpf_rcu_read_lock();
	if (READ_ONCE(ts_waiting)) {
		bpf_for(i, 0, nr_cpu_ids) {
			if (READ_ONCE(cpu_ctx(i)->ts_waiting))
				floor_collect(TS_DSQ + i, false);
		}
	}
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (READ_ONCE(group(i)->nr_waiting))
			floor_collect(BG_DSQ + i, starves);
		retire_idle_group(i, GIVEWAY_TIER_BACKGROUND, now);
		retire_idle_group(i, GIVEWAY_TIER_TIME_SENSITIVE, now);
	}
	if (limits_on && READ_ONCE(nr_throttled_tasks)) {
		floor_collect(THROTTLED_DSQ, false);
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
