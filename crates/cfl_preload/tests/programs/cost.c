// SPDX-License-Identifier: MIT OR Apache-2.0
/* cost: what locking and unlocking a mutex costs that nobody else wants, in
 * ns, for each kind: the median of 21 rounds of a million. Compiled with ALONE,
 * in a process that never has a second thread. */
#include "say.h"

#define ROUNDS 21
#define LOCKS 1000000

#ifndef ALONE
/* glibc leaves out atomic operations while there is one thread. */
static void *second_thread(void *argument)
{
	pause();
	return argument;
}
#endif

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(void)
{
	static const struct { const char *name; int kind; } kinds[] = {
		{ "normal", PTHREAD_MUTEX_NORMAL },
		{ "recursive", PTHREAD_MUTEX_RECURSIVE },
		{ "errorcheck", PTHREAD_MUTEX_ERRORCHECK },
	};

#ifndef ALONE
	start(second_thread, NULL);
#endif
	for (int k = 0; k < 3; k++) {
		pthread_mutexattr_t attr;
		pthread_mutex_t m;
		double ns[ROUNDS];

		MUST(pthread_mutexattr_init(&attr));
		MUST(pthread_mutexattr_settype(&attr, kinds[k].kind));
		MUST(pthread_mutex_init(&m, &attr));
		for (int round = 0; round < ROUNDS; round++) {
			struct timespec begin, end;

			clock_gettime(CLOCK_MONOTONIC, &begin);
			for (int i = 0; i < LOCKS; i++) {
				pthread_mutex_lock(&m);
				pthread_mutex_unlock(&m);
			}
			clock_gettime(CLOCK_MONOTONIC, &end);
			ns[round] = ((end.tv_sec - begin.tv_sec) * 1e9 +
				     (end.tv_nsec - begin.tv_nsec)) / LOCKS;
		}
		qsort(ns, ROUNDS, sizeof *ns, by_size);
		printf("%s: %.1f ns\n", kinds[k].name, ns[ROUNDS / 2]);
	}
	return 0;
}
