/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UFS, the unfair scheduler: background work gives way.
 *
 * Two tiers, by the name of a task's cgroup. A time-sensitive task runs before
 * any background task; inside a tier, CPU time is shared by the weights of the
 * cgroups, hierarchically. Source: the UFS paper, Sections 4 and 5.1; where and
 * why this departs from it is in docs/design/ufs.md.
 *
 * STATES OF A TASK
 *
 *   time-sensitive:
 *	           idle or background CPU claimed (select_cpu)
 *	asleep ---------------------------------------------> local queue --+
 *	  ^  \                                                   ^          |
 *	  |   \ none      far enough behind what runs (enqueue)  |          v
 *	  |    +------------------------------------------------ +      RUNNING
 *	  |    |  else                    own or stolen (dispatch)       |    |
 *	  |    +------> TS_DSQ + cpu, by virtual runtime ----------------+    |
 *	  |                  ^                                           |    |
 *	  |                  +----------- slice over, another is behind -+    |
 *	  +-------------------------------------------------------------------+
 *
 *   background:
 *	           idle CPU claimed (select_cpu)
 *	asleep ---------------------------------> local queue --+
 *	    \                                                   v
 *	     +---> BG_DSQ + group, by virtual runtime ------> RUNNING ---> asleep
 *	                 ^      the CPU's group, or the first    |
 *	                 |      in the runnable tree             |
 *	                 +------- preempted, or slice over ------+
 *
 *   either, pinned, and the only one that waits: local queue ---> RUNNING (next.bpf.h).
 *   either, after waiting for the deadline: FLOOR_DSQ ---> RUNNING.
 *   background that holds a lock urgent work waits for: BOOST_DSQ ---> RUNNING.
 *   either, of a cgroup that has used up its cpu.max: THROTTLED_DSQ ---> its queue above.
 *
 * DISPATCH takes the first of these that exists: an overdue task, if the floor's share
 * allows; the previous task, if it is time-sensitive and holds a lock, for a moment
 * (extend.bpf.h); a boosted task, if it is their turn; the waiting time-sensitive task that is
 * most behind, in any queue, or the previous one if that is further behind; a task of
 * the background group that is most behind, or the previous task likewise. Else idle.
 *
 * INVARIANTS
 *   1. A background task is never put into a local queue, which the kernel serves
 *      before it calls dispatch. Exceptions: dispatch moves one there to run it next;
 *      one that wakes up or moves apart (claim.bpf.h) goes to an idle CPU that it has
 *      claimed; and next.bpf.h. If urgent work was queued meanwhile, running sees that
 *      and gives way.
 *      (not asserted: a program cannot look into local queues; tests look at traces)
 *   2. A task in one of UFS's queues is counted (task_ctx.waits) from before it is
 *      inserted until it runs, moves or leaves; emptiness is judged by counts.
 *      (asserted in count_down(): no count falls below 0)
 *   3. A bit in bg_cpus is set only while that CPU runs background work. (asserted in
 *      ufs_tick)
 *   4. Nothing that a cgroup or a task can do is an error: a task without a context
 *      counts as time-sensitive, in the root group. (UFS_NO_CTX counts such tasks;
 *      tests require that there are none)
 * WEAKNESSES: slices end at the timer tick; each of the headers names its own.
 */
#include <scx/common.bpf.h>

#include <giveway/slot.h>

#include "intf.h"
#include "ctx.bpf.h"
#include "timer.bpf.h"
#include "limit.bpf.h"
#include "group.bpf.h"
#include "affinity.bpf.h"
#include "bg_tree.bpf.h"
#include "hints.bpf.h"
#include "reader.bpf.h"
#include "topology.bpf.h"
#include "claim.bpf.h"
#include "extend.bpf.h"
#include "boost.bpf.h"
#include "next.bpf.h"
#include "placement.bpf.h"
#include "boost_run.bpf.h"
#include "throttle_queue.bpf.h"
#include "floor.bpf.h"
#include "reweight.bpf.h"
#include "tasks.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* ---- Background side of the callbacks ---- */

/* A task is at most one slice behind its group's. */
static __always_inline void bg_clamp_task(struct task_ctx *tc)
{
	u64 least = group(tc->group)->task_clock - bg_slice_ns;

	if ((s64)(least - tc->vtime) > 0) {
		tc->vtime = least;
		stat_inc(UFS_BG_CLAMP);
	}
}

/* A waking background task has an idle CPU, which was claimed for it: invariant 1. */
static __always_inline void bg_run_idle(struct task_struct *p, struct task_ctx *tc)
{
	count_runnable(tc);
	bg_clamp_task(tc);
	stat_inc(UFS_BG_WAKE_IDLE);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, bg_slice_ns, 0);
}

static __always_inline void bg_enqueue(struct task_struct *p, struct task_ctx *tc, u64 enq_flags)
{
	u32 index = tc->group & (UFS_GROUPS_MAX - 1), cpu = scx_bpf_task_cpu(p);

	if ((enq_flags & SCX_ENQ_WAKEUP) && claim_only_cpu(p, cpu)) {
		bg_run_idle(p, tc);
		return;
	}
	bg_clamp_task(tc);
	if ((enq_flags & SCX_ENQ_WAKEUP) && bg_run_next(p, tc, cpu_ctx(cpu), cpu, enq_flags))
		return;
	enter_queue(tc, WAITS_BG | index);
	add_affinity(p, index);
	scx_bpf_dsq_insert_vtime(p, BG_DSQ + index, bg_slice_ns, tc->vtime, enq_flags);
	group_has_work(index);
	/* Boosted just now, by a waiter that did not find it in a queue: paired with
	 * boost_holder() and wake_boosted(), as is the addition to bg_waiting. */
	if (unlikely(is_boosted(tc))) {
		request_fetch(tc->slot);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}

	if (enq_flags & SCX_ENQ_WAKEUP) {
		stat_inc(UFS_BG_WAKE_QUEUED);
		release_commitment(cpu_ctx(cpu), index);
	}
	bg_call_cpu(p);
}

/* ---- Charging ---- */

/* The sum of the parts of a tier that are owned. A tier's clock, the mean virtual runtime,
 * advances by the CPU time used divided by that. The groups below the root own 1
 * together, each task of the root owns 1 by itself. Without the root's part the clock
 * would run ahead of all groups whenever a kernel thread runs, and clamping would remove
 * the lag by which weights work. */
static __always_inline u64 owners_of(u32 tier)
{
	u64 owners = groups[0].child_weight[tier & 1] ? 1 : 0;

	return owners + (READ_ONCE(groups[0].in[tier & 1].load) >> LOAD_SHIFT);
}

static __always_inline void advance_ts_clock(struct cpu_ctx *cc, u64 used)
{
	u64 owners = owners_of(GIVEWAY_TIER_TIME_SENSITIVE);

	cc->ts_late += owners > 1 ? used / owners : used;
}

/* Add what the CPU owes the clocks, if it has used so much. Under its rq lock. */
static __always_inline void catch_up(struct cpu_ctx *cc, u64 least)
{
	if (likely(cc->late_ns < least))
		return;
	cc->late_ns = 0;
	if (cc->ts_late) {
		__sync_fetch_and_add(&ts_clock, cc->ts_late);
		cc->ts_late = 0;
	}
	if (cc->bg_late) {
		__sync_fetch_and_add(&bg_clock, cc->bg_late);
		cc->bg_late = 0;
	}
}

/* Where @ns belongs in a histogram with four buckets to an octave. */
static __always_inline u32 fine_bucket(u64 ns)
{
	u32 octave, bucket;

	if (ns < 4)
		return 0;
	octave = highest_bit(ns);
	bucket = 4 * octave + ((ns >> (octave - 2)) & 3);
	return bucket < UFS_FINE_BUCKETS ? bucket : UFS_FINE_BUCKETS - 1;
}

/* A task starts to run that was woken @waited nanoseconds ago. */
static __always_inline void count_wakeup(struct task_ctx *tc, u64 waited)
{
	u32 bucket = coarse_bucket(waited);

	stats()->wake_ns[tc->tier & 1] += waited;
	stats()->wake_ns_log2[tc->tier & 1][bucket]++;
	__sync_fetch_and_add(&work_of(tc->group)->wake_ns_log2[bucket], 1);
}

/* A task with a slot starts to run: it no longer waits. @waited is since its wake-up. */
static __always_inline void start_with_slot(struct task_ctx *tc, u64 now, u64 waited)
{
	struct slot_state *state = state_of(tc->slot);
	struct giveway_report *report = &state->report;

	if (!has_state(tc))
		return;
	if (tc->wake_at) {
		report->wakes++;
		report->wake_ns += waited;
		state->wake_ns_log2[coarse_bucket(waited)]++;
	}
	state->awaited = 0;
	if (state->sleeps_since) {
		stats()->lock_wait_ns[fine_bucket(time_delta(now, state->sleeps_since))]++;
		state->sleeps_since = 0;
	}
	if (was_waiting(tc))
		set_put(&waiters, tc->slot, false);
}

/* A task with a slot has left its CPU, and what it holds is known. */
static __always_inline void count_holder(struct task_ctx *tc, bool runnable)
{
	if (!runnable || !holds_lock(tc))
		return;
	if (tc->tier == GIVEWAY_TIER_BACKGROUND)
		stat_inc(UFS_HOLDER_PREEMPTED);
	else
		stat_inc(UFS_TS_HOLDER_PREEMPTED);
}

/* A task with a slot has used @used nanoseconds. */
static __always_inline void count_run(struct task_ctx *tc, u64 used)
{
	struct giveway_report *report = &state_of(tc->slot)->report;

	if (!has_state(tc))
		return;
	report->run_ns[tc->tier & 1] += used;
	if (tc->boost == OVERRIDE_RUNNING) {
		report->boosted_ns += used;
		stats()->boosted_ns += used;
	}
}

/* A background task of the group has used @used nanoseconds on this CPU. */
static __always_inline void charge_bg(struct cpu_ctx *cc, u32 index, u64 used)
{
	u64 scale = group_scale(index, GIVEWAY_TIER_BACKGROUND);
	u64 paid = cc->bg_group != index ? 0 : used < cc->bg_left ? used : cc->bg_left;

	cc->bg_left -= paid;
	/* Before the clock advances: the group may be reweighted. */
	if (unlikely(paid < used || group(index)->lag_scale != scale))
		charge_group(index, used - paid, scale);
	advance_bg_clock(cc, index, used, scale, owners_of(GIVEWAY_TIER_BACKGROUND));
}

/* Account what @tc has used on the CPU of @cc since it was last charged, under its rq lock. */
__once int charge(struct task_struct *p __arg_trusted, struct task_ctx *tc __arg_nonnull,
		      struct cpu_ctx *cc __arg_nonnull, u64 now)
{
	u64 used = time_delta(now, tc->started), weighted;
	struct group *g = group(tc->group);

	/* A second at most: the fixed point of a scale has room for no more. */
	if (used > (1ULL << 29))
		used = 1ULL << 29;
	tc->started = now;
	bill(tc, now);
	if (unlikely(tc->owed))
		pay_owed(tc, used);
	if (stats_on) {
		stats()->run_ns[tc->tier & 1] += used;
		__sync_fetch_and_add(&work_of(tc->group)->run_ns[tc->tier & 1], used);
	}
	weighted = used;
	if (unlikely(p->scx.weight != 100) && p->scx.weight)
		weighted = used * 100 / p->scx.weight;
	if (unlikely(tc->slot))
		count_run(tc, used);
	if (tc->tier == GIVEWAY_TIER_TIME_SENSITIVE) {
		tc->vtime += scaled(weighted, task_scale(tc));
		advance_ts_clock(cc, used);
	} else {
		if (unlikely(tc->load != LOAD_ONE))
			weighted = (weighted << LOAD_SHIFT) / tc->load;
		tc->vtime += weighted;
		if ((s64)(tc->vtime - g->task_clock) > (s64)bg_slice_ns)
			g->task_clock = tc->vtime - bg_slice_ns;
		charge_bg(cc, tc->group, used);
	}
	cc->late_ns += used;
	catch_up(cc, clock_batch_ns);
	return 0;
}

/* ---- What a CPU runs ---- */

static __always_inline void runs_ts(struct cpu_ctx *cc, u32 cpu, struct task_ctx *tc, u64 scale,
				    u64 vtime)
{
	if (unlikely(cc->runs == RUNS_BG))
		claim_bg_cpu(cpu);
	cc->curr_start = tc->started;
	cc->curr_slot = tc->slot;
	cc->claimed = 0;
	cc->extended_until = 0;
	cc->curr_scale = scale;
	cc->curr_vtime = vtime;
	cc->runs_boosted = 0;
	cc->runs = RUNS_TS;
	core_turns(cc, cpu, true);
}

/* From the floor, or boosted: as if time-sensitive, and ahead of no task. */
static __always_inline void runs_ahead(struct cpu_ctx *cc, u32 cpu, struct task_ctx *tc)
{
	runs_ts(cc, cpu, tc, 0, ts_clock - (1ULL << 60));
	if (is_boosted(tc)) {
		turn_to(&tc->boost, &boost_waiting, OVERRIDE_RUNNING);
		cc->runs_boosted = 1;
		state_of(tc->slot)->boosted_runs++;
		__sync_fetch_and_add(&work_of(tc->group)->boosted_runs, 1);
	}
}

static __always_inline void runs_bg(struct cpu_ctx *cc, u32 cpu, struct task_ctx *tc)
{
	cc->curr_start = tc->started;
	cc->curr_scale = SCALE_ONE;
	cc->curr_vtime = tc->vtime;
	cc->runs_boosted = 0;
	cc->runs = RUNS_BG;
	core_turns(cc, cpu, false);
	__sync_fetch_and_or(&bg_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)], 1ULL << (cpu & 63));
}

/* ---- Callbacks ---- */

s32 BPF_STRUCT_OPS(ufs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tc = task_ctx(p);
	bool idle = false;
	s32 cpu;

	if (unlikely(!tc)) {
		stat_inc(UFS_NO_CTX);
		return prev_cpu;
	}
	tc->wake_at = bpf_ktime_get_ns();
	if (unlikely(was_waiting(tc)))
		note_handing(tc->slot);
	apply_hints_awake(p, tc);
	if (unlikely(is_throttled(tc))) {
		/* Enqueue puts it into THROTTLED_DSQ: it needs no CPU. */
		tc->idle_found = false;
		return prev_cpu;
	}
	if (tc->tier == GIVEWAY_TIER_TIME_SENSITIVE)
		return ts_select_cpu(p, tc, prev_cpu, wake_flags);
	cpu = claim_for_wakeup(p, prev_cpu, wake_flags, false, &idle);
	tc->idle_found = cpu >= 0;
	if (cpu < 0)
		return prev_cpu;
	/* A boosted task has a queue of its own. */
	if (likely(!is_boosted(tc)))
		bg_run_idle(p, tc);
	return cpu;
}

void BPF_STRUCT_OPS(ufs_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tc = task_ctx(p);
	u64 now = scx_bpf_now();

	if (unlikely(!tc)) {
		stat_inc(UFS_NO_CTX);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, ts_slice_ns, enq_flags);
		return;
	}
	if (unlikely(tc->waits || tc->floor || tc->boost))
		leave_queue(tc);
	if (enq_flags & SCX_ENQ_WAKEUP) {
		if (unlikely(was_waiting(tc)))
			note_handing(tc->slot);
		apply_hints_awake(p, tc);
	} else {
		apply_hints(p, tc);
	}
	if (unlikely(enq_flags & SCX_ENQ_REENQ))
		stat_inc(UFS_HANDED_BACK);
	if ((enq_flags & SCX_ENQ_WAKEUP) && !tc->wake_at)
		tc->wake_at = bpf_ktime_get_ns();
	if (unlikely(is_throttled(tc))) {
		enqueue_throttled(p, tc, enq_flags);
		return;
	}
	count_runnable(tc);
	if (unlikely(enq_flags & SCX_ENQ_LAST) &&
	    move_apart(p, tc->tier == GIVEWAY_TIER_TIME_SENSITIVE, enq_flags))
		return;
	if (tc->tier == GIVEWAY_TIER_TIME_SENSITIVE)
		ts_enqueue(p, tc, enq_flags, now);
	else if (unlikely(is_boosted(tc)))
		boost_enqueue(p, tc, enq_flags);
	else
		bg_enqueue(p, tc, enq_flags);
	if (unlikely(enq_flags & SCX_ENQ_LAST)) {
		/* The CPU is about to go idle with this as its only task. */
		stat_inc(UFS_ENQ_LAST);
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), 0);
	}
}

void BPF_STRUCT_OPS(ufs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cc = cpu_ctx(cpu);
	struct task_ctx *tc = NULL;
	bool prev_ts = false, prev_bg = false, prev_boosted = false;
	struct group *g;
	u32 index;
	u64 first = 0;

	if (floor_dispatch(cc))
		return;

	/* The previous task competes with those in the queues. */
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		tc = task_ctx(prev);
	if (tc && tc->floor != OVERRIDE_RUNNING && allowed_on(prev, cpu)) {
		charge(prev, tc, cc, scx_bpf_now());
		apply_hints(prev, tc);
		if (unlikely(tc->slot)) {
			if (bpf_get_current_task_btf() != prev)
				note_broken(UFS_BROKEN_SNAPSHOT);
			leave_cpu(tc, true);
			cc->looked_at = tc->started;
			prev_boosted = is_boosted(tc);
		}
		if (likely(!is_throttled(tc))) {
			prev_ts = tc->tier == GIVEWAY_TIER_TIME_SENSITIVE;
			prev_bg = !prev_ts;
		}
	}
	if (prev_ts && READ_ONCE(ts_waiting) && runs_on(prev, tc, cpu))
		return;
	if (unlikely(READ_ONCE(boost_waiting) || !set_is_empty(&to_fetch) || prev_boosted) &&
	    boosts_turn(cc)) {
		if (boost_dispatch(cpu, cc))
			return;
		if (prev_boosted) {
			cc->boost_row++;
			stat_inc(UFS_BOOST_RUN);
			scx_bpf_task_set_slice(prev, boost_slice_ns);
			runs_ahead(cc, cpu, tc);
			return;
		}
	}
	if (READ_ONCE(ts_waiting) && ts_dispatch(cpu, prev_ts, tc ? tc->vtime : 0))
		return;
	if (prev_ts) {
		if (!READ_ONCE(ts_waiting) && wants_apart(prev, cpu, true))
			return;
		stat_inc(UFS_TS_KEEP);
		scx_bpf_task_set_slice(prev, ts_slice_ns);
		runs_ts(cc, cpu, tc, task_scale(tc), tc->vtime);
		return;
	}
	if (prev_bg) {
		index = tc->group & (UFS_GROUPS_MAX - 1);
		g = group(index);
		if (!is_committed(cc, index) && bg_work_for(cpu) && bg_pick(cpu, index)) {
			stat_inc(UFS_BG_DISPATCH);
			return;
		}
		if (READ_ONCE(g->nr_waiting)) {
			/* Its group goes on; with which of its tasks? */
			if (queue_first(BG_DSQ + index, &first) && (s64)(first - tc->vtime) < 0 &&
			    scx_bpf_dsq_move_to_local(BG_DSQ + index, 0)) {
				stat_inc(UFS_BG_DISPATCH);
				return;
			}
		}
		if (!bg_work_for(cpu) && wants_apart(prev, cpu, false))
			return;
		stat_inc(UFS_BG_KEEP);
		if (!is_committed(cc, index))
			commit(cpu, index);
		scx_bpf_task_set_slice(prev, bg_slice_ns);
		turn_to(&tc->boost, &boost_waiting, OVERRIDE_NONE);
		if (unlikely(cc->runs != RUNS_BG))
			runs_bg(cc, cpu, tc);
		return;
	}
	if (bg_go_on(cpu, cc) || (bg_work_for(cpu) && bg_pick(cpu, -1)))
		stat_inc(UFS_BG_DISPATCH);
}

void BPF_STRUCT_OPS(ufs_running, struct task_struct *p)
{
	struct task_ctx *tc = task_ctx(p);
	u32 cpu = scx_bpf_task_cpu(p) & (UFS_CPUS_MAX - 1);
	struct cpu_ctx *cc = cpu_ctx(cpu);
	u64 now = scx_bpf_now(), waited = 0;
	bool from_floor;

	cc->claimed = 0;
	if (unlikely(!tc))
		return;
	/* One that changes its cgroup while it runs gets here without enqueue. */
	if (unlikely(!tc->counted))
		count_runnable(tc);
	from_floor = tc->floor;
	if (tc->waits || from_floor || tc->boost)
		leave_queue(tc);
	tc->started = now;
	tc->billed_at = now;
	if (tc->wake_at && (stats_on || tc->slot))
		waited = time_delta(bpf_ktime_get_ns(), tc->wake_at);
	if (unlikely(tc->slot))
		start_with_slot(tc, now, waited);
	if (tc->wake_at && stats_on)
		count_wakeup(tc, waited);
	tc->wake_at = 0;
	/* The kernel may leave select_cpu out of the next wake-up. */
	tc->idle_found = false;
	if (from_floor) {
		turn_to(&tc->floor, &floor_waiting, OVERRIDE_RUNNING);
		stat_inc(UFS_BG_FLOOR_RUN + (tc->tier & 1));
		__sync_fetch_and_add(&work_of(tc->group)->floor_runs, 1);
		if (has_state(tc))
			state_of(tc->slot)->floor_runs++;
	}
	if (unlikely(is_throttled(tc))) {
		/* It waited in a queue when the budget was used up: see throttle_queue.bpf.h. */
		stat_inc(UFS_THROTTLED_LATE);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	if (from_floor || unlikely(is_boosted(tc))) {
		runs_ahead(cc, cpu, tc);
		return;
	}
	if (tc->tier == GIVEWAY_TIER_TIME_SENSITIVE) {
		runs_ts(cc, cpu, tc, task_scale(tc), tc->vtime);
		return;
	}
	/* Dispatch has done so, unless the task came by another way: back after a real-time
	 * task, or by claim.bpf.h. */
	if (!is_committed(cc, tc->group))
		commit(cpu, tc->group);
	runs_bg(cc, cpu, tc);
	/* Paired with ts_enqueue(): a task that was queued since dispatch looked. */
	if (unlikely(READ_ONCE(ts_waiting) && READ_ONCE(ts_enq_seq) != cc->ts_seen)) {
		stat_inc(UFS_LATE_PREEMPT);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

void BPF_STRUCT_OPS(ufs_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *tc = task_ctx(p);
	u32 cpu = scx_bpf_task_cpu(p) & (UFS_CPUS_MAX - 1);
	struct cpu_ctx *cc = cpu_ctx(cpu);
	u64 now = scx_bpf_now();
	bool looked;

	if (cc->runs == RUNS_BG)
		claim_bg_cpu(cpu);
	cc->runs = RUNS_OTHER;
	cc->runs_boosted = 0;
	cc->extended_until = 0;
	if (unlikely(!tc))
		return;
	if (unlikely(tc->floor == OVERRIDE_RUNNING))
		rest_after_floor(cc, now, time_delta(now, tc->started));
	/* Dispatch may have looked just now: no time has passed, and the task did not run. */
	looked = runnable && tc->slot && cc->looked_at == now;
	if (!looked)
		charge(p, tc, cc, now);
	tc->boost_ran = tc->boost == OVERRIDE_RUNNING;
	turn_to(&tc->floor, &floor_waiting, OVERRIDE_NONE);
	turn_to(&tc->boost, &boost_waiting, OVERRIDE_NONE);
	if (runnable && stats_on) {
		stat_inc(UFS_BG_PREEMPTED + (tc->tier & 1));
		__sync_fetch_and_add(&work_of(tc->group)->preempted, 1);
	}
	/* A thread may claim its slot and sleep at once. */
	if (!looked)
		apply_hints(p, tc);
	if (unlikely(has_state(tc))) {
		state_of(tc->slot)->report.preempted += runnable;
		/* Another CPU's doing otherwise: what the task says cannot be read. */
		if (bpf_get_current_task_btf() == p) {
			if (!looked)
				leave_cpu(tc, runnable);
			count_holder(tc, runnable);
		}
	}
	if (!runnable)
		uncount_runnable(tc, now);
}

void BPF_STRUCT_OPS(ufs_tick, struct task_struct *p)
{
	u32 cpu = scx_bpf_task_cpu(p) & (UFS_CPUS_MAX - 1);
	struct task_ctx *tc = hints_on || has_limits() ? task_ctx(p) : NULL;

	if (tc)
		bill(tc, scx_bpf_now());
	/* Dispatch will apply it. */
	if (tc && unlikely(hints_changed(p, tc) || is_throttled(tc))) {
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	/* Background work goes back to dispatch while anything better waits, and is
	 * claimable again if a claim came to nothing. */
	if (cpu_ctx(cpu)->runs != RUNS_BG) {
		/* Both change under the rq lock, except that a waker clears the bit. */
		if (unlikely(READ_ONCE(bg_cpus[cpu >> 6]) & (1ULL << (cpu & 63))))
			note_broken(UFS_BROKEN_BG_CPU);
		return;
	}
	settle_core(cpu);
	if (READ_ONCE(ts_waiting))
		scx_bpf_task_set_slice(p, 0);
	else if (!(READ_ONCE(bg_cpus[cpu >> 6]) & (1ULL << (cpu & 63))))
		__sync_fetch_and_or(&bg_cpus[cpu >> 6], 1ULL << (cpu & 63));
}

void BPF_STRUCT_OPS(ufs_update_idle, s32 cpu, bool idle)
{
	u64 bit = 1ULL << (cpu & 63);
	u64 *word = &idle_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)];

	if (!idle) {
		__sync_fetch_and_and(word, ~bit);
		return;
	}
	/* A full barrier: paired with the search for an idle CPU in enqueue. */
	__sync_fetch_and_or(word, bit);
	settle(cpu_ctx(cpu));
	catch_up(cpu_ctx(cpu), clock_batch_ns / 8);
	core_turns(cpu_ctx(cpu), cpu, false);
	settle_core(cpu);
	if (READ_ONCE(ts_waiting) || bg_work_for(cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A task of a higher class takes the CPU, nobody knows for how long. The kernel would keep
 * what its local queue has meanwhile; it is queued again, where other CPUs find it. */
void BPF_STRUCT_OPS(ufs_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	/* The kernel's own stopper, which moves tasks, is done in microseconds. */
	if (args->reason == SCX_CPU_PREEMPT_STOP)
		return;
	cpu_ctx(cpu)->claimed = 0;
	scx_bpf_reenqueue_local();
}

/* ---- Creation, exit and moves of tasks ---- */

/* Not sleepable: the verifier does not trust args->cgroup in a sleepable one. */
s32 BPF_STRUCT_OPS(ufs_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	const struct debts none = {};
	struct task_ctx *tc;
	u32 index;

	tc = bpf_task_storage_get(&task_ctxs, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!tc)
		return -ENOMEM;
	/* The task's own of an earlier attachment, maybe. */
	__builtin_memset(tc, 0, sizeof(*tc));
	index = group_of_cgroup(args->cgroup);
	if (args->fork)
		inherit(p, tc, index, bpf_get_current_task_btf());
	else
		assign_group(p, tc, index, &none);
	return 0;
}

void BPF_STRUCT_OPS(ufs_disable, struct task_struct *p)
{
	forget_task(p);
}

void BPF_STRUCT_OPS(ufs_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	forget_task(p);
}

/* Between a dequeue and an enqueue: the task is in no queue. */
void BPF_STRUCT_OPS(ufs_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct task_ctx *tc = task_ctx(p);

	if (!tc)
		return;
	leave_queue(tc);
	move_to_group(p, tc, group_of_cgroup(to));
	stat_inc(UFS_CGROUP_MOVE);
}

void BPF_STRUCT_OPS(ufs_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u32 index = group_of_cgroup(cgrp);
	struct group *g = group(index), *parent;
	s64 change;

	if (index == 0 || g->cgid != cgrp->kn->id)
		return;
	parent = group(g->parent);
	bpf_spin_lock(&weight_lock);
	change = (s64)weight - (s64)g->weight;
	g->weight = weight;
	if (g->nr_active[0])
		parent->child_weight[0] += change;
	if (g->nr_active[1])
		parent->child_weight[1] += change;
	bpf_spin_unlock(&weight_lock);
	__sync_fetch_and_add(&hweight_gen, 1);
	stat_inc(UFS_WEIGHT_CHANGE);
	WRITE_ONCE(rekey_ts_wanted, 1);
	reweight_soon();
}

void BPF_STRUCT_OPS(ufs_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	u32 index = group_of_cgroup(cgrp);

	if (index == 0 || group(index)->cgid != cgrp->kn->id)
		return;
	group(index)->idle = idle;
	if (!marks_on)
		renew_tiers();
}

void BPF_STRUCT_OPS(ufs_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	u32 index = group_of_cgroup(cgrp);

	if (!limits_on || index == 0 || group(index)->cgid != cgrp->kn->id)
		return;
	set_limit(index, period_us, quota_us, burst_us);
	stat_inc(UFS_LIMIT_CHANGE);
}

/* ---- Attaching and detaching ---- */

/* What an earlier attachment has left where the loader cannot clear it (reattach.rs). */
static void clear_leftovers(void)
{
	u32 i, index;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (tree_pop() < 0)
			break;
	}
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (bpf_map_pop_elem(&free_groups, &index))
			break;
	}
}

/* Tell the clients of every table which UFS load reads it; 0: none. */
static void tell_clients(u64 scheduler)
{
	struct giveway_header *head;
	u32 table;

	if (!hints_on)
		return;
	bpf_for(table, 0, UFS_TABLES_MAX) {
		head = header_of(table);
		if (head)
			WRITE_ONCE(head->scheduler, scheduler);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(ufs_init)
{
	u32 cpu, word;
	s32 err;

	clear_leftovers();
	err = scx_bpf_create_dsq(FLOOR_DSQ, -1);
	if (err)
		return err;
	bpf_for(cpu, 0, nr_cpu_ids) {
		err = scx_bpf_create_dsq(TS_DSQ + cpu, -1);
		if (err)
			return err;
	}
	/* No CPU tells that it has been idle all along, or that it is not there. */
	bpf_for(word, 0, nr_cpu_words)
		idle_cpus[word & (UFS_CPU_WORDS - 1)] = online_cpus[word & (UFS_CPU_WORDS - 1)];
	err = scx_bpf_create_dsq(BOOST_DSQ, -1);
	if (err)
		return err;
	err = scx_bpf_create_dsq(THROTTLED_DSQ, -1);
	if (err)
		return err;
	tell_clients(load_number);
	err = init_timer(TIMER_FLOOR, on_floor_timer) ?: init_timer(TIMER_REWEIGHT, on_reweight_timer) ?:
	      init_timer(TIMER_RELEASE, on_release_timer) ?: init_extension_timers();
	return err ?: start_timer(TIMER_FLOOR, TIMER_NS);
}

void BPF_STRUCT_OPS(ufs_exit, struct scx_exit_info *ei)
{
	tell_clients(0);
	stop_timer(TIMER_FLOOR);
	UEI_RECORD(uei, ei);
}

void BPF_STRUCT_OPS(ufs_dump, struct scx_dump_ctx *dctx)
{
	u32 i, nr = READ_ONCE(nr_groups);

	scx_bpf_dump("ufs: waiting ts=%llu bg=%llu floor=%llu, clocks ts=%llu bg=%llu", ts_waiting,
		     bg_waiting, floor_waiting, ts_clock, bg_clock);
	scx_bpf_dump("ufs: limits %u throttled %u tasks %llu", nr_limits, nr_throttled_groups,
		     nr_throttled_tasks);
	bpf_for(i, 0, UFS_GROUPS_MAX) {
		struct group *g = group(i);

		if (i >= nr)
			break;
		if (!g->in[0].load && !g->in[1].load && !g->nr_waiting)
			continue;
		scx_bpf_dump("ufs group %u: cgroup %llu tier %u weight %u scales %llu %llu", i,
			     g->cgid, g->tier, g->weight, g->in[0].scale, g->in[1].scale);
		scx_bpf_dump("  loads %u %u waiting %u queued %u vtime %llu clock %u cpus %llx", g->in[0].load,
			     g->in[1].load, g->nr_waiting, g->queued, g->vtime, affinity_of(i)->clock_id,
			     affinity_of(i)->cpus[0]);
	}
}

void BPF_STRUCT_OPS(ufs_dump_cpu, struct scx_dump_ctx *dctx, s32 cpu, bool idle)
{
	struct cpu_ctx *cc = cpu_ctx(cpu);

	if (!idle || cc->ts_waiting)
		scx_bpf_dump("ufs: runs %u claimed %u ts_waiting %u", cc->runs, cc->claimed,
			     cc->ts_waiting);
}

void BPF_STRUCT_OPS(ufs_dump_task, struct scx_dump_ctx *dctx, struct task_struct *p)
{
	struct task_ctx *tc = task_ctx(p);

	if (tc)
		scx_bpf_dump("ufs: tier %u group %u vtime %llu waits %llx floor %u", tc->tier, tc->group,
			     tc->vtime, tc->waits, tc->floor);
}

SCX_OPS_DEFINE(ufs_ops,
	       .select_cpu		= (void *)ufs_select_cpu,
	       .enqueue			= (void *)ufs_enqueue,
	       .dispatch		= (void *)ufs_dispatch,
	       .running			= (void *)ufs_running,
	       .stopping		= (void *)ufs_stopping,
	       .tick			= (void *)ufs_tick,
	       .update_idle		= (void *)ufs_update_idle,
	       .cpu_release		= (void *)ufs_cpu_release,
	       .init_task		= (void *)ufs_init_task,
	       .exit_task		= (void *)ufs_exit_task,
	       .disable			= (void *)ufs_disable,
	       .cgroup_init		= (void *)ufs_cgroup_init,
	       .cgroup_exit		= (void *)ufs_cgroup_exit,
	       .cgroup_move		= (void *)ufs_cgroup_move,
	       .cgroup_set_weight	= (void *)ufs_cgroup_set_weight,
	       .cgroup_set_bandwidth	= (void *)ufs_cgroup_set_bandwidth,
	       .cgroup_set_idle		= (void *)ufs_cgroup_set_idle,
	       .init			= (void *)ufs_init,
	       .exit			= (void *)ufs_exit,
	       .dump			= (void *)ufs_dump,
	       .dump_cpu		= (void *)ufs_dump_cpu,
	       .dump_task		= (void *)ufs_dump_task,
	       .timeout_ms		= 30000,
	       .name			= "ufs");
