/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * view.c
 *		What do slots say now, and does any of it work?
 *
 * All functions read the table as this process has it mapped; nothing is
 * locked, so a row is as of some moment while it was read.  UFS writes the
 * figures of its report in a slot; they are null where no UFS is attached.
 *
 * A user sees the slots of its own roles' sessions and of the server's own
 * processes; members of pg_read_all_stats see all, as in pg_stat_activity.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "giveway.h"

PG_FUNCTION_INFO_V1(giveway_slots);
PG_FUNCTION_INFO_V1(giveway_status);
PG_FUNCTION_INFO_V1(giveway_slot_usage);
PG_FUNCTION_INFO_V1(giveway_imposed);
PG_FUNCTION_INFO_V1(giveway_class_usage);
PG_FUNCTION_INFO_V1(giveway_class_sessions);
PG_FUNCTION_INFO_V1(giveway_role_settings);

#define MS_PER_NS 1e-6
#define MS_PER_US 1e-3

static bool
may_see(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);

	return proc == NULL || !OidIsValid(proc->roleId) ||
		has_privs_of_role(GetUserId(), proc->roleId) ||
		has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}

/* A row under construction: columns are added from left to right. */
typedef struct Row
{
	Datum		values[16];
	bool		nulls[16];
	int			width;
} Row;

static void
add(Row *row, Datum value, bool is_null)
{
	Assert(row->width < lengthof(row->values));
	row->values[row->width] = value;
	row->nulls[row->width] = is_null;
	row->width++;
}

static Datum
tier_text(unsigned char tier)
{
	switch (tier)
	{
		case GIVEWAY_SLOT_TIER_BACKGROUND:
			return CStringGetTextDatum("background");
		case GIVEWAY_SLOT_TIER_TIME_SENSITIVE:
			return CStringGetTextDatum("time_sensitive");
		default:
			return CStringGetTextDatum("cgroup");
	}
}

/* The report's columns; null where no UFS writes it. */
static void
add_report(Row *row, const struct giveway_report *report)
{
	bool		none = SLOT_LOAD(slot_table()->scheduler) == 0;
	uint64		wakes = SLOT_LOAD(report->wakes);

	add(row, Float8GetDatum((SLOT_LOAD(report->run_ns[0]) +
							 SLOT_LOAD(report->run_ns[1])) * MS_PER_NS), none);
	add(row, Int64GetDatum(SLOT_LOAD(report->preempted)), none);
	add(row, Float8GetDatum(wakes ? SLOT_LOAD(report->wake_ns) * MS_PER_NS / wakes : 0),
		none || wakes == 0);
	add(row, Int64GetDatum(SLOT_LOAD(report->boosts)), none);
	add(row, Float8GetDatum(SLOT_LOAD(report->boosted_ns) * MS_PER_NS), none);
	add(row, Int64GetDatum(SLOT_LOAD(report->expired)), none);
	add(row, Int64GetDatum(SLOT_LOAD(report->refused)), none);
}

static void
add_slot(ReturnSetInfo *result, unsigned int index, int pid, const struct giveway_slot *slot)
{
	Row			row = {0};
	bool		recorded = SLOT_LOAD(slot->locks.version) != 0;
	uint64		awaited = SLOT_LOAD(slot->locks.wait);
	int			weight = SLOT_LOAD(slot->weight);

	if (awaited == 0)
		awaited = SLOT_LOAD(slot->locks.wait_spin);
	add(&row, Int32GetDatum(pid), false);
	add(&row, Int32GetDatum(index), false);
	add(&row, tier_text(SLOT_LOAD(slot->tier)), false);
	add(&row, Int32GetDatum(weight), weight == 0);
	add(&row, Int32GetDatum(SLOT_LOAD(slot->locks.nheld)), !recorded);
	add(&row, CStringGetTextDatum(psprintf("%llx", (unsigned long long) awaited)),
		!recorded || awaited == 0);
	add_report(&row, &slot->report);
	tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
}

/* giveway_slots(): a row for each slot of this cluster that one may see. */
Datum
giveway_slots(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (unsigned int index = 1; index < slot_count(); index++)
	{
		int			pid;

		if (slot_is_of_cluster(slot_at(index), &pid) && may_see(pid))
			add_slot(result, index, pid, slot_at(index));
	}
	return (Datum) 0;
}

/* giveway_imposed(): a row for each process on which something is imposed and that one
 * may see. */
Datum
giveway_imposed(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int number = 0; number < imposed_count(); number++)
	{
		Imposed		imposed;
		int			pid = imposed_at(number, &imposed);
		bool		no_tier = imposed.claim.tier == TIER_NOT_SAID;
		bool		no_weight = imposed.claim.weight == WEIGHT_NOT_SAID;
		Row			row = {0};

		if (pid == 0 || (no_tier && no_weight) || BackendPidGetProc(pid) == NULL ||
			!may_see(pid))
			continue;
		add(&row, Int32GetDatum(pid), false);
		add(&row, no_tier ? (Datum) 0 : tier_text(slot_tier(imposed.claim.tier)), no_tier);
		add(&row, Int32GetDatum(imposed.claim.weight), no_weight);
		add(&row, BoolGetDatum(imposed.by_right), false);
		tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

/* giveway_class_usage(): a row for each class of this database that was in use. */
Datum
giveway_class_usage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int number = 0; number < admit_class_count(); number++)
	{
		ClassUsage	usage;
		Row			row = {0};

		if (!admit_class_at(number, &usage))
			continue;
		add(&row, NameGetDatum(&usage.class), false);
		add(&row, Int32GetDatum(usage.running), false);
		add(&row, Int32GetDatum(usage.waiting), false);
		add(&row, Int64GetDatum(usage.admitted), false);
		add(&row, Int64GetDatum(usage.waited), false);
		add(&row, Float8GetDatum(usage.waited_us * MS_PER_US), false);
		add(&row, Int64GetDatum(usage.timeouts), false);
		add(&row, Int64GetDatum(usage.cancelled), false);
		add(&row, Int64GetDatum(usage.let_in), false);
		add(&row, Int64GetDatum(usage.demotions), false);
		tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

/* giveway_class_sessions(): a row for each session that has a place in its class or waits
 * for one, and that one may see. */
Datum
giveway_class_sessions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int number = 0; number < admit_place_count(); number++)
	{
		PlaceUsage	usage;
		Row			row = {0};

		if (!admit_place_at(number, &usage) || !may_see(usage.pid))
			continue;
		add(&row, Int32GetDatum(usage.pid), false);
		add(&row, NameGetDatum(&usage.class), false);
		add(&row, CStringGetTextDatum(usage.waits ? "waiting" : "running"), false);
		add(&row, TimestampTzGetDatum(usage.since), false);
		add(&row, BoolGetDatum(usage.demoted), false);
		tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

/* giveway_role_settings(role): a row for each setting that its sessions have from it. */
Datum
giveway_role_settings(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int			values[TERM_COUNT];
	Oid			from[TERM_COUNT];

	InitMaterializedSRF(fcinfo, 0);
	role_settings(PG_GETARG_OID(0), values, from);
	for (Term term = 0; term < TERM_COUNT; term++)
	{
		Row			row = {0};

		if (values[term] == NOT_SAID)
			continue;
		add(&row, CStringGetTextDatum(term_name(term)), false);
		add(&row, CStringGetTextDatum(term_text(term, values[term])), false);
		add(&row, ObjectIdGetDatum(from[term]), false);
		tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

static void
add_item(ReturnSetInfo *result, const char *item, const char *value)
{
	Row			row = {0};

	add(&row, CStringGetTextDatum(item), false);
	add(&row, CStringGetTextDatum(value), false);
	tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
}

/* How many slots are taken, and how many of them by this cluster. */
static void
count_slots(unsigned int *used, unsigned int *ours)
{
	int			pid;

	*used = *ours = 0;
	for (unsigned int index = 1; index < slot_count(); index++)
	{
		*used += SLOT_LOAD(slot_at(index)->owner) != 0;
		*ours += slot_is_of_cluster(slot_at(index), &pid);
	}
}

/* giveway_slot_usage(): one row. */
Datum
giveway_slot_usage(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		without_room = slot_without_room();
	bool		none = slot_count() == 0;
	unsigned int used;
	unsigned int ours;
	Row			row = {0};

	InitMaterializedSRF(fcinfo, 0);
	count_slots(&used, &ours);
	add(&row, Int32GetDatum(none ? 0 : slot_count() - 1), none);
	add(&row, Int32GetDatum(used), none);
	add(&row, Int32GetDatum(ours), none);
	add(&row, Int64GetDatum(without_room), without_room < 0);
	tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
	return (Datum) 0;
}

/* What to do about a table that has not a slot for each process that there may be. */
static const char *
warn_of_room(void)
{
	int			processes = MaxBackends + NUM_AUXILIARY_PROCS;

	return slot_count() - 1 >= processes ? "" :
		psprintf("; the server may have %d processes, and those without a slot have no ceiling: load UFS with \"giveway start -- --hint-slots N\"",
				 processes);
}

static void
add_table_items(ReturnSetInfo *result)
{
	unsigned int used;
	unsigned int ours;

	count_slots(&used, &ours);
	add_item(result, "slots", psprintf("%u of %u in use, %u by this cluster%s",
									   used, slot_count() - 1, ours, warn_of_room()));
	add_item(result, "scheduler",
			 SLOT_LOAD(slot_table()->scheduler) ? "UFS reads the table" :
			 "UFS is not attached: load it with \"giveway start\"");
	add_item(result, "this session",
			 slot_is_held() ? "has a slot" :
			 slot_mine() ? "has lost its slot to another process; it will get another" :
			 "has no slot: there was no room; it will try again");
}

/* giveway_status(): what works here, and what to do about what does not. */
Datum
giveway_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *reason;
	HintsMode	mode;
	int			error;

	InitMaterializedSRF(fcinfo, 0);
	add_item(result, "preloaded", launcher_is_registered() ? "yes" :
			 "no: name giveway in shared_preload_libraries, or only sessions that load it count");
	mode = hints_resolve(settings.hints, &reason);
	add_item(result, "hints", reason ? psprintf("off: %s", reason) : hints_name(mode));
	add_item(result, "enabled", settings.enabled ? "yes" : "no: giveway.enabled is off");
	error = slot_open_awaited(settings.dir);
	add_item(result, "table", error ? slot_open_remedy(error) : "mapped");
	if (error == 0)
		add_table_items(result);
	return (Datum) 0;
}
