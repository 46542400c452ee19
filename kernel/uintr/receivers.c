// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receivers, and the tables of those who send to them
 *
 * Objects, states and the numbered invariants: main.c. Kept here are 3, that no UPID is
 * freed while a CPU may write to it, and 4, that a dead receiver has no entry.
 */
#include "internal.h"

#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>

#define UITTE_VALID		1ull
#define UITTE_VECTOR_SHIFT	8
#define TABLE_ORDER		get_order(UINTR_SENDERS_MAX * sizeof(struct uitt_entry))
/* How many entries are visited at a time, with interrupts off and the lock held */
#define BATCH			32

DEFINE_RAW_SPINLOCK(uintr_lock);
/* Anybody may have as many processes with tables as there are process IDs */
static DEFINE_HASHTABLE(tables, 12);
static struct workqueue_struct *undertaker;

/* Where quiet senders to dead receivers post: nobody is notified */
static struct uintr_upid grave = { .control = UPID_SN };

/*
 * Invariant 3. All that have been released within FREE_DELAY are freed at once: each
 * time interrupts the CPUs of senders, and anybody may make receivers and release them in
 * a loop.
 */
#define FREE_DELAY	msecs_to_jiffies(20)
static LLIST_HEAD(released);

static void receivers_free(struct work_struct *work)
{
	struct llist_node *batch = llist_del_all(&released);
	struct uintr_receiver *r, *next;

	finish_instructions();
	llist_for_each_entry_safe(r, next, batch, freed)
		kfree(r);
}
static DECLARE_DELAYED_WORK(free_released, receivers_free);

static void receiver_release(struct kref *refs)
{
	struct uintr_receiver *r = container_of(refs, struct uintr_receiver, refs);

	llist_add(&r->freed, &released);
	queue_delayed_work(undertaker, &free_released, FREE_DELAY);
}

void receiver_put(struct uintr_receiver *r)
{
	kref_put(&r->refs, receiver_release);
}

static void receiver_mourn(struct work_struct *work)
{
	struct uintr_receiver *r = container_of(work, struct uintr_receiver, mourn);

	wake_up_interruptible_poll(&r->wait, EPOLLHUP);
	receiver_put(r);
}

struct uintr_receiver *receiver_alloc(u64 handler, u64 stack_adjust)
{
	struct uintr_receiver *r;

	/* kmalloc aligns a power of two to itself. */
	r = kzalloc(roundup_pow_of_two(sizeof(*r)), GFP_KERNEL_ACCOUNT);
	if (!r)
		return NULL;
	BUILD_BUG_ON(offsetof(struct uintr_receiver, upid));
	r->upid.control = UPID_SN;
	kref_init(&r->refs);
	r->handler = handler;
	r->stack_adjust = stack_adjust;
	INIT_LIST_HEAD(&r->senders);
	init_waitqueue_head(&r->wait);
	INIT_WORK(&r->mourn, receiver_mourn);
	return r;
}

/* Under uintr_lock. The sender's receiver has died. */
static void sender_bereave(struct uintr_sender *sender)
{
	struct uintr_receiver *r = sender->receiver;

	if (sender->quiet)
		WRITE_ONCE(sender->entry->upid, (u64)&grave);
	else
		WRITE_ONCE(sender->entry->vector, 0);
	list_del(&sender->of_receiver);
	sender->receiver = NULL;
	/* Not the last reference: the thread's is left */
	receiver_put(r);
}

/*
 * In batches: the lock is one for all, and who waits for it has interrupts off. Between
 * two of them senders come no more, since it is dead, and may go.
 */
void receiver_die(struct uintr_receiver *r)
{
	unsigned int turns;
	unsigned long flags;
	bool more;

	do {
		raw_spin_lock_irqsave(&uintr_lock, flags);
		WRITE_ONCE(r->dead, true);
		for (turns = BATCH; turns && !list_empty(&r->senders); turns--)
			sender_bereave(list_first_entry(&r->senders, struct uintr_sender,
							of_receiver));
		more = !list_empty(&r->senders);
		raw_spin_unlock_irqrestore(&uintr_lock, flags);
	} while (more);
	queue_work(undertaker, &r->mourn);
}

/* ---- Tables ---- */

static void table_free(struct kref *refs)
{
	struct uintr_table *table = container_of(refs, struct uintr_table, refs);

	free_pages((unsigned long)table->entries, TABLE_ORDER);
	kfree(table->senders);
	kfree(table);
}

void table_put(struct uintr_table *table)
{
	kref_put(&table->refs, table_free);
}

static struct uintr_table *table_alloc(void)
{
	struct uintr_table *table = kzalloc(sizeof(*table), GFP_KERNEL_ACCOUNT);

	if (!table)
		return NULL;
	kref_init(&table->refs);
	table->process = current->signal;
	table->senders = kcalloc(UINTR_SENDERS_MAX, sizeof(*table->senders), GFP_KERNEL_ACCOUNT);
	table->entries = (void *)__get_free_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO, TABLE_ORDER);
	if (table->senders && table->entries)
		return table;
	table_put(table);
	return NULL;
}

/* Under uintr_lock. With a reference */
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

/*
 * Whether the calling process may have a table. Without the lock, since every process of
 * the machine asks when it ends: only the process itself puts its table into the bucket
 * and takes it out.
 */
static bool may_have_table(void)
{
	return !hlist_empty(&tables[hash_min((unsigned long)current->signal, HASH_BITS(tables))]);
}

struct uintr_table *table_current(void)
{
	struct uintr_table *table;
	unsigned long flags;

	if (!may_have_table())
		return NULL;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	table = table_find();
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	return table;
}

struct uintr_table *table_of_process(void)
{
	struct uintr_table *fresh, *table = table_current();

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
static void entry_clear(struct uintr_table *table, unsigned int index)
{
	struct uintr_sender *sender = table->senders[index];

	WRITE_ONCE(sender->entry->vector, 0);
	if (sender->receiver) {
		list_del(&sender->of_receiver);
		sender->receiver->sender_count--;
		receiver_put(sender->receiver);
	}
	table->senders[index] = NULL;
	kfree(sender);
}

/*
 * Of a table that nobody finds any more, so that no entry is added. In batches, as the
 * end of a receiver. Drops the process's reference.
 */
static void table_end(struct uintr_table *table)
{
	unsigned int begin, index;
	unsigned long flags;

	for (begin = 0; begin < UINTR_SENDERS_MAX; begin += BATCH) {
		raw_spin_lock_irqsave(&uintr_lock, flags);
		for (index = begin; index < begin + BATCH; index++) {
			if (table->senders[index])
				entry_clear(table, index);
		}
		raw_spin_unlock_irqrestore(&uintr_lock, flags);
	}
	table_put(table);
}

void table_drop(void)
{
	struct uintr_table *table;
	unsigned long flags;

	if (!may_have_table())
		return;
	raw_spin_lock_irqsave(&uintr_lock, flags);
	table = table_find();
	if (table)
		hash_del(&table->node);
	raw_spin_unlock_irqrestore(&uintr_lock, flags);
	if (table) {
		table_put(table);	/* this call's */
		table_end(table);
	}
}

static int entry_set(struct uintr_table *table, struct uintr_sender *sender,
		     struct uintr_receiver *r, unsigned int vector)
{
	unsigned int index;

	if (r->dead)
		return -ESRCH;
	for (index = 0; index < UINTR_SENDERS_MAX && table->senders[index]; index++)
		;
	if (index == UINTR_SENDERS_MAX || r->sender_count == UINTR_RECEIVER_SENDERS_MAX)
		return -ENOSPC;
	r->sender_count++;
	kref_get(&r->refs);
	sender->receiver = r;
	sender->entry = &table->entries[index];
	list_add(&sender->of_receiver, &r->senders);
	table->senders[index] = sender;
	WRITE_ONCE(sender->entry->upid, (u64)&r->upid);
	smp_wmb();	/* Valid at last */
	WRITE_ONCE(sender->entry->vector, vector << UITTE_VECTOR_SHIFT | UITTE_VALID);
	return index;
}

long sender_add(struct uintr_table *table, struct uintr_receiver *r, unsigned int vector,
		bool quiet)
{
	struct uintr_sender *sender = kzalloc(sizeof(*sender), GFP_KERNEL_ACCOUNT);
	long index;

	if (!sender)
		return -ENOMEM;
	sender->quiet = quiet;
	raw_spin_lock_irq(&uintr_lock);
	index = entry_set(table, sender, r, vector);
	raw_spin_unlock_irq(&uintr_lock);
	if (index < 0)
		kfree(sender);
	return index;
}

long sender_remove(u64 index)
{
	struct uintr_table *table;
	long result = -EINVAL;

	raw_spin_lock_irq(&uintr_lock);
	table = table_find();
	if (table && index < UINTR_SENDERS_MAX && table->senders[index]) {
		entry_clear(table, index);
		result = 0;
	}
	raw_spin_unlock_irq(&uintr_lock);
	if (table)
		table_put(table);
	return result;
}

int receivers_init(void)
{
	undertaker = alloc_workqueue("uintr", WQ_UNBOUND, 0);
	return undertaker ? 0 : -ENOMEM;
}

void receivers_exit(void)
{
	struct uintr_table *table;
	struct hlist_node *next;
	int bucket;

	/* The threads that made them have ended, their processes have not. */
	hash_for_each_safe(tables, bucket, next, table, node) {
		hash_del(&table->node);
		table_end(table);
	}
	/* The mourning first: it releases. */
	flush_workqueue(undertaker);
	flush_delayed_work(&free_released);
	destroy_workqueue(undertaker);
}
