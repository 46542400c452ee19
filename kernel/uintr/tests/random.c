// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random calls and instructions from threads that come, go and fork: nothing but an
 * answer follows. The kernel's log says what else did.
 */
#include "harness.h"

#include <time.h>

static atomic_ulong fuzz_seed;

static void fuzz_one(uint64_t random)
{
	uint64_t a = random >> 20, b = random >> 40;
	/* Descriptors of the run, not the standard three */
	int fd = 3 + a % 40;

	switch (random >> 8 & 15) {
	case 0:
	case 1:
		mine = &boxes[b % THREADS];
		receive(b % 8 ? (void *)on_interrupt : (void *)b);
		break;
	case 2:
		receive_on(on_interrupt, (void *)a, b, random >> 16 & 3);
		break;
	case 3:
		unreceive(fd);
		break;
	case 4:
	case 5:
	case 6:
		sender(fd, b % 66, b >> 8 & 1);
		break;
	case 7:
		unsender(a % 12);
		break;
	case 8:
		if (fd != device())
			close(fd);
		break;
	case 9:
		ioctl(device(), random >> 32, a);
		break;
	case 10:
		if (b % 64 == 0) {
			pid_t pid = fork();

			if (pid == 0) {
				for (int i = 0; i < 20; i++)
					sender(3 + i, i, 0);
				_exit(0);
			}
			waitpid(pid, NULL, 0);
		}
		break;
	case 11:
		_stui();
		break;
	case 12:
		sched_yield();
		break;
	default:
		_senduipi(a % 12);
	}
}

static void *fuzz_thread(void *unused)
{
	volatile uint64_t state = atomic_fetch_add(&fuzz_seed, 1) * 0x9e3779b97f4a7c15ull;

	volatile int turns = 0;

	mine = &boxes[0];
	/* A refused instruction, or a handler that is none, comes back to here. */
	sigsetjmp(after_fault, 1);
	while (turns++ < 500) {
		uint64_t random = state;

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		state = random;
		fuzz_one(random);
	}
	return NULL;
}

/*
 * A round in a process of its own: what a handler that is none does to it is its affair.
 * Whether it came to its end.
 */
static bool round_of(long seed)
{
	struct sigaction act = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		pthread_t threads[4];

		ualarm(200000, 0);
		fuzz_seed = seed * 4 + 1;
		sigaction(SIGILL, &act, NULL);
		sigaction(SIGSEGV, &act, NULL);
		device();
		for (int t = 0; t < 4; t++)
			pthread_create(&threads[t], NULL, fuzz_thread, NULL);
		for (int t = 0; t < 4; t++)
			pthread_join(threads[t], NULL);
		_exit(0);
	}
	expect(waitpid(pid, &status, 0), pid);
	return status == 0;
}

static void say_rounds(long ended, long rounds)
{
	printf("%ld of %ld rounds of 2000 calls came to their end\n", ended, rounds);
	expect(ended > 0, 1);
}

void random_calls_break_nothing(long rounds)
{
	long ended = 0;

	for (long seed = 0; seed < rounds; seed++)
		ended += round_of(seed);
	say_rounds(ended, rounds);
}

/* By the guest's clock. Seeds that the case above does not have. */
void random_calls_for_seconds(long seconds)
{
	long begin = time(NULL), ended = 0, rounds = 0;

	for (; time(NULL) - begin < seconds; rounds++)
		ended += round_of(1000000 + rounds);
	say_rounds(ended, rounds);
}
