// SPDX-License-Identifier: MIT OR Apache-2.0
/* Mutexes that stay glibc's: robust, priority inheritance, shared between
 * processes; and conditions of either side with mutexes of either side. */
#include "say.h"
#include <sys/mman.h>
#include <sys/wait.h>


static void *die_holding(void *argument)
{
	MUST(pthread_mutex_lock(argument));
	return NULL;
}

/* glibc notes the owner of the mutexes that it locks. */
static void whose(pthread_mutex_t *m)
{
	MUST(pthread_mutex_lock(m));
	printf("locked by glibc: %d\n", m->__data.__owner == gettid());
	MUST(pthread_mutex_unlock(m));
}

static void make(pthread_mutex_t *m, int robust, int protocol, int pshared)
{
	pthread_mutexattr_t attr;

	MUST(pthread_mutexattr_init(&attr));
	MUST(pthread_mutexattr_setrobust(&attr, robust));
	MUST(pthread_mutexattr_setprotocol(&attr, protocol));
	MUST(pthread_mutexattr_setpshared(&attr, pshared));
	MUST(pthread_mutex_init(m, &attr));
}

static void make_cond(pthread_cond_t *c, int pshared, clockid_t clock)
{
	pthread_condattr_t attr;

	MUST(pthread_condattr_init(&attr));
	MUST(pthread_condattr_setpshared(&attr, pshared));
	MUST(pthread_condattr_setclock(&attr, clock));
	MUST(pthread_cond_init(c, &attr));
}

static void robust(void)
{
	pthread_mutex_t m;

	puts("-- robust");
	make(&m, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_PRIVATE);
	join(start(die_holding, &m));
	SAY(pthread_mutex_lock(&m));
	SAY(pthread_mutex_consistent(&m));
	SAY(pthread_mutex_unlock(&m));
	join(start(die_holding, &m));
	SAY(pthread_mutex_trylock(&m));
	SAY(pthread_mutex_unlock(&m));
	SAY(pthread_mutex_lock(&m));
	SAY(pthread_mutex_destroy(&m));
}

struct pair {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int turn;
};

static void *ping(void *argument)
{
	struct pair *p = argument;

	MUST(pthread_mutex_lock(&p->mutex));
	for (int i = 0; i < 200; i++) {
		while (p->turn != 1)
			MUST(pthread_cond_wait(&p->cond, &p->mutex));
		p->turn = 0;
		MUST(pthread_cond_signal(&p->cond));
	}
	MUST(pthread_mutex_unlock(&p->mutex));
	return NULL;
}

/* 200 rounds, each waiting for the other. */
static void play(struct pair *p)
{
	pthread_t other = start(ping, p);

	MUST(pthread_mutex_lock(&p->mutex));
	for (int i = 0; i < 200; i++) {
		p->turn = 1;
		MUST(pthread_cond_broadcast(&p->cond));
		while (p->turn != 0)
			MUST(pthread_cond_wait(&p->cond, &p->mutex));
	}
	MUST(pthread_mutex_unlock(&p->mutex));
	join(other);
	puts("200 rounds");
}

static void mixed(const char *what, int protocol, int robust, int mutex_shared, int cond_shared)
{
	struct pair p = { .turn = 0 };
	struct timespec soon, bad = { 0, 1000000000 };

	printf("-- %s\n", what);
	make(&p.mutex, robust, protocol, mutex_shared);
	make_cond(&p.cond, cond_shared, CLOCK_MONOTONIC);
	if (protocol != PTHREAD_PRIO_NONE || robust == PTHREAD_MUTEX_ROBUST ||
	    mutex_shared == PTHREAD_PROCESS_SHARED)
		whose(&p.mutex);
	play(&p);
	MUST(pthread_mutex_lock(&p.mutex));
	soon = in_ms(CLOCK_MONOTONIC, 20);
	SAY(pthread_cond_timedwait(&p.cond, &p.mutex, &soon));
	soon = in_ms(CLOCK_REALTIME, 20);
	SAY(pthread_cond_clockwait(&p.cond, &p.mutex, CLOCK_REALTIME, &soon));
	SAY(pthread_cond_timedwait(&p.cond, &p.mutex, &bad));
	MUST(pthread_mutex_unlock(&p.mutex));
	SAY(pthread_cond_destroy(&p.cond));
	SAY(pthread_mutex_destroy(&p.mutex));
}

static void between_processes(void)
{
	struct pair *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t child;

	puts("-- between processes");
	fflush(stdout);
	make(&p->mutex, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE, PTHREAD_PROCESS_SHARED);
	make_cond(&p->cond, PTHREAD_PROCESS_SHARED, CLOCK_REALTIME);
	p->turn = 0;
	child = fork();
	if (child == 0) {
		ping(p);
		_exit(7);
	}
	MUST(pthread_mutex_lock(&p->mutex));
	for (int i = 0; i < 200; i++) {
		p->turn = 1;
		MUST(pthread_cond_signal(&p->cond));
		while (p->turn != 0)
			MUST(pthread_cond_wait(&p->cond, &p->mutex));
	}
	MUST(pthread_mutex_unlock(&p->mutex));
	waitpid(child, &status, 0);
	printf("child: %d\n", WEXITSTATUS(status));
	child = fork();
	if (child == 0) {
		MUST(pthread_mutex_lock(&p->mutex));
		_exit(0);
	}
	waitpid(child, &status, 0);
	SAY(pthread_mutex_lock(&p->mutex));
	SAY(pthread_mutex_consistent(&p->mutex));
	SAY(pthread_mutex_unlock(&p->mutex));
}

int main(void)
{
	robust();
	mixed("PI mutex, private condition", PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED,
	      PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_PRIVATE);
	mixed("robust mutex, private condition", PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST,
	      PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_PRIVATE);
	mixed("shared mutex, shared condition", PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED,
	      PTHREAD_PROCESS_SHARED, PTHREAD_PROCESS_SHARED);
	mixed("private mutex, shared condition", PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED,
	      PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_SHARED);
	mixed("private mutex, private condition", PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED,
	      PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_PRIVATE);
	between_processes();
	return 0;
}
