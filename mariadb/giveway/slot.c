/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hint table in a server of threads: opens it, and gives a thread its slot.
 *
 *	thread			slot
 *	says nothing yet	none: it has its cgroup's tier, as a thread without one
 *	says something		its own, from the first thing said that is not the default
 *	disconnects		given back: a thread that the server keeps is nobody's
 *	ends			UFS clears the slot, or sweep() where UFS is not loaded
 *
 * A thread that UFS finds without a slot has what its process has inherited, not what
 * the thread that created it has (giveway/hints.h). So a thread that a background
 * session makes, of a pool or of InnoDB, is not in the background.
 *
 * NO WAITING. Opening asks a daemon, where the server may not enter the table's
 * directory. Nobody waits for the answer: one thread at a time looks whether it has
 * come, and the others go on without a slot.
 *
 * ROOM. A thread that finds the table full looks again ten seconds later. Every
 * SWEEP_AFTER claims, and when the table is full, slots of threads that have ended
 * are given back.
 *
 * INVARIANTS
 *   1. A slot is written by the thread that owns it; only sweep() and slot_end() touch
 *      others', and these only give them back. (not asserted: any program of the user
 *      may write the table)
 *   2. Nothing that is read from the table decides anything but whether to look for a
 *      slot again. (not asserted: an absence; a test writes noise to it)
 *   3. No function waits: locks are tried, and held for a few system calls. (not
 *      asserted: a test has a daemon that does not answer)
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <giveway/hints.h>

#include "slot.h"

/* Between attempts to open the table; to attach in one that is full. */
#define RETRY_MS 10000
/* The same, where the daemon has been asked and may answer soon. */
#define POLL_MS 10
/* Between a thread's moves to another slot, lest a scribbler keep it busy. */
#define MOVE_MS 1000
#define SWEEP_AFTER 64

static const char *table_dir;
/* What opening returned last. */
static int opened = -EAGAIN;
static long next_open_ms;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
/* Names this server's slots among those of its user. */
static unsigned long long domain;
static unsigned int claims;
static unsigned long long without_room;

/* When the calling thread may look for a slot again. */
static __thread long next_attach_ms;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define STORE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/* ---- The table ---- */

static struct giveway_mapping_ *mapping(void)
{
	return __atomic_load_n(&giveway_mapping_, __ATOMIC_ACQUIRE);
}

static int is_outdated(void)
{
	return mapping() && LOAD(mapping()->table->replaced);
}

/* Map the table, or the one that has taken its place, if it is time to try. */
static void open_table(void)
{
	int before, result = 0;

	if (now_ms() < LOAD(next_open_ms) || pthread_mutex_trylock(&opening))
		return;
	before = opened;
	if (mapping())
		giveway_follow_(0);
	else
		result = giveway_hints_open_nowait(table_dir);
	STORE(opened, result);
	STORE(next_open_ms, now_ms() + (giveway_asking_ ? POLL_MS : RETRY_MS));
	pthread_mutex_unlock(&opening);
	if (before && !result)
		fprintf(stderr, "giveway: tiers are told to UFS\n");
}

void slot_begin(const char *dir)
{
	struct timespec now;

	table_dir = dir;
	clock_gettime(CLOCK_REALTIME, &now);
	domain = (giveway_owner_of_((unsigned int)getpid()) ^
		  (unsigned long long)now.tv_nsec << 20 ^ (unsigned long long)now.tv_sec << 50) |
		 1;
	next_open_ms = 0;
	opened = -EAGAIN;
	open_table();
	/* A daemon that is there has mostly answered before the first session begins. */
	if (opened && !giveway_asking_)
		fprintf(stderr, "giveway: settings have no effect yet: %s\n", slot_trouble());
}

const char *slot_trouble(void)
{
	/* Who asks has perhaps just loaded UFS. */
	if (!mapping())
		open_table();
	switch (-LOAD(opened)) {
	case 0:
		return NULL;
	case ENOENT:
		return "there is no table yet: load UFS with \"giveway start\"";
	case EACCES:
	case EPERM:
		return "the server's user has no table: load UFS with \"giveway start\", or "
		       "add the user to the group \"giveway\" (scx_ufs --hint-group)";
	case EAGAIN:
		return "the daemon that passes the table on has not answered: restart it with "
		       "\"giveway stop\" and \"giveway start\"";
	case EPROTO:
		return "the table is of another version: update Giveway or this plugin";
	case ENAMETOOLONG:
		return "giveway_hints_dir is longer than 107 bytes: choose a shorter one";
	default:
		return "the table cannot be mapped";
	}
}

/* ---- Slots of this server ---- */

/* The owner of a slot that a thread of this server has claimed; else 0. */
static unsigned long long owner_of_ours(const struct giveway_slot *slot)
{
	unsigned long long owner = LOAD(slot->owner);

	return LOAD(slot->version) == GIVEWAY_SLOT_VERSION && LOAD(slot->domain) == domain ?
		       owner :
		       0;
}

/* No thread of this process has that number. */
static int is_gone(unsigned long long owner)
{
	return syscall(SYS_tgkill, getpid(), (pid_t)(unsigned int)owner, 0) < 0 &&
	       errno == ESRCH;
}

/* Give back the slots of threads that have ended, or all. A thread that has just got
 * the number of one that has ended claims that one's slot as its own, and a slot that
 * is given back under it is one that it finds taken from it. */
static void sweep(int all)
{
	struct giveway_mapping_ *table = mapping();

	for (unsigned int i = 1; table && i < table->nr_slots; i++) {
		struct giveway_slot *slot = giveway_slot_at_(table, i);
		unsigned long long owner = owner_of_ours(slot);

		if (owner && (all || is_gone(owner)))
			giveway_give_back_(table, slot, owner);
	}
}

unsigned int slot_count(void)
{
	struct giveway_mapping_ *table = mapping();
	unsigned int count = 0;

	for (unsigned int i = 1; table && i < table->nr_slots; i++)
		count += owner_of_ours(giveway_slot_at_(table, i)) != 0;
	return count;
}

unsigned long long slot_without_room(void)
{
	return LOAD(without_room);
}

void slot_end(void)
{
	int asking = __atomic_exchange_n(&giveway_asking_, 0, __ATOMIC_ACQ_REL);

	sweep(1);
	if (asking)
		close(asking - 1);
	/* It stays mapped: a server that does not unload the library leaves threads with
	 * pointers to their slots. */
	giveway_mapping_ = NULL;
}

/* ---- The calling thread's ---- */

static void attach(void)
{
	struct giveway_slot *slot;

	if (now_ms() < next_attach_ms)
		return;
	if (giveway_my_slot())
		giveway_hints_detach();
	slot = giveway_attach_();
	if (!slot) {
		sweep(0);
		slot = giveway_attach_();
	}
	next_attach_ms = now_ms() + (slot ? MOVE_MS : RETRY_MS);
	if (!slot) {
		if (!__atomic_fetch_add(&without_room, 1, __ATOMIC_RELAXED))
			fprintf(stderr, "giveway: all %u slots of the table are taken: load UFS "
					"with more (giveway start -- --hint-slots N)\n",
				mapping()->nr_slots - 1);
		return;
	}
	GIVEWAY_STORE_(slot->domain, domain);
	if (__atomic_add_fetch(&claims, 1, __ATOMIC_RELAXED) % SWEEP_AFTER == 0)
		sweep(0);
}

void slot_say(struct claim claim)
{
	struct giveway_slot *slot = giveway_my_slot();

	if (!slot && claim.tier == GIVEWAY_SLOT_TIER_CGROUP &&
	    claim.weight == GIVEWAY_WEIGHT_DEFAULT)
		return;
	if (!mapping() || is_outdated())
		open_table();
	if (!mapping())
		return;
	if (!giveway_hints_attached() || giveway_self_mapping_ != mapping())
		attach();
	slot = giveway_my_slot();
	if (!slot || !giveway_hints_attached())
		return;
	if (LOAD(slot->weight) != claim.weight)
		GIVEWAY_STORE_(slot->weight, claim.weight);
	if (LOAD(slot->tier) != claim.tier)
		GIVEWAY_STORE_(slot->tier, claim.tier);
}

void slot_rest(void)
{
	const struct claim rest = {GIVEWAY_SLOT_TIER_CGROUP, GIVEWAY_WEIGHT_DEFAULT};

	if (giveway_my_slot())
		slot_say(rest);
}

void slot_leave(void)
{
	giveway_hints_detach();
	/* The next session on this thread need not wait for its slot. */
	next_attach_ms = 0;
}
