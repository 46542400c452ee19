/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * settings.c
 *		What was asked for, and what is allowed.
 *
 * Any session may ask for a tier and a weight.  A ceiling for each limits what it
 * gets; superusers set ceilings, also by ALTER ROLE and ALTER DATABASE, and so do
 * roles granted SET ON PARAMETER.  The lower of the two holds.  Asking for more is no error: the order in which role,
 * database and session settings are applied does not matter then, and a lifted
 * ceiling takes effect by itself.  A session that asks for no tier has its cgroup's.
 *
 * Assign hooks run in SET, at the end of SET LOCAL and of functions with a SET
 * clause, in rollback, reload, parallel workers and the postmaster.  They may
 * not fail and may not read catalogs.  Ours remember the value and store it in
 * the slot, if this process has one; PostgreSQL undoes them as it does any
 * setting, and that is all there is to transactions here.
 *
 * The values in "settings" are those the hooks were last called with; the
 * variables below belong to PostgreSQL, which assigns them after the hooks.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include <giveway/hints.h>

#include "giveway.h"

Settings	settings;

static bool enabled_variable;
static int	tier_variable;
static int	weight_variable;
static int	max_tier_variable;
static int	max_weight_variable;
static int	hints_variable;
static bool heavyweight_variable;
static char *dir_variable;
static char *kinds_variable;
static bool classes_variable;
static int	max_classes_variable;

static const struct config_enum_entry tiers[] = {
	{"background", TIER_BACKGROUND, false},
	{"cgroup", TIER_CGROUP, false},
	{"time_sensitive", TIER_TIME_SENSITIVE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry ceilings[] = {
	{"background", TIER_BACKGROUND, false},
	{"time_sensitive", TIER_TIME_SENSITIVE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry modes[] = {
	{"auto", HINTS_AUTO, false},
	{"stock", HINTS_STOCK, false},
	{"patched", HINTS_PATCHED, false},
	{"off", HINTS_OFF, false},
	{NULL, 0, false}
};

#define DEFAULT_SYSTEM_PROCESSES \
	"walwriter=time_sensitive, checkpointer=time_sensitive, " \
	"walsender=time_sensitive, io worker=time_sensitive, " \
	"startup=time_sensitive, autovacuum worker=background"

static void
assign_enabled(bool value, void *extra)
{
	settings.enabled = value;
	publish_tier();
	publish_hints();
}

/* What is to be kept with a value until it is assigned, and undone with it. */
static void *
keep(const void *what, size_t size)
{
#if PG_VERSION_NUM >= 160000
	void	   *kept = guc_malloc(LOG, size);
#else
	void	   *kept = malloc(size);
#endif

	if (kept)
		memcpy(kept, what, size);
	return kept;
}

/* Remember whether it is the process's own: a process of a special kind heeds
 * no other (publish.c). */
static bool
check_tier(int *value, void **extra, GucSource source)
{
	bool		is_own = source >= PGC_S_DATABASE;

	*extra = keep(&is_own, sizeof(is_own));
	return *extra != NULL;
}

static void
assign_tier(int value, void *extra)
{
	settings.tier = value;
	settings.tier_is_own = *(bool *) extra;
	publish_tier();
}

static void
assign_weight(int value, void *extra)
{
	settings.weight = value;
	publish_tier();
}

static void
assign_max_tier(int value, void *extra)
{
	settings.max_tier = value;
	publish_tier();
}

static void
assign_max_weight(int value, void *extra)
{
	settings.max_weight = value;
	publish_tier();
}

static void
assign_hints(int value, void *extra)
{
	settings.hints = value;
	publish_hints();
}

static void
assign_heavyweight(bool value, void *extra)
{
	settings.heavyweight = value;
	publish_hints();
}

static bool
check_dir(char **value, void **extra, GucSource source)
{
	if (strlen(*value) < sizeof(giveway_dir_))
		return true;
	GUC_check_errdetail("The name of a directory of hints has at most %d bytes.",
						(int) sizeof(giveway_dir_) - 1);
	return false;
}

static void
assign_dir(const char *value, void *extra)
{
	/* The string lives as long as the setting does. */
	settings.dir = unconstify(char *, value);
}

static bool
check_kinds(char **value, void **extra, GucSource source)
{
	KindTiers	parsed;
	char	   *problem = NULL;

	if (!kind_parse(*value, &parsed, &problem))
	{
		GUC_check_errdetail("%s", problem);
		return false;
	}
	*extra = keep(&parsed, sizeof(parsed));
	return *extra != NULL;
}

static void
assign_kinds(const char *value, void *extra)
{
	settings.kinds = *(KindTiers *) extra;
	publish_tier();
}

static void
assign_classes(bool value, void *extra)
{
	settings.classes = value;
}

static void
assign_max_classes(int value, void *extra)
{
	settings.max_classes = value;
}

/* Define them all.  In shared_preload_libraries, or when a session loads us. */
void
settings_define(void)
{
	DefineCustomBoolVariable("giveway.enabled",
							 "Says whether sessions tell UFS their tier, weight and locks.",
							 "If off, they are treated as their cgroup is.",
							 &enabled_variable, true, PGC_SUSET, 0,
							 NULL, assign_enabled, NULL);
	DefineCustomEnumVariable("giveway.tier",
							 "Says whether somebody waits for what this session does.",
							 "\"background\" work gets the CPU that \"time_sensitive\" work leaves; "
							 "\"cgroup\" is what the server's cgroup is. "
							 "What holds is the lower of this and giveway.max_tier.",
							 &tier_variable, TIER_CGROUP, tiers,
							 PGC_USERSET, GUC_REPORT,
							 check_tier, assign_tier, NULL);
	DefineCustomIntVariable("giveway.weight",
							"Sets this session's share of the CPU among those of its tier and cgroup.",
							"What holds is the lower of this and giveway.max_weight.",
							&weight_variable, GIVEWAY_WEIGHT_DEFAULT,
							GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX,
							PGC_USERSET, GUC_REPORT,
							NULL, assign_weight, NULL);
	DefineCustomEnumVariable("giveway.max_tier",
							 "Sets the highest tier that this session can have.",
							 NULL,
							 &max_tier_variable, TIER_TIME_SENSITIVE, ceilings,
							 PGC_SUSET, 0,
							 NULL, assign_max_tier, NULL);
	DefineCustomIntVariable("giveway.max_weight",
							"Sets the highest weight that this session can have.",
							NULL,
							&max_weight_variable, GIVEWAY_WEIGHT_MAX,
							GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX,
							PGC_SUSET, 0,
							NULL, assign_max_weight, NULL);
	DefineCustomEnumVariable("giveway.hints",
							 "Sets how UFS learns which lightweight locks and spinlocks are held.",
							 "\"patched\" needs a server with the lock-hint patch, \"stock\" works with "
							 "any, \"auto\" takes the best there is.",
							 &hints_variable, HINTS_AUTO, modes,
							 PGC_SUSET, 0,
							 NULL, assign_hints, NULL);
	DefineCustomBoolVariable("giveway.heavyweight_hints",
							 "Says whether holders of table, row and advisory locks are helped, too.",
							 "Such locks are held to the end of the transaction.",
							 &heavyweight_variable, false, PGC_SUSET, 0,
							 NULL, assign_heavyweight, NULL);
	DefineCustomStringVariable("giveway.hints_dir",
							   "Sets the directory of the table that UFS reads.",
							   "Processes that use a table already stay with it.",
							   &dir_variable, GIVEWAY_HINTS_DIR, PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY,
							   check_dir, assign_dir, NULL);
	DefineCustomStringVariable("giveway.system_processes",
							   "Sets the tiers of the server's own processes.",
							   "A list of \"kind=tier\"; kinds are those of pg_stat_activity.backend_type.",
							   &kinds_variable, DEFAULT_SYSTEM_PROCESSES, PGC_SIGHUP,
							   0,
							   check_kinds, assign_kinds, NULL);
	DefineCustomBoolVariable("giveway.classes",
							 "Says whether the limits of this session's class hold.",
							 "If off, its statements run at once and are not counted.",
							 &classes_variable, true, PGC_SUSET, 0,
							 NULL, assign_classes, NULL);
	/* Of use at the start of the server only. */
	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("giveway.max_classes",
								"Sets how many classes of all databases can be in use at a time.",
								NULL,
								&max_classes_variable, 64, 1, 10000,
								PGC_POSTMASTER, 0,
								NULL, assign_max_classes, NULL);
	MarkGUCPrefixReserved("giveway");
}
