/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * slot.c
 *		Maps the table, and claims and releases slots.
 *
 * The one file that maps the table.  The client in giveway/hints.h does the
 * mapping and claiming for the calling process; this adds what a cluster of
 * processes needs: names that tell clusters apart, slots on behalf of other
 * processes, and the release of slots of processes that have ended.
 *
 * WHAT IS TRUSTED.  Each user has a table of its own.  Processes of the same user,
 * and root, may write any byte of it at any time.  How many slots there are is known
 * from when the table was mapped, and a slot is ours while its owner word says so;
 * nothing else that is read here decides anything (invariant 4 of giveway.c).
 *
 * NO WAITING.  A server that may not enter the table's directory asks a daemon
 * for it (giveway/hints.h).  Its answer is awaited by looking again: at the end
 * of later transactions, in later rounds of the launcher.
 *
 * ROOM.  Processes that found none are counted in shared memory, once each; the
 * first of them says so in the log.
 *
 * DOMAIN.  LWLocks are addresses in main shared memory, the same in every
 * process of a cluster and meaningless outside it.  A cluster is named by its
 * postmaster: process id, namespace and start time.
 *
 * ON BEHALF.  A process that runs no SQL never calls us, so the launcher
 * claims for it: the owner word is that process's name, and UFS obeys that,
 * whichever process wrote it.
 *
 * SWEEPING.  A process killed by SIGKILL leaves its slot.  UFS clears it when
 * it sees the exit; slot_sweep() does the same where UFS was not there to see.
 * It takes the slot over before wiping it, so that of two sweepers, or of a
 * sweeper and a new process of the same number, one has it at a time:
 *
 *		owner dead -> sweeper (compare and swap); still dead? wipe : give back
 *
 * WEAKNESS.  Locks in dynamic shared memory lie at different addresses in
 * different processes; two of them may get the same number.  Then a holder is
 * boosted for nothing, for as long as a boost may last.
 */
#include "postgres.h"

#include <poll.h>
#include <signal.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include <giveway/hints.h>

#include "giveway.h"

/* How long a statement that needs the daemon's answer waits for it. */
#define ANSWER_MS 50

/* What the cluster's processes count together. */
typedef struct Shared
{
	pg_atomic_uint64 without_room;
} Shared;

/* NULL where the library is not preloaded. */
static Shared *shared = NULL;

static Size
size_of_shared(void)
{
	return sizeof(Shared);
}

static void
initialize_shared(void *memory)
{
	pg_atomic_init_u64(&((Shared *) memory)->without_room, 0);
}

/* In the postmaster, while it loads libraries. */
void
slot_preload(void)
{
	static const SharedPart part = {
		.name = "giveway",
		.size = size_of_shared,
		.initialize = initialize_shared,
		.memory = (void **) &shared,
	};

	shared_ask(&part);
}

/*
 * Map the table in dir, once per process, and another that has taken its place.
 * A process with a slot stays with its table unless it can leave it: leave(), if
 * not NULL, gives up the slot.  Returns 0 or a negative errno; what each means is
 * in giveway/hints.h.  Makes system calls unless it is mapped, none that waits.
 */
int
slot_open(const char *dir, void (*leave) (void))
{
	struct giveway_mapping_ *old = giveway_mapping_;
	struct giveway_mapping_ *found;
	int			result;

	if (old == NULL)
		return giveway_hints_open_nowait(dir);
	if (!slot_is_outdated() || (slot_mine() && leave == NULL))
		return 0;
	result = giveway_map_(0, old, &found);
	if (result < 0 || found == old)
		return result;
	if (slot_mine())
		leave();
	giveway_mapping_ = found;
	giveway_unmap_(old);
	return 0;
}

/* Whether the daemon has been asked for the table and has not answered yet. */
bool
slot_is_asked_for(void)
{
	return giveway_asking_ != 0;
}

/* Wait for that answer, but no longer than ANSWER_MS. */
void
slot_await_answer(void)
{
	struct pollfd answer = {.fd = giveway_asking_ - 1,.events = POLLIN};

	(void) poll(&answer, 1, ANSWER_MS);
}

/* As slot_open(), for a function that an administrator calls: it waits for the answer. */
int
slot_open_awaited(const char *dir)
{
	int			result = slot_open(dir, NULL);

	if (result != -EAGAIN)
		return result;
	slot_await_answer();
	return slot_open(dir, NULL);
}

/* The table's header, or NULL if it is not mapped. */
const struct giveway_header *
slot_table(void)
{
	return giveway_mapping_ ? giveway_mapping_->table : NULL;
}

/* Slots are numbered 1 to slot_count() - 1; 0 without a table. */
unsigned int
slot_count(void)
{
	return giveway_mapping_ ? giveway_mapping_->nr_slots : 0;
}

struct giveway_slot *
slot_at(unsigned int index)
{
	Assert(index > 0 && index < slot_count());
	return giveway_slot_at_(giveway_mapping_, index);
}

/* What to do about a failure of slot_open(). */
const char *
slot_open_remedy(int error)
{
	switch (-error)
	{
		case ENOENT:
			return "there is no table yet: load UFS with \"giveway start\"";
		case EACCES:
		case EPERM:
			return "the server's user has no table: load UFS with \"giveway start\", or add the user to the group \"giveway\" (scx_ufs --hint-group)";
		case EAGAIN:
			return "the daemon that passes the table on has not answered: restart it with \"giveway stop\" and \"giveway start\"";
		case EPROTO:
			return "the table is of another version: update Giveway or this extension";
		case ENAMETOOLONG:
			return "giveway.hints_dir is longer than 107 bytes: choose a shorter one";
		default:
			return "the table cannot be mapped";
	}
}

uint64
slot_domain(void)
{
	static uint64 domain = 0;

	if (domain == 0)
		domain = hash_combine64(giveway_owner_of_(PostmasterPid), PgStartTime) | 1;
	return domain;
}

struct giveway_slot *
slot_mine(void)
{
	return giveway_my_slot();
}

/* Whether this process has a slot that no other has taken from it. */
bool
slot_is_held(void)
{
	return giveway_hints_attached();
}

/* This process found no room in the table, or on behalf of another. */
static void
count_without_room(void)
{
	static bool counted = false;

	if (counted)
		return;
	counted = true;
	if (shared == NULL || pg_atomic_fetch_add_u64(&shared->without_room, 1) == 0)
		ereport(LOG,
				(errmsg("giveway: all %u slots of the table are taken: further processes are treated as their cgroup is",
						slot_count() - 1),
				 errdetail("This is said once; giveway_stat_slots counts such processes."),
				 errhint("Load UFS with a larger table: \"giveway start -- --hint-slots N\".")));
}

/* How many processes have found no room since the server was started; -1 where
 * they are not counted. */
int64
slot_without_room(void)
{
	return shared ? (int64) pg_atomic_read_u64(&shared->without_room) : -1;
}

/* As slot says, in our name: a wiped slot, or NULL. */
static struct giveway_slot *
claimed(struct giveway_slot *slot)
{
	if (slot)
		SLOT_STORE(slot->domain, (unsigned long long) slot_domain());
	else if (giveway_mapping_)
		count_without_room();
	return slot;
}

/* A wiped slot for this process, or NULL if the table is not there or full. */
struct giveway_slot *
slot_attach(void)
{
	Assert(IsUnderPostmaster);
	return claimed(giveway_attach_());
}

/* Give up this process's slot; one that another process has taken is left alone. */
void
slot_detach(void)
{
	Assert(slot_mine() == NULL || !hints_are_in(slot_mine()));
	giveway_hints_detach();
}

/* Whether the table says that UFS has put another in its place. */
bool
slot_is_outdated(void)
{
	return giveway_mapping_ && SLOT_LOAD(giveway_mapping_->table->replaced) != 0;
}

/* The name under which pid owns slots; 0 if there is no table.  Makes a system call. */
uint64
slot_name(int pid)
{
	return giveway_mapping_ ? giveway_owner_of_(pid) : 0;
}

/* The slot whose owner has this name, or NULL. */
struct giveway_slot *
slot_named(uint64 name)
{
	return name ? giveway_find_(giveway_mapping_, name) : NULL;
}

/* The slot in which pid is the owner, or NULL. */
struct giveway_slot *
slot_find(int pid)
{
	return slot_named(slot_name(pid));
}

/* A wiped slot in which pid is the owner, or NULL if there is no room. */
struct giveway_slot *
slot_claim_for(int pid)
{
	return claimed(giveway_hints_attach_for(pid));
}

/* Give back a slot, whatever its owner. */
void
slot_release(struct giveway_slot *slot)
{
	giveway_slot_release(slot);
}

/* Whether a process of this cluster has this slot; *pid is that process. */
bool
slot_is_of_cluster(const struct giveway_slot *slot, int *pid)
{
	unsigned long long owner = SLOT_LOAD(slot->owner);

	*pid = (int) (uint32) owner;
	return owner != 0 &&
		SLOT_LOAD(slot->version) == GIVEWAY_SLOT_VERSION &&
		SLOT_LOAD(slot->domain) == slot_domain();
}

/* A tier as slots have it. */
unsigned char
slot_tier(int tier)
{
	static const unsigned char said[] = {
		[TIER_BACKGROUND] = GIVEWAY_SLOT_TIER_BACKGROUND,
		[TIER_CGROUP] = GIVEWAY_SLOT_TIER_CGROUP,
		[TIER_TIME_SENSITIVE] = GIVEWAY_SLOT_TIER_TIME_SENSITIVE,
	};

	return said[tier];
}

/* Say a tier and a weight in a slot. */
void
slot_say(struct giveway_slot *slot, Claim claim)
{
	SLOT_STORE(slot->weight, (unsigned short) claim.weight);
	SLOT_STORE(slot->tier, slot_tier(claim.tier));
}

/* Whether there is no process of this number. */
static bool
is_gone(int pid)
{
	return pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH);
}

/* Give back the cluster's slots whose owners have ended; returns how many. */
int
slot_sweep(void)
{
	unsigned long long me = giveway_owner_of_(MyProcPid);
	int			swept = 0;

	if (me == 0)
		return 0;
	for (unsigned int index = 1; index < slot_count(); index++)
	{
		struct giveway_slot *slot = slot_at(index);
		unsigned long long owner = SLOT_LOAD(slot->owner);
		int			pid;

		if (!slot_is_of_cluster(slot, &pid) || !is_gone(pid))
			continue;
		if (!__atomic_compare_exchange_n(&slot->owner, &owner, me, false,
										 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		if (!is_gone(pid))
		{
			/* A new process has the number and may have attached: the slot is its. */
			SLOT_STORE(slot->owner, owner);
			continue;
		}
		giveway_slot_release(slot);
		swept++;
	}
	return swept;
}
