// SPDX-License-Identifier: MIT OR Apache-2.0
/* No operation changes errno, however it ends. */
#include "say.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int changed;

#define KEEPS(call) \
	do { \
		errno = 4711; \
		(void)(call); \
		if (errno != 4711) { \
			printf("%s changed errno\n", #call); \
			changed = 1; \
		} \
	} while (0)

static void *contend(void *argument)
{
	for (int i = 0; i < 300; i++) {
		KEEPS(pthread_mutex_lock(&mutex));
		if (i % 20 == 0)
			sleep_ms(1);
		KEEPS(pthread_mutex_unlock(&mutex));
	}
	return argument;
}

static void *wait_once(void *argument)
{
	KEEPS(pthread_mutex_lock(&queue));
	KEEPS(pthread_cond_wait(&cond, &queue));
	KEEPS(pthread_mutex_unlock(&queue));
	return argument;
}

static void *time_out(void *argument)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 5);

	KEEPS(pthread_mutex_trylock(&queue));
	KEEPS(pthread_mutex_timedlock(&queue, &soon));
	soon = in_ms(CLOCK_MONOTONIC, 5);
	KEEPS(pthread_mutex_clocklock(&queue, CLOCK_MONOTONIC, &soon));
	return argument;
}

int main(void)
{
	pthread_t threads[4], waiter;
	struct timespec soon;

	for (int i = 0; i < 4; i++)
		threads[i] = start(contend, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	waiter = start(wait_once, NULL);
	sleep_ms(20);
	MUST(pthread_mutex_lock(&queue));
	join(start(time_out, NULL));
	soon = in_ms(CLOCK_REALTIME, 5);
	KEEPS(pthread_cond_timedwait(&cond, &queue, &soon));
	KEEPS(pthread_cond_signal(&cond));
	KEEPS(pthread_cond_broadcast(&cond));
	MUST(pthread_mutex_unlock(&queue));
	join(waiter);
	puts(changed ? "errno was changed" : "errno was kept");
	return 0;
}
