/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The patch-free reader: which locks a PostgreSQL backend holds and waits for,
 * read from its own memory at the moment when it leaves a CPU.
 *
 * A server without the core patch keeps its lightweight locks in variables of
 * its own and says what it waits for in one word of shared memory. The slot's
 * reader (giveway/slot.h) says where; the extension has found out and checked.
 * A backend can change neither while it is off its CPU, so a look at each
 * departure is enough, and the server runs no instruction more.
 *
 *	holder:	nheld, held[] -> {lock, tranche} of the last few
 *	waiter:	*my_wait_event_info -> an event, which is one of
 *		a lightweight lock	its tranche; the address is not known
 *		group commit		any holder may be the leader
 *		a spinlock		its holder is not known
 *		a heavyweight lock	MyProc -> waitLock -> holders' processes
 *
 * Shared memory is mapped at the same address in every backend of a server, so
 * a waiter can look whether a holder's lock has waiters at all.
 *
 * INVARIANTS
 *   1. Memory is read of the current task only, by a call that may fail; a failed
 *      read means "no lock" and is counted. (asserted in ufs_dispatch:
 *      UFS_BROKEN_SNAPSHOT)
 *   2. What was read is only compared, or looked up in the table. A server that writes
 *      false values gets its own backends boosted wrongly, within the bounds of boosts.
 *      (not asserted: the verifier rejects its use as an address)
 *   3. Every walk has a bound, and none that the table says: UFS_HELD_SEEN locks,
 *      HOLDERS_WALKED holders, each looked up in as many steps as every search takes;
 *      READS_MAX locks of others, none after a read that failed. (not asserted: the
 *      verifier rejects a walk without a bound)
 *
 * WEAKNESSES: a tranche stands for many locks (all buffers'), so a holder of
 * another lock of it that has waiters too may be boosted. A page that is
 * swapped out cannot be read. The holder of a heavyweight lock is not found where only a
 * table that was nearly full has it. A lock that a backend has disowned (asynchronous
 * I/O) has no holder to boost.
 */
#ifndef UFS_READER_H
#define UFS_READER_H

#define HOLDERS_WALKED 8
/* Of other tasks' locks, at one departure. */
#define READS_MAX 64
#define EVENT_CLASS 0xff000000U
#define EVENT_NUMBER 0x0000ffffU

/* What a waiter's event asks of the others. */
enum asks {
	ASKS_NOTHING = 0,
	ASKS_TRANCHE,		/* holders in its tranche */
	ASKS_LEADER,		/* holders of anything */
	ASKS_RESCUE,		/* preempted tasks */
	ASKS_BLOCKERS,		/* the tasks in .blocker */
};

/* Read @what of @size bytes from the current task's memory. */
#define read_user(to, address)								\
	({										\
		long err_ = bpf_probe_read_user((to), sizeof(*(to)),			\
						(void *)(unsigned long)(address));	\
		if (err_)								\
			stat_inc(UFS_READ_FAIL);					\
		err_ == 0;								\
	})

/* Locks that the current task holds, into its state. */
static __noinline int read_held(u32 index)
{
	struct giveway_slot *slot = slot_at(index);
	struct slot_state *state = state_of(index);
	u64 held_addr, nheld_addr;
	u32 tranche_off, first = 0, i;
	u32 n = 0;

	if (!slot)
		return 0;
	nheld_addr = READ_ONCE(slot->reader.nheld_addr);
	held_addr = READ_ONCE(slot->reader.held_addr);
	tranche_off = READ_ONCE(slot->reader.lwlock_tranche_off);
	state->state_off = READ_ONCE(slot->reader.lwlock_state_off);
	state->waiters_bit = READ_ONCE(slot->reader.lwlock_has_waiters_bit);
	if (!read_user(&n, nheld_addr) || n > GIVEWAY_HELD_MAX)
		return 0;
	if (n > UFS_HELD_SEEN)
		first = n - UFS_HELD_SEEN;
	bpf_for(i, 0, UFS_HELD_SEEN) {
		u32 at = i & (UFS_HELD_SEEN - 1);
		u64 lock = 0;
		u16 tranche = 0;

		if (first + i >= n)
			break;
		if (!read_user(&lock, held_addr + (first + i) * sizeof(struct giveway_held)) ||
		    !read_user(&tranche, lock + tranche_off))
			break;
		state->held[at] = lock;
		state->tranche[at] = tranche;
		state->nheld = i + 1;
	}
	return 0;
}

/* The processes that hold the heavyweight lock which the current task waits
 * for, into its state. The list has waiters in it too: they sleep. */
static __noinline int read_blockers(u32 index)
{
	struct giveway_slot *slot = slot_at(index);
	struct slot_state *state = state_of(index);
	u64 proc = 0, lock = 0, link = 0, head, name_space;
	u32 i;

	if (!slot || !boost_heavyweight)
		return 0;
	name_space = READ_ONCE(slot->owner) >> 32;
	if (!read_user(&proc, READ_ONCE(slot->reader.my_proc_addr)) ||
	    !read_user(&lock, proc + READ_ONCE(slot->reader.proc_waitlock_off)) || !lock)
		return 0;
	state->wait = lock;
	head = lock + READ_ONCE(slot->reader.lock_proclocks_off);
	/* A doubly linked list: {prev, next}, the head among them. */
	if (!read_user(&link, head + 8))
		return 0;
	bpf_for(i, 0, HOLDERS_WALKED) {
		u64 holder = 0;
		u32 pid = 0, found;

		if (!link || link == head || state->nblockers >= UFS_BLOCKERS)
			break;
		if (!read_user(&holder, link - READ_ONCE(slot->reader.proclock_link_off) +
						READ_ONCE(slot->reader.proclock_proc_off)) ||
		    !read_user(&pid, holder + READ_ONCE(slot->reader.proc_pid_off)))
			break;
		found = find_slot(table_of(index), giveway_owner(pid, name_space), false);
		if (found && found != index) {
			state->blocker[state->nblockers & (UFS_BLOCKERS - 1)] = found;
			state->nblockers++;
		}
		if (!read_user(&link, link + 8))
			break;
	}
	return 0;
}

/* What the current task waits for, into its state. */
static __noinline int read_event(u32 index)
{
	struct giveway_slot *slot = slot_at(index);
	struct slot_state *state = state_of(index);
	u64 pointer = 0;
	u32 event = 0;

	if (!slot || !read_user(&pointer, READ_ONCE(slot->reader.wait_event_ptr_addr)) ||
	    !read_user(&event, pointer) || !event)
		return 0;
	state->event = event;
	if (event == READ_ONCE(slot->reader.wait_event_spin))
		state->asks = ASKS_RESCUE;
	else if (event == READ_ONCE(slot->reader.ev_group_procarray) ||
		 event == READ_ONCE(slot->reader.ev_group_xact))
		state->asks = ASKS_LEADER;
	else if ((event & EVENT_CLASS) == READ_ONCE(slot->reader.wait_event_lwlock_class))
		state->asks = ASKS_TRANCHE;
	else if ((event & EVENT_CLASS) == READ_ONCE(slot->reader.wait_event_lock_class)) {
		state->asks = ASKS_BLOCKERS;
		read_blockers(index);
	}
	return 0;
}

/* Whether the owner of @index may hold a spinlock that is recorded nowhere. */
static __always_inline bool rescues(u32 index)
{
	struct giveway_slot *slot = slot_at(index);

	return slot && READ_ONCE(slot->reader.wait_event_spin);
}

/* The current task leaves its CPU, and READS_MAX locks of others may be read for it. */
static __always_inline void begin_reads(void)
{
	cpu_ctx(bpf_get_smp_processor_id())->reads_left = READS_MAX;
}

/* Whether @lock of @holder has waiters, as the current task sees it. */
static __always_inline bool has_waiters(struct slot_state *holder, u64 lock)
{
	struct cpu_ctx *cc = cpu_ctx(bpf_get_smp_processor_id());
	u32 word = 0;

	if (!cc->reads_left)
		return false;
	if (!read_user(&word, lock + holder->state_off)) {
		cc->reads_left = 0;
		return false;
	}
	cc->reads_left--;
	return word & (1U << (holder->waiters_bit & 31));
}

#endif
