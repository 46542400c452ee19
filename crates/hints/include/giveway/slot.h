/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The hint slot: a thread's hints to the scheduler, in memory that both map.
 *
 * A table of pages, mapped by the clients of one user and read by UFS. Page 0 is the
 * header; each other page is the slot of one thread, which writes its tier,
 * its weight and the locks it holds and waits for with plain stores. Telling
 * costs no system call; UFS looks when the thread is scheduled.
 *
 *	page 0     header: what this table is, and whether anybody reads it
 *	page 1     slot   +0     who: owner, version, tier, weight, domain
 *	  ...             +64    locks: held, awaited
 *	page n            +3584  reader: where the owner's memory says the same
 *	                  +3840  report: what UFS did, written by UFS
 *
 * WHO OWNS A SLOT. A thread is named by its number in its own pid namespace and
 * that namespace: (u64)namespace inode << 32 | tid. Slots are an open-addressed
 * table: a thread's slot is found by probing, see giveway_slot_probe(), which
 * comes to every slot. A thread claims the first free one, so most slots lie
 * within GIVEWAY_SLOT_PROBES steps; header.reach says how many steps the farthest
 * took, and no search goes beyond that.
 *
 *	claim:		reach >= steps; owner 0 -> me (compare and swap); wipe;
 *			version = 1; claims += 1
 *	release:	owner me -> GIVEWAY_OWNER_LEAVING (compare and swap); version = 0;
 *			owner = 0; claims += 1
 *	reclaim:	the same, by UFS or by a program of the same user, when the owner
 *			has exited
 *
 * INVARIANTS (1, 2 and 5 are not asserted as they run, since any program of the user
 * may write any word; src/claim.rs has the protocol checked by a model checker)
 *   1. Only the thread that changed owner from 0 to its name writes the slot, until owner
 *      is changed to GIVEWAY_OWNER_LEAVING; then only whoever did that, until it is 0.
 *   2. version is 0 whenever owner is 0, and while a claim wipes: what a slot
 *      holds counts only while version is GIVEWAY_SLOT_VERSION.
 *   3. UFS obeys a slot for a task only if owner is that task's name, and the
 *      table that of its effective user, as the kernel has them. So no user's hints
 *      apply to another user's thread. (not asserted: it is compared before each use)
 *   4. UFS uses nothing in a slot as an index or as an address in the kernel: it
 *      compares, and reads the owner's memory with calls that may fail. (not asserted:
 *      the verifier rejects the rest)
 *   5. Page 0 is no safer than a slot. A client reads magic, version and nr_slots
 *      once, when it maps the table, compares nr_slots with the size that the
 *      kernel gives, and uses its own copy from then on. What else it reads
 *      there is a hint: any value of it costs time, no more.
 *
 * WEAKNESS. A table is one mapping: each program of the user may write every slot in
 * it, as it may signal the user's processes. Raising above a cgroup's tier takes more
 * (docs/build/hints.md). reach is never lowered: after a table was nearly full, each search
 * is as long as it was then.
 *
 * This file has no dependency: it serves C, C++ and BPF programs.
 */
#ifndef GIVEWAY_SLOT_H
#define GIVEWAY_SLOT_H

/* "giveway\0", little-endian. */
#define GIVEWAY_TABLE_MAGIC 0x0079617765766967ULL
#define GIVEWAY_TABLE_VERSION 1
#define GIVEWAY_SLOT_VERSION 1
#define GIVEWAY_SLOT_SIZE 4096
/* Steps that every search takes; header.reach says whether to take more. */
#define GIVEWAY_SLOT_PROBES 32
/* Locks recorded as held; what a thread holds beyond them is not known. */
#define GIVEWAY_HELD_MAX 200
/* The name of a table in its directory. */
#define GIVEWAY_TABLE_NAME "giveway_slots"

/* The owner of a slot that somebody is giving back: no thread's name. */
#define GIVEWAY_OWNER_LEAVING (~0ULL)

/* A slot's tier: enum giveway_tier plus one, so that zeroed memory says nothing. */
#define GIVEWAY_SLOT_TIER_CGROUP 0
#define GIVEWAY_SLOT_TIER_BACKGROUND 1
#define GIVEWAY_SLOT_TIER_TIME_SENSITIVE 2

/* Page 0. Clients write claims and reach, and nothing else. */
struct giveway_header {
	unsigned long long magic;
	unsigned int version;
	/* Pages, this one included: slots are 1 to nr_slots - 1. */
	unsigned int nr_slots;
	/* Moved on by every claim and release: UFS looks for owners anew. */
	unsigned long long claims;
	/* Number of the UFS load that reads the table; 0 while none does. */
	unsigned long long scheduler;
	/* Another table has taken this one's place: open again. */
	unsigned int replaced;
	/* The most steps that a claim has taken; below GIVEWAY_SLOT_PROBES it means
	 * that many. */
	unsigned int reach;
};

struct giveway_held {
	unsigned long long lock;
	/* The holder's own; UFS does not look at it. */
	unsigned int mode;
	unsigned int pad;
};

/* Locks are numbers, usually addresses; 0 is none. */
struct giveway_lock_record {
	unsigned int version;
	/* Entries of held[], the latest last. */
	unsigned int nheld;
	/* Waited for asleep. */
	unsigned long long wait;
	/* Waited for by spinning, or in naps between attempts. */
	unsigned long long wait_spin;
	/* A spinlock held, or about to be taken. */
	unsigned long long spin;
	struct giveway_held held[GIVEWAY_HELD_MAX];
};

/*
 * Where PostgreSQL keeps the same facts, for a server that does not record
 * them here: addresses in the owner's memory and offsets in its structures.
 * UFS reads them when the owner leaves a CPU. 0 switches a part off.
 */
struct giveway_reader {
	/* int: how many; then {lock, int mode} of 16 bytes each. */
	unsigned long long nheld_addr;
	unsigned long long held_addr;
	/* Of the pointer to the 32-bit wait event. */
	unsigned long long wait_event_ptr_addr;
	/* In a lightweight lock: u16 tranche, u32 state, and the number of its bit
	 * "has waiters" (30, or 31). */
	unsigned int lwlock_tranche_off;
	unsigned int lwlock_state_off;
	unsigned int lwlock_has_waiters_bit;
	/* Wait events: a class is the top byte, an event all four. */
	unsigned int wait_event_lwlock_class;
	unsigned int wait_event_lock_class;
	unsigned int wait_event_spin;
	unsigned int ev_group_procarray;
	unsigned int ev_group_xact;
	/* Of the pointer to the own PGPROC; then offsets from lock to holders. */
	unsigned long long my_proc_addr;
	unsigned int proc_waitlock_off;
	unsigned int lock_proclocks_off;
	unsigned int proclock_link_off;
	unsigned int proclock_proc_off;
	unsigned int proc_pid_off;
	unsigned int pad;
};

/* Written by UFS and never read by it: what the owner reads here is as true as
 * the user's programs are. Times in nanoseconds. */
struct giveway_report {
	/* CPU time by enum giveway_tier; boosted time counts as background. */
	unsigned long long run_ns[2];
	unsigned long long wakes;
	/* From wake-up to run, summed. */
	unsigned long long wake_ns;
	/* Involuntary context switches. */
	unsigned long long preempted;
	unsigned long long boosts;
	unsigned long long boosted_ns;
	/* Boosts that ended because they had lasted too long. */
	unsigned long long expired;
	/* The lock of the latest boost, and how long after the boost began it was
	 * seen released. */
	unsigned long long last_lock;
	unsigned long long last_boost_ns;
	/* Times the slot asked for a tier that its owner has no right to. */
	unsigned long long refused;
	/* enum giveway_tier as obeyed; weight as obeyed. */
	unsigned int tier;
	unsigned int weight;
};

struct giveway_slot {
	unsigned long long owner;
	unsigned int version;
	unsigned char tier;
	unsigned char max_tier;		/* reserved, 0 */
	unsigned short weight;		/* 0: 100 */
	/* Lock numbers mean something among slots of one domain only. */
	unsigned long long domain;
	unsigned long long wait_kind;	/* reserved, 0 */
	unsigned long long pad0[4];
	struct giveway_lock_record locks;
	unsigned char pad1[288];
	struct giveway_reader reader;
	unsigned char pad2[168];
	struct giveway_report report;
	unsigned char pad3[160];
};

/* The name of thread @tid of the pid namespace with this inode number. */
static inline unsigned long long giveway_owner(unsigned int tid, unsigned int pid_ns)
{
	return (unsigned long long)pid_ns << 32 | tid;
}

/* How many steps a search takes in a table of @nr_slots pages whose header says
 * @reach, whatever it says. */
static inline unsigned int giveway_slot_probes(unsigned int reach, unsigned int nr_slots)
{
	if (reach < GIVEWAY_SLOT_PROBES)
		reach = GIVEWAY_SLOT_PROBES;
	return reach < nr_slots - 1 ? reach : nr_slots - 1;
}

/* The slot to look at in step @probe of a search for this owner's; @nr_slots is
 * at least 2. Steps 0 to nr_slots - 2 come to every slot once. */
static inline unsigned int giveway_slot_probe(unsigned long long owner, unsigned int probe,
					      unsigned int nr_slots)
{
	unsigned int hash = (unsigned int)((owner * 0x9e3779b97f4a7c15ULL) >> 32);

	return (hash % (nr_slots - 1) + probe) % (nr_slots - 1) + 1;
}

#ifdef __cplusplus
#define GIVEWAY_STATIC_ASSERT_(what) static_assert(what, #what)
#else
#define GIVEWAY_STATIC_ASSERT_(what) _Static_assert(what, #what)
#endif
#define GIVEWAY_AT_(type, field, offset) \
	GIVEWAY_STATIC_ASSERT_(__builtin_offsetof(struct type, field) == (offset))

GIVEWAY_AT_(giveway_header, claims, 16);
GIVEWAY_AT_(giveway_header, scheduler, 24);
GIVEWAY_AT_(giveway_header, replaced, 32);
GIVEWAY_AT_(giveway_header, reach, 36);
GIVEWAY_AT_(giveway_slot, version, 8);
GIVEWAY_AT_(giveway_slot, tier, 12);
GIVEWAY_AT_(giveway_slot, weight, 14);
GIVEWAY_AT_(giveway_slot, domain, 16);
GIVEWAY_AT_(giveway_slot, locks, 64);
GIVEWAY_AT_(giveway_lock_record, wait, 8);
GIVEWAY_AT_(giveway_lock_record, spin, 24);
GIVEWAY_AT_(giveway_lock_record, held, 32);
GIVEWAY_AT_(giveway_slot, reader, 3584);
GIVEWAY_AT_(giveway_reader, lwlock_tranche_off, 24);
GIVEWAY_AT_(giveway_reader, my_proc_addr, 56);
GIVEWAY_AT_(giveway_slot, report, 3840);
GIVEWAY_STATIC_ASSERT_(sizeof(struct giveway_held) == 16);
GIVEWAY_STATIC_ASSERT_(sizeof(struct giveway_slot) == GIVEWAY_SLOT_SIZE);

#undef GIVEWAY_AT_
#undef GIVEWAY_STATIC_ASSERT_

#endif
