/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * launcher.c
 *		A background worker that claims slots for processes that run no SQL, and
 *		logs whether the server can use UFS.
 *
 * Once a second:
 *	- opens the table, if it is not open, and reports when that changes;
 *	- gives each special process (kind.c) that does not attach itself a slot in
 *	  its name, with its kind's tier;
 *	- every tenth time, sweeps up slots of the dead (slot.c);
 *	- demotes statements that have used the CPU time of their class (admit.c).
 * When it ends, it gives back the slots in others' names and sweeps once more.
 *
 * The number of a process that has ended may be another program's of the same user.  So
 * it writes into no slot that is not the cluster's, and looks whether the number still is
 * the server's process's before it claims a slot in its name, and afterwards.
 *
 * It waits for nothing but its latch: a daemon that passes the table on is asked,
 * and its answer looked for in the next rounds.
 *
 * It has no database and no slot.  Where it cannot run, say
 * for want of max_worker_processes, sessions are served all the same.
 *
 * WEAKNESS.  A special process is in its cgroup's tier for its first second.
 * Short-lived ones (autovacuum) attach themselves.
 */
#include "postgres.h"

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "giveway.h"

#define ROUND_MS 1000
#define ROUNDS_PER_SWEEP 10
/* A daemon that has not answered for so long is worth a line in the log. */
#define ROUNDS_OF_SILENCE 3

extern PGDLLEXPORT void giveway_launcher_main(Datum arg);

#if PG_VERSION_NUM < 160000
#define pgstat_get_local_beentry_by_index pgstat_fetch_stat_local_beentry
#endif

static bool registered = false;

/* Have the postmaster start the launcher, now and whenever it ends. */
void
launcher_register(void)
{
	BackgroundWorker worker = {0};

	strlcpy(worker.bgw_name, "giveway launcher", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "giveway launcher", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 5;
	strlcpy(worker.bgw_library_name, "giveway", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "giveway_launcher_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
	registered = true;
}

/* Whether this server was started with the launcher, and so with the library. */
bool
launcher_is_registered(void)
{
	return registered;
}

/* Open the table and report a change of what that leads to. */
static bool
open_table(void)
{
	static int	reported = 1;	/* nothing yet */
	static int	rounds_asked = 0;
	int			result = slot_open(settings.dir, NULL);

	rounds_asked = result == -EAGAIN ? rounds_asked + 1 : 0;
	if (result == -EAGAIN && rounds_asked < ROUNDS_OF_SILENCE)
		return false;
	if (result != reported)
	{
		reported = result;
		if (result == 0)
			ereport(LOG,
					(errmsg("giveway: tiers and locks are told in \"%s/%s\"",
							settings.dir, GIVEWAY_TABLE_NAME)));
		else
			ereport(LOG,
					(errmsg("giveway: settings have no effect yet: \"%s/%s\": %s",
							settings.dir, GIVEWAY_TABLE_NAME, strerror(-result)),
					 errhint("%s.", slot_open_remedy(result))));
	}
	return result == 0;
}

/* Report what there is of hints about locks. */
static void
report_hints(void)
{
	static int	reported = -1;
	const char *reason;
	HintsMode	mode = hints_resolve(settings.hints, &reason);

	if (reported == (int) mode)
		return;
	reported = mode;
	if (mode == HINTS_OFF)
		ereport(LOG, (errmsg("giveway: hints about locks are off: %s", reason)));
	else
		ereport(LOG, (errmsg("giveway: hints about locks are given in mode \"%s\"",
							 hints_name(mode))));
}

/* Processes in whose names there are slots; more are left out. */
typedef struct Spoken
{
	int			count;
	int			pids[64];
} Spoken;

static Spoken spoken = {0};

static bool
is_spoken_for(int pid)
{
	for (int i = 0; i < spoken.count; i++)
		if (spoken.pids[i] == pid)
			return true;
	return false;
}

/* Give back the slot in this process's name. */
static void
fall_silent_for(int pid)
{
	struct giveway_slot *slot = slot_find(pid);
	int			owner;

	if (slot && slot_is_of_cluster(slot, &owner))
		slot_release(slot);
}

/* Whether this still is a process of the server that runs no SQL: all of them are of its
 * auxiliary ones. */
static bool
is_still_there(int pid)
{
	return AuxiliaryPidGetProc(pid) != NULL;
}

/* Say this process's tier in its name. */
static void
speak_for(int pid, int tier)
{
	struct giveway_slot *slot;
	int			owner;

	if (spoken.count == lengthof(spoken.pids) || !is_still_there(pid))
		return;
	slot = slot_find(pid);
	if (slot == NULL)
		slot = slot_claim_for(pid);
	if (slot == NULL || !slot_is_of_cluster(slot, &owner))
		return;
	publish_for(slot, tier);
	if (is_still_there(pid))
		spoken.pids[spoken.count++] = pid;
	else
		fall_silent_for(pid);
}

/* Give back the slots in others' names. */
static void
fall_silent(void)
{
	while (spoken.count > 0)
		fall_silent_for(spoken.pids[--spoken.count]);
}

/*
 * Speak for the special processes that do not speak for themselves, and no longer
 * for those of the round before that have ended since: while a server stops, they
 * end before the launcher does.
 */
static void
speak_for_others(void)
{
	Spoken		before = spoken;
	int			count;

	spoken.count = 0;
	pgstat_clear_backend_activity_snapshot();
	count = pgstat_fetch_stat_numbackends();
	for (int i = 1; i <= count; i++)
	{
		const PgBackendStatus *status =
			&pgstat_get_local_beentry_by_index(i)->backendStatus;
		int			kind = kind_of(status->st_backendType);

		if (kind >= 0 && !kind_attaches_itself(kind) &&
			settings.kinds.tier[kind] != KIND_TIER_NONE)
			speak_for(status->st_procpid, settings.kinds.tier[kind]);
	}
	for (int i = 0; i < before.count; i++)
		if (!is_spoken_for(before.pids[i]))
			fall_silent_for(before.pids[i]);
}

void
giveway_launcher_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	for (uint32 round = 0; !ShutdownRequestPending; round++)
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			/* A process that is no longer listed is in its cgroup's tier. */
			fall_silent();
			ProcessConfigFile(PGC_SIGHUP);
		}
		report_hints();
		if (open_table())
		{
			if (round % ROUNDS_PER_SWEEP == 0)
				(void) slot_sweep();
			if (settings.enabled)
				speak_for_others();
		}
		admit_demote();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ROUND_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	/* The checkpointer ends after us, in its cgroup's tier. */
	fall_silent();
	/* A server that is started again is another domain, and sweeps its own. */
	(void) slot_sweep();
	proc_exit(0);
}
