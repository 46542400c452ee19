// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * share SECONDS: four threads hold one lock as long as they can, two named
 * "heavy", two named "light". Prints how long each pair held it, in ms. The
 * critical section is a span of time, 100 us.
 */
#include "say.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static double held_ms[2];

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void *hold(void *argument)
{
	long pair = (long)argument;

	MUST(pthread_setname_np(pthread_self(), pair ? "light" : "heavy"));
	while (!stop) {
		double begin;

		MUST(pthread_mutex_lock(&m));
		begin = now_ms();
		while (now_ms() < begin + 0.1)
			;
		held_ms[pair] += now_ms() - begin;
		MUST(pthread_mutex_unlock(&m));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];

	for (long i = 0; i < 4; i++)
		threads[i] = start(hold, (void *)(i % 2));
	sleep_ms(argc > 1 ? atol(argv[1]) * 1000 : 1000);
	stop = 1;
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	printf("%.0f %.0f\n", held_ms[0], held_ms[1]);
	return 0;
}
