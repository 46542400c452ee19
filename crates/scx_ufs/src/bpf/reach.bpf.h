/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reach: on which CPUs a background group's waiting tasks may run, and what becomes
 * of groups that not every CPU can serve.
 *
 *	wide	some waiting task for every CPU: in the runnable tree (bg_tree.bpf.h)
 *	narrow	none for some CPU: in the set of narrow groups
 *
 * In the tree nobody can go past a group that a CPU has no use for, but by taking it
 * out and putting it back. Two hundred groups pinned to one CPU would keep all others
 * from what is behind them. In the set a CPU looks at those groups only that have
 * something for it, by a bit of each, and takes the one that is most behind. A set also
 * lets a group's reach change while it waits there.
 *
 * EXACT. The bits are set before a task is in its queue. A CPU that finds nothing for
 * itself clears its bit, so each mistake is made once: the last unpinned task of a group
 * has left, and the pinned ones wait on. A task that is on its way into the queue must
 * not be lost by that: the bit goes only if before the look every task that is counted
 * was in the queue, and comes back if one was counted since (forget_cpu()).
 *
 * CLOCKS. A group's virtual runtime says something beside those that it competes with.
 * Where most of a tier is pinned to one CPU, the few others run on the rest of them at
 * many times their part, and one clock for both would clamp either kind all the time,
 * which is the end of weights. So narrow groups have a clock for each home, the lowest
 * CPU that they reach; the wide ones have bg_clock. Each is the mean of its own groups:
 *
 *	clock += CPU time of its groups / part of the tier that its groups own
 *
 * To compare a narrow group with a wide one its home's .shift is added. While each kind
 * can get what it owns the clocks go alike and .shift stays: weights hold between them.
 * Where one cannot, the clocks part, and .shift follows when two groups meet, so that
 * the home is no more than BEHIND_AWAKE slices behind and AHEAD ahead. It moves all
 * groups of a home alike, and their order stays.
 *
 * KNOWN WEAKNESSES: each dispatch of a CPU that some narrow group reaches looks at one word of
 * each narrow group that waits. Groups of different reach with the same lowest CPU have
 * one clock. The parts that homes own are as of the timer's last turn (50 ms).
 */
#ifndef UFS_REACH_H
#define UFS_REACH_H

#define GROUP_WORDS (UFS_GROUPS_MAX / 64)

/*
 * Nothing is further from its clock than this, in either direction, in slices.
 * Behind: one slice after sleeping, so that sleep earns no more than that; more
 * for what stayed runnable, since it was made to wait. Ahead: so that whoever
 * had idle CPUs to itself is not starved for it later; for a background group a
 * slice more for each CPU, since it may have been charged that in advance and gets
 * back what it does not use. Without that the group with the most tasks on CPUs, that
 * of the highest weight, loses charges here and is given them back all the same.
 */
#define BEHIND_AWAKE 8
#define AHEAD 4

struct reach {
	u64 cpus[UFS_CPU_WORDS];	/* on which waiting tasks may run: a superset */
	u32 enters;			/* times that a task was given to the queue */
	u32 home;			/* 0: wide; else the lowest CPU + 1 */
} __attribute__((aligned(64)));

struct reach reaches[UFS_GROUPS_MAX];

/* Narrow groups with waiting tasks; which words of that are not 0; and the CPUs that
 * they reach, a superset that the timer renews. */
u64 narrow[GROUP_WORDS];
u64 narrow_words;
u64 narrow_cpus[UFS_CPU_WORDS];
u64 narrow_next[UFS_CPU_WORDS];	/* the timer's own */

struct home {
	u64 clock;
	u64 shift;	/* .clock + .shift compares with bg_clock */
	u64 part;	/* of the tier, owned by the groups that compete; of HWEIGHT_ONE */
	u64 sum;	/* of it, while it is reckoned */
} __attribute__((aligned(64)));

/* Entry 0 is not used. */
struct home homes[2 * UFS_CPUS_MAX];
/* What all of them own, and whether wide groups compete with them. */
u64 narrow_part;
u32 wide_competes;

static __always_inline struct reach *reach_of(u32 index)
{
	return &reaches[index & (UFS_GROUPS_MAX - 1)];
}

static __always_inline struct home *home_of(u32 index)
{
	return &homes[reach_of(index)->home & (2 * UFS_CPUS_MAX - 1)];
}

static __always_inline u64 *reach_word(u32 index, u32 cpu)
{
	return &reach_of(index)->cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)];
}

static __always_inline bool reaches_cpu(u32 index, u32 cpu)
{
	return READ_ONCE(*reach_word(index, cpu)) & (1ULL << (cpu & 63));
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

		if (online_cpus[at] & ~READ_ONCE(reach_of(index)->cpus[at]))
			return false;
	}
	return true;
}

/* A task of the group is about to wait in its queue, and has been counted. */
__once int add_reach(struct task_struct *p __arg_trusted, u32 index)
{
	struct reach *r = reach_of(index);
	u32 word;

	__sync_fetch_and_add(&r->enters, 1);
	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);
		u64 cpus = allowed_word(p, at);

		set_bits(&r->cpus[at], cpus);
		set_bits(&bg_hint, cpus);
	}
	/* Paired with show_narrow(): it sees the reach, or this sees the group there. */
	if (!is_narrow(index))
		return 0;
	bpf_for(word, 0, nr_cpu_words) {
		u32 at = word & (UFS_CPU_WORDS - 1);

		set_bits(&narrow_cpus[at], READ_ONCE(r->cpus[at]));
	}
	return 0;
}

/* The group has no waiting task, or a new one's reach may be lost: then @all. */
__once int reset_reach(u32 index, bool all)
{
	u32 word;

	bpf_for(word, 0, nr_cpu_words)
		WRITE_ONCE(reach_of(index)->cpus[word & (UFS_CPU_WORDS - 1)], all ? ~0ULL : 0);
	return 0;
}

/* ---- Clocks ---- */

static __always_inline u64 clock_of(u32 index)
{
	return reach_of(index)->home ? READ_ONCE(home_of(index)->clock) : READ_ONCE(bg_clock);
}

/* Keep what a narrow group's home is ahead or behind of bg_clock within @slice times some. */
static __always_inline void bound_shift(u32 index, u64 slice)
{
	struct home *home = home_of(index);
	s64 ahead, most;

	if (!reach_of(index)->home)
		return;
	ahead = home->clock + home->shift - READ_ONCE(bg_clock);
	most = (AHEAD + nr_cpu_ids) * slice;
	if (ahead > most)
		WRITE_ONCE(home->shift, home->shift - (ahead - most));
	most = BEHIND_AWAKE * slice;
	if (ahead < -most)
		WRITE_ONCE(home->shift, home->shift - (ahead + most));
}

/* Two groups are about to be compared. The slice is that of the dearer one: by less than
 * some of those a single turn of either would decide. */
__once int meet(u32 a, u32 b)
{
	u64 scale = group_scale(a, GIVEWAY_TIER_BACKGROUND);
	u64 other = group_scale(b, GIVEWAY_TIER_BACKGROUND), slice;

	if (reach_of(a)->home == reach_of(b)->home)
		return 0;
	slice = scaled(bg_slice_ns, other > scale ? other : scale);
	/* Times a number of CPUs. */
	if (slice > 1ULL << 50)
		slice = 1ULL << 50;
	bound_shift(a, slice);
	bound_shift(b, slice);
	return 0;
}

/* The virtual runtime of the group, to be compared with that of any other. */
static __always_inline u64 vtime_of(u32 index)
{
	u64 vtime = READ_ONCE(group(index)->vtime);

	return reach_of(index)->home ? vtime + READ_ONCE(home_of(index)->shift) : vtime;
}

/* The group is about to be shown, or to be charged: its clock is that of its reach, and
 * it is as far from the new one as it was from the old. */
__once int settle_home(u32 index, bool wide)
{
	struct reach *r = reach_of(index);
	u32 home = 0, word;
	u64 before;

	if (!wide) {
		bpf_for(word, 0, nr_cpu_words) {
			u64 cpus = READ_ONCE(r->cpus[word & (UFS_CPU_WORDS - 1)]);

			if (cpus) {
				home = (word << 6) + lowest_bit(cpus) + 1;
				break;
			}
		}
	}
	if (home == r->home)
		return 0;
	before = clock_of(index);
	r->home = home;
	__sync_fetch_and_add(&group(index)->vtime, clock_of(index) - before);
	/* Nobody has competed there lately: nothing is to be made good for. */
	if (home && !READ_ONCE(home_of(index)->part))
		WRITE_ONCE(home_of(index)->shift, READ_ONCE(bg_clock) - home_of(index)->clock);
	return 0;
}

/* The group has used @used nanoseconds, at the price @scale. @owners: see
 * owners_of(). */
static __always_inline void advance_bg_clock(u32 index, u64 used, u64 scale, u64 owners)
{
	u64 own = (HWEIGHT_ONE << SCALE_SHIFT) / (scale ?: SCALE_ONE);
	u64 elsewhere = READ_ONCE(narrow_part), part;
	struct home *home;

	if (!reach_of(index)->home) {
		part = (owners ?: 1) * HWEIGHT_ONE;
		part = part > elsewhere + own ? part - elsewhere : own;
		__sync_fetch_and_add(&bg_clock, used * HWEIGHT_ONE / (part ?: 1));
		return;
	}
	home = home_of(index);
	part = READ_ONCE(home->part);
	if (part < own)
		part = own;
	__sync_fetch_and_add(&home->clock, used * HWEIGHT_ONE / (part ?: 1));
	/* What wide groups will be measured by when there are some again. */
	if (!READ_ONCE(wide_competes))
		__sync_fetch_and_add(&bg_clock, owners > 1 ? used / owners : used);
}

/* What the homes own, from what their groups do. Called by the timer. */
__once int reckon_parts(u32 nr)
{
	u64 all = unknown_zero();
	u32 wide = unknown_zero(), i;

	bpf_for(i, 0, UFS_GROUPS_MAX) {
		struct share *share = &group(i)->in[GIVEWAY_TIER_BACKGROUND];

		if (i >= nr)
			break;
		if (!share->active && !share->load)
			continue;
		if (!reach_of(i)->home)
			wide = 1;
		else if (share->scale)
			home_of(i)->sum += (HWEIGHT_ONE << SCALE_SHIFT) / share->scale;
	}
	bpf_for(i, 1, nr_cpu_ids + 1) {
		struct home *home = &homes[i & (2 * UFS_CPUS_MAX - 1)];

		all += home->sum;
		WRITE_ONCE(home->part, home->sum);
		home->sum = 0;
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

		set_bits(&narrow_cpus[w], READ_ONCE(reach_of(index)->cpus[w]));
	}
}

/* Take it out. False: somebody else has. */
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
			if (!reaches_cpu(index, cpu) || (s32)index == but)
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
 * on its way, the group does not reach @cpu any more.
 */
__once bool take_task(u32 cpu, u32 index)
{
	struct reach *r = reach_of(index);
	u64 *word = reach_word(index, cpu), bit = 1ULL << (cpu & 63);
	u32 enters;

	if (scx_bpf_dsq_move_to_local(BG_DSQ + (index & (UFS_GROUPS_MAX - 1)), 0))
		return true;
	/* A full barrier. */
	enters = __sync_fetch_and_add(&r->enters, 0);
	if ((u32)scx_bpf_dsq_nr_queued(BG_DSQ + (index & (UFS_GROUPS_MAX - 1))) !=
	    READ_ONCE(group(index)->nr_waiting))
		return false;
	/* Whoever was counted then is in the queue: look again. */
	if (scx_bpf_dsq_move_to_local(BG_DSQ + (index & (UFS_GROUPS_MAX - 1)), 0))
		return true;
	__sync_fetch_and_and(word, ~bit);
	if (READ_ONCE(r->enters) != enters)
		__sync_fetch_and_or(word, bit);
	return false;
}

/* What the timer keeps small: supersets that only grow in between. A bit that is cleared
 * against an enqueue that is setting it just now comes back with the next enqueue or the
 * next renewal. */
__once int renew_reach(u32 nr)
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
			u64 cpus = READ_ONCE(reach_of(i)->cpus[at]);

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
