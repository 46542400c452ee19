/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread of the server says to UFS, and whether it can.
 *
 * slot.c has the design. Each function is for any thread, and none of them waits.
 */
#ifndef GIVEWAY_MARIADB_SLOT_H
#define GIVEWAY_MARIADB_SLOT_H

/* The tier is one of GIVEWAY_SLOT_TIER_; the weight 1 to 10000. */
struct claim {
	unsigned char tier;
	unsigned short weight;
};

/* Once, before all others. dir: NULL for the usual one; it is not copied. */
void slot_begin(const char *dir);
/* The last: no thread may be in another of these functions. */
void slot_end(void);

/* The calling thread is as claimed until it says otherwise. */
void slot_say(struct claim claim);
/* It has its cgroup's tier, and keeps its slot. */
void slot_rest(void);
/* The same, and the slot is given back. */
void slot_leave(void);

/* Why tiers have no effect, with the remedy; NULL if they have. */
const char *slot_trouble(void);
/* How many slots threads of this server have. */
unsigned int slot_count(void);
/* How often a thread found no room. */
unsigned long long slot_without_room(void);

#endif
