/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * giveway_test.c
 *		Locks held for a given amount of CPU time, to show priority inversion.
 *
 * The experiment of paper 000, Section 6.6: a background session takes a lock
 * and computes for a fixed time; an urgent one wants the lock; another urgent
 * one burns the only CPU.  Without hints the second waits for the third.
 *
 *		holder:		SELECT * FROM giveway_test_hold('spin', '{0}', 4);
 *		waiter:		SELECT * FROM giveway_test_hold('spin', '{0}', 0);
 *		burner:		SELECT giveway_test_burn(60);
 *
 * A chain of holders takes several locks in turn: whoever holds 1 and waits for
 * 0 holds up everybody who wants 1.  The work is counted in CPU time of the
 * calling process, so it is the same amount however often it is interrupted;
 * what is reported is time on the clock.
 *
 * Nothing here is fit for production: a spinlock held for a second is against
 * all rules, and after a minute or so of it the server panics, as it should.
 */
#include "postgres.h"

#include <time.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include <giveway/hints.h>

PG_MODULE_MAGIC;

#define LOCKS 16
#define TRANCHE "giveway_test"
/* The first key of our advisory locks: "give". */
#define ADVISORY_CLASS 0x67697665

typedef struct Shared
{
	slock_t		spin[LOCKS];
} Shared;

static Shared *shared;
static LWLockPadded *lwlocks;

static shmem_request_hook_type previous_request;
static shmem_startup_hook_type previous_startup;

extern PGDLLEXPORT void _PG_init(void);

PG_FUNCTION_INFO_V1(giveway_test_hold);
PG_FUNCTION_INFO_V1(giveway_test_burn);
PG_FUNCTION_INFO_V1(giveway_test_cost);
PG_FUNCTION_INFO_V1(giveway_test_reader);
PG_FUNCTION_INFO_V1(giveway_test_holders);
PG_FUNCTION_INFO_V1(giveway_test_stops_at_locks);

static void
request(void)
{
	if (previous_request)
		previous_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)));
	RequestNamedLWLockTranche(TRANCHE, LOCKS);
}

static void
startup(void)
{
	bool		found;

	if (previous_startup)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("giveway_test", sizeof(Shared), &found);
	if (!found)
		for (int i = 0; i < LOCKS; i++)
			SpinLockInit(&shared->spin[i]);
	lwlocks = GetNamedLWLockTranche(TRANCHE);
	LWLockRelease(AddinShmemInitLock);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	previous_request = shmem_request_hook;
	shmem_request_hook = request;
	previous_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}

static double
seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Simple arithmetic for this much CPU time of this process. */
static void
work(double cpu_s, bool interruptible)
{
	double		end = seconds(CLOCK_PROCESS_CPUTIME_ID) + cpu_s;
	volatile uint64 x = 1;

	while (seconds(CLOCK_PROCESS_CPUTIME_ID) < end)
	{
		for (int i = 0; i < 10000; i++)
			x = x * UINT64CONST(6364136223846793005) + 1;
		if (interruptible)
			CHECK_FOR_INTERRUPTS();
	}
}

/* How a kind of lock is taken and released. */
typedef struct LockKind
{
	const char *name;
	bool		interruptible;	/* while it is held */
	void		(*acquire) (int lock);
	void		(*release) (int lock);
} LockKind;

static void
spin_acquire(int lock)
{
	SpinLockAcquire(&shared->spin[lock]);
}

static void
spin_release(int lock)
{
	SpinLockRelease(&shared->spin[lock]);
}

static void
lwlock_acquire(int lock)
{
	LWLockAcquire(&lwlocks[lock].lock, LW_EXCLUSIVE);
}

static void
lwlock_release(int lock)
{
	LWLockRelease(&lwlocks[lock].lock);
}

static void
heavyweight_acquire(int lock)
{
	DirectFunctionCall2(pg_advisory_lock_int4,
						Int32GetDatum(ADVISORY_CLASS), Int32GetDatum(lock));
}

static void
heavyweight_release(int lock)
{
	DirectFunctionCall2(pg_advisory_unlock_int4,
						Int32GetDatum(ADVISORY_CLASS), Int32GetDatum(lock));
}

static const LockKind kinds[] = {
	{"spin", false, spin_acquire, spin_release},
	{"lwlock", false, lwlock_acquire, lwlock_release},
	{"heavyweight", true, heavyweight_acquire, heavyweight_release},
};

static const LockKind *
kind_named(const char *name)
{
	for (int i = 0; i < lengthof(kinds); i++)
		if (strcmp(name, kinds[i].name) == 0)
			return &kinds[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("there is no kind of lock \"%s\"", name),
			 errhint("Use spin, lwlock or heavyweight.")));
}

static void
need_locks(void)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("giveway_test has no locks"),
				 errhint("Name giveway_test in shared_preload_libraries.")));
}

/*
 * giveway_test_hold(kind, locks, cpu_s): take the locks in turn, compute for
 * half of cpu_s after the first and for the rest after the last, release them.
 * Returns how long it took to have them all, and altogether.
 */
Datum
giveway_test_hold(PG_FUNCTION_ARGS)
{
	const LockKind *kind = kind_named(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	double		cpu_s = PG_GETARG_FLOAT8(2);
	double		start = seconds(CLOCK_MONOTONIC);
	double		acquired;
	TupleDesc	desc;
	Datum	   *elements;
	Datum		values[2];
	bool		nulls[2] = {false, false};
	int			count;

	need_locks();
	deconstruct_array(array, INT4OID, sizeof(int32), true, TYPALIGN_INT,
					  &elements, NULL, &count);
	for (int i = 0; i < count; i++)
		if (DatumGetInt32(elements[i]) < 0 || DatumGetInt32(elements[i]) >= LOCKS)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("locks are numbered 0 to %d", LOCKS - 1)));
	if (count < 1 || (kind->acquire == spin_acquire && count > 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d locks of kind \"%s\" cannot be held together", count, kind->name),
				 errhint("Name one lock; of other kinds than spin, one or more.")));
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	for (int i = 0; i < count; i++)
	{
		kind->acquire(DatumGetInt32(elements[i]));
		/* The others of a chain get their first locks meanwhile. */
		if (i == 0 && count > 1)
			work(cpu_s / 2, kind->interruptible);
	}
	acquired = seconds(CLOCK_MONOTONIC);
	work(count > 1 ? cpu_s / 2 : cpu_s, kind->interruptible);
	while (count-- > 0)
		kind->release(DatumGetInt32(elements[count]));

	values[0] = Float8GetDatum(acquired - start);
	values[1] = Float8GetDatum(seconds(CLOCK_MONOTONIC) - start);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/* giveway_test_burn(cpu_s): compute for so long; returns how long it took. */
Datum
giveway_test_burn(PG_FUNCTION_ARGS)
{
	double		start = seconds(CLOCK_MONOTONIC);

	work(PG_GETARG_FLOAT8(0), true);
	PG_RETURN_FLOAT8(seconds(CLOCK_MONOTONIC) - start);
}

/*
 * giveway_test_cost(kind, pairs): take and release a lock that nobody else wants
 * so many times; returns nanoseconds for each time.
 */
Datum
giveway_test_cost(PG_FUNCTION_ARGS)
{
	const LockKind *kind = kind_named(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	int			pairs = PG_GETARG_INT32(1);
	double		start;

	need_locks();
	if (pairs < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the cost of %d pairs is not known", pairs),
				 errhint("Ask for 1 or more.")));
	start = seconds(CLOCK_PROCESS_CPUTIME_ID);
	for (int i = 0; i < pairs; i++)
	{
		kind->acquire(LOCKS - 1);
		kind->release(LOCKS - 1);
	}
	PG_RETURN_FLOAT8((seconds(CLOCK_PROCESS_CPUTIME_ID) - start) * 1e9 / pairs);
}

/* This process's slot, found as UFS finds it. */
static struct giveway_slot *
my_slot(void)
{
	unsigned long long owner = giveway_owner_of_(MyProcPid);

	if (giveway_hints_open(GetConfigOption("giveway.hints_dir", true, false)) < 0)
		return NULL;
	return owner ? giveway_find_(giveway_mapping_, owner) : NULL;
}

/* Whether held[] lists exactly our first n LWLocks, in the modes of below. */
static bool
lists(const struct giveway_held *held, int count, int n)
{
	if (count != n)
		return false;
	for (int i = 0; i < n; i++)
		if (held[i].lock != (uintptr_t) &lwlocks[i].lock ||
			held[i].mode != (i % 2 ? LW_SHARED : LW_EXCLUSIVE))
			return false;
	return true;
}

/*
 * giveway_test_reader(n): hold n LWLocks and say what UFS would see: "stock" or
 * "patched" if it sees them in this mode, and none afterwards; else "none" or
 * "wrong".
 */
Datum
giveway_test_reader(PG_FUNCTION_ARGS)
{
	int			n = PG_GETARG_INT32(0);
	struct giveway_slot *slot = my_slot();
	const struct giveway_reader *reader;
	bool		stock,
				listed;

	need_locks();
	if (n < 0 || n > LOCKS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there are 0 to %d locks", LOCKS)));
	if (slot == NULL)
		PG_RETURN_TEXT_P(cstring_to_text("no slot"));
	reader = &slot->reader;
	stock = reader->nheld_addr != 0;
	if (!stock && slot->locks.version == 0)
		PG_RETURN_TEXT_P(cstring_to_text("none"));

	for (int i = 0; i < n; i++)
		LWLockAcquire(&lwlocks[i].lock, i % 2 ? LW_SHARED : LW_EXCLUSIVE);
	if (stock)
		listed = lists((const struct giveway_held *) (uintptr_t) reader->held_addr,
					   *(const volatile int *) (uintptr_t) reader->nheld_addr, n);
	else
		listed = lists(slot->locks.held, slot->locks.nheld, n);
	for (int i = 0; i < n; i++)
		LWLockRelease(&lwlocks[i].lock);
	if (stock)
		listed &= *(const volatile int *) (uintptr_t) reader->nheld_addr == 0 &&
			reader->wait_event_ptr_addr == (uintptr_t) &my_wait_event_info;
	else
		listed &= slot->locks.nheld == 0;
	PG_RETURN_TEXT_P(cstring_to_text(!listed ? "wrong" : stock ? "stock" : "patched"));
}

/* What is at this offset from that address: how UFS reads. */
#define AT(type, address, offset) (*(type *) ((char *) (address) + (offset)))

/*
 * giveway_test_holders(waiter): who has, or waits for, the heavyweight lock that
 * this process waits for, as UFS finds them; the waiter itself is left out.
 * Null if hints about such locks are off.  Nothing is locked meanwhile.
 */
Datum
giveway_test_holders(PG_FUNCTION_ARGS)
{
	int			waiter = PG_GETARG_INT32(0);
	PGPROC	   *proc = BackendPidGetProc(waiter);
	struct giveway_slot *slot = my_slot();
	const struct giveway_reader *reader = slot ? &slot->reader : NULL;
	char	   *lock,
			   *head;
	Datum		pids[64];
	int			count = 0;

	if (proc == NULL || reader == NULL || reader->my_proc_addr != (uintptr_t) &MyProc)
		PG_RETURN_NULL();
	lock = AT(char *, proc, reader->proc_waitlock_off);
	if (lock == NULL)
		PG_RETURN_NULL();
	head = lock + reader->lock_proclocks_off;
	/* A list's links are {previous, next}, in every version. */
	for (char *link = AT(char *, head, sizeof(void *));
		 link != head && count < lengthof(pids);
		 link = AT(char *, link, sizeof(void *)))
	{
		char	   *proclock = link - reader->proclock_link_off;
		char	   *holder = AT(char *, proclock, reader->proclock_proc_off);
		int			pid = AT(int, holder, reader->proc_pid_off);

		if (pid != waiter)
			pids[count++] = Int32GetDatum(pid);
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(pids, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}

/*
 * giveway_test_stops_at_locks(pid, seconds): keep the table of heavyweight locks locked for
 * so long, and say whether the process has come to wait for it by then.
 */
Datum
giveway_test_stops_at_locks(PG_FUNCTION_ARGS)
{
	PGPROC	   *proc = BackendPidGetProc(PG_GETARG_INT32(0));
	bool		stops;

	if (proc == NULL)
		ereport(ERROR, (errmsg("there is no such process")));
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_EXCLUSIVE);
	pg_usleep((long) (PG_GETARG_FLOAT8(1) * 1e6));
	stops = (proc->wait_event_info & 0xFF000000U) == PG_WAIT_LWLOCK;
	for (int i = NUM_LOCK_PARTITIONS - 1; i >= 0; i--)
		LWLockRelease(LockHashPartitionLockByIndex(i));
	PG_RETURN_BOOL(stops);
}
