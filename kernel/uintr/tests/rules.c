// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rules of /dev/uintr, one a case: `rules CASE [NUMBER]` says "passed" or why not.
 *
 * Runs as root in a guest whose CPUs have user interrupts and that has loaded uintr.ko;
 * crates/lab/tests/uintr.rs starts it. Cases need three CPUs at least. Not here are the
 * latency and what handlers leave as it was (latency.c), what ends leave (ends.c), and
 * random calls (random.c).
 */
#include "harness.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>

static char *self;

/* ---- Cases ---- */

static void a_thread_interrupts_itself(long n)
{
	int fd = receive_in(&boxes[0]);

	expect(fd >= 0, 1);
	int index = sender(fd, 5, 0);

	expect(index, 0);
	expect(_testui(), 0);
	_stui();
	_senduipi(index);
	wait_until(boxes[0].all == 1);
	expect(boxes[0].received[5], 1);
	expect(boxes[0].uif, 0);
	expect(_testui(), 1);
	/* Below the red zone, and aligned */
	expect(boxes[0].frame.rsp - boxes[0].stack >= 128 + 24, 1);
	expect((boxes[0].stack - 8) % 16, 0);
}

static atomic_int ready, go, done;
static int indices[THREADS][VECTORS];

static void *send_once(void *index)
{
	pin(1);
	_senduipi((uintptr_t)index);
	return NULL;
}

static void a_thread_that_asked_for_nothing_sends(long n)
{
	pthread_t thread;

	pin(0);
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 0, 0);

	_stui();
	pthread_create(&thread, NULL, send_once, (void *)(uintptr_t)index);
	wait_until(boxes[0].all == 1);
	pthread_join(thread, NULL);
}

static void the_highest_vector_comes_first(long n)
{
	static const unsigned int vectors[] = { 3, 63, 0, 9 };
	static const unsigned int order[] = { 63, 9, 3, 0 };
	int fd = receive_in(&boxes[0]);

	for (int i = 0; i < 4; i++)
		_senduipi(sender(fd, vectors[i], 0));
	expect(boxes[0].all, 0);
	/* Kept by the kernel meanwhile */
	sleep_ms(1);
	expect(boxes[0].all, 0);
	_stui();
	wait_until(boxes[0].all == 4);
	for (int i = 0; i < 4; i++)
		expect(boxes[0].order[i], order[i]);
}

/* Receivers in a process: each waits until all it expects has come */
static void *be_receiver(void *number)
{
	long id = (uintptr_t)number;
	int fd = receive_in(&boxes[id]);

	expect(fd >= 0, 1);
	for (int i = 0; i < THREADS; i++)
		indices[id][i] = sender(fd, i, 0);
	_stui();
	atomic_fetch_add(&ready, 1);
	wait_until(ready == THREADS);
	for (long round = 1; round <= 100; round++) {
		/* To everybody, with the own number as vector */
		for (int to = 0; to < THREADS; to++)
			_senduipi(indices[to][id]);
		for (int from = 0; from < THREADS; from++) {
			while (boxes[id].received[from] < round)
				sched_yield();
		}
		atomic_fetch_add(&done, 1);
		while (done < round * THREADS)
			sched_yield();
	}
	return NULL;
}

static void each_thread_of_a_process_receives(long n)
{
	pthread_t threads[THREADS];

	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, be_receiver, (void *)i);
	for (long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int to = 0; to < THREADS; to++) {
		for (int from = 0; from < THREADS; from++)
			expect(boxes[to].received[from], 100);
	}
}

/* The receiver of the cases below: on CPU 0, which others may want too */
static void *spin_on_0(void *box)
{
	pin(0);
	int fd = receive_in(box);

	_stui();
	ready = fd;
	wait_until(done);
	return NULL;
}

static pthread_t start_receiver(int *fd)
{
	pthread_t thread;

	ready = -1;
	pthread_create(&thread, NULL, spin_on_0, &boxes[0]);
	while (ready < 0)
		sched_yield();
	*fd = ready;
	return thread;
}

static void *spin_on_each(void *box)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int fd = receive_in(box);

	_stui();
	for (long cpu = 0; cpu < cpus; cpu++) {
		pin(cpu);
		ready = fd;
		/* No switch helps: nothing else wants this CPU. */
		wait_until(boxes[0].all == cpu + 1);
	}
	return NULL;
}

static void a_running_receiver_is_notified_wherever_it_is(long n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread;
	int index = -1;

	ready = -1;
	pthread_create(&thread, NULL, spin_on_each, &boxes[0]);
	for (long cpu = 0; cpu < cpus; cpu++) {
		pin((cpu + 1) % cpus);
		wait_until(ready >= 0);
		if (index < 0)
			index = sender(ready, 0, 0);
		ready = -1;
		_senduipi(index);
		wait_until(boxes[0].all == cpu + 1);
	}
	pthread_join(thread, NULL);
}

static pid_t hog_of_cpu_0(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct sched_param param = { .sched_priority = 1 };

		pin(0);
		expect(sched_setscheduler(0, SCHED_FIFO, &param), 0);
		for (;;)
			;
	}
	return pid;
}

static void a_descheduled_receiver_gets_it_when_it_runs_again(long n)
{
	int fd;

	pin(1);
	pthread_t thread = start_receiver(&fd);
	int index = sender(fd, 1, 0);
	pid_t hog = hog_of_cpu_0();

	sleep_ms(20);
	_senduipi(index);
	sleep_ms(20);
	expect(boxes[0].all, 0);
	kill(hog, SIGKILL);
	wait_until(boxes[0].all == 1);
	expect(waitpid(hog, NULL, 0), hog);
	done = 1;
	pthread_join(thread, NULL);
}

static void *sleep_as_receiver(void *box)
{
	int fd = receive_in(box);

	_stui();
	ready = fd;
	sleep_ms(200);
	/* The sleep was not interrupted, and it comes before the next instruction. */
	expect(boxes[0].all, 1);
	return NULL;
}

static void a_sleeping_receiver_is_not_woken_and_gets_it_then(long n)
{
	pthread_t thread;

	ready = -1;
	pthread_create(&thread, NULL, sleep_as_receiver, &boxes[0]);
	wait_until(ready >= 0);
	int index = sender(ready, 1, 0);

	sleep_ms(50);
	_senduipi(index);
	sleep_ms(50);
	expect(boxes[0].all, 0);
	pthread_join(thread, NULL);
}

static void *yield_with_uif(void *box)
{
	bool uif = box != NULL;

	pin(0);
	if (box) {
		receive_in(box);
		_stui();
	} else {
		receive_in(&boxes[1]);
	}
	for (int i = 0; i < 1000; i++) {
		expect(_testui(), uif);
		sched_yield();
	}
	return NULL;
}

static void uif_is_each_thread_s_own(long n)
{
	pthread_t threads[2];

	pthread_create(&threads[0], NULL, yield_with_uif, &boxes[0]);
	pthread_create(&threads[1], NULL, yield_with_uif, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Invariant 1 */
static void who_is_not_known_has_no_instructions(long n)
{
	int fd, status;

	pin(0);
	expect(signal_of(_testui()), SIGILL);
	expect(signal_of(_senduipi(0)), SIGILL);
	pthread_t receiver = start_receiver(&fd);
	pid_t pid = fork();

	/* Beside the receiver on its CPU, in a process that asked for nothing */
	if (pid == 0) {
		for (int i = 0; i < 1000; i++) {
			expect(signal_of(_testui()), SIGILL);
			sched_yield();
		}
		_exit(0);
	}
	expect(waitpid(pid, &status, 0), pid);
	expect(status, 0);
	done = 1;
	pthread_join(receiver, NULL);
}

static void *guard_with_clui(void *unused)
{
	for (int i = 0; i < 100; i++) {
		expect(signal_of(_clui()), 0);
		expect(_testui(), 0);
		expect(signal_of(_stui()), 0);
		sched_yield();
	}
	return NULL;
}

/* A library guards its own sections with CLUI, whichever thread calls it. */
static void every_thread_of_a_process_that_receives_has_the_instructions(long n)
{
	pthread_t thread;
	int fd = receive_in(&boxes[0]);

	pthread_create(&thread, NULL, guard_with_clui, NULL);
	pthread_join(thread, NULL);
	/* So has one that receives no more. */
	expect(unreceive(fd), 0);
	guard_with_clui(NULL);
}

/* Random CPUs for the receiver while a sender waits for each interrupt */
static pid_t receiver_tid;

static void *migrating_receiver(void *box)
{
	int fd = receive_in(box);

	receiver_tid = gettid();
	_stui();
	ready = fd;
	/* Partly in the program, partly in the kernel */
	while (!done) {
		for (int i = 0; i < 50; i++)
			__builtin_ia32_pause();
		sched_yield();
	}
	return NULL;
}

static void *migrate(void *seed)
{
	uint64_t random = (uintptr_t)seed;
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	while (!done) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(next_random(&random) % cpus, &set);
		/* Fails for a CPU that is offline */
		sched_setaffinity(receiver_tid, sizeof(set), &set);
		for (unsigned int i = 0; i < (random >> 40) % 2000; i++)
			__builtin_ia32_pause();
		sched_yield();
	}
	return NULL;
}

static void nothing_is_lost_while_the_receiver_migrates(long sends)
{
	pthread_t receiver, migrator;

	ready = -1;
	pthread_create(&receiver, NULL, migrating_receiver, &boxes[0]);
	while (ready < 0)
		sched_yield();
	pthread_create(&migrator, NULL, migrate, (void *)1);
	for (int i = 0; i < VECTORS; i++)
		indices[0][i] = sender(ready, i, 0);
	for (long i = 0; i < sends; i++) {
		int vector = i % VECTORS;
		unsigned int before = boxes[0].received[vector];
		uint64_t turns = 0;

		_senduipi(indices[0][vector]);
		while (boxes[0].received[vector] == before) {
			sched_yield();
			if (++turns > 200000)
				fail("send %ld is lost", i);
		}
		expect(boxes[0].received[vector], before + 1);
	}
	expect(boxes[0].all, sends);
	done = 1;
	pthread_join(receiver, NULL);
	pthread_join(migrator, NULL);
}

/* Without waiting: what was sent last of each vector has come in the end */
static atomic_ulong stamps[VECTORS];
static atomic_ulong seen[VECTORS];

static HANDLER void on_stamp(struct frame *frame, unsigned long long vector)
{
	atomic_store(&seen[vector], atomic_load(&stamps[vector]));
}

static void *receive_stamps(void *unused)
{
	ready = receive(on_stamp);
	receiver_tid = gettid();
	_stui();
	while (done < THREADS)
		sched_yield();
	for (int i = 0; i < THREADS; i++)
		wait_until(seen[i] == stamps[i]);
	return NULL;
}

static long stamps_each;

static void *send_stamps(void *number)
{
	uintptr_t vector = (uintptr_t)number;

	for (long i = 1; i <= stamps_each; i++) {
		atomic_store(&stamps[vector], i);
		_senduipi(indices[0][vector]);
	}
	atomic_fetch_add(&done, 1);
	return NULL;
}

static void the_last_of_many_sends_is_seen(long sends)
{
	pthread_t receiver, senders[THREADS];

	ready = -1;
	stamps_each = sends / THREADS;
	pthread_create(&receiver, NULL, receive_stamps, NULL);
	while (ready < 0)
		sched_yield();
	for (int i = 0; i < THREADS; i++)
		indices[0][i] = sender(ready, i, 0);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&senders[i], NULL, send_stamps, (void *)i);
	pthread_join(receiver, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(senders[i], NULL);
}

static void a_child_of_fork_inherits_descriptors_only(long n)
{
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 2, 0);

	_stui();
	pid_t pid = fork();

	if (pid == 0) {
		expect(signal_of(_testui()), SIGILL);
		expect(signal_of(_senduipi(index)), SIGILL);
		refused(unreceive(fd), EPERM);
		refused(unsender(index), EINVAL);
		/* The parent, by its descriptor */
		int own = sender(fd, 7, 0);

		expect(own, 0);
		_senduipi(own);
		_exit(0);
	}
	int status;

	expect(waitpid(pid, &status, 0), pid);
	expect(status, 0);
	wait_until(boxes[0].all == 1);
	expect(boxes[0].received[7], 1);
	_senduipi(index);
	wait_until(boxes[0].received[2] == 1);
}

static void count_one(int socket)
{
	_stui();
	wait_until(boxes[0].received[4] == 1);
}

static void another_process_sends_by_descriptor(long n)
{
	struct child child = child_receiver(count_one);

	_senduipi(sender(child.fd, 4, 0));
	child_ends(child);
}

static void exec_self(int socket)
{
	char byte;

	_stui();
	expect(read(socket, &byte, 1), 1);
	execl(self, self, "after_exec", NULL);
	fail("exec: %s", strerror(errno));
}

/* In the new program, at once and after a context switch */
static void after_exec(long n)
{
	expect(signal_of(_testui()), SIGILL);
	sleep_ms(10);
	expect(signal_of(_testui()), SIGILL);
	pause();
}

static void exec_ends_a_receiver(long n)
{
	struct child child = child_receiver(exec_self);
	int index = sender(child.fd, 4, 0);

	expect(hung_up(child.fd, 0), 0);
	_senduipi(index);
	expect(write(child.socket, "", 1), 1);
	expect(hung_up(child.fd, 10000), POLLHUP);
	expect(signal_of(_senduipi(index)), SIGSEGV);
	refused(sender(child.fd, 4, 0), ESRCH);
	sleep_ms(100);
	expect(waitpid(child.pid, NULL, WNOHANG), 0);
	kill(child.pid, SIGKILL);
	expect(waitpid(child.pid, NULL, 0), child.pid);
}

static void spin(int socket)
{
	_stui();
	for (;;)
		;
}

static void a_killed_receiver_fails_its_senders(long n)
{
	struct child child = child_receiver(spin);
	int index = sender(child.fd, 4, 0), quiet = sender(child.fd, 4, UINTR_SENDER_QUIET);

	_senduipi(index);
	expect(hung_up(child.fd, 0), 0);
	kill(child.pid, SIGKILL);
	expect(hung_up(child.fd, 10000), POLLHUP);
	expect(signal_of(_senduipi(index)), SIGSEGV);
	for (int i = 0; i < 3; i++)
		expect(signal_of(_senduipi(quiet)), 0);
	refused(sender(child.fd, 4, 0), ESRCH);
	refused(unreceive(child.fd), ESRCH);
	expect(waitpid(child.pid, NULL, 0), child.pid);
	/* Its index is free again, and another's */
	expect(unsender(index), 0);
	int fd = receive_in(&boxes[0]);

	expect(sender(fd, 3, 0), index);
	_stui();
	_senduipi(index);
	wait_until(boxes[0].received[3] == 1);
	expect(unsender(quiet), 0);
}

static void *receive_and_end(void *unused)
{
	int fd = receive_in(&boxes[1]);

	indices[0][0] = sender(fd, 0, 0);
	indices[0][1] = sender(fd, 0, UINTR_SENDER_QUIET);
	return (void *)(uintptr_t)fd;
}

static void a_thread_that_ends_fails_its_senders(long n)
{
	pthread_t thread;
	void *fd;

	pthread_create(&thread, NULL, receive_and_end, NULL);
	pthread_join(thread, &fd);
	expect(hung_up((uintptr_t)fd, 10000), POLLHUP);
	/* The table is the process's and outlives the thread that made it. */
	expect(signal_of(_senduipi(indices[0][0])), SIGSEGV);
	expect(signal_of(_senduipi(indices[0][1])), 0);
}

static void *unregister_another_s(void *fd)
{
	expect(receive_in(&boxes[1]) >= 0, 1);
	refused(unreceive((uintptr_t)fd), EPERM);
	return NULL;
}

static void unregistering_drops_what_is_pending(long n)
{
	pthread_t thread;
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 1, 0);

	_senduipi(index);
	pthread_create(&thread, NULL, unregister_another_s, (void *)(uintptr_t)fd);
	pthread_join(thread, NULL);
	expect(unreceive(fd), 0);
	refused(unreceive(fd), ESRCH);
	expect(_testui(), 0);
	_stui();
	expect(signal_of(_senduipi(index)), SIGSEGV);
	/* A new one, with nothing of the old */
	int again = receive_in(&boxes[0]);

	expect(again >= 0, 1);
	expect(_testui(), 0);
	_stui();
	sleep_ms(1);
	expect(boxes[0].all, 0);
	_senduipi(sender(again, 2, 0));
	wait_until(boxes[0].received[2] == 1);
	expect(boxes[0].all, 1);
}

static void closing_ends_nothing(long n)
{
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 1, 0);

	close(fd);
	refused(sender(fd, 1, 0), EBADF);
	_stui();
	_senduipi(index);
	wait_until(boxes[0].all == 1);
}

static void wrong_arguments_have_names(long n)
{
	static char stack[8192];
	int fd, pipe_fds[2];

	refused(receive(NULL), EINVAL);
	refused(receive((void *)0xffff800000000000ul), EINVAL);
	refused(receive((void *)0x800000000000ul), EINVAL);
	refused(receive_on(on_interrupt, NULL, 0, 1), EINVAL);
	refused(receive_on(on_interrupt, stack, 4095, 0), EINVAL);
	refused(receive_on(on_interrupt, (void *)0xffff800000000000ul, 4096, 0), EINVAL);
	refused(receive_on(on_interrupt, stack, ~0ul, 0), EINVAL);
	refused(ioctl(device(), UINTR_REGISTER_HANDLER, NULL), EFAULT);
	refused(ioctl(device(), UINTR_REGISTER_SENDER, NULL), EFAULT);
	refused(ioctl(device(), _IO('u', 9)), ENOTTY);
	expect(ioctl(device(), UINTR_INTERFACE), UINTR_INTERFACE_VERSION);
	fd = receive(on_interrupt);
	expect(fd >= 0, 1);
	expect(fcntl(fd, F_GETFD), FD_CLOEXEC);
	refused(receive(on_interrupt), EBUSY);
	refused(sender(fd, 64, 0), EINVAL);
	refused(sender(fd, 0, 2), EINVAL);
	refused(sender(-1, 0, 0), EBADF);
	refused(sender(999, 0, 0), EBADF);
	expect(pipe(pipe_fds), 0);
	refused(sender(pipe_fds[0], 0, 0), EINVAL);
	refused(sender(device(), 0, 0), EINVAL);
	refused(unreceive(pipe_fds[0]), EINVAL);
	refused(unreceive(-1), EBADF);
	refused(unsender(0), EINVAL);
	refused(unsender(~0ul), EINVAL);
	for (int i = 0; i < UINTR_SENDERS_MAX; i++)
		expect(sender(fd, 0, 0), i);
	refused(sender(fd, 0, 0), ENOSPC);
	expect(unsender(17), 0);
	expect(signal_of(_senduipi(17)), SIGSEGV);
	expect(signal_of(_senduipi(UINTR_SENDERS_MAX)), SIGSEGV);
	expect(sender(fd, 0, 0), 17);
}

static void a_handler_has_the_stack_it_asked_for(long n)
{
	static char stack[8192];
	int fd;

	mine = &boxes[0];
	/* With an end that is not aligned: bits 1 and 2 are not for addresses */
	fd = receive_on(on_interrupt, stack, sizeof(stack) - 2, 0);
	_stui();
	_senduipi(sender(fd, 0, 0));
	wait_until(boxes[0].all == 1);
	expect(boxes[0].stack > (uintptr_t)stack &&
	       boxes[0].stack < (uintptr_t)stack + sizeof(stack), 1);
}

static long repairs(void)
{
	char text[32] = "";
	int fd = open("/sys/module/uintr/parameters/cr4_repairs", O_RDONLY);

	expect(read(fd, text, sizeof(text) - 1) > 0, 1);
	close(fd);
	return atol(text);
}

/* The kernel writes CR4 from its copy when a thread forbids itself RDTSC. */
static void cr4_is_set_again_when_the_kernel_clears_it(long n)
{
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 0, 0);
	long before = repairs();

	_stui();
	for (int i = 1; i <= 10; i++) {
		expect(prctl(PR_SET_TSC, i % 2 ? PR_TSC_SIGSEGV : PR_TSC_ENABLE), 0);
		expect(_testui(), 1);
		_senduipi(index);
		wait_until(boxes[0].all == (unsigned int)i);
	}
	expect(repairs() >= before + 10, 1);
}

static void *turn_cpus_off_and_on(void *unused)
{
	while (!done) {
		for (int on = 0; on < 2; on++) {
			int fd = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY);

			expect(write(fd, on ? "1" : "0", 1), 1);
			close(fd);
		}
		atomic_fetch_add(&go, 1);
	}
	return NULL;
}

static void nothing_is_lost_while_cpus_come_and_go(long sends)
{
	pthread_t thread;

	pthread_create(&thread, NULL, turn_cpus_off_and_on, NULL);
	nothing_is_lost_while_the_receiver_migrates(sends);
	pthread_join(thread, NULL);
	expect(go > 0, 1);
}

/* Receivers that come and go while others send to them */
static atomic_int of_the_hour = -1;

static void *send_to_whoever_is_there(void *unused)
{
	while (!done) {
		int index = atomic_load(&of_the_hour);

		if (index >= 0)
			_senduipi(index);
		/* A receiver that is never left alone does nothing else. */
		for (volatile int i = 0; i < 500; i++)
			;
	}
	return NULL;
}

static void *receive_for_a_while(void *unused)
{
	memset(&boxes[0], 0, sizeof(boxes[0]));
	int fd = receive_in(&boxes[0]);
	int index = sender(fd, 1, UINTR_SENDER_QUIET);

	of_the_hour = index;
	_stui();
	wait_until(boxes[0].all > 3);
	/* Sends go on, to the grave; the index is freed by nobody. */
	return (void *)(uintptr_t)fd;
}

static void receivers_come_and_go(long count)
{
	pthread_t senders[2], thread;
	void *fd;

	for (int i = 0; i < 2; i++)
		pthread_create(&senders[i], NULL, send_to_whoever_is_there, NULL);
	for (long i = 0; i < count && i < UINTR_SENDERS_MAX; i++) {
		pthread_create(&thread, NULL, receive_for_a_while, NULL);
		pthread_join(thread, &fd);
		close((uintptr_t)fd);
	}
	done = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(senders[i], NULL);
}

#define CASE(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(long number);
} cases[] = {
	CASE(a_thread_interrupts_itself),
	CASE(a_thread_that_asked_for_nothing_sends),
	CASE(the_highest_vector_comes_first),
	CASE(each_thread_of_a_process_receives),
	CASE(a_running_receiver_is_notified_wherever_it_is),
	CASE(a_descheduled_receiver_gets_it_when_it_runs_again),
	CASE(a_sleeping_receiver_is_not_woken_and_gets_it_then),
	CASE(uif_is_each_thread_s_own),
	CASE(who_is_not_known_has_no_instructions),
	CASE(every_thread_of_a_process_that_receives_has_the_instructions),
	CASE(who_asks_in_vain_stays_unknown),
	CASE(nothing_is_lost_while_the_receiver_migrates),
	CASE(nothing_is_lost_while_cpus_come_and_go),
	CASE(the_last_of_many_sends_is_seen),
	CASE(receivers_come_and_go),
	CASE(a_child_of_fork_inherits_descriptors_only),
	CASE(another_process_sends_by_descriptor),
	CASE(exec_ends_a_receiver),
	CASE(after_exec),
	CASE(a_killed_receiver_fails_its_senders),
	CASE(a_thread_that_ends_fails_its_senders),
	CASE(unregistering_drops_what_is_pending),
	CASE(closing_ends_nothing),
	CASE(wrong_arguments_have_names),
	CASE(a_receiver_has_so_many_senders_at_most),
	CASE(crowds_end_at_once),
	CASE(a_handler_has_the_stack_it_asked_for),
	CASE(cr4_is_set_again_when_the_kernel_clears_it),
	CASE(unloading_is_refused_while_anybody_uses_it),
	CASE(unloading_leaves_nothing_of_processes_that_live_on),
	CASE(random_calls_break_nothing),
	CASE(random_calls_for_seconds),
	CASE(latency),
	CASE(flags_are_kept),
};

int main(int argc, char **argv)
{
	self = argv[0];
	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[1]))
			continue;
		cases[i].run(argc > 2 ? atol(argv[2]) : 1000);
		printf("passed %s\n", cases[i].name);
		return 0;
	}
	fprintf(stderr, "usage: rules CASE [NUMBER]; there is no such case\n");
	return 2;
}
