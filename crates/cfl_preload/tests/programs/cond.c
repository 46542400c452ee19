// SPDX-License-Identifier: MIT OR Apache-2.0
/* Condition variables: who wakes, who does not, when, and what is refused. */
#include "say.h"
#include <signal.h>

#define WAITERS 6

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, tokens, woken;

static void *take_token(void *argument)
{
	(void)argument;
	MUST(pthread_mutex_lock(&mutex));
	waiting++;
	while (tokens == 0)
		MUST(pthread_cond_wait(&cond, &mutex));
	tokens--;
	woken++;
	MUST(pthread_mutex_unlock(&mutex));
	return NULL;
}

static void until(int *what, int value)
{
	for (int reached = 0; !reached; sleep_ms(1)) {
		MUST(pthread_mutex_lock(&mutex));
		reached = *what == value;
		MUST(pthread_mutex_unlock(&mutex));
	}
}

static void signal_and_broadcast(void)
{
	pthread_t threads[WAITERS];

	puts("-- each signal lets one go on, a broadcast all");
	for (int i = 0; i < WAITERS; i++)
		threads[i] = start(take_token, NULL);
	until(&waiting, WAITERS);
	for (int i = 0; i < 2; i++) {
		MUST(pthread_mutex_lock(&mutex));
		tokens++;
		MUST(pthread_mutex_unlock(&mutex));
		/* Without the mutex, too. */
		MUST(pthread_cond_signal(&cond));
		until(&woken, i + 1);
	}
	MUST(pthread_mutex_lock(&mutex));
	tokens += WAITERS - 2;
	MUST(pthread_cond_broadcast(&cond));
	MUST(pthread_mutex_unlock(&mutex));
	for (int i = 0; i < WAITERS; i++)
		join(threads[i]);
	printf("woken: %d, tokens: %d\n", woken, tokens);
}

static void times(clockid_t clock, const char *name)
{
	pthread_condattr_t attr;
	pthread_cond_t c;
	struct timespec before, after, until;
	struct timespec negative = { -5, 0 }, epoch = { 0, 0 }, bad = { 1, 1000000000 };
	long ms;

	printf("-- %s\n", name);
	MUST(pthread_condattr_init(&attr));
	MUST(pthread_condattr_setclock(&attr, clock));
	SAY(pthread_cond_init(&c, &attr));
	MUST(pthread_mutex_lock(&mutex));
	clock_gettime(clock, &before);
	until = in_ms(clock, 50);
	SAY(pthread_cond_timedwait(&c, &mutex, &until));
	clock_gettime(clock, &after);
	ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	printf("waited long enough: %d, not too long: %d\n", ms >= 49, ms < 5000);
	until = in_ms(CLOCK_MONOTONIC, 20);
	SAY(pthread_cond_clockwait(&c, &mutex, CLOCK_MONOTONIC, &until));
	until = in_ms(CLOCK_REALTIME, 20);
	SAY(pthread_cond_clockwait(&c, &mutex, CLOCK_REALTIME, &until));
	SAY(pthread_cond_clockwait(&c, &mutex, CLOCK_THREAD_CPUTIME_ID, &until));
	SAY(pthread_cond_timedwait(&c, &mutex, &negative));
	SAY(pthread_cond_timedwait(&c, &mutex, &epoch));
	SAY(pthread_cond_timedwait(&c, &mutex, &bad));
	SAY(pthread_cond_clockwait(&c, &mutex, CLOCK_MONOTONIC, &bad));
	SAY(pthread_mutex_trylock(&mutex));
	MUST(pthread_mutex_unlock(&mutex));
	SAY(pthread_cond_signal(&c));
	SAY(pthread_cond_broadcast(&c));
	SAY(pthread_cond_destroy(&c));
}

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void *signal_when_free(void *argument)
{
	(void)argument;
	MUST(pthread_mutex_lock(&recursive));
	tokens = 1;
	MUST(pthread_cond_signal(&cond));
	MUST(pthread_mutex_unlock(&recursive));
	return NULL;
}

static void owners(void)
{
	pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	struct timespec soon = in_ms(CLOCK_REALTIME, 20);
	pthread_t other;

	puts("-- mutexes that know their owner");
	SAY(pthread_cond_wait(&cond, &checking));
	SAY(pthread_cond_timedwait(&cond, &checking, &soon));
	SAY(pthread_cond_wait(&cond, &recursive));
	MUST(pthread_mutex_lock(&checking));
	soon = in_ms(CLOCK_REALTIME, 20);
	SAY(pthread_cond_timedwait(&cond, &checking, &soon));
	SAY(pthread_mutex_lock(&checking));
	SAY(pthread_mutex_unlock(&checking));
	tokens = 0;
	MUST(pthread_mutex_lock(&recursive));
	other = start(signal_when_free, NULL);
	while (tokens == 0)
		SAY(pthread_cond_wait(&cond, &recursive));
	SAY(pthread_mutex_unlock(&recursive));
	SAY(pthread_mutex_unlock(&recursive));
	join(other);
}

/* A condition may be destroyed, and its memory reused, as soon as all that
 * waited have been woken; some of them time out at the same moment. */
struct brief {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	int *go;
	long ms;
};

static void *wait_briefly(void *argument)
{
	struct brief *b = argument;
	struct timespec soon = in_ms(CLOCK_REALTIME, b->ms);
	int result = 0;

	MUST(pthread_mutex_lock(b->mutex));
	while (!*b->go && result == 0)
		result = pthread_cond_timedwait(b->cond, b->mutex, &soon);
	MUST(pthread_mutex_unlock(b->mutex));
	return NULL;
}

static void destroyed_at_once(void)
{
	puts("-- destroyed at once");
	for (int round = 0; round < 60; round++) {
		pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
		pthread_cond_t *c = malloc(sizeof *c);
		int go = 0;
		struct brief b = { &m, c, &go, 2 };
		pthread_t threads[4];

		MUST(pthread_cond_init(c, NULL));
		for (int i = 0; i < 4; i++)
			threads[i] = start(wait_briefly, &b);
		sleep_ms(2);
		MUST(pthread_mutex_lock(&m));
		go = 1;
		MUST(pthread_cond_broadcast(c));
		MUST(pthread_mutex_unlock(&m));
		MUST(pthread_cond_destroy(c));
		memset(c, 0x5a, sizeof *c);
		for (int i = 0; i < 4; i++)
			join(threads[i]);
		for (size_t i = 0; i < sizeof *c; i++)
			if (((unsigned char *)c)[i] != 0x5a)
				puts("touched after it was destroyed");
		free(c);
	}
	puts("done");
}

/* Destroying waits for a waiter that was signalled and has not run since, asleep: a
 * thread that has the only CPU, by real-time priority, must leave it to the waiter. */
static int held_up;

static void hold_up(int signal)
{
	(void)signal;
	__atomic_store_n(&held_up, 1, __ATOMIC_RELEASE);
	sleep_ms(300);
}

static void *wait_for_go(void *argument)
{
	struct brief *b = argument;

	MUST(pthread_mutex_lock(b->mutex));
	waiting = 1;
	while (!*b->go)
		MUST(pthread_cond_wait(b->cond, b->mutex));
	MUST(pthread_mutex_unlock(b->mutex));
	return NULL;
}

static void destroyed_before_the_waiter_runs(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct sigaction action = { .sa_handler = hold_up };
	struct timespec before, after;
	int go = 0;
	struct brief b = { &m, &c, &go, 0 };
	pthread_t waiter;
	long ms;

	puts("-- destroyed before the waiter runs");
	sigaction(SIGUSR1, &action, NULL);
	waiting = 0;
	waiter = start(wait_for_go, &b);
	for (int there = 0; !there; sleep_ms(1)) {
		MUST(pthread_mutex_lock(&m));
		there = waiting;
		MUST(pthread_mutex_unlock(&m));
	}
	MUST(pthread_kill(waiter, SIGUSR1));
	while (!__atomic_load_n(&held_up, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	MUST(pthread_mutex_lock(&m));
	go = 1;
	MUST(pthread_cond_signal(&c));
	MUST(pthread_mutex_unlock(&m));
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	SAY(pthread_cond_destroy(&c));
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	printf("used less than 10 ms of CPU: %d\n", ms < 10);
	join(waiter);
}

static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER;
static int queue[8], head, filled;

static void *produce(void *argument)
{
	for (long i = 1; i <= 3000; i++) {
		MUST(pthread_mutex_lock(&mutex));
		while (filled == 8)
			MUST(pthread_cond_wait(&not_full, &mutex));
		queue[(head + filled++) % 8] = i;
		MUST(pthread_cond_signal(&not_empty));
		MUST(pthread_mutex_unlock(&mutex));
	}
	return argument;
}

static void *consume(void *argument)
{
	long sum = 0;

	(void)argument;
	for (int i = 0; i < 3000; i++) {
		MUST(pthread_mutex_lock(&mutex));
		while (filled == 0)
			MUST(pthread_cond_wait(&not_empty, &mutex));
		sum += queue[head];
		head = (head + 1) % 8;
		filled--;
		MUST(pthread_cond_signal(&not_full));
		MUST(pthread_mutex_unlock(&mutex));
	}
	return (void *)sum;
}

static void bounded_queue(void)
{
	pthread_t producers[4], consumers[4];
	long sum = 0;

	puts("-- bounded queue, 4 to 4");
	for (int i = 0; i < 4; i++) {
		consumers[i] = start(consume, NULL);
		producers[i] = start(produce, NULL);
	}
	for (int i = 0; i < 4; i++) {
		join(producers[i]);
		sum += (long)join(consumers[i]);
	}
	printf("sum: %ld\n", sum);
}

int main(void)
{
	signal_and_broadcast();
	times(CLOCK_REALTIME, "CLOCK_REALTIME");
	times(CLOCK_MONOTONIC, "CLOCK_MONOTONIC");
	owners();
	destroyed_at_once();
	destroyed_before_the_waiter_runs();
	bounded_queue();
	return 0;
}
