/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that hold the locks of cfl_test.c, in a guest with the CFL kernel.
 * crates/lab/tests/cfl_kernel.rs starts it and judges what it prints. LOCK is
 * mutex or spin.
 *
 *   guest shares LOCK SECONDS NAME:WEIGHT:THREADS:HOLD_NS[:LOCK[:PAUSE_NS]] ...
 *	Each NAME is a cgroup below the root, or A/B for one below another,
 *	whose threads do nothing but hold the lock, or the other one that it
 *	names, and sleep in between if it says so. Prints for each what lock.stat
 *	says of the window: "NAME acquisitions contended hold_ns".
 *   guest newcomer LOCK SECONDS
 *	Two cgroups share the lock beside a third that holds it now and then.
 *	After so long a fourth is made, and shares it too. Prints for how long
 *	a thread of the first two waited at most from then on: "longest_wait_ns".
 *   guest torture LOCK SECONDS SEED
 *	16 threads in two cgroups lock in every way there is, are interrupted
 *	by signals, change cgroups, and switch class and knobs. Ends with 1 if
 *	two threads held the lock at once, or one does not come back.
 *   guest aged LOCK
 *	A thread with nice 19 in a cgroup holds the lock for 2^50 ns, as the
 *	kernel is made to believe.
 *   guest switched LOCK
 *	A thread has held the mutex, so that it is known for how long it will,
 *	and holds it while its class is switched off, and again while it is
 *	switched on. What lock.stat says of these two.
 *   guest reweighted LOCK
 *	A cgroup's weight is lowered while its thread holds the mutex, which it
 *	held for longer before.
 *	These three end with what lock.stat says of the cgroup.
 *   guest removed LOCK SECONDS
 *	Cgroups come, wait for the lock beside others, and are removed. Prints
 *	how many.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CGROUPS	"/sys/fs/cgroup"
#define CFL	"/sys/kernel/debug/cfl"
#define TEST	"/sys/kernel/debug/cfl_test"
#define GROUPS	8

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* Writes to a file that must be there; answers with 0 or an errno */
static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	int error = 0;

	if (fd < 0)
		die(path);
	if (write(fd, text, strlen(text)) < 0)
		error = errno;
	close(fd);
	return error;
}

static void must_put(const char *path, const char *text)
{
	int error = put(path, text);

	if (error) {
		errno = error;
		die(path);
	}
}

static char *in(const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		die("vasprintf");
	va_end(args);
	return text;
}

static unsigned long long number_in(const char *path, const char *name)
{
	char word[64];
	unsigned long long value;
	FILE *file = fopen(path, "r");

	if (!file)
		die(path);
	while (name && fscanf(file, "%63s", word) == 1 && strcmp(word, name))
		;
	if (fscanf(file, "%llu", &value) != 1)
		die(path);
	fclose(file);
	return value;
}

/* What is held, and how */
static const struct lock {
	const char *name, *class, *violations, *holds, *age, *ways[5];
	unsigned int longest_ns;
} locks[] = {
	{
		"mutex", "classes/cfl_test", "violations", "holds", "age",
		{ "hold", "hold", "hold_interruptible", "hold_killable", "try" },
		300000,
	},
	{
		"spin", "classes/cfl_test_spin", "spin_violations", "spin_holds",
		"spin_age",
		{ "spin", "spin", "spin", "spin", "spin_stock" },
		100000,
	},
};
static const struct lock *lock;

static const struct lock *lock_named(const char *name)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (!strcmp(name, locks[i].name))
			return &locks[i];
	return NULL;
}

static unsigned long long violations(void)
{
	return number_in(in(TEST "/%s", lock->violations), NULL);
}

struct group {
	char *name;
	unsigned int weight, threads;
	unsigned long hold_ns, pause_ns;
	const struct lock *lock;
	unsigned long long before[3];
};

static const char *const counted[] = { "acquisitions", "contended", "hold_ns" };

/* Makes the cgroup, and gives its parents the controller */
static void make_cgroup(const char *name)
{
	char *path = strdup(name);
	char *slash = strchr(path, '/');

	must_put(CGROUPS "/cgroup.subtree_control", "+lock");
	if (slash) {
		*slash = 0;
		mkdir(in(CGROUPS "/%s", path), 0755);
		must_put(in(CGROUPS "/%s/cgroup.subtree_control", path), "+lock");
	}
	mkdir(in(CGROUPS "/%s", name), 0755);
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* What threads tell the process that started them */
struct seen {
	atomic_bool looks;
	atomic_ullong longest_wait_ns;
};

static void hold_for_ever(const struct group *group, struct seen *seen)
{
	struct timespec pause = { .tv_nsec = group->pause_ns };
	char *length = in("%lu", group->hold_ns);
	const char *way = group->lock->ways[0];
	int fd = open(in(TEST "/%s", way), O_WRONLY);
	unsigned long long begin, wait, longest;

	if (fd < 0)
		die(way);
	for (;;) {
		begin = now_ns();
		if (write(fd, length, strlen(length)) < 0)
			die("holding");
		if (seen && seen->looks) {
			wait = now_ns() - begin - group->hold_ns;
			longest = seen->longest_wait_ns;
			while (wait > longest &&
			       !atomic_compare_exchange_weak(&seen->longest_wait_ns,
							     &longest, wait))
				;
		}
		if (group->pause_ns)
			nanosleep(&pause, NULL);
	}
}

static void start_group(const struct group *group, struct seen *seen)
{
	unsigned int thread;

	make_cgroup(group->name);
	must_put(in(CGROUPS "/%s/lock.weight", group->name),
		 in("%u", group->weight));
	for (thread = 0; thread < group->threads; thread++)
		if (!fork()) {
			must_put(in(CGROUPS "/%s/cgroup.procs", group->name), "0");
			hold_for_ever(group, seen);
		}
}

/* The threads of start_group(), and not this process, which leads them */
static void end_groups(void)
{
	fflush(stdout);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
}

static int shares(double seconds, int count, char **words)
{
	struct group groups[GROUPS];
	unsigned int i;
	int field;

	/* The threads end with this process, and its parent does not */
	setpgid(0, 0);
	for (i = 0; i < (unsigned int)count; i++) {
		struct group *group = &groups[i];
		char *other = NULL;

		group->pause_ns = 0;
		if (i == GROUPS ||
		    sscanf(words[i], "%m[^:]:%u:%u:%lu:%m[^:]:%lu", &group->name,
			   &group->weight, &group->threads, &group->hold_ns,
			   &other, &group->pause_ns) < 4)
			die("NAME:WEIGHT:THREADS:HOLD_NS[:LOCK[:PAUSE_NS]]");
		group->lock = other ? lock_named(other) : lock;
		if (!group->lock)
			die(other);
	}
	for (i = 0; i < (unsigned int)count; i++)
		start_group(&groups[i], NULL);
	/* Until all have come and the averages are of what goes on now */
	usleep(200000);
	for (i = 0; i < (unsigned int)count; i++)
		for (field = 0; field < 3; field++)
			groups[i].before[field] =
				number_in(in(CGROUPS "/%s/lock.stat", groups[i].name),
					  counted[field]);
	usleep((useconds_t)(seconds * 1e6));
	for (i = 0; i < (unsigned int)count; i++) {
		printf("%s", groups[i].name);
		for (field = 0; field < 3; field++)
			printf(" %llu",
			       number_in(in(CGROUPS "/%s/lock.stat", groups[i].name),
					 counted[field]) - groups[i].before[field]);
		printf("\n");
	}
	printf("violations %llu\n", violations());
	end_groups();
	return 0;
}

static int newcomer(double seconds)
{
	const struct group groups[] = {
		{ "a", 100, 4, 20000, 0, lock, { 0 } },
		{ "b", 100, 4, 20000, 0, lock, { 0 } },
		{ "x", 100, 1, 10000, 3000000, lock, { 0 } },
		{ "n", 100, 4, 20000, 0, lock, { 0 } },
	};
	struct seen *seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (seen == MAP_FAILED)
		die("mmap");
	setpgid(0, 0);
	start_group(&groups[0], seen);
	start_group(&groups[1], seen);
	start_group(&groups[2], NULL);
	usleep((useconds_t)(seconds * 1e6));
	seen->looks = true;
	start_group(&groups[3], NULL);
	usleep(400000);
	printf("n %llu\n", number_in(CGROUPS "/n/lock.stat", "acquisitions"));
	printf("longest_wait_ns %llu\n", (unsigned long long)seen->longest_wait_ns);
	end_groups();
	return 0;
}

#define THREADS	16

static atomic_bool done;
static atomic_ulong rounds[THREADS];
static pthread_t threads[THREADS];

static void nothing(int signal)
{
	(void)signal;
}

static unsigned int next(unsigned int *seed, unsigned int below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 10) % below;
}

struct start {
	unsigned int number, seed;
};

static void *torture_thread(void *data)
{
	struct start *start = data;
	unsigned int seed = start->seed;
	int fds[5];
	int i;

	for (i = 0; i < 5; i++)
		if ((fds[i] = open(in(TEST "/%s", lock->ways[i]), O_WRONLY)) < 0)
			die(lock->ways[i]);
	while (!done) {
		char length[16];

		snprintf(length, sizeof(length), "%u",
			 next(&seed, 20) ? next(&seed, 20000)
					 : lock->longest_ns);
		if (write(fds[next(&seed, 5)], length, strlen(length)) < 0 &&
		    errno != EINTR && errno != EBUSY)
			die("torture");
		if (!next(&seed, 50))
			must_put(in(CGROUPS "/t%u/cgroup.threads", next(&seed, 2)),
				 "0");
		if (!next(&seed, 4))
			sched_yield();
		rounds[start->number]++;
	}
	return NULL;
}

static int torture(double seconds, unsigned int seed)
{
	const char *const knobs[] = {
		lock->class, "groups", "sockets", "steal",
		"starvation_prevention", "strict_guarantee",
	};
	static struct start starts[THREADS];
	struct sigaction action = { .sa_handler = nothing };
	struct timespec now, end;
	unsigned long before[THREADS] = { 0 };
	unsigned int i, step = 0, dead = 0;
	time_t looked;

	sigaction(SIGUSR1, &action, NULL);
	must_put(CGROUPS "/cgroup.subtree_control", "+lock");
	/* Threads of one process move between cgroups of one domain */
	mkdir(CGROUPS "/t0", 0755);
	mkdir(CGROUPS "/t1", 0755);
	put(CGROUPS "/t0/cgroup.type", "threaded");
	put(CGROUPS "/t1/cgroup.type", "threaded");
	for (i = 0; i < THREADS; i++) {
		starts[i] = (struct start){ i, seed * 31 + i };
		if (pthread_create(&threads[i], NULL, torture_thread, &starts[i]))
			die("pthread_create");
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	looked = end.tv_sec;
	end.tv_sec += (time_t)seconds;
	do {
		usleep(500);
		pthread_kill(threads[next(&seed, THREADS)], SIGUSR1);
		if (!(++step % 20))
			must_put(in(CFL "/%s", knobs[next(&seed, 6)]),
				 next(&seed, 4) ? "1" : "0");
		clock_gettime(CLOCK_MONOTONIC, &now);
		/* Nobody holds for more than 0.3 ms: who rests for 5 s is lost */
		if (now.tv_sec >= looked + 5) {
			looked = now.tv_sec;
			for (i = 0; i < THREADS; i++) {
				if (rounds[i] == before[i]) {
					printf("thread %u does not come back\n", i);
					dead++;
				}
				before[i] = rounds[i];
			}
		}
	} while (!dead && now.tv_sec < end.tv_sec);
	printf("holds %llu\nviolations %llu\n",
	       number_in(in(TEST "/%s", lock->holds), NULL), violations());
	fflush(stdout);
	if (dead || violations())
		_exit(1);
	done = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

/* A child in the cgroup, made if it is not there: 0 in the child */
static pid_t fork_into(const char *name)
{
	pid_t pid;

	make_cgroup(name);
	pid = fork();
	if (!pid)
		must_put(in(CGROUPS "/%s/cgroup.procs", name), "0");
	return pid;
}

static void hold_once(const char *length_ns)
{
	must_put(in(TEST "/%s", lock->ways[0]), length_ns);
}

static const char *const stat_fields[] = { "acquisitions", "hold_ns", "vlht_ns" };
static unsigned long long stat_before[3];

/* When the child has ended well */
static int print_stat_after(pid_t pid)
{
	int i, status;

	waitpid(pid, &status, 0);
	for (i = 0; i < 3; i++)
		printf("%s %lld\n", stat_fields[i],
		       (long long)(number_in(CGROUPS "/a/lock.stat", stat_fields[i]) -
				   stat_before[i]));
	return status ? 1 : 0;
}

static int aged(void)
{
	pid_t pid = fork_into("a");

	if (!pid) {
		if (setpriority(PRIO_PROCESS, 0, 19))
			die("setpriority");
		must_put(in(TEST "/%s", lock->age), in("%llu", 1ull << 50));
		exit(0);
	}
	return print_stat_after(pid);
}

static void must_write(int fd)
{
	if (write(fd, "", 1) != 1)
		die("pipe");
}

static void must_read(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		die("pipe");
}

static int switched(void)
{
	int i, has_held[2], goes_on[2];
	pid_t pid;

	if (pipe(has_held) || pipe(goes_on))
		die("pipe");
	pid = fork_into("a");
	if (!pid) {
		for (i = 0; i < 3; i++)
			hold_once("50000000");
		must_write(has_held[1]);
		must_read(goes_on[0]);
		hold_once("200000000");
		hold_once("200000000");
		exit(0);
	}
	must_read(has_held[0]);
	for (i = 0; i < 3; i++)
		stat_before[i] = number_in(CGROUPS "/a/lock.stat", stat_fields[i]);
	must_write(goes_on[1]);
	usleep(100000);
	must_put(in(CFL "/%s", lock->class), "0");
	usleep(200000);
	must_put(in(CFL "/%s", lock->class), "1");
	return print_stat_after(pid);
}

static int reweighted(void)
{
	int i, ends[2];
	pid_t pid;

	if (pipe(ends))
		die("pipe");
	make_cgroup("a");
	must_put(CGROUPS "/a/lock.weight", "10000");
	pid = fork_into("a");
	if (!pid) {
		for (i = 0; i < 8; i++)
			hold_once("50000000");
		must_write(ends[1]);
		hold_once("20000000");
		exit(0);
	}
	must_read(ends[0]);
	usleep(10000);
	must_put(CGROUPS "/a/lock.weight", "1");
	return print_stat_after(pid);
}

static int removed(double seconds)
{
	pid_t others[6], pid;
	unsigned int count = 0;
	struct timespec now, end;
	int i, status;

	for (i = 0; i < 6; i++) {
		struct group group = { .hold_ns = 20000, .lock = lock };

		others[i] = fork_into(i % 2 ? "b" : "c");
		if (!others[i])
			hold_for_ever(&group, NULL);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)(seconds * 1e9) % 1000000000;
	end.tv_sec += (time_t)seconds + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	do {
		pid = fork_into("a");
		if (!pid) {
			for (i = 0; i < 5; i++)
				hold_once("5000");
			exit(0);
		}
		waitpid(pid, &status, 0);
		/* Its process may still be on its way out */
		while (rmdir(CGROUPS "/a") && errno == EBUSY)
			usleep(100);
		count++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!status && (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec &&
							  now.tv_nsec < end.tv_nsec)));
	for (i = 0; i < 6; i++) {
		kill(others[i], SIGKILL);
		waitpid(others[i], NULL, 0);
	}
	printf("removed %u\n", count);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		lock = lock_named(argv[2]);
	if (lock && argc > 4 && !strcmp(argv[1], "shares"))
		return shares(atof(argv[3]), argc - 4, argv + 4);
	if (lock && argc == 4 && !strcmp(argv[1], "newcomer"))
		return newcomer(atof(argv[3]));
	if (lock && argc == 5 && !strcmp(argv[1], "torture"))
		return torture(atof(argv[3]), (unsigned int)atoi(argv[4]));
	if (lock && argc == 3 && !strcmp(argv[1], "aged"))
		return aged();
	if (lock && argc == 3 && !strcmp(argv[1], "switched"))
		return switched();
	if (lock && argc == 3 && !strcmp(argv[1], "reweighted"))
		return reweighted();
	if (lock && argc == 4 && !strcmp(argv[1], "removed"))
		return removed(atof(argv[3]));
	fprintf(stderr, "usage: guest shares LOCK SECONDS NAME:WEIGHT:THREADS:HOLD_NS[:LOCK[:PAUSE_NS]] ...\n"
			"       guest newcomer LOCK SECONDS\n"
			"       guest torture LOCK SECONDS SEED\n"
			"       guest aged|switched|reweighted LOCK\n"
			"       guest removed LOCK SECONDS\n");
	return 2;
}
