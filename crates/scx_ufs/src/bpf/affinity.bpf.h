/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Affinity of background groups: on which CPUs a group's waiting tasks may run, and how
 * groups are served that some CPU has no task of.
 *
 *	wide	has a waiting task for every CPU: in the runnable tree (bg_tree.bpf.h)
 *	narrow	has none for some CPU: in the set of narrow groups
 *
 * To get past a group in the tree that has no task for it, a CPU must take the group
 * out and put it back. Two hundred groups pinned to one CPU would keep all other CPUs
 * from the groups behind them. In the set, a CPU looks only at groups that have a task
 * for it, by one bit of each, and takes the one that is most behind. A group's affinity
 * may change while the group waits there.
 *
 * CLEARING BITS. A bit is set before the task is in its queue. A CPU that finds no task
 * for itself clears its bit, so each useless look is made once: the last unpinned task
 * of a group has left, and pinned ones still wait. A task on its way into the queue must
 * not be lost by that: the bit is cleared only if all tasks counted before the look
 * were in the queue, and is set again if one was counted since (take_task()).
 *
 * CLOCKS. A group's virtual runtime compares only with groups that it competes with.
 * Where most of a tier is pinned to one CPU, the few other groups run on the remaining
 * CPUs at many times their part. One clock for both kinds would clamp one of them all
 * the time, and weights would have no effect. So narrow groups share a clock with the
 * narrow groups that have the same lowest CPU; wide ones have bg_clock. Each clock is
 * the mean of its own groups:
 *
 *	clock += CPU time of its groups / part of the tier that its groups own
 *
 * To compare a narrow group with a wide one, its clock's .offset is added. While each
 * kind can get what it owns, the clocks advance alike and .offset stays: weights hold
 * between them. Where one kind cannot, the clocks part; .offset then follows when two
 * groups are compared, so that the narrow clock is at most BEHIND_AWAKE slices behind
 * and AHEAD ahead. It moves all groups of a clock alike, so their order stays.
 *
 * KNOWN WEAKNESSES: each dispatch of a CPU that some narrow group may use looks at one
 * word of each waiting narrow group. Groups of different affinity with the same lowest
 * CPU share a clock. The parts that clocks own are up to 50 ms old (the timer's period).
 */
#ifndef UFS_AFFINITY_H
#define UFS_AFFINITY_H

#define GROUP_WORDS (UFS_GROUPS_MAX / 64)

/*
 * Nothing is further from its clock than this, in either direction, in slices.
 * Behind: one slice after sleeping, so that sleep earns no more than that; more for
 * tasks that stayed runnable, since they had to wait. Ahead: so that a task which had
 * idle CPUs to itself is not starved for it later; for a background group a
 * slice more for each CPU, since it may have been charged that in advance and gets
 * back what it does not use. Without that the group with the most tasks on CPUs, that
 * of the highest weight, loses charges here and is given them back all the same.
 */
#define BEHIND_AWAKE 8
#define AHEAD 4

/* How far ahead of the clock a background group may be, whose slice is so much virtual
 * time. Each CPU may owe the clock an eighth of that. */
static __always_inline u64 most_ahead(u64 slice)
{
	return (AHEAD + nr_cpu_ids) * slice + nr_cpu_ids * slice / 8;
}

struct group_affinity {
	u64 cpus[UFS_CPU_WORDS];	/* on which waiting tasks may run: a superset */
	u32 clock_id;			/* 0: bg_clock (wide); else the lowest CPU + 1 */
} __attribute__((aligned(64)));

struct group_affinity affinities[UFS_GROUPS_MAX];

/* Narrow groups with waiting tasks; which words of that are not 0; and the CPUs that
 * they have tasks for, a superset that the timer renews. */
u64 narrow[GROUP_WORDS] __begins_line;
u64 narrow_words __begins_line = 0;
u64 narrow_cpus[UFS_CPU_WORDS] __begins_line;
u64 narrow_next[UFS_CPU_WORDS];	/* the timer's own */

struct narrow_clock {
	u64 clock;
	u64 offset;	/* .clock + .offset compares with bg_clock */
	u64 part;	/* of the tier, owned by the groups that compete; of HWEIGHT_ONE */
	u64 sum;	/* of it, while it is computed */
} __attribute__((aligned(64)));

/* Entry 0 is not used. */
struct narrow_clock narrow_clocks[2 * UFS_CPUS_MAX];
/* What all of them own, and whether wide groups compete with them. */
u64 narrow_part __begins_line = 0;
u32 wide_competes = 0;

static __always_inline struct group_affinity *affinity_of(u32 index)
{
	return &affinities[index & (UFS_GROUPS_MAX - 1)];
}

static __always_inline struct narrow_clock *narrow_clock_of(u32 index)
{
	return &narrow_clocks[affinity_of(index)->clock_id & (2 * UFS_CPUS_MAX - 1)];
}

static __always_inline u64 *affinity_word(u32 index, u32 cpu)
{
	return &affinity_of(index)->cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)];
}

static __always_inline bool has_task_for(u32 index, u32 cpu)
{
	return READ_ONCE(*affinity_word(index, cpu)) & (1ULL << (cpu & 63));
}

static __always_inline bool is_narrow(u32 index)
{
	return READ_ONCE(narrow[(index >> 6) & (GROUP_WORDS - 1)]) & (1ULL << (index & 63));
}

/* The number of the lowest bit of @v, which is not 0. The compiler knows that it is below
 * 64, and would leave out what tells the verifier so. */
static __always_inline u32 lowest_bit(u64 v)
{
	u32 bit = ctzll(v);

	__sink(bit);
	return bit & 63;
}

/* Bits are mostly there already. */
static __always_inline void set_bits(u64 *word, u64 bits)
{
	if ((READ_ONCE(*word) & bits) != bits)
		__sync_fetch_and_or(word, bits);
}

/* Whether some waiting task may run on each CPU. */
__once bool is_wide(u32 index)
{
	u32 word;

	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);

		if (online_cpus[at] & ~READ_ONCE(affinity_of(index)->cpus[at]))
			return false;
	}
	return true;
}

/* Add the CPUs that @p may use to those of its group and of the whole. */
__once int add_cpus(struct task_struct *p __arg_trusted, u32 index)
{
	struct group_affinity *r = affinity_of(index);
	u32 word;

	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);
		u64 cpus = allowed_word(p, at);

		set_bits(&r->cpus[at], cpus);
		set_bits(&bg_hint, cpus);
	}
	/* Paired with show_narrow(): it sees the affinity, or this sees the group there. */
	if (!is_narrow(index))
		return 0;
	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);

		set_bits(&narrow_cpus[at], READ_ONCE(r->cpus[at]));
	}
	return 0;
}

/* A task of the group is about to wait in its queue, and has been counted. */
static __always_inline void add_affinity(struct task_struct *p, u32 index)
{
	struct group_affinity *r = affinity_of(index);
	u64 cpus;

	__sync_fetch_and_add(&group(index)->enters, 1);
	/* Mostly there is nothing to add. */
	if (nr_cpu_words == 1 && !is_narrow(index)) {
		cpus = allowed_word(p, 0);
		if (!(cpus & ~(READ_ONCE(r->cpus[0]) & READ_ONCE(bg_hint))))
			return;
	}
	add_cpus(p, index);
}

/* The group has no waiting task, or a new one's affinity may be lost: then @all. */
__once int reset_affinity(u32 index, bool all)
{
	u32 word;

	bpf_for(word, 0, nr_cpu_words)
		WRITE_ONCE(affinity_of(index)->cpus[word & (UFS_CPU_WORDS - 1)], all ? ~0ULL : 0);
	return 0;
}

/* ---- Clocks ---- */

static __always_inline u64 clock_of(u32 index)
{
	return affinity_of(index)->clock_id ? READ_ONCE(narrow_clock_of(index)->clock) :
					       READ_ONCE(bg_clock);
}

/* Keep a narrow group's clock within some slices of bg_clock. */
static __always_inline void bound_offset(u32 index, u64 slice)
{
	struct narrow_clock *clock = narrow_clock_of(index);
	s64 ahead, most;

	if (!affinity_of(index)->clock_id)
		return;
	ahead = clock->clock + clock->offset - READ_ONCE(bg_clock);
	most = most_ahead(slice);
	if (ahead > most)
		WRITE_ONCE(clock->offset, clock->offset - (ahead - most));
	most = BEHIND_AWAKE * slice;
	if (ahead < -most)
		WRITE_ONCE(clock->offset, clock->offset - (ahead + most));
}

/* Two groups are about to be compared. The slice is that of the group with the larger
 * scale: with a smaller bound a single slice of either would decide. */
__once int meet(u32 a, u32 b)
{
	u64 scale = group_scale(a, GIVEWAY_TIER_BACKGROUND);
	u64 other = group_scale(b, GIVEWAY_TIER_BACKGROUND), slice;

	if (affinity_of(a)->clock_id == affinity_of(b)->clock_id)
		return 0;
	slice = scaled(bg_slice_ns, other > scale ? other : scale);
	/* Times a number of CPUs. */
	if (slice > 1ULL << 50)
		slice = 1ULL << 50;
	bound_offset(a, slice);
	bound_offset(b, slice);
	return 0;
}

/* The virtual runtime of the group, to be compared with that of any other. */
static __always_inline u64 vtime_of(u32 index)
{
	u64 vtime = READ_ONCE(group(index)->vtime);

	return affinity_of(index)->clock_id ? vtime + READ_ONCE(narrow_clock_of(index)->offset) : vtime;
}

/* Give the group, which is about to be shown or charged, the clock of its affinity. It
 * keeps its distance to the clock. */
__once int choose_clock(u32 index, bool wide)
{
	struct group_affinity *r = affinity_of(index);
	u32 clock_id = 0, word;
	u64 before;

	if (!wide) {
		bpf_for(word, 0, nr_cpu_words) {
			u64 cpus = READ_ONCE(r->cpus[word & (UFS_CPU_WORDS - 1)]);

			if (cpus) {
				clock_id = (word << 6) + lowest_bit(cpus) + 1;
				break;
			}
		}
	}
	if (clock_id == r->clock_id)
		return 0;
	before = clock_of(index);
	r->clock_id = clock_id;
	__sync_fetch_and_add(&group(index)->vtime, clock_of(index) - before);
	/* No group has competed there lately: there is no lag to keep. */
	if (clock_id && !READ_ONCE(narrow_clock_of(index)->part))
		WRITE_ONCE(narrow_clock_of(index)->offset,
			   READ_ONCE(bg_clock) - narrow_clock_of(index)->clock);
	return 0;
}

/* The group has used @used nanoseconds on the CPU of @cc, at @scale. @owners: see
 * owners_of(). */
static __always_inline void advance_bg_clock(struct cpu_ctx *cc, u32 index, u64 used, u64 scale,
					     u64 owners)
{
	u64 own = (HWEIGHT_ONE << SCALE_SHIFT) / (scale ?: SCALE_ONE);
	u64 elsewhere = READ_ONCE(narrow_part), part;
	struct narrow_clock *clock;

	if (!affinity_of(index)->clock_id) {
		part = (owners ?: 1) * HWEIGHT_ONE;
		part = part > elsewhere + own ? part - elsewhere : own;
		cc->bg_late += used * HWEIGHT_ONE / (part ?: 1);
		return;
	}
	clock = narrow_clock_of(index);
	part = READ_ONCE(clock->part);
	if (part < own)
		part = own;
	__sync_fetch_and_add(&clock->clock, used * HWEIGHT_ONE / (part ?: 1));
	/* What wide groups will be measured by when there are some again. */
	if (!READ_ONCE(wide_competes))
		cc->bg_late += owners > 1 ? used / owners : used;
}

/* What each clock owns: the sum of its groups. Called by the timer. */
__once int compute_parts(u32 nr)
{
	u64 all = unknown_zero();
	u32 wide = unknown_zero(), i;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		struct share *share = &group(i)->in[GIVEWAY_TIER_BACKGROUND];

		if (i >= nr)
			break;
		if (!share->active && !share->load)
			continue;
		if (!affinity_of(i)->clock_id)
			wide = 1;
		else if (share->scale)
			narrow_clock_of(i)->sum += (HWEIGHT_ONE << SCALE_SHIFT) / share->scale;
	}
	bpf_for(i, 1, nr_cpu_ids + 1) {
		struct narrow_clock *clock = &narrow_clocks[i & (2 * UFS_CPUS_MAX - 1)];

		all += clock->sum;
		WRITE_ONCE(clock->part, clock->sum);
		clock->sum = 0;
	}
	WRITE_ONCE(narrow_part, all);
	WRITE_ONCE(wide_competes, wide);
	return 0;
}

/* ---- The set of narrow groups ---- */

/* Put the group into the set. It has been counted as queued. */
static __always_inline void show_narrow(u32 index)
{
	u32 at = (index >> 6) & (GROUP_WORDS - 1), word;

	__sync_fetch_and_or(&narrow[at], 1ULL << (index & 63));
	__sync_fetch_and_or(&narrow_words, 1ULL << at);
	bpf_for(word, 0, nr_cpu_words) {
		u32 w = word & (UFS_CPU_WORDS - 1);

		set_bits(&narrow_cpus[w], READ_ONCE(affinity_of(index)->cpus[w]));
	}
}

/* Take it out. False: another CPU has. */
static __always_inline bool take_narrow(u32 index)
{
	u32 at = (index >> 6) & (GROUP_WORDS - 1);
	u64 bit = 1ULL << (index & 63);

	if (!(__sync_fetch_and_and(&narrow[at], ~bit) & bit))
		return false;
	if (!READ_ONCE(narrow[at])) {
		__sync_fetch_and_and(&narrow_words, ~(1ULL << at));
		if (READ_ONCE(narrow[at]))
			__sync_fetch_and_or(&narrow_words, 1ULL << at);
	}
	return true;
}

/* The narrow group with something for @cpu that is most behind, but not @but; -1: none. */
__once s32 narrow_first(u32 cpu, s32 but)
{
	u64 words = READ_ONCE(narrow_words), least = unknown_zero();
	s32 first = -1 - (s32)unknown_zero();
	u32 i, j;

	if (!(READ_ONCE(narrow_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)]) & (1ULL << (cpu & 63))))
		return -1;
	bpf_for(i, 0, GROUP_WORDS) {
		u64 bits;
		u32 at;

		if (!words)
			break;
		at = lowest_bit(words);
		words &= words - 1;
		bits = READ_ONCE(narrow[at]);
		bpf_for(j, 0, 64) {
			u32 index;
			u64 vtime;

			if (!bits)
				break;
			index = (at << 6) + lowest_bit(bits);
			bits &= bits - 1;
			if (!has_task_for(index, cpu) || (s32)index == but)
				continue;
			vtime = vtime_of(index);
			if (first < 0 || (s64)(vtime - least) < 0) {
				first = index;
				least = vtime;
			}
		}
	}
	return first;
}

/*
 * Move the group's first task that may run on @cpu there. If there is none, and none is
 * on its way, the group has none for @cpu any more.
 */
__once bool take_task(u32 cpu, u32 index)
{
	u64 *word = affinity_word(index, cpu), bit = 1ULL << (cpu & 63);
	u32 enters;

	if (scx_bpf_dsq_move_to_local(BG_DSQ + (index & (UFS_GROUPS_MAX - 1)), 0))
		return true;
	/* A full barrier. */
	enters = __sync_fetch_and_add(&group(index)->enters, 0);
	if ((u32)scx_bpf_dsq_nr_queued(BG_DSQ + (index & (UFS_GROUPS_MAX - 1))) !=
	    READ_ONCE(group(index)->nr_waiting))
		return false;
	/* Whoever was counted then is in the queue: look again. */
	if (scx_bpf_dsq_move_to_local(BG_DSQ + (index & (UFS_GROUPS_MAX - 1)), 0))
		return true;
	__sync_fetch_and_and(word, ~bit);
	if (READ_ONCE(group(index)->enters) != enters)
		__sync_fetch_and_or(word, bit);
	return false;
}

/* What the timer keeps small: supersets that only grow in between. A bit that is cleared
 * against an enqueue that is setting it just now comes back with the next enqueue or the
 * next renewal. */
__once int renew_affinity(u32 nr)
{
	u64 hint = unknown_zero();
	u32 i, word;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		if (i >= nr)
			break;
		if (!READ_ONCE(group(i)->nr_waiting))
			continue;
		bpf_for(word, 0, nr_cpu_words) {
			u32 at = word & (UFS_CPU_WORDS - 1);
			u64 cpus = READ_ONCE(affinity_of(i)->cpus[at]);

			hint |= cpus;
			if (is_narrow(i))
				narrow_next[at] |= cpus;
		}
	}
	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);

		WRITE_ONCE(narrow_cpus[at], narrow_next[at]);
		narrow_next[at] = 0;
	}
	WRITE_ONCE(bg_hint, hint);
	return 0;
}

#endif
