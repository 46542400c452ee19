// SPDX-License-Identifier: MIT OR Apache-2.0
/* hold THREADS OUTSIDE_NS HELD_NS...: threads take turns at one mutex for two
 * seconds. Each holds it for its HELD_NS, the numbers going round, and does
 * something else for OUTSIDE_NS. Prints how long each held it, in ms. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST 64

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static uint64_t outside_ns, held_ns[MOST], sum_ns[MOST];

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static void spend(uint64_t ns)
{
	for (uint64_t end = now_ns() + ns; now_ns() < end;)
		;
}

static void *work(void *argument)
{
	long i = (long)argument;

	while (!stop) {
		uint64_t begin;

		pthread_mutex_lock(&mutex);
		begin = now_ns();
		spend(held_ns[i]);
		sum_ns[i] += now_ns() - begin;
		pthread_mutex_unlock(&mutex);
		if (outside_ns > 0)
			spend(outside_ns);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	int count = argc > 3 ? atoi(argv[1]) : 0;

	if (count < 1 || count > MOST) {
		fprintf(stderr, "usage: hold THREADS OUTSIDE_NS HELD_NS... (at most %d threads)\n", MOST);
		return 2;
	}
	outside_ns = strtoull(argv[2], NULL, 10);
	for (long i = 0; i < count; i++) {
		held_ns[i] = strtoull(argv[3 + i % (argc - 3)], NULL, 10);
		pthread_create(&threads[i], NULL, work, (void *)i);
	}
	sleep(2);
	stop = 1;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < count; i++)
		printf("%.1f%c", sum_ns[i] / 1e6, i + 1 < count ? ' ' : '\n');
	return 0;
}
