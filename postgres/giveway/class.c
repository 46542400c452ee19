/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * class.c
 *		Which class is this session's, and what are its limits?
 *
 * Classes are rows of the extension's tables in each database: giveway_class has the
 * limits, giveway_class_role says whose they are.  So they are written in SQL, change
 * with transactions, and are dumped and restored.  The class of a session is
 *
 *		1. that of its role;
 *		2. else that of a role whose privileges it has: the first by name of the class;
 *		3. else that of role '-', which stands for everybody else;
 *		4. else none.
 *
 * Superusers' sessions have none, so that nothing that is written there keeps them out.
 *
 * CACHE.  A session reads the tables before the first statement that has to know, and
 * again after a change: triggers on the tables send an invalidation of their relation,
 * which comes to other sessions with the commit; changes of roles and memberships send
 * their own.  It looks for these at each statement, for one within a transaction that
 * locks nothing anew would not come across them.  Where there was no extension, any new
 * function makes us look again: its script makes some.
 *
 * SETTINGS.  A class's work_mem and max_parallel_workers_per_gather are what its sessions
 * have by default, in place of what role and database have, and the most they can have.
 * The default is set when the class is read.  What a session has set for itself, beyond
 * that, is cut before a statement is planned and whenever it is executed, a cursor's each
 * time, by SET LOCAL as the session itself would: the session's own value is there again
 * after the transaction.  Hashes may take work_mem times hash_mem_multiplier, so where the
 * one is limited the other is cut to what PostgreSQL has it be.
 *
 * The tables are looked up as members of the extension: a user who may create tables in
 * its schema cannot pass one off as ours.  Their owner can change them: tables whose
 * columns are not of our types are none, and rows with nulls where we allow none are
 * skipped.
 *
 * WEAKNESSES.  A statement that raises work_mem while it runs has that until its next
 * query.  Nothing is cut in the leader of parallel workers: PostgreSQL sets nothing there.
 * A plan that was kept has the workers it was planned with.  After a session has left
 * its class it has the default that it had before it entered, even if postgresql.conf has
 * another since.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "giveway.h"

PG_FUNCTION_INFO_V1(giveway_class_changed);

/* Columns of giveway_class, and of giveway_class_role. */
enum
{
	CLASS_NAME = 1, CLASS_CONCURRENCY, CLASS_QUEUE_TIMEOUT, CLASS_DEMOTE_AFTER,
	CLASS_WORK_MEM, CLASS_PARALLEL_WORKERS
};
enum
{
	MEMBER_ROLE = 1, MEMBER_CLASS
};

static const Oid class_types[] = {
	NAMEOID, INT4OID, INTERVALOID, INTERVALOID, INT4OID, INT4OID
};
static const Oid member_types[] = {REGROLEOID, NAMEOID};

/* What hash_mem_multiplier is unless somebody sets it. */
#define HASH_MEM_MULTIPLIER 2

/* More than anybody waits or computes: ten years. */
#define LONGEST_MS (INT64CONST(10) * 365 * 24 * 3600 * 1000)

/* The tables in this database; InvalidOid: there are none. */
static Oid	class_table = InvalidOid;
static Oid	member_table = InvalidOid;

/* What was read, when .changes was that, for this role. */
static Limits limits;
static bool in_class = false;
static uint64 read_at = 0;
static Oid	read_for = InvalidOid;

/* Counts what may have changed the answer. */
static uint64 changes = 1;

/* ---- invalidation ---- */

static void
table_changed(Datum arg, Oid table)
{
	if (table == InvalidOid || table == class_table || table == member_table)
		changes++;
}

static void
role_changed(Datum arg, int cache, uint32 hash)
{
	changes++;
}

static void
function_changed(Datum arg, int cache, uint32 hash)
{
	if (!OidIsValid(class_table))
		changes++;
}

/* In the postmaster, while it loads libraries: its children inherit it. */
void
class_watch(void)
{
	CacheRegisterRelcacheCallback(table_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, role_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, role_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, function_changed, (Datum) 0);
}

/* The triggers of both tables. */
Datum
giveway_class_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("giveway_class_changed() is a trigger's function")));
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	PG_RETURN_POINTER(NULL);
}

/* ---- reading ---- */

/* The extension and its schema in this database; false if it is not there. */
static bool
find_extension(Oid *extension, Oid *schema)
{
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("giveway"));
	scan = systable_beginscan(catalog, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		*extension = ((Form_pg_extension) GETSTRUCT(tuple))->oid;
		*schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

static Oid
member_of_extension(Oid extension, Oid schema, const char *name)
{
	Oid			table = get_relname_relid(name, schema);

	return OidIsValid(table) &&
		getExtensionOfObject(RelationRelationId, table) == extension ? table : InvalidOid;
}

/* Whether the table's first columns are of these types. */
static bool
has_columns(Oid table, const Oid *types, int count)
{
	for (int column = 1; column <= count; column++)
		if (get_atttype(table, column) != types[column - 1])
			return false;
	return true;
}

static bool
find_tables(void)
{
	Oid			extension;
	Oid			schema;

	class_table = member_table = InvalidOid;
	if (!find_extension(&extension, &schema))
		return false;
	member_table = member_of_extension(extension, schema, "giveway_class_role");
	class_table = member_of_extension(extension, schema, "giveway_class");
	if (!OidIsValid(class_table) || !OidIsValid(member_table))
		return false;
	if (has_columns(class_table, class_types, lengthof(class_types)) &&
		has_columns(member_table, member_types, lengthof(member_types)))
		return true;
	ereport(LOG,
			(errmsg("giveway: no class holds: columns of giveway_class or giveway_class_role are not as the extension has made them")));
	return false;
}

/* Whether this row of giveway_class_role is nearer to the role than those of a higher
 * number; 0: it is not for the role. */
static int
nearness(Oid role, Oid of)
{
	if (of == role)
		return 3;
	if (!OidIsValid(of))
		return 1;
	/* Roles that have been dropped are nobody's. */
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(of)) &&
		has_privs_of_role(role, of) ? 2 : 0;
}

/* How near a row of giveway_class_role is to the role; if at all, *class is set. */
static int
read_member(HeapTuple tuple, TupleDesc desc, Oid role, NameData *class)
{
	bool		no_role;
	bool		no_class;
	Datum		of = heap_getattr(tuple, MEMBER_ROLE, desc, &no_role);
	Datum		name = heap_getattr(tuple, MEMBER_CLASS, desc, &no_class);

	if (no_role || no_class)
		return 0;
	*class = *DatumGetName(name);
	return nearness(role, DatumGetObjectId(of));
}

/* The name of the role's class; false if it has none. */
static bool
find_class(Oid role, NameData *class)
{
	Relation	table = table_open(member_table, AccessShareLock);
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	int			nearest = 0;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		NameData	name;
		int			near = read_member(tuple, RelationGetDescr(table), role, &name);

		if (near > nearest ||
			(near == nearest && near > 0 && strcmp(NameStr(name), NameStr(*class)) < 0))
		{
			nearest = near;
			*class = name;
		}
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return nearest > 0;
}

static int64
interval_ms(const Interval *interval)
{
	double		days = interval->month * (double) DAYS_PER_MONTH + interval->day;
	double		ms = days * SECS_PER_DAY * 1000.0 + interval->time / 1000.0;

	return (int64) Min(Max(ms, 0), LONGEST_MS);
}

/* A column's integer; NO_LIMIT if it is null. */
static int
integer(HeapTuple tuple, TupleDesc desc, int column)
{
	bool		null;
	Datum		value = heap_getattr(tuple, column, desc, &null);

	return null ? NO_LIMIT : DatumGetInt32(value);
}

/* A column's interval in milliseconds; NO_LIMIT if it is null. */
static int64
milliseconds(HeapTuple tuple, TupleDesc desc, int column)
{
	bool		null;
	Datum		value = heap_getattr(tuple, column, desc, &null);

	return null ? NO_LIMIT : interval_ms(DatumGetIntervalP(value));
}

static void
read_limits(HeapTuple tuple, TupleDesc desc)
{
	int64		demote_after_ms = milliseconds(tuple, desc, CLASS_DEMOTE_AFTER);

	limits.concurrency = integer(tuple, desc, CLASS_CONCURRENCY);
	limits.queue_timeout_ms = milliseconds(tuple, desc, CLASS_QUEUE_TIMEOUT);
	limits.demote_after_ns = demote_after_ms == NO_LIMIT ? 0 :
		Max(demote_after_ms, 1) * (uint64) 1000000;
	limits.work_mem_kb = integer(tuple, desc, CLASS_WORK_MEM);
	limits.parallel_workers = integer(tuple, desc, CLASS_PARALLEL_WORKERS);
}

/* Read the limits of limits.class; false if there is no such class. */
static bool
read_class(void)
{
	Relation	table = table_open(class_table, AccessShareLock);
	SysScanDesc scan = systable_beginscan(table, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		null;
		Datum		name = heap_getattr(tuple, CLASS_NAME, RelationGetDescr(table), &null);

		found = !null && strcmp(NameStr(*DatumGetName(name)), NameStr(limits.class)) == 0;
		if (found)
			read_limits(tuple, RelationGetDescr(table));
	}
	systable_endscan(scan);
	table_close(table, AccessShareLock);
	return found;
}

/* ---- settings ---- */

/* A setting that classes limit. */
typedef struct Limited
{
	const char *name;
	int		   *value;
	char	   *before;			/* its default outside of classes; NULL: it has that */
} Limited;

static Limited limited_work_mem = {"work_mem", &work_mem, NULL};
static Limited limited_workers = {"max_parallel_workers_per_gather",
&max_parallel_workers_per_gather, NULL};

static void
set(const char *name, const char *value, GucSource source, GucAction action)
{
	(void) set_config_option(name, value, PGC_USERSET, source, action, true, 0, false);
}

/* Make the limit the session's default, or give it back its own. */
static void
set_default(Limited *limited, int limit)
{
	if (limit == NO_LIMIT && limited->before == NULL)
		return;
	if (limit == NO_LIMIT)
	{
		set(limited->name, limited->before, PGC_S_DATABASE_USER, GUC_ACTION_SET);
		pfree(limited->before);
		limited->before = NULL;
		return;
	}
	if (limited->before == NULL)
		limited->before = MemoryContextStrdup(TopMemoryContext,
											  GetConfigOptionResetString(limited->name));
	set(limited->name, psprintf("%d", limit), PGC_S_DATABASE_USER, GUC_ACTION_SET);
}

static void
cut(const Limited *limited, int limit)
{
	if (limit != NO_LIMIT && *limited->value > limit)
		set(limited->name, psprintf("%d", limit), PGC_S_SESSION, GUC_ACTION_LOCAL);
}

static void
cut_hash_memory(void)
{
	if (limits.work_mem_kb != NO_LIMIT && hash_mem_multiplier > HASH_MEM_MULTIPLIER)
		set("hash_mem_multiplier", psprintf("%d", HASH_MEM_MULTIPLIER), PGC_S_SESSION,
			GUC_ACTION_LOCAL);
}

/* ---- for statements ---- */

static void
read_all(Oid role)
{
	uint64		at = changes;
	Limits		none = {.work_mem_kb = NO_LIMIT, .parallel_workers = NO_LIMIT};

	limits = none;
	in_class = settings.classes && !superuser_arg(role) && find_tables() &&
		find_class(role, &limits.class) && read_class();
	set_default(&limited_work_mem, limits.work_mem_kb);
	set_default(&limited_workers, limits.parallel_workers);
	/* Not earlier: after an error it is all to be done again. */
	read_at = at;
	read_for = role;
}

/* The limits of this session's class, or NULL if it has none.  In a transaction. */
const Limits *
class_limits(void)
{
	static bool classes = true;
	Oid			role = GetSessionUserId();

	AcceptInvalidationMessages();
	if (settings.classes != classes)
	{
		classes = settings.classes;
		changes++;
	}
	if (read_at != changes || read_for != role)
		read_all(role);
	return in_class ? &limits : NULL;
}

/* Have the settings keep to the limits that were read last. */
void
class_apply(void)
{
	if (!in_class || IsInParallelMode())
		return;
	cut(&limited_work_mem, limits.work_mem_kb);
	cut(&limited_workers, limits.parallel_workers);
	cut_hash_memory();
}
