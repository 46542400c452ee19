/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of UFS: options, clocks, CPUs, groups and tasks.
 *
 * CPUs and groups are plain arrays in .bss, indexed by a masked number, because
 * such an access is two or three instructions where a map of any other kind
 * costs a call. A task finds its group by number, never by a cgroup pointer.
 *
 * LINES. A CPU that writes a word takes its cache line from all other CPUs. So words that
 * many CPUs write at every switch begin lines of their own, and words that are read at
 * every switch share a line only with words that are written as rarely as they are. What
 * one callback writes together is in one line. Who writes which line, and how often:
 * docs/design/ufs.md, "Shared words".
 *
 * WEAKNESS: lines are taken to have 64 bytes. Where a CPU fetches them in pairs, pairs are
 * not kept apart.
 */
#ifndef UFS_CTX_H
#define UFS_CTX_H

/* -- Options: constants to the verifier, set by the loader before loading. -- */

const volatile u64 ts_slice_ns = 3000000;
const volatile u64 bg_slice_ns = 10000000;
/* CPU time for which a CPU may owe the clocks: see BATCHES below. */
const volatile u64 clock_batch_ns = 375000;
const volatile u64 preempt_lag_ns = 500000;
/* 0: nobody's slice is extended. */
const volatile u64 extension_ns = 200000;
const volatile u64 floor_deadline_ms = 5000;
const volatile u64 floor_slice_ns = 1000000;
const volatile u64 floor_interval_ns = 20000000;
/* Percent of a CPU that each background task is owed while its tier starves. */
const volatile u64 floor_least = 1;
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_cpu_words = 1;
/* Of the numbers below nr_cpu_ids some may be of CPUs that are not there. */
const volatile u64 online_cpus[UFS_CPU_WORDS];
const volatile u32 default_tier = GIVEWAY_TIER_DEFAULT;
const volatile u32 loader_tgid;
/* Hints: pages of a table, the header included, and bits of a number below that. */
const volatile bool hints_on = true;
const volatile u32 nr_slots = 1;
const volatile u32 slot_bits = 0;
/* Group whose members may rise above their cgroup's tier; -1: none. */
const volatile u32 hint_raise_gid = -1;
/* Not 0: header.scheduler while this program is loaded. */
const volatile u64 load_number = 1;
const volatile u64 boost_slice_ns = 1000000;
const volatile u64 boost_ns = 10000000000;
const volatile bool boost_heavyweight = true;
/* Whether anything is counted but broken invariants. */
const volatile bool stats_on = true;
/* Whether the loader looks for marks, and decides on tiers that change. */
const volatile bool marks_on;
/* Whether cpu.max is enforced: see limit.bpf.h. */
const volatile bool limits_on = true;
/* Indexed by tier. An entry of length 0 ends the list. */
const volatile struct ufs_label labels[2][UFS_LABELS_MAX];

/*
 * VERIFICATION takes most of the time of loading. The verifier follows a __once function
 * once for each callback, with unknown arguments; any other function anew for each
 * state in which a caller reaches it. So functions that are long, have loops, or are
 * called from several places are __once. They take numbers, memory of a context, or a
 * task that the kernel trusts, and cannot be called under a lock. Weak, since the
 * verifier knows less of what such a function returns than the compiler would go by.
 */
#define __once __weak __noinline

/*
 * What is declared so begins a cache line. A variable that needs it has an initial value,
 * since clang lays those out in the order of their definitions, the others in the order in
 * which functions name them: what follows it here then shares its line, and nothing else
 * does. (asserted by tests/layout.rs)
 */
#define __begins_line __attribute__((aligned(64)))

/*
 * 0, which the verifier does not know. It follows a loop anew for each constant that a
 * variable has come to, so one that begins as a constant and counts, or notes the best
 * that was seen, multiplies the work by the number of rounds. One that begins with this
 * is a number like any other from the first round on.
 */
u32 nought __begins_line = 0;
#define unknown_zero() READ_ONCE(nought)

/* -- Dispatch queues. -- */

enum ufs_dsq {
	FLOOR_DSQ = 1,
	BOOST_DSQ = 2,
	THROTTLED_DSQ = 3,		/* of groups that have used up their cpu.max */
	TS_DSQ = 1 << 16,	/* + CPU, in order of virtual runtime */
	BG_DSQ = 1 << 17,	/* + group, in order of virtual runtime */
};

/* Tasks of a queue that a timer looks at. */
#define WALK_MAX 4096

/* -- CPUs. -- */

enum cpu_runs {
	RUNS_OTHER = 0,		/* idle, another scheduling class, or between tasks */
	RUNS_BG,
	RUNS_TS,
};

struct cpu_ctx {
	/* Written under this CPU's rq lock by running, stopping and enqueue. CPUs that look
	 * for one to preempt read the first five. */
	u32 runs;
	u32 claimed;		/* a preempting task is in the local queue already */
	u64 curr_start;
	u64 curr_vtime;		/* at curr_start */
	u64 curr_scale;
	u32 curr_slot;		/* of a time-sensitive task; 0: none */
	u32 runs_boosted;	/* .runs is RUNS_TS for a boosted task */
	u64 extended_until;	/* extend.bpf.h; 0: the task is in no extension */
	u64 looked_at;		/* when dispatch last charged the task and read its slot */
	u64 ts_seen;		/* ts_enq_seq when this CPU last searched the queues */
	u64 floor_began;	/* when its last floor run was dispatched */
	u64 floor_rests;	/* until when it is to serve no other */
	u64 floor_seen;		/* floor_seq when the floor had nothing for this CPU */
	u32 bg_group;		/* background: the group that it is committed to, and */
	u64 bg_left;		/* what is left of the slice charged for that; 0: it is not */
	u32 has_next;		/* a task is in the local queue by next.bpf.h */
	u64 claim_latest;	/* of the task that .claimed is about: see next.bpf.h */
	u32 boost_row;		/* boosted runs since others had the CPU */
	u32 reads_left;		/* that a task which leaves the CPU may cause: reader.bpf.h */
	u32 in_core_ts;		/* counted in core_ts */
	u64 late_ns;		/* CPU time used since it last advanced the clocks */
	u64 ts_late;		/* what it owes ts_clock, and */
	u64 bg_late;		/* bg_clock, for that */
	/* Written by anybody, atomically. */
	u32 ts_waiting __begins_line;
	u32 core_ts;		/* of the core that this CPU is the first of: topology.bpf.h */
} __attribute__((aligned(64)));

struct cpu_ctx cpus[UFS_CPUS_MAX];
struct ufs_cpu_stats cpu_stats[UFS_CPUS_MAX];

/* CPUs that run background work and may be claimed. Set in running, dispatch and tick,
 * cleared when another CPU claims it, or in stopping. */
u64 bg_cpus[UFS_CPU_WORDS] __begins_line;

/* Idle CPUs: a cheap superset of the kernel's mask, which costs a call to ask.
 * A CPU sets its bit in update_idle and then looks for waiting work; enqueue
 * raises a count of waiting tasks and then looks here. One of the two sees the other. */
u64 idle_cpus[UFS_CPU_WORDS] __begins_line;

/* Tasks that were given to a queue and have not run since: a little more than
 * the queues hold, never less (invariant 2 of main.bpf.c). */
u64 ts_waiting __begins_line = 0;
u64 ts_enq_seq = 0;
/* CPUs in whose queue time-sensitive tasks wait, so that nobody looks at all CPUs to find
 * one. It changes when a queue gets its first task or loses its last. A bit can be missing
 * for the moment between the two steps of unmark_queue(): whether a task waits is said by
 * ts_waiting, and who missed the task looks again when ts_enq_seq has changed. */
u64 ts_queues[UFS_CPU_WORDS] __begins_line;
u64 bg_waiting __begins_line = 0;
u64 floor_waiting __begins_line = 0;
u64 floor_seq = 0;
u64 boost_waiting __begins_line = 0;
u64 nr_throttled_tasks __begins_line = 0;
/* CPUs, modulo 64, on which some waiting background task may run: a superset,
 * added to by enqueue and renewed by the timer. A CPU that is not in it need not
 * look at the runnable tree, which it would disturb for others. */
u64 bg_hint __begins_line = 0;

/*
 * The clocks of the tiers: mean virtual runtime, see owners_of().
 *
 * BATCHES. If each CPU advanced them whenever it charges a task, they would be the words
 * that all CPUs write most. So a CPU keeps what it owes the clocks (cpu_ctx.ts_late and
 * .bg_late) until it has used clock_batch_ns of CPU time, in either tier. When it goes
 * idle, it keeps what it owes for an eighth of that at most. So a clock lacks less than
 *
 *	CPUs * clock_batch_ns * its advance for a nanosecond of one CPU
 *
 * of what the charges come to. A batch is an eighth of the shorter slice: to a task that
 * owns a CPU or less the clock is late by an eighth of the task's slice at most. Why
 * clamping and weights hold: docs/design/ufs.md, "Shared words".
 */
u64 ts_clock __begins_line = 0;
u64 bg_clock __begins_line = 0;

/* -- Groups: a cgroup as UFS sees it. -- */

#define HWEIGHT_ONE (1ULL << 24)
/* Fixed point of a scale: virtual nanoseconds for 256 real ones. */
#define SCALE_SHIFT 8
#define SCALE_ONE (1ULL << SCALE_SHIFT)
#define SCALE_MAX (1ULL << 34)

/* Fixed point of a task's weight within its group. */
#define LOAD_SHIFT 10
#define LOAD_ONE (1U << LOAD_SHIFT)

/* What a group is in one tier: its cgroup's tier, or the one to which tasks of
 * the cgroup have been moved by their hint slots. */
struct share {
	u32 load;		/* of the tasks that run or wait: LOAD_ONE for each */
	u32 active;		/* counted in the weights of the ancestors */
	u64 hweight_gen;
	u64 scale;		/* HWEIGHT_ONE / hweight, fixed point */
	u64 idle_since;
} __attribute__((aligned(64)));

struct group {
	u64 cgid;
	u32 parent;		/* group; the root is its own parent */
	u32 tier;		/* of the cgroup */
	u32 label;		/* the tier that its name gives it, or NO_LABEL */
	u32 idle;		/* cpu.idle is 1 */
	u32 weight;
	u32 has_dsq;
	/* By tier, under weight_lock: this group and its children that are active,
	 * and the sum of the weights of those children. */
	u32 nr_active[2];
	u64 child_weight[2];
	struct share in[2];	/* by tier */
	/* Background only. Written by each CPU that queues, takes or charges its tasks. */
	u32 nr_waiting __begins_line;	/* tasks in the group's queue */
	u32 enters;		/* times that a task was given to it */
	u32 queued;		/* in the runnable tree, or just being looked at */
	u32 next_aside;		/* see bg_pick() */
	/* Virtual runtime of the group, and of its tasks. */
	u64 vtime;
	u64 task_clock;
	u64 lag_scale;		/* at which .vtime's distance to the clock counts: reweight.bpf.h */
	char name[UFS_NAME_LEN];
} __attribute__((aligned(64)));

struct group groups[UFS_GROUPS_MAX];
struct ufs_work group_work[UFS_GROUPS_MAX][UFS_SHARDS];
u32 nr_groups = 1;		/* ever used: groups[0] is the root's */
u32 live_groups = 1;
u64 hweight_gen = 1;
/* Incremented after a cgroup was put into another tier, also by the loader. */
u64 tier_moves __begins_line = 0;

/* -- Tasks. -- */

/* Whether a task waits or runs regardless of its tier, from the floor's queue
 * (task_ctx.floor) or boosted (task_ctx.boost). */
enum tier_override {
	OVERRIDE_NONE = 0,
	OVERRIDE_QUEUED,		/* in the queue for it, by its own enqueue */
	OVERRIDE_RUNNING,
	OVERRIDE_MOVED,		/* to that queue, or about to be, by another CPU */
};

/* Where a task waits: a kind, and the number of the queue. */
enum waits_in {
	WAITS_NOT = 0,
	WAITS_TS = 1 << 16,	/* + CPU */
	WAITS_BG = 2 << 16,	/* + group */
	/* With one of the above: throttled, and will go there (throttle_queue.bpf.h). */
	WAITS_THROTTLED = 4 << 16,
	WAITS_NEXT = 8 << 16,	/* + CPU: in its local queue (next.bpf.h) */
	WAITS_NUMBER = 0xffff,
};

struct task_ctx {
	/* enum waits_in, and above it .stays. One word, since a CPU that moves a waiting
	 * task to another queue races with one that takes it out of its queue. */
	u64 waits;
	u64 vtime;
	u64 vtime_elsewhere;	/* in the other tier, where it may come back to */
	u64 started;
	u64 billed_at;		/* until when its groups' budgets have paid for it */
	/* When it was woken, by bpf_ktime_get_ns(); 0: not waking up. A waker's scx_bpf_now()
	 * may be an old time: when another CPU takes a task from the waker's run queue, or
	 * puts one there, the kernel (at least until 7.2) remembers that time as current, and
	 * forgets it only when the waker's CPU next unlocks its run queue. */
	u64 wake_at;
	u32 group;
	u32 tier;
	u32 cgroup_tier;	/* as of moves_seen */
	u32 stays;		/* times that it was given to a queue: tells them apart */
	u32 load;		/* its weight in the group, LOAD_ONE is 100 */
	u32 counted;		/* in the load of the group, and with what */
	u32 idle_found;		/* select_cpu sent it to an idle CPU */
	u32 floor;		/* enum tier_override, as is .boost */
	s64 owed;		/* CPU time that the floor gives it: see floor.bpf.h */
	u32 is_paid;		/* until it is owed none */
	/* Hints: see hints.bpf.h and boost.bpf.h. */
	u32 slot;		/* verified to be its own; 0: none */
	u32 pid;		/* by which that slot's state is known to be its own */
	u64 no_boost_until;	/* it was boosted for too long, in whatever slot */
	u32 boost;
	u32 boost_ran;		/* its latest run was boosted */
	u32 uid;		/* its user when it last looked for a slot */
	u32 table;		/* that user's; UFS_TABLES_MAX: none */
	u32 tables_seen;	/* tables that there were then */
	u64 owner;		/* its name in the table */
	u64 claims_seen;	/* header.claims when it last looked for a slot */
	u64 looked_at;
	u32 looks;		/* since then */
	u64 moves_seen;		/* tier_moves when the cgroup's tier was last looked up */
	/* INHERITANCE in hints.bpf.h. */
	u32 process_slot;		/* the slot of its process's first thread; 0: none */
	u32 inherited;		/* its parent's hint at fork: enum hint */
	u64 process_owner;		/* that thread's name in the table */
	u32 idle_policy;	/* SCHED_IDLE, when .tier was found */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

static __always_inline struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

static __always_inline struct cpu_ctx *cpu_ctx(u32 cpu)
{
	return &cpus[cpu & (UFS_CPUS_MAX - 1)];
}

static __always_inline struct group *group(u32 index)
{
	return &groups[index & (UFS_GROUPS_MAX - 1)];
}

/* Callbacks run with interrupts off, so a plain addition loses nothing. */
static __always_inline struct ufs_cpu_stats *stats(void)
{
	return &cpu_stats[bpf_get_smp_processor_id() & (UFS_CPUS_MAX - 1)];
}

#define stat_inc(name)									\
	do {										\
		if (stats_on)								\
			stats()->count[name]++;						\
	} while (0)

/* An invariant is broken: counted in any case. */
#define note_broken(name) (stats()->count[name]++)

/* Where this CPU counts for a group. Up to UFS_SHARDS CPUs never wait for one
 * another here; more share lines, and add to them atomically. */
static __always_inline struct ufs_work *work_of(u32 index)
{
	return &group_work[index & (UFS_GROUPS_MAX - 1)]
			  [bpf_get_smp_processor_id() & (UFS_SHARDS - 1)];
}

/* The number of the highest bit of @v, which is below 2^63; 0 for 0. Without a branch:
 * the verifier would follow each of 64 ways by itself. */
static __always_inline u32 highest_bit(u64 v)
{
	u32 bit, step;

	bit = ((0xffffffffULL - v) >> 63) << 5;
	v >>= bit;
	step = ((0xffffULL - v) >> 63) << 4;
	v >>= step;
	bit += step;
	step = ((0xffULL - v) >> 63) << 3;
	v >>= step;
	bit += step;
	step = ((0xfULL - v) >> 63) << 2;
	v >>= step;
	bit += step;
	step = ((0x3ULL - v) >> 63) << 1;
	v >>= step;
	bit += step;
	return bit + ((0x1ULL - v) >> 63);
}

/* Where @ns belongs in a histogram with one bucket to an octave. */
static __always_inline u32 coarse_bucket(u64 ns)
{
	u32 bucket = highest_bit(ns);

	return bucket < UFS_HIST_BUCKETS ? bucket : UFS_HIST_BUCKETS - 1;
}

static __always_inline u64 scaled(u64 ns, u64 scale)
{
	return (ns * scale) >> SCALE_SHIFT;
}

/* The 64 CPUs of one word on which @p may run. The first word, all that most
 * machines have, is a plain load; the verifier allows no variable index here. */
static __always_inline u64 allowed_word(struct task_struct *p, u32 word)
{
	u64 bits = 0, mask;

	if (word == 0) {
		bits = p->cpus_ptr->bits[0];
		/* Keeps the compiler from merging this load with the one below. */
		__sink(bits);
		return bits;
	}
	mask = (u64)BPF_CORE_READ(p, cpus_ptr);
	bpf_probe_read_kernel(&bits, sizeof(bits), (void *)(mask + word * 8));
	return bits;
}

static __always_inline bool is_idle_cpu(u32 cpu)
{
	return READ_ONCE(idle_cpus[(cpu >> 6) & (UFS_CPU_WORDS - 1)]) & (1ULL << (cpu & 63));
}

/* Whether it is worth asking the kernel for an idle CPU that @p may use. */
static __always_inline bool idle_cpu_for(struct task_struct *p)
{
	u32 word;

	if (READ_ONCE(idle_cpus[0]) & allowed_word(p, 0))
		return true;
	if (nr_cpu_words == 1)
		return false;
	bpf_for(word, 1, nr_cpu_words) {
		u64 idle = READ_ONCE(idle_cpus[word & (UFS_CPU_WORDS - 1)]);

		if (idle && (idle & allowed_word(p, word & (UFS_CPU_WORDS - 1))))
			return true;
	}
	return false;
}

static __always_inline bool allowed_on(struct task_struct *p, u32 cpu)
{
	return allowed_word(p, cpu >> 6) & (1ULL << (cpu & 63));
}

static __always_inline bool bg_work_for(u32 cpu)
{
	return READ_ONCE(bg_waiting) && (READ_ONCE(bg_hint) & (1ULL << (cpu & 63)));
}

/* The key of the first task in a queue that is in order of virtual runtime. */
static __always_inline bool queue_first(u64 dsq, u64 *vtime)
{
	struct task_struct *head = __COMPAT_scx_bpf_dsq_peek(dsq);
	u64 key;

	if (!head)
		return false;
	key = head->scx.dsq_vtime;
	__sink(key);
	*vtime = key;
	return true;
}

/* Take one off a count, which must include that one. */
#define count_down(count)								\
	do {										\
		if (unlikely(__sync_fetch_and_sub(count, 1) == 0))			\
			note_broken(UFS_BROKEN_COUNT);					\
	} while (0)

/* The queue of @cpu has a task. */
static __always_inline void mark_queue(u32 cpu)
{
	__sync_fetch_and_or(&ts_queues[(cpu >> 6) & (UFS_CPU_WORDS - 1)], 1ULL << (cpu & 63));
}

/* It has none, unless one has been added meanwhile. */
static __always_inline void unmark_queue(u32 cpu)
{
	__sync_fetch_and_and(&ts_queues[(cpu >> 6) & (UFS_CPU_WORDS - 1)], ~(1ULL << (cpu & 63)));
	if (READ_ONCE(cpu_ctx(cpu)->ts_waiting))
		mark_queue(cpu);
}

/* One task more in the queue that @waits names. */
static __always_inline void count_waiting(u32 waits)
{
	if (waits & WAITS_THROTTLED) {
		__sync_fetch_and_add(&nr_throttled_tasks, 1);
	} else if (waits & WAITS_TS) {
		if (__sync_fetch_and_add(&cpu_ctx(waits)->ts_waiting, 1) == 0)
			mark_queue(waits & (UFS_CPUS_MAX - 1));
		__sync_fetch_and_add(&ts_enq_seq, 1);
		__sync_fetch_and_add(&ts_waiting, 1);
	} else if (waits & WAITS_BG) {
		__sync_fetch_and_add(&bg_waiting, 1);
		__sync_fetch_and_add(&group(waits)->nr_waiting, 1);
	} else {
		cpu_ctx(waits)->has_next = 1;
	}
}

/* In enqueue: the task will wait in this queue. */
static __always_inline void enter_queue(struct task_ctx *tc, u32 waits)
{
	/* First: who sees that it waits may take it off the count. */
	count_waiting(waits);
	WRITE_ONCE(tc->waits, (u64)++tc->stays << 32 | waits);
}

static __always_inline void uncount_waiting(u32 waits)
{
	if (waits & WAITS_THROTTLED) {
		count_down(&nr_throttled_tasks);
	} else if (waits & WAITS_TS) {
		count_down(&cpu_ctx(waits)->ts_waiting);
		if (!READ_ONCE(cpu_ctx(waits)->ts_waiting))
			unmark_queue(waits & (UFS_CPUS_MAX - 1));
		count_down(&ts_waiting);
	} else if (waits & WAITS_BG) {
		count_down(&group(waits)->nr_waiting);
		count_down(&bg_waiting);
	} else if (waits & WAITS_NEXT) {
		cpu_ctx(waits)->has_next = 0;
	}
}

/*
 * A CPU that moves a waiting task to the floor's or the boosted queue races with a CPU
 * that takes it out of its queue. So @mark, its .floor or .boost, changes by atomic
 * exchanges only: what is added to @count, the tasks that wait there, is taken off once.
 * A task that waits without being counted would wait for ever.
 */

/* Before another CPU moves a task, and after its look at the queue began. False: the
 * task has been moved already. */
static __always_inline bool begin_move(u32 *mark, u64 *count)
{
	__sync_fetch_and_add(count, 1);
	if (__sync_val_compare_and_swap(mark, OVERRIDE_NONE, OVERRIDE_MOVED) == OVERRIDE_NONE)
		return true;
	__sync_fetch_and_sub(count, 1);
	return false;
}

/* It could not be moved; its own callbacks may have reset the mark already. */
static __always_inline void undo_move(u32 *mark, u64 *count)
{
	if (__sync_val_compare_and_swap(mark, OVERRIDE_MOVED, OVERRIDE_NONE) == OVERRIDE_MOVED)
		__sync_fetch_and_sub(count, 1);
}

/* In the task's own callbacks: set the mark; if it waited, it no longer does. */
static __always_inline void turn_to(u32 *mark, u64 *count, u32 now)
{
	u32 before;

	/* Mostly so. A mark that another CPU sets from here on it undoes itself. */
	if (READ_ONCE(*mark) == now)
		return;
	before = __sync_lock_test_and_set(mark, now);
	if (before == OVERRIDE_QUEUED || before == OVERRIDE_MOVED)
		count_down(count);
}

static __always_inline void leave_queue(struct task_ctx *tc)
{
	/* The exchange: paired with release_throttled(). */
	if (tc->waits)
		uncount_waiting(__sync_lock_test_and_set(&tc->waits, WAITS_NOT));
	turn_to(&tc->floor, &floor_waiting, OVERRIDE_NONE);
	turn_to(&tc->boost, &boost_waiting, OVERRIDE_NONE);
}

#endif
