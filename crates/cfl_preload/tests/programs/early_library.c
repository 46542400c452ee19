// SPDX-License-Identifier: MIT OR Apache-2.0
/* A library whose constructor uses locks, one of them until main unlocks it;
 * it is initialised before a preloaded library. */
#include "say.h"

pthread_mutex_t early_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t early_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
pthread_cond_t early_cond = PTHREAD_COND_INITIALIZER;

__attribute__((constructor)) static void begin(void)
{
	struct timespec soon = in_ms(CLOCK_REALTIME, 5);

	/* The first lock of all is the allocator's, for the output's buffer. */
	puts("-- constructor");
	SAY(pthread_mutex_lock(&early_recursive));
	SAY(pthread_mutex_lock(&early_recursive));
	SAY(pthread_mutex_lock(&early_mutex));
	SAY(pthread_cond_timedwait(&early_cond, &early_mutex, &soon));
}

/* After main, and after everything else is said. */
__attribute__((destructor)) static void end(void)
{
	SAY(pthread_mutex_lock(&early_mutex));
	SAY(pthread_cond_signal(&early_cond));
	SAY(pthread_mutex_unlock(&early_mutex));
	fflush(stdout);
}
