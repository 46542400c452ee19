/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * giveway.c
 *		Tells UFS which PostgreSQL processes are urgent, and which locks they hold.
 *
 * THE PROBLEM.  UFS runs background work only on CPU time that time-sensitive
 * work leaves.  Only the database knows the tier of each session, and which
 * background backend holds a lock that an urgent one waits for and so has to run
 * first.  This extension writes both into a table with a slot for each process,
 * which UFS reads (giveway/slot.h): paper 000, Sections 5.2 and 5.3.
 *
 * THE LIFE OF A SLOT
 *
 *		postmaster		calibrates, registers the launcher; never has a slot
 *		   | fork
 *		backend			InitPostgres(): role and database settings
 *		   |			end of its transaction: roles (role.c), ATTACH, publish all
 *		   |			its first statement: ATTACH, if a daemon passes the table on
 *		   |			SET and the like: publish the change (settings.c)
 *		   |			end of a transaction: attach, if it could not before;
 *		   |			attach again, if UFS has made another table, or if
 *		   |			another process has taken the slot
 *		   v
 *		shmem_exit		let nobody else write into it (imposed.c)
 *		proc_exit		take the lock record back, DETACH
 *
 * Every process that runs transactions passes the end of InitPostgres()'s, with
 * its settings applied and its kind known: client backends, parallel workers,
 * WAL senders, autovacuum.  The launcher claims slots for the others.
 *
 * INVARIANTS
 *   1. The postmaster has no slot: its children would share it (asserted in
 *      slot_attach()).
 *   2. Nothing here raises an error or waits, but for bad values of settings,
 *      SQL functions called with the wrong rights, statements of a class that is
 *      full (admit.c), reads of pg_db_role_setting (role.c) and of the tables of
 *      classes (class.c), which wait for those who have locked them against
 *      readers, and the first statement of a process, which waits for the table
 *      for at most 50 ms where a daemon passes it on.  Without UFS, without the
 *      table, or with a full table, the server runs as before (not asserted: an
 *      absence; tests run servers in each of these states).
 *   3. The server's lock record is in the slot only while the slot is attached:
 *      it is moved there after attaching and moved back before detaching
 *      (asserted in slot_detach()).
 *   4. Nothing that is read from the table decides anything in the server but
 *      whether to look for a slot again.  A process that may write the table can
 *      change how UFS treats its processes and what the view shows, and nothing
 *      else (not asserted: an absence; tests write random bytes to the table).
 *
 * DEPARTURES FROM THE PAPER.  The paper's extension moves backends between
 * cgroups made for each tier and weight.  A move takes tens of microseconds to
 * milliseconds and a delegated cgroup tree; a slot takes one store, so SET LOCAL
 * and function-level SET cost nothing, and the server needs no rights.
 *
 * WEAKNESS.  Before the end of InitPostgres() a backend is in its cgroup's tier:
 * a connection storm of background clients starts as the postmaster is placed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/proc.h"

#include "giveway.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static void
at_end_of_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* At the latest: the first transaction has no statement. */
			role_follow();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			break;
		default:
			return;
	}
	/* Nearly always that is all: a few loads. */
	if (!slot_is_held() || slot_is_outdated())
		attach_again();
}

void
_PG_init(void)
{
	settings_define();
	RegisterXactCallback(at_end_of_transaction, NULL);
	if (process_shared_preload_libraries_in_progress)
	{
		const char *doubt;

		/* Found here once, rather than in every child. */
		(void) hints_resolve(HINTS_STOCK, &doubt);
		slot_preload();
		imposed_preload();
		admit_preload();
		role_preload();
		statement_preload();
		launcher_register();
	}
	else
		attach();
}
