/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Background work: the runnable tree (UFS paper, Sections 5.1.2 and 5.1.3).
 *
 * Each background group has a queue of its tasks in order of task virtual
 * runtime. The tree holds the groups that have waiting tasks, in order of group
 * virtual runtime. A CPU with nothing better to do takes the first group,
 * moves that group's first task to itself, charges the group one slice times
 * its scale, and puts it back:
 *
 *	   bg_tree  --->  [ A 1.2 s ]  [ C 1.3 s ]  [ B 1.9 s ]
 *	                       |
 *	   queue of A:   t3 (0.4 s)  t1 (0.5 s)  t7 (0.5 s)
 *
 * Worked example: A has weight 2, B has 3, one CPU, slice 10 ms. A's hweight is
 * 0.4 and B's 0.6, so a slice costs A 25 ms and B 16.7 ms of virtual time. In
 * 50 ms of CPU time A is picked twice and B three times, and both have moved on
 * by 50 ms, as bg_clock has, which counts real background CPU time.
 *
 * COMMITMENT. A CPU that picks a group is committed to it for one slice of CPU time, in
 * one run or in many (UFS paper, Section 5.1.3). The slice is charged at once, so that
 * other CPUs see it. While some of it is left, dispatch takes the group's next task
 * without a look at the tree. What is left is given back when the CPU turns to another
 * group, becomes idle, or a task of a group that is further behind wakes up for it.
 * Time-sensitive work in between changes nothing: the CPU returns to its group.
 *
 * A node's life: allocated in cgroup_init, kept in the group's stash while the
 * group has no waiting task, in the tree otherwise. group.queued says which. (asserted
 * in tree_insert() and tree_pop(): UFS_BROKEN_TREE)
 *
 *	enqueue:	nr_waiting += 1;  if queued 0 -> 1: stash to tree
 *	dispatch:	take from tree;   if nr_waiting == 0: to stash, queued = 0,
 *			and look at nr_waiting again
 *
 * One of the two always sees the other's first step. nr_waiting is raised before
 * the task is in the queue, since the kernel inserts it only after enqueue has
 * returned; the queue's own length would lose tasks here.
 *
 * Restricted tasks compete with all others: a cpuset restricts every task of a workload,
 * and a separate queue that is served first would break weights. A group that has no
 * task for some CPU waits in a set beside the tree (affinity.bpf.h). A CPU compares the
 * first group of the tree with the one of the set that has a task for it and is most
 * behind, and takes the one that is further behind. So no CPU has to search past groups
 * that have no task for it.
 *
 * The key of a group is computed at insertion, and its group may have run since. A CPU
 * that finds an old key at the head of the tree inserts the group again.
 *
 * A group that a CPU has taken out is invisible to other CPUs for that moment. If two
 * idle CPUs are woken for two tasks of one group, one may find nothing, and the kernel
 * does not ask it again. So a CPU that finds the tree empty while tasks wait sets its
 * bit in missed_cpus and looks once more, and the CPU that inserts a group wakes those.
 * tree_lock orders the two: the second look sees the group, or tree_insert() sees the
 * bit.
 *
 * Known weakness: a queue with many tasks pinned elsewhere is walked from its head.
 */
#ifndef UFS_BG_TREE_H
#define UFS_BG_TREE_H

/* Groups that a CPU looks at in one dispatch. It sees most of them once only: groups
 * without tasks, with old keys, or that have lost their last task for it. */
#define SEARCH_MAX 32

struct tree_node {
	struct bpf_rb_node rb;
	u64 vtime;
	u32 group;
};

struct stash {
	struct tree_node __kptr *node;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UFS_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct stash);
} stashes SEC(".maps");

/* CPUs that found the tree empty while tasks waited; whether there is any. */
u64 missed_cpus[UFS_CPU_WORDS] __begins_line;
u32 has_missed;

private(TREE) struct bpf_spin_lock tree_lock;
private(TREE) struct bpf_rb_root bg_tree __contains(tree_node, rb);

static bool node_less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	struct tree_node *left = container_of(a, struct tree_node, rb);
	struct tree_node *right = container_of(b, struct tree_node, rb);

	/* Virtual time wraps. */
	return (s64)(left->vtime - right->vtime) < 0;
}

/* Give a background group its queue and its node. Numbers are reused together
 * with both, so nothing is destroyed while a late task may still use it. */
static s32 ready_bg_group(u32 index)
{
	struct group *g = group(index);
	struct tree_node *node;
	struct stash *stash;
	s32 err;

	affinity_of(index)->clock_id = 0;
	if (g->has_dsq)
		return 0;
	err = scx_bpf_create_dsq(BG_DSQ + index, -1);
	/* There already if there was no memory for what follows the last time. */
	if (err && err != -EEXIST)
		return err;
	stash = bpf_map_lookup_elem(&stashes, &index);
	if (!stash)
		return -ENOENT;
	node = bpf_obj_new(struct tree_node);
	if (!node)
		return -ENOMEM;
	node->group = index;
	node->vtime = 0;
	node = bpf_kptr_xchg(&stash->node, node);
	if (node)
		bpf_obj_drop(node);
	g->has_dsq = 1;
	return 0;
}

static __always_inline u64 clamp_vtime(u64 vtime, u64 clock, u64 behind, u64 ahead, bool *clamped)
{
	if ((s64)(clock - behind - vtime) > 0) {
		*clamped = true;
		return clock - behind;
	}
	if ((s64)(vtime - clock - ahead) > 0)
		return clock + ahead;
	return vtime;
}

static __always_inline void bg_clamp(u32 index, u32 slices)
{
	struct group *g = group(index);
	u64 slice = scaled(bg_slice_ns, group_scale(index, GIVEWAY_TIER_BACKGROUND));
	bool clamped = false;

	g->vtime = clamp_vtime(g->vtime, clock_of(index), slices * slice, most_ahead(slice),
			       &clamped);
	if (clamped)
		stat_inc(UFS_BG_CLAMP);
}

static __noinline int wake_missed(void)
{
	u32 word, i;

	bpf_for(word, 0, nr_cpu_words) {
		u64 cpus = __sync_lock_test_and_set(&missed_cpus[word & (UFS_CPU_WORDS - 1)], 0);

		bpf_for(i, 0, 64) {
			if (!cpus)
				break;
			scx_bpf_kick_cpu((word << 6) + ctzll(cpus), SCX_KICK_IDLE);
			cpus &= cpus - 1;
		}
	}
	return 0;
}

__once int reweight(u32 index);

/* Move the group's node from the stash into the tree. */
__once int tree_insert(u32 index)
{
	struct group *g = group(index);
	struct tree_node *node;
	struct stash *stash;

	stash = bpf_map_lookup_elem(&stashes, &index);
	if (!stash) {
		scx_bpf_error("group %u has no stash", index);
		return 0;
	}
	node = bpf_kptr_xchg(&stash->node, NULL);
	if (!node) {
		note_broken(UFS_BROKEN_TREE);
		return 0;
	}
	reweight(index);
	bg_clamp(index, BEHIND_AWAKE);
	node->vtime = g->vtime;
	bpf_spin_lock(&tree_lock);
	bpf_rbtree_add(&bg_tree, &node->rb, node_less);
	bpf_spin_unlock(&tree_lock);
	if (unlikely(READ_ONCE(has_missed)) && __sync_lock_test_and_set(&has_missed, 0))
		wake_missed();
	return 0;
}

/* Let CPUs find the group, which this CPU has taken out or queued. */
__once int show_group(u32 index)
{
	bool wide = is_wide(index);

	choose_clock(index, wide);
	if (wide) {
		tree_insert(index);
		return 0;
	}
	reweight(index);
	bg_clamp(index, BEHIND_AWAKE);
	show_narrow(index);
	return 0;
}

static __always_inline void group_has_work(u32 index)
{
	if (__sync_val_compare_and_swap(&group(index)->queued, 0, 1) == 0)
		show_group(index);
}

/* The group, which this CPU has taken out, had no waiting task. */
__once int retire_shown(u32 index)
{
	struct group *g = group(index);

	stat_inc(UFS_TREE_EMPTY);
	reset_affinity(index, false);
	/* A full barrier, paired with the additions in bg_enqueue(). */
	__sync_fetch_and_and(&g->queued, 0);
	if (READ_ONCE(g->nr_waiting)) {
		/* The new task's affinity may have just been cleared. */
		reset_affinity(index, true);
		group_has_work(index);
	}
	return 0;
}

/* Move the first node from the tree to its stash. Returns its group, or -1. */
__once s32 tree_pop(void)
{
	struct bpf_rb_node *rb;
	struct tree_node *node;
	struct stash *stash;
	u32 index;

	bpf_spin_lock(&tree_lock);
	rb = bpf_rbtree_first(&bg_tree);
	if (!rb) {
		bpf_spin_unlock(&tree_lock);
		return -1;
	}
	rb = bpf_rbtree_remove(&bg_tree, rb);
	bpf_spin_unlock(&tree_lock);
	if (!rb)
		return -1;
	node = container_of(rb, struct tree_node, rb);
	index = node->group;
	stash = bpf_map_lookup_elem(&stashes, &index);
	if (!stash) {
		bpf_obj_drop(node);
		scx_bpf_error("group %u has no stash", index);
		return -1;
	}
	node = bpf_kptr_xchg(&stash->node, node);
	if (node) {
		bpf_obj_drop(node);
		note_broken(UFS_BROKEN_TREE);
	}
	return index & (UFS_GROUPS_MAX - 1);
}

/* @cpu found the tree empty: it is woken when there is a group again. */
static __always_inline void miss(u32 cpu)
{
	__sync_fetch_and_or(&missed_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)], 1ULL << (cpu & 63));
	WRITE_ONCE(has_missed, 1);
}

/* The key of the first group, and which it is; false when the tree is empty. */
__once bool tree_first(u64 *vtime __arg_nonnull, u32 *whose __arg_nonnull)
{
	struct bpf_rb_node *rb;
	bool found = false;

	bpf_spin_lock(&tree_lock);
	rb = bpf_rbtree_first(&bg_tree);
	if (rb) {
		*vtime = container_of(rb, struct tree_node, rb)->vtime;
		*whose = container_of(rb, struct tree_node, rb)->group;
		found = true;
	}
	bpf_spin_unlock(&tree_lock);
	return found;
}

/* Charge the group @ns at its @scale, or give that back if @ns is negative. */
static __always_inline void charge_group(u32 index, s64 ns, u64 scale)
{
	u64 cost = scaled(ns < 0 ? -ns : ns, scale);

	if (unlikely(group(index)->lag_scale != scale))
		reweight(index);
	__sync_fetch_and_add(&group(index)->vtime, ns < 0 ? -cost : cost);
}

/* End this CPU's commitment. Under its rq lock. */
static __always_inline void settle(struct cpu_ctx *cc)
{
	u64 left = cc->bg_left;

	if (!left)
		return;
	cc->bg_left = 0;
	charge_group(cc->bg_group, -(s64)left, group_scale(cc->bg_group, GIVEWAY_TIER_BACKGROUND));
}

/* Commit @cpu to the group for a slice. Under its rq lock. */
__once int commit(u32 cpu, u32 index)
{
	struct cpu_ctx *cc = cpu_ctx(cpu);

	if (cc->bg_group != index)
		settle(cc);
	charge_group(index, bg_slice_ns - cc->bg_left, group_scale(index, GIVEWAY_TIER_BACKGROUND));
	cc->bg_group = index;
	cc->bg_left = bg_slice_ns;
	return 0;
}

/* Whether @cpu is committed to the group. */
static __always_inline bool is_committed(struct cpu_ctx *cc, u32 index)
{
	return cc->bg_left && cc->bg_group == index;
}

/* A task of the group @index wakes up for this CPU, under its rq lock: if its group is
 * further behind, the next dispatch looks at the tree. */
static __always_inline void release_commitment(struct cpu_ctx *cc, u32 index)
{
	u64 left = cc->bg_left, vtime;

	if (!left || cc->bg_group == index)
		return;
	vtime = vtime_of(cc->bg_group) -
		scaled(left, group_scale(cc->bg_group, GIVEWAY_TIER_BACKGROUND));
	if ((s64)(vtime - vtime_of(index)) > 0)
		settle(cc);
}

/* Let @cpu take the next task of the group that it is committed to. */
static __always_inline bool bg_go_on(u32 cpu, struct cpu_ctx *cc)
{
	u32 index = cc->bg_group & (UFS_GROUPS_MAX - 1);

	return cc->bg_left && READ_ONCE(group(index)->nr_waiting) && has_task_for(index, cpu) &&
	       take_task(cpu, index);
}

enum pick {
	PICK_NONE,	/* no group to pick */
	PICK_DONE,	/* a task is in the local queue */
	PICK_AGAIN,	/* something was put right: look again */
	PICK_ASIDE,	/* as PICK_AGAIN, and this CPU has taken the group out */
};

/* Take the first group of the tree and its first task for @cpu. */
__once u32 pick_wide(u32 cpu, u32 *picked __arg_nonnull)
{
	s32 index = tree_pop();

	if (index < 0)
		return PICK_AGAIN;
	*picked = index;
	if (!READ_ONCE(group(index)->nr_waiting)) {
		retire_shown(index);
		return PICK_AGAIN;
	}
	if (take_task(cpu, index)) {
		commit(cpu, index);
		show_group(index);
		return PICK_DONE;
	}
	stat_inc(UFS_TREE_INELIGIBLE);
	if (!has_task_for(index, cpu)) {
		show_group(index);
		return PICK_AGAIN;
	}
	/* Its task is on its way, or has just been taken. */
	return PICK_ASIDE;
}

/* Take the first task for @cpu of a narrow group, which stays in the set. */
__once u32 pick_narrow(u32 cpu, u32 index)
{
	struct group *g = group(index);

	if (!READ_ONCE(g->nr_waiting)) {
		if (!take_narrow(index))
			return PICK_AGAIN;
		/* It may have been emptied, retired and shown again since. */
		if (READ_ONCE(g->nr_waiting))
			show_group(index);
		else
			retire_shown(index);
		return PICK_AGAIN;
	}
	if (is_wide(index)) {
		if (take_narrow(index))
			show_group(index);
		return PICK_AGAIN;
	}
	if (!take_task(cpu, index)) {
		stat_inc(UFS_TREE_INELIGIBLE);
		return has_task_for(index, cpu) ? PICK_ASIDE : PICK_AGAIN;
	}
	commit(cpu, index);
	reweight(index);
	bg_clamp(index, BEHIND_AWAKE);
	return PICK_DONE;
}

/* Let @cpu take the next task of the group that is most behind, if that is further behind
 * than the group @than, whose task would continue otherwise; -1: there is none. */
__once bool bg_pick(u32 cpu, s32 than)
{
	u32 aside = unknown_zero(), how = PICK_AGAIN, i;
	s32 but = -1 - (s32)unknown_zero();

	bpf_for(i, 0, SEARCH_MAX) {
		s32 near = narrow_first(cpu, but), index;
		u32 whose = unknown_zero();
		u64 key = unknown_zero();
		bool wide;

		how = PICK_NONE;
		wide = tree_first(&key, &whose);
		if (!wide && near < 0) {
			/* Groups that are set aside were not missed. */
			if (aside || than >= 0)
				break;
			miss(cpu);
			wide = tree_first(&key, &whose);
			if (!wide)
				break;
		}
		if (wide && (s64)(READ_ONCE(group(whose)->vtime) - key) > 0) {
			/* It ran since it got this key. */
			index = tree_pop();
			if (index >= 0)
				tree_insert(index);
			how = PICK_AGAIN;
			continue;
		}
		if (wide && near >= 0) {
			meet(whose, near);
			wide = (s64)(vtime_of(whose) - vtime_of(near)) <= 0;
		}
		index = wide ? whose : near;
		if (than >= 0)
			meet(than, index);
		if (than >= 0 && (index == than || (s64)(vtime_of(than) - vtime_of(index)) <= 0))
			break;
		how = wide ? pick_wide(cpu, &whose) : pick_narrow(cpu, index);
		if (how == PICK_DONE)
			break;
		if (how != PICK_ASIDE)
			continue;
		if (!wide) {
			but = index;
			continue;
		}
		/* Out of the tree, and taken by this CPU only: the link is
		 * private. Numbers are stored plus one, so that 0 ends the list. */
		group(whose)->next_aside = aside;
		aside = whose + 1;
	}
	bpf_for(i, 0, SEARCH_MAX) {
		u32 index;

		if (!aside)
			break;
		index = (aside - 1) & (UFS_GROUPS_MAX - 1);
		aside = group(index)->next_aside;
		show_group(index);
	}
	/* There is more to look at: what was corrected is not seen again. */
	if (how == PICK_AGAIN || how == PICK_ASIDE)
		scx_bpf_kick_cpu(cpu, 0);
	return how == PICK_DONE;
}

#endif
