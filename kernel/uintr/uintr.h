/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * /dev/uintr: user interrupts between threads, without the kernel
 *
 * Numbers and structures are those of UB-ADBLAB's uintr-driver. Its programs run here if
 * they register before they execute STUI, CLUI, TESTUI or SENDUIPI; its tests
 * one_sender_unpinned and new_migration do not, and get SIGILL. What its interface leaves
 * open is decided so:
 *
 *  - A receiver's ID is a file descriptor, new and close-on-exec. So a process has
 *    as many receivers as threads, and another process can send to those whose
 *    descriptors it was given, and to no others. Its ID there is a process ID: one
 *    receiver, and anybody can send to it.
 *  - A sender's index holds for all threads of the process that registered it. From a
 *    process's first registration on, all of its threads have the instructions.
 *  - flags of a sender: see UINTR_SENDER_QUIET. Other flags are EINVAL.
 */
#ifndef GIVEWAY_UINTR_H
#define GIVEWAY_UINTR_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct uintr_handler_args {
	__u64 handler;		/* where a user interrupt goes to */
	__u64 stack;		/* for it; 0: below the red zone of the interrupted */
	__u64 stack_size;	/* at least 4096, of a stack */
	__u32 flags;		/* 0 */
	__u32 reserved;		/* not read: padding in the driver's structure */
};

struct uintr_sender_args {
	__u64 receiver_id;	/* a file descriptor */
	__u32 vector;		/* below 64; the highest is delivered first */
	__u32 flags;
};

/*
 * Sends to a receiver that is no more go nowhere. Without it they fail: SENDUIPI
 * raises #GP, which is SIGSEGV.
 */
#define UINTR_SENDER_QUIET	1u

/*
 * Makes the calling thread a receiver, with UIF clear: it lets interrupts in with STUI.
 * Returns a descriptor. poll() says POLLHUP on it when the receiver is no more.
 *
 *  EBUSY   the thread is a receiver
 *  EINVAL  an address that is not a program's, a stack that is too small, flags
 */
#define UINTR_REGISTER_HANDLER		_IOW('u', 0, struct uintr_handler_args)
/*
 * Ends the receiver of this descriptor, and drops what is pending. UIF is clear. The
 * descriptor stays open; closing it alone ends nothing, but nobody can become a sender any more.
 *
 *  EPERM   another thread's
 *  ESRCH   it is no more
 */
#define UINTR_UNREGISTER_HANDLER	_IO('u', 1)
/*
 * Returns an index for SENDUIPI, the lowest that is free.
 *
 *  EBADF, EINVAL  not a receiver's descriptor; a vector above 63; other flags
 *  ESRCH          the receiver is no more
 *  ENOSPC         the process has UINTR_SENDERS_MAX senders, or the receiver has
 *                 UINTR_RECEIVER_SENDERS_MAX, of all processes
 */
#define UINTR_REGISTER_SENDER		_IOW('u', 2, struct uintr_sender_args)
/* Frees an index. EINVAL: it is not in use. */
#define UINTR_UNREGISTER_SENDER		_IOW('u', 3, __u64)
/*
 * Returns UINTR_INTERFACE_VERSION and changes nothing. Other drivers do not have it, so it
 * says whose device this is.
 */
#define UINTR_INTERFACE			_IO('u', 32)
#define UINTR_INTERFACE_VERSION		1

#define UINTR_SENDERS_MAX		1024
#define UINTR_RECEIVER_SENDERS_MAX	4096

#endif
