/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * publish.c
 *		What this process's slot says, made from its settings and its kind.
 *
 *						tier					weight		locks
 *		session			min(asked, ceiling)		the same	as giveway.hints
 *		special kind	giveway.system_processes	100			as giveway.hints
 *		 told to yield	min(that, asked)		100			as giveway.hints
 *		 SQL of a user	min(these, ceiling)		min(100, as a session)	as giveway.hints
 *		enabled = off	the cgroup's			cgroup's	none
 *
 * To that is added what somebody else has imposed on it (imposed.c), unless enabled is
 * off.
 *
 * The order is background, cgroup, time_sensitive: a process that asks for no
 * tier has its cgroup's, and a ceiling of background lowers that, too.  A special
 * process is lowered only by settings of its own, such as those of a pg_basebackup
 * connection; giveway.tier in postgresql.conf is meant for sessions.
 *
 * WHO WINS, where the session follows roles (role.c).  The order is PostgreSQL's, with
 * these roles in the place of the role that logged in:
 *
 *		asked		SET, or the client's options; else the roles'; else what was set for the
 *					role that logged in, the database or all
 *		ceiling		SET; else the lower of the roles' and what was set for the role that
 *					logged in, the database or all; with giveway.role_raises just the roles'
 *
 * So roles that are followed raise a session to its ceiling and no further, unless an
 * administrator has let them.  Who can say SET of a ceiling has the right to any.
 *
 * These are stores; without a slot they are nothing.  Called from assign hooks.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "giveway.h"

/* Whether the roles' word on it does not count, or there is none. */
static bool
is_sessions(Term term)
{
	return settings.roles[term] == NOT_SAID || settings.source[term] > PGC_S_DATABASE_USER;
}

static int
asked(Term term)
{
	return is_sessions(term) ? settings.own[term] : settings.roles[term];
}

static int
ceiling(Term term)
{
	if (is_sessions(term))
		return settings.own[term];
	return settings.role_raises ? settings.roles[term] :
		Min(settings.own[term], settings.roles[term]);
}

/* The tier of this process, which is of a special kind. */
static int
tier_of_kind(int kind)
{
	int			tier = settings.kinds.tier[kind];
	bool		is_own = settings.source[TERM_TIER] >= PGC_S_DATABASE;

	if (is_own && settings.own[TERM_TIER] != TIER_CGROUP)
		tier = Min(tier, settings.own[TERM_TIER]);
	if (kind_runs_sql_for_a_user(kind))
		tier = Min(tier, ceiling(TERM_MAX_TIER));
	return tier;
}

static int
weight_of_session(void)
{
	return Min(asked(TERM_WEIGHT), ceiling(TERM_MAX_WEIGHT));
}

/* The weight of this process, which is of a special kind. */
static int
weight_of_kind(int kind)
{
	return kind_runs_sql_for_a_user(kind) ?
		Min(GIVEWAY_WEIGHT_DEFAULT, weight_of_session()) : GIVEWAY_WEIGHT_DEFAULT;
}

/* Say the tier and the weight that hold for this process now. */
void
publish_tier(void)
{
	struct giveway_slot *slot = slot_mine();
	int			kind;

	if (slot == NULL)
		return;
	kind = kind_of_me();
	if (!settings.enabled)
	{
		imposed_withdraw();
		SLOT_STORE(slot->tier, GIVEWAY_SLOT_TIER_CGROUP);
		SLOT_STORE(slot->weight, 0);
	}
	else if (kind >= 0 && settings.kinds.tier[kind] != KIND_TIER_NONE)
		imposed_publish(slot, (Claim) {tier_of_kind(kind), weight_of_kind(kind)});
	else
		imposed_publish(slot, (Claim) {Min(asked(TERM_TIER), ceiling(TERM_MAX_TIER)),
						weight_of_session()});
}

/* Begin, change or end hints about this process's locks. */
void
publish_hints(void)
{
	struct giveway_slot *slot = slot_mine();
	const char *reason;

	if (slot)
		hints_apply(slot,
					hints_resolve(settings.enabled ? settings.hints : HINTS_OFF, &reason),
					settings.heavyweight);
}

/*
 * Say the same on behalf of a process that does not itself.  Its locks can be
 * told only if UFS reads them out of its memory: in the stock mode.
 */
void
publish_for(struct giveway_slot *slot, int tier)
{
	const char *reason;
	HintsMode	mode = hints_resolve(settings.hints, &reason);

	slot_say(slot, (Claim) {tier, GIVEWAY_WEIGHT_DEFAULT});
	hints_describe(&slot->reader, mode, settings.heavyweight);
}
