/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * io.c
 *		When does a background process give way at the disk?
 *
 * With giveway.io_priority on, a process whose slot says background asks for the disk
 * in the idle class (ioprio_set(2)) while it only reads.  A disk whose scheduler heeds
 * classes (mq-deadline, bfq) serves such requests when nobody else asks.
 *
 *		a SELECT, COPY ... TO				idle, from its start or the next FETCH
 *		what these call that changes data	as before, to the end of the statement
 *		a transaction that has written		as before
 *		all else							as before
 *
 * WHY READS ONLY.  Who writes holds locks while it waits for the disk: of the log, of
 * pages, of the file system.  Urgent work would wait with it.
 *
 * INVARIANT.  Outside of the statement that entered it the process has the priority
 * that it had before: statement.c leaves it on every way out, errors included (not
 * asserted: a system call in each statement; tests look after an error).
 *
 * WEAKNESSES.  Who wants a page that a background process is reading waits for that
 * read, on mq-deadline and a busy disk up to 10 s; so this is off unless asked for.  A
 * reader that makes room in the buffers, or takes a number from a sequence, may write in
 * the idle class.  Processes that read for others (io_method = worker of PostgreSQL 18)
 * keep their own priority.  A tier that is set from outside counts from the next
 * statement.  Without a slot there is no tier to go by.
 */
#include "postgres.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "access/xact.h"

#include "giveway.h"

/* linux/ioprio.h, which not every distribution has: of a process, 0 the calling one. */
#define WHO_PROCESS 1
/* The class is above its levels. */
#define CLASS_IDLE (3 << 13)

#define NOT_ENTERED (-1)

/* The priority that this process had before, if it gives way. */
static int	before = NOT_ENTERED;

/* Give way, if this process is to.  True: io_leave() is the caller's to call. */
bool
io_enter(void)
{
	struct giveway_slot *slot;
	int			own;

	if (!settings.io_priority || before != NOT_ENTERED)
		return false;
	slot = slot_mine();
	if (slot == NULL || SLOT_LOAD(slot->tier) != slot_tier(TIER_BACKGROUND) ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	own = syscall(SYS_ioprio_get, WHO_PROCESS, 0);
	if (own < 0 || syscall(SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) < 0)
		return false;
	before = own;
	return true;
}

/* Take back the priority from before; nothing, if that is what it has. */
void
io_leave(void)
{
	if (before == NOT_ENTERED)
		return;
	(void) syscall(SYS_ioprio_set, WHO_PROCESS, 0, before);
	before = NOT_ENTERED;
}
