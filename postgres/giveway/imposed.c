/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * imposed.c
 *		What has somebody else imposed on a session?
 *
 * An administrator lowers a running report, or raises a session that users wait for:
 * giveway_set(pid, tier, weight).  The session need not take part, for it may be in the
 * middle of a long statement.  So the caller writes into the session's slot, and into
 * shared memory, so that what the session publishes later keeps to it:
 *
 *		imposed by				the session has
 *		nobody					its own: the lower of what it asks and its ceiling
 *		an ordinary role		the lower of its own and what is imposed
 *		one with the right		what is imposed, its own settings and ceilings regardless
 *
 * The right is that of setting ceilings: SET on giveway.max_tier and giveway.max_weight,
 * which superusers have.  So nobody else can raise anybody.  Whom one may impose something
 * on at all is as in pg_cancel_backend().  What was imposed by right is changed and taken
 * back by right only.  It lasts for as long as the session; it is no part of any
 * transaction.  What was not imposed by right ends with DISCARD ALL, too: a pool's next
 * client finds the session as if it were new.
 *
 * The launcher imposes, too: it demotes a statement that has used the CPU time of its
 * class (admit.c) to background, until the statement ends.  What is imposed by right
 * holds all the same.
 *
 * PROTOCOL.  Shared memory has an entry for each process that may run transactions, by its
 * number among them.  A spinlock guards the entry, and the stores of tier and weight into
 * the slot of its process:
 *
 *		the process		lock; own = ...; slot = combined; published = true; unlock
 *		a caller		lock; still the process? imposed = ...; if published: its slot =
 *						combined; unlock
 *		detaching		lock; published = false; unlock; the slot is given up
 *
 * A caller finds the process by its number among the others, which may be another's at any
 * moment.  So it asks again with the lock held, and finds the slot then.  One that comes
 * later begins its entry anew when it publishes.
 *
 * Parallel workers have what their leader has.  A worker joins the leader's group before
 * it first publishes, and copies the leader's entry then; a caller changes the leader's
 * entry first and those of its workers afterwards.  So a worker that copied too early is
 * seen by the caller.
 *
 * INVARIANTS
 *   1. An entry of another process than .pid says nothing: a process that finds the
 *      number of another one there begins anew (not asserted: it is what combined() is
 *      called after).
 *   2. While .published, the slot is the process's own: it withdraws before it gives the
 *      slot up, at exit while it still has its number (attach.c).  So a caller, who finds the
 *      slot by its owner's name with the lock held, never writes into that of a process
 *      that came later (asserted in imposed_publish()).
 *
 * WEAKNESSES.  Behind a connection pooler what is imposed stays with the server's session,
 * whose client may change, until the pooler sends DISCARD ALL.  Processes that run no
 * transactions, such as the checkpointer, have giveway.system_processes.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "giveway.h"

PG_FUNCTION_INFO_V1(giveway_set);

typedef struct Entry
{
	slock_t		mutex;
	int			pid;			/* whose entry it is; 0: nobody's yet */
	bool		published;		/* the process has a slot that says what is here */
	bool		demoted;		/* its statement has used its CPU time */
	Claim		own;
	Imposed		imposed;
} Entry;

static const Imposed nothing = {.claim = {TIER_NOT_SAID, WEIGHT_NOT_SAID}};

/* By number of the process; NULL where the library is not preloaded. */
static Entry *entries = NULL;

static Size
size_of_entries(void)
{
	return mul_size(MaxBackends, sizeof(Entry));
}

static void
initialize_entries(void *memory)
{
	Entry	   *all = memory;

	for (int number = 0; number < MaxBackends; number++)
		SpinLockInit(&all[number].mutex);
}

/* In the postmaster, while it loads libraries. */
void
imposed_preload(void)
{
	static const SharedPart part = {
		.name = "giveway imposed",
		.size = size_of_entries,
		.initialize = initialize_entries,
		.memory = (void **) &entries,
	};

	shared_ask(&part);
}

/* The entry of this process, or NULL if it can have none. */
static Entry *
entry_of(const PGPROC *proc)
{
	ptrdiff_t	number = proc - ProcGlobal->allProcs;

	return entries && number >= 0 && number < MaxBackends ? &entries[number] : NULL;
}

/* What holds for the process of this entry.  With its mutex held. */
static Claim
combined(const Entry *entry)
{
	Claim		own = entry->own;
	Imposed		imposed = entry->imposed;
	Claim		claim;

	if (entry->demoted)
		own.tier = TIER_BACKGROUND;
	claim = own;
	if (imposed.claim.tier != TIER_NOT_SAID)
		claim.tier = imposed.by_right ? imposed.claim.tier : Min(own.tier, imposed.claim.tier);
	if (imposed.claim.weight != WEIGHT_NOT_SAID)
		claim.weight = imposed.by_right ? imposed.claim.weight :
			Min(own.weight, imposed.claim.weight);
	return claim;
}

/* Make the entry the process's, if it was another's.  With its mutex held. */
static void
begin_anew(Entry *entry, int pid)
{
	if (entry->pid == pid)
		return;
	entry->pid = pid;
	entry->published = false;
	entry->demoted = false;
	entry->imposed = nothing;
}

/* A copy of a process's entry as it is now, or NULL if it has none. */
static const Entry *
copy_of(const PGPROC *proc, Entry *copy)
{
	Entry	   *entry = proc ? entry_of(proc) : NULL;

	if (entry == NULL)
		return NULL;
	SpinLockAcquire(&entry->mutex);
	*copy = *entry;
	SpinLockRelease(&entry->mutex);
	return copy->pid == proc->pid ? copy : NULL;
}

/* Say in this process's slot what holds for it, whose own claim that is. */
void
imposed_publish(struct giveway_slot *slot, Claim own)
{
	Entry	   *entry = entry_of(MyProc);
	Entry		copy;
	const Entry *leaders = copy_of(IsParallelWorker() ? MyProc->lockGroupLeader : NULL, &copy);

	Assert(slot == slot_mine());
	if (entry == NULL)
	{
		slot_say(slot, own);
		return;
	}
	SpinLockAcquire(&entry->mutex);
	begin_anew(entry, MyProcPid);
	if (leaders)
	{
		entry->imposed = leaders->imposed;
		entry->demoted = leaders->demoted;
	}
	entry->own = own;
	entry->published = true;
	slot_say(slot, combined(entry));
	SpinLockRelease(&entry->mutex);
}

/* Take back what was imposed on this process, unless that was by right. */
void
imposed_discard(void)
{
	Entry	   *entry = MyProc ? entry_of(MyProc) : NULL;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	if (entry->pid == MyProcPid && !entry->imposed.by_right)
	{
		entry->imposed = nothing;
		if (entry->published)
			slot_say(slot_mine(), combined(entry));
	}
	SpinLockRelease(&entry->mutex);
}

/* This process's slot is about to be given up, or to say nothing. */
void
imposed_withdraw(void)
{
	Entry	   *entry = MyProc ? entry_of(MyProc) : NULL;

	if (entry == NULL)
		return;
	SpinLockAcquire(&entry->mutex);
	if (entry->pid == MyProcPid)
		entry->published = false;
	SpinLockRelease(&entry->mutex);
}

/* Say in the slot of the entry's process what holds for it.  With its mutex held. */
static void
say_for(const Entry *entry, uint64 name)
{
	struct giveway_slot *slot = entry->published ? slot_named(name) : NULL;

	if (slot)
		slot_say(slot, combined(entry));
}

/* Impose something on a process, unless it has ended; false if what is there was imposed
 * by right, and this is not. */
static bool
impose(const PGPROC *proc, int pid, Imposed imposed)
{
	Entry	   *entry = entry_of(proc);
	uint64		name = slot_name(pid);
	bool		allowed = true;

	if (entry == NULL)
		return true;
	SpinLockAcquire(&entry->mutex);
	if (proc->pid == pid)
	{
		begin_anew(entry, pid);
		allowed = imposed.by_right || !entry->imposed.by_right;
		if (allowed)
		{
			entry->imposed = imposed;
			say_for(entry, name);
		}
	}
	SpinLockRelease(&entry->mutex);
	return allowed;
}

/* The same, on a session's parallel workers. */
static void
impose_on_workers(const PGPROC *leader, Imposed imposed)
{
	for (int number = 0; number < MaxBackends; number++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[number];
		int			pid = proc->pid;

		/* The number first: if it is still the worker's afterwards, so is the group. */
		pg_read_barrier();
		if (proc != leader && proc->lockGroupLeader == leader && pid != 0)
			(void) impose(proc, pid, imposed);
	}
}

/* Demote a process, unless it has ended, or take that back. */
static void
set_demoted(const PGPROC *proc, int pid, bool demoted)
{
	Entry	   *entry = entry_of(proc);
	uint64		name = slot_name(pid);

	if (entry == NULL || pid == 0)
		return;
	SpinLockAcquire(&entry->mutex);
	if (proc->pid == pid)
	{
		begin_anew(entry, pid);
		entry->demoted = demoted;
		say_for(entry, name);
	}
	SpinLockRelease(&entry->mutex);
}

/*
 * Demote a session and its parallel workers to background, or take that back.  A worker
 * that joins meanwhile copies its leader's entry, as above.
 */
void
imposed_demote(const PGPROC *leader, bool demoted)
{
	set_demoted(leader, leader->pid, demoted);
	for (int number = 0; number < imposed_count(); number++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[number];
		int			pid = proc->pid;

		/* As in impose_on_workers(). */
		pg_read_barrier();
		if (proc != leader && proc->lockGroupLeader == leader)
			set_demoted(proc, pid, demoted);
	}
}

/* Entries are numbered from 0 to imposed_count() - 1. */
int
imposed_count(void)
{
	return entries ? MaxBackends : 0;
}

/* What is imposed on the process of this number, and which process that is; 0: none. */
int
imposed_at(int number, Imposed *imposed)
{
	int			pid;

	SpinLockAcquire(&entries[number].mutex);
	pid = entries[number].pid;
	*imposed = entries[number].imposed;
	SpinLockRelease(&entries[number].mutex);
	return pid;
}

/* ---- giveway_set() ---- */

/* Whether this role may set ceilings, and so may raise sessions above them. */
static bool
has_the_right(Oid role)
{
	return pg_parameter_aclcheck("giveway.max_tier", role, ACL_SET) == ACLCHECK_OK &&
		pg_parameter_aclcheck("giveway.max_weight", role, ACL_SET) == ACLCHECK_OK;
}

/* As pg_cancel_backend() has it. */
static void
check_rights(const PGPROC *proc)
{
	bool		is_superusers = !OidIsValid(proc->roleId) || superuser_arg(proc->roleId);

	if (is_superusers ? superuser() :
		has_privs_of_role(GetUserId(), proc->roleId) ||
		has_privs_of_role(GetUserId(), ROLE_PG_SIGNAL_BACKEND) ||
		has_the_right(GetUserId()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to set the tier of another role's session"),
			 is_superusers ?
			 errdetail("Only superusers may set that of a superuser's session.") :
			 errdetail("Only roles with privileges of that role, of \"pg_signal_backend\", or with SET on giveway.max_tier and giveway.max_weight may.")));
}

static int
tier_from_text(const char *text)
{
	int			tier = term_parse(TERM_TIER, text);

	if (tier == NOT_SAID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there is no tier \"%s\"", text),
				 errhint("Write background, cgroup or time_sensitive.")));
	return tier;
}

static Claim
claim_from_arguments(FunctionCallInfo fcinfo)
{
	Claim		claim = nothing.claim;

	if (!PG_ARGISNULL(1))
		claim.tier = tier_from_text(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (PG_ARGISNULL(2))
		return claim;
	claim.weight = PG_GETARG_INT32(2);
	if (claim.weight < GIVEWAY_WEIGHT_MIN || claim.weight > GIVEWAY_WEIGHT_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("weight %d is out of range", claim.weight),
				 errhint("Write %d to %d.", GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX)));
	return claim;
}

/*
 * giveway_set(pid, tier, weight): impose them on a session, at once; what is null is left
 * to it.  False, with a warning, if there is no such session.
 */
Datum
giveway_set(PG_FUNCTION_ARGS)
{
	Imposed		imposed = {.claim = claim_from_arguments(fcinfo)};
	int			wanted = PG_ARGISNULL(0) ? 0 : PG_GETARG_INT32(0);
	PGPROC	   *proc,
			   *leader;
	int			pid;

	if (entries == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("giveway was not loaded at the start of the server"),
				 errhint("Name giveway in shared_preload_libraries and restart the server.")));
	proc = wanted ? BackendPidGetProc(wanted) : NULL;
	leader = proc ? proc->lockGroupLeader : NULL;
	pid = leader ? leader->pid : wanted;
	pg_read_barrier();
	/* Ended since, and another process has its number: as if it had ended before. */
	if (proc == NULL || proc->pid != wanted || pid == 0)
	{
		ereport(WARNING, (errmsg("PID %d is not a PostgreSQL session", wanted)));
		PG_RETURN_BOOL(false);
	}
	if (leader)
		proc = leader;
	/* Those to the session's role, unless it has ended: then impose() does nothing. */
	check_rights(proc);
	imposed.by_right = has_the_right(GetUserId());
	(void) slot_open_awaited(settings.dir);
	if (!impose(proc, pid, imposed))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to change what an administrator has set for this session"),
				 errdetail("Only roles with SET on giveway.max_tier and giveway.max_weight may.")));
	impose_on_workers(proc, imposed);
	PG_RETURN_BOOL(true);
}
