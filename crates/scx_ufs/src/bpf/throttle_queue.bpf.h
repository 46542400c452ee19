/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Throttled tasks: the tasks of a cgroup that has used up its cpu.max (limit.bpf.h
 * says which cgroup has).
 *
 *	wakes up, or its slice is over	enqueue puts it into THROTTLED_DSQ
 *	runs				the tick ends its slice: as above
 *	waits in a queue		runs in its turn, is preempted at once (running),
 *					and then as above
 *	in THROTTLED_DSQ		moves to its tier's queue when the budget is
 *					refilled (release_throttled)
 *
 * UFS does not search its queues for tasks to throttle. A queued task runs in its turn
 * for a few microseconds, until an interrupt of its own CPU ends that. So the kernel's
 * watchdog, and with it the floor, sees each of many tasks run, while the budget goes
 * round among them in order of virtual runtime.
 *
 * A throttled task does not compete: it counts neither as waiting nor in the weights
 * of other groups.
 *
 * EXCEPTIONS. A task that runs from the floor, since the kernel would eject UFS for its
 * wait. A background task that holds a lock which urgent work waits for (boost.bpf.h),
 * throttled or not: otherwise its limit would delay the waiter. Both are billed, so
 * the group pays later.
 *
 * PROTOCOL. enqueue throttles under the lock of the task's run queue; a timer of
 * all groups releases without it. Code that takes a task out of a queue exchanges its word
 * .waits; release_throttled() changes the word by a compare and swap before it moves
 * the task, and changes it back if the move fails. A word stands for one stay in one
 * queue, so each addition to a count is undone once. (asserted: count_down()) A task
 * that is throttled while its group is released may be missed, since the kernel inserts
 * it only after enqueue has returned; the floor's timer finds it.
 *
 * WEAKNESSES: a task may be throttled in the kernel while it holds a kernel lock.
 * Tasks that need the lock sleep until the holder runs again, after the floor's deadline
 * at the latest. Many programs that start under a tight limit lock the same pages in
 * turn, so these waits add up: of forty programs with one percent of a CPU five had not
 * started after eight seconds, with a deadline of one. Linux's own scheduler, from 6.18
 * on, throttles on the return to user mode, where no kernel lock is held. A
 * time-sensitive lock holder is not boosted, so its cgroup's cpu.max may delay
 * time-sensitive waiters of other cgroups. Of more than WALK_MAX throttled tasks the
 * last are released late. Each release looks at all throttled tasks: a hundred groups
 * with a thousand tasks cost a hundred thousand looks in each period, unless their
 * periods begin together. Queued tasks of a throttled group are preempted one by one,
 * once in a period, for two switches each.
 */
#ifndef UFS_THROTTLE_QUEUE_H
#define UFS_THROTTLE_QUEUE_H

/* Whether cpu.max keeps the task from running. */
static __always_inline bool is_throttled(struct task_ctx *tc)
{
	return limits_on && unlikely(READ_ONCE(nr_throttled_groups)) && tc->group && !tc->floor &&
	       group_is_throttled(tc->group) && !is_boosted(tc);
}

/* In enqueue: @p is in no queue, and is_throttled(). */
__once int enqueue_throttled(struct task_struct *p __arg_trusted, struct task_ctx *tc __arg_nonnull,
		    u64 enq_flags)
{
	u32 tier = tc->tier & 1, waits = WAITS_BG | (tc->group & (UFS_GROUPS_MAX - 1));

	if (tier == GIVEWAY_TIER_TIME_SENSITIVE)
		waits = WAITS_TS | (scx_bpf_task_cpu(p) & (UFS_CPUS_MAX - 1));
	uncount_runnable(tc, scx_bpf_now());
	retire_group(tc->group, tier);
	enter_queue(tc, WAITS_THROTTLED | waits);
	stat_inc(UFS_THROTTLED_TASK);
	scx_bpf_dsq_insert(p, THROTTLED_DSQ, floor_slice_ns, enq_flags);
	/* As in bg_enqueue(): boosted just now. */
	if (unlikely(is_boosted(tc))) {
		request_fetch(tc->slot);
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
	}
	return 0;
}

/* Change the word of a waiting task to another queue's. False: the task has left its
 * queue since @from was read. */
static __always_inline bool change_queue(struct task_ctx *tc, u64 from, u64 to)
{
	bool changed;

	count_waiting(to);
	changed = __sync_val_compare_and_swap(&tc->waits, from, to) == from;
	uncount_waiting(changed ? from : to);
	return changed;
}

/* Move the tasks that are no longer throttled to the queues of their tiers. They are
 * counted as runnable when they run. Called by timers, after .throttled was cleared. */
static __noinline int release_throttled(void)
{
	struct task_struct *p;
	u32 walked = 0;

	if (!READ_ONCE(nr_throttled_tasks))
		return 0;
	/* To the verifier an unknown number, so that it need not walk them all. */
	__sink(walked);
	bpf_for_each(scx_dsq, p, THROTTLED_DSQ, 0) {
		struct task_ctx *tc;
		u64 throttled, waits;
		bool moved;
		u32 at;

		if (++walked > WALK_MAX)
			break;
		tc = task_ctx(p);
		if (!tc || is_throttled(tc))
			continue;
		throttled = READ_ONCE(tc->waits);
		waits = throttled & ~(u64)WAITS_THROTTLED;
		if (throttled == waits || !change_queue(tc, throttled, waits))
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
			add_affinity(p, at);
			scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, bg_slice_ns);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, tc->vtime);
			moved = scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, BG_DSQ + at, 0);
			if (moved) {
				group_has_work(at);
				bg_call_cpu(p);
			}
		}
		/* Out of THROTTLED_DSQ, or not in it yet: then it stays throttled. */
		if (!moved)
			change_queue(tc, waits, throttled);
	}
	return 0;
}

static int on_release_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	/* As in on_floor_timer(). */
	bpf_rcu_read_lock();
	release_throttled();
	bpf_rcu_read_unlock();
	return 0;
}

#endif
