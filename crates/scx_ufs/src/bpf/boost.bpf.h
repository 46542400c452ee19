/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Boosts: a background task runs before its tier while time-sensitive work waits for a
 * lock that it holds (UFS paper, Sections 4 and 5.2).
 *
 * A priority inversion needs three tasks: a background task that holds a lock, a
 * time-sensitive one that waits for it, and others that keep the holder from a CPU.
 * When a task leaves a CPU, UFS copies from its slot which locks it holds and waits for
 * (its snapshot). Off its CPU a task can change neither, so the snapshot is valid until
 * it runs again. There are two sets of slots, and two questions:
 *
 *	holders   background, off its CPU, holds something
 *	waiters   off its CPU, waits for something
 *
 *	a task leaves its CPU	is added to the sets, then is asked
 *	  as a holder		does an urgent waiter wait for one of its locks?
 *	  as a waiter		which task holds the lock that it waits for?
 *
 * Each is added to its set before the other set is read (a full barrier between), so
 * of a holder and a waiter that leave at the same time one sees the other.
 *
 * A boosted task is still counted and charged as background. It waits in a queue of its
 * own, which every CPU serves before its tier's work:
 *
 *	holder was	becomes boosted		runs
 *	preempted	as it leaves		from BOOST_DSQ, at once
 *	in its queue	when a waiter leaves	the waiter's CPU fetches it, or one
 *						that it may use is interrupted
 *	asleep		likewise		as if time-sensitive, on wake-up
 *	boosted itself,	(chains)		what it waits for is boosted too
 *	 and waiting
 *
 * It runs for short slices; at the end of each the question is asked again, so a boost
 * ends when the lock is free or no urgent task waits for it. A waiter that wakes up
 * preempts a boosted task at once: it was probably given its lock.
 *
 * HANDING OVER. Some locks are released before those are woken that waited for them, one
 * by one, and work that one task has done for others likewise. The first to be woken may
 * take the CPU from the task that wakes. It holds nothing any more, and the others sleep on
 * until it runs again. So when a background task with a slot wakes one that waited, UFS
 * notes for what. If the task then loses its CPU while others wait for the same, it is
 * boosted as if it held that, until it next leaves a CPU.
 *
 * BOUNDS. After BOOST_ROW boosted slices in a row time-sensitive work of the CPU gets
 * one slice. A boost lasts for at most boost_ns; then the holder is not boosted for as
 * long again, in whatever slot. Holder and waiter must have the same user and domain. All
 * of this is counted. A task that leaves its CPU is compared with COMPARED_MAX others of
 * its user at most, for which READS_MAX words of its memory are read, none after the first
 * that cannot be: with interrupts off, how long that takes must not be for users to say.
 *
 * INVARIANTS
 *   1. The sets are supersets: matches() compares snapshots. A task that starts to run
 *      leaves the waiters. (not asserted: a superset may have any member)
 *   2. A snapshot is taken of the current task only, is bounded, and is not written
 *      again before the task has run. (asserted in ufs_dispatch: UFS_BROKEN_SNAPSHOT;
 *      ufs_stopping skips other tasks)
 *   3. A task in BOOST_DSQ is counted in boost_waiting (task_ctx.boost)
 *      from before it is inserted until it runs or leaves. (asserted in turn_to())
 *   4. The CPU that makes .boosted non-zero, with a compare and swap, has the task run.
 *      (not asserted: it concerns what follows; tests measure the waits)
 *   5. While .boosted is non-zero, .boost_since is 0 or when that boost began: it is set
 *      after .boosted and becomes 0 before it. (not asserted)
 *
 * DEPARTURES. The paper lets a boosted task compete in its new tier; here it runs before
 * that tier, since half a share of a busy CPU would double the wait. The paper looks
 * locks up in its map; here the few tasks that are off their CPU and hold a lock are
 * compared, which needs no map.
 *
 * WEAKNESSES: a running holder is protected only after it is preempted, so an inversion
 * costs a switch. Of a holder's locks the latest UFS_HELD_SEEN are seen. Chains are
 * followed for CHAIN_MAX holders. A task that another CPU stops (a change of affinity)
 * keeps its older snapshot until it next leaves by itself. A waiter that spins, and that
 * dispatch lets run on, stays in the waiters until it stops. Slices end at a tick. A
 * lock released in the middle of a slice is noticed when its waiter wakes up. A waiter or
 * holder beyond COMPARED_MAX is not seen. A task that hands something over is taken for one
 * that still does for as long as others wait for the same, whoever holds it by now: one
 * slice for each that it has woken. With --boost-ms 0 no task is boosted and everything is
 * counted, which shows what boosts achieve.
 */
#ifndef UFS_BOOST_H
#define UFS_BOOST_H

#define CHAIN_MAX 8
/* Slots that a task is compared with when it leaves its CPU. */
#define COMPARED_MAX 512

struct slot_set holders;
/* Boosted tasks in their group's queue, which dispatch is to move to BOOST_DSQ. */
struct slot_set to_fetch;

static __always_inline bool is_boosted(struct task_ctx *tc)
{
	return has_state(tc) && READ_ONCE(state_of(tc->slot)->boosted) &&
	       tc->tier == GIVEWAY_TIER_BACKGROUND;
}

/* ---- Snapshots ---- */

/* The locks that the current task, owner of @index, holds and waits for. */
__once int take_snapshot(u32 index, bool runnable)
{
	struct giveway_slot *slot = slot_at(index);
	struct slot_state *state = state_of(index);
	u32 n, first = 0, i;

	if (!slot)
		return 0;
	state->domain = READ_ONCE(slot->domain);
	state->wait = READ_ONCE(slot->locks.wait);
	state->wait_spin = READ_ONCE(slot->locks.wait_spin);
	state->spin = READ_ONCE(slot->locks.spin);
	state->nheld = 0;
	state->nblockers = 0;
	state->event = 0;
	state->asks = ASKS_NOTHING;
	state->runnable = runnable;
	state->handing = runnable ? state->handed : 0;
	state->handed = 0;
	/* Mostly no lock is held, and an iterator costs three calls even then. */
	n = READ_ONCE(slot->locks.nheld);
	if (READ_ONCE(slot->reader.nheld_addr)) {
		read_held(index);
	} else if (n && n <= GIVEWAY_HELD_MAX) {
		if (n > UFS_HELD_SEEN)
			first = n - UFS_HELD_SEEN;
		bpf_for(i, 0, UFS_HELD_SEEN) {
			u32 at = first + i;

			if (at >= n || at >= GIVEWAY_HELD_MAX)
				break;
			state->held[i & (UFS_HELD_SEEN - 1)] = READ_ONCE(slot->locks.held[at].lock);
			state->nheld = i + 1;
		}
	}
	/* A runnable task waits for no event. */
	if (!runnable && READ_ONCE(slot->reader.wait_event_ptr_addr))
		read_event(index);
	return 0;
}

/* ---- Matching waiters with holders ---- */

static __always_inline u64 lock_waited_for(struct slot_state *w)
{
	return w->wait ? w->wait : w->wait_spin ? w->wait_spin : w->event;
}

/* Whether the owner of @waiter waits for what the owner of @holder holds. */
__once u32 matches(u32 waiter, u32 holder)
{
	struct slot_state *w = state_of(waiter), *h = state_of(holder);
	u32 asks = w->asks, i;

	if (waiter == holder || w->domain != h->domain || w->uid != h->uid)
		return UFS_BOOST_NONE;
	if (h->spin && (h->spin == w->wait || h->spin == w->wait_spin))
		return UFS_BOOST_LOCK;
	if (h->handing && h->handed_to != waiter && h->handing == lock_waited_for(w))
		return asks == ASKS_TRANCHE ? UFS_BOOST_TRANCHE :
		       asks == ASKS_LEADER ? UFS_BOOST_LEADER : UFS_BOOST_LOCK;
	bpf_for(i, 0, UFS_HELD_SEEN) {
		u64 lock = h->held[i & (UFS_HELD_SEEN - 1)];

		if (i >= h->nheld)
			break;
		if (lock && (lock == w->wait || lock == w->wait_spin))
			return UFS_BOOST_LOCK;
		if (asks == ASKS_TRANCHE &&
		    h->tranche[i & (UFS_HELD_SEEN - 1)] == (w->event & EVENT_NUMBER) &&
		    has_waiters(h, lock))
			return UFS_BOOST_TRANCHE;
	}
	if (asks == ASKS_LEADER && h->nheld)
		return UFS_BOOST_LEADER;
	if (asks == ASKS_RESCUE && h->runnable)
		return UFS_BOOST_RESCUE;
	if (asks == ASKS_BLOCKERS) {
		bpf_for(i, 0, UFS_BLOCKERS) {
			if (i < w->nblockers && w->blocker[i & (UFS_BLOCKERS - 1)] == holder)
				return UFS_BOOST_BLOCKER;
		}
	}
	return UFS_BOOST_NONE;
}

/* Whether waiting work is urgent: time-sensitive, or boosted for work that is. */
static __always_inline bool is_urgent(struct slot_state *w)
{
	return w->tier == GIVEWAY_TIER_TIME_SENSITIVE || READ_ONCE(w->boosted);
}

/* ---- Beginning and end ---- */

/* Urgent work waits for a task that was preempted while it held a lightweight lock.
 * Counted once for each preemption, boosted or not. */
static __always_inline void note_awaited(struct slot_state *h, u32 kind)
{
	if (kind > UFS_BOOST_LEADER || !h->runnable || h->awaited)
		return;
	h->awaited = 1;
	stat_inc(UFS_HOLDER_AWAITED);
}

/* Boost the owner of @holder, for the owner of @waiter. True: it was not so before. */
static __always_inline bool boost_holder(u32 waiter, u32 holder, u32 kind)
{
	struct slot_state *h = state_of(holder);
	u64 now = scx_bpf_now();

	note_awaited(h, kind);
	if (!boost_ns || time_before(now, h->no_boost_until))
		return false;
	if (__sync_val_compare_and_swap(&h->boosted, UFS_BOOST_NONE, kind) != UFS_BOOST_NONE)
		return false;
	h->boost_since = now;
	h->boost_lock = lock_waited_for(state_of(waiter));
	h->report.boosts++;
	h->report.last_lock = h->boost_lock;
	if (kind <= UFS_BOOST_BLOCKER)
		stats()->count[(UFS_BOOSTS_LOCK + kind - 1) & (UFS_STAT_SLOTS - 1)]++;
	return true;
}

static __always_inline void end_boost(struct slot_state *h)
{
	u64 lasted;

	if (!h->boosted)
		return;
	lasted = h->boost_since ? time_delta(scx_bpf_now(), h->boost_since) : 0;
	h->boost_since = 0;
	/* The exchange: invariant 5. */
	__sync_lock_test_and_set(&h->boosted, UFS_BOOST_NONE);
	h->report.last_boost_ns = lasted;
	stats()->boost_ns_log2[coarse_bucket(lasted)]++;
}

/* The owner of @holder is leaving its CPU: is it waited for? */
__once int review_holder(u32 holder)
{
	struct slot_state *h = state_of(holder);
	u32 compared = unknown_zero(), word, i;

	if (set_is_empty(&waiters)) {
		end_boost(h);
		return 0;
	}
	begin_reads();
	bpf_for(word, first_word(holder), end_word(holder)) {
		u64 bits = set_word(&waiters, word);

		bpf_for(i, 0, 64) {
			u32 waiter, kind;

			if (!bits || compared >= COMPARED_MAX)
				break;
			waiter = (word << 6) + ctzll(bits);
			bits &= bits - 1;
			compared++;
			if (!is_urgent(state_of(waiter)))
				continue;
			kind = matches(waiter, holder);
			if (!kind)
				continue;
			if (!h->boosted) {
				boost_holder(waiter, holder, kind);
			} else if (h->boost_since &&
				   time_delta(scx_bpf_now(), h->boost_since) > boost_ns) {
				end_boost(h);
				h->no_boost_until = scx_bpf_now() + boost_ns;
				h->report.expired++;
				stat_inc(UFS_BOOST_EXPIRED);
			}
			return 0;
		}
	}
	end_boost(h);
	return 0;
}

/* A boosted task is in the queue of its group: have dispatch fetch it. */
static __always_inline void request_fetch(u32 slot)
{
	set_put(&to_fetch, slot, true);
}

/* The owner of @slot has become boosted while off its CPU: have it run. */
__once int wake_boosted(u32 slot)
{
	struct task_struct *p = bpf_task_from_pid(state_of(slot)->pid);
	struct task_ctx *tc;
	s32 cpu, here = bpf_get_smp_processor_id();

	if (!p)
		return 0;
	/* Its number may be another's by now. */
	tc = task_ctx(p);
	/* Asleep: it is boosted when it wakes up. On its way to a queue: dispatch finds
	 * it there. This CPU is about to look for work. */
	if (tc && tc->slot == slot && (tc->waits & WAITS_BG)) {
		request_fetch(slot);
		cpu = scx_bpf_task_cpu(p);
		if (!allowed_on(p, here) || (is_migration_disabled(p) && cpu != here))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	bpf_task_release(p);
	return 0;
}

/* The owner of @from waits, and is urgent: boost the holders that it waits for. */
__once int boost_holders(u32 from)
{
	u32 chain[CHAIN_MAX] = {}, n = 1, compared = unknown_zero(), at, word, i;

	if (set_is_empty(&holders))
		return 0;
	begin_reads();
	chain[0] = from;
	__sink(n);
	bpf_for(at, 0, CHAIN_MAX) {
		u32 waiter = chain[at & (CHAIN_MAX - 1)];

		if (at >= n)
			break;
		bpf_for(word, first_word(from), end_word(from)) {
			u64 bits = set_word(&holders, word);

			bpf_for(i, 0, 64) {
				u32 holder, kind;

				if (!bits || compared >= COMPARED_MAX)
					break;
				holder = (word << 6) + ctzll(bits);
				bits &= bits - 1;
				compared++;
				kind = matches(waiter, holder);
				if (!kind || !boost_holder(waiter, holder, kind))
					continue;
				wake_boosted(holder);
				if (set_has(&waiters, holder) && n < CHAIN_MAX) {
					chain[n & (CHAIN_MAX - 1)] = holder;
					n++;
				}
			}
		}
	}
	return 0;
}

/* ---- In the callbacks ---- */

/* The owner of a slot goes to sleep: is it for a lightweight lock? */
static __always_inline void note_sleep(struct slot_state *state)
{
	bool lock = state->asks == ASKS_TRANCHE || state->asks == ASKS_LEADER ||
		    (state->wait && !state->asks);

	if (lock && state->tier == GIVEWAY_TIER_TIME_SENSITIVE)
		state->sleeps_since = scx_bpf_now();
}

/* The task's slot, if it had one, is its own no longer; what another one has said in it since
 * stays. */
__once int forget_slot(struct task_ctx *tc __arg_nonnull)
{
	if (!has_state(tc))
		return 0;
	set_put(&holders, tc->slot, false);
	set_put(&waiters, tc->slot, false);
	end_boost(state_of(tc->slot));
	return 0;
}

/* The owner of @slot, which waited for something, wakes up, mostly by the doing of the task
 * that runs here: see HANDING OVER. One that naps is woken by its clock. */
__once int note_handing(u32 slot)
{
	struct task_ctx *tc = task_ctx(bpf_get_current_task_btf());
	struct slot_state *w = state_of(slot), *state;

	if (!tc || tc->slot == slot || tc->tier != GIVEWAY_TIER_BACKGROUND || !has_state(tc) ||
	    w->wait_spin || w->asks == ASKS_RESCUE)
		return 0;
	state = state_of(tc->slot);
	state->handed = lock_waited_for(w);
	state->handed_to = slot;
	return 0;
}

/* The current task has a slot and is leaving its CPU, or may be. */
__once int leave_cpu(struct task_ctx *tc __arg_nonnull, bool runnable)
{
	struct slot_state *state;
	u32 slot;
	bool holds, waits;

	slot = tc->slot;
	if (!slot)
		return 0;
	if (!is_own_slot(tc) || !has_state(tc)) {
		/* Released since; apply_hints() will notice. */
		forget_slot(tc);
		return 0;
	}
	state = state_of(slot);
	state->tier = tc->tier;
	take_snapshot(slot, runnable);
	holds = state->nheld || state->spin || state->handing || (runnable && rescues(slot));
	waits = state->wait || state->wait_spin || state->asks;
	if (tc->tier == GIVEWAY_TIER_BACKGROUND && holds) {
		set_put(&holders, slot, true);
		review_holder(slot);
		tc->no_boost_until = state->no_boost_until;
	} else {
		if (set_has(&holders, slot))
			set_put(&holders, slot, false);
		end_boost(state);
	}
	if (waits) {
		set_put(&waiters, slot, true);
		if (!runnable)
			note_sleep(state);
		if (is_urgent(state))
			boost_holders(slot);
	}
	publish_report(tc);
	return 0;
}

#endif
