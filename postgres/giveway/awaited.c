/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * awaited.c
 *		Does anybody wait for what this session holds?
 *
 * A session that waits for a place (admit.c) asks, since a statement that has one may wait
 * for it.
 *
 * LOCKS.  A process shows which lock it waits for, and this session knows by itself what it
 * holds.  So a look costs a pass over the processes, and a partition of the lock table,
 * shared and for a moment, for each that waits: many that look cost little more than their
 * number.
 *
 * PINS.  A process shows that it waits until nobody else has a page pinned, but not which
 * page.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "giveway.h"

/* The part of a wait event that is its class, and the class of who waits until nobody
 * else has a page pinned.  Versions give that different names. */
#define WAIT_CLASS 0xFF000000U
#define WAIT_FOR_PIN 0x04000000U

/* Which lock this process waits for, and how; false if it does not wait any more. */
static bool
awaits(PGPROC *proc, LOCKTAG *tag, LOCKMODE *mode)
{
	LOCK	   *lock = *(LOCK *volatile *) &proc->waitLock;
	LWLock	   *partition;
	bool		found;

	if (lock == NULL)
		return false;
	/* Perhaps torn, or of another lock by now: that shows with its partition locked. */
	*tag = lock->tag;
	partition = LockHashPartitionLock(LockTagHashCode(tag));
	LWLockAcquire(partition, LW_SHARED);
	found = proc->waitLock == lock && memcmp(tag, &lock->tag, sizeof(*tag)) == 0;
	*mode = proc->waitLockMode;
	LWLockRelease(partition);
	return found;
}

/* Whether this is the lock of this session's transaction by its virtual number, which is no
 * lock until somebody waits for it, and then not in the table of its own. */
static bool
is_own_transaction(const LOCKTAG *tag)
{
	VirtualTransactionId mine;
	LOCKTAG		own;

	GET_VXID_FROM_PGPROC(mine, *MyProc);
	SET_LOCKTAG_VIRTUALTRANSACTION(own, mine);
	return memcmp(tag, &own, sizeof(own)) == 0;
}

/* Whether this session holds the lock in a way that excludes the other. */
static bool
holds_against(const LOCKTAG *tag, LOCKMODE wanted)
{
	if (is_own_transaction(tag))
		return true;
	for (LOCKMODE mode = 1; mode <= MaxLockMode; mode++)
#if PG_VERSION_NUM >= 170000
		if (DoLockModesConflict(mode, wanted) && LockHeldByMe(tag, mode, false))
#else
		if (DoLockModesConflict(mode, wanted) && LockHeldByMe(tag, mode))
#endif
			return true;
	return false;
}

/* Whether another session waits for a lock that this one holds. */
bool
awaited_by_lock(void)
{
	for (int number = 0; number < MaxBackends; number++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[number];
		LOCKTAG		tag;
		LOCKMODE	mode;

		if (proc != MyProc && pg_atomic_read_u64(&proc->waitStart) != 0 &&
			awaits(proc, &tag, &mode) && holds_against(&tag, mode))
			return true;
	}
	return false;
}

/* Whether any process waits until nobody else has a page pinned. */
bool
somebody_awaits_pin(void)
{
	for (int number = 0; number < ProcGlobal->allProcCount; number++)
		if ((ProcGlobal->allProcs[number].wait_event_info & WAIT_CLASS) == WAIT_FOR_PIN)
			return true;
	return false;
}
