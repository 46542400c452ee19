/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * admit.c
 *		Who may run a statement now?
 *
 * A class (class.c) may limit how many of its sessions run statements at a time.  A
 * statement takes a place in its class before it runs, waits in a queue if there is none
 * free, and gives the place back at its end.  statement.c says which statements do so.
 *
 * STATES of a session's place:
 *
 *		NONE --enter, free--------------------> RUNS --leave, or taken back--> NONE
 *		  \--enter, full--> WAITS --granted----/
 *		                      \--cancelled, timed out, terminated--> NONE
 *
 * PROTOCOL.  Shared memory has an entry for each class that is in use, and a place for
 * each process.  The entry's lightweight lock guards the entry and the places in it.
 *
 *		enter		lock; free and nobody waits: RUNS; else: append, WAITS; unlock
 *		leave		lock; NONE; while free: the first that waits: RUNS, set its latch; unlock
 *		waiting		look at one's place whenever the latch is set, and once a second
 *		full		lock; who has a spare place and waits for its client: NONE; unlock
 *
 * A place is spare if its session has taken it for what its client is about to ask for,
 * such as the run of a statement that was planned.  A session that finds its place taken
 * back enters again.
 *
 * Whoever leaves hands the place over, so that nobody overtakes the queue.  Each that
 * enters, and each that waits once a second, brings the limit of the entry up to date from
 * its own view of the class's row; a raised limit so lets the queue in.  class.c has looked
 * for changes a moment before: what a session that was held up between the two writes
 * holds until the next that enters or looks.
 *
 * NO DEADLOCK.  A statement in the middle of a transaction may hold locks for which those
 * that run wait.  So once a second (first after deadlock_timeout) a waiting session looks
 * whether anybody waits for a lock that it holds (awaited.c), and if so takes a place beyond the
 * limit; column "let_in" counts them.  So does one that may have pinned a page, if anybody
 * waits for a pin: whose it is nobody can tell.  Only a session's outermost statement
 * enters, so no session waits for itself.  No other lock is taken while an entry is locked,
 * but the spinlocks of imposed.c.
 *
 * DEMOTION.  The launcher looks at the CPU time of statements that run, with their
 * parallel workers', once a second, and demotes those that have used what their class
 * allows.  It does so with the entry locked, as does the session that takes it back at
 * the statement's end: no statement is demoted for what one before it has used.
 *
 * ENTRIES are found by database and name of the class.  When all are taken, the one that
 * was not in use for longest is given to another class, with its figures; the number of
 * an entry is remembered by sessions and compared with the name under its lock.
 *
 * INVARIANTS
 *   1. entry->usage.running is the number of places that are RUNS in it, and
 *      entry->usage.waiting that of those in its queue (asserted in parts: neither gets
 *      below zero).
 *   2. A process that ends has no place: it leaves before it gives up its number, whether
 *      by pg_terminate_backend() or by itself.  After SIGKILL the server makes its shared
 *      memory anew (not asserted).
 *
 * WEAKNESSES.  A statement that waits has a snapshot and its tables' weakest locks
 * already: VACUUM keeps what it could see; one that was planned before sees the database
 * as it was when it came.  Sessions that wait for one another other than by locks, say
 * through dblink, are not seen to: queue_timeout ends that.  Two sessions that work
 * together can get beyond the limit by the rule against deadlocks.
 */
#include "postgres.h"

#include <time.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "giveway.h"

/* A waiting session looks around so often. */
#define LOOK_MS 1000
#define NOBODY (-1)

typedef enum State
{
	PLACE_NONE,
	PLACE_WAITS,
	PLACE_RUNS
} State;

/* By the number of its process.  Guarded by the lock of the entry that it is in. */
typedef struct Place
{
	State		state;
	int			pid;
	int			entry;
	int			previous;		/* in the queue, or NOBODY */
	int			next;
	TimestampTz since;			/* when it began to be in this state */
	uint64		cpu_allowed_ns; /* 0: any amount */
	uint64		cpu_began_ns;	/* the process's CPU time when it was let in */
	bool		demoted;
	bool		spare;			/* others may have it while its client is waited for */
	/* The rest has no lock. */
	pg_atomic_uint64 cpu_of_workers_ns; /* of those that have ended */
	int			counted;		/* this worker's pid, once it is in its leader's sum */
} Place;

/* Guarded by its own lock, but for the key. */
typedef struct Entry
{
	/* The key: changed with the directory's lock and this entry's. */
	Oid			database;		/* InvalidOid: not in use */
	ClassUsage	usage;			/* begins with the name of the class */
	int			limit;			/* NO_LIMIT: none */
	int			first;			/* of the queue, or NOBODY */
	int			last;
	TimestampTz used;
} Entry;

/* NULL where the library is not preloaded. */
static Entry *entries = NULL;
static Place *places = NULL;

/* The directory's lock, then one for each entry. */
static LWLockPadded *locks = NULL;

static Size
size_of_entries(void)
{
	return mul_size(settings.max_classes, sizeof(Entry));
}

static int
count_locks(void)
{
	return settings.max_classes + 1;
}

static Size
size_of_places(void)
{
	return mul_size(MaxBackends, sizeof(Place));
}

static void
initialize_places(void *memory)
{
	Place	   *all = memory;

	for (int number = 0; number < MaxBackends; number++)
		pg_atomic_init_u64(&all[number].cpu_of_workers_ns, 0);
}

/* In the postmaster, while it loads libraries. */
void
admit_preload(void)
{
	static const SharedPart classes = {
		.name = "giveway classes",
		.size = size_of_entries,
		.memory = (void **) &entries,
		.tranche = "giveway",
		.lock_count = count_locks,
		.locks = &locks,
	};
	static const SharedPart sessions = {
		.name = "giveway places",
		.size = size_of_places,
		.initialize = initialize_places,
		.memory = (void **) &places,
	};

	shared_ask(&classes);
	shared_ask(&sessions);
}

static LWLock *
lock_of_directory(void)
{
	return &locks[0].lock;
}

static LWLock *
lock_of(int entry)
{
	return &locks[entry + 1].lock;
}

static Place *
place_of(const PGPROC *proc)
{
	ptrdiff_t	number = proc - ProcGlobal->allProcs;

	return places && number >= 0 && number < MaxBackends ? &places[number] : NULL;
}

static PGPROC *
process_of(int place)
{
	return &ProcGlobal->allProcs[place];
}

/* ---- CPU time ---- */

static uint64
clock_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now) != 0)
		return 0;
	return now.tv_sec * UINT64CONST(1000000000) + now.tv_nsec;
}

/* The CPU time of a process of this server; 0 if it has ended. */
static uint64
cpu_of(int pid)
{
	clockid_t	clock;

	return clock_getcpuclockid(pid, &clock) == 0 ? clock_ns(clock) : 0;
}

/* What the statement in this place has used.  With the lock of its entry held. */
static uint64
cpu_used(const PGPROC *proc, Place *place)
{
	uint64		used = cpu_of(place->pid);

	used -= Min(used, place->cpu_began_ns);
	for (int number = 0; number < MaxBackends; number++)
	{
		const PGPROC *worker = process_of(number);
		int			pid = worker->pid;

		if (worker != proc && worker->lockGroupLeader == proc && pid != 0 &&
			places[number].counted != pid)
			used += cpu_of(pid);
	}
	return used + pg_atomic_read_u64(&place->cpu_of_workers_ns);
}

/* This parallel worker ends: its CPU time is added to its leader's statement. */
void
admit_worker_ends(void)
{
	PGPROC	   *leader = MyProc ? MyProc->lockGroupLeader : NULL;
	Place	   *mine = MyProc ? place_of(MyProc) : NULL;

	if (leader == NULL || mine == NULL || mine->counted == MyProcPid)
		return;
	mine->counted = MyProcPid;
	pg_atomic_fetch_add_u64(&place_of(leader)->cpu_of_workers_ns,
							clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

/* ---- entries ---- */

static bool
is_of(const Entry *entry, const NameData *class)
{
	return entry->database == MyDatabaseId && namestrcmp(unconstify(NameData *, class),
														 NameStr(entry->usage.class)) == 0;
}

static int
find(const NameData *class)
{
	for (int number = 0; number < settings.max_classes; number++)
		if (is_of(&entries[number], class))
			return number;
	return NOBODY;
}

/* With the lock of the directory held: the entry that can best be given to another. */
static int
find_unused(void)
{
	int			best = NOBODY;

	for (int number = 0; number < settings.max_classes; number++)
	{
		Entry	   *entry = &entries[number];
		bool		in_use;

		if (!OidIsValid(entry->database))
			return number;
		LWLockAcquire(lock_of(number), LW_SHARED);
		in_use = entry->usage.running > 0 || entry->usage.waiting > 0;
		LWLockRelease(lock_of(number));
		if (!in_use && (best == NOBODY || entry->used < entries[best].used))
			best = number;
	}
	return best;
}

/* With the lock of the directory held: make an entry for the class; NOBODY: no room. */
static int
make(const NameData *class)
{
	for (;;)
	{
		int			number = find_unused();
		Entry	   *entry = &entries[number];
		bool		in_use;

		if (number == NOBODY)
			return NOBODY;
		LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
		/* Its own class may have come back to it meanwhile. */
		in_use = entry->usage.running > 0 || entry->usage.waiting > 0;
		if (!in_use)
		{
			memset(entry, 0, sizeof(*entry));
			entry->database = MyDatabaseId;
			entry->usage.class = *class;
			entry->first = entry->last = NOBODY;
		}
		LWLockRelease(lock_of(number));
		if (!in_use)
			return number;
	}
}

/* Lock the class's entry; NULL if there is no room for one. */
static Entry *
lock_class(const NameData *class, int *number)
{
	static int	remembered = 0;

	for (;;)
	{
		int			made;

		LWLockAcquire(lock_of(remembered), LW_EXCLUSIVE);
		if (is_of(&entries[remembered], class))
		{
			*number = remembered;
			return &entries[remembered];
		}
		LWLockRelease(lock_of(remembered));
		LWLockAcquire(lock_of_directory(), LW_EXCLUSIVE);
		made = find(class);
		if (made == NOBODY)
			made = make(class);
		LWLockRelease(lock_of_directory());
		if (made == NOBODY)
			return NULL;
		remembered = made;
	}
}

static void
say_no_room(void)
{
	static bool said = false;

	if (said)
		return;
	said = true;
	ereport(LOG,
			(errmsg("giveway: all %d classes that can be in use are: statements of others run without a place",
					settings.max_classes),
			 errhint("Raise giveway.max_classes and restart the server.")));
}

/* ---- places ---- */

/* All of these with the lock of the entry held. */

static bool
is_free(const Entry *entry)
{
	return entry->limit == NO_LIMIT || entry->usage.running < entry->limit;
}

static void
set_running(Entry *entry, int number)
{
	places[number].state = PLACE_RUNS;
	places[number].since = entry->used = GetCurrentTimestamp();
	entry->usage.running++;
	entry->usage.admitted++;
}

static void
append(Entry *entry, int number)
{
	Place	   *place = &places[number];

	place->state = PLACE_WAITS;
	place->since = entry->used = GetCurrentTimestamp();
	place->previous = entry->last;
	place->next = NOBODY;
	if (entry->last == NOBODY)
		entry->first = number;
	else
		places[entry->last].next = number;
	entry->last = number;
	entry->usage.waiting++;
}

/* It waits no longer, for whatever reason. */
static void
take_out(Entry *entry, int number)
{
	Place	   *place = &places[number];

	Assert(place->state == PLACE_WAITS && entry->usage.waiting > 0);
	if (place->previous == NOBODY)
		entry->first = place->next;
	else
		places[place->previous].next = place->next;
	if (place->next == NOBODY)
		entry->last = place->previous;
	else
		places[place->next].previous = place->previous;
	entry->usage.waiting--;
	entry->usage.waited_us += Max(0, GetCurrentTimestamp() - place->since);
	place->state = PLACE_NONE;
}

/* It runs no longer. */
static void
stop_running(Entry *entry, int number)
{
	Place	   *place = &places[number];

	Assert(place->state == PLACE_RUNS && entry->usage.running > 0);
	entry->usage.running--;
	place->state = PLACE_NONE;
	if (place->demoted)
		imposed_demote(process_of(number), false);
	place->demoted = false;
}

/* Take the spare places of those that wait for their clients. */
static void
take_back(Entry *entry)
{
	for (int number = 0; number < MaxBackends; number++)
	{
		if (places[number].state != PLACE_RUNS)
			continue;
		/* Paired with the barrier in begin(). */
		pg_read_barrier();
		if (places[number].entry == entry - entries && places[number].spare &&
			process_of(number)->wait_event_info == WAIT_EVENT_CLIENT_READ)
			stop_running(entry, number);
	}
}

/* Let in from the queue whoever has room. */
static void
grant(Entry *entry)
{
	while (entry->first != NOBODY && is_free(entry))
	{
		int			number = entry->first;

		take_out(entry, number);
		set_running(entry, number);
		entry->usage.waited++;
		SetLatch(&process_of(number)->procLatch);
	}
}

/* This is the limit now: let in whoever has room. */
static void
set_limit(Entry *entry, int limit)
{
	entry->limit = limit;
	if (!is_free(entry))
		take_back(entry);
	grant(entry);
}

/* ---- waiting ---- */

static State
state_now(Place *place)
{
	State		state;

	LWLockAcquire(lock_of(place->entry), LW_SHARED);
	state = place->state;
	LWLockRelease(lock_of(place->entry));
	return state;
}

/* Take a place beyond the limit, lest somebody who has one waits for this session. */
static void
let_in(Place *place)
{
	int			number = place - places;
	Entry	   *entry = &entries[place->entry];

	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	if (place->state == PLACE_WAITS)
	{
		take_out(entry, number);
		set_running(entry, number);
		entry->usage.waited++;
		entry->usage.let_in++;
	}
	LWLockRelease(lock_of(place->entry));
}

/* The class has no place in time. */
static void
give_up(Place *place, const Limits *limits)
{
	Entry	   *entry = &entries[place->entry];
	int			number = place - places;
	int			running;
	bool		late;

	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	late = place->state == PLACE_WAITS;
	running = entry->usage.running;
	if (late)
	{
		take_out(entry, number);
		entry->usage.timeouts++;
	}
	LWLockRelease(lock_of(place->entry));
	if (late)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("there was no place in class \"%s\" for " INT64_FORMAT " ms",
						NameStr(limits->class), limits->queue_timeout_ms),
				 errdetail("Its concurrency is %d, and %d statements run.",
						   limits->concurrency, running),
				 errhint("Try again later, or raise concurrency or queue_timeout of the class.")));
}

/* Whether the class is still this session's; its limits are brought up to date. */
static bool
is_still_mine(Place *place, Limits *limits)
{
	const Limits *now = class_limits();

	if (now == NULL || strcmp(NameStr(now->class), NameStr(limits->class)) != 0)
		return false;
	*limits = *now;
	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	set_limit(&entries[place->entry], limits->concurrency);
	LWLockRelease(lock_of(place->entry));
	return true;
}

static uint32
wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("GivewayQueue");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* How long until then; 0 if it is past. */
static long
ms_until(TimestampTz then)
{
	return TimestampDifferenceMilliseconds(GetCurrentTimestamp(), then);
}

/* Wait for a place.  False: the class is not this session's any more. */
static bool
wait_for_place(Place *place, Limits *limits, bool pins)
{
	TimestampTz began = GetCurrentTimestamp();
	TimestampTz look = TimestampTzPlusMilliseconds(began, Min(DeadlockTimeout, LOOK_MS));

	while (state_now(place) == PLACE_WAITS)
	{
		bool		ends = limits->queue_timeout_ms != NO_LIMIT;
		TimestampTz end = ends ?
			TimestampTzPlusMilliseconds(began, limits->queue_timeout_ms) : 0;

		if (ends && ms_until(end) <= 0)
		{
			give_up(place, limits);
			break;
		}
		if (ms_until(look) <= 0)
		{
			if (!is_still_mine(place, limits))
				return false;
			if (awaited_by_lock() || (pins && somebody_awaits_pin()))
				let_in(place);
			look = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LOOK_MS);
			continue;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ends ? Min(ms_until(look), ms_until(end)) : ms_until(look),
						 wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* ---- for statements ---- */

static void
leave_at_exit(int code, Datum arg)
{
	admit_leave();
}

/* Whether this session has a place already, which is spare from now on, or is not. */
static bool
goes_on(Place *place, bool spare)
{
	bool		runs;

	/* Only this process makes it anything else than PLACE_NONE. */
	if (place->state == PLACE_NONE)
		return false;
	/* Should it be taken back at this moment, what comes next finds out. */
	if (spare && place->spare)
		return true;
	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	runs = place->state == PLACE_RUNS;
	place->spare = spare;
	LWLockRelease(lock_of(place->entry));
	return runs;
}

/* Take a place or begin to wait for one; false if there is no room for the class. */
static bool
begin(Place *place, const Limits *limits, bool spare)
{
	int			number = place - places;
	Entry	   *entry = lock_class(&limits->class, &place->entry);

	if (entry == NULL)
		return false;
	place->pid = MyProcPid;
	place->demoted = false;
	place->spare = spare;
	place->cpu_allowed_ns = 0;
	set_limit(entry, limits->concurrency);
	/* Who looks at places of this entry sees it in the place before its state. */
	pg_write_barrier();
	if (entry->usage.waiting == 0 && is_free(entry))
		set_running(entry, number);
	else
		append(entry, number);
	LWLockRelease(lock_of(place->entry));
	return true;
}

/* From now on the statement's CPU time counts. */
static void
count_cpu(Place *place, uint64 allowed_ns)
{
	uint64		began = allowed_ns ? clock_ns(CLOCK_PROCESS_CPUTIME_ID) : 0;

	if (allowed_ns == 0)
		return;
	pg_atomic_write_u64(&place->cpu_of_workers_ns, 0);
	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	place->cpu_began_ns = began;
	place->cpu_allowed_ns = allowed_ns;
	LWLockRelease(lock_of(place->entry));
}

/* Take a place for a statement of this session, if it is of a class and has none yet.
 * Raises errors, then without a place.  spare: others may have it while this session waits
 * for its client; pins: the session may have pinned a page. */
void
admit_enter(bool spare, bool pins)
{
	static bool exit_is_watched = false;
	Place	   *place = place_of(MyProc);
	const Limits *found;
	Limits		limits;
	bool		settled = false;

	if (place && goes_on(place, spare))
		return;
	if (place && !exit_is_watched)
	{
		before_shmem_exit(leave_at_exit, 0);
		exit_is_watched = true;
	}
	while (place && !settled && (found = class_limits()) != NULL)
	{
		limits = *found;
		if (!begin(place, &limits, spare))
		{
			say_no_room();
			return;
		}
		PG_TRY();
		{
			settled = wait_for_place(place, &limits, pins);
			if (settled)
				count_cpu(place, limits.demote_after_ns);
		}
		PG_CATCH();
		{
			admit_leave();
			PG_RE_THROW();
		}
		PG_END_TRY();
		if (!settled)
			admit_leave();
	}
}

/* Give this session's place back, or leave the queue; nothing without either. */
void
admit_leave(void)
{
	Place	   *place = MyProc ? place_of(MyProc) : NULL;
	Entry	   *entry;

	/* Only this process makes it anything else than PLACE_NONE. */
	if (place == NULL || place->state == PLACE_NONE)
		return;
	entry = &entries[place->entry];
	LWLockAcquire(lock_of(place->entry), LW_EXCLUSIVE);
	if (place->state == PLACE_WAITS)
	{
		take_out(entry, place - places);
		entry->usage.cancelled++;
	}
	else if (place->state == PLACE_RUNS)
		stop_running(entry, place - places);
	grant(entry);
	LWLockRelease(lock_of(place->entry));
}

/* ---- for the launcher ---- */

static void
demote_in(int number)
{
	Entry	   *entry = &entries[number];

	LWLockAcquire(lock_of(number), LW_EXCLUSIVE);
	for (int at = 0; entry->usage.running > 0 && at < MaxBackends; at++)
	{
		Place	   *place = &places[at];
		PGPROC	   *proc = process_of(at);

		if (place->state != PLACE_RUNS)
			continue;
		/* Paired with the barrier in begin(). */
		pg_read_barrier();
		if (place->entry != number || place->demoted || place->cpu_allowed_ns == 0 ||
			cpu_used(proc, place) < place->cpu_allowed_ns)
			continue;
		place->demoted = true;
		entry->usage.demotions++;
		imposed_demote(proc, true);
	}
	LWLockRelease(lock_of(number));
}

/* Demote the statements that have used the CPU time of their class. */
void
admit_demote(void)
{
	for (int number = 0; entries && number < settings.max_classes; number++)
		if (OidIsValid(entries[number].database))
			demote_in(number);
}

/* ---- for views ---- */

/* Entries are numbered from 0 to admit_class_count() - 1. */
int
admit_class_count(void)
{
	return entries ? settings.max_classes : 0;
}

/* The figures of a class of this database; false if this number is none's. */
bool
admit_class_at(int number, ClassUsage *usage)
{
	Oid			database;

	LWLockAcquire(lock_of(number), LW_SHARED);
	database = entries[number].database;
	*usage = entries[number].usage;
	LWLockRelease(lock_of(number));
	return database == MyDatabaseId;
}

/* Places are numbered from 0 to admit_place_count() - 1. */
int
admit_place_count(void)
{
	return places ? MaxBackends : 0;
}

/* Who has the place of this number or waits for it; false: nobody. */
bool
admit_place_at(int number, PlaceUsage *usage)
{
	int			entry = places[number].entry;
	Place		place;

	LWLockAcquire(lock_of(entry), LW_SHARED);
	place = places[number];
	usage->class = entries[entry].usage.class;
	LWLockRelease(lock_of(entry));
	usage->pid = place.pid;
	usage->waits = place.state == PLACE_WAITS;
	usage->since = place.since;
	usage->demoted = place.demoted;
	return place.entry == entry && place.state != PLACE_NONE;
}
