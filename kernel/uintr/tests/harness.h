/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the cases share: calls of /dev/uintr, what a thread has received, instructions
 * that may be refused, and children that are receivers.
 *
 * Everything is compiled without vector registers, since GCC's handlers do not save them.
 */
#ifndef GIVEWAY_UINTR_HARNESS_H
#define GIVEWAY_UINTR_HARNESS_H

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86gprintrin.h>

#include "../uintr.h"

#define HANDLER	__attribute__((target("uintr"), interrupt))
#define THREADS	6
#define VECTORS	64

/* Ends the program. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define expect(what, ...) do {							\
	long long got_ = (what), wanted_ = (__VA_ARGS__);			\
	if (got_ != wanted_)							\
		fail("line %d: %s is %lld, not %lld (errno %d)", __LINE__,	\
		     #what, got_, wanted_, errno);				\
} while (0)

/* A call that has to fail so */
#define refused(call, error) do {						\
	errno = 0;								\
	expect(call, -1);							\
	expect(errno, error);							\
} while (0)

/* Busy: the thread is on its CPU, in its program. Ends a case that waits for ever. */
#define wait_until(what) do {							\
	for (uint64_t turns_ = 0; !(what); turns_++) {				\
		if (turns_ > 500000000)					\
			fail("line %d: never: %s", __LINE__, #what);		\
		__builtin_ia32_pause();						\
	}									\
} while (0)

/* /dev/uintr, opened once */
int device(void);
int receive_on(void *handler, void *stack, size_t size, unsigned int flags);
int receive(void *handler);
int unreceive(int fd);
int sender(int fd, unsigned int vector, unsigned int flags);
int unsender(uint64_t index);

void pin(int cpu);
void sleep_ms(long ms);
/* The next of a sequence of numbers that a seed decides */
uint64_t next_random(uint64_t *state);

/* ---- What a thread has received: thread-local data, which a handler may read ---- */

struct frame {
	uint64_t rip, rflags, rsp;
};

struct mailbox {
	atomic_uint received[VECTORS];
	atomic_uint all;
	unsigned int order[VECTORS];
	struct frame frame;
	uintptr_t stack;
	bool uif;
};

extern __thread struct mailbox *mine;
extern struct mailbox boxes[THREADS];

/* Counts in the thread's box. */
HANDLER void on_interrupt(struct frame *frame, unsigned long long vector);
int receive_in(struct mailbox *box);

/* ---- Instructions that may be refused ---- */

extern __thread sigjmp_buf after_fault;
/* Returns to after_fault. */
void on_fault(int signal);

/* The signal that an instruction raises, 0 if none */
#define signal_of(statement) ({							\
	struct sigaction act_ = { .sa_handler = on_fault };			\
	volatile int got_;							\
	sigaction(SIGILL, &act_, NULL);						\
	sigaction(SIGSEGV, &act_, NULL);					\
	got_ = sigsetjmp(after_fault, 1);					\
	if (!got_) { statement; }						\
	signal(SIGILL, SIG_DFL);						\
	signal(SIGSEGV, SIG_DFL);						\
	got_;									\
})

/* ---- Children ---- */

/* A child that is a receiver, and what it says of it */
struct child {
	pid_t pid;
	int fd;
	int socket;
};

/* What poll says of a descriptor within so many milliseconds */
int hung_up(int fd, int ms);
struct child child_receiver(void (*then)(int socket));
void child_ends(struct child child);

/* ---- Cases that are not in rules.c ---- */

void who_asks_in_vain_stays_unknown(long n);
void a_receiver_has_so_many_senders_at_most(long n);
void crowds_end_at_once(long rounds);
void unloading_is_refused_while_anybody_uses_it(long n);
void unloading_leaves_nothing_of_processes_that_live_on(long n);
void latency(long samples);
void flags_are_kept(long sends);
void random_calls_break_nothing(long rounds);
void random_calls_for_seconds(long seconds);

#endif
