/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Time-sensitive work: direct-to-CPU (UFS paper, Sections 4 and 5.1.2).
 *
 * At wake-up a task goes to, in this order:
 *   1. an idle CPU, or one that runs background work, which is preempted at once:
 *      claim.bpf.h chooses it;
 *   2. a CPU whose time-sensitive task is ahead in virtual runtime by more than
 *      the preemption lag, which is preempted too, unless it holds a lock;
 *      extend.bpf.h lets dispatch decide that, and the task waits in the queue of 3;
 *   3. the queue of its previous CPU, in order of virtual runtime.
 *
 * The kernel's local queues know no virtual runtime, so case 3 uses a queue of
 * our own per CPU. A local queue holds a time-sensitive task only for the moment
 * between a preemption and its effect.
 *
 * Virtual runtime is comparable in the whole tier (see task_scale), and ts_clock
 * is its mean: active tasks' shares add up to one, so the mean moves by the real
 * time spent. Where tasks compete it is corrected (see ts_meet). A waking task
 * is at most one slice behind the clock.
 *
 * No time-sensitive task waits while a CPU that it may use is idle or runs
 * background work. A CPU that puts a task into a queue raises ts_waiting and then
 * looks at the idle mask and at bg_cpus; one that starts background work or goes
 * idle sets its bit there and then looks at ts_waiting. One of the two sees the
 * other.
 *
 * Known weakness: the kernel inserts a task into a queue only after enqueue has
 * returned. A CPU that looks in just that moment finds ts_waiting raised and the
 * queue empty; it looks again at its next tick, or is woken by the timer. A waker's
 * scx_bpf_now() may be late (see task_ctx.wake_at): a running task then seems less far
 * ahead than it is, by the time since the CPU's last tick at most.
 */
#ifndef UFS_PLACEMENT_H
#define UFS_PLACEMENT_H

/* CPUs looked at for a preemptible task, and queues compared in dispatch. */
#define SCAN_MAX 8

/* The CPU @steps after @cpu, in a circle: computed in each round of a loop, since a
 * variable that is carried along is a constant to the verifier (see nought). */
static __always_inline u32 cpu_after(u32 cpu, u32 steps)
{
	u32 sum = cpu + steps;

	return sum < nr_cpu_ids ? sum : sum - nr_cpu_ids;
}

/* How far the time-sensitive task on @cc is ahead of @vtime; 0 if it is not. */
static __always_inline u64 ahead_of(struct cpu_ctx *cc, u64 vtime, u64 now)
{
	s64 ahead;

	if (cc->runs != RUNS_TS)
		return 0;
	ahead = cc->curr_vtime + scaled(time_delta(now, cc->curr_start), cc->curr_scale) - vtime;
	return ahead > 0 ? ahead : 0;
}

/* Of @prev and a few CPUs after it, the one whose task is furthest ahead of @tc. */
__once s32 pick_ts_cpu(struct task_struct *p __arg_trusted, s32 prev, u64 vtime, u64 now)
{
	u64 most = unknown_zero(), ahead;
	s32 best = prev;
	u32 i;

	bpf_for(i, 0, SCAN_MAX) {
		struct cpu_ctx *cc;
		u32 cpu;

		if (i >= nr_cpu_ids)
			break;
		cpu = cpu_after(prev, i);
		cc = cpu_ctx(cpu);
		if (!cc->claimed) {
			ahead = ahead_of(cc, vtime, now);
			if (ahead > most && allowed_on(p, cpu)) {
				most = ahead;
				best = cpu;
			}
		}
	}
	return best;
}

/*
 * Take the clock back to the later of the task that wakes up for @cc and the
 * one that runs there, if it is ahead of both.
 *
 * ts_clock is the mean of the whole tier. It runs ahead of tasks that compete when
 * others get more than their weights would give them, on CPUs that no other task may
 * use. Where two tasks compete, the right time is between theirs. The clock is not moved
 * forward likewise: those others compete too, far ahead of all tasks. What CPUs owe the
 * clock (BATCHES in ctx.bpf.h) is added later: up to an eighth of a slice.
 */
static __always_inline void ts_meet(struct cpu_ctx *cc, u64 vtime, u64 now)
{
	u64 clock = READ_ONCE(ts_clock), later;

	/* The scale is 0 in a floor run, whose virtual runtime says nothing. */
	if (cc->runs != RUNS_TS || !cc->curr_scale)
		return;
	later = cc->curr_vtime + scaled(time_delta(now, cc->curr_start), cc->curr_scale);
	if ((s64)(vtime - later) > 0)
		later = vtime;
	/* If the race is lost, another CPU has corrected or advanced it: as good. */
	if ((s64)(clock - later) > 0)
		__sync_val_compare_and_swap(&ts_clock, clock, later);
}

static __always_inline void ts_clamp(struct task_ctx *tc, u64 scale, u32 slices)
{
	u64 slice = scaled(ts_slice_ns, scale);
	bool clamped = false;

	tc->vtime = clamp_vtime(tc->vtime, READ_ONCE(ts_clock), slices * slice, AHEAD * slice,
				&clamped);
	if (clamped)
		stat_inc(UFS_TS_CLAMP);
}

static __always_inline s32 ts_select_cpu(struct task_struct *p, struct task_ctx *tc, s32 prev,
					 u64 wake_flags)
{
	bool idle = false;
	s32 cpu;

	cpu = claim_for_wakeup(p, prev, wake_flags, true, &idle);
	if (cpu < 0)
		return pick_ts_cpu(p, prev, tc->vtime, scx_bpf_now());
	stat_inc(idle ? UFS_TS_WAKE_IDLE : UFS_TS_WAKE_PREEMPT_BG);
	if (has_llcs && place(cpu)->llc != place(prev)->llc)
		stat_inc(UFS_TS_LEFT_LLC);
	if (has_nodes && place(cpu)->node != place(prev)->node)
		stat_inc(UFS_TS_LEFT_NODE);
	/* The CPU is ours, and the local queue is that of the CPU returned. PREEMPT
	 * in the idle case too: background work may have got there first. */
	count_runnable(tc);
	ts_clamp(tc, task_scale(tc), 1);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns, SCX_ENQ_PREEMPT);
	return cpu;
}

/* Have an idle CPU, if there is one, serve @p, which waits in its group's queue. A CPU
 * that becomes idle after this look sees the count of the task. */
__once int bg_call_cpu(struct task_struct *p __arg_trusted)
{
	bool idle = false;
	s32 cpu;

	if (!may_move(p)) {
		if (is_idle_cpu(scx_bpf_task_cpu(p)))
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_IDLE);
		return 0;
	}
	cpu = claim_for_queued(p, scx_bpf_task_cpu(p), false, &idle);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/* Have a CPU serve @p, which was counted as waiting in the queue of @cpu. The
 * atomic additions of that are the barrier: see "No time-sensitive task waits" at
 * the top. */
__once int ts_call_cpu(struct task_struct *p __arg_trusted, u32 cpu)
{
	bool idle = false;
	s32 other;

	if (!may_move(p)) {
		if (is_idle_cpu(cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		else if (claim_bg_cpu(cpu))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return 0;
	}
	other = claim_for_queued(p, cpu, true, &idle);
	if (other >= 0 && idle) {
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
	} else if (other >= 0) {
		stat_inc(UFS_LATE_PREEMPT);
		scx_bpf_kick_cpu(other, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* Reached by pinned tasks, by those that found no CPU, and after a slice. */
static __always_inline void ts_enqueue(struct task_struct *p, struct task_ctx *tc, u64 enq_flags,
				       u64 now)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cc = cpu_ctx(cpu);
	bool waking = enq_flags & SCX_ENQ_WAKEUP;
	u64 scale = task_scale(tc);

	if (waking)
		ts_meet(cc, tc->vtime, now);
	ts_clamp(tc, scale, waking ? 1 : BEHIND_AWAKE);
	if (waking && claim_only_cpu(p, cpu)) {
		stat_inc(UFS_TS_WAKE_IDLE);
		/* PREEMPT: as in ts_select_cpu(). */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	/* Under the rq lock: what the CPU runs cannot change here. */
	if (cc->runs == RUNS_BG && claim_bg_cpu(cpu)) {
		stat_inc(waking ? UFS_TS_WAKE_PREEMPT_BG : UFS_LATE_PREEMPT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (unlikely(cc->runs_boosted) && waking && was_waiting(tc)) {
		stat_inc(UFS_BOOST_YIELD);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (waking && !cc->claimed &&
	    ahead_of(cc, tc->vtime, now) > scaled(preempt_lag_ns, scale)) {
		cc->claimed = 1;
		cc->claim_latest = latest_next(tc->vtime, scale);
		stat_inc(UFS_TS_WAKE_PREEMPT_TS);
		if (likely(!runs_holder(cc))) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns,
					   enq_flags | SCX_ENQ_PREEMPT);
			return;
		}
		/* Dispatch finds the task, or an extension ends soon: no other CPU is called. */
		enter_queue(tc, WAITS_TS | cpu);
		scx_bpf_dsq_insert_vtime(p, TS_DSQ + cpu, ts_slice_ns, tc->vtime, enq_flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}

	if (ts_run_next(p, tc, cc, cpu, enq_flags))
		return;
	enter_queue(tc, WAITS_TS | cpu);
	scx_bpf_dsq_insert_vtime(p, TS_DSQ + cpu, ts_slice_ns,
				 tc->vtime - (waking ? 0 : lead_of(tc, scale)), enq_flags);
	if (waking)
		stat_inc(UFS_TS_WAKE_QUEUED);
	/* Kicks act after the task is in its queue. */
	ts_call_cpu(p, cpu);
}

/* The CPUs of @word in whose queue tasks wait, without @cpu itself: those that share its
 * last-level cache, or, if @far, the others. */
static __always_inline u64 other_queues(u32 cpu, bool far, u32 word)
{
	u64 queues = READ_ONCE(ts_queues[word & (UFS_CPU_WORDS - 1)]);

	if (word == cpu >> 6)
		queues &= ~(1ULL << (cpu & 63));
	if (!has_llcs)
		return far ? 0 : queues;
	return queues & (far ? ~domain_word(cpu, LEVEL_LLC, word) : domain_word(cpu, LEVEL_LLC, word));
}

/* The nearest of @queues, CPUs of one word, from @cpu upwards. */
static __always_inline u32 nearest_in(u64 queues, u32 word, u32 cpu)
{
	u64 above = queues & (~0ULL << (cpu & 63));
	u32 nearest = (word << 6) + ctzll(above ? above : queues);

	/* As in claim_in_word(). */
	__sink(nearest);
	return nearest;
}

/* The word of CPUs that is @steps after that of @cpu, in a circle. */
static __always_inline u32 word_after(u32 cpu, u32 steps)
{
	u32 sum = (cpu >> 6) + steps;

	return sum < nr_cpu_words ? sum : sum - nr_cpu_words;
}

/* The other CPU whose first waiting task is most behind, of SCAN_MAX, near ones first.
 * A later one is better only if it is behind *@vtime by a slice. Else @best. */
__once s32 most_behind(u32 cpu, s32 best, u64 *vtime __arg_nonnull)
{
	u32 seen = unknown_zero(), far, i, j;

	bpf_for(far, 0, has_llcs ? 2 : 1) {
		bpf_for(i, 0, nr_cpu_words) {
			u32 word = word_after(cpu, i);
			u64 queues = other_queues(cpu, far, word);

			bpf_for(j, 0, SCAN_MAX) {
				u64 first;
				u32 other;

				if (!queues || seen >= SCAN_MAX)
					break;
				other = nearest_in(queues, word, cpu);
				queues &= ~(1ULL << (other & 63));
				seen++;
				if (!queue_first(TS_DSQ + (other & (UFS_CPUS_MAX - 1)), &first))
					continue;
				if (best < 0 || (s64)(first + ts_slice_ns - *vtime) < 0) {
					best = other & (UFS_CPUS_MAX - 1);
					*vtime = first;
				}
			}
		}
	}
	return best;
}

static __always_inline bool take_ts(u32 cpu, u32 from)
{
	if (!scx_bpf_dsq_move_to_local(TS_DSQ + (from & (UFS_CPUS_MAX - 1)), 0))
		return false;
	stat_inc(UFS_TS_DISPATCH);
	if (from != cpu)
		stat_inc(UFS_TS_STEAL);
	return true;
}

/* Take a task from any other queue, near ones first. */
__once bool take_any_ts(u32 cpu)
{
	u32 far, i, j;

	bpf_for(far, 0, has_llcs ? 2 : 1) {
		bpf_for(i, 0, nr_cpu_words) {
			u32 word = word_after(cpu, i);
			u64 queues = other_queues(cpu, far, word);

			bpf_for(j, 0, 64) {
				u32 other;

				if (!queues)
					break;
				other = nearest_in(queues, word, cpu);
				queues &= ~(1ULL << (other & 63));
				if (take_ts(cpu, other))
					return true;
			}
		}
	}
	return false;
}

/*
 * Take the waiting task that is most behind, if it is behind @prev_vtime. A
 * foreign queue is preferred to our own only if it is behind by a slice: order
 * across CPUs is worth a migration only when it has drifted.
 */
__once bool ts_dispatch(u32 cpu, bool has_prev, u64 prev_vtime)
{
	struct cpu_ctx *cc = cpu_ctx(cpu);
	u64 vtime = unknown_zero();
	s32 best = -1 - (s32)unknown_zero();
	bool elsewhere;

	WRITE_ONCE(cc->ts_seen, READ_ONCE(ts_enq_seq));
	elsewhere = READ_ONCE(ts_waiting) > READ_ONCE(cc->ts_waiting);
	/* Where there is nothing to compare a task with, its key need not be read. */
	if (!elsewhere && !has_prev && take_ts(cpu, cpu))
		return true;
	if (READ_ONCE(cc->ts_waiting) && queue_first(TS_DSQ + cpu, &vtime))
		best = cpu;
	if (elsewhere)
		best = most_behind(cpu, best, &vtime);
	if (best < 0 || (has_prev && (s64)(prev_vtime - vtime) <= 0))
		return false;
	if (take_ts(cpu, best))
		return true;
	/* Its tasks may not run here. Any other will do. */
	return (best != cpu && READ_ONCE(cc->ts_waiting) && take_ts(cpu, cpu)) || take_any_ts(cpu);
}

#endif
