/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of uintr.ko know of each other. main.c has the design.
 *
 *	receivers.c	who can be interrupted, and the tables of who sends
 *	threads.c	what a CPU has loaded, and the kernel's hooks
 *	main.c		/dev/uintr, and loading
 */
#ifndef GIVEWAY_UINTR_INTERNAL_H
#define GIVEWAY_UINTR_INTERNAL_H

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/llist.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/user-return-notifier.h>
#include <linux/version.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "uintr.h"

#if !IS_ENABLED(CONFIG_KVM) || !IS_ENABLED(CONFIG_PREEMPT_NOTIFIERS) || \
	!IS_ENABLED(CONFIG_USER_RETURN_NOTIFIER)
#error "this kernel lacks KVM's hooks: build it with CONFIG_KVM=m (or =y)"
#endif
#if !IS_ENABLED(CONFIG_TRACEPOINTS)
#error "this kernel lacks tracepoints: build it with CONFIG_FTRACE=y and CONFIG_ENABLE_DEFAULT_TRACERS=y"
#endif
#if IS_ENABLED(CONFIG_PREEMPT_RT)
#error "on a kernel with CONFIG_PREEMPT_RT this module would free memory where it may not"
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "this module is for Linux 6.12 and later"
#endif

/* What a receiver has been sent; the first word changes only as a whole */
struct uintr_upid {
	u64 control;
	u64 pir;
} __aligned(64);

#define UPID_ON			1ull
#define UPID_SN			2ull
#define UPID_NV_SHIFT		16
#define UPID_NDST_SHIFT		32

struct uitt_entry {
	u64 vector;		/* and whether it is valid */
	u64 upid;
};

struct uintr_receiver {
	struct uintr_upid upid;	/* first: it has to be aligned */
	struct kref refs;	/* file, thread, senders, a call */
	u64 handler;
	u64 stack_adjust;
	bool dead;
	struct list_head senders;
	unsigned int sender_count;
	wait_queue_head_t wait;
	struct work_struct mourn;	/* wakes who waits, drops the thread's reference */
	struct llist_node freed;
};

/* A process that may send to a receiver, at an index */
struct uintr_sender {
	struct uintr_receiver *receiver;	/* NULL: it is dead */
	struct list_head of_receiver;
	struct uitt_entry *entry;
	bool quiet;
};

struct uintr_table {
	struct uitt_entry *entries;
	struct uintr_sender **senders;	/* UINTR_SENDERS_MAX */
	struct kref refs;		/* process, known threads, a call */
	struct signal_struct *process;	/* compared only */
	struct hlist_node node;
};

struct uintr_thread {
	struct preempt_notifier switched;
	struct user_return_notifier returns;
	struct task_struct *task;	/* compared only */
	struct hlist_node node;
	struct uintr_receiver *receiver;
	struct uintr_table *table;	/* its process's */
	/* While it is off the CPU */
	u64 rr;
	bool uif;
};

/* Invariants 2 and 3; taken with interrupts off */
extern raw_spinlock_t uintr_lock;

/* ---- receivers.c ---- */

int receivers_init(void);
/* Nobody is known: drops the tables of processes that live on, and waits for what is queued. */
void receivers_exit(void);

/* Alive, with one reference, of the calling thread that is to load it; NULL: no memory */
struct uintr_receiver *receiver_alloc(u64 handler, u64 stack_adjust);
/* In any context */
void receiver_put(struct uintr_receiver *r);
/* Of the calling thread, which has unloaded it; drops the thread's reference */
void receiver_die(struct uintr_receiver *r);

/*
 * The table of the calling process, with a reference, or NULL. Takes no lock for a process
 * that never had one.
 */
struct uintr_table *table_current(void);
/* The same, made if there is none; NULL: no memory */
struct uintr_table *table_of_process(void);
void table_put(struct uintr_table *table);
/*
 * The calling process ends or becomes another. Its other threads are no more. Takes no
 * lock for a process that never had a table.
 */
void table_drop(void);

/* The index of a new sender, or -ENOMEM, -ENOSPC, -ESRCH */
long sender_add(struct uintr_table *table, struct uintr_receiver *r, unsigned int vector,
		bool quiet);
/* -EINVAL: the calling process has none at this index. */
long sender_remove(u64 index);

/* ---- threads.c ---- */

/* 0, or why the kernel's hooks cannot be had; the log has the remedy. */
int threads_init(void);
void threads_exit(void);

/*
 * Returns when every CPU that had a table loaded has finished the instruction it was in.
 * Who loads one meanwhile sees what was written before. It sleeps.
 */
void finish_instructions(void);

/* The calling thread, or NULL if it is unknown; then it takes no lock. */
struct uintr_thread *thread_current(void);
/*
 * The calling thread, known from now on, with this table, which is its process's.
 * -ENOMEM, or -ENODEV: the module is going.
 */
struct uintr_thread *thread_know(struct uintr_table *table, gfp_t gfp);
/* The calling thread, no receiver so far, is this one, whose reference it takes. */
void thread_receive(struct uintr_thread *t, struct uintr_receiver *r);
/* The calling thread receives no more and is unknown, whatever it was. */
void thread_forget(void);

#endif
