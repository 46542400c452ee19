/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hint slots: what a task says about itself (UFS paper, Sections 4 and 5.2).
 *
 * giveway/slot.h is the contract: a mapped table in which a thread writes its
 * tier, its weight and its locks with plain stores. UFS is not told of a store. It
 * reads slots where it has to decide anyway: at wake-up, at enqueue, when a CPU
 * chooses between its task and others, when a task stops, and at the tick.
 *
 * A TABLE FOR EACH USER. A process that maps a table may write all of it, so a table
 * applies to its user's tasks only: UFS searches for a task in the table of the task's
 * effective user, as the kernel has it. User and rights are the task's own (real_cred), not
 * those that the kernel lends it (cred): overlayfs has every task act as whoever has mounted
 * it. The loader makes tables, passes each to its user only, and enters it in table_users. A
 * slot's number is that of its table, and in the lower slot_bits that of its page.
 *
 * FINDING THE SLOT. A task searches for a slot of its name when header.claims has
 * changed since its last search, when its user has changed, or when there are more
 * tables; at most LOOKS_MAX times per LOOK_NS (once if the table has been so full that
 * a search is long). It keeps the number. For a task without a slot, hints cost only
 * that comparison.
 *
 *	             claims changed, slot of my name found
 *	  slot 0  <------------------------------------->  slot n
 *	             owner is not me, version is 0, or my user has changed
 *
 * WHICH HINTS APPLY. background: always. time_sensitive above the cgroup's tier: if
 * the task's real user is root, or its groups contain --hint-raise-gid. This is checked
 * each time, since credentials have no identity with which a result could be kept.
 * A weight from 1 to 10000; anything else is the default. A task of the policy
 * SCHED_IDLE is background as if its cgroup were.
 *
 * INHERITANCE. A task has the hint of its own slot; else, if it is a thread, that of the
 * slot of its process's first thread; else the hint that its process, or the parent of
 * that, had at fork. So threads follow their process at once, and a child keeps its
 * parent's hint, as it keeps a nice value, until its process has a slot. The right to
 * rise is always checked for the task itself, so inheritance alone raises no task.
 *
 * A CHANGE OF TIER never affects a task that waits in a queue: it takes effect when the
 * task is enqueued, or when it is running and dispatch looks at it. The virtual runtimes
 * of the two tiers do not compare, so a task keeps one for each and continues with it:
 * changing the tier and back gains nothing.
 *
 * INVARIANTS
 *   1. task_ctx.slot is 0 or was found to have the task's name as the kernel has it; it
 *      is compared again before every use. (not asserted: that comparison may fail at
 *      any time, since the user's programs write the table)
 *   2. No number from the table is used as an index or an address here. (not asserted:
 *      the verifier rejects an index without a bound)
 *   3. Only UFS writes state_of(slot); what a program writes into the table gets there
 *      by apply_hints() and take_snapshot(), which bound it. (not asserted: user space
 *      cannot map it)
 *   4. What is in state_of(slot), and in the sets of slots, is the doing of the task whose
 *      slot UFS found last: a task whose slot another one has claimed since writes nothing
 *      there, though its task_ctx.slot still has the number. (has_state() is asked before;
 *      not asserted)
 *
 * WEAKNESSES: an inherited hint is in no slot, so it is lost when UFS is loaded again. A
 * task that sleeps, or that waits in a queue, changes its tier when it next wakes up or
 * runs, even if another thread writes its slot. A slot that is claimed for it meanwhile
 * counts from its first tick after it woke up. A claim among many is noticed late. A
 * program that changes header.claims all the time makes every task search LOOKS_MAX
 * times per LOOK_NS.
 */
#ifndef UFS_HINTS_H
#define UFS_HINTS_H

#define LOOK_NS (1000 * 1000ULL)
#define LOOKS_MAX 4
/* Steps of a search among the 65536 groups that a task can have. */
#define GROUPS_STEPS 17

#ifndef SCHED_IDLE
#define SCHED_IDLE 5
#endif

/* A task's hint in one word: a slot's tier, and above it the weight. */
enum hint {
	HINT_NONE = 0,
	HINT_TIER = 0xff,
	HINT_WEIGHT_SHIFT = 16,
};

/* A user's table. How long each is the loader decides. */
struct user_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct giveway_slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UFS_TABLES_MAX);
	__type(key, u32);
	__array(values, struct user_table);
} user_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ufs_tables);
} table_users SEC(".maps");

/* A snapshot of a task's slot when it last left a CPU, and what UFS derives from it.
 * Everything but .boosted is written by the owner's callbacks only. */
struct slot_state {
	u64 domain;
	u64 wait;		/* locks waited for: asleep, spinning */
	u64 wait_spin;
	u64 spin;
	u64 held[UFS_HELD_SEEN];
	u32 tranche[UFS_HELD_SEEN];
	u32 blocker[UFS_BLOCKERS];	/* slots whose owners hold what it waits for */
	u32 nheld;
	u32 nblockers;
	u32 event;		/* of the patch-free reader; 0: not in use */
	u32 asks;		/* enum asks: what the event means */
	u32 state_off;		/* of the reader, for its owner's locks */
	u32 waiters_bit;
	u32 runnable;		/* left the CPU without going to sleep */
	u32 awaited;		/* urgent work has waited for it since it left the CPU */
	u64 sleeps_since;	/* for a lightweight lock, time-sensitive; 0: it does not */
	/* It has woken the owner of a slot that waited for something: see HANDING OVER. */
	u64 handed;		/* what that one waited for; 0: it has woken none */
	u64 handing;		/* the same when it left its CPU */
	u32 handed_to;
	u32 uid;
	u32 pid;
	u32 tier;
	/* By the task that boosts it; see boost.bpf.h. */
	u32 boosted;		/* enum ufs_boost */
	u64 boost_lock;
	u64 boost_since;	/* 0: it has begun just now */
	u64 no_boost_until;	/* the owner's, see there */
	struct giveway_report report;
	/* Published by the loader beside the owner's report. */
	u64 boosted_runs;
	u64 floor_runs;
	u32 wake_ns_log2[UFS_HIST_BUCKETS];
} __attribute__((aligned(64)));

struct slot_state slot_states[UFS_SLOTS_MAX];
u64 nr_looks;

/* A set of slots. A slot is added and removed by its owner's callbacks, one after the
 * other; .members is changed after the bit, so it is 0 only while the set has no slot
 * that was added before it was read. */
struct slot_set {
	u64 words[UFS_SLOT_WORDS];
	u64 members __begins_line;
} __attribute__((aligned(64)));

/* Slots whose owners left their CPU waiting for something; see boost.bpf.h. */
struct slot_set waiters;

static __always_inline u64 set_word(struct slot_set *set, u32 word)
{
	return READ_ONCE(set->words[word & (UFS_SLOT_WORDS - 1)]);
}

static __always_inline bool set_has(struct slot_set *set, u32 slot)
{
	return set_word(set, slot >> 6) & (1ULL << (slot & 63));
}

static __always_inline bool set_is_empty(struct slot_set *set)
{
	return !READ_ONCE(set->members);
}

/* A full barrier either way. True: the set has changed. */
static __always_inline bool set_put(struct slot_set *set, u32 slot, bool in)
{
	u64 *word = &set->words[(slot >> 6) & (UFS_SLOT_WORDS - 1)], bit = 1ULL << (slot & 63);
	bool was_in = (in ? __sync_fetch_and_or(word, bit) : __sync_fetch_and_and(word, ~bit)) &
		      bit;

	if (was_in == in)
		return false;
	__sync_fetch_and_add(&set->members, in ? 1 : -1);
	return true;
}

static __always_inline struct ufs_tables *tables(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&table_users, &only);
}

static __always_inline u32 table_of(u32 slot)
{
	return slot >> slot_bits;
}

static __always_inline struct giveway_slot *page_of(u32 table, u32 index)
{
	void *pages = bpf_map_lookup_elem(&user_tables, &table);

	return pages ? bpf_map_lookup_elem(pages, &index) : NULL;
}

static __always_inline struct giveway_slot *slot_at(u32 slot)
{
	return page_of(table_of(slot), slot & ((1U << slot_bits) - 1));
}

static __always_inline struct giveway_header *header_of(u32 table)
{
	return (struct giveway_header *)page_of(table, 0);
}

/* Words of a set of slots that may have members. */
static __always_inline u32 slot_words(void)
{
	struct ufs_tables *list = tables();

	return list ? ((READ_ONCE(list->nr) << slot_bits) + 63) >> 6 : 0;
}

/* Of a set, the words that have slots of the table of @slot: from this one on, */
static __always_inline u32 first_word(u32 slot)
{
	return (table_of(slot) << slot_bits) >> 6;
}

/* and up to this one. */
static __always_inline u32 end_word(u32 slot)
{
	return (((table_of(slot) + 1) << slot_bits) + 63) >> 6;
}

/* The table of this user; UFS_TABLES_MAX: none. */
__once u32 find_table(u32 uid)
{
	struct ufs_tables *list = tables();
	u32 i;

	if (!list)
		return UFS_TABLES_MAX;
	bpf_for(i, 0, UFS_TABLES_MAX) {
		if (i >= READ_ONCE(list->nr))
			break;
		if (READ_ONCE(list->uid[i & (UFS_TABLES_MAX - 1)]) == uid)
			return i;
	}
	return UFS_TABLES_MAX;
}

static __always_inline u32 user_of(struct task_struct *p)
{
	return p->real_cred->euid.val;
}

static __always_inline struct slot_state *state_of(u32 slot)
{
	return &slot_states[slot & (UFS_SLOTS_MAX - 1)];
}

/* Whether the task has a slot whose state is its own: invariant 4. */
static __always_inline bool has_state(struct task_ctx *tc)
{
	return tc->slot && READ_ONCE(state_of(tc->slot)->pid) == tc->pid;
}

/* The task's name in the table: its number and its pid namespace. */
static __always_inline u64 name_of(struct task_struct *p)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	u32 level = BPF_CORE_READ(pid, level);
	struct upid upid;

	if (level > 32 || bpf_core_read(&upid, sizeof(upid), &pid->numbers[level]))
		return 0;
	return giveway_owner(upid.nr, BPF_CORE_READ(upid.ns, ns.inum));
}

/* The slot of this name in this table, if its version is valid; else 0. @far: also where
 * only a table that was nearly full has it, by its user's own word. */
__once u32 find_slot(u32 table, u64 owner, bool far)
{
	struct giveway_header *head = header_of(table);
	u32 nr = nr_slots, index, probes, i;

	if (nr < 2 || !owner || !head || table >= UFS_TABLES_MAX)
		return 0;
	probes = giveway_slot_probes(far ? READ_ONCE(head->reach) : 0, nr);
	bpf_for(i, 0, probes) {
		struct giveway_slot *slot;

		index = giveway_slot_probe(owner, i, nr);
		slot = page_of(table, index);
		index |= table << slot_bits;
		if (slot && READ_ONCE(slot->owner) == owner)
			return READ_ONCE(slot->version) == GIVEWAY_SLOT_VERSION &&
				       index < UFS_SLOTS_MAX ? index : 0;
	}
	return 0;
}

__once int forget_slot(struct task_ctx *tc __arg_nonnull);

__once int search_slot(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tc = task_ctx(p);
	struct ufs_tables *list = tables();
	struct giveway_header *head;
	u64 now = scx_bpf_now();
	struct slot_state *state;
	u32 found;

	if (!tc || !list)
		return 0;
	if (time_delta(now, tc->looked_at) >= LOOK_NS) {
		tc->looked_at = now;
		tc->looks = 0;
	}
	if (++tc->looks > LOOKS_MAX)
		return 0;
	tc->tables_seen = READ_ONCE(list->nr);
	tc->uid = user_of(p);
	tc->table = find_table(tc->uid);
	head = header_of(tc->table);
	tc->claims_seen = head ? READ_ONCE(head->claims) : 0;
	/* A long search is the last of its kind for now. */
	if (head && READ_ONCE(head->reach) > GIVEWAY_SLOT_PROBES)
		tc->looks = LOOKS_MAX;
	/* A full barrier: what is found is as new as claims. */
	__sync_fetch_and_add(&nr_looks, 1);
	/* Each time: exec() in a thread gives it another number. */
	tc->owner = name_of(p);
	found = find_slot(tc->table, tc->owner, true);
	tc->process_slot = 0;
	if (p->pid != p->tgid) {
		tc->process_owner = name_of(BPF_CORE_READ(p, group_leader));
		tc->process_slot = find_slot(tc->table, tc->process_owner, true);
	}
	/* A slot of the process replaces the inherited hint. */
	if (p->pid == p->tgid ? found : tc->process_slot)
		tc->inherited = HINT_NONE;
	if (found == tc->slot && (!found || has_state(tc)))
		return 0;
	forget_slot(tc);
	tc->slot = found;
	if (!found)
		return 0;
	state = state_of(found);
	__builtin_memset(state, 0, sizeof(*state));
	tc->pid = p->pid;
	state->pid = p->pid;
	state->uid = tc->uid;
	state->no_boost_until = tc->no_boost_until;
	stat_inc(UFS_HINT_SLOT);
	return 0;
}

/* Whether the task may be above its cgroup's tier. The kernel keeps groups sorted. */
__once bool may_raise(struct task_struct *p __arg_trusted)
{
	const struct cred *cred = p->real_cred;
	struct group_info *groups_of;
	u32 i, gid, first = 0, end;

	if (cred->uid.val == 0)
		return true;
	if (hint_raise_gid == (u32)-1)
		return false;
	if (cred->egid.val == hint_raise_gid)
		return true;
	groups_of = BPF_CORE_READ(cred, group_info);
	end = BPF_CORE_READ(groups_of, ngroups);
	bpf_for(i, 0, GROUPS_STEPS) {
		u32 middle = first + (end - first) / 2;

		if (first >= end || bpf_core_read(&gid, sizeof(gid), &groups_of->gid[middle]))
			break;
		if (gid == hint_raise_gid)
			return true;
		if (gid < hint_raise_gid)
			first = middle + 1;
		else
			end = middle;
	}
	return false;
}

static __always_inline u32 load_of(u32 weight)
{
	if (weight == 0 || weight == GIVEWAY_WEIGHT_DEFAULT || weight > GIVEWAY_WEIGHT_MAX)
		return LOAD_ONE;
	return weight * LOAD_ONE / GIVEWAY_WEIGHT_DEFAULT;
}

static __always_inline bool is_slot_of(u32 index, u64 owner)
{
	struct giveway_slot *slot = slot_at(index);

	return slot && READ_ONCE(slot->owner) == owner &&
	       READ_ONCE(slot->version) == GIVEWAY_SLOT_VERSION;
}

static __always_inline bool is_own_slot(struct task_ctx *tc)
{
	return is_slot_of(tc->slot, tc->owner);
}

static __always_inline u32 hint_in(u32 index)
{
	struct giveway_slot *slot = slot_at(index);

	return slot ? READ_ONCE(slot->tier) | (u32)READ_ONCE(slot->weight) << HINT_WEIGHT_SHIFT :
		      HINT_NONE;
}

/* The task's hint: of its slot, or inherited. False: the slot that it came from is lost. */
static __always_inline bool hint_of(struct task_struct *p, struct task_ctx *tc, u32 *hint)
{
	if (tc->slot || tc->process_slot) {
		if (user_of(p) != tc->uid)
			return false;
		if (tc->slot ? !is_own_slot(tc) : !is_slot_of(tc->process_slot, tc->process_owner))
			return false;
		*hint = hint_in(tc->slot ? tc->slot : tc->process_slot);
	} else {
		*hint = tc->inherited;
	}
	return true;
}

/* The tier that the task is in without a hint. */
static __always_inline u32 plain_tier(struct task_struct *p, struct task_ctx *tc)
{
	if (unlikely(p->policy == SCHED_IDLE) && !(p->flags & PF_KTHREAD) &&
	    p->tgid != loader_tgid)
		return GIVEWAY_TIER_BACKGROUND;
	return tc->cgroup_tier;
}

static __always_inline bool has_idle_policy(struct task_struct *p)
{
	return p->policy == SCHED_IDLE;
}

/* The tier and weight that the task is to have by its hint, as far as it has the right.
 * False: the slot that the hint came from is lost. */
static __always_inline bool resolve_hint(struct task_struct *p, struct task_ctx *tc, u32 *tier,
				     u32 *load)
{
	u32 hint = HINT_NONE, asked;

	*tier = plain_tier(p, tc);
	*load = LOAD_ONE;
	if (!hint_of(p, tc, &hint))
		return false;
	asked = hint & HINT_TIER;
	*load = load_of(hint >> HINT_WEIGHT_SHIFT);
	if (asked == GIVEWAY_SLOT_TIER_BACKGROUND) {
		*tier = GIVEWAY_TIER_BACKGROUND;
	} else if (asked == GIVEWAY_SLOT_TIER_TIME_SENSITIVE && *tier == GIVEWAY_TIER_BACKGROUND) {
		if (may_raise(p)) {
			*tier = GIVEWAY_TIER_TIME_SENSITIVE;
		} else {
			if (has_state(tc))
				state_of(tc->slot)->report.refused++;
			stat_inc(UFS_HINT_REFUSED);
		}
	}
	return true;
}

/* Whether the task should search for a slot: one was claimed or released in its user's
 * table, its user has changed, or there are more tables. */
static __always_inline bool should_search(struct task_struct *p, struct task_ctx *tc)
{
	struct ufs_tables *list = tables();
	struct giveway_header *head;

	if (list && (unlikely(READ_ONCE(list->nr) != tc->tables_seen) ||
		     unlikely(user_of(p) != tc->uid)))
		return true;
	if (tc->table >= UFS_TABLES_MAX)
		return false;
	head = header_of(tc->table);
	return head && unlikely(READ_ONCE(head->claims) != tc->claims_seen);
}

/* The hint that a new task inherits from the task that forks it: a process its parent's
 * hint, a thread what its process inherited. */
__once u32 inherited_hint(struct task_struct *p __arg_trusted, bool is_thread)
{
	struct task_ctx *tc = task_ctx(p);
	u32 slot, table;

	if (!tc)
		return HINT_NONE;
	if (is_thread)
		return tc->inherited;
	slot = tc->slot ? tc->slot : tc->process_slot;
	/* It may have claimed a slot since it was last scheduled. */
	if (should_search(p, tc)) {
		table = find_table(user_of(p));
		slot = find_slot(table, name_of(p), true);
		if (!slot && p->pid != p->tgid)
			slot = find_slot(table, name_of(BPF_CORE_READ(p, group_leader)), true);
	}
	return slot ? hint_in(slot) : tc->inherited;
}

/* Change tier and weight of a task that is in no queue, and is charged up to now. */
__once int retier(struct task_ctx *tc __arg_nonnull, u32 tier, u32 load)
{
	bool counted = tc->counted;
	u64 vtime;

	uncount_runnable(tc, scx_bpf_now());
	if (tier != tc->tier) {
		vtime = tc->vtime;
		tc->vtime = tc->vtime_elsewhere;
		tc->vtime_elsewhere = vtime;
		tc->tier = tier & 1;
		stat_inc(UFS_HINT_TIER);
	}
	tc->load = load;
	if (counted)
		count_runnable(tc);
	return 0;
}

__once int apply_slot(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tc = task_ctx(p);
	u32 tier, load;

	if (!tc)
		return 0;
	tc->idle_policy = has_idle_policy(p);
	if (!resolve_hint(p, tc, &tier, &load)) {
		forget_slot(tc);
		tc->slot = 0;
		tc->process_slot = 0;
	} else if (has_state(tc)) {
		state_of(tc->slot)->tier = tier;
	}
	if (tier != tc->tier || load != tc->load)
		retier(tc, tier, load);
	return 0;
}

/* Whether anything but its cgroup may decide the task's tier. */
static __always_inline bool has_hint(struct task_ctx *tc)
{
	return tc->slot || tc->process_slot || tc->inherited;
}

/* Whether the task's hint differs from what the task has, or is lost. */
__once bool slot_differs(struct task_struct *p __arg_trusted, struct task_ctx *tc __arg_nonnull)
{
	u32 tier, load;

	return !resolve_hint(p, tc, &tier, &load) || tier != tc->tier || load != tc->load;
}

/* Some cgroup has changed its tier, maybe the task's. Tasks of the root, kernel threads
 * among them, keep theirs. */
static __always_inline void apply_cgroup_tier(struct task_struct *p, struct task_ctx *tc)
{
	tc->moves_seen = READ_ONCE(tier_moves);
	if (tc->group)
		tc->cgroup_tier = READ_ONCE(group(tc->group)->tier) & 1;
	apply_slot(p);
}

/* Whether the task has become SCHED_IDLE, or has been. */
static __always_inline bool policy_changed(struct task_struct *p, struct task_ctx *tc)
{
	return has_idle_policy(p) != (bool)tc->idle_policy;
}

/* Apply what has changed of the task's hint, cgroup and policy. It is in no queue, and
 * charged up to now. Mostly nothing has changed; that is checked here, since
 * apply_slot() has to look its context up again. @search: also for another slot. */
static __always_inline void apply_changes(struct task_struct *p, struct task_ctx *tc, bool search)
{
	if (unlikely(READ_ONCE(tier_moves) != tc->moves_seen))
		apply_cgroup_tier(p, tc);
	if (unlikely(policy_changed(p, tc)))
		apply_slot(p);
	if (!hints_on)
		return;
	if (search && should_search(p, tc)) {
		search_slot(p);
		apply_slot(p);
	} else if (unlikely(has_hint(tc)) && slot_differs(p, tc)) {
		apply_slot(p);
	}
}

static __always_inline void apply_hints(struct task_struct *p, struct task_ctx *tc)
{
	apply_changes(p, tc, true);
}

/* The same of a task that wakes up. It looked for a slot when it went to sleep. If another
 * thread has claimed one for it since, it finds that at its first tick or when it stops. */
static __always_inline void apply_hints_awake(struct task_struct *p, struct task_ctx *tc)
{
	apply_changes(p, tc, false);
}

/* Whether apply_hints() would do something for the task that runs. */
static __always_inline bool hints_changed(struct task_struct *p, struct task_ctx *tc)
{
	if (unlikely(READ_ONCE(tier_moves) != tc->moves_seen || policy_changed(p, tc)))
		return true;
	if (!hints_on)
		return false;
	if (should_search(p, tc))
		return true;
	return unlikely(has_hint(tc)) && slot_differs(p, tc);
}

/* The task has exited: its slot is free. */
static __always_inline void reclaim_slot(struct task_ctx *tc)
{
	struct giveway_slot *slot = tc->slot ? slot_at(tc->slot) : NULL;
	struct giveway_header *head = header_of(table_of(tc->slot));

	if (!slot || !head ||
	    __sync_val_compare_and_swap(&slot->owner, tc->owner, GIVEWAY_OWNER_LEAVING) != tc->owner)
		return;
	WRITE_ONCE(slot->version, 0);
	/* A full barrier: invariant 2 of the table. */
	__sync_val_compare_and_swap(&slot->owner, GIVEWAY_OWNER_LEAVING, 0);
	__sync_fetch_and_add(&head->claims, 1);
	stat_inc(UFS_HINT_RECLAIM);
}

/* The task was waiting for a lock when it left its CPU. */
static __always_inline bool was_waiting(struct task_ctx *tc)
{
	return has_state(tc) && set_has(&waiters, tc->slot);
}

/* Write the owner's report into its slot. */
static __always_inline void publish_report(struct task_ctx *tc)
{
	struct giveway_slot *slot = slot_at(tc->slot);
	struct giveway_report *report = &state_of(tc->slot)->report;

	report->tier = tc->tier;
	report->weight = tc->load * GIVEWAY_WEIGHT_DEFAULT / LOAD_ONE;
	if (slot)
		__builtin_memcpy(&slot->report, report, sizeof(*report));
}

#endif
