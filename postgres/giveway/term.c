/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * term.c
 *		How are tiers, weights and their ceilings written?
 *
 * These four are what a session asks for and is allowed, what a role says of its
 * sessions, and what giveway_set() takes: here are their names and their values as text.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "giveway.h"

const struct config_enum_entry term_tiers[] = {
	{"background", TIER_BACKGROUND, false},
	{"cgroup", TIER_CGROUP, false},
	{"time_sensitive", TIER_TIME_SENSITIVE, false},
	{NULL, 0, false}
};

const struct config_enum_entry term_ceilings[] = {
	{"background", TIER_BACKGROUND, false},
	{"time_sensitive", TIER_TIME_SENSITIVE, false},
	{NULL, 0, false}
};

/* The name of its setting. */
const char *
term_name(Term term)
{
	static const char *const names[] = {
		[TERM_TIER] = "giveway.tier",
		[TERM_WEIGHT] = "giveway.weight",
		[TERM_MAX_TIER] = "giveway.max_tier",
		[TERM_MAX_WEIGHT] = "giveway.max_weight",
	};

	return names[term];
}

/* The words that it can be, or NULL: it is a number. */
static const struct config_enum_entry *
words_of(Term term)
{
	return term == TERM_TIER ? term_tiers : term == TERM_MAX_TIER ? term_ceilings : NULL;
}

/* The value that is written so; NOT_SAID if none is. */
int
term_parse(Term term, const char *text)
{
	const struct config_enum_entry *word = words_of(term);
	int			weight;

	if (word == NULL)
		return parse_int(text, &weight, 0, NULL) && weight >= GIVEWAY_WEIGHT_MIN &&
			weight <= GIVEWAY_WEIGHT_MAX ? weight : NOT_SAID;
	for (; word->name; word++)
		if (pg_strcasecmp(text, word->name) == 0)
			return word->val;
	return NOT_SAID;
}

/* How this value, which the term can have, is written. */
const char *
term_text(Term term, int value)
{
	const struct config_enum_entry *word = words_of(term);

	if (word == NULL)
		return psprintf("%d", value);
	while (word->val != value)
		word++;
	return word->name;
}
