/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task begins, moves to another cgroup, and ends.
 *
 * DEBTS. A task that is ahead of its tier's clock has used more than its share, and waits
 * until the clock has caught up. It keeps that distance when it moves, and a child begins
 * with its parent's: otherwise a task would be rid of it by forking, or by a walk through two
 * cgroups, and have as much of the CPU as it likes. In the time-sensitive tier a distance is
 * virtual time, at the scale of the task in its group; so it is carried as CPU time:
 *
 *	vtime - clock = debt * task_scale
 *
 * One that is behind the clock arrives as far behind. A child of it begins at the clock.
 *
 * WEAKNESSES: in the moment of a move the task counts in neither group, so the scales may
 * be less or more than those that it has competed at. No more is carried than clamping
 * leaves (placement.bpf.h). A debt of the background tier is that to the other tasks of the
 * group; what a group has used stays the group's.
 */
#ifndef UFS_TASKS_H
#define UFS_TASKS_H

/* What a task owes in each tier, in nanoseconds of CPU time; below 0: it is owed that. */
struct debts {
	s64 ns[2];
};

/* How far @vtime is ahead of @clock, within the bounds that clamping sets for this slice. */
static __always_inline s64 distance(u64 vtime, u64 clock, u64 slice)
{
	s64 ahead = vtime - clock, most = AHEAD * slice, least = -(s64)(BEHIND_AWAKE * slice);

	return ahead > most ? most : ahead < least ? least : ahead;
}

/* @used: what it has used and was not charged for yet. */
static __always_inline void find_debts(struct task_ctx *tc, u64 used, struct debts *debts)
{
	bool sensitive = tc->tier == GIVEWAY_TIER_TIME_SENSITIVE;
	u64 ts = sensitive ? tc->vtime : tc->vtime_elsewhere;
	u64 bg = sensitive ? tc->vtime_elsewhere : tc->vtime, scale = task_scale(tc), size;
	s64 ahead;

	if (sensitive)
		ts += scaled(used, scale);
	else
		bg += used;
	ahead = distance(ts, READ_ONCE(ts_clock), scaled(ts_slice_ns, scale));
	size = ahead < 0 ? -ahead : ahead;
	size = scale ? (size << SCALE_SHIFT) / scale : 0;
	debts->ns[GIVEWAY_TIER_TIME_SENSITIVE] = ahead < 0 ? -(s64)size : size;
	debts->ns[GIVEWAY_TIER_BACKGROUND] = distance(bg, group(tc->group)->task_clock,
						      bg_slice_ns);
}

static __always_inline void assign_group(struct task_struct *p, struct task_ctx *tc, u32 index,
					 const struct debts *debts)
{
	s64 ts = debts->ns[GIVEWAY_TIER_TIME_SENSITIVE];
	u64 scale, bg;
	u32 tier;

	/* Before the tier: a change meanwhile is looked up again. */
	tc->moves_seen = READ_ONCE(tier_moves);
	tier = READ_ONCE(group(index)->tier) & 1;
	if ((p->flags & PF_KTHREAD) || p->tgid == loader_tgid) {
		index = 0;
		tier = GIVEWAY_TIER_TIME_SENSITIVE;
	}
	tc->group = index;
	tc->cgroup_tier = tier;
	tier = plain_tier(p, tc);
	tc->idle_policy = has_idle_policy(p);
	tc->tier = tier;
	tc->load = LOAD_ONE;
	scale = task_scale(tc);
	ts = READ_ONCE(ts_clock) + (ts < 0 ? -scaled(-ts, scale) : scaled(ts, scale));
	bg = group(index)->task_clock + debts->ns[GIVEWAY_TIER_BACKGROUND];
	tc->vtime = tier == GIVEWAY_TIER_TIME_SENSITIVE ? ts : bg;
	tc->vtime_elsewhere = tier == GIVEWAY_TIER_TIME_SENSITIVE ? bg : ts;
}

/* The task that forks has made @p. */
static __always_inline void inherit(struct task_struct *p, struct task_ctx *tc, u32 index,
				    struct task_struct *parent)
{
	struct task_ctx *from = task_ctx(parent);
	struct debts debts = {};
	u64 used;

	if (from) {
		used = time_delta(scx_bpf_now(), from->started);
		find_debts(from, used < ts_slice_ns ? used : ts_slice_ns, &debts);
		/* Only one task is owed what it has not used. */
		if (debts.ns[0] < 0)
			debts.ns[0] = 0;
		if (debts.ns[1] < 0)
			debts.ns[1] = 0;
	}
	assign_group(p, tc, index, &debts);
	if (hints_on)
		tc->inherited = inherited_hint(parent, p->pid != p->tgid);
}

/* The task is in no queue. */
static __always_inline void move_to_group(struct task_struct *p, struct task_ctx *tc, u32 index)
{
	struct debts debts;

	find_debts(tc, 0, &debts);
	uncount_runnable(tc, scx_bpf_now());
	assign_group(p, tc, index, &debts);
}

static __always_inline void forget_task(struct task_struct *p)
{
	struct task_ctx *tc = task_ctx(p);

	if (!tc)
		return;
	leave_queue(tc);
	uncount_runnable(tc, scx_bpf_now());
	forget_slot(tc);
	/* Slots of tasks that live on outlive this scheduler. */
	if (p->flags & PF_EXITING)
		reclaim_slot(tc);
	tc->slot = 0;
}

#endif
