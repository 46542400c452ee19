/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A lock between work that nobody waits for and work that somebody waits for.
 *
 *	cc -pthread -I crates/hints/include -o convoy crates/hints/examples/convoy.c
 *	./convoy 1000
 *
 * One thread rebuilds an index in the background tier and holds the lock for a
 * while each time; another, time-sensitive, takes the same lock for a moment.
 * Under UFS with busy CPUs the first would be preempted while it holds the lock
 * and keep the second waiting. Since both say what they hold and wait for, UFS
 * lets the first run on for just as long as the second waits. Prints the longest
 * wait. Without UFS the calls do nothing and the program is the same.
 */
#include <giveway/hints.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int done;

/* A lock with hints: what a program's own lock wrapper would do. */
static void hinted_lock(void)
{
	if (pthread_mutex_trylock(&lock) != 0) {
		giveway_wait((uintptr_t)&lock);
		pthread_mutex_lock(&lock);
		giveway_wait_done();
	}
	giveway_hold((uintptr_t)&lock);
}

static void hinted_unlock(void)
{
	pthread_mutex_unlock(&lock);
	giveway_release((uintptr_t)&lock);
}

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static void *rebuild(void *unused)
{
	long until;

	(void)unused;
	giveway_hints_attach();
	giveway_set_domain((uintptr_t)&lock);
	giveway_set_tier(GIVEWAY_TIER_BACKGROUND);
	while (!done) {
		hinted_lock();
		for (until = now_us() + 500; now_us() < until;)
			;
		hinted_unlock();
	}
	giveway_hints_detach();
	return NULL;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1000;
	long start, waited, longest = 0;
	pthread_t thread;

	if (giveway_hints_open(NULL) != 0)
		fprintf(stderr, "no hints: UFS is not loaded, or this user may not use its table\n");
	giveway_hints_attach();
	giveway_set_domain((uintptr_t)&lock);
	if (pthread_create(&thread, NULL, rebuild, NULL) != 0)
		return 1;
	while (rounds-- > 0) {
		start = now_us();
		hinted_lock();
		waited = now_us() - start;
		hinted_unlock();
		if (waited > longest)
			longest = waited;
		usleep(1000);
	}
	done = 1;
	pthread_join(thread, NULL);
	printf("longest wait for the lock: %ld us\n", longest);
	return 0;
}
