/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * shared.c
 *		Where do the extension's files have their shared memory?
 *
 * Files that share something among the cluster's processes each describe it in a
 * SharedPart.  The server asks for it in two steps, both in the postmaster:
 *
 *		libraries are loaded	shared_ask() notes the part
 *		request hook			sizes are known (MaxBackends, settings): room is reserved
 *		startup hook			the memory is there: it is found, and filled the first time
 *
 * Children inherit where it is.  After a crash the server makes its shared memory anew
 * and runs the startup hook again.  Where the library is not preloaded nobody asks, and
 * *part->memory remains NULL.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "giveway.h"

static const SharedPart *parts[8];
static int	part_count = 0;

static shmem_request_hook_type previous_request;
static shmem_startup_hook_type previous_startup;

static void
request_memory(void)
{
	if (previous_request)
		previous_request();
	for (int i = 0; i < part_count; i++)
	{
		RequestAddinShmemSpace(parts[i]->size());
		if (parts[i]->lock_count)
			RequestNamedLWLockTranche(parts[i]->tranche, parts[i]->lock_count());
	}
}

static void
find_memory(void)
{
	if (previous_startup)
		previous_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	for (int i = 0; i < part_count; i++)
	{
		bool		found;
		void	   *memory = ShmemInitStruct(parts[i]->name, parts[i]->size(), &found);

		if (!found)
		{
			memset(memory, 0, parts[i]->size());
			if (parts[i]->initialize)
				parts[i]->initialize(memory);
		}
		*parts[i]->memory = memory;
		if (parts[i]->lock_count)
			*parts[i]->locks = GetNamedLWLockTranche(parts[i]->tranche);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Have the server provide this part.  In the postmaster, while it loads libraries. */
void
shared_ask(const SharedPart *part)
{
	Assert(part_count < lengthof(parts));
	if (part_count == 0)
	{
		previous_request = shmem_request_hook;
		shmem_request_hook = request_memory;
		previous_startup = shmem_startup_hook;
		shmem_startup_hook = find_memory;
	}
	parts[part_count++] = part;
}
