/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * hints.c
 *		How does UFS learn which locks a process holds and waits for?
 *
 *	patched		The server publishes what it does in a record that can be moved
 *				(patches/lockhint.patch): we move it into the slot.  The server
 *				never reads it, so bytes that others write there cannot harm it.
 *	stock		The slot's reader says where the server's own list is; UFS reads
 *				it when it takes the process off its CPU (calibrate.c).
 *	off			UFS is told nothing; tiers and weights still hold.
 *	auto		The first of patched and stock that this server can do.
 *
 * Heavyweight locks are in shared memory with all that UFS needs, in every
 * server and both modes; but they are held to the end of a transaction, so a
 * boost can last as long as UFS lets it.  They are behind a setting of their
 * own.
 *
 * The record is moved back before the slot is given up: hints_take_back().
 */
#include "postgres.h"

#include <dlfcn.h>

#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/wait_event.h"

#include "giveway.h"

/* The number of the bit of LWLock.state that says that a process waits; lwlock.c's. */
#if PG_VERSION_NUM >= 180000
#define HAS_WAITERS_BIT	31
#else
#define HAS_WAITERS_BIT	30
#endif

#if PG_VERSION_NUM >= 160000
#define EVENT_SPIN		WAIT_EVENT_SPIN_DELAY
#else
#define EVENT_SPIN		0		/* naps of a spinlock are not reported */
#endif

/* What the patch adds to the server; looked up, for the server may lack it. */
typedef void (*SetLockHintStorage_type) (struct giveway_lock_record *storage);

#define LOCKHINT_VERSION 1

/* The variable that points to the server's record; NULL without the patch. */
static struct giveway_lock_record **
my_lock_hint(void)
{
	static struct giveway_lock_record **variable = NULL;
	static bool looked = false;

	if (!looked)
	{
		variable = dlsym(RTLD_DEFAULT, "MyLockHint");
		if (variable && (*variable)->version != LOCKHINT_VERSION)
			variable = NULL;
		looked = true;
	}
	return variable;
}

static SetLockHintStorage_type
set_storage(void)
{
	static SetLockHintStorage_type function = NULL;

	if (function == NULL && my_lock_hint())
		function = (SetLockHintStorage_type) dlsym(RTLD_DEFAULT, "SetLockHintStorage");
	return function;
}

/* The server's own list, not what it publishes of it. */
static const Calibration *
server_list(void)
{
	return calibrate(my_lock_hint() ? *my_lock_hint() : NULL);
}

/* The mode that asking for this one leads to; *reason if that is off. */
HintsMode
hints_resolve(HintsMode asked, const char **reason)
{
	*reason = NULL;
	if (asked == HINTS_OFF)
	{
		*reason = "giveway.hints is off";
		return HINTS_OFF;
	}
	if (asked != HINTS_STOCK && set_storage())
		return HINTS_PATCHED;
	if (asked == HINTS_PATCHED)
	{
		*reason = "this server is without the lock-hint patch; set giveway.hints to auto";
		return HINTS_OFF;
	}
	*reason = server_list()->doubt;
	return *reason ? HINTS_OFF : HINTS_STOCK;
}

const char *
hints_name(HintsMode mode)
{
	static const char *const names[] = {"off", "stock", "patched", "auto"};

	return names[mode];
}

/*
 * Tell UFS where to read in a process of this cluster, as mode has it.  The
 * addresses are the same in all of them, so this also serves on behalf.
 */
void
hints_describe(struct giveway_reader *reader, HintsMode mode, bool heavyweight)
{
	const Calibration *found = mode == HINTS_STOCK ? server_list() : NULL;
	bool		off = mode == HINTS_OFF;

	SLOT_STORE(reader->lwlock_tranche_off, offsetof(LWLock, tranche));
	SLOT_STORE(reader->lwlock_state_off, offsetof(LWLock, state));
	SLOT_STORE(reader->lwlock_has_waiters_bit, HAS_WAITERS_BIT);
	SLOT_STORE(reader->wait_event_lwlock_class, PG_WAIT_LWLOCK);
	SLOT_STORE(reader->wait_event_lock_class, PG_WAIT_LOCK);
	SLOT_STORE(reader->wait_event_spin, off ? 0 : EVENT_SPIN);
	SLOT_STORE(reader->ev_group_procarray, WAIT_EVENT_PROCARRAY_GROUP_UPDATE);
	SLOT_STORE(reader->ev_group_xact, WAIT_EVENT_XACT_GROUP_UPDATE);
	SLOT_STORE(reader->proc_waitlock_off, offsetof(PGPROC, waitLock));
	SLOT_STORE(reader->lock_proclocks_off, offsetof(LOCK, procLocks));
	SLOT_STORE(reader->proclock_link_off, offsetof(PROCLOCK, lockLink));
	SLOT_STORE(reader->proclock_proc_off, offsetof(PROCLOCK, tag.myProc));
	SLOT_STORE(reader->proc_pid_off, offsetof(PGPROC, pid));

	/* The addresses last: each switches its part on. */
	SLOT_STORE(reader->held_addr, found ? found->held_addr : 0);
	__atomic_store_n(&reader->nheld_addr, found ? found->nheld_addr : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&reader->wait_event_ptr_addr,
					 off ? 0 : (uintptr_t) &my_wait_event_info, __ATOMIC_RELEASE);
	__atomic_store_n(&reader->my_proc_addr,
					 off || !heavyweight ? 0 : (uintptr_t) &MyProc, __ATOMIC_RELEASE);
}

/* Give hints about this process in slot, as mode has it. */
void
hints_apply(struct giveway_slot *slot, HintsMode mode, bool heavyweight)
{
	hints_describe(&slot->reader, mode, heavyweight);
	if (mode == HINTS_PATCHED)
		set_storage() (&slot->locks);
	else
	{
		hints_take_back();
		/* What was said of locks before is no longer kept up. */
		SLOT_STORE(slot->locks.version, 0);
		SLOT_STORE(slot->locks.nheld, 0);
		SLOT_STORE(slot->locks.wait, 0);
		SLOT_STORE(slot->locks.wait_spin, 0);
		SLOT_STORE(slot->locks.spin, 0);
	}
}

/* Whether the server writes its lock record into slot. */
bool
hints_are_in(const struct giveway_slot *slot)
{
	return my_lock_hint() && *my_lock_hint() == &slot->locks;
}

/* Move the server's record out of the slot, if it is there. */
void
hints_take_back(void)
{
	if (set_storage())
		set_storage() (NULL);
}
