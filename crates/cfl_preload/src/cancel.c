// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The one place where a thread sleeps and may be cancelled.
 *
 * Waiting for a condition variable is a cancellation point. glibc cancels a
 * thread by unwinding its stack from a signal handler, running what
 * pthread_cleanup_push registered on the way. That way out is written in C,
 * because it must not pass a frame with anything to drop: this file holds the
 * frame that sleeps, and what has to be undone is one call.
 *
 * Cancellation is asynchronous only while the thread sleeps. In that window
 * the thread executes this function, pthread_setcanceltype and the system call
 * and holds no lock, so it can be stopped at any instruction. A cancellation
 * that was pending before acts when the window opens.
 *
 * Compiled without -fexceptions: the clean-up is then registered with setjmp,
 * which is right at every instruction; tables of call sites would not be.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef void cleanup_function(void *waiter);

/*
 * Sleeps until *state is no longer `expected`, until the time `deadline` of
 * the clock that `clock_flag` names (0 or FUTEX_CLOCK_REALTIME), or for no
 * reason. Returns 0 or why the kernel did not sleep on (ETIMEDOUT, EAGAIN,
 * EINTR). Does not return if the thread is cancelled: then
 * cancelled(waiter) runs, and the stack is unwound.
 */
int giveway_cfl_sleep(cleanup_function *cancelled, void *waiter,
		      unsigned int *state, unsigned int expected, int clock_flag,
		      const struct timespec *deadline)
{
	int type, result;

	pthread_cleanup_push(cancelled, waiter);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = syscall(SYS_futex, state,
			 FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | clock_flag,
			 expected, deadline, NULL, FUTEX_BITSET_MATCH_ANY) == 0 ?
			 0 : errno;
	pthread_setcanceltype(type, NULL);
	pthread_cleanup_pop(0);
	return result;
}

/*
 * glibc's wait on a condition variable that is shared between processes, with
 * a mutex that is not glibc's: `stand_in` is glibc's and held. If the thread
 * is cancelled, glibc has locked `stand_in` again when cancelled(waiter) runs.
 */
typedef int wait_function(void *waiter);

int giveway_cfl_wait_shared(cleanup_function *cancelled, wait_function *wait,
			    void *waiter)
{
	int result;

	pthread_cleanup_push(cancelled, waiter);
	result = wait(waiter);
	pthread_cleanup_pop(0);
	return result;
}
