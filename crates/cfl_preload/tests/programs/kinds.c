// SPDX-License-Identifier: MIT OR Apache-2.0
/* Every kind of mutex, however initialised: what each operation answers to the
 * owner, to another thread, on time-out, and after the mutex was destroyed. */
#include "say.h"

static pthread_mutex_t statics[] = {
	PTHREAD_MUTEX_INITIALIZER,
	PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
	PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
	PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
};
static const int kinds[] = {
	PTHREAD_MUTEX_NORMAL,
	PTHREAD_MUTEX_RECURSIVE,
	PTHREAD_MUTEX_ERRORCHECK,
	PTHREAD_MUTEX_ADAPTIVE_NP,
};
static const char *names[] = { "normal", "recursive", "errorcheck", "adaptive" };

static void *stranger(void *argument)
{
	pthread_mutex_t *m = argument;
	struct timespec soon = in_ms(CLOCK_REALTIME, 30);
	struct timespec soon_mono = in_ms(CLOCK_MONOTONIC, 30);
	struct timespec past = { -1, 0 }, epoch = { 0, 0 }, bad = { 0, 1000000000 };

	SAY(pthread_mutex_trylock(m));
	SAY(pthread_mutex_timedlock(m, &soon));
	SAY(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &soon_mono));
	SAY(pthread_mutex_clocklock(m, CLOCK_REALTIME, &soon));
	SAY(pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &soon));
	SAY(pthread_mutex_timedlock(m, &past));
	SAY(pthread_mutex_timedlock(m, &epoch));
	SAY(pthread_mutex_timedlock(m, &bad));
	return NULL;
}

static void *thief(void *argument)
{
	SAY(pthread_mutex_unlock(argument));
	return NULL;
}

static void exercise(pthread_mutex_t *m, int kind, int owns_again)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 30);
	struct timespec bad = { 0, -1 };

	SAY(pthread_mutex_lock(m));
	join(start(stranger, m));
	SAY(pthread_mutex_trylock(m));
	if (owns_again) {
		SAY(pthread_mutex_lock(m));
		SAY(pthread_mutex_timedlock(m, &soon));
		SAY(pthread_mutex_timedlock(m, &bad));
	}
	SAY(pthread_mutex_destroy(m));
	if (kind == PTHREAD_MUTEX_RECURSIVE) {
		SAY(pthread_mutex_unlock(m));
		SAY(pthread_mutex_unlock(m));
		SAY(pthread_mutex_unlock(m));
		SAY(pthread_mutex_unlock(m));
	}
	if (kind == PTHREAD_MUTEX_RECURSIVE || kind == PTHREAD_MUTEX_ERRORCHECK) {
		SAY(pthread_mutex_destroy(m));
		join(start(thief, m));
	}
	SAY(pthread_mutex_unlock(m));
	if (kind == PTHREAD_MUTEX_RECURSIVE || kind == PTHREAD_MUTEX_ERRORCHECK)
		SAY(pthread_mutex_unlock(m));
	/* Free: the time does not matter, not even if it is none. */
	SAY(pthread_mutex_timedlock(m, &bad));
	SAY(pthread_mutex_unlock(m));
	SAY(pthread_mutex_trylock(m));
	SAY(pthread_mutex_unlock(m));
	SAY(pthread_mutex_consistent(m));
	SAY(pthread_mutex_destroy(m));
	SAY(pthread_mutex_lock(m));
	SAY(pthread_mutex_trylock(m));
	SAY(pthread_mutex_unlock(m));
}

int main(void)
{
	for (int i = 0; i < 4; i++) {
		pthread_mutexattr_t attr;
		pthread_mutex_t m;
		int checks = kinds[i] == PTHREAD_MUTEX_RECURSIVE ||
			     kinds[i] == PTHREAD_MUTEX_ERRORCHECK;

		printf("-- %s, static\n", names[i]);
		exercise(&statics[i], kinds[i], checks);

		printf("-- %s, by attributes\n", names[i]);
		MUST(pthread_mutexattr_init(&attr));
		MUST(pthread_mutexattr_settype(&attr, kinds[i]));
		memset(&m, 0xa5, sizeof m);
		SAY(pthread_mutex_init(&m, &attr));
		exercise(&m, kinds[i], checks);
	}
	return 0;
}
