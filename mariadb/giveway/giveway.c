/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MariaDB's sessions have a tier and a weight, which UFS obeys: SET giveway_tier.
 *
 * UFS asks the thread's slot in the hint table (giveway/slot.h). In PostgreSQL a session
 * is a process. Here the server's setting thread_handling decides which threads run it:
 *
 *	one-thread-per-connection	its own, from connect to disconnect; the server
 *					keeps the thread for another session then
 *	pool-of-threads			for each command whichever is free; meanwhile
 *					the session has no thread
 *
 * The server tells an audit plugin what happens, on the thread where it happens:
 *
 *	event			own thread		pool
 *	CONNECT			session begins, say	session begins
 *	LOG: a command begins	say			say
 *	table locked		(not listened for)	say: nothing else tells when the
 *						second statement of a packet begins
 *	SET giveway_...		say			say
 *	STATUS: command ends	say			rest
 *	DISCONNECT		leave			leave
 *
 * say: the thread's slot says what the session wants. rest: the thread is as its
 * cgroup. leave: it has no slot. An own thread keeps its tier between commands, so
 * that it wakes up in it. A pool's thread may not: the next session would start with
 * the tier of the last.
 *
 * WHO MAY WHAT. Anybody sets giveway_tier and giveway_weight of its session. What counts
 * is the lower of that and of the ceilings giveway_max_tier and giveway_max_weight,
 * which only SET GLOBAL changes, so SUPER. The ceilings do not hold for a session whose
 * user, when the session begins, has SUPER or is one of
 * giveway_time_sensitive_users. That is decided once, and not by SET: a routine with
 * SQL SECURITY DEFINER runs with its definer's privileges, and would pass its caller
 * through. The value is kept, and clamped where it is used, so it does not matter by
 * which of the many kinds of SET it came.
 *
 * WHAT A SESSION BEGINS WITH is the global value, or what the lists of users say. A
 * reset of the connection loses it as it loses all variables, the hidden ones of this
 * plugin included: by these we see at the end of that command that the session has to
 * begin again. It is the same with a change of user, whose own event names the user
 * before. So a session that was there before the plugin begins with the end of its
 * first command. Threads of the server's own, of replication or of events, have no
 * connection and no commands: they do not begin, and have a tier only if they SET one.
 *
 * THE SERVER'S SYMBOLS. Plugins have no interface for a user's privileges, name and
 * thread handling. Three symbols that the server exports are looked up. Without them,
 * nobody passes the ceilings by a privilege, sessions begin again without the lists,
 * and threads are taken for a pool's, which is right for both kinds.
 *
 * LICENCE. The server's headers are under version 2 of the GPL, and so is this.
 *
 * WEAKNESS. In a pool, the first steps of each command run in the tier of the server's
 * cgroup, as do statements after the first of one packet until they lock a table.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mysql/plugin.h>
#include <mysql/plugin_audit.h>

#include <giveway/slot.h>
#include <giveway/tier.h>

#include "slot.h"

/* As the names below are ordered. */
enum { TIER_BACKGROUND, TIER_CGROUP, TIER_TIME_SENSITIVE };

static const char *tier_names[] = {"background", "cgroup", "time_sensitive", NULL};
static const char *ceiling_names[] = {"background", "time_sensitive", NULL};
static TYPELIB tiers = {3, "", tier_names, NULL};
static TYPELIB ceilings = {2, "", ceiling_names, NULL};

/* ---- The server's symbols ---- */

/* bool check_global_access(THD *, privilege_t, bool no_errors): true if refused. */
static char (*lacks_privilege)(MYSQL_THD, unsigned long long, char);
static const char *(*user_of)(MYSQL_THD, size_t *);
static unsigned long *thread_handling;

#define SUPER_ACL (1ULL << 15)
#define ONE_THREAD_PER_CONNECTION 0

static void find_symbols(void)
{
	*(void **)&lacks_privilege =
		dlsym(RTLD_DEFAULT, "_Z19check_global_accessP3THD11privilege_tb");
	*(void **)&user_of = dlsym(RTLD_DEFAULT, "thd_priv_user");
	thread_handling = dlsym(RTLD_DEFAULT, "thread_handling");
}

static int is_pool(void)
{
	return !thread_handling || *thread_handling != ONE_THREAD_PER_CONNECTION;
}

static int is_privileged(MYSQL_THD thd)
{
	return lacks_privilege && !lacks_privilege(thd, SUPER_ACL, 1);
}

/* ---- Settings ---- */

static void update_tier(MYSQL_THD, struct st_mysql_sys_var *, void *, const void *);
static void update_weight(MYSQL_THD, struct st_mysql_sys_var *, void *, const void *);
static void update_users(MYSQL_THD, struct st_mysql_sys_var *, void *, const void *);

#define HIDDEN (PLUGIN_VAR_NOSYSVAR | PLUGIN_VAR_NOCMDOPT)

static MYSQL_THDVAR_ENUM(tier, PLUGIN_VAR_RQCMDARG,
			 "Tier of the session; cgroup: that of the server's cgroup", NULL,
			 update_tier, TIER_CGROUP, &tiers);
static MYSQL_THDVAR_UINT(weight, PLUGIN_VAR_RQCMDARG,
			 "Share of CPU time among the sessions of the tier", NULL, update_weight,
			 GIVEWAY_WEIGHT_DEFAULT, GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX, 1);
/* The session has begun; its tier was set, not by us; no ceiling holds for it. */
static MYSQL_THDVAR_BOOL(begun, HIDDEN, "", NULL, NULL, 0);
static MYSQL_THDVAR_BOOL(tier_set, HIDDEN, "", NULL, NULL, 0);
static MYSQL_THDVAR_BOOL(unlimited, HIDDEN, "", NULL, NULL, 0);

static char enabled;
static unsigned long max_tier;
static unsigned int max_weight;
static char *background_users;
static char *time_sensitive_users;
static char *hints_dir;

static MYSQL_SYSVAR_BOOL(enabled, enabled, PLUGIN_VAR_OPCMDARG,
			 "OFF: every session has the tier of the server's cgroup", NULL, NULL, 1);
static MYSQL_SYSVAR_ENUM(max_tier, max_tier, PLUGIN_VAR_RQCMDARG,
			 "Highest tier of sessions without SUPER", NULL, NULL,
			 1, &ceilings);
static MYSQL_SYSVAR_UINT(max_weight, max_weight, PLUGIN_VAR_RQCMDARG,
			 "Highest weight of sessions without SUPER", NULL,
			 NULL, GIVEWAY_WEIGHT_MAX, GIVEWAY_WEIGHT_MIN, GIVEWAY_WEIGHT_MAX, 1);
static MYSQL_SYSVAR_STR(background_users, background_users, PLUGIN_VAR_RQCMDARG,
			"Users whose sessions begin in the background, by comma", NULL,
			update_users, "");
static MYSQL_SYSVAR_STR(time_sensitive_users, time_sensitive_users, PLUGIN_VAR_RQCMDARG,
			"Users whose sessions begin time-sensitive and have no ceiling, by comma",
			NULL, update_users, "");
static MYSQL_SYSVAR_STR(hints_dir, hints_dir, PLUGIN_VAR_READONLY,
			"Directory of the hint table; default /run/giveway/bpf", NULL, NULL, NULL);

static struct st_mysql_sys_var *variables[] = {
	MYSQL_SYSVAR(tier),
	MYSQL_SYSVAR(weight),
	MYSQL_SYSVAR(begun),
	MYSQL_SYSVAR(tier_set),
	MYSQL_SYSVAR(unlimited),
	MYSQL_SYSVAR(enabled),
	MYSQL_SYSVAR(max_tier),
	MYSQL_SYSVAR(max_weight),
	MYSQL_SYSVAR(background_users),
	MYSQL_SYSVAR(time_sensitive_users),
	MYSQL_SYSVAR(hints_dir),
	NULL,
};

/* Guards the two lists, which are memory of ours once they were SET. */
static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;
static char *own_lists[2];

static char **own_list(void *variable)
{
	return &own_lists[variable == &time_sensitive_users];
}

static void update_users(MYSQL_THD thd, struct st_mysql_sys_var *var, void *variable,
			 const void *save)
{
	const char *said = *(char *const *)save;
	char *copy = strdup(said ? said : "");

	(void)thd;
	(void)var;
	pthread_mutex_lock(&lists);
	free(*own_list(variable));
	*own_list(variable) = copy;
	*(char **)variable = copy;
	pthread_mutex_unlock(&lists);
}

/* Whether a list names that user. */
static int names(char *const *list, const char *user, size_t length)
{
	const char *at;
	int found = 0;

	pthread_mutex_lock(&lists);
	for (at = *list ? *list : ""; *at && !found; at += strcspn(at, ",")) {
		size_t size;

		at += strspn(at, ", ");
		size = strcspn(at, ",");
		while (size && at[size - 1] == ' ')
			size--;
		found = size && size == length && !memcmp(at, user, length);
	}
	pthread_mutex_unlock(&lists);
	return found;
}

/* ---- What a session wants ---- */

static struct claim claim_of(MYSQL_THD thd)
{
	static const unsigned char in_slot[] = {
		[TIER_BACKGROUND] = GIVEWAY_SLOT_TIER_BACKGROUND,
		[TIER_CGROUP] = GIVEWAY_SLOT_TIER_CGROUP,
		[TIER_TIME_SENSITIVE] = GIVEWAY_SLOT_TIER_TIME_SENSITIVE,
	};
	struct claim claim = {GIVEWAY_SLOT_TIER_CGROUP, GIVEWAY_WEIGHT_DEFAULT};
	unsigned long tier = THDVAR(thd, tier);
	unsigned int weight = THDVAR(thd, weight);

	if (!enabled)
		return claim;
	if (!THDVAR(thd, unlimited)) {
		if (max_tier == 0)
			tier = TIER_BACKGROUND;
		if (weight > max_weight)
			weight = max_weight;
	}
	claim.tier = in_slot[tier];
	claim.weight = (unsigned short)weight;
	return claim;
}

static void say(MYSQL_THD thd)
{
	slot_say(claim_of(thd));
}

static void begin_session(MYSQL_THD thd, const char *user, size_t length)
{
	int urgent = user && names(&time_sensitive_users, user, length);
	int background = user && names(&background_users, user, length);

	THDVAR(thd, begun) = 1;
	THDVAR(thd, unlimited) = urgent || is_privileged(thd);
	if (THDVAR(thd, tier_set))
		return;
	if (background)
		THDVAR(thd, tier) = TIER_BACKGROUND;
	else if (urgent)
		THDVAR(thd, tier) = TIER_TIME_SENSITIVE;
}

static void update_tier(MYSQL_THD thd, struct st_mysql_sys_var *var, void *variable,
			const void *save)
{
	(void)var;
	*(unsigned long *)variable = *(const unsigned long *)save;
	if (variable == &THDVAR(NULL, tier))
		return;
	THDVAR(thd, tier_set) = 1;
	say(thd);
}

static void update_weight(MYSQL_THD thd, struct st_mysql_sys_var *var, void *variable,
			  const void *save)
{
	(void)var;
	*(unsigned int *)variable = *(const unsigned int *)save;
	if (variable != &THDVAR(NULL, weight))
		say(thd);
}

/* ---- What the server tells ---- */

static void connection(MYSQL_THD thd, const struct mysql_event_connection *event)
{
	if (event->event_subclass == MYSQL_AUDIT_CONNECTION_DISCONNECT) {
		slot_leave();
		return;
	}
	if (event->event_subclass != MYSQL_AUDIT_CONNECTION_CONNECT || event->status)
		return;
	begin_session(thd, event->priv_user, event->priv_user_length);
	if (!is_pool())
		say(thd);
}

static void command(MYSQL_THD thd, const struct mysql_event_general *event)
{
	const char *user;
	size_t length = 0;

	switch (event->event_subclass) {
	case MYSQL_AUDIT_GENERAL_LOG:
		if (THDVAR(thd, begun))
			say(thd);
		break;
	case MYSQL_AUDIT_GENERAL_STATUS:
		if (!THDVAR(thd, begun)) {
			user = user_of ? user_of(thd, &length) : NULL;
			begin_session(thd, user, length);
		}
		if (is_pool())
			slot_rest();
		else
			say(thd);
		break;
	default:
		break;
	}
}

static void notify(MYSQL_THD thd, unsigned int class, const void *event)
{
	if (!thd)
		return;
	if (class == MYSQL_AUDIT_GENERAL_CLASS)
		command(thd, event);
	else if (class == MYSQL_AUDIT_CONNECTION_CLASS)
		connection(thd, event);
	else if (THDVAR(thd, begun))
		say(thd);
}

static struct st_mysql_audit descriptor = {
	MYSQL_AUDIT_INTERFACE_VERSION,
	NULL,
	notify,
	{MYSQL_AUDIT_GENERAL_CLASSMASK | MYSQL_AUDIT_CONNECTION_CLASSMASK},
};

/* ---- SHOW STATUS LIKE 'giveway%' ---- */

static int show(struct st_mysql_show_var *var, char *buffer, const char *text)
{
	var->type = SHOW_CHAR;
	var->value = buffer;
	snprintf(buffer, SHOW_VAR_FUNC_BUFF_SIZE, "%s", text);
	return 0;
}

#define SHOW_FUNCTION(name)                                                             \
	static int name(MYSQL_THD thd, struct st_mysql_show_var *var, void *buffer,     \
			struct system_status_var *all, enum enum_var_type scope)

SHOW_FUNCTION(show_status)
{
	const char *trouble = enabled ? slot_trouble() : "giveway_enabled is OFF";

	(void)thd, (void)all, (void)scope;
	return show(var, buffer, trouble ? trouble : "on");
}

SHOW_FUNCTION(show_tier)
{
	static const char *const names_in_slot[] = {
		[GIVEWAY_SLOT_TIER_CGROUP] = "cgroup",
		[GIVEWAY_SLOT_TIER_BACKGROUND] = "background",
		[GIVEWAY_SLOT_TIER_TIME_SENSITIVE] = "time_sensitive",
	};

	(void)all, (void)scope;
	return show(var, buffer, names_in_slot[thd ? claim_of(thd).tier : 0]);
}

SHOW_FUNCTION(show_slots)
{
	(void)thd, (void)all, (void)scope;
	*(unsigned int *)buffer = slot_count();
	var->type = SHOW_UINT;
	var->value = buffer;
	return 0;
}

SHOW_FUNCTION(show_without_room)
{
	(void)thd, (void)all, (void)scope;
	*(unsigned long long *)buffer = slot_without_room();
	var->type = SHOW_ULONGLONG;
	var->value = buffer;
	return 0;
}

static struct st_mysql_show_var status[] = {
	{"Giveway_session_tier", (void *)show_tier, SHOW_FUNC},
	{"Giveway_slots", (void *)show_slots, SHOW_FUNC},
	{"Giveway_status", (void *)show_status, SHOW_FUNC},
	{"Giveway_without_room", (void *)show_without_room, SHOW_FUNC},
	{NULL, NULL, SHOW_UNDEF},
};

/* ---- Loading ---- */

static int load(void *unused)
{
	(void)unused;
	find_symbols();
	if (is_pool())
		descriptor.class_mask[0] |= MYSQL_AUDIT_TABLE_CLASSMASK;
	slot_begin(hints_dir);
	return 0;
}

/* The server has let go of every session's hold on the plugin. */
static int unload(void *unused)
{
	(void)unused;
	slot_end();
	background_users = time_sensitive_users = NULL;
	free(own_lists[0]);
	free(own_lists[1]);
	own_lists[0] = own_lists[1] = NULL;
	return 0;
}

#pragma GCC visibility push(default)
maria_declare_plugin(giveway){
	MYSQL_AUDIT_PLUGIN,
	&descriptor,
	"giveway",
	"Giveway",
	"Tells UFS the tier of each session",
	PLUGIN_LICENSE_GPL,
	load,
	unload,
	0x0001,
	status,
	variables,
	"0.1",
	MariaDB_PLUGIN_MATURITY_GAMMA,
} maria_declare_plugin_end;
#pragma GCC visibility pop
