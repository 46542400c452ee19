/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups: which tier a cgroup belongs to, and what part of the tier it owns.
 *
 * TIER. Resolved in cgroup_init, from the cgroup's own name: equal to a
 * label, or a label followed by one of . - _ @ : and anything. Without a label
 * a cgroup is background while its cpu.idle is 1, and else in its parent's tier:
 * cgroup_init visits parents first. A change of cpu.idle resolves all tiers again.
 * A name raises a cgroup above its parent's tier only if root has chosen it; in a
 * delegated subtree names can only lower. The loader may write another tier later and
 * increments tier_moves, at which tasks read it (hints.bpf.h, apply_cgroup_tier()).
 *
 * WEIGHT. The weights of nested groups are compounded into one number, the
 * hierarchical weight (hweight): the part of the whole tier that a group owns
 * when every group that is active now wants more than it gets.
 *
 *	root --- A (weight 300) --- B (100)		B: 3/4 * 1/3 = 0.25
 *	     |                  \-- C (200)		C: 3/4 * 2/3 = 0.50
 *	     \-- D (weight 100)				D: 1/4       = 0.25
 *
 * Only active groups count, separately for each tier: if C sleeps, B owns 3/4
 * and D still 1/4. A group is active from its first runnable task until it has
 * had none for IDLE_NS, so that work which sleeps between requests does not
 * make every weight in the system change with each of them. Throttled tasks do not
 * compete: their group is inactive at once. Every change increments hweight_gen, and a
 * group computes its hweight again when it notices. The lag of groups is then rescaled:
 * see reweight.bpf.h.
 *
 * What is used is the inverse: "scale", the virtual nanoseconds that one real
 * nanosecond costs.
 *
 * Tasks of the root group (kernel threads, scx_ufs itself) own the whole tier:
 * their scale is 1, the least there is.
 *
 * A group exists in both tiers, since a task's hint slot may move it out of its
 * cgroup's tier (hints.bpf.h); most have tasks in one only. A slot may also give
 * a task a weight: its part of the group's part, in the tier it is in.
 *
 * LOCKS. nr_active, child_weight and weight change under weight_lock. Scales
 * are read without it: a reader may use the old value for one more charge.
 */
#ifndef UFS_GROUP_H
#define UFS_GROUP_H

#define IDLE_NS (100 * 1000 * 1000ULL)
/* That of a group which owns so little that it changes the others' too little. */
#define LIGHT_SCALE (32 * SCALE_ONE)

private(WEIGHTS) struct bpf_spin_lock weight_lock;

struct cgroup_slot {
	u32 group;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cgroup_slot);
} cgroup_slots SEC(".maps");

/* Groups that were given back, oldest first: they are reused late, so that a task which
 * outlives its cgroup by a moment is not counted in the number's next group. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, UFS_GROUPS_MAX);
	__type(value, u32);
} free_groups SEC(".maps");

static u32 group_of_cgroup(struct cgroup *cgrp)
{
	struct cgroup_slot *slot = bpf_cgrp_storage_get(&cgroup_slots, cgrp, 0, 0);

	return slot ? slot->group : 0;
}

/* ---- Weights ---- */

/* Count @index and its ancestors as active (@sign 1) or not (-1). Call under weight_lock. */
static __always_inline void propagate(u32 index, u32 tier, s32 sign)
{
	u32 level;

	for (level = 0; level < UFS_DEPTH_MAX; level++) {
		struct group *g = group(index), *parent;
		u32 before = g->nr_active[tier];

		g->nr_active[tier] = before + sign;
		if (index == 0 || (sign > 0 ? before : before - 1))
			return;
		parent = group(g->parent);
		parent->child_weight[tier] += sign * (s64)g->weight;
		index = g->parent;
	}
}

static __always_inline u64 group_scale(u32 index, u32 tier);
__once int reweight_soon(void);

__once int set_active(u32 index, u32 tier, bool active)
{
	struct share *share = &group(index)->in[tier & 1];

	/* The exchange lets one of several callers through. */
	if (__sync_val_compare_and_swap(&share->active, !active, active) != !active)
		return 0;
	bpf_spin_lock(&weight_lock);
	propagate(index, tier & 1, active ? 1 : -1);
	bpf_spin_unlock(&weight_lock);
	__sync_fetch_and_add(&hweight_gen, 1);
	if (tier == GIVEWAY_TIER_BACKGROUND && group_scale(index, tier) <= LIGHT_SCALE)
		reweight_soon();
	return 0;
}

__once u64 refresh_scale(u32 index, u32 tier)
{
	struct share *share = &group(index)->in[tier & 1];
	u64 gen = READ_ONCE(hweight_gen), hweight = HWEIGHT_ONE;
	u32 at = index, level;

	for (level = 0; level < UFS_DEPTH_MAX && at; level++) {
		struct group *child = group(at);
		u64 sum = group(child->parent)->child_weight[tier & 1];

		if (sum > child->weight)
			hweight = hweight * child->weight / sum;
		at = child->parent;
	}
	if (hweight < 1)
		hweight = 1;
	share->scale = (HWEIGHT_ONE << SCALE_SHIFT) / hweight;
	share->hweight_gen = gen;
	return share->scale;
}

/* What one nanosecond costs the group, which for background is what is charged. */
static __always_inline u64 group_scale(u32 index, u32 tier)
{
	struct share *share = &group(index)->in[tier & 1];

	if (index == 0)
		return SCALE_ONE;
	if (likely(READ_ONCE(share->hweight_gen) == READ_ONCE(hweight_gen)))
		return share->scale;
	return refresh_scale(index, tier);
}

/*
 * What one nanosecond costs a time-sensitive task: it owns its part of the
 * group's part, so a group of three tasks gets as much as a group of one of
 * the same weight. This makes task virtual runtimes comparable in the whole
 * tier, and lets each CPU have a queue of its own without a tree above it.
 */
static __always_inline u64 task_scale(struct task_ctx *tc)
{
	u64 load = READ_ONCE(group(tc->group)->in[GIVEWAY_TIER_TIME_SENSITIVE].load);
	u64 scale = group_scale(tc->group, GIVEWAY_TIER_TIME_SENSITIVE);

	if (tc->group != 0 && load > tc->load) {
		/* A scale has 33 bits at most. */
		if (load > 1ULL << 28)
			load = 1ULL << 28;
		scale = likely(tc->load == LOAD_ONE) ? (scale * load) >> LOAD_SHIFT :
						       scale * load / tc->load;
	} else if (unlikely(tc->group == 0 && tc->load != LOAD_ONE)) {
		scale = (scale << LOAD_SHIFT) / tc->load;
	}
	return scale < SCALE_MAX ? scale : SCALE_MAX;
}

static __always_inline void bg_clamp(u32 index, u32 slices);

static __always_inline void count_runnable(struct task_ctx *tc)
{
	u32 tier = tc->tier & 1;
	struct share *share = &group(tc->group)->in[tier];

	if (tc->counted)
		return;
	tc->counted = tc->load;
	if (__sync_fetch_and_add(&share->load, tc->load) == 0 && tier == GIVEWAY_TIER_BACKGROUND)
		bg_clamp(tc->group, 1);
	if (unlikely(!share->active)) {
		set_active(tc->group, tier, true);
		/* Its distance to the clock is what the clamp has left, at this scale. */
		if (tier == GIVEWAY_TIER_BACKGROUND)
			group(tc->group)->lag_scale = group_scale(tc->group, tier);
	}
}

static __always_inline void uncount_runnable(struct task_ctx *tc, u64 now)
{
	struct share *share = &group(tc->group)->in[tc->tier & 1];
	u32 counted = tc->counted;

	if (!counted)
		return;
	tc->counted = 0;
	if (__sync_fetch_and_sub(&share->load, counted) == counted)
		share->idle_since = now;
}

/* The group competes no more, unless it has a runnable task. */
static __always_inline void retire_group(u32 index, u32 tier)
{
	struct share *share = &group(index)->in[tier & 1];

	if (index == 0 || !share->active || share->load)
		return;
	set_active(index, tier, false);
	/* Paired with count_runnable(), which adds before it looks at active: either
	 * it saw active == 0, or this sees its task. */
	if (READ_ONCE(share->load))
		set_active(index, tier, true);
}

/* Called by the timer. */
static __always_inline void retire_idle_group(u32 index, u32 tier, u64 now)
{
	if (time_delta(now, group(index)->in[tier & 1].idle_since) >= IDLE_NS)
		retire_group(index, tier);
}

/* ---- Tiers ---- */

/* Of a cgroup whose name says nothing, or what only root may say. */
#define NO_LABEL 2

/* The tier that a group has by its own label and cpu.idle, or NO_LABEL. */
static __always_inline u32 own_tier(struct group *g)
{
	return g->label == NO_LABEL && g->idle ? GIVEWAY_TIER_BACKGROUND : g->label;
}

/* The tier of the group @index, by what it and the groups above it say, but for marks. */
__once u32 resolve_tier(u32 index)
{
	u32 at = index, level, tier;

	for (level = 0; level < UFS_DEPTH_MAX && at; level++) {
		tier = own_tier(group(at));
		if (tier != NO_LABEL)
			return tier & 1;
		at = group(at)->parent;
	}
	return group(at)->tier & 1;
}

/* After a change: tasks notice it by tier_moves. */
__once int renew_tiers(void)
{
	u32 nr = READ_ONCE(nr_groups), i;

	bpf_for(i, 1, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (group(i)->cgid)
			group(i)->tier = resolve_tier(i);
	}
	/* A full barrier: the tiers before the number that says they have changed. */
	__sync_fetch_and_add(&tier_moves, 1);
	return 0;
}

static bool label_matches(const char *name, u32 tier, u32 entry)
{
	const volatile struct ufs_label *label;
	u32 i, len;
	char c;

	if (tier > 1 || entry >= UFS_LABELS_MAX)
		return false;
	label = &labels[tier][entry];
	len = label->len;
	if (len == 0 || len >= UFS_LABEL_LEN)
		return false;
	for (i = 0; i < UFS_LABEL_LEN - 1; i++) {
		if (i >= len)
			break;
		if (name[i] != label->text[i])
			return false;
	}
	c = name[len & (UFS_NAME_LEN - 1)];
	return c == '\0' || c == '.' || c == '-' || c == '_' || c == '@' || c == ':';
}

static u32 tier_by_name(const char *name)
{
	u32 tier, entry;

	bpf_for(tier, 0, 2) {
		bpf_for(entry, 0, UFS_LABELS_MAX) {
			if (label_matches(name, tier, entry))
				return tier;
		}
	}
	return NO_LABEL;
}

static bool belongs_to_root(struct kernfs_node *dir)
{
	struct kernfs_iattrs *owner = BPF_CORE_READ(dir, iattr);

	return !owner || BPF_CORE_READ(owner, ia_uid.val) == 0;
}

/* Whether root has named the cgroup with the directory @dir, which is in @above: it
 * is root's, or only root can make cgroups there. giveway_tier::mark has the same. */
static bool named_by_root(struct kernfs_node *dir, struct kernfs_node *above)
{
	return belongs_to_root(dir) ||
	       (belongs_to_root(above) && !(BPF_CORE_READ(above, mode) & 022));
}

/* Whether the cgroup's cpu.idle is 1 as it becomes known. */
static bool begins_idle(struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct task_group *css = NULL;
	void *states;

	if (bpf_core_field_exists(args->sched_idle))
		return args->sched_idle;
	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id))
		return false;
	/* A task group begins with its state. */
	states = (void *)__builtin_preserve_access_index(&cgrp->subsys);
	states += bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id) * sizeof(css);
	if (bpf_probe_read_kernel(&css, sizeof(css), states) || !css)
		return false;
	return BPF_CORE_READ(css, idle) > 0;
}

/* ---- Life of a group ---- */

static s32 take_group(u32 *index)
{
	u32 fresh;

	/* Unused numbers first: reuse comes as late as possible. */
	if (READ_ONCE(nr_groups) < UFS_GROUPS_MAX) {
		fresh = __sync_fetch_and_add(&nr_groups, 1);
		if (fresh < UFS_GROUPS_MAX) {
			*index = fresh;
			return 0;
		}
		__sync_fetch_and_sub(&nr_groups, 1);
	}
	return bpf_map_pop_elem(&free_groups, index);
}

static s32 ready_bg_group(u32 index);

s32 BPF_STRUCT_OPS_SLEEPABLE(ufs_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	struct cgroup_slot *slot;
	struct cgroup *parent;
	struct group *g;
	u32 up = 0, label, tier, index, shard;
	bool may_rise = false;
	s32 err;

	slot = bpf_cgrp_storage_get(&cgroup_slots, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!slot)
		return -ENOMEM;
	if (cgrp->level == 0) {
		slot->group = 0;
		groups[0].tier = default_tier;
		groups[0].cgid = cgrp->kn->id;
		groups[0].in[0].scale = SCALE_ONE;
		groups[0].in[1].scale = SCALE_ONE;
		return ready_bg_group(0);
	}
	parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (parent) {
		up = group_of_cgroup(parent);
		may_rise = named_by_root(cgrp->kn, parent->kn);
		bpf_cgroup_release(parent);
	}
	if (take_group(&index)) {
		/* No room: the cgroup's tasks count as its parent's. */
		stat_inc(UFS_GROUP_OVERFLOW);
		slot->group = up;
		return 0;
	}
	/* Any task may turn to the background, by its hints or with its cgroup. */
	err = ready_bg_group(index);
	if (err) {
		bpf_map_push_elem(&free_groups, &index, 0);
		return err;
	}
	g = group(index);
	g->cgid = cgrp->kn->id;
	g->parent = up;
	g->weight = args->weight;
	bpf_probe_read_kernel_str(g->name, sizeof(g->name), BPF_CORE_READ(cgrp, kn, name));
	label = tier_by_name(g->name);
	/* Without root's choice a name only lowers. */
	if (label == GIVEWAY_TIER_TIME_SENSITIVE && !may_rise)
		label = NO_LABEL;
	g->label = label;
	g->idle = begins_idle(cgrp, args);
	tier = own_tier(g);
	/* Its parent's may be a mark's. */
	g->tier = tier == NO_LABEL ? group(up)->tier : tier & 1;
	g->vtime = bg_clock;
	g->task_clock = 0;
	g->in[0].hweight_gen = 0;
	g->in[1].hweight_gen = 0;
	bpf_for(shard, 0, UFS_SHARDS)
		__builtin_memset(&group_work[index & (UFS_GROUPS_MAX - 1)][shard & (UFS_SHARDS - 1)],
				 0, sizeof(struct ufs_work));
	limit_of(index)->throttles = 0;
	limit_of(index)->throttled_ns = 0;
	if (limits_on && bpf_core_field_exists(args->bw_quota_us))
		set_limit(index, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	slot->group = index;
	__sync_fetch_and_add(&live_groups, 1);
	return 0;
}

void BPF_STRUCT_OPS(ufs_cgroup_exit, struct cgroup *cgrp)
{
	u32 index = group_of_cgroup(cgrp);

	/* A cgroup that shares its parent's group gives nothing back. */
	if (index == 0 || group(index)->cgid != cgrp->kn->id)
		return;
	set_active(index, GIVEWAY_TIER_BACKGROUND, false);
	set_active(index, GIVEWAY_TIER_TIME_SENSITIVE, false);
	if (limits_on)
		set_limit(index, 0, UNLIMITED, 0);
	group(index)->cgid = 0;
	__sync_fetch_and_sub(&live_groups, 1);
	bpf_map_push_elem(&free_groups, &index, 0);
}

#endif
