// SPDX-License-Identifier: MIT OR Apache-2.0
/* Threads that end: many of them, some with a mutex held, some that lock in
 * the destructors of their thread-specific data, and the first one before the
 * others. */
#include "say.h"

static pthread_mutex_t counter = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_key_t keys[2];
static int count, destroyed, refused;

/* Runs up to four times for each thread, each time setting its data again, so
 * that it also runs after the library's own destructors. */
static void destructor(void *data)
{
	MUST(pthread_mutex_lock(&counter));
	destroyed++;
	MUST(pthread_mutex_unlock(&counter));
	MUST(pthread_mutex_lock(&checking));
	if (pthread_mutex_lock(&checking) == EDEADLK)
		__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
	MUST(pthread_mutex_unlock(&checking));
	for (int i = 0; i < 2; i++)
		if ((long)data == i + 1)
			MUST(pthread_setspecific(keys[i], data));
}

static void *work(void *argument)
{
	for (int i = 0; i < 2; i++)
		MUST(pthread_setspecific(keys[i], (void *)(long)(i + 1)));
	for (int i = 0; i < 20; i++) {
		MUST(pthread_mutex_lock(&counter));
		count++;
		MUST(pthread_mutex_unlock(&counter));
	}
	return argument;
}

static void *leave_locked(void *argument)
{
	MUST(pthread_mutex_lock(&left));
	return argument;
}

static void *last(void *argument)
{
	sleep_ms(20);
	SAY(pthread_mutex_lock(&counter));
	printf("count: %d, destructors: %d, refused: %d\n", count, destroyed, refused);
	SAY(pthread_mutex_unlock(&counter));
	return argument;
}

int main(void)
{
	pthread_t threads[8];
	struct timespec soon;

	for (int i = 0; i < 2; i++)
		MUST(pthread_key_create(&keys[i], destructor));
	for (int round = 0; round < 250; round++) {
		for (int i = 0; i < 8; i++)
			threads[i] = start(work, NULL);
		for (int i = 0; i < 8; i++)
			join(threads[i]);
	}
	join(start(leave_locked, NULL));
	soon = in_ms(CLOCK_REALTIME, 20);
	SAY(pthread_mutex_trylock(&left));
	SAY(pthread_mutex_timedlock(&left, &soon));
	/* glibc lets anybody unlock a normal mutex. */
	SAY(pthread_mutex_unlock(&left));
	SAY(pthread_mutex_lock(&left));
	start(last, NULL);
	pthread_exit(NULL);
}
