/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a boosted task gets its CPU (boost.bpf.h says which task is boosted).
 *
 * Boosted tasks wait in BOOST_DSQ, first come first served, which every CPU
 * serves after the floor's queue and before its own work. Like a floor run, a
 * boosted run counts as time-sensitive for tasks that wake up, and is never ahead
 * of a task; unlike it, it yields to a waiter that wakes up.
 *
 *	stops while boosted	enqueue: BOOST_DSQ; interrupt its CPU, unless its
 *				latest run was boosted: then another task runs
 *	boosted in its queue	dispatch fetches it from there (fetch_boosted), also
 *				from THROTTLED_DSQ
 *	slice over		dispatch keeps it, or after BOOST_ROW slices lets
 *				the CPU's time-sensitive work have one
 *
 * fetch_boosted() may look between the moment in which a task is counted as
 * waiting and that in which the kernel inserts it; it then stays in to_fetch.
 *
 * WEAKNESS: such a task is fetched by the CPU that dispatches next; if none does, by
 * an idle one that the timer wakes.
 */
#ifndef UFS_BOOST_RUN_H
#define UFS_BOOST_RUN_H

/* Boosted slices in a row before others of the tier have one. */
#define BOOST_ROW 7

/* A boosted task: ahead of its CPU's tier, or of a background CPU's task. */
__once int boost_enqueue(struct task_struct *p __arg_trusted, struct task_ctx *tc __arg_nonnull,
			     u64 enq_flags)
{
	u32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cc = cpu_ctx(cpu);
	bool waking = enq_flags & SCX_ENQ_WAKEUP;
	bool again = tc->boost_ran && !waking;
	s32 other;

	tc->boost_ran = 0;
	if (cc->runs == RUNS_BG && claim_bg_cpu(cpu)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, boost_slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return 0;
	}
	__sync_fetch_and_add(&boost_waiting, 1);
	turn_to(&tc->boost, &boost_waiting, OVERRIDE_QUEUED);
	scx_bpf_dsq_insert(p, BOOST_DSQ, boost_slice_ns, enq_flags);
	/* The idle CPU found is this one, and it is woken for the enqueue. */
	if (waking && tc->idle_found)
		return 0;
	if (may_move(p)) {
		other = pick_idle_cpu(p);
		if (other >= 0) {
			scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
			return 0;
		}
		other = claim_any_bg_cpu(p, cpu);
		if (other >= 0) {
			scx_bpf_kick_cpu(other, SCX_KICK_PREEMPT);
			return 0;
		}
	}
	/* After a boosted slice another task has its turn: see BOOST_ROW. */
	if (cc->runs == RUNS_OTHER)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	if (!again && !cc->runs_boosted)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* The queue of a background task that waits for its group's turn. */
static __always_inline u64 bg_queue_of(u32 waits)
{
	return waits & WAITS_THROTTLED ? THROTTLED_DSQ : BG_DSQ + (waits & (UFS_GROUPS_MAX - 1));
}

/* Fetch the boosted tasks that wait in the queues of groups. */
__once int fetch_boosted(u32 cpu)
{
	u32 words = slot_words(), word, i;

	bpf_for(word, 0, UFS_SLOT_WORDS) {
		u64 bits;

		if (word >= words)
			break;
		bits = set_word(&to_fetch, word);
		bpf_for(i, 0, 64) {
			struct task_struct *p, *first;
			struct task_ctx *tc;
			u32 slot;

			if (!bits)
				break;
			slot = (word << 6) + ctzll(bits);
			bits &= bits - 1;
			if (!set_put(&to_fetch, slot, false))
				continue;
			p = bpf_task_from_pid(state_of(slot)->pid);
			if (!p)
				continue;
			tc = task_ctx(p);
			/* Its number may be another's by now, and the boost over. */
			if (!tc || tc->slot != slot || !is_boosted(tc) ||
			    !(tc->waits & WAITS_BG) || tc->boost || tc->floor) {
				bpf_task_release(p);
				continue;
			}
			/* The iterator names the queue; the task need not be its first. It
			 * moves none that came after it began, so none whose enqueue has taken
			 * the mark off. */
			bool moved = false;
			bpf_for_each(scx_dsq, first, bg_queue_of(tc->waits), 0) {
				if (!begin_move(&tc->boost, &boost_waiting))
					break;
				scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, boost_slice_ns);
				moved = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, BOOST_DSQ, 0);
				if (!moved)
					undo_move(&tc->boost, &boost_waiting);
				break;
			}
			if (moved) {
				stat_inc(UFS_BOOST_FETCH);
				if (!allowed_on(p, cpu))
					scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
			} else if ((tc->waits & WAITS_BG) && is_boosted(tc) && !tc->boost) {
				/* It is not in its queue yet. */
				request_fetch(slot);
			}
			bpf_task_release(p);
		}
	}
	return 0;
}

/* In dispatch: whether it is the turn of boosted work on this CPU. */
static __always_inline bool boosts_turn(struct cpu_ctx *cc)
{
	if (cc->boost_row < BOOST_ROW || !READ_ONCE(ts_waiting))
		return true;
	cc->boost_row = 0;
	return false;
}

static __always_inline bool boost_dispatch(u32 cpu, struct cpu_ctx *cc)
{
	if (unlikely(!set_is_empty(&to_fetch)))
		fetch_boosted(cpu);
	if (likely(!READ_ONCE(boost_waiting)))
		return false;
	if (!scx_bpf_dsq_move_to_local(BOOST_DSQ, 0))
		return false;
	cc->boost_row++;
	stat_inc(UFS_BOOST_RUN);
	return true;
}

#endif
