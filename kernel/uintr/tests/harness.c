// SPDX-License-Identifier: GPL-2.0-only
/* What harness.h says. */
#include "harness.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

int device(void)
{
	static int fd = -1;

	if (fd < 0) {
		fd = open("/dev/uintr", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			fail("/dev/uintr: %s", strerror(errno));
	}
	return fd;
}

int receive_on(void *handler, void *stack, size_t size, unsigned int flags)
{
	struct uintr_handler_args args = {
		.handler = (uintptr_t)handler, .stack = (uintptr_t)stack,
		.stack_size = size, .flags = flags,
	};

	return ioctl(device(), UINTR_REGISTER_HANDLER, &args);
}

int receive(void *handler)
{
	return receive_on(handler, NULL, 0, 0);
}

int unreceive(int fd)
{
	return ioctl(device(), UINTR_UNREGISTER_HANDLER, fd);
}

int sender(int fd, unsigned int vector, unsigned int flags)
{
	struct uintr_sender_args args = {
		.receiver_id = fd, .vector = vector, .flags = flags,
	};

	return ioctl(device(), UINTR_REGISTER_SENDER, &args);
}

int unsender(uint64_t index)
{
	return ioctl(device(), UINTR_UNREGISTER_SENDER, index);
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	expect(sched_setaffinity(0, sizeof(set), &set), 0);
}

void sleep_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	expect(nanosleep(&time, NULL), 0);
}

uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

__thread struct mailbox *mine;
struct mailbox boxes[THREADS];

HANDLER void on_interrupt(struct frame *frame, unsigned long long vector)
{
	struct mailbox *box = mine;
	unsigned int count = atomic_load_explicit(&box->all, memory_order_relaxed);

	box->frame = *frame;
	box->stack = (uintptr_t)frame;
	box->uif = _testui();
	if (count < VECTORS)
		box->order[count] = vector;
	atomic_fetch_add(&box->received[vector], 1);
	atomic_fetch_add(&box->all, 1);
}

int receive_in(struct mailbox *box)
{
	mine = box;
	return receive(on_interrupt);
}

__thread sigjmp_buf after_fault;

void on_fault(int signal)
{
	siglongjmp(after_fault, signal);
}

static void give(int socket, int fd)
{
	char data = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec part = { &data, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	expect(sendmsg(socket, &message, 0), 1);
}

static int take(int socket)
{
	char data, control[CMSG_SPACE(sizeof(int))];
	struct iovec part = { &data, 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	expect(recvmsg(socket, &message, 0), 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

int hung_up(int fd, int ms)
{
	struct pollfd poll_fd = { .fd = fd };

	poll(&poll_fd, 1, ms);
	return poll_fd.revents;
}

struct child child_receiver(void (*then)(int socket))
{
	struct child child;
	int ends[2];

	expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	child.pid = fork();
	if (child.pid == 0) {
		int fd = receive_in(&boxes[0]);

		if (fd < 0)
			fail("a child is no receiver: %s", strerror(errno));
		give(ends[1], fd);
		then(ends[1]);
		_exit(0);
	}
	child.socket = ends[0];
	child.fd = take(ends[0]);
	return child;
}

void child_ends(struct child child)
{
	int status;

	expect(waitpid(child.pid, &status, 0), child.pid);
	expect(status, 0);
}
