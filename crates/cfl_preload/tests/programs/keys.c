// SPDX-License-Identifier: MIT OR Apache-2.0
/* Keys of thread-specific data: a program can have them all, before its threads
 * have met at a lock and after, and threads that end when none is left leave
 * nothing behind. */
#include <threads.h>

#include "say.h"

#define KEYS 1024

static pthread_mutex_t counter = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t keys[KEYS + 1];
static int count, destroyed;

static void destructor(void *data)
{
	MUST(pthread_mutex_lock(&counter));
	destroyed += data != NULL;
	MUST(pthread_mutex_unlock(&counter));
}

static void *work(void *made)
{
	/* Nothing that somebody else has put there. */
	for (int i = 0; i < (int)(long)made; i++) {
		if (pthread_getspecific(keys[i]) != NULL)
			printf("key %d has a value\n", i);
		MUST(pthread_setspecific(keys[i], &keys[i]));
	}
	for (int i = 0; i < 20; i++) {
		MUST(pthread_mutex_lock(&counter));
		count++;
		MUST(pthread_mutex_unlock(&counter));
	}
	for (int i = 0; i < (int)(long)made; i++)
		if (pthread_getspecific(keys[i]) != &keys[i])
			printf("key %d has another value\n", i);
	return NULL;
}

/* Threads that meet at a lock and end. */
static void meet(int rounds, int made)
{
	pthread_t threads[8];

	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < 8; i++)
			threads[i] = start(work, (void *)(long)made);
		for (int i = 0; i < 8; i++)
			join(threads[i]);
	}
	printf("count: %d, destructors: %d\n", count, destroyed);
}

/* As many keys as there are; every second by the name of C11. */
static int take_all(void)
{
	int made = 0;

	while (made < KEYS) {
		int failed = made % 2 ? pthread_key_create(&keys[made], destructor)
				      : tss_create(&keys[made], destructor);
		if (failed)
			break;
		made++;
	}
	printf("keys: %d\n", made);
	SAY(pthread_key_create(&keys[KEYS], NULL));
	return made;
}

int main(void)
{
	for (int round = 0; round < 3; round++) {
		int made = take_all();

		meet(10, made);
		for (int i = 0; i < made; i++)
			MUST(pthread_key_delete(keys[i]));
		meet(100, 0);
	}
	return 0;
}
