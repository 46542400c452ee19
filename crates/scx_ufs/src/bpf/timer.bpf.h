/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers of the scheduler as a whole. Groups' and CPUs' own are in limit.bpf.h and
 * extend.bpf.h.
 *
 *	floor		every 50 ms	floor.bpf.h
 *	reweight	when asked	reweight.bpf.h
 *	release		when asked	throttle_queue.bpf.h
 *
 * What a timer does is verified as part of the callback that names it, ufs_init, and not
 * of those that start the timer. So long work that many callbacks ask for is a timer's.
 *
 * A timer that is started while its callback runs does so once more: nothing that is
 * asked for is lost.
 */
#ifndef UFS_TIMER_H
#define UFS_TIMER_H

enum ufs_timer_key {
	TIMER_FLOOR,
	TIMER_REWEIGHT,
	TIMER_RELEASE,
	TIMERS,
};

struct ufs_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TIMERS);
	__type(key, u32);
	__type(value, struct ufs_timer);
} timers SEC(".maps");

static __always_inline s32 init_timer(u32 key, int (*callback)(void *, u32 *, struct bpf_timer *))
{
	struct ufs_timer *entry = bpf_map_lookup_elem(&timers, &key);
	s32 err;

	if (!entry)
		return -ENOENT;
	err = bpf_timer_init(&entry->timer, &timers, CLOCK_MONOTONIC);
	/* It is there already if this is not the first attachment. */
	if (err && err != -EBUSY)
		return err;
	return bpf_timer_set_callback(&entry->timer, callback);
}

static __always_inline s32 start_timer(u32 key, u64 after_ns)
{
	struct ufs_timer *entry = bpf_map_lookup_elem(&timers, &key);

	return entry ? bpf_timer_start(&entry->timer, after_ns, 0) : -ENOENT;
}

/* Else it would go on for as long as the program is loaded. */
static __always_inline void stop_timer(u32 key)
{
	struct ufs_timer *entry = bpf_map_lookup_elem(&timers, &key);

	if (entry)
		bpf_timer_cancel(&entry->timer);
}

#endif
