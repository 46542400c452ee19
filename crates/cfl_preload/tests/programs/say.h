/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the test programs have in common. Each prints what it saw; the test
 * compares that with what the same program prints without the library.
 */
#ifndef SAY_H
#define SAY_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An error by its name, which does not depend on the language. */
static inline const char *name_of(int error)
{
	switch (error) {
	case 0: return "0";
	case EAGAIN: return "EAGAIN";
	case EBUSY: return "EBUSY";
	case EDEADLK: return "EDEADLK";
	case EINVAL: return "EINVAL";
	case ENOTRECOVERABLE: return "ENOTRECOVERABLE";
	case EOWNERDEAD: return "EOWNERDEAD";
	case EPERM: return "EPERM";
	case ETIMEDOUT: return "ETIMEDOUT";
	default: return "another error";
	}
}

/* Calls, and prints the call and its answer. */
#define SAY(call) printf("%s: %s\n", #call, name_of(call))

/* A step of the program that is not what is tested. */
#define MUST(call) \
	do { \
		int must_ = (call); \
		if (must_ != 0) { \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_of(must_)); \
			exit(1); \
		} \
	} while (0)

/* The time of `clock`, `ms` milliseconds from now. */
static inline struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_sec += ms / 1000;
	time.tv_nsec += ms % 1000 * 1000000;
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec += 1;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

static inline void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static inline pthread_t start(void *(*function)(void *), void *argument)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, function, argument));
	return thread;
}

static inline void *join(pthread_t thread)
{
	void *result;

	MUST(pthread_join(thread, &result));
	return result;
}

#endif
