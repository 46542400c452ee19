/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A client of the hint table (giveway/slot.h) for C and C++, in one header.
 *
 *	giveway_hints_open(NULL);		// once per process
 *	giveway_hints_attach();			// in each thread that has hints
 *	giveway_set_tier(GIVEWAY_TIER_BACKGROUND);
 *	...
 *	if (!try_lock(&l)) {
 *		giveway_wait((uintptr_t)&l);	// asleep, or spinning
 *		lock(&l);
 *		giveway_wait_done();
 *	}
 *	giveway_hold((uintptr_t)&l);
 *	...
 *	giveway_release((uintptr_t)&l);		// after unlock
 *
 * Where UFS is not loaded, or the process may not use the table, open returns
 * why and everything else does nothing: a program calls it all unconditionally.
 * Setters are plain stores to the calling thread's slot, for signal handlers
 * too. Nothing allocates; open and attach make system calls, the rest none.
 *
 * USERS. A table is its user's, and counts for that user's threads only: open after
 * becoming the user whose threads are to be heard. A process that maps its table
 * and then gives up rights goes on writing the table of who it was.
 *
 * PROCESSES AND THREADS. The mapping is per process, the slot per thread. A
 * child of fork() keeps the mapping and has no slot: it attaches for itself. A
 * thread that ends without giveway_hints_detach() gives its slot back when UFS
 * sees it exit. exec() keeps tier and weight, as it keeps a nice value.
 *
 * WHEN UFS IS LOADED AGAIN it goes on with the same table. If it had to make
 * another, because it was told another size, attach notices and maps that one;
 * a thread that stays attached to the old one speaks to nobody.
 *
 * The few variables are weak definitions, so that a program may include this in
 * any number of its files. A library that hides its symbols has its own.
 *
 * WEAKNESS. A thread that is killed between giveway_hold() and the lock says
 * that it holds what it does not: harmless, since it is about to exit.
 */
#ifndef GIVEWAY_HINTS_H
#define GIVEWAY_HINTS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <giveway/slot.h>
#include <giveway/tier.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the table is unless GIVEWAY_HINTS_DIR or the caller says otherwise. */
#define GIVEWAY_HINTS_DIR "/run/giveway/bpf"
/* Where its descriptor is to be had by those who may not enter the directory. */
#define GIVEWAY_HINTS_SOCKET "/run/giveway/hints.sock"

/* The process's mapping: NULL while there is none. */
__attribute__((weak)) struct giveway_header *giveway_table_;
__attribute__((weak)) char giveway_dir_[108];
__attribute__((weak)) int giveway_fork_watched_;
/* The calling thread's slot: NULL while it has none. */
__attribute__((weak)) __thread struct giveway_slot *giveway_self_;

static inline struct giveway_slot *giveway_slot_at_(unsigned int index)
{
	return (struct giveway_slot *)((char *)giveway_table_ + (size_t)index * GIVEWAY_SLOT_SIZE);
}

/* A slot's words change under UFS's eyes: each store is one store. */
#define GIVEWAY_STORE_(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define GIVEWAY_LOAD_(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* ---- Opening ---- */

static inline void giveway_after_fork_(void)
{
	giveway_self_ = NULL;
}

/* The descriptor of the map pinned at @path, or of a plain file of that layout,
 * with its size in bytes. -errno on failure. */
static inline int giveway_get_(const char *path, size_t *size)
{
	union bpf_attr attr;
	struct bpf_map_info info;
	struct stat st;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.pathname = (uintptr_t)path;
	fd = (int)syscall(SYS_bpf, BPF_OBJ_GET, &attr, sizeof(attr));
	if (fd < 0) {
		if (errno == ENOENT)
			return -ENOENT;
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
			*size = (size_t)st.st_size;
			return fd;
		}
		close(fd);
		return -EACCES;
	}
	memset(&attr, 0, sizeof(attr));
	memset(&info, 0, sizeof(info));
	attr.info.bpf_fd = fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) < 0 ||
	    info.value_size != GIVEWAY_SLOT_SIZE) {
		close(fd);
		return -EPROTO;
	}
	*size = (size_t)info.max_entries * GIVEWAY_SLOT_SIZE;
	return fd;
}

/* The same from the daemon, which passes it to those it trusts. */
static inline int giveway_ask_(size_t *size)
{
	struct sockaddr_un to;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	unsigned long long bytes = 0;
	struct iovec data = { &bytes, sizeof(bytes) };
	struct msghdr message;
	struct cmsghdr *part;
	int fd, socket_fd, saved;

	socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (socket_fd < 0)
		return -errno;
	memset(&to, 0, sizeof(to));
	to.sun_family = AF_UNIX;
	strcpy(to.sun_path, GIVEWAY_HINTS_SOCKET);
	memset(&message, 0, sizeof(message));
	memset(&control, 0, sizeof(control));
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	if (connect(socket_fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) < 0) {
		saved = errno;
		close(socket_fd);
		return -saved;
	}
	close(socket_fd);
	part = CMSG_FIRSTHDR(&message);
	if (!part || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
		return -EACCES;
	memcpy(&fd, CMSG_DATA(part), sizeof(fd));
	*size = (size_t)bytes;
	return fd;
}

/* Map this user's table: root's is in giveway_dir_, others' are asked for. */
static inline int giveway_map_(void)
{
	char path[sizeof(giveway_dir_) + sizeof(GIVEWAY_TABLE_NAME) + 1];
	struct giveway_header *table;
	size_t size = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", giveway_dir_, GIVEWAY_TABLE_NAME);
	fd = giveway_get_(path, &size);
	if (fd == -EACCES && strcmp(giveway_dir_, GIVEWAY_HINTS_DIR) == 0)
		fd = giveway_ask_(&size);
	if (fd < 0)
		return fd;
	if (size < 2 * (size_t)GIVEWAY_SLOT_SIZE) {
		close(fd);
		return -EPROTO;
	}
	table = (struct giveway_header *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
					      0);
	close(fd);
	if (table == MAP_FAILED)
		return -errno;
	if (table->magic != GIVEWAY_TABLE_MAGIC || table->version != GIVEWAY_TABLE_VERSION ||
	    table->nr_slots < 2 || (size_t)table->nr_slots * GIVEWAY_SLOT_SIZE > size) {
		munmap(table, size);
		return -EPROTO;
	}
	/* An older mapping stays: threads may still store to it. */
	__atomic_store_n(&giveway_table_, table, __ATOMIC_RELEASE);
	return 0;
}

/*
 * Map the table, for the whole process. @dir: the directory that it is in;
 * NULL: what GIVEWAY_HINTS_DIR in the environment says, else the usual one.
 *
 * Returns 0, also when the table is mapped already; else, without effect:
 *   -ENOENT		no table: UFS has not been loaded since boot
 *   -EACCES		this user has none: join the group that may, and load UFS
 *   -EPROTO		a table of another version: use the header of that version
 *   -ENAMETOOLONG	@dir is longer than 107 bytes
 * and what mmap(2) may return.
 */
static inline int giveway_hints_open(const char *dir)
{
	if (__atomic_load_n(&giveway_table_, __ATOMIC_ACQUIRE))
		return 0;
	if (!dir)
		dir = getenv("GIVEWAY_HINTS_DIR");
	if (!dir)
		dir = GIVEWAY_HINTS_DIR;
	if (strlen(dir) >= sizeof(giveway_dir_))
		return -ENAMETOOLONG;
	strcpy(giveway_dir_, dir);
	if (!__atomic_exchange_n(&giveway_fork_watched_, 1, __ATOMIC_ACQ_REL))
		pthread_atfork(NULL, NULL, giveway_after_fork_);
	return giveway_map_();
}

/* Whether some scheduler reads the table now. */
static inline int giveway_hints_active(void)
{
	return giveway_table_ && GIVEWAY_LOAD_(giveway_table_->scheduler) != 0;
}

/* ---- Claiming ---- */

/* The name of thread @tid of the caller's pid namespace; 0 without /proc. */
static inline unsigned long long giveway_owner_of_(unsigned int tid)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0)
		return 0;
	return giveway_owner(tid, (unsigned int)st.st_ino);
}

static inline struct giveway_slot *giveway_claim_(unsigned long long owner)
{
	unsigned int nr = giveway_table_->nr_slots, probe;
	struct giveway_slot *slot = NULL, *seen;
	unsigned long long none;

	/* A slot of this name is ours, by an earlier claim or an earlier thread. */
	for (probe = 0; !slot && probe < GIVEWAY_SLOT_PROBES; probe++) {
		seen = giveway_slot_at_(giveway_slot_probe(owner, probe, nr));
		if (GIVEWAY_LOAD_(seen->owner) == owner)
			slot = seen;
	}
	for (probe = 0; !slot && probe < GIVEWAY_SLOT_PROBES; probe++) {
		seen = giveway_slot_at_(giveway_slot_probe(owner, probe, nr));
		none = 0;
		if (__atomic_compare_exchange_n(&seen->owner, &none, owner, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			slot = seen;
	}
	if (!slot)
		return NULL;
	/* Invariant 2: nothing counts while it is wiped. */
	__atomic_store_n(&slot->version, 0, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memset((char *)slot + offsetof(struct giveway_slot, tier), 0,
	       sizeof(*slot) - offsetof(struct giveway_slot, tier));
	__atomic_store_n(&slot->version, GIVEWAY_SLOT_VERSION, __ATOMIC_RELEASE);
	__atomic_fetch_add(&giveway_table_->claims, 1, __ATOMIC_RELEASE);
	return slot;
}

/*
 * Give the calling thread a slot. Returns it, or NULL if the table is not open
 * or has no room; setters then do nothing. Repeated calls return the same slot.
 */
static inline struct giveway_slot *giveway_hints_attach(void)
{
	unsigned long long owner;

	if (giveway_self_)
		return giveway_self_;
	if (giveway_table_ && GIVEWAY_LOAD_(giveway_table_->replaced))
		giveway_map_();
	if (!giveway_table_)
		return NULL;
	owner = giveway_owner_of_((unsigned int)syscall(SYS_gettid));
	if (owner)
		giveway_self_ = giveway_claim_(owner);
	return giveway_self_;
}

/*
 * A slot for another thread of the caller's pid namespace, which does not claim
 * one itself: the caller writes it with GIVEWAY_STORE_ and gives it back with
 * giveway_slot_release(), or leaves that to UFS. NULL as above.
 */
static inline struct giveway_slot *giveway_hints_attach_for(unsigned int tid)
{
	unsigned long long owner = giveway_table_ ? giveway_owner_of_(tid) : 0;

	return owner ? giveway_claim_(owner) : NULL;
}

/* Give back a slot that nobody will use any more. */
static inline void giveway_slot_release(struct giveway_slot *slot)
{
	__atomic_store_n(&slot->version, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->owner, 0, __ATOMIC_RELEASE);
	__atomic_fetch_add(&giveway_table_->claims, 1, __ATOMIC_RELEASE);
}

/* Give back the calling thread's slot: its tier and weight are its cgroup's. */
static inline void giveway_hints_detach(void)
{
	struct giveway_slot *slot = giveway_self_;

	giveway_self_ = NULL;
	if (slot)
		giveway_slot_release(slot);
}

/* The calling thread's slot, or NULL. */
static inline struct giveway_slot *giveway_my_slot(void)
{
	return giveway_self_;
}

/* ---- Saying ---- */

/* Be in @tier until told otherwise. A tier above the cgroup's takes a right
 * (docs/hints.md); without it the cgroup's holds. */
static inline void giveway_set_tier(enum giveway_tier tier)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->tier, (unsigned char)(tier + 1));
}

/* Be in the cgroup's tier again. */
static inline void giveway_reset_tier(void)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->tier, (unsigned char)GIVEWAY_SLOT_TIER_CGROUP);
}

/* Have this part of the cgroup's share, compared with the cgroup's other
 * threads: GIVEWAY_WEIGHT_MIN to GIVEWAY_WEIGHT_MAX; 0 is the default. */
static inline void giveway_set_weight(unsigned int weight)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->weight, (unsigned short)weight);
}

/* Lock numbers of this thread mean the same as those of threads that set the
 * same domain. Unless set it is 0, which a machine's programs share: set it
 * where locks are addresses, to something only this program uses. */
static inline void giveway_set_domain(unsigned long long domain)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->domain, domain);
}

/* This thread holds @lock. */
static inline void giveway_hold(unsigned long long lock)
{
	struct giveway_lock_record *locks;
	unsigned int n;

	if (!giveway_self_)
		return;
	locks = &giveway_self_->locks;
	n = GIVEWAY_LOAD_(locks->nheld);
	if (n >= GIVEWAY_HELD_MAX)
		return;
	GIVEWAY_STORE_(locks->held[n].lock, lock);
	__atomic_store_n(&locks->nheld, n + 1, __ATOMIC_RELEASE);
}

/* It does not any more. */
static inline void giveway_release(unsigned long long lock)
{
	struct giveway_lock_record *locks;
	unsigned int n, i;

	if (!giveway_self_)
		return;
	locks = &giveway_self_->locks;
	n = GIVEWAY_LOAD_(locks->nheld);
	if (n > GIVEWAY_HELD_MAX)
		n = GIVEWAY_HELD_MAX;
	/* Locks are mostly released in the reverse of the order of taking. */
	for (i = n; i > 0; i--) {
		if (GIVEWAY_LOAD_(locks->held[i - 1].lock) != lock)
			continue;
		GIVEWAY_STORE_(locks->held[i - 1].lock, GIVEWAY_LOAD_(locks->held[n - 1].lock));
		__atomic_store_n(&locks->nheld, n - 1, __ATOMIC_RELEASE);
		return;
	}
}

/* This thread is about to wait for @lock. */
static inline void giveway_wait(unsigned long long lock)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->locks.wait, lock);
}

/* It has the lock, or has given up. */
static inline void giveway_wait_done(void)
{
	if (giveway_self_)
		GIVEWAY_STORE_(giveway_self_->locks.wait, 0ULL);
}

#ifdef __cplusplus
}
#endif

#endif
