/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A table of hints in a plain file, for tests on machines without UFS, and a
 * reader that shares no code with the extension.
 *
 *	table create FILE SLOTS		a table with this many slots beside the header
 *	table replace FILE SLOTS	mark the one in FILE as replaced, make another
 *	table fill FILE [FREE]		claim all but FREE slots, for process 1
 *	table plant FILE PID OF_PID	a slot of PID, otherwise a copy of OF_PID's
 *	table scribble FILE		write noise all over it, until killed; what says how
 *						large it is stays, for clients map it by that
 *	table attach FILE 0|1		say whether a scheduler reads it
 *	table show FILE [PID]		a line for each slot, or for PID's only:
 *						pid tier weight held wait reader domain
 *						tier and weight that UFS obeys
 *
 * The file is the layout of giveway/slot.h, which UFS keeps in a BPF map. Where
 * FILE is such a map's pin, that is the table: all but create and replace.
 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <giveway/slot.h>

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

static struct giveway_header *map(const char *path)
{
	struct giveway_header *table;
	struct statfs fs;
	size_t size;
	int fd;

	if (statfs(path, &fs) < 0)
		fail(path);
	fd = fs.f_type == BPF_FS_MAGIC ? open_pin(path, &size) : open_file(path, &size);
	table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (table == MAP_FAILED)
		fail("mmap");
	close(fd);
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
	for (unsigned int probe = 0; probe < GIVEWAY_SLOT_PROBES; probe++) {
		struct giveway_slot *slot =
			slot_at(table, giveway_slot_probe(owner, probe, table->nr_slots));

		if (slot->owner == owner)
			return slot;
	}
	return NULL;
}

static void plant(struct giveway_header *table, const char *pid, const char *of_pid)
{
	struct giveway_slot *from = find(table, owner_of(of_pid));
	struct giveway_slot *to;
	unsigned long long owner = owner_of(pid);
	unsigned int probe = 0;

	do
		to = slot_at(table, giveway_slot_probe(owner, probe++, table->nr_slots));
	while (to->owner);
	if (!from) {
		fprintf(stderr, "no slot of %s\n", of_pid);
		exit(1);
	}
	memcpy(to, from, sizeof(*to));
	to->owner = owner;
}

static void scribble(struct giveway_header *table)
{
	unsigned int slots = table->nr_slots;
	unsigned char *bytes = (unsigned char *)table;
	size_t start = offsetof(struct giveway_header, claims);

	srandom(1);
	for (;;) {
		size_t at = (size_t)random() % ((size_t)slots * GIVEWAY_SLOT_SIZE - start);

		bytes[start + at] = (unsigned char)random();
		/* Small numbers and known names mislead more than noise does. */
		if (random() % 64 == 0)
			slot_at(table, 1 + (unsigned int)random() % (slots - 1))->locks.nheld =
				(unsigned int)random() % 400;
		if (random() % 4096 == 0)
			slot_at(table, 1 + (unsigned int)random() % (slots - 1))->owner = 0;
	}
}

static void show(struct giveway_header *table, const char *pid)
{
	static const char *const tiers[] = {"cgroup", "background", "time_sensitive"};

	for (unsigned int i = 1; i < table->nr_slots; i++) {
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
		for (unsigned int i = 1; i + spare < table->nr_slots; i++)
			if (!slot_at(table, i)->owner)
				slot_at(table, i)->owner = owner_of("1");
	} else if (!strcmp(command, "plant") && argc > 4) {
		plant(map(path), first, argv[4]);
	} else if (!strcmp(command, "attach") && first) {
		map(path)->scheduler = (unsigned long long)atoi(first);
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
