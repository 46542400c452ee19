// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a CPU has loaded of the thread that it runs, and the hooks by which that changes
 *
 * States of a thread, the protocol of a switch and the numbered invariants: main.c.
 * Kept here are 1, that a CPU has nothing set of a thread that it does not run, and 6,
 * that no child and no new program inherits it.
 */
#include "internal.h"

#include <linux/kdebug.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>
#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/msr.h>
#include <asm/special_insns.h>
#include <asm/trapnr.h>
#include <trace/events/sched.h>

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
#define UINV			((u64)POSTED_INTR_VECTOR)
#define MISC(uinv)		((uinv) << 32 | (UINTR_SENDERS_MAX - 1))
#define TT_ENABLED		1

static DEFINE_HASHTABLE(threads, 14);

/* Whether this CPU may be in the middle of reading a table (invariant 3) */
static DEFINE_PER_CPU(bool, table_loaded);

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

/* Sends that come later notify this CPU; those before are in the PIR */
static void accept_notifications(struct uintr_receiver *r)
{
	u64 control = this_destination() << UPID_NDST_SHIFT | UINV << UPID_NV_SHIFT;

	/* A full barrier: the PIR is read after it. Neither ON nor SN. */
	xchg(&r->upid.control, control);
}

/* ---- Loading. With interrupts off, for the current thread. ---- */

static void collect(struct uintr_thread *t, u64 rr)
{
	struct uintr_receiver *r = t->receiver;

	accept_notifications(r);
	wrmsrq(MSR_UINTR_RR, rr | xchg(&r->upid.pir, 0));
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
	this_cpu_write(table_loaded, true);
	/* Pairs with finish_instructions(): it sees this, or SENDUIPI what it waits for. */
	smp_mb();
	wrmsrq(MSR_UINTR_TT, (u64)t->table->entries | TT_ENABLED);
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
	this_cpu_write(table_loaded, false);
	write_cr4(__read_cr4() & ~CR4_UINTR);
}

static bool has_table_loaded(int cpu, void *unused)
{
	return READ_ONCE(per_cpu(table_loaded, cpu));
}

static void do_nothing(void *unused)
{
}

void finish_instructions(void)
{
	smp_mb();
	/* An interrupt comes between two instructions. */
	on_each_cpu_cond(has_table_loaded, do_nothing, NULL, true);
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

struct uintr_thread *thread_current(void)
{
	struct uintr_thread *t;
	unsigned long flags;

	/* Every thread of the machine comes here when it ends. Only it itself adds one. */
	if (hlist_empty(&current->preempt_notifiers))
		return NULL;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	t = thread_find();
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	return t;
}

struct uintr_thread *thread_know(struct uintr_table *table, gfp_t gfp)
{
	struct uintr_thread *t = thread_current();
	unsigned long flags;

	if (t)
		return t;
	if (!try_module_get(THIS_MODULE))
		return ERR_PTR(-ENODEV);
	t = kzalloc(sizeof(*t), gfp);
	if (!t) {
		module_put(THIS_MODULE);
		return ERR_PTR(-ENOMEM);
	}
	t->task = current;
	t->table = table;
	kref_get(&table->refs);
	preempt_notifier_init(&t->switched, &switch_ops);
	t->returns.on_user_return = on_user_return;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	hash_add(threads, &t->node, (unsigned long)current);
	preempt_notifier_register(&t->switched);
	load(t);
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	return t;
}

void thread_receive(struct uintr_thread *t, struct uintr_receiver *r)
{
	unsigned long flags;

	local_irq_save(flags);
	unload(t);
	t->receiver = r;
	t->rr = 0;
	t->uif = false;
	load(t);
	local_irq_restore(flags);
}

void thread_forget(void)
{
	struct uintr_thread *t = thread_current();
	unsigned long flags;

	if (!t)
		return;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	unload(t);
	if (t->receiver)
		wrmsrq(MSR_UINTR_PD, 0);
	preempt_notifier_unregister(&t->switched);
	hash_del(&t->node);
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	if (t->receiver)
		receiver_die(t->receiver);
	table_put(t->table);
	kfree(t);
	module_put(THIS_MODULE);
}

/* ---- Hooks ---- */

/*
 * An instruction of user interrupts of a thread that is not known to us, in a process that
 * is. Other causes of #UD come here once, since the thread is known when they come again.
 */
static int on_trap(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	struct uintr_thread *t;
	struct uintr_table *table;

	if (event != DIE_TRAP || args->trapnr != X86_TRAP_UD || !user_mode(args->regs))
		return NOTIFY_DONE;
	table = thread_current() ? NULL : table_current();
	if (!table)
		return NOTIFY_DONE;
	t = thread_know(table, GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN);
	table_put(table);
	/*
	 * Without memory the instruction begins anew, too, and traps again: others run
	 * between, and a signal ends it. Only a module that is going leaves it to fail.
	 */
	return t == ERR_PTR(-ENODEV) ? NOTIFY_DONE : NOTIFY_STOP;
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

static void hooks_remove(unsigned int count)
{
	while (count--)
		tracepoint_probe_unregister(hooks[count].point, hooks[count].probe, NULL);
	tracepoint_synchronize_unregister();
	preempt_notifier_dec();
}

int threads_init(void)
{
	unsigned int i;
	int error;

	for_each_kernel_tracepoint(hook_find, NULL);
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (!hooks[i].point) {
			pr_err("not loaded: the kernel lacks the tracepoint %s; %s\n",
			       hooks[i].name, "build it with CONFIG_TRACEPOINTS");
			return -EOPNOTSUPP;
		}
	}
	preempt_notifier_inc();
	for (i = 0; i < ARRAY_SIZE(hooks); i++) {
		error = tracepoint_probe_register(hooks[i].point, hooks[i].probe, NULL);
		if (error)
			goto no_hooks;
	}
	error = register_die_notifier(&trap_notifier);
	if (!error)
		return 0;
no_hooks:
	hooks_remove(i);
	return error;
}

void threads_exit(void)
{
	unregister_die_notifier(&trap_notifier);
	hooks_remove(ARRAY_SIZE(hooks));
}
