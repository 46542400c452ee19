/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The search for a CPU on which a task is to run.
 *
 * A CPU is claimed, never just found: idle ones by the kernel's test-and-clear
 * of the idle mask, background ones by the same on bg_cpus. A waker that wins
 * the bit owns the CPU's next slot, so two wakers never pick the same CPU.
 *
 * On a machine with a shape (topology.bpf.h) the order is, always within the
 * task's cpus_ptr, which is how cpusets and their partitions appear here:
 *
 *	1. in the LLC of the previous CPU, then in its NUMA node:
 *	   a. a core that is idle as a whole;
 *	   b. an idle CPU whose core runs background work only;
 *	   c. a CPU that runs background work, on a core that runs nothing else;
 *	2. the same in the other nodes;
 *	3. an idle CPU, LLC, node, machine: time-sensitive work is beside it;
 *	4. a CPU that runs background work, likewise.
 *
 * Background tasks take the idle CPUs of this order: 1a, 1b, 2, 3. At each step
 * the previous CPU comes first, then those above it in number.
 *
 * Two time-sensitive tasks on one core slow each other down; so does a background task
 * beside one. But a core that runs only background work can be taken, and delaying
 * background work is acceptable. So another core is better than a sibling, even if a
 * background task is preempted (1c before 3).
 *
 * Background work beside a time-sensitive task continues. Stopping it would take an
 * interrupt and a switch on a second CPU for each burst of a few hundred microseconds,
 * leave up to half of the machine idle while there is work, and stop lock holders.
 * Instead it moves when a better CPU is idle: see below.
 *
 * MOVING APART. The order holds at wake-up; later other tasks sleep, and better CPUs
 * become free. A task that is alone on its CPU when its slice ends, shares the core
 * with time-sensitive work, and could have a CPU of 1a to 2, moves there:
 * dispatch leaves it without a slice, enqueue gets it with SCX_ENQ_LAST and puts
 * it into the other CPU's local queue. Background moves only to idle CPUs.
 *
 * Without a shape: an idle CPU by the kernel's choice, then background ones from
 * the previous CPU on.
 *
 * Known weaknesses: idle_cpus shows a CPU for some microseconds after it has been
 * claimed; the claim fails then, and the search goes on. Far CPUs are one step,
 * whatever the distances of their nodes. Cores of different speed are alike.
 */
#ifndef UFS_CLAIM_H
#define UFS_CLAIM_H

enum want {
	WANT_IDLE_CORE,		/* a */
	WANT_IDLE_APART,	/* b */
	WANT_BG_APART,		/* c */
	WANT_IDLE,
	WANT_BG,
};

static __always_inline bool may_move(struct task_struct *p)
{
	return p->nr_cpus_allowed > 1 && !is_migration_disabled(p);
}

static __always_inline bool claim_bg_cpu(u32 cpu)
{
	u64 bit = 1ULL << (cpu & 63);
	u64 *word = &bg_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)];

	return (READ_ONCE(*word) & bit) && (__sync_fetch_and_and(word, ~bit) & bit);
}

/* The CPUs of @word that may be what is wanted; of idle cores, a superset. */
static __always_inline u64 wanted_word(u32 want, u32 word)
{
	bool bg = want == WANT_BG || want == WANT_BG_APART;
	u64 bits;

	word &= UFS_CPU_WORDS - 1;
	bits = bg ? READ_ONCE(bg_cpus[word]) : READ_ONCE(idle_cpus[word]);
	if (has_threads && (want == WANT_IDLE_APART || want == WANT_BG_APART))
		bits &= ~READ_ONCE(ts_cores[word]);
	return bits;
}

/* Claim one of @candidates, CPUs of one word, the nearest above @near first. */
static __always_inline s32 claim_in_word(u64 candidates, u32 word, u32 near, u32 want,
					 const struct cpumask *idle_cores)
{
	u32 try;

	if (!candidates)
		return -1;
	bpf_for(try, 0, 64) {
		u64 above = candidates & (~0ULL << (near & 63));
		bool claimed;
		u32 cpu;

		if (!candidates)
			break;
		cpu = (word << 6) + ctzll(above ? above : candidates);
		/* Else the compiler takes cpu >> 6 for @word, whose bounds the verifier
		 * forgets in this loop. */
		__sink(cpu);
		if (want == WANT_BG || want == WANT_BG_APART)
			claimed = claim_bg_cpu(cpu);
		else
			claimed = (want != WANT_IDLE_CORE || bpf_cpumask_test_cpu(cpu, idle_cores)) &&
				  scx_bpf_test_and_clear_cpu_idle(cpu);
		if (claimed)
			return cpu;
		candidates &= ~(1ULL << (cpu & 63));
	}
	return -1;
}

/* Claim what is wanted in the nearest of the levels @from to @to. */
__once s32 claim(struct task_struct *p __arg_trusted, u32 near, u32 want, u32 from, u32 to)
{
	const struct cpumask *idle_cores = scx_bpf_get_idle_smtmask();
	u32 level, i, word;
	s32 found = -1;

	bpf_for(level, from, to + 1) {
		if (!level_exists(level))
			continue;
		bpf_for(i, 0, nr_cpu_words) {
			u64 candidates;

			word = (near >> 6) + i;
			if (word >= nr_cpu_words)
				word -= nr_cpu_words;
			candidates = wanted_word(want, word) & domain_word(near, level, word);
			if (candidates)
				candidates &= allowed_word(p, word & (UFS_CPU_WORDS - 1));
			found = claim_in_word(candidates, word, near, want, idle_cores);
			if (found >= 0)
				break;
		}
		if (found >= 0)
			break;
	}
	scx_bpf_put_idle_cpumask(idle_cores);
	return found;
}

/* Steps a to c of the order, within some levels. *@idle: what was claimed is. */
static __always_inline s32 claim_apart(struct task_struct *p, u32 near, bool ts, u32 from, u32 to,
				       bool *idle)
{
	s32 cpu = -1;

	*idle = true;
	if (idle_cpu_for(p)) {
		cpu = claim(p, near, WANT_IDLE_CORE, from, to);
		if (cpu < 0 && has_threads)
			cpu = claim(p, near, WANT_IDLE_APART, from, to);
	}
	if (cpu < 0 && ts) {
		*idle = false;
		cpu = claim(p, near, WANT_BG_APART, from, to);
	}
	return cpu;
}

/* The whole order, or what of it is not beside time-sensitive work. -1: none. */
__once s32 claim_in_order(struct task_struct *p __arg_trusted, u32 near, bool ts, bool apart,
			      bool *idle __arg_nonnull)
{
	s32 cpu = claim_apart(p, near, ts, LEVEL_LLC, LEVEL_NODE, idle);

	if (cpu < 0 && has_nodes)
		cpu = claim_apart(p, near, ts, LEVEL_MACHINE, LEVEL_MACHINE, idle);
	if (!has_threads)
		return cpu;
	if (cpu < 0 && !apart) {
		*idle = true;
		if (idle_cpu_for(p))
			cpu = claim(p, near, WANT_IDLE, LEVEL_LLC, LEVEL_MACHINE);
		if (cpu < 0 && ts) {
			*idle = false;
			cpu = claim(p, near, WANT_BG, LEVEL_LLC, LEVEL_MACHINE);
		}
	}
	if (cpu >= 0 && ts) {
		if (in_ts_core(cpu))
			stat_inc(UFS_TS_SHARED_CORE);
		else
			mark_core(cpu, true);
	}
	return cpu;
}

__once s32 claim_any_bg_cpu(struct task_struct *p __arg_trusted, u32 near)
{
	u32 first = near >> 6, i, word;
	s32 cpu;

	if (nr_cpu_words == 1)
		return claim_in_word(wanted_word(WANT_BG, 0) & allowed_word(p, 0), 0, near, WANT_BG,
				     NULL);
	bpf_for(i, 0, nr_cpu_words) {
		word = first + i < nr_cpu_words ? first + i : first + i - nr_cpu_words;
		cpu = claim_in_word(wanted_word(WANT_BG, word) &
					    allowed_word(p, word & (UFS_CPU_WORDS - 1)),
				    word, near, WANT_BG, NULL);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* Claim the idle CPU of a task that may run nowhere else. select_cpu is not called for it,
 * so it is not in a local queue yet. Who only kicks the CPU pays for an interrupt, and
 * the CPU for dispatch. */
static __always_inline bool claim_only_cpu(struct task_struct *p, u32 cpu)
{
	return !may_move(p) && is_idle_cpu(cpu) && scx_bpf_test_and_clear_cpu_idle(cpu);
}

/* A CPU for @p, which has slept. *@idle: it is idle, else it runs background work
 * and @p is time-sensitive. -1: none. */
static __always_inline s32 claim_for_wakeup(struct task_struct *p, s32 prev, u64 wake_flags,
					    bool ts, bool *idle)
{
	s32 cpu;

	if (shaped)
		return claim_in_order(p, prev, ts, false, idle);
	/* The kernel's own first choice where a core has one thread, without its search. */
	*idle = is_idle_cpu(prev) && allowed_on(p, prev & (UFS_CPUS_MAX - 1)) &&
		scx_bpf_test_and_clear_cpu_idle(prev);
	if (*idle)
		return prev;
	if (idle_cpu_for(p)) {
		/* Without WAKE_SYNC: it would stack the task on its waker's CPU. */
		cpu = scx_bpf_select_cpu_dfl(p, prev, wake_flags & ~SCX_WAKE_SYNC, idle);
		if (*idle)
			return cpu;
	}
	return ts ? claim_any_bg_cpu(p, prev) : -1;
}

/* An idle CPU for @p, by the kernel's choice; -1: none. */
static __always_inline s32 pick_idle_cpu(struct task_struct *p)
{
	s32 cpu;

	if (!idle_cpu_for(p))
		return -1;
	/* Timers ask, too, and to the verifier theirs is a program that sleeps, in
	 * which the mask may go. */
	bpf_rcu_read_lock();
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	bpf_rcu_read_unlock();
	return cpu;
}

/* A CPU for @p, which has been put into a queue on @near, or is about to be. */
static __always_inline s32 claim_for_queued(struct task_struct *p, u32 near, bool ts, bool *idle)
{
	s32 cpu;

	if (shaped)
		return claim_in_order(p, near, ts, false, idle);
	*idle = true;
	cpu = pick_idle_cpu(p);
	if (cpu >= 0 || !ts)
		return cpu;
	*idle = false;
	return claim_any_bg_cpu(p, near);
}

/* Whether @p, alone on @cpu, should move apart. A hint: move_apart() claims. */
__once bool wants_apart(struct task_struct *p __arg_trusted, u32 cpu, bool ts)
{
	u32 word;

	if (!has_threads || !shares_core(cpu, ts) || !may_move(p))
		return false;
	bpf_for(word, 0, nr_cpu_words) {
		u64 better = wanted_word(WANT_IDLE_APART, word);

		if (ts)
			better |= wanted_word(WANT_BG_APART, word);
		if (better && (better & allowed_word(p, word & (UFS_CPU_WORDS - 1))))
			return true;
	}
	return false;
}

/* In enqueue with SCX_ENQ_LAST: dispatch found wants_apart(). */
static __always_inline bool move_apart(struct task_struct *p, bool ts, u64 enq_flags)
{
	u32 cpu = scx_bpf_task_cpu(p);
	bool idle = false;
	s32 to;

	if (!has_threads || !shares_core(cpu, ts) || !may_move(p))
		return false;
	to = claim_in_order(p, cpu, ts, true, &idle);
	if (to < 0)
		return false;
	stat_inc(UFS_MOVED_APART);
	/* PREEMPT also to an idle CPU: background work may have got there first. */
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | to, ts ? ts_slice_ns : bg_slice_ns,
			   ts ? enq_flags | SCX_ENQ_PREEMPT : enq_flags);
	return true;
}

#endif
