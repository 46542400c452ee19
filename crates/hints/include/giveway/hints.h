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
 * too. Nothing uses the heap; open and attach make system calls, the rest none.
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
 * WHAT IS TRUSTED. Others write the table at any time. The number of its slots
 * is read once, compared with the size that the kernel gives, and kept in memory
 * of this process (struct giveway_mapping_); a slot is the thread's own while its
 * owner word says so.
 *
 * WHO WAITS. Opening asks a daemon if the process cannot enter the directory, and
 * so does attaching when the table says that another has taken its place. A daemon
 * that does not answer costs these GIVEWAY_ASK_MS, and giveway_hints_open_nowait()
 * nothing: opening returns -EAGAIN, and the next call goes on where it was.
 *
 * WHEN UFS IS LOADED AGAIN it goes on with the same table. If it had to make
 * another, because it was told another size, attach notices and maps that one;
 * a thread that stays attached to the old one is no longer read.
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
#include <poll.h>
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
/* Beside that directory: where the table's descriptor is to be had by those who
 * may not enter it. */
#define GIVEWAY_HINTS_SOCKET "hints.sock"
/* How long to wait for the answer, where waiting is allowed. */
#define GIVEWAY_ASK_MS 1000

/* A table as this process has mapped it, in memory that only this process
 * writes: made once, never changed, never unmapped while a slot is in use. */
struct giveway_mapping_ {
	struct giveway_header *table;
	size_t size;
	/* What the header said when it was compared with size. */
	unsigned int nr_slots;
	/* The map's number, or the file's device and inode number; 0: not known. */
	unsigned long long identity[2];
};

/* One of each for all files that include this, hence weak. Declared first, since servers
 * from PostgreSQL 18 on are compiled with -Wmissing-variable-declarations. */
extern struct giveway_mapping_ *giveway_mapping_;
extern char giveway_dir_[108];
extern int giveway_fork_watched_;
extern int giveway_asking_;
extern __thread struct giveway_slot *giveway_self_;
extern __thread struct giveway_mapping_ *giveway_self_mapping_;
extern __thread unsigned long long giveway_self_owner_;

/* The process's mapping: NULL while there is none. */
__attribute__((weak)) struct giveway_mapping_ *giveway_mapping_;
__attribute__((weak)) char giveway_dir_[108];
__attribute__((weak)) int giveway_fork_watched_;
/* The socket on which an answer is awaited, plus one; 0: none is. */
__attribute__((weak)) int giveway_asking_;
/* The calling thread's slot, the table that it is in and the name that it bears:
 * NULL while it has none. */
__attribute__((weak)) __thread struct giveway_slot *giveway_self_;
__attribute__((weak)) __thread struct giveway_mapping_ *giveway_self_mapping_;
__attribute__((weak)) __thread unsigned long long giveway_self_owner_;

static inline struct giveway_slot *giveway_slot_at_(const struct giveway_mapping_ *mapping,
						    unsigned int index)
{
	return (struct giveway_slot *)((char *)mapping->table +
				       (size_t)index * GIVEWAY_SLOT_SIZE);
}

/* A slot's words change under UFS's eyes: each store is one store. */
#define GIVEWAY_STORE_(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define GIVEWAY_LOAD_(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* ---- Opening ---- */

static inline void giveway_after_fork_(void)
{
	int asking = __atomic_exchange_n(&giveway_asking_, 0, __ATOMIC_ACQ_REL);

	giveway_self_ = NULL;
	/* The answer is the parent's. */
	if (asking)
		close(asking - 1);
}

/* What mapping->size and ->identity are for descriptor @fd. Plain files have the
 * layout of a table in tests. @told: the size, if the kernel does not say. */
static inline int giveway_examine_(int fd, size_t told, struct giveway_mapping_ *mapping)
{
	union bpf_attr attr;
	struct bpf_map_info info;
	struct stat st;

	memset(&attr, 0, sizeof(attr));
	memset(&info, 0, sizeof(info));
	attr.info.bpf_fd = fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	if (syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr)) == 0) {
		if (info.value_size != GIVEWAY_SLOT_SIZE)
			return -EPROTO;
		mapping->size = (size_t)info.max_entries * GIVEWAY_SLOT_SIZE;
		mapping->identity[0] = info.id;
		return 0;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode)) {
		mapping->size = (size_t)st.st_size;
		mapping->identity[0] = st.st_dev;
		mapping->identity[1] = st.st_ino;
		return 0;
	}
	/* A map, where bpf(2) is forbidden: too large a size cannot be mapped. */
	mapping->size = told;
	return (st.st_mode & S_IFMT) == 0 ? 0 : -EACCES;
}

/* The descriptor of the map pinned at @path, or of a plain file of that layout.
 * -errno on failure. */
static inline int giveway_get_(const char *path)
{
	union bpf_attr attr;
	struct stat st;
	int fd;

	memset(&attr, 0, sizeof(attr));
	attr.pathname = (uintptr_t)path;
	fd = (int)syscall(SYS_bpf, BPF_OBJ_GET, &attr, sizeof(attr));
	if (fd >= 0 || errno == ENOENT)
		return fd >= 0 ? fd : -ENOENT;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return -EACCES;
}

/* A socket on which the daemon beside giveway_dir_ will answer. -EAGAIN if too
 * many wait for it already. */
static inline int giveway_knock_(int patience_ms)
{
	const char *last = strrchr(giveway_dir_, '/');
	size_t parent = last ? (size_t)(last - giveway_dir_) + 1 : 0;
	struct sockaddr_un to;
	int fd, error;

	memset(&to, 0, sizeof(to));
	to.sun_family = AF_UNIX;
	if (parent + sizeof(GIVEWAY_HINTS_SOCKET) > sizeof(to.sun_path))
		return -EACCES;
	memcpy(to.sun_path, giveway_dir_, parent);
	strcpy(to.sun_path + parent, GIVEWAY_HINTS_SOCKET);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		error = errno;
		if (error == EAGAIN && patience_ms-- > 0 && poll(NULL, 0, 1) == 0)
			continue;
		close(fd);
		return error == EAGAIN ? -EAGAIN : -EACCES;
	}
	return fd;
}

/* The table's descriptor from the daemon, which passes it to those it trusts in
 * one message, with its size in bytes. -EAGAIN: it has not answered within
 * @patience_ms; -EACCES: it does not trust this process, or is not there. */
static inline int giveway_ask_(size_t *told, int patience_ms)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	unsigned long long bytes = 0;
	struct iovec data = { &bytes, sizeof(bytes) };
	struct msghdr message;
	struct cmsghdr *part;
	struct pollfd answer;
	ssize_t received;
	int asking = __atomic_exchange_n(&giveway_asking_, 0, __ATOMIC_ACQ_REL) - 1;
	int fd = -EACCES, none = 0;

	if (asking < 0)
		asking = giveway_knock_(patience_ms);
	if (asking < 0)
		return asking;
	answer.fd = asking;
	answer.events = POLLIN;
	if (patience_ms)
		poll(&answer, 1, patience_ms);
	memset(&message, 0, sizeof(message));
	memset(&control, 0, sizeof(control));
	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = &control;
	message.msg_controllen = sizeof(control);
	received = recvmsg(asking, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
		/* Another thread asks, too: one of the two goes on. */
		if (!__atomic_compare_exchange_n(&giveway_asking_, &none, asking + 1, 0,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			close(asking);
		return -EAGAIN;
	}
	part = received < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(part), sizeof(fd));
	close(asking);
	if (fd >= 0 && received != (ssize_t)sizeof(bytes)) {
		close(fd);
		return -EPROTO;
	}
	*told = (size_t)bytes;
	return fd;
}

/* Map what @fd is, as @wanted has it, unless that is not a table. Everything that
 * others may write is read here for the first and last time. */
static inline int giveway_map_fd_(int fd, const struct giveway_mapping_ *wanted,
				  struct giveway_mapping_ **mapping)
{
	struct giveway_mapping_ made = *wanted;
	void *kept;

	if (made.size < 2 * (size_t)GIVEWAY_SLOT_SIZE)
		return -EPROTO;
	made.table = (struct giveway_header *)mmap(NULL, made.size, PROT_READ | PROT_WRITE,
						   MAP_SHARED, fd, 0);
	if (made.table == MAP_FAILED)
		return -errno;
	made.nr_slots = GIVEWAY_LOAD_(made.table->nr_slots);
	if (GIVEWAY_LOAD_(made.table->magic) != GIVEWAY_TABLE_MAGIC ||
	    GIVEWAY_LOAD_(made.table->version) != GIVEWAY_TABLE_VERSION || made.nr_slots < 2 ||
	    made.nr_slots > made.size / GIVEWAY_SLOT_SIZE) {
		munmap(made.table, made.size);
		return -EPROTO;
	}
	kept = mmap(NULL, sizeof(made), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (kept == MAP_FAILED) {
		munmap(made.table, made.size);
		return -ENOMEM;
	}
	*mapping = (struct giveway_mapping_ *)memcpy(kept, &made, sizeof(made));
	return 0;
}

/* Undo giveway_map_fd_(). */
static inline void giveway_unmap_(struct giveway_mapping_ *mapping)
{
	munmap(mapping->table, mapping->size);
	munmap(mapping, sizeof(*mapping));
}

/* Map this user's table, unless it is that of @known: then
 * *mapping is @known. */
static inline int giveway_map_(int patience_ms, struct giveway_mapping_ *known,
			       struct giveway_mapping_ **mapping)
{
	char path[sizeof(giveway_dir_) + sizeof(GIVEWAY_TABLE_NAME) + 1];
	struct giveway_mapping_ found;
	size_t told = 0;
	int fd, result;

	memset(&found, 0, sizeof(found));
	snprintf(path, sizeof(path), "%s/%s", giveway_dir_, GIVEWAY_TABLE_NAME);
	fd = giveway_get_(path);
	if (fd == -EACCES)
		fd = giveway_ask_(&told, patience_ms);
	if (fd < 0)
		return fd;
	result = giveway_examine_(fd, told, &found);
	if (result == 0 && known && found.identity[0] &&
	    found.identity[0] == known->identity[0] && found.identity[1] == known->identity[1])
		*mapping = known;
	else if (result == 0)
		result = giveway_map_fd_(fd, &found, mapping);
	close(fd);
	return result;
}

/* Another table may have taken the place of ours: use that. A header that says
 * so may be wrong, and then there is no other. */
static inline void giveway_follow_(int patience_ms)
{
	struct giveway_mapping_ *known = __atomic_load_n(&giveway_mapping_, __ATOMIC_ACQUIRE);
	struct giveway_mapping_ *found;

	if (known && GIVEWAY_LOAD_(known->table->replaced) &&
	    giveway_map_(patience_ms, known, &found) == 0 && found != known)
		/* The older mapping stays: threads may still store to it. */
		__atomic_store_n(&giveway_mapping_, found, __ATOMIC_RELEASE);
}

static inline int giveway_open_(const char *dir, int patience_ms)
{
	struct giveway_mapping_ *found;
	int result;

	if (__atomic_load_n(&giveway_mapping_, __ATOMIC_ACQUIRE))
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
	result = giveway_map_(patience_ms, NULL, &found);
	if (result == 0)
		__atomic_store_n(&giveway_mapping_, found, __ATOMIC_RELEASE);
	return result;
}

/*
 * Map the table, for the whole process. @dir: the directory that it is in;
 * NULL: what GIVEWAY_HINTS_DIR in the environment says, else the usual one.
 *
 * Returns 0, also when the table is mapped already; else, without effect:
 *   -ENOENT		no table: UFS has not been loaded since boot
 *   -EACCES		this user has none: join the group that may, and load UFS
 *   -EAGAIN		the daemon has not answered within GIVEWAY_ASK_MS: call again
 *   -EPROTO		a table of another version: use the header of that version
 *   -ENAMETOOLONG	@dir is longer than 107 bytes
 * and what mmap(2) may return.
 */
static inline int giveway_hints_open(const char *dir)
{
	return giveway_open_(dir, GIVEWAY_ASK_MS);
}

/* The same for a process that must not wait: it calls again later, as long as
 * that returns -EAGAIN. */
static inline int giveway_hints_open_nowait(const char *dir)
{
	return giveway_open_(dir, 0);
}

/* Whether some scheduler reads the table now. */
static inline int giveway_hints_active(void)
{
	return giveway_mapping_ && GIVEWAY_LOAD_(giveway_mapping_->table->scheduler) != 0;
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

/* How many steps a search for a slot takes. */
static inline unsigned int giveway_probes_(const struct giveway_mapping_ *mapping)
{
	return giveway_slot_probes(GIVEWAY_LOAD_(mapping->table->reach), mapping->nr_slots);
}

/* The slot of this name, or NULL. */
static inline struct giveway_slot *giveway_find_(const struct giveway_mapping_ *mapping,
						 unsigned long long owner)
{
	unsigned int probes = giveway_probes_(mapping), probe;
	struct giveway_slot *seen;

	for (probe = 0; probe < probes; probe++) {
		seen = giveway_slot_at_(mapping,
					giveway_slot_probe(owner, probe, mapping->nr_slots));
		if (GIVEWAY_LOAD_(seen->owner) == owner)
			return seen;
	}
	return NULL;
}

/* The first free slot on the way, which now bears this name, or NULL. */
static inline struct giveway_slot *giveway_take_(const struct giveway_mapping_ *mapping,
						 unsigned long long owner)
{
	unsigned int *reach = &mapping->table->reach, seen, probe;
	struct giveway_slot *slot;
	unsigned long long none;

	for (probe = 0; probe < mapping->nr_slots - 1; probe++) {
		slot = giveway_slot_at_(mapping,
					giveway_slot_probe(owner, probe, mapping->nr_slots));
		if (GIVEWAY_LOAD_(slot->owner))
			continue;
		/* First, so that a reader which sees the claim searches far enough. */
		seen = GIVEWAY_LOAD_(*reach);
		while (probe >= GIVEWAY_SLOT_PROBES && seen <= probe &&
		       !__atomic_compare_exchange_n(reach, &seen, probe + 1, 0, __ATOMIC_ACQ_REL,
						    __ATOMIC_RELAXED))
			;
		none = 0;
		if (__atomic_compare_exchange_n(&slot->owner, &none, owner, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return slot;
	}
	return NULL;
}

static inline struct giveway_slot *giveway_claim_(const struct giveway_mapping_ *mapping,
						  unsigned long long owner)
{
	/* A slot of this name is ours, by an earlier claim or an earlier thread. */
	struct giveway_slot *slot = giveway_find_(mapping, owner);

	if (!slot)
		slot = giveway_take_(mapping, owner);
	if (!slot)
		return NULL;
	/* Invariant 2: nothing counts while it is wiped. */
	__atomic_store_n(&slot->version, 0, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	memset((char *)slot + offsetof(struct giveway_slot, tier), 0,
	       sizeof(*slot) - offsetof(struct giveway_slot, tier));
	__atomic_store_n(&slot->version, GIVEWAY_SLOT_VERSION, __ATOMIC_RELEASE);
	__atomic_fetch_add(&mapping->table->claims, 1, __ATOMIC_RELEASE);
	return slot;
}

/* Release a slot of this name, unless another thread has taken it. */
static inline void giveway_give_back_(const struct giveway_mapping_ *mapping,
				      struct giveway_slot *slot, unsigned long long owner)
{
	unsigned long long leaving = GIVEWAY_OWNER_LEAVING;

	/* One that somebody is giving back already is that one's. */
	if (!owner || owner == leaving ||
	    !__atomic_compare_exchange_n(&slot->owner, &owner, leaving, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&slot->version, 0, __ATOMIC_RELEASE);
	/* Another one may have ended this, if it took us for dead. */
	__atomic_compare_exchange_n(&slot->owner, &leaving, 0, 0, __ATOMIC_ACQ_REL,
				    __ATOMIC_RELAXED);
	__atomic_fetch_add(&mapping->table->claims, 1, __ATOMIC_RELEASE);
}

/* As giveway_hints_attach(), in the table that is mapped now. */
static inline struct giveway_slot *giveway_attach_(void)
{
	struct giveway_mapping_ *mapping = __atomic_load_n(&giveway_mapping_, __ATOMIC_ACQUIRE);
	unsigned long long owner;

	if (giveway_self_ || !mapping)
		return giveway_self_;
	owner = giveway_owner_of_((unsigned int)syscall(SYS_gettid));
	if (owner)
		giveway_self_ = giveway_claim_(mapping, owner);
	giveway_self_mapping_ = mapping;
	giveway_self_owner_ = owner;
	return giveway_self_;
}

/*
 * Give the calling thread a slot. Returns it, or NULL if the table is not open
 * or has no room; setters then do nothing. Repeated calls return the same slot.
 */
static inline struct giveway_slot *giveway_hints_attach(void)
{
	if (!giveway_self_)
		giveway_follow_(GIVEWAY_ASK_MS);
	return giveway_attach_();
}

/* Whether the calling thread has a slot that is still its own. Whoever may write
 * the table may have taken it: then giveway_hints_detach(), which leaves the
 * slot to whoever has it, and attach anew. */
static inline int giveway_hints_attached(void)
{
	return giveway_self_ && GIVEWAY_LOAD_(giveway_self_->owner) == giveway_self_owner_ &&
	       GIVEWAY_LOAD_(giveway_self_->version) == GIVEWAY_SLOT_VERSION;
}

/*
 * A slot for another thread of the caller's pid namespace, which does not claim
 * one itself: the caller writes it with GIVEWAY_STORE_ and gives it back with
 * giveway_slot_release(), or leaves that to UFS. NULL as above.
 */
static inline struct giveway_slot *giveway_hints_attach_for(unsigned int tid)
{
	struct giveway_mapping_ *mapping = __atomic_load_n(&giveway_mapping_, __ATOMIC_ACQUIRE);
	unsigned long long owner = mapping ? giveway_owner_of_(tid) : 0;

	return owner ? giveway_claim_(mapping, owner) : NULL;
}

/* Give back a slot that nobody will use any more, of the table that is mapped
 * now. */
static inline void giveway_slot_release(struct giveway_slot *slot)
{
	giveway_give_back_(giveway_mapping_, slot, GIVEWAY_LOAD_(slot->owner));
}

/* Give back the calling thread's slot: its tier and weight are its cgroup's. */
static inline void giveway_hints_detach(void)
{
	struct giveway_slot *slot = giveway_self_;

	giveway_self_ = NULL;
	if (slot)
		giveway_give_back_(giveway_self_mapping_, slot, giveway_self_owner_);
}

/* The calling thread's slot, or NULL. */
static inline struct giveway_slot *giveway_my_slot(void)
{
	return giveway_self_;
}

/* ---- Saying ---- */

/* Be in @tier until told otherwise. A tier above the cgroup's takes a right
 * (docs/build/hints.md); without it the cgroup's holds. */
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
