// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is left when receivers, senders and the module end, and when a call fails: nothing.
 */
#include "harness.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void spin(int socket)
{
	_stui();
	for (;;)
		;
}

/* How many threads the kernel knows and files are open: who asks in vain is not among them. */
static long users_of_the_module(void)
{
	char text[32] = "";
	int fd = open("/sys/module/uintr/refcnt", O_RDONLY);

	/* A module that is built in has none. */
	if (fd < 0)
		return 0;
	expect(read(fd, text, sizeof(text) - 1) > 0, 1);
	close(fd);
	return atol(text);
}

void who_asks_in_vain_stays_unknown(long n)
{
	int dev = device();
	long before = users_of_the_module();

	refused(receive(NULL), EINVAL);
	refused(sender(dev, 0, 0), EINVAL);
	refused(unsender(0), EINVAL);
	expect(users_of_the_module(), before);
	/* No descriptor is free: of all that can be wrong, the last to be found out */
	struct rlimit limit, none;

	expect(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = dev + 1;
	expect(setrlimit(RLIMIT_NOFILE, &none), 0);
	refused(receive(on_interrupt), EMFILE);
	expect(setrlimit(RLIMIT_NOFILE, &limit), 0);
	expect(users_of_the_module(), before);
	/* A receiver that is no more, in a process that has asked for nothing else */
	struct child child = child_receiver(spin);

	kill(child.pid, SIGKILL);
	expect(waitpid(child.pid, NULL, 0), child.pid);
	expect(hung_up(child.fd, 10000), POLLHUP);
	before = users_of_the_module();
	refused(sender(child.fd, 0, 0), ESRCH);
	expect(users_of_the_module(), before);
	/* And one that has asked and is done: the file is what is left. */
	int fd = receive_in(&boxes[0]);

	expect(sender(fd, 0, 0), 0);
	expect(unreceive(fd), 0);
	close(fd);
	expect(users_of_the_module(), before);
}

/* So that the end of a receiver takes no long time, in which a CPU takes no interrupts */
void a_receiver_has_so_many_senders_at_most(long n)
{
	enum { FULL = UINTR_RECEIVER_SENDERS_MAX / UINTR_SENDERS_MAX };
	int fd = receive_in(&boxes[0]), ends[2];
	pid_t pids[FULL];
	char byte;

	for (int i = 0; i < FULL; i++) {
		expect(pipe(ends), 0);
		pids[i] = fork();
		if (pids[i] == 0) {
			for (int j = 0; j < UINTR_SENDERS_MAX; j++)
				expect(sender(fd, 0, 0), j);
			expect(write(ends[1], "", 1), 1);
			pause();
		}
		close(ends[1]);
		expect(read(ends[0], &byte, 1), 1);
		close(ends[0]);
	}
	refused(sender(fd, 0, 0), ENOSPC);
	/* Those of a process that ends are free again */
	kill(pids[0], SIGKILL);
	expect(waitpid(pids[0], NULL, 0), pids[0]);
	expect(sender(fd, 0, 0), 0);
	expect(unreceive(fd), 0);
	for (int i = 1; i < FULL; i++) {
		kill(pids[i], SIGKILL);
		expect(waitpid(pids[i], NULL, 0), pids[i]);
	}
}

static pid_t full_table_to(int fd, int *ready_end)
{
	int ends[2];
	pid_t pid;

	expect(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		for (int i = 0; i < UINTR_SENDERS_MAX; i++)
			expect(sender(fd, 0, i % 2 ? UINTR_SENDER_QUIET : 0), i);
		expect(write(ends[1], "", 1), 1);
		pause();
	}
	close(ends[1]);
	*ready_end = ends[0];
	return pid;
}

/* Full tables that end at once, and with them, every second time, who they send to */
void crowds_end_at_once(long rounds)
{
	enum { FULL = UINTR_RECEIVER_SENDERS_MAX / UINTR_SENDERS_MAX };
	int fd = receive_in(&boxes[0]);

	for (long round = 0; round < rounds; round++) {
		pid_t pids[FULL];
		int ends[FULL];
		char byte;

		for (int i = 0; i < FULL; i++)
			pids[i] = full_table_to(fd, &ends[i]);
		for (int i = 0; i < FULL; i++) {
			expect(read(ends[i], &byte, 1), 1);
			close(ends[i]);
		}
		refused(sender(fd, 0, 0), ENOSPC);
		for (int i = 0; i < FULL; i++)
			kill(pids[i], SIGKILL);
		if (round % 2) {
			expect(unreceive(fd), 0);
			expect(hung_up(fd, 10000), POLLHUP);
			refused(sender(fd, 0, 0), ESRCH);
			close(fd);
		}
		for (int i = 0; i < FULL; i++)
			expect(waitpid(pids[i], NULL, 0), pids[i]);
		if (round % 2)
			fd = receive_in(&boxes[0]);
		/* All places are free again. */
		int index = sender(fd, 0, 0);

		expect(index, 0);
		_stui();
		_senduipi(index);
		wait_until(boxes[0].all == (unsigned int)round + 1);
		expect(unsender(index), 0);
	}
}

static int unload(void)
{
	return syscall(SYS_delete_module, "uintr", O_NONBLOCK);
}

static atomic_int ready, done;

static void *known_by_sending(void *index)
{
	_senduipi((uintptr_t)index);
	ready = 1;
	while (!done)
		sched_yield();
	return NULL;
}

static void *register_and_end(void *unused)
{
	int fd = receive_in(&boxes[0]);

	expect(sender(fd, 0, UINTR_SENDER_QUIET), 0);
	close(fd);
	close(device());
	return NULL;
}

/* Of this many bytes, which a table needs for the pointers to its senders */
static long objects_in_use(void)
{
	FILE *file = fopen("/proc/slabinfo", "r");
	char line[512], name[64];
	long all = 0, used;

	expect(file != NULL, 1);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63s %ld", name, &used) == 2 &&
		    (!strcmp(name, "kmalloc-8k") || !strcmp(name, "kmalloc-cg-8k")))
			all += used;
	}
	fclose(file);
	return all;
}

/* Processes whose only threads that were known have ended; the module goes before them. */
void unloading_leaves_nothing_of_processes_that_live_on(long n)
{
	enum { PROCESSES = 200 };
	pid_t pids[PROCESSES];
	int ends[2];
	char byte;

	expect(pipe(ends), 0);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			pthread_t thread;

			pthread_create(&thread, NULL, register_and_end, NULL);
			pthread_join(thread, NULL);
			expect(write(ends[1], "", 1), 1);
			pause();
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		expect(read(ends[0], &byte, 1), 1);
	long before = objects_in_use();

	expect(unload(), 0);
	long freed = before - objects_in_use();

	if (freed < PROCESSES / 2)
		fail("%ld of %d tables were freed", freed, PROCESSES);
	for (int i = 0; i < PROCESSES; i++) {
		kill(pids[i], SIGKILL);
		expect(waitpid(pids[i], NULL, 0), pids[i]);
	}
}

/* It needs the module to be used by nobody else, as the case above does. */
void unloading_is_refused_while_anybody_uses_it(long n)
{
	struct child child;
	pid_t pid;

	child = child_receiver(spin);
	refused(unload(), EWOULDBLOCK);
	close(child.fd);
	refused(unload(), EWOULDBLOCK);
	kill(child.pid, SIGKILL);
	expect(waitpid(child.pid, NULL, 0), child.pid);
	/* A thread that only sends, in a process without descriptors of it */
	pid = fork();
	if (pid == 0) {
		pthread_t thread;
		int fd = receive_in(&boxes[0]), dev = device();
		int index = sender(fd, 0, UINTR_SENDER_QUIET);

		pthread_create(&thread, NULL, known_by_sending, (void *)(uintptr_t)index);
		while (!ready)
			sched_yield();
		close(dev);
		close(fd);
		refused(unload(), EWOULDBLOCK);
		done = 1;
		pthread_join(thread, NULL);
		_exit(0);
	}
	int status;

	expect(waitpid(pid, &status, 0), pid);
	expect(status, 0);
	/* Nobody: this process itself never opened it. */
	expect(unload(), 0);
	expect(access("/dev/uintr", F_OK), -1);
}
