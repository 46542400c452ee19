// SPDX-License-Identifier: MIT OR Apache-2.0
/* Cancellation while waiting for a condition: the thread ends, its clean-up
 * handlers run with the mutex held, and no signal is lost with it. */
#include "say.h"

static pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int waiting, tokens, cleaned, survived;

static void clean_up(void *argument)
{
	cleaned++;
	/* EPERM if the mutex were not held by this thread. */
	printf("cleaned up %s, unlock: %s\n", (const char *)argument,
	       name_of(pthread_mutex_unlock(&mutex)));
}

static void *wait_for_ever(void *argument)
{
	MUST(pthread_mutex_lock(&mutex));
	pthread_cleanup_push(clean_up, argument);
	waiting++;
	for (;;)
		MUST(pthread_cond_wait(&cond, &mutex));
	pthread_cleanup_pop(0);
	return NULL;
}

static void *wait_long(void *argument)
{
	struct timespec later = in_ms(CLOCK_REALTIME, 60000);

	MUST(pthread_mutex_lock(&mutex));
	pthread_cleanup_push(clean_up, argument);
	waiting++;
	for (;;)
		MUST(pthread_cond_timedwait(&cond, &mutex, &later));
	pthread_cleanup_pop(0);
	return NULL;
}

static void *wait_twice(void *argument)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 50);
	int state;

	MUST(pthread_mutex_lock(&mutex));
	pthread_cleanup_push(clean_up, argument);
	MUST(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
	waiting++;
	printf("cancellation disabled: %s\n",
	       name_of(pthread_cond_timedwait(&cond, &mutex, &soon)));
	MUST(pthread_setcancelstate(state, NULL));
	/* It is pending, and acts at once although there is a token. */
	MUST(pthread_cond_wait(&cond, &mutex));
	puts("not cancelled");
	pthread_cleanup_pop(0);
	return NULL;
}

static void unlock(void *argument)
{
	(void)argument;
	MUST(pthread_mutex_unlock(&mutex));
}

static void *take_token(void *argument)
{
	MUST(pthread_mutex_lock(&mutex));
	pthread_cleanup_push(unlock, NULL);
	waiting++;
	while (tokens == 0)
		MUST(pthread_cond_wait(&cond, &mutex));
	tokens--;
	survived++;
	pthread_cleanup_pop(1);
	return argument;
}

static void until_waiting(int count)
{
	for (int reached = 0; !reached; sleep_ms(1)) {
		MUST(pthread_mutex_lock(&mutex));
		reached = waiting == count;
		MUST(pthread_mutex_unlock(&mutex));
	}
}

static void cancelled(void *(*function)(void *), const char *name)
{
	pthread_t thread;

	waiting = 0;
	thread = start(function, (void *)name);
	until_waiting(1);
	MUST(pthread_cancel(thread));
	printf("%s is cancelled: %d\n", name, join(thread) == PTHREAD_CANCELED);
}

/* A signal and a cancellation at the same moment. Of two that wait one is
 * cancelled; a token is given; the other one must get it. */
static void no_signal_is_lost(void)
{
	for (int round = 0; round < 300; round++) {
		pthread_t a, b;

		waiting = 0;
		survived = 0;
		tokens = 0;
		a = start(take_token, NULL);
		until_waiting(1);
		b = start(take_token, NULL);
		until_waiting(2);
		MUST(pthread_mutex_lock(&mutex));
		tokens = 1;
		if (round % 2)
			MUST(pthread_cond_signal(&cond));
		MUST(pthread_cancel(a));
		if (round % 2 == 0)
			MUST(pthread_cond_signal(&cond));
		MUST(pthread_mutex_unlock(&mutex));
		if (join(a) != PTHREAD_CANCELED) {
			/* It was faster, and the token is gone. */
			MUST(pthread_cancel(b));
		}
		join(b);
		if (survived != 1 || tokens != 0)
			printf("round %d: %d took the token\n", round, survived);
	}
	puts("no signal lost");
}

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shared;

static void unlock_plain(void *argument)
{
	(void)argument;
	printf("held: %s\n", name_of(pthread_mutex_trylock(&plain)));
	MUST(pthread_mutex_unlock(&plain));
}

static void *wait_shared(void *argument)
{
	MUST(pthread_mutex_lock(&plain));
	pthread_cleanup_push(unlock_plain, argument);
	waiting++;
	for (;;)
		MUST(pthread_cond_wait(&shared, &plain));
	pthread_cleanup_pop(0);
	return NULL;
}

static void with_a_shared_condition(void)
{
	pthread_condattr_t attr;
	pthread_t thread;

	MUST(pthread_condattr_init(&attr));
	MUST(pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	MUST(pthread_cond_init(&shared, &attr));
	waiting = 0;
	thread = start(wait_shared, NULL);
	for (int reached = 0; !reached; sleep_ms(1)) {
		MUST(pthread_mutex_lock(&plain));
		reached = waiting;
		MUST(pthread_mutex_unlock(&plain));
	}
	MUST(pthread_cancel(thread));
	printf("cancelled: %d\n", join(thread) == PTHREAD_CANCELED);
	SAY(pthread_mutex_lock(&plain));
	SAY(pthread_cond_signal(&shared));
	SAY(pthread_mutex_unlock(&plain));
	SAY(pthread_cond_destroy(&shared));
}

int main(void)
{
	cancelled(wait_for_ever, "wait");
	cancelled(wait_long, "timed wait");
	cancelled(wait_twice, "pending");
	printf("cleaned: %d\n", cleaned);
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
	no_signal_is_lost();
	with_a_shared_condition();
	SAY(pthread_cond_destroy(&cond));
	return 0;
}
