/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A table of hints in a plain file, for tests on machines without UFS, and a
 * reader that shares no code with the extension.
 *
 *	table create FILE SLOTS		a table with this many slots beside the header
 *	table replace FILE SLOTS	mark the one in FILE as replaced, make another
 *	table fill FILE [FREE]		claim all but FREE slots, for process 1
 *	table plant FILE PID OF_PID	a slot of PID, otherwise a copy of OF_PID's
 *	table take FILE PID		have process 1 take the slot of PID
 *	table disown FILE PID		have the slot of PID be another cluster's, in the background
 *	table wipe FILE		take all slots from their owners
 *	table poke FILE OFFSET VALUE	write a word of 32 bits
 *	table scribble FILE		write noise all over it, page 0 included, until killed
 *	table attach FILE 0|1		say whether a scheduler reads it
 *	table size FILE			how many slots it has
 *	table show FILE [PID]		a line for each slot, or for PID's only:
 *						pid tier weight held wait reader domain
 *						tier and weight that UFS obeys
 *	table listen SOCKET HOW [FILE]	be the daemon that passes FILE on:
 *						answer: as it should, 20 ms later
 *						deaf: accept nobody, say nothing
 *						full: the same, and its queue is full
 *						slow: say a byte at a time, and pass nothing
 *						close: hang up
 *
 * The file is the layout of giveway/slot.h, which UFS keeps in a BPF map. Where
 * FILE is such a map's pin, that is the table: all but create and replace. How
 * many slots there are, the file's size tells, not its header.
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <giveway/slot.h>

/* Pages of the table that map() has mapped. */
static unsigned int nr_slots;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct giveway_slot *slot_at(struct giveway_header *table, unsigned int index)
{
	return (struct giveway_slot *)((char *)table + (size_t)index * GIVEWAY_SLOT_SIZE);
}

static unsigned long long owner_of(const char *pid)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0)
		fail("/proc/self/ns/pid");
	return giveway_owner((unsigned int)atoi(pid), (unsigned int)st.st_ino);
}

/* The descriptor of a pinned map, and the bytes that it has to map. */
static int open_pin(const char *path, size_t *size)
{
	struct bpf_map_info info = {0};
	union bpf_attr get = {.pathname = (unsigned long long)(unsigned long)path};
	union bpf_attr ask = {0};
	int fd = (int)syscall(SYS_bpf, BPF_OBJ_GET, &get, sizeof(get));

	ask.info.bpf_fd = (unsigned int)fd;
	ask.info.info_len = sizeof(info);
	ask.info.info = (unsigned long long)(unsigned long)&info;
	if (fd < 0 || syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &ask, sizeof(ask)) < 0)
		fail(path);
	*size = (size_t)info.max_entries * info.value_size;
	return fd;
}

static int open_file(const char *path, size_t *size)
{
	struct stat st;
	int fd = open(path, O_RDWR);

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(path);
	*size = (size_t)st.st_size;
	return fd;
}

static int open_table(const char *path, size_t *size)
{
	struct statfs fs;

	if (statfs(path, &fs) < 0)
		fail(path);
	return fs.f_type == BPF_FS_MAGIC ? open_pin(path, size) : open_file(path, size);
}

static struct giveway_header *map(const char *path)
{
	struct giveway_header *table;
	size_t size;
	int fd = open_table(path, &size);

	table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (table == MAP_FAILED)
		fail("mmap");
	close(fd);
	nr_slots = (unsigned int)(size / GIVEWAY_SLOT_SIZE);
	return table;
}

/* Renamed into place when it is whole. */
static void create(const char *path, unsigned int slots)
{
	struct giveway_header header = {
		.magic = GIVEWAY_TABLE_MAGIC,
		.version = GIVEWAY_TABLE_VERSION,
		.nr_slots = slots + 1,
	};
	char part[4096];
	int fd;

	snprintf(part, sizeof(part), "%s.part", path);
	fd = open(part, O_RDWR | O_CREAT | O_TRUNC, 0660);
	if (fd < 0 || ftruncate(fd, (off_t)header.nr_slots * GIVEWAY_SLOT_SIZE) < 0 ||
	    write(fd, &header, sizeof(header)) != sizeof(header) || fchmod(fd, 0666) < 0)
		fail(part);
	close(fd);
	if (rename(part, path) < 0)
		fail(path);
}

/* UFS would look for an owner's slot along the same way. */
static struct giveway_slot *find(struct giveway_header *table, unsigned long long owner)
{
	unsigned int probes = giveway_slot_probes(table->reach, nr_slots);

	for (unsigned int probe = 0; probe < probes; probe++) {
		struct giveway_slot *slot =
			slot_at(table, giveway_slot_probe(owner, probe, nr_slots));

		if (slot->owner == owner)
			return slot;
	}
	return NULL;
}

static struct giveway_slot *must_find(struct giveway_header *table, const char *pid)
{
	struct giveway_slot *slot = find(table, owner_of(pid));

	if (!slot) {
		fprintf(stderr, "no slot of %s\n", pid);
		exit(1);
	}
	return slot;
}

static void plant(struct giveway_header *table, const char *pid, const char *of_pid)
{
	struct giveway_slot *from = must_find(table, of_pid);
	struct giveway_slot *to;
	unsigned long long owner = owner_of(pid);
	unsigned int probe = 0;

	do
		to = slot_at(table, giveway_slot_probe(owner, probe++, nr_slots));
	while (to->owner);
	memcpy(to, from, sizeof(*to));
	to->owner = owner;
}

static void wipe(struct giveway_header *table)
{
	for (unsigned int i = 1; i < nr_slots; i++)
		slot_at(table, i)->owner = 0;
}

/* Noise in some places of the slots. */
static void scribble_slots(struct giveway_header *table)
{
	unsigned char *bytes = (unsigned char *)slot_at(table, 1);
	size_t size = (size_t)(nr_slots - 1) * GIVEWAY_SLOT_SIZE;

	for (int i = 0; i < 100000; i++) {
		bytes[(size_t)random() % size] = (unsigned char)random();
		/* Small numbers and known names mislead more than noise does. */
		if (random() % 64 == 0)
			slot_at(table, 1 + (unsigned int)random() % (nr_slots - 1))->locks.nheld =
				(unsigned int)random() % 400;
		if (random() % 4096 == 0)
			slot_at(table, 1 + (unsigned int)random() % (nr_slots - 1))->owner = 0;
	}
}

/* By turns a header that clients accept, and one in which each word, and then all
 * of them, is what it must not be. */
static void scribble(struct giveway_header *table)
{
	static const unsigned int values[] = {0, 1, 2, 1000000, 1u << 30, 1u << 31, ~0u};
	struct giveway_header sound = {
		.magic = GIVEWAY_TABLE_MAGIC,
		.version = GIVEWAY_TABLE_VERSION,
		.nr_slots = nr_slots,
	};
	unsigned int *words = (unsigned int *)table;

	srandom(1);
	for (;;) {
		for (unsigned int i = 0; i < sizeof(sound) / sizeof(*words); i++) {
			memcpy(table, &sound, sizeof(sound));
			scribble_slots(table);
			for (unsigned int v = 0; v < sizeof(values) / sizeof(*values); v++) {
				words[i] = values[v];
				wipe(table);
				usleep(2000);
			}
		}
		for (unsigned int i = 0; i < GIVEWAY_SLOT_SIZE / sizeof(*words); i++)
			words[i] = (unsigned int)random();
		scribble_slots(table);
	}
}

/* One message: so many bytes, and a descriptor unless it is negative. */
static void say(int to, const void *bytes, size_t length, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {(void *)bytes, length};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Renamed into place when it can be connected to. */
static void listen_at(const char *path, const char *how, const char *file)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int door = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	size_t size = 0;
	int fd = file ? open_table(file, &size) : -1;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s.part", path);
	unlink(at.sun_path);
	if (bind(door, (struct sockaddr *)&at, sizeof(at)) < 0 || chmod(at.sun_path, 0666) < 0 ||
	    listen(door, strcmp(how, "full") ? 16 : 0) < 0)
		fail(at.sun_path);
	if (!strcmp(how, "full") &&
	    connect(socket(AF_UNIX, SOCK_SEQPACKET, 0), (struct sockaddr *)&at, sizeof(at)) < 0)
		fail("connect");
	if (rename(at.sun_path, path) < 0)
		fail(path);
	while (!strcmp(how, "deaf") || !strcmp(how, "full"))
		pause();
	for (;;) {
		unsigned long long bytes = size;
		int peer = accept(door, NULL, NULL);

		if (!strcmp(how, "answer")) {
			/* As a daemon that waits for a CPU. */
			usleep(20000);
			say(peer, &bytes, sizeof(bytes), fd);
		}
		for (unsigned int i = 0; !strcmp(how, "slow") && i < sizeof(bytes); i++) {
			usleep(100000);
			say(peer, (char *)&bytes + i, 1, -1);
		}
		close(peer);
	}
}

static void show(struct giveway_header *table, const char *pid)
{
	static const char *const tiers[] = {"cgroup", "background", "time_sensitive"};

	for (unsigned int i = 1; i < nr_slots; i++) {
		struct giveway_slot *slot = slot_at(table, i);

		if (!slot->owner || slot->version != GIVEWAY_SLOT_VERSION)
			continue;
		if (pid && slot != find(table, owner_of(pid)))
			continue;
		printf("%u %s %u %u %s %s %llx %s %u\n", (unsigned int)slot->owner,
		       slot->tier < 3 ? tiers[slot->tier] : "garbage", slot->weight,
		       slot->locks.nheld, slot->locks.wait || slot->locks.wait_spin ? "waits" : "-",
		       slot->reader.nheld_addr ? "reader" : "-", slot->domain,
		       slot->report.tier < 2 ? tiers[1 + slot->report.tier] : "garbage",
		       slot->report.weight);
	}
}

int main(int argc, char **argv)
{
	const char *command = argc > 2 ? argv[1] : "";
	const char *path = argc > 2 ? argv[2] : "";
	const char *first = argc > 3 ? argv[3] : NULL;

	if (!strcmp(command, "create") && first) {
		create(path, (unsigned int)atoi(first));
	} else if (!strcmp(command, "replace") && first) {
		struct giveway_header *old = map(path);

		create(path, (unsigned int)atoi(first));
		old->replaced = 1;
	} else if (!strcmp(command, "fill")) {
		struct giveway_header *table = map(path);
		unsigned int spare = first ? (unsigned int)atoi(first) : 0;

		/* It lives, so that nobody sweeps them up. */
		for (unsigned int i = 1; i + spare < nr_slots; i++)
			if (!slot_at(table, i)->owner)
				slot_at(table, i)->owner = owner_of("1");
	} else if (!strcmp(command, "plant") && argc > 4) {
		plant(map(path), first, argv[4]);
	} else if (!strcmp(command, "attach") && first) {
		map(path)->scheduler = (unsigned long long)atoi(first);
	} else if (!strcmp(command, "take") && first) {
		must_find(map(path), first)->owner = owner_of("1");
	} else if (!strcmp(command, "disown") && first) {
		struct giveway_slot *slot = must_find(map(path), first);

		slot->domain ^= 1;
		slot->tier = GIVEWAY_SLOT_TIER_BACKGROUND;
	} else if (!strcmp(command, "size")) {
		map(path);
		printf("%u\n", nr_slots - 1);
	} else if (!strcmp(command, "wipe")) {
		wipe(map(path));
	} else if (!strcmp(command, "poke") && argc > 4) {
		((unsigned int *)map(path))[atoi(first) / 4] =
			(unsigned int)strtoul(argv[4], NULL, 0);
	} else if (!strcmp(command, "listen") && first) {
		listen_at(path, first, argc > 4 ? argv[4] : NULL);
	} else if (!strcmp(command, "scribble")) {
		scribble(map(path));
	} else if (!strcmp(command, "show")) {
		show(map(path), first);
	} else {
		fprintf(stderr, "usage: see the head of table.c\n");
		return 2;
	}
	return 0;
}
