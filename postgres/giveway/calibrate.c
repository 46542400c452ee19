/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * calibrate.c
 *		Where does a stock server keep the LWLocks that a process holds?
 *
 * lwlock.c counts them in one static int and lists them in a static array of
 * {lock, mode}.  Neither has a symbol, but both change in a way that nothing
 * else does when locks are taken and released.  So we take private locks and
 * look through the executable's writable memory:
 *
 *		array:	the place with {A, shared} {B, exclusive} {C, shared} while A,
 *				B and C are held in this order; there has to be exactly one
 *		count:	the int that follows 2, 1, 2, 3, 0; exactly one again
 *
 * InterruptHoldoffCount goes up and down with the locks, too; raising it alone
 * tells it apart.  Any doubt (none, several, a lock held already) and hints
 * about LWLocks are off, with a line in the log.
 *
 * A server with the lock-hint patch publishes a copy of the list; that copy is
 * left out of the search.
 *
 * Addresses found in the postmaster are those of all its children, which are
 * forks of it.  A library that a session loads for itself calibrates there.
 *
 * The search reads every word of .data and .bss once and a few thousand words
 * some more: about a millisecond, once.
 */
#include "postgres.h"

#include <link.h>

#include "miscadmin.h"
#include "storage/lwlock.h"

#include "giveway.h"

typedef struct Segment
{
	uintptr_t	start;
	uintptr_t	end;
} Segment;

#define SEGMENTS_MAX 8

typedef struct Segments
{
	int			count;
	Segment		at[SEGMENTS_MAX];
	Segment		copy;			/* not to be taken for the list */
} Segments;

/* As lwlock.c has them. */
typedef struct HeldLock
{
	LWLock	   *lock;
	LWLockMode	mode;
} HeldLock;

StaticAssertDecl(sizeof(HeldLock) == sizeof(struct giveway_held),
				 "held LWLocks have another shape");

/* More ints than this that happen to be 2 are a doubt of their own. */
#define CANDIDATES_MAX 65536

static LWLock probe[3];

/* The writable segments of the executable, which is the first object. */
static int
find_segments(struct dl_phdr_info *info, size_t size, void *arg)
{
	Segments   *segments = arg;

	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_LOAD || !(header->p_flags & PF_W) ||
			segments->count == SEGMENTS_MAX)
			continue;
		segments->at[segments->count].start =
			TYPEALIGN(sizeof(void *), info->dlpi_addr + header->p_vaddr);
		segments->at[segments->count].end =
			info->dlpi_addr + header->p_vaddr + header->p_memsz;
		segments->count++;
	}
	return 1;					/* the first one is enough */
}

static bool
in_copy(const Segments *segments, uintptr_t at)
{
	return at >= segments->copy.start && at < segments->copy.end;
}

/* The only place where the probes are listed, or 0. */
static uintptr_t
find_array(const Segments *segments)
{
	uintptr_t	found = 0;

	for (int s = 0; s < segments->count; s++)
	{
		const Segment *segment = &segments->at[s];

		for (uintptr_t at = segment->start;
			 at + 3 * sizeof(HeldLock) <= segment->end; at += sizeof(void *))
		{
			const volatile HeldLock *held = (const volatile HeldLock *) at;

			if (held[0].lock != &probe[0] || held[0].mode != LW_SHARED ||
				held[1].lock != &probe[1] || held[1].mode != LW_EXCLUSIVE ||
				held[2].lock != &probe[2] || held[2].mode != LW_SHARED)
				continue;
			if (in_copy(segments, at))
				continue;
			if (found)
				return 0;
			found = at;
		}
	}
	return found;
}

/* Every int that is expected, into candidates; -1 if there are too many. */
static int
collect_counts(const Segments *segments, uintptr_t *candidates, int expected)
{
	int			count = 0;

	for (int s = 0; s < segments->count; s++)
	{
		const Segment *segment = &segments->at[s];

		for (uintptr_t at = segment->start; at + sizeof(int) <= segment->end;
			 at += sizeof(int))
		{
			if (*(const volatile int *) at != expected || in_copy(segments, at))
				continue;
			if (count == CANDIDATES_MAX)
				return -1;
			candidates[count++] = at;
		}
	}
	return count;
}

/* Keep those candidates that are expected now. */
static int
keep_counts(uintptr_t *candidates, int count, int expected)
{
	int			kept = 0;

	for (int i = 0; i < count; i++)
		if (*(const volatile int *) candidates[i] == expected)
			candidates[kept++] = candidates[i];
	return kept;
}

/* Take and release locks in the order above and watch. */
static void
observe(Calibration *result, const Segments *segments, uintptr_t *candidates)
{
	int			count;

	for (int i = 0; i < lengthof(probe); i++)
		LWLockInitialize(&probe[i], LWTRANCHE_BUFFER_CONTENT);

	LWLockAcquire(&probe[0], LW_SHARED);
	LWLockAcquire(&probe[1], LW_EXCLUSIVE);
	count = collect_counts(segments, candidates, 2);
	LWLockRelease(&probe[1]);
	if (count > 0)
		count = keep_counts(candidates, count, 1);
	LWLockAcquire(&probe[1], LW_EXCLUSIVE);
	if (count > 0)
		count = keep_counts(candidates, count, 2);
	LWLockAcquire(&probe[2], LW_SHARED);
	HOLD_INTERRUPTS();
	if (count > 0)
		count = keep_counts(candidates, count, 3);
	RESUME_INTERRUPTS();
	result->held_addr = find_array(segments);
	LWLockRelease(&probe[2]);
	LWLockRelease(&probe[1]);
	LWLockRelease(&probe[0]);
	if (count > 0)
		count = keep_counts(candidates, count, 0);

	if (result->held_addr == 0)
		result->doubt = "the list of held locks was not found, or found twice";
	else if (count < 0)
		result->doubt = "there are too many places to look at";
	else if (count != 1)
		result->doubt = "the number of held locks was not found, or found twice";
	else
		result->nheld_addr = candidates[0];
}

static void
count_held(LWLock *lock, LWLockMode mode, void *arg)
{
	++*(int *) arg;
}

/*
 * Find them, on the first call; later calls return the same result.  Addresses
 * are both 0 where there is a doubt.  copy: what the server publishes, or NULL.
 */
const Calibration *
calibrate(const struct giveway_lock_record *copy)
{
	static Calibration result;
	static bool done = false;
	Segments	segments = {0};
	uintptr_t  *candidates;
	int			held = 0;

	if (done)
		return &result;
	done = true;
	ForEachLWLockHeldByMe(count_held, &held);
	candidates = malloc(CANDIDATES_MAX * sizeof(*candidates));
	if (held > 0)
		result.doubt = "locks were held while it was searched for";
	else if (candidates == NULL)
		result.doubt = "out of memory";
	else
	{
		if (copy)
		{
			segments.copy.start = (uintptr_t) copy;
			segments.copy.end = (uintptr_t) (copy + 1);
		}
		dl_iterate_phdr(find_segments, &segments);
		observe(&result, &segments, candidates);
	}
	free(candidates);
	if (result.doubt)
		result.nheld_addr = result.held_addr = 0;
	return &result;
}
