// SPDX-License-Identifier: MIT OR Apache-2.0
/* The same objects under C11's names. */
#include "say.h"
#include <threads.h>

static const char *result_of(int result)
{
	switch (result) {
	case thrd_success: return "success";
	case thrd_busy: return "busy";
	case thrd_timedout: return "timedout";
	case thrd_nomem: return "nomem";
	default: return "error";
	}
}

#define TELL(call) printf("%s: %s\n", #call, result_of(call))

static mtx_t mutex;
static cnd_t cond;
static int turn;

static int stranger(void *argument)
{
	mtx_t *m = argument;
	struct timespec soon = in_ms(CLOCK_REALTIME, 20), bad = { 0, -1 };

	TELL(mtx_trylock(m));
	TELL(mtx_timedlock(m, &soon));
	TELL(mtx_timedlock(m, &bad));
	return 0;
}

static int ping(void *argument)
{
	(void)argument;
	mtx_lock(&mutex);
	for (int i = 0; i < 100; i++) {
		while (turn != 1)
			cnd_wait(&cond, &mutex);
		turn = 0;
		cnd_broadcast(&cond);
	}
	mtx_unlock(&mutex);
	return 7;
}

int main(void)
{
	static const int types[] = {
		mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive,
	};
	struct timespec soon;
	thrd_t thread;
	int result;

	for (int i = 0; i < 4; i++) {
		mtx_t m;

		printf("-- type %d\n", types[i]);
		TELL(mtx_init(&m, types[i]));
		TELL(mtx_lock(&m));
		thrd_create(&thread, stranger, &m);
		thrd_join(thread, NULL);
		if (types[i] & mtx_recursive) {
			TELL(mtx_lock(&m));
			TELL(mtx_trylock(&m));
			TELL(mtx_unlock(&m));
			TELL(mtx_unlock(&m));
		}
		TELL(mtx_unlock(&m));
		TELL(mtx_trylock(&m));
		TELL(mtx_unlock(&m));
		mtx_destroy(&m);
	}
	TELL(mtx_init(&mutex, 77));
	TELL(mtx_init(&mutex, mtx_plain));
	TELL(cnd_init(&cond));
	mtx_lock(&mutex);
	soon = in_ms(CLOCK_REALTIME, 20);
	TELL(cnd_timedwait(&cond, &mutex, &soon));
	thrd_create(&thread, ping, NULL);
	for (int i = 0; i < 100; i++) {
		turn = 1;
		cnd_signal(&cond);
		while (turn != 0)
			cnd_wait(&cond, &mutex);
	}
	mtx_unlock(&mutex);
	thrd_join(thread, &result);
	printf("result: %d\n", result);
	cnd_destroy(&cond);
	mtx_destroy(&mutex);
	return 0;
}
