/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * slot.c
 *		Where the table is, and which slot is whose.
 *
 * The one file that maps the table.  The client in giveway/hints.h does the
 * mapping and claiming for the calling process; this adds what a cluster of
 * processes needs: names that tell clusters apart, slots on behalf of others,
 * and a broom for those of the dead.
 *
 * DOMAIN.  LWLocks are addresses in main shared memory, the same in every
 * process of a cluster and meaningless outside it.  A cluster is named by its
 * postmaster: process id, namespace and start time.
 *
 * ON BEHALF.  A process that runs no SQL never calls us, so the launcher
 * claims for it: the owner word is that process's name, and UFS goes by that,
 * not by who wrote it.
 *
 * THE BROOM.  A process killed by SIGKILL leaves its slot.  UFS clears it when
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

#include <signal.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include <giveway/hints.h>

#include "giveway.h"

/*
 * Map the table in dir, once per process, and again if another has taken its
 * place and this process has no slot in it.  Returns 0 or a negative errno; what
 * each means is in giveway/hints.h.  Makes system calls unless it is mapped.
 */
int
slot_open(const char *dir)
{
	struct giveway_header *old = giveway_table_;
	size_t		old_size = (size_t) slot_count() * GIVEWAY_SLOT_SIZE;
	int			result;

	if (slot_mine() || !slot_is_outdated())
		return giveway_hints_open(dir);
	result = giveway_map_();
	if (giveway_table_ != old)
		munmap(old, old_size);
	return result;
}

/* The table's header, or NULL if it is not mapped. */
const struct giveway_header *
slot_table(void)
{
	return giveway_table_;
}

/*
 * Slots are numbered 1 to slot_count() - 1; 0 without a table.  As the header
 * had it when the table was first looked at: others may write there since.
 */
unsigned int
slot_count(void)
{
	static const struct giveway_header *counted = NULL;
	static unsigned int count = 0;

	if (counted != giveway_table_)
	{
		counted = giveway_table_;
		count = counted->nr_slots;
	}
	return count;
}

struct giveway_slot *
slot_at(unsigned int index)
{
	Assert(index > 0 && index < slot_count());
	return giveway_slot_at_(index);
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
			return "the server may not use the table: add its user to the group that owns it";
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

/* A wiped slot for this process, or NULL if the table is not there or full. */
struct giveway_slot *
slot_attach(void)
{
	struct giveway_slot *slot = giveway_hints_attach();

	if (slot)
		SLOT_STORE(slot->domain, (unsigned long long) slot_domain());
	return slot;
}

void
slot_detach(void)
{
	giveway_hints_detach();
}

/* Whether UFS has put another table in this one's place. */
bool
slot_is_outdated(void)
{
	return giveway_table_ && SLOT_LOAD(giveway_table_->replaced) != 0;
}

/* The slot in which pid is the owner, or NULL. */
struct giveway_slot *
slot_find(int pid)
{
	unsigned long long owner = giveway_table_ ? giveway_owner_of_(pid) : 0;

	if (owner == 0)
		return NULL;
	for (unsigned int probe = 0; probe < GIVEWAY_SLOT_PROBES; probe++)
	{
		struct giveway_slot *slot =
			slot_at(giveway_slot_probe(owner, probe, slot_count()));

		if (SLOT_LOAD(slot->owner) == owner)
			return slot;
	}
	return NULL;
}

/* A wiped slot in which pid is the owner, or NULL if there is no room. */
struct giveway_slot *
slot_claim_for(int pid)
{
	struct giveway_slot *slot = giveway_hints_attach_for(pid);

	if (slot)
		SLOT_STORE(slot->domain, (unsigned long long) slot_domain());
	return slot;
}

/* Give back a slot in whoever's name. */
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

/* Whether there is no process of this number. */
static bool
is_gone(int pid)
{
	return pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH);
}

/* Give back the cluster's slots whose owners are gone; returns how many. */
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
			/* Born since, and perhaps attached: it is its own. */
			SLOT_STORE(slot->owner, owner);
			continue;
		}
		giveway_slot_release(slot);
		swept++;
	}
	return swept;
}
