/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * kind.c
 *		Which kind of process is this, and is it special?
 *
 * The checkpointer has no role and runs no SET command, and yet transactions wait
 * for it; the WAL writer, WAL senders and 18's I/O workers likewise.  No session
 * waits for autovacuum.  giveway.system_processes names kinds of processes and their
 * tiers:
 *
 *		walwriter=time_sensitive, autovacuum worker=background
 *
 * Names are those of pg_stat_activity.backend_type, of any version: one
 * postgresql.conf serves them all.  A kind that is not listed is treated as a
 * session is, if it runs transactions, and is left in its cgroup otherwise.
 *
 * A WAL sender of a database (replication=database) takes SQL from its client as
 * a session does, and a background worker with a database may run anybody's: that of
 * subscribers, pg_cron, pg_background.  So a session's ceilings hold for them.  One
 * without a database runs no SQL, and is not given its role's settings either.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "replication/walsender.h"

#include "giveway.h"

typedef struct Kind
{
	const char *name;
	BackendType type;			/* B_INVALID: unknown to this version */

	/*
	 * Whether it runs transactions, from which it attaches itself.  The
	 * launcher attaches the others.
	 */
	bool		attaches_itself;
} Kind;

#if PG_VERSION_NUM < 170000
#define B_WAL_SUMMARIZER	B_INVALID
#define B_SLOTSYNC_WORKER	B_INVALID
#endif
#if PG_VERSION_NUM < 180000
#define B_IO_WORKER			B_INVALID
#endif

static const Kind kinds[] = {
	{"archiver", B_ARCHIVER, false},
	{"autovacuum launcher", B_AUTOVAC_LAUNCHER, true},
	{"autovacuum worker", B_AUTOVAC_WORKER, true},
	{"background worker", B_BG_WORKER, true},
	{"background writer", B_BG_WRITER, false},
	{"checkpointer", B_CHECKPOINTER, false},
	{"io worker", B_IO_WORKER, false},
	{"slotsync worker", B_SLOTSYNC_WORKER, true},
	{"startup", B_STARTUP, false},
	{"walreceiver", B_WAL_RECEIVER, false},
	{"walsender", B_WAL_SENDER, true},
	{"walsummarizer", B_WAL_SUMMARIZER, false},
	{"walwriter", B_WAL_WRITER, false},
};

StaticAssertDecl(lengthof(kinds) <= KIND_COUNT, "KIND_COUNT is too small");

/* The kind of a process of this type, or -1 if it has none. */
int
kind_of(BackendType type)
{
	if (type == B_INVALID)
		return -1;
	for (int kind = 0; kind < lengthof(kinds); kind++)
		if (kinds[kind].type == type)
			return kind;
	return -1;
}

/* The kind of this process.  A parallel worker is part of its session. */
int
kind_of_me(void)
{
	if (IsParallelWorker())
		return -1;
	return kind_of(MyBackendType);
}

/* Whether this process, of this kind, does what some user tells it in SQL. */
bool
kind_runs_sql_for_a_user(int kind)
{
	switch (kinds[kind].type)
	{
		case B_BG_WORKER:
			return OidIsValid(MyDatabaseId);
		case B_WAL_SENDER:
			return am_db_walsender;
		default:
			return false;
	}
}

bool
kind_attaches_itself(int kind)
{
	return kinds[kind].attaches_itself;
}

/* Cut the blanks around [*start, *end). */
static void
trim(const char **start, const char **end)
{
	while (*start < *end && isspace((unsigned char) **start))
		(*start)++;
	while (*end > *start && isspace((unsigned char) (*end)[-1]))
		(*end)--;
}

static bool
equals(const char *start, const char *end, const char *word)
{
	size_t		length = strlen(word);

	return end - start == length && pg_strncasecmp(start, word, length) == 0;
}

/* One "name=tier"; false with a description of the problem, palloc'd. */
static bool
parse_item(const char *start, const char *end, KindTiers *tiers, char **problem)
{
	const char *equal = memchr(start, '=', end - start);
	const char *name_end = equal ? equal : end;
	const char *word = equal ? equal + 1 : end;
	int			tier;

	trim(&start, &name_end);
	trim(&word, &end);
	if (equals(word, end, "background"))
		tier = TIER_BACKGROUND;
	else if (equals(word, end, "time_sensitive"))
		tier = TIER_TIME_SENSITIVE;
	else
	{
		*problem = psprintf("\"%.*s\" is not followed by \"=background\" or \"=time_sensitive\".",
							(int) (name_end - start), start);
		return false;
	}
	for (int kind = 0; kind < lengthof(kinds); kind++)
	{
		if (equals(start, name_end, kinds[kind].name))
		{
			tiers->tier[kind] = tier;
			return true;
		}
	}
	*problem = psprintf("\"%.*s\" is no kind of process; see pg_stat_activity.backend_type.",
						(int) (name_end - start), start);
	return false;
}

/*
 * Read a list of "name=tier", separated by commas.  The last of two entries
 * for one kind holds.  Returns false, with *problem set, if it cannot be read.
 */
bool
kind_parse(const char *list, KindTiers *tiers, char **problem)
{
	for (int kind = 0; kind < KIND_COUNT; kind++)
		tiers->tier[kind] = KIND_TIER_NONE;
	while (*list)
	{
		const char *start = list;
		const char *end = start + strcspn(start, ",");

		list = *end ? end + 1 : end;
		trim(&start, &end);
		if (start < end && !parse_item(start, end, tiers, problem))
			return false;
	}
	return true;
}
