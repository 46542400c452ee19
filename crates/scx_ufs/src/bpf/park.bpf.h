/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Held tasks: what becomes of the tasks of a group that has used up its cpu.max
 * (limit.bpf.h says which group has).
 *
 *	wakes up, or its slice is over	enqueue parks it in PARK_DSQ
 *	runs				the tick ends its slice: as above
 *	waits in a queue		comes to a CPU in its turn, is sent away from
 *					it at once (running), and then as above
 *	parked				goes to the queue of its tier when the budget
 *					is refilled (release_parked)
 *
 * Nobody searches the queues for tasks to park. One that comes to its turn runs
 * for the few microseconds until an interrupt of its own CPU ends that. So the
 * kernel's watchdog, and with it the floor, sees each task of a crowd run, while
 * the budget goes round among them in order of virtual runtime.
 *
 * A parked task does not compete: it counts neither as waiting nor in the weights
 * of the others.
 *
 * WHO RUNS ALL THE SAME. A task of the floor's, since the kernel would eject UFS
 * for it: a debt of its group does that. A background task that holds a lock
 * which urgent work waits for (boost.bpf.h), parked or not: a limit that keeps
 * others waiting limits them. Both are billed, so the group pays later.
 *
 * PROTOCOL. enqueue parks under the lock of the task's run queue; the timer of a
 * group releases without it. Whoever takes a task out of a queue takes its word
 * .waits with an exchange, and release_parked() changes the word by a compare and
 * swap before it moves the task, and back if it could not. A word names one stay in
 * one queue, so each addition to a count is undone once. A task that enqueue parks
 * while its group is released may be missed, since the kernel inserts it only after
 * enqueue has returned; the floor's timer finds it.
 *
 * WEAKNESSES: a task may be parked in the kernel, with a lock of the kernel's in
 * hand. Whoever needs that lock sleeps until its holder runs again, which the floor
 * sees to after a deadline. A crowd that starts under a tight limit locks the same
 * pages in turn, so these waits add up: of forty programs at one percent of a CPU
 * five had not started after eight seconds, with a deadline of one. Linux's own
 * scheduler, from 6.18 on, throttles on the way back to user mode, where no lock of
 * the kernel's is held. A time-sensitive holder of a lock is not boosted, so its
 * cgroup's cpu.max may keep time-sensitive waiters of other cgroups waiting. Of more
 * than WALK_MAX parked tasks those at the end are released late. Each group that is released looks
 * at all parked tasks, so a hundred throttled groups and a thousand parked tasks are
 * a hundred thousand looks in each period. A crowd that waits is sent away
 * one by one, once in a period, which costs two switches each.
 */
#ifndef UFS_PARK_H
#define UFS_PARK_H

/* Whether cpu.max keeps the task from running. */
static __always_inline bool is_held(struct task_ctx *tc)
{
	return limits_on && unlikely(READ_ONCE(nr_throttled)) && tc->group && !tc->floor &&
	       is_throttled(tc->group) && !is_boosted(tc);
}

/* In enqueue: @p is in no queue, and is_held(). */
__once int park(struct task_struct *p __arg_trusted, struct task_ctx *tc __arg_nonnull,
		    u64 enq_flags)
{
	u32 tier = tc->tier & 1, waits = WAITS_BG | (tc->group & (UFS_GROUPS_MAX - 1));

	if (tier == GIVEWAY_TIER_TIME_SENSITIVE)
		waits = WAITS_TS | (scx_bpf_task_cpu(p) & (UFS_CPUS_MAX - 1));
	uncount_runnable(tc, scx_bpf_now());
	retire_group(tc->group, tier);
	enter_queue(tc, WAITS_PARKED | waits);
	stat_inc(UFS_PARK);
	scx_bpf_dsq_insert(p, PARK_DSQ, floor_slice_ns, enq_flags);
	/* As in bg_enqueue(): boosted just now. */
	if (unlikely(is_boosted(tc))) {
		want(tc->slot);
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
	}
	return 0;
}

/* Change the word of a waiting task from one queue's to another's. False: it has
 * been taken out of its queue since @from was read. */
static __always_inline bool change_queue(struct task_ctx *tc, u64 from, u64 to)
{
	bool changed;

	count_waiting(to);
	changed = __sync_val_compare_and_swap(&tc->waits, from, to) == from;
	uncount_waiting(changed ? from : to);
	return changed;
}

/* Move the tasks that are not held any more to the queues of their tiers. They are
 * counted as runnable when they run. Called by timers. */
static __noinline int release_parked(void)
{
	struct task_struct *p;
	u32 walked = 0;

	if (!READ_ONCE(nr_parked))
		return 0;
	/* To the verifier an unknown number, so that it need not walk them all. */
	__sink(walked);
	bpf_for_each(scx_dsq, p, PARK_DSQ, 0) {
		struct task_ctx *tc;
		u64 parked, waits;
		bool moved;
		u32 at;

		if (++walked > WALK_MAX)
			break;
		tc = task_ctx(p);
		if (!tc || is_held(tc))
			continue;
		parked = READ_ONCE(tc->waits);
		waits = parked & ~(u64)WAITS_PARKED;
		if (parked == waits || !change_queue(tc, parked, waits))
			continue;
		at = waits & WAITS_NUMBER;
		if (waits & WAITS_TS) {
			at &= UFS_CPUS_MAX - 1;
			ts_clamp(tc, task_scale(tc), 1);
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, ts_slice_ns);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, tc->vtime);
			moved = scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, TS_DSQ + at, 0);
			if (moved)
				ts_call_cpu(p, at);
		} else {
			at &= UFS_GROUPS_MAX - 1;
			if (!group(at)->in[GIVEWAY_TIER_BACKGROUND].load)
				bg_clamp(at, 1);
			add_reach(p, at);
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, bg_slice_ns);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, tc->vtime);
			moved = scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, BG_DSQ + at, 0);
			if (moved) {
				group_has_work(at);
				bg_call_cpu(p);
			}
		}
		/* Out of PARK_DSQ, or not in it yet: then it is still parked. */
		if (!moved)
			change_queue(tc, waits, parked);
	}
	return 0;
}

#endif
