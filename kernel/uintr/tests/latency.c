// SPDX-License-Identifier: GPL-2.0-only
/*
 * Latency, from the sender's instruction to the handler's first, between two CPUs; and
 * what the same short handler leaves as it was.
 */
#include "harness.h"

#include <sys/syscall.h>

static atomic_int ready;
static volatile uint64_t arrived;
static volatile pid_t latency_tid;
static volatile bool latency_done;

static inline uint64_t now(void)
{
	return __builtin_ia32_rdtsc();
}

void latency_entry(void);
asm("latency_entry:\n"
    "	push %rax\n"
    "	push %rdx\n"
    "	rdtsc\n"
    "	shl $32, %rdx\n"
    "	or %rdx, %rax\n"
    "	mov %rax, arrived(%rip)\n"
    "	pop %rdx\n"
    "	pop %rax\n"
    "	lea 8(%rsp), %rsp\n"
    "	uiret\n");

static void on_latency_signal(int signal)
{
	arrived = now();
}

static void *latency_receiver(void *unused)
{
	volatile uint64_t work = 0;

	pin(2);
	int fd = receive(latency_entry);

	latency_tid = gettid();
	_stui();
	ready = fd;
	while (!latency_done)
		work++;
	return NULL;
}

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* Ticks of the TSC for a million instructions of a loop */
static uint64_t ticks_of_a_million(void)
{
	uint64_t begin = now(), turns = 500000;

	asm volatile("1: dec %0; jnz 1b" : "+r" (turns) : : "cc");
	return now() - begin;
}

void latency(long samples)
{
	static uint64_t times[100000];
	pthread_t thread;
	uint64_t million, random = 1;

	if (samples > 100000)
		samples = 100000;
	pin(1);
	signal(SIGUSR1, on_latency_signal);
	ready = -1;
	pthread_create(&thread, NULL, latency_receiver, NULL);
	while (ready < 0)
		sched_yield();
	int index = sender(ready, 0, 0);

	million = ticks_of_a_million();
	for (int with_signals = 0; with_signals < 2; with_signals++) {
		for (long i = 0; i < samples; i++) {
			uint64_t sent;

			arrived = 0;
			for (volatile int n = next_random(&random) % 3000; n > 0; n--)
				;
			sent = now();
			if (with_signals)
				syscall(SYS_tgkill, getpid(), latency_tid, SIGUSR1);
			else
				_senduipi(index);
			wait_until(arrived);
			times[i] = arrived > sent ? arrived - sent : 0;
		}
		qsort(times, samples, sizeof(times[0]), ascending);
#define OF(rank) (long)(times[rank] * 1000000 / million)
		printf("%s p50 %ld p99 %ld max %ld instructions\n",
		       with_signals ? "signal" : "uintr", OF(samples / 2),
		       OF(samples * 99 / 100), OF(samples - 1));
	}
	latency_done = true;
	pthread_join(thread, NULL);
}

/* The arithmetic flags of what is interrupted, with and without PAUSE */
static void *hold_flags(void *unused)
{
	pin(0);
	ready = receive(latency_entry);
	_stui();
	for (uint64_t i = 0; !latency_done; i++) {
		uint64_t set = (i * 0x9e3779b97f4a7c15ull >> 20 & 0x8d5) | 0x202, got;

		if (i % 2)
			asm volatile("push %1; popfq; .rept 200; nop; .endr; pushfq; pop %0"
				     : "=r" (got) : "r" (set) : "cc", "memory");
		else
			asm volatile("push %1; popfq; .rept 200; pause; .endr; pushfq; pop %0"
				     : "=r" (got) : "r" (set) : "cc", "memory");
		if (got != set)
			fail("flags %lx became %lx, %s", set, got, i % 2 ? "nop" : "pause");
	}
	return NULL;
}

void flags_are_kept(long sends)
{
	pthread_t thread;

	pin(1);
	ready = -1;
	pthread_create(&thread, NULL, hold_flags, NULL);
	while (ready < 0)
		sched_yield();
	int index = sender(ready, 0, 0);

	for (long i = 0; i < sends; i++) {
		arrived = 0;
		_senduipi(index);
		wait_until(arrived);
		for (volatile int n = i % 100; n > 0; n--)
			;
	}
	latency_done = true;
	pthread_join(thread, NULL);
}
