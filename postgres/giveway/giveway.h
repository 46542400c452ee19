/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * giveway.h
 *		The interfaces between the extension's files.
 *
 *	file			question					uses
 *	giveway.c		when does a process get a slot and write to it?		all
 *	attach.c		when does it look for one?							slot, hints, imposed, role, publish
 *	launcher.c		how do processes that run no SQL get slots?			slot, hints, kind, admit
 *	view.c			what do slots say now?								slot, hints, imposed, admit, role
 *	settings.c		what was asked for, what is allowed?				role, publish, term
 *	role.c			what do the session's roles say of that?			publish, term, shared
 *	publish.c		what does this process's slot say?					slot, hints, kind, imposed
 *	imposed.c		what has somebody else imposed on a session?		slot, term, shared
 *	statement.c		which statements need a place in their class?		attach, admit, class, imposed, role, io
 *	admit.c			who may run a statement now?						class, imposed, shared
 *	class.c			which class is this session's, with what limits?	settings
 *	hints.c			how does UFS learn of locks?						calibrate
 *	calibrate.c		where does a stock server keep them?
 *	io.c			when does a background process give way at the disk?	slot
 *	kind.c			which kind of process is this, and is it special?
 *	slot.c			where is the table, which slots are claimed?		shared (asserts by hints)
 *	term.c			how are tiers and weights written?
 *	shared.c		where is the memory that the cluster's processes share?
 *
 * giveway.c opens with the protocol.
 */
#ifndef GIVEWAY_EXTENSION_H
#define GIVEWAY_EXTENSION_H

#include "datatype/timestamp.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include <giveway/slot.h>
#include <giveway/tier.h>

/* One store, one load: UFS and other processes read meanwhile. */
#define SLOT_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define SLOT_LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* Hidden: other libraries may use the same names. */
#pragma GCC visibility push(hidden)

/* What can be asked for, in the order in which a ceiling holds it down. */
typedef enum Tier
{
	TIER_BACKGROUND,
	TIER_CGROUP,				/* whatever its cgroup's is */
	TIER_TIME_SENSITIVE
} Tier;

#define TIER_NOT_SAID	(-1)
#define WEIGHT_NOT_SAID	0

/* What a process asks of UFS, or what is asked of it. */
typedef struct Claim
{
	int			tier;			/* Tier, or TIER_NOT_SAID */
	int			weight;			/* or WEIGHT_NOT_SAID */
} Claim;

/* shared.c */
typedef struct SharedPart
{
	const char *name;
	Size		(*size) (void);
	void		(*initialize) (void *memory);	/* which is zero; or NULL */
	void	  **memory;			/* where it is */
	const char *tranche;		/* of its lightweight locks, if it has any */
	int			(*lock_count) (void);	/* NULL: none */
	LWLockPadded **locks;		/* where these are */
} SharedPart;

extern void shared_ask(const SharedPart *part);

/* slot.c */
extern void slot_preload(void);
extern int	slot_open(const char *dir, void (*leave) (void));
extern bool slot_is_asked_for(void);
extern void slot_await_answer(void);
extern int	slot_open_awaited(const char *dir);
extern const struct giveway_header *slot_table(void);
extern unsigned int slot_count(void);
extern struct giveway_slot *slot_at(unsigned int index);
extern const char *slot_open_remedy(int error);
extern uint64 slot_domain(void);
extern struct giveway_slot *slot_mine(void);
extern struct giveway_slot *slot_attach(void);
extern void slot_detach(void);
extern bool slot_is_held(void);
extern bool slot_is_outdated(void);
extern int64 slot_without_room(void);
extern uint64 slot_name(int pid);
extern struct giveway_slot *slot_named(uint64 name);
extern struct giveway_slot *slot_find(int pid);
extern struct giveway_slot *slot_claim_for(int pid);
extern void slot_release(struct giveway_slot *slot);
extern bool slot_is_of_cluster(const struct giveway_slot *slot, int *pid);
extern int	slot_sweep(void);
extern unsigned char slot_tier(int tier);
extern void slot_say(struct giveway_slot *slot, Claim claim);

/* attach.c */
extern void attach(void);
extern void attach_again(void);
extern void attach_before_statement(void);

/* term.c */
typedef enum Term
{
	TERM_TIER,					/* of type Tier */
	TERM_WEIGHT,
	TERM_MAX_TIER,
	TERM_MAX_WEIGHT
} Term;

#define TERM_COUNT (TERM_MAX_WEIGHT + 1)
#define NOT_SAID (-1)

extern const struct config_enum_entry term_tiers[];
extern const struct config_enum_entry term_ceilings[];
extern const char *term_name(Term term);
extern int	term_parse(Term term, const char *text);
extern const char *term_text(Term term, int value);

/* kind.c */
#define KIND_COUNT 16			/* kinds with a name, and room */
#define KIND_TIER_NONE (-1)		/* it is treated as a session is */

typedef struct KindTiers
{
	signed char tier[KIND_COUNT];	/* Tier or KIND_TIER_NONE */
} KindTiers;

extern bool kind_parse(const char *list, KindTiers *tiers, char **problem);
extern int	kind_of(BackendType type);
extern bool kind_attaches_itself(int kind);
extern int	kind_of_me(void);
extern bool kind_runs_sql_for_a_user(int kind);

/* calibrate.c */
typedef struct Calibration
{
	uint64		nheld_addr;		/* 0: not found */
	uint64		held_addr;
	const char *doubt;			/* why not, if it was not found */
} Calibration;

extern const Calibration *calibrate(const struct giveway_lock_record *copy);

/* hints.c */
typedef enum HintsMode
{
	HINTS_OFF,
	HINTS_STOCK,
	HINTS_PATCHED,
	HINTS_AUTO
} HintsMode;

extern HintsMode hints_resolve(HintsMode asked, const char **reason);
extern const char *hints_name(HintsMode mode);
extern void hints_describe(struct giveway_reader *reader, HintsMode mode, bool heavyweight);
extern void hints_apply(struct giveway_slot *slot, HintsMode mode, bool heavyweight);
extern bool hints_are_in(const struct giveway_slot *slot);
extern void hints_take_back(void);

/* settings.c */
typedef enum FollowRole
{
	FOLLOW_OFF,
	FOLLOW_MEMBERSHIP,			/* the session's role, and those it is a member of */
	FOLLOW_CURRENT				/* the role after SET ROLE, likewise */
} FollowRole;

typedef struct Settings
{
	bool		enabled;
	int			own[TERM_COUNT];	/* the session's */
	GucSource	source[TERM_COUNT]; /* where it has it from */
	int			roles[TERM_COUNT];	/* as role.c finds them, or NOT_SAID */
	FollowRole	follow_role;
	bool		role_raises;	/* above the session's ceilings */
	HintsMode	hints;			/* as asked for: see hints_resolve() */
	bool		heavyweight;
	bool		io_priority;
	KindTiers	kinds;
	char	   *dir;
	bool		classes;		/* whether their limits hold */
	int			max_classes;
} Settings;

extern Settings settings;
extern void settings_define(void);

/* role.c */
extern void role_preload(void);
extern void role_follow(void);
extern void role_recall(void);
extern void role_join(void);
extern void role_settings(Oid role, int *values, Oid *from);

/* imposed.c */
typedef struct Imposed
{
	Claim		claim;
	bool		by_right;		/* own settings and ceilings regardless */
} Imposed;

extern void imposed_preload(void);
extern void imposed_publish(struct giveway_slot *slot, Claim own);
extern void imposed_withdraw(void);
extern void imposed_discard(void);
extern void imposed_demote(const PGPROC *leader, bool demoted);
extern int	imposed_count(void);
extern int	imposed_at(int number, Imposed *imposed);

/* class.c */
#define NO_LIMIT (-1)

/* What a class allows its sessions. */
typedef struct Limits
{
	NameData	class;
	int			concurrency;	/* statements that run at a time, or NO_LIMIT */
	int64		queue_timeout_ms;	/* or NO_LIMIT */
	uint64		demote_after_ns;	/* of CPU time; 0: never */
	int			work_mem_kb;	/* or NO_LIMIT, as the next */
	int			parallel_workers;	/* for each Gather */
} Limits;

extern void class_watch(void);
extern const Limits *class_limits(void);
extern void class_apply(void);

/* admit.c */
typedef struct ClassUsage
{
	NameData	class;
	int			running;
	int			waiting;
	int64		admitted;
	int64		waited;			/* of these, those that had to wait */
	int64		waited_us;		/* also of those that gave up */
	int64		timeouts;
	int64		cancelled;
	int64		let_in;			/* of those admitted, beyond the limit */
	int64		demotions;
} ClassUsage;

typedef struct PlaceUsage
{
	NameData	class;
	int			pid;
	bool		waits;
	bool		demoted;
	TimestampTz since;
} PlaceUsage;

extern void admit_preload(void);
extern void admit_enter(bool spare, bool pins);
extern void admit_leave(void);
extern void admit_worker_ends(void);
extern void admit_demote(void);
extern int	admit_class_count(void);
extern bool admit_class_at(int number, ClassUsage *usage);
extern int	admit_place_count(void);
extern bool admit_place_at(int number, PlaceUsage *usage);

/* awaited.c */
extern bool awaited_by_lock(void);
extern bool somebody_awaits_pin(void);

/* io.c */
extern bool io_enter(void);
extern void io_leave(void);

/* statement.c */
extern void statement_preload(void);

/* publish.c */
extern void publish_tier(void);
extern void publish_hints(void);
extern void publish_for(struct giveway_slot *slot, int tier);

/* launcher.c */
extern void launcher_register(void);
extern bool launcher_is_registered(void);

#pragma GCC visibility pop

#endif
