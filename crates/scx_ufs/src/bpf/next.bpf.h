/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The next task of a CPU: one that dispatch would choose anyway.
 *
 * A task that may run on one CPU only waits for that CPU, whatever its queue. If nothing
 * else waits there, it is next when the CPU's task stops. Then it goes to the CPU's local
 * queue at once. The kernel takes it from there without asking, which saves the counts
 * of a queue of ours, the insertion by virtual runtime, and dispatch: with two threads on
 * a CPU that hand a byte back and forth, a fifth to a third of what UFS's callbacks take.
 *
 *	wakes up, pinned ---- next in line? --yes--> local queue --> RUNNING
 *	time-sensitive, pinned,       \
 *	    preempted ----------------+--no--> queue of its CPU or group, as others
 *
 * NEXT IN LINE, all under the CPU's rq lock:
 *   1. No other task of this kind is in the local queue.
 *   2. Nothing waits in a queue that this CPU would serve first: no time-sensitive task
 *      anywhere, none from the floor, none boosted; and, for a background task, no
 *      background one that may run here.
 *   3. The CPU runs, or is about to run, a task of the same tier, and for a background
 *      task one of the group that the CPU is committed to.
 *   4. The task is ahead of that one by at most NEXT_AHEAD_NS of its CPU time. Else a
 *      light task would gain a slice at the end of each slice of a heavy one.
 *   5. If a time-sensitive task runs, it has no hint slot: at the end of its slice
 *      dispatch looks whether it holds a lock (extend.bpf.h). Nor has a task that is
 *      put here but a time-sensitive one that wakes up: one that lost its CPU with a
 *      lock in hand has a place of its own, and a background one may be boosted, which
 *      moves it from a queue of ours.
 *
 * What wakes up later is served after the task, or takes the CPU from it: a time-sensitive
 * task preempts, and is put in front. So order is late by one slice of one task, and
 * weights by a lead of NEXT_AHEAD_NS, once. A background task that the kernel takes from
 * the local queue while time-sensitive work waits gives way at once, like any other that
 * comes to a CPU without dispatch: see running. It then waits in its group's queue.
 *
 * Tasks that may run elsewhere are never put here: another CPU could not take them.
 *
 * INVARIANT: cpu_ctx.has_next is 1 while a task that waits in WAITS_NEXT is in the local
 * queue of that CPU, and 0 otherwise. Both change under the CPU's rq lock, in the task's
 * own callbacks; only a task that has been moved to another CPU clears it under that
 * one's, and until then nobody else sets it. (not asserted: a program cannot look into
 * local queues)
 *
 * WEAKNESS: a group that is further behind, and whose task wakes up while one is next,
 * waits for that one, too.
 */
#ifndef UFS_NEXT_H
#define UFS_NEXT_H

/* Several slices: two tasks that wake each other keep the distance that they had when they
 * began, since both are charged alike. */
#define NEXT_AHEAD_NS (30 * 1000 * 1000ULL)

static __always_inline u64 latest_next(u64 vtime, u64 scale)
{
	return vtime + scaled(NEXT_AHEAD_NS, scale);
}

/* Whether nothing waits that the CPU of @cc would serve before time-sensitive tasks. */
static __always_inline bool nobody_before(void)
{
	return !READ_ONCE(ts_waiting) && !READ_ONCE(floor_waiting) &&
	       !READ_ONCE(boost_waiting) && set_is_empty(&to_fetch);
}

/* Put the task into the local queue of @cpu, if it may be next. */
static __always_inline bool run_next(struct task_struct *p, struct task_ctx *tc,
				     struct cpu_ctx *cc, u32 cpu, u64 latest, u64 slice,
				     u64 enq_flags)
{
	if (cc->has_next || (s64)(tc->vtime - latest) > 0 || !nobody_before())
		return false;
	enter_queue(tc, WAITS_NEXT | cpu);
	if (enq_flags & SCX_ENQ_WAKEUP)
		stat_inc(tc->tier == GIVEWAY_TIER_TIME_SENSITIVE ? UFS_TS_WAKE_NEXT :
								   UFS_BG_WAKE_NEXT);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, enq_flags);
	return true;
}

/* A time-sensitive task wakes up, or has been preempted. */
static __always_inline bool ts_run_next(struct task_struct *p, struct task_ctx *tc,
					struct cpu_ctx *cc, u32 cpu, u64 enq_flags)
{
	u64 latest;

	if (may_move(p))
		return false;
	if (enq_flags & SCX_ENQ_WAKEUP) {
		if (cc->claimed || cc->runs != RUNS_TS || !cc->curr_scale || cc->curr_slot)
			return false;
		latest = latest_next(cc->curr_vtime, cc->curr_scale);
	} else {
		if (!cc->claimed || tc->slot)
			return false;
		latest = cc->claim_latest;
	}
	return run_next(p, tc, cc, cpu, latest, ts_slice_ns, enq_flags);
}

/* A background task wakes up. */
static __always_inline bool bg_run_next(struct task_struct *p, struct task_ctx *tc,
					struct cpu_ctx *cc, u32 cpu, u64 enq_flags)
{
	if (may_move(p) || tc->slot || cc->claimed || cc->runs != RUNS_BG ||
	    !is_committed(cc, tc->group) || bg_work_for(cpu))
		return false;
	return run_next(p, tc, cc, cpu, latest_next(cc->curr_vtime, cc->curr_scale), bg_slice_ns,
			enq_flags);
}

#endif
