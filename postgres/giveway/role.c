/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * role.c
 *		What do the session's roles say of its tier, its weight and its ceilings?
 *
 * PostgreSQL applies what ALTER ROLE sets once, at the start of a session, and of the role
 * that logs in only.  So a group of roles cannot have a tier, and neither has the role
 * that a pooler or PostgREST makes current by SET LOCAL ROLE in each transaction.  With
 * giveway.follow_role a session has what these say:
 *
 *		off				as PostgreSQL does
 *		membership		the session's role
 *		current			the role in effect; where that says nothing, the session's role
 *
 * The session's role is that of SET SESSION AUTHORIZATION or of the login.  The role in
 * effect is that of SET ROLE, or the session's: GetOuterUserId().  SECURITY DEFINER
 * functions do not change either.
 *
 * WHAT A ROLE SAYS, of each of tier, weight, max_tier and max_weight by itself:
 *
 *		1. what ALTER ROLE has set for it in this database;
 *		2. else what ALTER ROLE has set for it in all databases;
 *		3. else the highest of what is so set for the roles whose privileges it inherits;
 *		4. else nothing.
 *
 * The highest, for memberships add up: another one takes nothing away.  A superuser
 * inherits from everybody; nothing comes to it by 3.  publish.c says how that and the
 * session's own settings together make its tier.
 *
 * STATES.  settings.roles is what holds.  "known" says of which roles and settings it is:
 *
 *					SET ROLE, SET SESSION AUTHORIZATION, their RESET, or their end with a
 *					(sub)transaction or function: both known here?
 *					/ yes							\ no
 *		   KNOWN, at once							NOT KNOWN, settings.roles remains
 *					\								/ the next look: catalogs are read
 *					 \---------- KNOWN ------------/
 *					  a change of roles, memberships or ALTER ROLE ... SET: NOT KNOWN
 *
 * A look, role_follow(), is some comparisons if nothing has changed.  It comes before and
 * after each statement, in nested ones too, and before a commit, so that a session is
 * right from its start on.
 *
 * HOW CHANGES COME.  To end SET ROLE with a function or a subtransaction PostgreSQL calls
 * the assign hooks of "role" and "session_authorization", and nothing else.  They may read
 * no catalogs.  We put ours behind them, which recall what was read of a role before;
 * so, after an error too, the former role's tier is back before the client knows.
 * Settings of roles have no cache in PostgreSQL, and so no invalidation.  We send one, of
 * the relation, when ours are altered; it comes with the commit, to other databases and
 * to standby servers.  Roles and memberships send their own.
 *
 * CACHE.  A session remembers all rows with settings of ours, superseded by a change of
 * these, and what follows from them for the roles that it had last, superseded by any
 * change.
 *
 * REST.  Every role may alter settings of ours for itself, as often as it likes, and each
 * time all sessions have all rows to read.  Where these are many, a session does so again
 * after a rest, some ten to hundred times as long: until then it has what it had.  So it
 * sees all changes that are older than a rest when its statement begins.  Its own changes
 * of settings, and another role, it sees at once.
 *
 * PARALLEL WORKERS have what their leader has.  It leaves that in a word of shared memory,
 * which a worker takes over when it attaches; SET ROLE is not possible meanwhile.
 *
 * INVARIANT.  What roles say never raises a session above the ceilings of its own, unless
 * giveway.role_raises is on; only superusers, and whom they granted that, set it and
 * giveway.follow_role (not asserted: publish.c's ceiling() is the rule).
 *
 * WEAKNESSES.  A role that was not current before, set by set_config() in the middle of a
 * statement or by a function's SET clause, counts from the next statement on, nested ones
 * included.  In a transaction, a change by another session counts from the next statement
 * that locks a table anew.  Whoever may SET ROLE to a group may also ALTER it, and so
 * lower its members, or raise them to their ceilings.  Changes by UPDATE of
 * pg_db_role_setting are not noticed.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "giveway.h"

/* What ALTER ROLE has set for a role. */
typedef struct Row
{
	Oid			role;			/* the key */
	int			values[TERM_COUNT]; /* or NOT_SAID */
	bool		in_database[TERM_COUNT];
} Row;

/* What a role says, by what it inherits too. */
typedef struct Role
{
	Oid			role;			/* InvalidOid: none yet */
	uint64		at;				/* .changes when it was read */
	uint64		used;
	int			values[TERM_COUNT]; /* or NOT_SAID */
} Role;

/* Counts what may have changed any answer.  A number that was is no number that will be. */
static uint64 changes = 1;

/* The same, for settings of roles alone. */
static uint64 setting_changes = 1;

/* All roles with settings of ours, when .setting_changes was that.  NULL: not read yet. */
static HTAB *rows = NULL;
static MemoryContext rows_context = NULL;
static uint64 rows_at = 0;

/* The roles that were asked about last.  More than ever are current in one transaction. */
static Role roles[64];
static uint64 uses = 0;

/* What settings.roles is the answer to. */
static struct
{
	FollowRole	follow_role;
	bool		role_raises;
	Oid			session;		/* InvalidOid: never asked */
	Oid			current;
	uint64		at;				/* 0: not known */
}			known;

/* Fewer rows than these are read again without a rest. */
#define MANY_ROWS 1000
#define ROWS_PER_MS_OF_REST 100

/* How many rows there were when all were read last. */
static int64 rows_read = 0;

/* What is known holds until then, if other sessions have changed it since. */
static TimestampTz rests_until = 0;

/* By number of the process; NULL where the library is not preloaded.  See pack(). */
static pg_atomic_uint64 *words = NULL;

/* ---- changes ---- */

static object_access_hook_type previous_access;

/* Which setting of ours this is, "name=value"; TERM_COUNT: none. */
static Term
term_of(const char *text)
{
	Term		term = 0;

	while (term < TERM_COUNT &&
		   (pg_strncasecmp(text, term_name(term), strlen(term_name(term))) != 0 ||
			text[strlen(term_name(term))] != '='))
		term++;
	return term;
}

/* What an array of settings says of ours; the rest of the values is left alone.  False: it
 * says nothing of them. */
static bool
read_config(Datum config, int *values)
{
	Datum	   *texts;
	int			count;
	bool		says = false;

	deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT,
					  &texts, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		const char *setting = TextDatumGetCString(texts[i]);
		Term		term = term_of(setting);

		if (term == TERM_COUNT)
			continue;
		values[term] = term_parse(term, setting + strlen(term_name(term)) + 1);
		says = true;
	}
	return says;
}

/* What this role's row for this database says, as the snapshot sees it. */
static void
read_row(Relation catalog, Oid database, Oid role, Snapshot snapshot, int *values)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	for (Term term = 0; term < TERM_COUNT; term++)
		values[term] = NOT_SAID;
	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(database));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(catalog, DbRoleSettingDatidRolidIndexId, true, snapshot, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		null;
		Datum		config = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
										  RelationGetDescr(catalog), &null);

		if (!null)
			read_config(config, values);
	}
	systable_endscan(scan);
}

/* Whether the current command has altered what this role's row says. */
static bool
concerns_us(Oid database, Oid role)
{
	Relation	catalog = table_open(DbRoleSettingRelationId, AccessShareLock);
	/* It does not see the command's own change; the other does. */
	Snapshot	snapshot = RegisterSnapshot(GetCatalogSnapshot(DbRoleSettingRelationId));
	int			before[TERM_COUNT];
	int			now[TERM_COUNT];

	read_row(catalog, database, role, snapshot, before);
	read_row(catalog, database, role, SnapshotSelf, now);
	UnregisterSnapshot(snapshot);
	table_close(catalog, AccessShareLock);
	return memcmp(before, now, sizeof(now)) != 0;
}

static void
object_altered(ObjectAccessType access, Oid catalog, Oid object, int column, void *arg)
{
	Oid			role;

	if (previous_access)
		previous_access(access, catalog, object, column, arg);
	if (access != OAT_POST_ALTER || catalog != DbRoleSettingRelationId)
		return;
	role = ((ObjectAccessPostAlter *) arg)->auxiliary_id;
	/* What is set for a database, or for all, is no role's. */
	if (OidIsValid(role) && concerns_us(object, role))
	{
		CacheInvalidateRelcacheByRelid(DbRoleSettingRelationId);
		rests_until = 0;
	}
}

static void
settings_changed(Datum arg, Oid relation)
{
	if (relation != InvalidOid && relation != DbRoleSettingRelationId)
		return;
	setting_changes++;
	changes++;
}

static void
roles_changed(Datum arg, int cache, uint32 hash)
{
	changes++;
}

/* ---- reading ---- */

static Row *
row_of(HTAB *table, Oid role)
{
	bool		found;
	Row		   *row = hash_search(table, &role, HASH_ENTER, &found);

	for (Term term = 0; !found && term < TERM_COUNT; term++)
	{
		row->values[term] = NOT_SAID;
		row->in_database[term] = false;
	}
	return row;
}

/* Note what an array of a role's settings says. */
static void
note(HTAB *table, Oid role, bool in_database, Datum config)
{
	int			values[TERM_COUNT] = {NOT_SAID, NOT_SAID, NOT_SAID, NOT_SAID};
	Row		   *row;

	if (!read_config(config, values))
		return;
	row = row_of(table, role);
	for (Term term = 0; term < TERM_COUNT; term++)
	{
		if (values[term] == NOT_SAID || (row->in_database[term] && !in_database))
			continue;
		row->values[term] = values[term];
		row->in_database[term] = in_database;
	}
}

static void
scan_settings(HTAB *table)
{
	Relation	catalog = table_open(DbRoleSettingRelationId, AccessShareLock);
	/* Long values are elsewhere, and wanted by this snapshot. */
	Snapshot	snapshot = RegisterSnapshot(GetCatalogSnapshot(DbRoleSettingRelationId));
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple	tuple;

	rows_read = 0;
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_db_role_setting form = (Form_pg_db_role_setting) GETSTRUCT(tuple);
		bool		null;
		Datum		config = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
										  RelationGetDescr(catalog), &null);

		rows_read++;
		if (!null && OidIsValid(form->setrole) &&
			(!OidIsValid(form->setdatabase) || form->setdatabase == MyDatabaseId))
			note(table, form->setrole, OidIsValid(form->setdatabase), config);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(catalog, AccessShareLock);
}

/* Read anew what is set for roles. */
static void
read_rows(uint64 at)
{
	HASHCTL		shape = {.keysize = sizeof(Oid), .entrysize = sizeof(Row)};
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "giveway scratch",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "giveway roles",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(scratch);
	HTAB	   *table;

	shape.hcxt = context;
	table = hash_create("giveway roles", 16, &shape, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scan_settings(table);
	MemoryContextSwitchTo(before);
	MemoryContextDelete(scratch);
	MemoryContextSetParent(context, TopMemoryContext);
	if (rows_context)
		MemoryContextDelete(rows_context);
	rows_context = context;
	rows = table;
	rows_at = at;
}

/* Whether a group's row has more to say than these. */
static bool
adds(const Row *group, const Row *own, const int *values)
{
	for (Term term = 0; term < TERM_COUNT; term++)
		if ((own == NULL || own->values[term] == NOT_SAID) &&
			group->values[term] > values[term])
			return true;
	return false;
}

/* Have all rows as they are by now. */
static void
refresh_rows(void)
{
	if (rows_at != setting_changes)
		read_rows(setting_changes);
}

/* What this role says by the rows, and from which role it has that.  Reads catalogs. */
static void
read_role(Oid role, int *values, Oid *from)
{
	const Row  *own;
	const Row  *group;
	HASH_SEQ_STATUS all;
	bool		exists;

	/* A role that has been dropped takes its settings along, without a word of these. */
	exists = SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role));
	own = exists ? hash_search(rows, &role, HASH_FIND, NULL) : NULL;
	for (Term term = 0; term < TERM_COUNT; term++)
	{
		values[term] = own ? own->values[term] : NOT_SAID;
		from[term] = values[term] == NOT_SAID ? InvalidOid : role;
	}
	if (!exists || superuser_arg(role))
		return;
	hash_seq_init(&all, rows);
	while ((group = hash_seq_search(&all)) != NULL)
	{
		if (!adds(group, own, values) || !has_privs_of_role(role, group->role))
			continue;
		for (Term term = 0; term < TERM_COUNT; term++)
		{
			if (from[term] == role || group->values[term] <= values[term])
				continue;
			values[term] = group->values[term];
			from[term] = group->role;
		}
	}
}

/* What was read of a role, perhaps before a change; NULL: nothing. */
static Role *
recall(Oid role)
{
	for (int i = 0; i < lengthof(roles); i++)
	{
		if (roles[i].role != role)
			continue;
		roles[i].used = ++uses;
		return &roles[i];
	}
	return NULL;
}

/* The place of the role that was not wanted for longest. */
static Role *
least_used(void)
{
	Role	   *least = &roles[0];

	for (int i = 1; i < lengthof(roles); i++)
		if (roles[i].used < least->used)
			least = &roles[i];
	return least;
}

/* What the role says by the rows, which are no older than .at, a value of .changes. */
static const Role *
ask(Oid role, uint64 at)
{
	Role	   *place = recall(role);
	Role		found = {.role = role, .at = at};
	Oid			from[TERM_COUNT];

	if (place && place->at == at)
		return place;
	read_role(role, found.values, from);
	if (place == NULL)
		place = least_used();
	found.used = ++uses;
	*place = found;
	return place;
}

/* ---- in shared memory ---- */

/* A process's word: its number, and what its roles say; 0 is NOT_SAID, as 1 and more are
 * values from 0 on. */
#define TIER_BITS 2
#define WEIGHT_BITS 14
#define PID_BITS 32

StaticAssertDecl(TIER_TIME_SENSITIVE + 1 < 1 << TIER_BITS &&
				 GIVEWAY_WEIGHT_MAX + 1 < 1 << WEIGHT_BITS &&
				 2 * TIER_BITS + 2 * WEIGHT_BITS + PID_BITS == 64, "a word is too short");

static int
bits_of(Term term)
{
	return term == TERM_TIER || term == TERM_MAX_TIER ? TIER_BITS : WEIGHT_BITS;
}

static uint64
pack(const int *values)
{
	uint64		word = 0;

	for (Term term = 0; term < TERM_COUNT; term++)
		word = word << bits_of(term) | (uint64) (values[term] + 1);
	return word << PID_BITS | (uint32) MyProcPid;
}

static void
unpack(uint64 word, int *values)
{
	word >>= PID_BITS;
	for (int term = TERM_COUNT - 1; term >= 0; term--)
	{
		values[term] = (int) (word & ((1 << bits_of(term)) - 1)) - 1;
		word >>= bits_of(term);
	}
}

static pg_atomic_uint64 *
word_of(const PGPROC *proc)
{
	ptrdiff_t	number = proc - ProcGlobal->allProcs;

	return words && number >= 0 && number < MaxBackends ? &words[number] : NULL;
}

/* Say to parallel workers of this process what its roles say. */
static void
tell_workers(void)
{
	pg_atomic_uint64 *word = MyProc ? word_of(MyProc) : NULL;

	if (word)
		pg_atomic_write_u64(word, pack(settings.roles));
}

/* This process is about to publish for the first time.  A parallel worker has what its
 * leader has; others have words of their own, in place of those of a process before. */
void
role_join(void)
{
	const PGPROC *leader = MyProc->lockGroupLeader;
	pg_atomic_uint64 *word = leader ? word_of(leader) : NULL;
	uint64		value;

	if (!IsParallelWorker())
	{
		tell_workers();
		return;
	}
	value = word ? pg_atomic_read_u64(word) : 0;
	if (word && (uint32) value == (uint32) leader->pid)
		unpack(value, settings.roles);
}

/* ---- following ---- */

static void
apply(const int *values)
{
	if (memcmp(values, settings.roles, sizeof(settings.roles)) == 0)
		return;
	memcpy(settings.roles, values, sizeof(settings.roles));
	tell_workers();
	publish_tier();
}

/* What both roles together say of it. */
static int
combined(Term term, const Role *session, const Role *current)
{
	int			first = current->values[term];
	int			second = session->values[term];
	bool		is_ceiling = term == TERM_MAX_TIER || term == TERM_MAX_WEIGHT;

	if (first == NOT_SAID || second == NOT_SAID)
		return Max(first, second);
	/* SET ROLE is no way around the ceiling of the session's role. */
	return is_ceiling && !settings.role_raises ? Min(first, second) : first;
}

static void
apply_roles(const Role *session, const Role *current)
{
	int			values[TERM_COUNT];

	for (Term term = 0; term < TERM_COUNT; term++)
		values[term] = combined(term, session, current);
	apply(values);
	known.follow_role = settings.follow_role;
	known.role_raises = settings.role_raises;
	known.session = session->role;
	known.current = current->role;
	known.at = Min(session->at, current->at);
}

static void
apply_none(void)
{
	static const int none[TERM_COUNT] = {NOT_SAID, NOT_SAID, NOT_SAID, NOT_SAID};

	apply(none);
	known.follow_role = FOLLOW_OFF;
}

/* The role that counts before the session's. */
static Oid
current_role(void)
{
	return settings.follow_role == FOLLOW_CURRENT ? GetOuterUserId() : GetSessionUserId();
}

/* Whether what is known is of these roles and settings, as they were at some time. */
static bool
was_known(void)
{
	return known.at != 0 &&
		known.current == current_role() &&
		known.session == GetSessionUserId() &&
		known.follow_role == settings.follow_role &&
		known.role_raises == settings.role_raises;
}

static bool
is_known(void)
{
	if (settings.follow_role == FOLLOW_OFF)
		return known.follow_role == FOLLOW_OFF;
	return was_known() && (known.at == changes || GetCurrentTimestamp() < rests_until);
}

/* Ask what the roles in effect say, and then rest, if others have changed that. */
static void
ask_again(void)
{
	bool		is_change = was_known();
	uint64		at = changes;
	const Role *session;

	/* Once for both roles: changes that come meanwhile are of the next look. */
	refresh_rows();
	session = ask(GetSessionUserId(), at);
	apply_roles(session, ask(current_role(), at));
	if (is_change && rows_read >= MANY_ROWS)
		rests_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
												  rows_read / ROWS_PER_MS_OF_REST);
}

/* Look whether other roles' settings hold by now, or others settings of these. */
void
role_follow(void)
{
	if (is_known() || words == NULL || IsParallelWorker() || !IsTransactionState() ||
		!OidIsValid(MyDatabaseId))
		return;
	if (settings.follow_role == FOLLOW_OFF)
	{
		apply_none();
		return;
	}
	ask_again();
}

/* The same where catalogs cannot be read: in assign hooks. */
void
role_recall(void)
{
	const Role *session;
	const Role *current;

	/* Before the first look there is nothing to recall, and perhaps no role. */
	if (!OidIsValid(known.session))
		return;
	if (settings.follow_role == FOLLOW_OFF)
	{
		apply_none();
		return;
	}
	session = recall(GetSessionUserId());
	current = recall(current_role());
	if (session && current)
		apply_roles(session, current);
	else
		known.at = 0;
}

/* What sessions of this role have from it, and from which role it has that itself. */
void
role_settings(Oid role, int *values, Oid *from)
{
	/* Without our callbacks nothing is known of changes. */
	if (words == NULL)
		setting_changes++;
	refresh_rows();
	read_role(role, values, from);
}

/* ---- at the start of the server ---- */

static GucStringAssignHook assign_role;
static GucStringAssignHook assign_authorization;

static void
role_assigned(const char *value, void *extra)
{
	assign_role(value, extra);
	role_recall();
}

static void
authorization_assigned(const char *value, void *extra)
{
	assign_authorization(value, extra);
	role_recall();
}

static struct config_generic *
find_setting(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, 0);
#else
	for (int i = 0; i < GetNumConfigOptions(); i++)
		if (strcmp(get_guc_variables()[i]->name, name) == 0)
			return get_guc_variables()[i];
	return NULL;
#endif
}

/* Put a hook behind the server's own for its setting of this name. */
static GucStringAssignHook
put_behind(const char *name, GucStringAssignHook hook)
{
	struct config_generic *found = find_setting(name);
	struct config_string *setting = (struct config_string *) found;
	GucStringAssignHook previous;

	if (found == NULL || found->vartype != PGC_STRING || setting->assign_hook == NULL)
		elog(ERROR, "the server's setting \"%s\" is not as giveway knows it", name);
	previous = setting->assign_hook;
	setting->assign_hook = hook;
	return previous;
}

static Size
size_of_words(void)
{
	return mul_size(MaxBackends, sizeof(pg_atomic_uint64));
}

static void
initialize_words(void *memory)
{
	pg_atomic_uint64 *all = memory;

	for (int number = 0; number < MaxBackends; number++)
		pg_atomic_init_u64(&all[number], 0);
}

/* In the postmaster, while it loads libraries. */
void
role_preload(void)
{
	static const SharedPart part = {
		.name = "giveway roles",
		.size = size_of_words,
		.initialize = initialize_words,
		.memory = (void **) &words,
	};

	shared_ask(&part);
	CacheRegisterRelcacheCallback(settings_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, roles_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, roles_changed, (Datum) 0);
	previous_access = object_access_hook;
	object_access_hook = object_altered;
	assign_role = put_behind("role", role_assigned);
	assign_authorization = put_behind("session_authorization", authorization_assigned);
}
