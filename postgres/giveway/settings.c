/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * settings.c
 *		What was asked for, and what is allowed.
 *
 * Any session may ask for a tier and a weight.  A ceiling for each limits what it
 * gets; superusers set ceilings, also by ALTER ROLE and ALTER DATABASE, and so do
 * roles granted SET ON PARAMETER.  The lower of the two holds.  Asking for more is no
 * error: the order in which role, database and session settings are applied does not
 * matter then, and a lifted ceiling takes effect by itself.  A session that asks for no
 * tier has its cgroup's.  What other roles than its own say is added by role.c.
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

Settings	settings = {.roles = {NOT_SAID, NOT_SAID, NOT_SAID, NOT_SAID}};

static bool enabled_variable;
static int	variables[TERM_COUNT];
static int	follow_role_variable;
static bool role_raises_variable;
static int	hints_variable;
static bool heavyweight_variable;
static bool io_priority_variable;
static char *dir_variable;
static char *kinds_variable;
static bool classes_variable;
static int	max_classes_variable;

static const struct config_enum_entry follows[] = {
	{"off", FOLLOW_OFF, false},
	{"membership", FOLLOW_MEMBERSHIP, false},
	{"current", FOLLOW_CURRENT, false},
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

/* Remember where it comes from: role.c and publish.c weigh that. */
static bool
check_term(int *value, void **extra, GucSource source)
{
	*extra = keep(&source, sizeof(source));
	return *extra != NULL;
}

static void
assign_term(Term term, int value, void *extra)
{
	settings.own[term] = value;
	settings.source[term] = *(GucSource *) extra;
	publish_tier();
}

static void
assign_tier(int value, void *extra)
{
	assign_term(TERM_TIER, value, extra);
}

static void
assign_weight(int value, void *extra)
{
	assign_term(TERM_WEIGHT, value, extra);
}

static void
assign_max_tier(int value, void *extra)
{
	assign_term(TERM_MAX_TIER, value, extra);
}

static void
assign_max_weight(int value, void *extra)
{
	assign_term(TERM_MAX_WEIGHT, value, extra);
}

static void
assign_follow_role(int value, void *extra)
{
	settings.follow_role = value;
	role_recall();
}

static void
assign_role_raises(bool value, void *extra)
{
	settings.role_raises = value;
	role_recall();
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
assign_io_priority(bool value, void *extra)
{
	settings.io_priority = value;
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
							 &variables[TERM_TIER], TIER_CGROUP, term_tiers,
							 PGC_USERSET, GUC_REPORT,
							 check_term, assign_tier, NULL);
	DefineCustomIntVariable("giveway.weight",
							"Sets this session's share of the CPU among those of its tier and cgroup.",
							"What holds is the lower of this and giveway.max_weight.",
							&variables[TERM_WEIGHT], GIVEWAY_WEIGHT_DEFAULT,
							GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX,
							PGC_USERSET, GUC_REPORT,
							check_term, assign_weight, NULL);
	DefineCustomEnumVariable("giveway.max_tier",
							 "Sets the highest tier that this session can have.",
							 NULL,
							 &variables[TERM_MAX_TIER], TIER_TIME_SENSITIVE, term_ceilings,
							 PGC_SUSET, 0,
							 check_term, assign_max_tier, NULL);
	DefineCustomIntVariable("giveway.max_weight",
							"Sets the highest weight that this session can have.",
							NULL,
							&variables[TERM_MAX_WEIGHT], GIVEWAY_WEIGHT_MAX,
							GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX,
							PGC_SUSET, 0,
							check_term, assign_max_weight, NULL);
	DefineCustomEnumVariable("giveway.follow_role",
							 "Sets whose tiers, weights and ceilings this session has, "
							 "beside its role's at its start.",
							 "\"membership\": also those of roles that its role is a member of; "
							 "\"current\": those of the role that SET ROLE has made current. "
							 "Needs giveway in shared_preload_libraries.",
							 &follow_role_variable, FOLLOW_OFF, follows,
							 PGC_SUSET, 0,
							 NULL, assign_follow_role, NULL);
	DefineCustomBoolVariable("giveway.role_raises",
							 "Says whether ceilings of roles that this session follows hold in place "
							 "of its own.",
							 "If off, they can only lower it.",
							 &role_raises_variable, false, PGC_SUSET, 0,
							 NULL, assign_role_raises, NULL);
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
	DefineCustomBoolVariable("giveway.io_priority",
							 "Says whether background queries that only read give way at the disk.",
							 "Needs giveway in shared_preload_libraries, and a disk with the scheduler "
							 "mq-deadline or bfq.",
							 &io_priority_variable, false, PGC_SUSET, 0,
							 NULL, assign_io_priority, NULL);
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
