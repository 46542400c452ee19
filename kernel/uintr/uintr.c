// SPDX-License-Identifier: GPL-2.0-only
/*
 * User interrupts (Intel UINTR) for programs, as a module for unpatched kernels
 *
 * Problem. With user interrupts a thread interrupts another without the kernel, once
 * the kernel has told the CPUs who they are: mainline does not. It has to save and load
 * registers at each context switch, but neither its FPU code nor its scheduler can be
 * changed by a module.
 *
 * Design. uintr.h has the interface. The kernel has hooks for what a hypervisor does to
 * a CPU (KVM's), and they are enough:
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
 *	unknown		nothing is loaded; SENDUIPI is #UD, and if the process has a
 *			table the die notifier makes the thread known and it begins anew
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
 *     to. Whoever is not known gets #UD from each instruction, as without this module.
 *  2. uintr_thread is changed by its own thread only, with interrupts off. Its hash,
 *     tables and their entries, and who sends to a receiver: under uintr_lock.
 *  3. An entry of a table points to the UPID of a receiver of which it holds a
 *     reference, or to the grave. No UPID is freed before every CPU has finished the
 *     instruction in which it may have read the entry (kick_all_cpus_sync).
 *  4. A dead receiver has no entry.
 *  5. Each known thread holds the module, as does each open file. So it cannot be
 *     unloaded while anything is loaded anywhere.
 *  6. fork: a child is unknown, and has the descriptors that it inherits. exec: the
 *     thread becomes unknown before the new program's first instruction.
 *
 * Known weaknesses.
 *  - A receiver that sleeps in the kernel is not woken: it gets the interrupt when it
 *    runs again. (Intel's patches wake it.)
 *  - A thread once known stays so until it ends: a program's threads that have sent
 *    cost some 10 MSR accesses at each switch, and hold the module.
 *  - Suspend to memory loses the registers of the thread that asked for it.
 *  - While KVM runs guests, its notifications of vector 0xf2 make a receiver look into
 *    its UPID for nothing, and cost it some 100 cycles each.
 *  - A debugger does not see UIF.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/anon_inodes.h>
#include <linux/bitmap.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hashtable.h>
#include <linux/kdebug.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/preempt.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/user-return-notifier.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/irq_vectors.h>
#include <asm/msr.h>
#include <asm/special_insns.h>
#include <asm/trapnr.h>
#include <trace/events/sched.h>

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
/* Renamed in 6.16. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define rdmsrq rdmsrl
#define wrmsrq wrmsrl
#endif

#define MSR_UINTR_RR		0x985
#define MSR_UINTR_HANDLER	0x986
#define MSR_UINTR_STACKADJUST	0x987
#define MSR_UINTR_MISC		0x988
#define MSR_UINTR_PD		0x989
#define MSR_UINTR_TT		0x98a

#define CR4_UINTR		BIT(25)
/* The kernel has no name for it, and takes all bits of CPUID 7.0 EDX as they are. */
#ifndef X86_FEATURE_UINTR
#define X86_FEATURE_UINTR	(18 * 32 + 5)
#endif
#define UINV			((u64)POSTED_INTR_VECTOR)
#define MISC(uinv)		((uinv) << 32 | (UINTR_SENDERS_MAX - 1))
#define TT_ENABLED		1
#define STACKADJUST_LOAD	1
#define RED_ZONE		128
#define STACK_MIN		4096
#define VECTORS			64

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
	u64 vector;		/* and UITTE_VALID */
	u64 upid;
};

#define UITTE_VALID		1ull
#define UITTE_VECTOR_SHIFT	8

struct uintr_receiver {
	struct uintr_upid upid;	/* first: it has to be aligned */
	struct kref refs;	/* file, thread, senders, a call */
	struct task_struct *task;	/* compared only; of the living */
	u64 handler;
	u64 stack_adjust;
	bool dead;
	struct list_head senders;
	wait_queue_head_t wait;
	struct work_struct mourn;	/* wakes who waits, drops the thread's reference */
	struct work_struct free;
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
	struct uintr_sender *senders[UINTR_SENDERS_MAX];
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
	struct uintr_table *table;
	/* While it is off the CPU */
	u64 rr;
	bool uif;
};

static DEFINE_RAW_SPINLOCK(uintr_lock);
static DEFINE_HASHTABLE(threads, 10);
static DEFINE_HASHTABLE(tables, 6);
static struct workqueue_struct *undertaker;

/* Where quiet senders to dead receivers post: nobody is notified */
static struct uintr_upid grave = { .control = UPID_SN };

static atomic_long_t cr4_repairs;
static int get_cr4_repairs(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read(&cr4_repairs));
}
static const struct kernel_param_ops cr4_repairs_ops = { .get = get_cr4_repairs };
module_param_cb(cr4_repairs, &cr4_repairs_ops, NULL, 0444);
MODULE_PARM_DESC(cr4_repairs, "how often the kernel had cleared CR4.UINTR (read only)");

/* As bytes, since assemblers that the kernel allows do not know the names */
static inline void stui(void)
{
	asm volatile(".byte 0xf3, 0x0f, 0x01, 0xef" : : : "memory");
}

static inline void clui(void)
{
	asm volatile(".byte 0xf3, 0x0f, 0x01, 0xee" : : : "memory");
}

static inline bool testui(void)
{
	bool uif;

	asm volatile(".byte 0xf3, 0x0f, 0x01, 0xed" : "=@ccc" (uif) : : "memory");
	return uif;
}

/* Not native_write_cr4(): the kernel exports it to nobody, and checks other bits */
static inline void write_cr4(unsigned long value)
{
	asm volatile("mov %0, %%cr4" : : "r" (value) : "memory");
}

/* Answers whether it was clear */
static inline bool set_cr4_uintr(void)
{
	unsigned long cr4 = __read_cr4();

	if (cr4 & CR4_UINTR)
		return false;
	write_cr4(cr4 | CR4_UINTR);
	return true;
}

static inline u64 this_destination(void)
{
	u64 id = per_cpu(x86_cpu_to_apicid, smp_processor_id());

	return x2apic_mode ? id : id << 8 & 0xff00;
}

/* ---- Receivers ---- */

/* Sends that come later notify this CPU; those before are in the PIR */
static void accept_notifications(struct uintr_receiver *r)
{
	u64 control = this_destination() << UPID_NDST_SHIFT | UINV << UPID_NV_SHIFT;

	/* A full barrier: the PIR is read after it. Neither ON nor SN. */
	xchg(&r->upid.control, control);
}

/* Invariant 3. */
static void receiver_free(struct work_struct *work)
{
	struct uintr_receiver *r = container_of(work, struct uintr_receiver, free);

	kick_all_cpus_sync();
	kfree(r);
}

/* In any context */
static void receiver_release(struct kref *refs)
{
	struct uintr_receiver *r = container_of(refs, struct uintr_receiver, refs);

	queue_work(undertaker, &r->free);
}

static void receiver_put(struct uintr_receiver *r)
{
	kref_put(&r->refs, receiver_release);
}

static void receiver_mourn(struct work_struct *work)
{
	struct uintr_receiver *r = container_of(work, struct uintr_receiver, mourn);

	wake_up_interruptible_poll(&r->wait, EPOLLHUP);
	receiver_put(r);
}

/* Of the calling thread, which has unloaded it */
static void receiver_die(struct uintr_receiver *r)
{
	struct uintr_sender *sender, *next;
	unsigned long flags;

	raw_spin_lock_irqsave(&uintr_lock, flags);
	WRITE_ONCE(r->dead, true);
	list_for_each_entry_safe(sender, next, &r->senders, of_receiver) {
		if (sender->quiet)
			WRITE_ONCE(sender->entry->upid, (u64)&grave);
		else
			WRITE_ONCE(sender->entry->vector, 0);
		list_del(&sender->of_receiver);
		sender->receiver = NULL;
		/* Not the last reference: the thread's is left */
		receiver_put(r);
	}
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	queue_work(undertaker, &r->mourn);
}

/* ---- Tables ---- */

static void table_free(struct kref *refs)
{
	struct uintr_table *table = container_of(refs, struct uintr_table, refs);

	free_pages((unsigned long)table->entries, get_order(UINTR_SENDERS_MAX *
							    sizeof(struct uitt_entry)));
	kfree(table);
}

static void table_put(struct uintr_table *table)
{
	kref_put(&table->refs, table_free);
}

static struct uintr_table *table_alloc(void)
{
	size_t bytes = UINTR_SENDERS_MAX * sizeof(struct uitt_entry);
	struct uintr_table *table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);

	if (!table)
		return NULL;
	table->entries = (void *)__get_free_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO,
						  get_order(bytes));
	if (!table->entries) {
		kfree(table);
		return NULL;
	}
	kref_init(&table->refs);
	table->process = current->signal;
	return table;
}

/* The table of the calling process, with a reference, or NULL. Under uintr_lock. */
static struct uintr_table *table_find(void)
{
	struct signal_struct *process = current->signal;
	struct uintr_table *table;

	hash_for_each_possible(tables, table, node, (unsigned long)process) {
		if (table->process == process) {
			kref_get(&table->refs);
			return table;
		}
	}
	return NULL;
}

static struct uintr_table *table_of_process(void)
{
	struct uintr_table *fresh, *table;

	raw_spin_lock_irq(&uintr_lock);
	table = table_find();
	raw_spin_unlock_irq(&uintr_lock);
	if (table)
		return table;
	fresh = table_alloc();
	if (!fresh)
		return NULL;
	raw_spin_lock_irq(&uintr_lock);
	table = table_find();
	if (!table) {
		table = fresh;
		fresh = NULL;
		/* The first reference is the process's. */
		kref_get(&table->refs);
		hash_add(tables, &table->node, (unsigned long)table->process);
	}
	raw_spin_unlock_irq(&uintr_lock);
	if (fresh)
		table_put(fresh);
	return table;
}

/* Under uintr_lock */
static void sender_remove(struct uintr_table *table, unsigned int index)
{
	struct uintr_sender *sender = table->senders[index];

	WRITE_ONCE(sender->entry->vector, 0);
	if (sender->receiver) {
		list_del(&sender->of_receiver);
		receiver_put(sender->receiver);
	}
	table->senders[index] = NULL;
	kfree(sender);
}

/* The calling process ends or becomes another. Its other threads are no more. */
static void table_drop(void)
{
	struct uintr_table *table;
	unsigned int index;
	unsigned long flags;

	raw_spin_lock_irqsave(&uintr_lock, flags);
	table = table_find();
	if (table) {
		hash_del(&table->node);
		for (index = 0; index < UINTR_SENDERS_MAX; index++) {
			if (table->senders[index])
				sender_remove(table, index);
		}
	}
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	if (table) {
		table_put(table);	/* this call's */
		table_put(table);	/* the process's */
	}
}

/* ---- Threads: what a CPU has loaded. With interrupts off, for the current one. ---- */

static void collect(struct uintr_thread *t, u64 rr)
{
	struct uintr_receiver *r = t->receiver;

	accept_notifications(r);
	wrmsrq(MSR_UINTR_RR, rr | xchg(&r->upid.pir, 0));
}

static void load_table(struct uintr_thread *t)
{
	wrmsrq(MSR_UINTR_TT, t->table ? (u64)t->table->entries | TT_ENABLED : 0);
}

static void load(struct uintr_thread *t)
{
	struct uintr_receiver *r = t->receiver;

	set_cr4_uintr();
	if (r) {
		wrmsrq(MSR_UINTR_HANDLER, r->handler);
		wrmsrq(MSR_UINTR_STACKADJUST, r->stack_adjust);
		wrmsrq(MSR_UINTR_PD, (u64)&r->upid);
		wrmsrq(MSR_UINTR_MISC, MISC(UINV));
		collect(t, t->rr);
		if (t->uif)
			stui();
		else
			clui();
	} else {
		wrmsrq(MSR_UINTR_MISC, MISC(0ull));
		clui();
	}
	load_table(t);
	user_return_notifier_register(&t->returns);
}

static void unload(struct uintr_thread *t)
{
	struct uintr_receiver *r = t->receiver;

	user_return_notifier_unregister(&t->returns);
	/* TESTUI and CLUI need it. */
	set_cr4_uintr();
	if (r) {
		set_bit(ilog2(UPID_SN), (unsigned long *)&r->upid.control);
		rdmsrq(MSR_UINTR_RR, t->rr);
		t->uif = testui();
		wrmsrq(MSR_UINTR_RR, 0);
	}
	clui();
	wrmsrq(MSR_UINTR_MISC, 0);
	wrmsrq(MSR_UINTR_TT, 0);
	write_cr4(__read_cr4() & ~CR4_UINTR);
}

static void on_user_return(struct user_return_notifier *returns)
{
	struct uintr_thread *t = container_of(returns, struct uintr_thread, returns);
	unsigned long flags;
	u64 rr;

	local_irq_save(flags);
	if (set_cr4_uintr()) {
		atomic_long_inc(&cr4_repairs);
		if (t->receiver) {
			rdmsrq(MSR_UINTR_RR, rr);
			collect(t, rr);
		}
	}
	local_irq_restore(flags);
}

static void sched_in(struct preempt_notifier *switched, int cpu)
{
	struct uintr_thread *t = container_of(switched, struct uintr_thread, switched);
	unsigned long flags;

	local_irq_save(flags);
	load(t);
	local_irq_restore(flags);
}

static void sched_out(struct preempt_notifier *switched, struct task_struct *next)
{
	unload(container_of(switched, struct uintr_thread, switched));
}

static struct preempt_ops switch_ops = {
	.sched_in = sched_in,
	.sched_out = sched_out,
};

/* Under uintr_lock */
static struct uintr_thread *thread_find(void)
{
	struct uintr_thread *t;

	hash_for_each_possible(threads, t, node, (unsigned long)current) {
		if (t->task == current)
			return t;
	}
	return NULL;
}

static struct uintr_thread *thread_current(void)
{
	struct uintr_thread *t;
	unsigned long flags;

	raw_spin_lock_irqsave(&uintr_lock, flags);
	t = thread_find();
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	return t;
}

/*
 * The calling thread, known from now on, with its process's table if that has one.
 * NULL: no memory, or the module is going.
 */
static struct uintr_thread *thread_know(gfp_t gfp)
{
	struct uintr_thread *t = thread_current();
	unsigned long flags;

	if (!t) {
		if (!try_module_get(THIS_MODULE))
			return NULL;
		t = kzalloc(sizeof(*t), gfp);
		if (!t) {
			module_put(THIS_MODULE);
			return NULL;
		}
		t->task = current;
		preempt_notifier_init(&t->switched, &switch_ops);
		t->returns.on_user_return = on_user_return;
		raw_spin_lock_irqsave(&uintr_lock, flags);
		t->table = table_find();
		hash_add(threads, &t->node, (unsigned long)current);
		preempt_notifier_register(&t->switched);
		load(t);
		raw_spin_unlock_irqrestore(&uintr_lock, flags);
	} else if (!t->table) {
		raw_spin_lock_irqsave(&uintr_lock, flags);
		t->table = table_find();
		load_table(t);
		raw_spin_unlock_irqrestore(&uintr_lock, flags);
	}
	return t;
}

/* The calling thread receives no more */
static void thread_unregister(struct uintr_thread *t)
{
	struct uintr_receiver *r = t->receiver;
	unsigned long flags;

	local_irq_save(flags);
	unload(t);
	t->receiver = NULL;
	load(t);
	wrmsrq(MSR_UINTR_PD, 0);
	local_irq_restore(flags);
	receiver_die(r);
}

/* The calling thread ends or becomes another program */
static void thread_forget(void)
{
	struct uintr_thread *t = thread_current();
	unsigned long flags;

	if (!t)
		return;
	if (t->receiver)
		thread_unregister(t);
	raw_spin_lock_irqsave(&uintr_lock, flags);
	unload(t);
	preempt_notifier_unregister(&t->switched);
	hash_del(&t->node);
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	if (t->table)
		table_put(t->table);
	kfree(t);
	module_put(THIS_MODULE);
}

/* ---- Hooks ---- */

/*
 * SENDUIPI of a thread that is not known to us, or was before its process had a table.
 * Other causes of #UD come here once, since the thread is known when they come again.
 */
static int on_trap(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	struct uintr_thread *t;
	struct uintr_table *table;
	unsigned long flags;

	if (event != DIE_TRAP || args->trapnr != X86_TRAP_UD || !user_mode(args->regs))
		return NOTIFY_DONE;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	t = thread_find();
	table = t && t->table ? NULL : table_find();
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	if (!table)
		return NOTIFY_DONE;
	t = thread_know(GFP_ATOMIC);
	table_put(table);
	return t ? NOTIFY_STOP : NOTIFY_DONE;
}

static struct notifier_block trap_notifier = { .notifier_call = on_trap };

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
static void on_exit(void *data, struct task_struct *task)
#else
static void on_exit(void *data, struct task_struct *task, bool group_dead)
#endif
{
	thread_forget();
	if (!atomic_read(&current->signal->live))
		table_drop();
}

static void on_exec(void *data, struct task_struct *task, pid_t old_pid,
		    struct linux_binprm *bprm)
{
	thread_forget();
	table_drop();
}

/* Modules find tracepoints by name only */
static struct hook {
	const char *name;
	void *probe;
	struct tracepoint *point;
} hooks[] = {
	{ "sched_process_exit", on_exit },
	{ "sched_process_exec", on_exec },
};

static void hook_find(struct tracepoint *point, void *data)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!strcmp(point->name, hooks[i].name))
			hooks[i].point = point;
	}
}

static void __maybe_unused hooks_have_the_right_types(void)
{
	check_trace_callback_type_sched_process_exit(on_exit);
	check_trace_callback_type_sched_process_exec(on_exec);
}

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
	return READ_ONCE(r->dead) ? EPOLLHUP : 0;
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

static struct uintr_receiver *receiver_alloc(const struct uintr_handler_args *args)
{
	struct uintr_receiver *r;

	/* kmalloc aligns a power of two to itself. */
	r = kzalloc(roundup_pow_of_two(sizeof(*r)), GFP_KERNEL_ACCOUNT);
	if (!r)
		return NULL;
	BUILD_BUG_ON(offsetof(struct uintr_receiver, upid));
	r->upid.control = UPID_SN;
	kref_init(&r->refs);
	r->task = current;
	r->handler = args->handler;
	r->stack_adjust = args->stack ? (args->stack + args->stack_size) | STACKADJUST_LOAD :
					RED_ZONE;
	INIT_LIST_HEAD(&r->senders);
	init_waitqueue_head(&r->wait);
	INIT_WORK(&r->mourn, receiver_mourn);
	INIT_WORK(&r->free, receiver_free);
	return r;
}

static long register_handler(const struct uintr_handler_args *args)
{
	struct uintr_receiver *r;
	struct uintr_thread *t;
	struct file *file;
	unsigned long flags;
	int fd;

	if (args->flags || !is_of_a_program(args->handler))
		return -EINVAL;
	if (args->stack && (args->stack_size < STACK_MIN ||
			    !is_of_a_program(args->stack) ||
			    args->stack_size > TASK_SIZE_MAX - args->stack))
		return -EINVAL;
	t = thread_know(GFP_KERNEL_ACCOUNT);
	if (!t)
		return -ENOMEM;
	if (t->receiver)
		return -EBUSY;
	r = receiver_alloc(args);
	if (!r)
		return -ENOMEM;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		receiver_put(r);
		return fd;
	}
	file = anon_inode_getfile("[uintr]", &receiver_fops, r, O_RDWR);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		receiver_put(r);
		return PTR_ERR(file);
	}
	kref_get(&r->refs);
	local_irq_save(flags);
	unload(t);
	t->receiver = r;
	t->rr = 0;
	t->uif = false;
	load(t);
	local_irq_restore(flags);
	fd_install(fd, file);
	return fd;
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
		thread_unregister(t);
	else
		result = READ_ONCE(r->dead) ? -ESRCH : -EPERM;
	receiver_put(r);
	return result;
}

static long sender_add(struct uintr_table *table, struct uintr_sender *sender,
		       struct uintr_receiver *r, unsigned int vector)
{
	unsigned int index;
	long result = -ENOSPC;

	raw_spin_lock_irq(&uintr_lock);
	for (index = 0; index < UINTR_SENDERS_MAX && table->senders[index]; index++)
		;
	if (r->dead) {
		result = -ESRCH;
	} else if (index < UINTR_SENDERS_MAX) {
		kref_get(&r->refs);
		sender->receiver = r;
		sender->entry = &table->entries[index];
		list_add(&sender->of_receiver, &r->senders);
		table->senders[index] = sender;
		WRITE_ONCE(sender->entry->upid, (u64)&r->upid);
		smp_wmb();	/* Valid at last */
		WRITE_ONCE(sender->entry->vector,
			   vector << UITTE_VECTOR_SHIFT | UITTE_VALID);
		result = index;
	}
	raw_spin_unlock_irq(&uintr_lock);
	return result;
}

static long register_sender(const struct uintr_sender_args *args)
{
	struct uintr_sender *sender;
	struct uintr_receiver *r;
	struct uintr_table *table;
	long result = -ENOMEM;

	if (args->vector >= VECTORS || args->flags & ~UINTR_SENDER_QUIET)
		return -EINVAL;
	r = receiver_get(args->receiver_id);
	if (IS_ERR(r))
		return PTR_ERR(r);
	table = table_of_process();
	sender = kzalloc(sizeof(*sender), GFP_KERNEL_ACCOUNT);
	if (table && sender && thread_know(GFP_KERNEL_ACCOUNT)) {
		sender->quiet = args->flags & UINTR_SENDER_QUIET;
		result = sender_add(table, sender, r, args->vector);
		if (result >= 0)
			sender = NULL;
	}
	kfree(sender);
	if (table)
		table_put(table);
	receiver_put(r);
	return result;
}

static long unregister_sender(u64 index)
{
	struct uintr_table *table;
	long result = -EINVAL;

	raw_spin_lock_irq(&uintr_lock);
	table = table_find();
	if (table && index < UINTR_SENDERS_MAX && table->senders[index]) {
		sender_remove(table, index);
		result = 0;
	}
	raw_spin_unlock_irq(&uintr_lock);
	if (table)
		table_put(table);
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
		return unregister_sender(argument);
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

static void hooks_remove(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].point, hooks[count].probe, NULL);
	tracepoint_synchronize_unregister();
}

static int __init uintr_init(void)
{
	unsigned int i;
	int error = check_machine();

	if (error)
		return error;
	for_each_kernel_tracepoint(hook_find, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!hooks[i].point) {
			pr_err("the kernel lacks the tracepoint %s\n", hooks[i].name);
			return refuse(-EOPNOTSUPP, "the end of a thread cannot be seen",
				      "build the kernel with CONFIG_TRACEPOINTS");
		}
	}
	undertaker = alloc_workqueue("uintr", WQ_UNBOUND, 0);
	if (!undertaker)
		return -ENOMEM;
	preempt_notifier_inc();
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = tracepoint_probe_register(hooks[i].point, hooks[i].probe, NULL);
		if (error)
			goto no_hooks;
	}
	error = register_die_notifier(&trap_notifier);
	if (error)
		goto no_hooks;
	error = misc_register(&device);
	if (error)
		goto no_device;
	return 0;

no_device:
	unregister_die_notifier(&trap_notifier);
no_hooks:
	hooks_remove(i);
	preempt_notifier_dec();
	destroy_workqueue(undertaker);
	return error;
}

/* Nobody is known and no file is open: invariant 5. */
static void __exit uintr_exit(void)
{
	misc_deregister(&device);
	unregister_die_notifier(&trap_notifier);
	hooks_remove(ARRAY_SIZE(hooks));
	preempt_notifier_dec();
	/* Finishes what is queued. */
	destroy_workqueue(undertaker);
}

module_init(uintr_init);
module_exit(uintr_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The authors of Giveway");
MODULE_DESCRIPTION("User interrupts (Intel UINTR) for programs: /dev/uintr");
MODULE_VERSION("0.1.0");
