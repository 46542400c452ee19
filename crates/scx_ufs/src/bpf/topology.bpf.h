/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The shape of the machine: which CPUs share a core, a last-level cache (LLC)
 * and a NUMA node, and on which cores time-sensitive work runs.
 *
 *	+- node 0 -------------------------+
 *	| +- LLC --------+ +- LLC -------+ |	places[2]: core 2 (its first CPU),
 *	| | [0 1]  [2 3] | | [4 5] [6 7] | |	sibling 3 (the next of the core, in
 *	| +--------------+ +-------------+ |	a circle), LLC and node as indices
 *	+----------------------------------+	into domains[], sets of CPUs
 *
 * The loader reads it before loading, so all of it is constant to the verifier.
 * Where each core has one thread and all CPUs share one cache, `shaped` is false
 * and the verifier drops every branch that asks for it.
 *
 * ts_cores. The bits of all CPUs of a core are set while one of them runs
 * time-sensitive work. cpu_ctx.core_ts of the core's first CPU counts those CPUs,
 * cpu_ctx.in_core_ts says which are counted:
 *
 *	runs time-sensitive work:	if not counted: += 1; was 0: set the bits
 *	runs background, goes idle:	if counted:     -= 1; is 0: clear the bits,
 *					and look at the count again
 *
 * The last look is for a sibling that was counted between the two steps. A
 * switch between two time-sensitive tasks, or a real-time task between them,
 * changes nothing that CPUs share.
 *
 * A waker that claims a CPU sets the bits ahead, so that the next waker does not
 * claim its sibling. A claim that comes to nothing leaves them set, which makes
 * the core a worse choice than it is, until settle_core() clears them: at the
 * next tick of background work there, or when a CPU of it goes idle.
 */
#ifndef UFS_TOPOLOGY_H
#define UFS_TOPOLOGY_H

const volatile bool has_threads;	/* cores have several */
const volatile bool has_llcs;		/* several to a node */
const volatile bool has_nodes;		/* several */
const volatile struct ufs_place places[UFS_CPUS_MAX];
const volatile u64 domains[UFS_DOMAINS_MAX][UFS_CPU_WORDS];

#define shaped (has_threads || has_llcs || has_nodes)

/* How near two CPUs are: by what they share. */
enum level {
	LEVEL_LLC,
	LEVEL_NODE,
	LEVEL_MACHINE,
};

u64 ts_cores[UFS_CPU_WORDS] __begins_line;

static __always_inline const volatile struct ufs_place *place(u32 cpu)
{
	return &places[cpu & (UFS_CPUS_MAX - 1)];
}

/* A level without things to tell apart is the same as the one above it. */
static __always_inline bool level_exists(u32 level)
{
	return level == LEVEL_NODE || (level == LEVEL_LLC ? has_llcs : has_nodes);
}

/* Of the 64 CPUs of @word, those which share @level with @cpu. */
static __always_inline u64 domain_word(u32 cpu, u32 level, u32 word)
{
	u32 domain;

	if (level == LEVEL_LLC && has_llcs)
		domain = place(cpu)->llc;
	else if (level == LEVEL_NODE && has_nodes)
		domain = place(cpu)->node;
	else
		return ~0ULL;
	return domains[domain & (UFS_DOMAINS_MAX - 1)][word & (UFS_CPU_WORDS - 1)];
}

static __always_inline u32 *core_ts_of(u32 cpu)
{
	return &cpu_ctx(place(cpu)->core)->core_ts;
}

static __always_inline bool in_ts_core(u32 cpu)
{
	return READ_ONCE(ts_cores[(cpu >> 6) & (UFS_CPU_WORDS - 1)]) & (1ULL << (cpu & 63));
}

__once int mark_core(u32 cpu, bool ts)
{
	u32 at = cpu, i;

	bpf_for(i, 0, UFS_THREADS_MAX) {
		u64 *word = &ts_cores[(at >> 6) & (UFS_CPU_WORDS - 1)];
		u64 bit = 1ULL << (at & 63);

		if (ts)
			__sync_fetch_and_or(word, bit);
		else
			__sync_fetch_and_and(word, ~bit);
		at = place(at)->sibling;
		if (at == cpu)
			break;
	}
	return 0;
}

/* No CPU of the core runs time-sensitive work, or none is known to. */
static __always_inline void settle_core(u32 cpu)
{
	if (!has_threads || !in_ts_core(cpu) || READ_ONCE(*core_ts_of(cpu)))
		return;
	mark_core(cpu, false);
	if (READ_ONCE(*core_ts_of(cpu)))
		mark_core(cpu, true);
}

/* @cpu turns to time-sensitive work, or to background work or idleness. Under
 * its rq lock. */
static __always_inline void core_turns(struct cpu_ctx *cc, u32 cpu, bool ts)
{
	if (!has_threads || cc->in_core_ts == ts)
		return;
	cc->in_core_ts = ts;
	if (ts) {
		if (__sync_fetch_and_add(core_ts_of(cpu), 1) == 0)
			mark_core(cpu, true);
	} else {
		__sync_fetch_and_sub(core_ts_of(cpu), 1);
		settle_core(cpu);
	}
}

/* Whether a task on @cpu shares the core with time-sensitive work: if @ts, the
 * task's own CPU is one of those that count. */
static __always_inline bool shares_core(u32 cpu, bool ts)
{
	return READ_ONCE(*core_ts_of(cpu)) > (ts ? 1 : 0);
}

#endif
