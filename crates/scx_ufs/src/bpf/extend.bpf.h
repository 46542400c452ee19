/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Extensions: a time-sensitive task that holds a lock runs on for a moment when its slice
 * is over.
 *
 * Boosts (boost.bpf.h) are for background holders. Among equals nobody is to be boosted,
 * but a task that loses its CPU with a spinlock in hand lets all others spin for as long
 * as it waits for its turn: with PostgreSQL, four backends for each CPU and a hot
 * spinlock, most of the machine. Nearly all such locks are held for microseconds, so it
 * is enough to wait for their end.
 *
 *	dispatch: slice over, or interrupted for one that is further behind
 *	  |
 *	  +-- holds no lock -------------------------------> gives way
 *	  |
 *	  +-- holds one --> runs on; every LOOKS-th part of extension_ns a timer calls
 *	                    dispatch, which looks again
 *	                      |
 *	                      +-- holds none ----------------> gives way
 *	                      +-- extension_ns are over -----> gives way, and its place in
 *	                                                       the queue is a lead ahead
 *
 * One that wakes up preempts another without dispatch (placement.bpf.h), unless that one's
 * slot says that it holds a lock: then it waits in the queue, and dispatch is called. To
 * call dispatch in any case would be exact, and costs more: a task that takes a lock after
 * the look and before the interrupt is preempted. (pgbench's select-only, two CPUs: no
 * holder preempted in place of half of them, for 3 % of the throughput.)
 *
 * So a waiting task waits for at most extension_ns longer, and mostly for as long as the
 * lock is held. The time is charged like any other. A task that had to give way with a
 * lock in hand is queued as if it were LEAD slices further behind: mostly it runs next.
 *
 * A program may claim to hold a lock for ever. Extensions and lead then gain it LEAD
 * slices once, since it is charged for all that it uses, and one that is LEAD slices ahead
 * of the others is behind none of them. LEAD is less than AHEAD, or clamping would forgive
 * what it has used.
 *
 * INVARIANTS
 *   1. .extended_until is 0 unless the CPU's current task is in an extension: set in
 *      dispatch and cleared when a task begins a slice or stops, under the rq lock. (not
 *      asserted: a timer that comes late finds 0, or the next extension)
 *   2. No extension lasts for longer than extension_ns and a tick. (not asserted: it is
 *      the timer's doing; a claim measures the waits)
 *
 * DEPARTURE. The paper has none. Linux 7.0 has one that a program asks for by rseq; here
 * the slot says enough.
 *
 * WEAKNESSES: tasks of real-time classes, overdue ones (floor.bpf.h), and one that has
 * claimed the CPU while it was idle, do not wait. Locks that only the reader would find
 * (reader.bpf.h) do not keep one that wakes up waiting, since the look is from another
 * CPU. A task that was woken when it had to wait for an extension of another is served by
 * that CPU, though another might be free a moment earlier.
 */
#ifndef UFS_EXTEND_H
#define UFS_EXTEND_H

/* Looks at the lock in an extension. */
#define LOOKS 4
/* Slices that a task which lost its CPU with a lock in hand is put ahead by. */
#define LEAD 2

struct extension_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, UFS_CPUS_MAX);
	__type(key, u32);
	__type(value, struct extension_timer);
} extension_timers SEC(".maps");

/* Have dispatch look at the CPU's task again. */
static int on_extension_timer(void *map, u32 *key, struct bpf_timer *timer)
{
	if (READ_ONCE(cpu_ctx(*key)->extended_until))
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	return 0;
}

static s32 init_extension_timers(void)
{
	u32 cpu;

	if (!extension_ns)
		return 0;
	bpf_for(cpu, 0, nr_cpu_ids) {
		u32 key = cpu;
		struct extension_timer *entry = bpf_map_lookup_elem(&extension_timers, &key);
		s32 err;

		if (!entry)
			return -ENOENT;
		err = bpf_timer_init(&entry->timer, &extension_timers, CLOCK_MONOTONIC);
		/* There already, if an earlier attachment has made it. */
		if (err && err != -EBUSY)
			return err;
		bpf_timer_set_callback(&entry->timer, on_extension_timer);
	}
	return 0;
}

/* Whether the task left its CPU, or is about to, with a lock in hand. */
static __always_inline bool holds_lock(struct task_ctx *tc)
{
	return tc->slot && (state_of(tc->slot)->nheld || state_of(tc->slot)->spin);
}

/* Let the task on @cpu, which holds a lock, run on. False: its extension is over. */
__once bool extend(u32 cpu, u64 now)
{
	struct cpu_ctx *cc = cpu_ctx(cpu);
	struct extension_timer *entry;

	if (!cc->extended_until) {
		cc->extended_until = now + extension_ns;
		stat_inc(UFS_EXTENDED);
	} else if (!time_before(now, cc->extended_until)) {
		return false;
	}
	entry = bpf_map_lookup_elem(&extension_timers, &cpu);
	return entry && !bpf_timer_start(&entry->timer, extension_ns / LOOKS, 0);
}

/* In dispatch: whether the previous task, time-sensitive, runs on for its lock. */
static __always_inline bool runs_on(struct task_struct *prev, struct task_ctx *tc, u32 cpu)
{
	if (!extension_ns || !holds_lock(tc) || !extend(cpu, tc->started))
		return false;
	cpu_ctx(cpu)->claimed = 0;
	scx_bpf_task_set_slice(prev, extension_ns);
	return true;
}

/* Whether the CPU's time-sensitive task says that it holds a lock. */
static __always_inline bool runs_holder(struct cpu_ctx *cc)
{
	struct giveway_slot *slot;

	if (!extension_ns || likely(!cc->curr_slot))
		return false;
	slot = slot_at(cc->curr_slot);
	return slot && (READ_ONCE(slot->locks.spin) || READ_ONCE(slot->locks.nheld));
}

/* How far ahead of its virtual runtime a task is queued that has lost its CPU. */
static __always_inline u64 lead_of(struct task_ctx *tc, u64 scale)
{
	return extension_ns && unlikely(tc->slot) && holds_lock(tc) ?
		       LEAD * scaled(ts_slice_ns, scale) : 0;
}

#endif
