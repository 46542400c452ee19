// SPDX-License-Identifier: MIT OR Apache-2.0
/* One mutex under every name and version that glibc gives its functions, and a
 * condition under the versions that old programs are bound to. */
#include "say.h"

#ifdef __x86_64__
#define OLDEST "@GLIBC_2.2.5"
#else
#define OLDEST "@GLIBC_2.17"
#endif

#define OLD(type, name, symbol, ...) \
	__asm__(".symver " #name ", " #symbol OLDEST); \
	type name(__VA_ARGS__)

/* Names for old libraries, to which nothing new can be linked otherwise. */
OLD(int, alias_init, __pthread_mutex_init, pthread_mutex_t *m, const pthread_mutexattr_t *attr);
OLD(int, alias_lock, __pthread_mutex_lock, pthread_mutex_t *m);
OLD(int, alias_trylock, __pthread_mutex_trylock, pthread_mutex_t *m);
OLD(int, alias_unlock, __pthread_mutex_unlock, pthread_mutex_t *m);
OLD(int, alias_destroy, __pthread_mutex_destroy, pthread_mutex_t *m);
OLD(int, old_trylock, pthread_mutex_trylock, pthread_mutex_t *m);
OLD(int, old_timedlock, pthread_mutex_timedlock, pthread_mutex_t *m, const struct timespec *until);
/* On x86-64 glibc has a second set, of another layout. */
OLD(int, old_init, pthread_cond_init, pthread_cond_t *c, const pthread_condattr_t *attr);
OLD(int, old_wait, pthread_cond_wait, pthread_cond_t *c, pthread_mutex_t *m);
OLD(int, old_timedwait, pthread_cond_timedwait, pthread_cond_t *c, pthread_mutex_t *m,
    const struct timespec *until);
OLD(int, old_signal, pthread_cond_signal, pthread_cond_t *c);
OLD(int, old_broadcast, pthread_cond_broadcast, pthread_cond_t *c);
OLD(int, old_destroy, pthread_cond_destroy, pthread_cond_t *c);

static pthread_mutex_t m;
static pthread_mutex_t knows_owner = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c;
static int turn;

static void *stranger(void *argument)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 10);

	SAY(pthread_mutex_trylock(&m));
	SAY(alias_trylock(&m));
	SAY(old_trylock(&m));
	SAY(old_timedlock(&m, &soon));
	return argument;
}

static void *partner(void *argument)
{
	MUST(pthread_mutex_lock(&m));
	for (int i = 0; i < 50; i++) {
		while (turn != 1)
			MUST(old_wait(&c, &m));
		turn = 0;
		MUST(old_broadcast(&c));
	}
	MUST(pthread_mutex_unlock(&m));
	return argument;
}

int main(void)
{
	struct timespec soon;
	pthread_t other;

	SAY(pthread_mutex_lock(&knows_owner));
	SAY(alias_lock(&knows_owner));
	SAY(alias_trylock(&knows_owner));
	SAY(alias_unlock(&knows_owner));
	SAY(alias_unlock(&knows_owner));
	SAY(alias_destroy(&knows_owner));
	SAY(alias_unlock(&knows_owner));
	SAY(alias_destroy(&knows_owner));

	SAY(alias_init(&m, NULL));
	SAY(pthread_mutex_lock(&m));
	join(start(stranger, NULL));
	SAY(alias_unlock(&m));
	SAY(alias_lock(&m));
	join(start(stranger, NULL));
	SAY(pthread_mutex_unlock(&m));
	SAY(old_trylock(&m));
	join(start(stranger, NULL));

	SAY(old_init(&c, NULL));
	soon = in_ms(CLOCK_REALTIME, 10);
	SAY(old_timedwait(&c, &m, &soon));
	other = start(partner, NULL);
	for (int i = 0; i < 50; i++) {
		turn = 1;
		MUST(old_signal(&c));
		while (turn != 0)
			MUST(old_wait(&c, &m));
	}
	SAY(alias_unlock(&m));
	join(other);
	SAY(old_destroy(&c));
	SAY(alias_destroy(&m));
	return 0;
}
