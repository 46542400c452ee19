// SPDX-License-Identifier: MIT OR Apache-2.0
/* Forks of a process whose threads contend: the child goes on with every lock
 * that its thread holds or finds free, and with conditions that threads it
 * does not have were waiting for.
 *
 * More than POSIX promises: with glibc's own locks the child may hang where a
 * condition had waiters. */
#include "say.h"
#include <sys/wait.h>

static pthread_mutex_t hot = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t other = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static volatile int stop;
static int waiting, turn, owns;

static void *contend(void *argument)
{
	while (!stop) {
		MUST(pthread_mutex_lock(&hot));
		MUST(pthread_mutex_lock(&other));
		MUST(pthread_mutex_unlock(&other));
		MUST(pthread_mutex_unlock(&hot));
	}
	return argument;
}

static void *wait_for_stop(void *argument)
{
	MUST(pthread_mutex_lock(&gate));
	waiting++;
	while (!stop)
		MUST(pthread_cond_wait(&cond, &gate));
	MUST(pthread_mutex_unlock(&gate));
	return argument;
}

/* As libraries do it: all locks before the fork, none after it. */
static void lock_all(void)
{
	MUST(pthread_mutex_lock(&hot));
	MUST(pthread_mutex_lock(&other));
	MUST(pthread_mutex_lock(&other));
	MUST(pthread_mutex_lock(&gate));
}

static void unlock_all(void)
{
	MUST(pthread_mutex_unlock(&gate));
	MUST(pthread_mutex_unlock(&other));
	MUST(pthread_mutex_unlock(&other));
	MUST(pthread_mutex_unlock(&hot));
}

/* The child does not own what checks its owner, so it begins that anew. */
static void unlock_all_in_child(void)
{
	MUST(pthread_mutex_unlock(&gate));
	owns = pthread_mutex_unlock(&other) != EPERM;
	other = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	MUST(pthread_mutex_unlock(&hot));
}

static void *answer(void *argument)
{
	MUST(pthread_mutex_lock(&gate));
	for (int i = 0; i < 50; i++) {
		while (turn != 1)
			MUST(pthread_cond_wait(&cond, &gate));
		turn = 0;
		MUST(pthread_cond_broadcast(&cond));
	}
	MUST(pthread_mutex_unlock(&gate));
	return argument;
}

/* `wakes`: whether the first thing it does with the condition is to wake those
 * who are not there; else it would take them for waiters before its own. */
static int child(int wakes)
{
	pthread_t threads[3], partner;

	if (owns)
		return 1;
	if (wakes) {
		MUST(pthread_cond_signal(&cond));
		MUST(pthread_cond_broadcast(&cond));
	}
	stop = 0;
	for (int i = 0; i < 3; i++)
		threads[i] = start(contend, NULL);
	partner = start(answer, NULL);
	MUST(pthread_mutex_lock(&gate));
	for (int i = 0; i < 50; i++) {
		turn = 1;
		MUST(pthread_cond_signal(&cond));
		while (turn != 0)
			MUST(pthread_cond_wait(&cond, &gate));
	}
	MUST(pthread_mutex_unlock(&gate));
	join(partner);
	stop = 1;
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	return 42;
}

int main(void)
{
	pthread_t contenders[4], waiters[3];
	int good = 0;

	alarm(100);
	MUST(pthread_atfork(lock_all, unlock_all, unlock_all_in_child));
	for (int i = 0; i < 4; i++)
		contenders[i] = start(contend, NULL);
	for (int i = 0; i < 3; i++)
		waiters[i] = start(wait_for_stop, NULL);
	for (int reached = 0; !reached; sleep_ms(1)) {
		MUST(pthread_mutex_lock(&gate));
		reached = waiting == 3;
		MUST(pthread_mutex_unlock(&gate));
	}
	for (int round = 0; round < 30; round++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			/* And once more from the child. */
			pid_t grandchild = round % 3 ? -1 : fork();

			if (grandchild == 0)
				_exit(child(round % 2));
			if (grandchild > 0) {
				waitpid(grandchild, &status, 0);
				if (WEXITSTATUS(status) != 42)
					_exit(1);
			}
			_exit(child(round % 2));
		}
		waitpid(pid, &status, 0);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 42;
	}
	printf("children that went on: %d\n", good);
	MUST(pthread_mutex_lock(&gate));
	stop = 1;
	MUST(pthread_cond_broadcast(&cond));
	MUST(pthread_mutex_unlock(&gate));
	for (int i = 0; i < 4; i++)
		join(contenders[i]);
	for (int i = 0; i < 3; i++)
		join(waiters[i]);
	puts("the parent went on");
	return 0;
}
