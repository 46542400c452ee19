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
 * The charge is made when the task is dispatched, so that other CPUs see it,
 * and settled to what was used when the task stops.
 *
 * A node's life: allocated in cgroup_init, parked in the group's stash while the
 * group has no waiting task, in the tree otherwise. group.queued says which:
 *
 *	enqueue:	nr_waiting += 1;  if queued 0 -> 1: stash to tree
 *	dispatch:	take from tree;   if nr_waiting == 0: to stash, queued = 0,
 *			and look at nr_waiting again
 *
 * One of the two always sees the other's first step. nr_waiting is raised before
 * the task is in the queue, since the kernel inserts it only after enqueue has
 * returned; the queue's own length would lose tasks here.
 *
 * Restricted tasks stay in the tree: a cpuset restricts every task of a
 * workload, and a side queue would be the end of weights. A group that has
 * waiting tasks but none for this CPU is set aside, and put back when the search
 * ends. cpu_hint, a superset of the CPUs that its tasks may use, avoids most
 * such searches.
 *
 * A group in somebody's hands is invisible to other CPUs for that moment. Two
 * that are woken together for two tasks of one group meet there, and the kernel
 * asks an idle CPU that found nothing no second time. So whoever finds the tree
 * empty while tasks wait leaves its bit in missed_cpus and looks once more, and
 * whoever puts a group into the tree then wakes those CPUs. tree_lock orders the
 * two: the second look sees the group, or tree_insert() sees the bit.
 *
 * Known weaknesses: a search gives up after SEARCH_MAX groups. A queue with many
 * tasks pinned elsewhere is walked from its head.
 */
#ifndef UFS_BG_TREE_H
#define UFS_BG_TREE_H

#define SEARCH_MAX 8

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
u64 missed_cpus[UFS_CPU_WORDS];
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

/*
 * Nothing is further from its tier's clock than this, in either direction.
 * Behind: one slice after sleeping, so that sleep earns no more than that; more
 * for what stayed runnable, since it was made to wait. Ahead: so that whoever
 * had idle CPUs to itself is not starved for it later; for a background group a
 * slice more for each CPU, since it may have been charged that in advance and gets
 * back what it does not use. Without that the group with the most tasks on CPUs, that
 * of the highest weight, loses charges here and is given them back all the same.
 */
#define BEHIND_AWAKE 8
#define AHEAD 4

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

	g->vtime = clamp_vtime(g->vtime, READ_ONCE(bg_clock), slices * slice,
			       (AHEAD + nr_cpu_ids) * slice, &clamped);
	if (clamped)
		stat_inc(UFS_BG_CLAMP);
}

/* A task of @g waits: the CPUs that it may use need to look. */
static __always_inline void add_cpu_hint(struct task_struct *p, struct group *g)
{
	u64 hint = allowed_word(p, 0);
	u32 word;

	if (nr_cpu_words > 1) {
		bpf_for(word, 1, nr_cpu_words)
			hint |= allowed_word(p, word & (UFS_CPU_WORDS - 1));
	}
	if ((READ_ONCE(g->cpu_hint) & hint) != hint)
		__sync_fetch_and_or(&g->cpu_hint, hint);
	if ((READ_ONCE(bg_hint) & hint) != hint)
		__sync_fetch_and_or(&bg_hint, hint);
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

__once int reprice(u32 index);

/* Move the group's node from the stash into the tree. */
__once int tree_insert(u32 index)
{
	struct group *g = group(index);
	struct tree_node *node;
	struct stash *stash;

	stash = bpf_map_lookup_elem(&stashes, &index);
	if (!stash)
		return 0;
	node = bpf_kptr_xchg(&stash->node, NULL);
	if (!node)
		return 0;
	reprice(index);
	bg_clamp(index, BEHIND_AWAKE);
	node->vtime = g->vtime;
	bpf_spin_lock(&tree_lock);
	bpf_rbtree_add(&bg_tree, &node->rb, node_less);
	bpf_spin_unlock(&tree_lock);
	if (unlikely(READ_ONCE(has_missed)) && __sync_lock_test_and_set(&has_missed, 0))
		wake_missed();
	return 0;
}

static __always_inline void group_has_work(u32 index)
{
	if (__sync_val_compare_and_swap(&group(index)->queued, 0, 1) == 0)
		tree_insert(index);
}

/* Take the first node out of the tree and park it. Returns its group, or -1. */
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
		return -1;
	}
	node = bpf_kptr_xchg(&stash->node, node);
	if (node)
		bpf_obj_drop(node);
	return index & (UFS_GROUPS_MAX - 1);
}

/* The same; @cpu is woken when there is a group again. */
static __always_inline s32 tree_pop_or_miss(u32 cpu)
{
	s32 index = tree_pop();

	if (index >= 0)
		return index;
	__sync_fetch_and_or(&missed_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)], 1ULL << (cpu & 63));
	WRITE_ONCE(has_missed, 1);
	return tree_pop();
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

static __always_inline void charge_group(u32 index, s64 ns)
{
	u64 scale = group_scale(index, GIVEWAY_TIER_BACKGROUND);
	u64 cost = scaled(ns < 0 ? -ns : ns, scale);

	if (unlikely(group(index)->price != scale))
		reprice(index);
	__sync_fetch_and_add(&group(index)->vtime, ns < 0 ? -cost : cost);
}

/* Let @cpu take the next task of the group that is most behind. */
__once bool bg_pick(u32 cpu)
{
	u64 bit = 1ULL << (cpu & 63);
	u32 aside = 0, i;
	bool found = false;
	s32 index;

	/* Keeps the verifier from following each list of groups by itself. */
	__sink(aside);

	bpf_for(i, 0, SEARCH_MAX) {
		struct group *g;

		/* Groups that are set aside were not missed. */
		index = aside ? tree_pop() : tree_pop_or_miss(cpu);
		if (index < 0)
			break;
		g = group(index);
		if (!READ_ONCE(g->nr_waiting)) {
			stat_inc(UFS_TREE_EMPTY);
			WRITE_ONCE(g->cpu_hint, 0);
			/* A full barrier, paired with the additions in bg_enqueue(). */
			__sync_fetch_and_and(&g->queued, 0);
			if (READ_ONCE(g->nr_waiting)) {
				/* The new task's hint may be the one just cleared. */
				WRITE_ONCE(g->cpu_hint, ~0ULL);
				group_has_work(index);
			}
			continue;
		}
		if ((g->cpu_hint & bit) && scx_bpf_dsq_move_to_local(BG_DSQ + index, 0)) {
			charge_group(index, bg_slice_ns);
			cpu_ctx(cpu)->prepaid_group = index;
			tree_insert(index);
			stat_inc(UFS_BG_DISPATCH);
			found = true;
			break;
		}
		stat_inc(UFS_TREE_INELIGIBLE);
		/* Out of the tree and not in anybody's hands but ours: the link is
		 * private. Numbers are stored plus one, so that 0 ends the list. */
		g->next_aside = aside;
		aside = index + 1;
	}
	bpf_for(i, 0, SEARCH_MAX) {
		if (!aside)
			break;
		index = (aside - 1) & (UFS_GROUPS_MAX - 1);
		aside = group(index)->next_aside;
		tree_insert(index);
	}
	return found;
}

#endif
