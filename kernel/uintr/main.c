// SPDX-License-Identifier: GPL-2.0-only
/*
 * User interrupts (Intel UINTR) for programs, as a module for unpatched kernels
 *
 * Problem. With user interrupts a thread interrupts another without the kernel, once
 * the kernel has told the CPUs who they are: mainline does not. It has to save and load
 * registers at each context switch, but neither its FPU code nor its scheduler can be
 * changed by a module.
 *
 * Design. uintr.h has the interface, and this file /dev/uintr. receivers.c has who can
 * be interrupted and who sends, threads.c what a CPU has loaded. The kernel has hooks for
 * what a hypervisor does to a CPU (KVM's), and they are enough:
 *
 *	preempt notifiers	a thread of ours gets or leaves a CPU
 *	user-return notifiers	it goes back to its program
 *	die notifiers		a thread that never spoke to us executes SENDUIPI
 *	tracepoints		a thread ends or becomes another program
 *	vector 0xf2		KVM's posted interrupts: the kernel's handler does nothing
 *				but count them ("PIN" in /proc/interrupts)
 *
 * Objects.
 *
 *	task -- uintr_thread --+-- uintr_receiver -- UPID <---+    one for a thread
 *	                       |        ^ file, senders       |
 *	                       +-- uintr_table -- UITT entry -+    one for a process
 *
 * States of a thread:
 *
 *	unknown		nothing is loaded; SENDUIPI, STUI, CLUI and TESTUI are #UD, and
 *			if the process has a table, which its first call makes, the die
 *			notifier makes the thread known and the instruction begins anew
 *	known, on a CPU	CR4.UINTR, TT, MISC (and of a receiver HANDLER, STACKADJUST, PD,
 *			RR and UIF) are its own; notifications come to this CPU
 *	known, off	RR and UIF are in uintr_thread; senders find SN, and post only
 *
 * and of a receiver: alive, then dead: unregistered, exec or exit, always by its own
 * thread, so that no other CPU has it loaded.
 *
 * Protocol of a switch, with interrupts off. `out': SN = 1, RR and UIF are saved,
 * MISC.UINV = 0, RR = 0. A notification that was on its way comes as an ordinary
 * interrupt and does nothing; what it told of is in the PIR. `in': NDST = this CPU and
 * SN = ON = 0 in one atomic step, then RR = what was saved | what is in the PIR. A send
 * before that step is in the PIR, a send after it sends a notification here, which
 * waits until interrupts are on. So nothing is lost, and nothing delivered twice: who
 * takes a bit out of the PIR does so by exchange.
 *
 * CR4. The kernel writes it from a copy that does not have our bit, when it flushes
 * global TLB entries without INVPCID or changes its own bits, and since Linux 6.19 only
 * KVM's modules may change the copy. So the bit can vanish while a thread is in the
 * kernel; each return to the program looks, sets it, and takes what was posted
 * meanwhile (`cr4_repairs' counts).
 *
 * Invariants.
 *  1. A CPU has CR4.UINTR, UINV, TT or RR set only while it runs the thread they belong
 *     to. A process that never spoke to us gets #UD from each instruction, as without
 *     this module.
 *  2. uintr_thread is changed by its own thread only, with interrupts off. Its hash,
 *     tables and their entries, and who sends to a receiver: under uintr_lock.
 *  3. An entry of a table points to the UPID of a receiver of which it holds a
 *     reference, or to the grave. No UPID is freed before every CPU has finished the
 *     instruction in which it may have read the entry (finish_instructions). A CPU that
 *     loads a table says so (table_loaded) before it reads an entry, and who frees looks
 *     after the entry was changed, with a full barrier on both sides: so either the CPU
 *     is interrupted, or it reads the entry as it is now.
 *  4. A dead receiver has no entry once its own thread has left receiver_die(). Until
 *     then senders post into a UPID whose SN is set, and poll() does not say POLLHUP.
 *  5. Each known thread holds the module, as does each open file. So it cannot be
 *     unloaded while anything is loaded anywhere. Tables of processes that have neither
 *     any more do not: unloading drops them.
 *  6. fork: a child is unknown, and has the descriptors that it inherits. exec: the
 *     thread becomes unknown before the new program's first instruction.
 *  7. Who never spoke to us takes no lock of ours: not to end, not at exec, not at a
 *     switch. Who holds uintr_lock visits at most BATCH entries, or looks for a free one.
 *
 * Known weaknesses.
 *  - A receiver that sleeps in the kernel is not woken: it gets the interrupt when it
 *    runs again. (Intel's patches wake it.)
 *  - A thread once known stays so until it ends or stops to receive: a program's threads
 *    that have sent cost some 10 MSR accesses at each switch, and hold the module.
 *  - Suspend to memory loses the registers of the thread that asked for it.
 *  - While KVM runs guests, its notifications of vector 0xf2 make a receiver look into
 *    its UPID for nothing, and cost it some 100 cycles each.
 *  - A debugger does not see UIF.
 */
#include "internal.h"

#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uaccess.h>
#include <asm/cpufeature.h>

/* The kernel has no name for it, and takes all bits of CPUID 7.0 EDX as they are. */
#ifndef X86_FEATURE_UINTR
#define X86_FEATURE_UINTR	(18 * 32 + 5)
#endif
#define STACKADJUST_LOAD	1
#define RED_ZONE		128
#define STACK_MIN		4096
#define VECTORS			64

/* ---- Files ---- */

static int receiver_close(struct inode *inode, struct file *file)
{
	receiver_put(file->private_data);
	return 0;
}

static __poll_t receiver_poll(struct file *file, poll_table *wait)
{
	struct uintr_receiver *r = file->private_data;

	poll_wait(file, &r->wait, wait);
	/* Invariant 4: of a dead one, what was empty stays so. */
	return READ_ONCE(r->dead) && list_empty(&r->senders) ? EPOLLHUP : 0;
}

static const struct file_operations receiver_fops = {
	.owner = THIS_MODULE,
	.release = receiver_close,
	.poll = receiver_poll,
	.llseek = noop_llseek,
};

static bool is_of_a_program(u64 address)
{
	return address && address < TASK_SIZE_MAX;
}

static long register_handler(const struct uintr_handler_args *args)
{
	struct uintr_receiver *r;
	struct uintr_table *table;
	struct uintr_thread *t = thread_current();
	struct file *file;
	u64 stack_adjust = RED_ZONE;
	int fd, error;

	if (args->flags || !is_of_a_program(args->handler))
		return -EINVAL;
	if (args->stack && (args->stack_size < STACK_MIN ||
			    !is_of_a_program(args->stack) ||
			    args->stack_size > TASK_SIZE_MAX - args->stack))
		return -EINVAL;
	if (args->stack)
		/* Aligned, as the CPU does too: the lowest bits are not of the address. */
		stack_adjust = ((args->stack + args->stack_size) & ~15ull) | STACKADJUST_LOAD;
	if (t && t->receiver)
		return -EBUSY;
	table = table_of_process();
	if (!table)
		return -ENOMEM;
	error = -ENOMEM;
	r = receiver_alloc(args->handler, stack_adjust);
	if (!r)
		goto no_receiver;
	fd = error = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		goto no_number;
	file = anon_inode_getfile("[uintr]", &receiver_fops, r, O_RDWR);
	error = PTR_ERR(file);
	if (IS_ERR(file))
		goto no_file;
	/* Last: nothing after it fails, and who asks in vain stays unknown. */
	t = thread_know(table, GFP_KERNEL_ACCOUNT);
	error = PTR_ERR(t);
	if (IS_ERR(t))
		goto no_thread;
	/* The first reference is the file's. */
	kref_get(&r->refs);
	thread_receive(t, r);
	fd_install(fd, file);
	table_put(table);
	return fd;

no_thread:
	put_unused_fd(fd);
	fput(file);
	table_put(table);
	return error;
no_file:
	put_unused_fd(fd);
no_number:
	receiver_put(r);
no_receiver:
	table_put(table);
	return error;
}

/* The receiver behind a descriptor, with a reference */
static struct uintr_receiver *receiver_get(u64 id)
{
	struct uintr_receiver *r = ERR_PTR(-EINVAL);
	struct file *file;

	if (id > INT_MAX)
		return ERR_PTR(-EBADF);
	file = fget(id);
	if (!file)
		return ERR_PTR(-EBADF);
	if (file->f_op == &receiver_fops) {
		r = file->private_data;
		kref_get(&r->refs);
	}
	fput(file);
	return r;
}

static long unregister_handler(u64 id)
{
	struct uintr_receiver *r = receiver_get(id);
	struct uintr_thread *t;
	long result = 0;

	if (IS_ERR(r))
		return PTR_ERR(r);
	t = thread_current();
	if (t && t->receiver == r)
		thread_forget();
	else
		result = READ_ONCE(r->dead) ? -ESRCH : -EPERM;
	receiver_put(r);
	return result;
}

static long register_sender(const struct uintr_sender_args *args)
{
	struct uintr_receiver *r;
	struct uintr_table *table;
	struct uintr_thread *t;
	bool stranger = !thread_current();
	long result = -ENOMEM;

	if (args->vector >= VECTORS || args->flags & ~UINTR_SENDER_QUIET)
		return -EINVAL;
	r = receiver_get(args->receiver_id);
	if (IS_ERR(r))
		return PTR_ERR(r);
	table = table_of_process();
	if (!table)
		goto no_table;
	t = thread_know(table, GFP_KERNEL_ACCOUNT);
	result = PTR_ERR(t);
	if (!IS_ERR(t))
		result = sender_add(table, r, args->vector, args->flags & UINTR_SENDER_QUIET);
	if (result < 0 && stranger)
		thread_forget();
	table_put(table);
no_table:
	receiver_put(r);
	return result;
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *from = (void __user *)argument;
	struct uintr_handler_args handler;
	struct uintr_sender_args sender;

	switch (command) {
	case UINTR_REGISTER_HANDLER:
		if (copy_from_user(&handler, from, sizeof(handler)))
			return -EFAULT;
		return register_handler(&handler);
	case UINTR_UNREGISTER_HANDLER:
		return unregister_handler(argument);
	case UINTR_REGISTER_SENDER:
		if (copy_from_user(&sender, from, sizeof(sender)))
			return -EFAULT;
		return register_sender(&sender);
	case UINTR_UNREGISTER_SENDER:
		return sender_remove(argument);
	case UINTR_INTERFACE:
		return UINTR_INTERFACE_VERSION;
	default:
		return -ENOTTY;
	}
}

/* No compat_ioctl: only 64-bit programs have user interrupts. */
static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = device_ioctl,
	.llseek = noop_llseek,
};

/* For everybody: who can be interrupted is who gave a descriptor away. */
static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "uintr",
	.fops = &device_fops,
	.mode = 0666,
};

/* ---- Loading ---- */

static int refuse(int error, const char *lacking, const char *remedy)
{
	pr_err("not loaded: %s; %s\n", lacking, remedy);
	return error;
}

static int check_machine(void)
{
	if (!boot_cpu_has(X86_FEATURE_UINTR))
		return refuse(-ENODEV, "the CPU has no user interrupts (CPUID 7.0, EDX bit 5)",
			      "they came with Intel's Sapphire Rapids, and a virtual machine's host must pass them on");
	if (boot_cpu_has(X86_FEATURE_PTI))
		return refuse(-EOPNOTSUPP, "page-table isolation hides the kernel's tables from SENDUIPI",
			      "boot with nopti if the CPU does not need it");
	if (!boot_cpu_has(X86_FEATURE_APIC))
		return refuse(-ENODEV, "there is no local APIC to notify through",
			      "boot without nolapic");
	return 0;
}

static int __init uintr_init(void)
{
	int error = check_machine();

	if (error)
		return error;
	error = receivers_init();
	if (error)
		return error;
	error = threads_init();
	if (error)
		goto no_threads;
	error = misc_register(&device);
	if (error)
		goto no_device;
	return 0;

no_device:
	threads_exit();
no_threads:
	receivers_exit();
	return error;
}

/* Nobody is known and no file is open: invariant 5. */
static void __exit uintr_exit(void)
{
	misc_deregister(&device);
	threads_exit();
	receivers_exit();
}

module_init(uintr_init);
module_exit(uintr_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The authors of Giveway");
MODULE_DESCRIPTION("User interrupts (Intel UINTR) for programs: /dev/uintr");
MODULE_VERSION("0.1.0");
