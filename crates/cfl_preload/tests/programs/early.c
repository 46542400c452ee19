// SPDX-License-Identifier: MIT OR Apache-2.0
/* Finds the locks of early_library.c as its constructor left them; and an
 * allocator that locks, as jemalloc does. */
#include "say.h"
#include <stdint.h>
#include <sys/mman.h>

extern pthread_mutex_t early_mutex, early_recursive;
extern pthread_cond_t early_cond;

/* ---- an allocator that never frees, and must not be entered twice ---- */

static pthread_mutex_t arena_mutex = PTHREAD_MUTEX_INITIALIZER;
static char arena[64 << 20];
static size_t used;
static __thread int inside;

void *malloc(size_t size)
{
	size_t *block;

	if (inside++)
		abort();
	pthread_mutex_lock(&arena_mutex);
	block = (size_t *)(arena + used);
	used += (size + 31) & ~(size_t)15;
	pthread_mutex_unlock(&arena_mutex);
	inside--;
	if (used > sizeof arena)
		return NULL;
	block[0] = size;
	return block + 2;
}

void free(void *block)
{
	(void)block;
	pthread_mutex_lock(&arena_mutex);
	pthread_mutex_unlock(&arena_mutex);
}

void *calloc(size_t count, size_t size)
{
	/* Never used before, hence zero. */
	return malloc(count * size);
}

void *realloc(void *block, size_t size)
{
	void *fresh = malloc(size);

	if (block && fresh) {
		size_t before = ((size_t *)block)[-2];

		memcpy(fresh, block, before < size ? before : size);
	}
	return fresh;
}

void *memalign(size_t alignment, size_t size)
{
	uintptr_t block = (uintptr_t)malloc(size + alignment + 16);

	block = (block + 16 + alignment - 1) / alignment * alignment;
	((size_t *)block)[-2] = size;
	return (void *)block;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
	*block = memalign(alignment, size);
	return *block ? 0 : ENOMEM;
}

/* ---- the test ---- */

static void *stranger(void *argument)
{
	SAY(pthread_mutex_trylock(&early_mutex));
	SAY(pthread_mutex_trylock(&early_recursive));
	return argument;
}

static void *allocate(void *argument)
{
	for (int i = 0; i < 5000; i++)
		free(malloc(16));
	return argument;
}

int main(void)
{
	pthread_t threads[4];

	join(start(stranger, NULL));
	SAY(pthread_mutex_unlock(&early_mutex));
	SAY(pthread_mutex_unlock(&early_recursive));
	SAY(pthread_mutex_unlock(&early_recursive));
	SAY(pthread_mutex_unlock(&early_recursive));
	SAY(pthread_cond_broadcast(&early_cond));
	for (int i = 0; i < 4; i++)
		threads[i] = start(allocate, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	puts("allocated");
	return 0;
}
