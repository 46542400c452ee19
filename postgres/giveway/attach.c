/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * attach.c
 *		When does a process look for a slot?
 *
 *		end of the first transaction, that of InitPostgres()	it asks for the table
 *		its first statement			the daemon's answer, for which it waits
 *		later statements			the answer, if it has not come: each POLL_MS
 *		end of a transaction		the same; without table or room each RETRY_MS;
 *									after another table or a lost slot each MOVE_MS
 *
 * A process that may enter the table's directory has its slot after the first of these.
 * Others ask a daemon for it, which has no time limit of ours, so only one statement
 * waits, and not for long.
 *
 * At exit a process leaves the slot in two steps: before_exit(), at_exit().
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "giveway.h"

/* Between attempts to attach, where there was no table or no room. */
#define RETRY_MS 10000
/* The same, where the daemon has been asked for the table and may answer soon. */
#define POLL_MS 10
/* Between moves to another table or slot, lest a scribbler keep us busy. */
#define MOVE_MS 1000

static void
leave_slot(void)
{
	hints_take_back();
	imposed_withdraw();
	slot_detach();
}

/*
 * At exit, while this process still is one of the cluster's: nobody else writes into its
 * slot from here on.  Its last locks are released later, under ProcKill(), so their record
 * stays until at_exit().
 */
static void
before_exit(int code, Datum arg)
{
	imposed_withdraw();
}

static void
at_exit(int code, Datum arg)
{
	leave_slot();
}

/* Get a slot, if there is one to be had, and say everything in it. */
void
attach(void)
{
	static bool exit_is_watched = false;

	if (!IsUnderPostmaster || MyProc == NULL)
		return;
	if (slot_mine() && !slot_is_held())
		leave_slot();
	if (slot_open(settings.dir, leave_slot) < 0 || slot_mine() || slot_attach() == NULL)
		return;
	if (!exit_is_watched)
	{
		on_shmem_exit(before_exit, 0);
		on_proc_exit(at_exit, 0);
		exit_is_watched = true;
	}
	role_join();
	publish_tier();
	publish_hints();
}

/* How long to leave it at the latest attempt. */
static int
pause_ms(void)
{
	if (slot_mine())
		return MOVE_MS;
	return slot_is_asked_for() ? POLL_MS : RETRY_MS;
}

/* Attach, unless that was tried a moment ago. */
void
attach_again(void)
{
	static TimestampTz last_attempt = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (last_attempt && !TimestampDifferenceExceeds(last_attempt, now, pause_ms()))
		return;
	last_attempt = now;
	attach();
}

/*
 * Before a statement.  A process asks the daemon for the table when it begins and
 * goes on.  The answer is there a moment later, and nothing else looks for it before
 * the end of the first transaction: that may be all of a report, and is all of a
 * parallel worker.
 */
void
attach_before_statement(void)
{
	static bool waited = false;

	if (!slot_is_asked_for())
		return;
	if (waited)
		attach_again();
	else
	{
		waited = true;
		slot_await_answer();
		attach();
	}
}
