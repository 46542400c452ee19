// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads that get their names in every way, each before or after its first
 * lock, and then hold one lock for so many rounds that the groups' counters
 * tell who went where.
 *
 *   name       named                             rounds
 *   self:1     by itself, before it locks        1000
 *   self:2     by itself, after its first lock   2000
 *   other:1    by its creator, before            4000
 *   other:2    by its creator, after             8000
 *   child      inherits its creator's            16000
 */
#include "say.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t named;

static void rounds(int count)
{
	for (int i = 0; i < count; i++) {
		MUST(pthread_mutex_lock(&m));
		MUST(pthread_mutex_unlock(&m));
	}
}

static void *self_before(void *argument)
{
	MUST(pthread_setname_np(pthread_self(), "self:1"));
	rounds(1000);
	return argument;
}

static void *inherits(void *argument)
{
	rounds(16000);
	return argument;
}

static void *self_after(void *argument)
{
	rounds(1);
	MUST(pthread_setname_np(pthread_self(), "self:2"));
	rounds(2000);
	return argument;
}

static void *makes_a_child(void *argument)
{
	MUST(pthread_setname_np(pthread_self(), "child"));
	join(start(inherits, NULL));
	return argument;
}

static void *other_before(void *argument)
{
	pthread_barrier_wait(&named);
	rounds(4000);
	return argument;
}

static void *other_after(void *argument)
{
	rounds(1);
	pthread_barrier_wait(&named);
	pthread_barrier_wait(&named);
	rounds(8000);
	return argument;
}

int main(void)
{
	pthread_t thread;

	MUST(pthread_barrier_init(&named, NULL, 2));
	join(start(self_before, NULL));
	join(start(self_after, NULL));
	join(start(makes_a_child, NULL));

	thread = start(other_before, NULL);
	MUST(pthread_setname_np(thread, "other:1"));
	pthread_barrier_wait(&named);
	join(thread);

	thread = start(other_after, NULL);
	pthread_barrier_wait(&named);
	MUST(pthread_setname_np(thread, "other:2"));
	pthread_barrier_wait(&named);
	join(thread);
	/* A name too long is refused, and moves nobody. */
	SAY(pthread_setname_np(pthread_self(), "other:345678901234") != 0);
	return 0;
}
