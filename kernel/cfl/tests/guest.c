/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that hold the locks of cfl_test.c, in a guest with the CFL kernel.
 * crates/lab/tests/cfl_kernel.rs starts it and judges what it prints. LOCK is
 * mutex or spin.
 *
 *   guest shares LOCK SECONDS NAME:WEIGHT:THREADS:HOLD_NS ...
 *	Each NAME is a cgroup below the root, or A/B for one below another,
 *	whose threads do nothing but hold the lock. Prints for each what
 *	lock.stat says of the window: "NAME acquisitions contended hold_ns".
 *   guest torture LOCK SECONDS SEED
 *	16 threads in two cgroups lock in every way there is, are interrupted
 *	by signals, change cgroups, and switch class and knobs. Ends with 1 if
 *	two threads held the lock at once, or one does not come back.
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
	const char *name, *class, *violations, *holds, *ways[5];
	unsigned int longest_ns;
} locks[] = {
	{
		"mutex", "classes/cfl_test", "violations", "holds",
		{ "hold", "hold", "hold_interruptible", "hold_killable", "try" },
		300000,
	},
	{
		"spin", "classes/cfl_test_spin", "spin_violations", "spin_holds",
		{ "spin", "spin", "spin", "spin", "spin_stock" },
		100000,
	},
};
static const struct lock *lock;

static unsigned long long violations(void)
{
	return number_in(in(TEST "/%s", lock->violations), NULL);
}

struct group {
	char *name;
	unsigned int weight, threads;
	unsigned long hold_ns;
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

static void hold_for_ever(const struct group *group)
{
	char *length = in("%lu", group->hold_ns);
	int fd = open(in(TEST "/%s", lock->ways[0]), O_WRONLY);

	if (fd < 0)
		die(lock->ways[0]);
	for (;;)
		if (write(fd, length, strlen(length)) < 0)
			die("holding");
}

static int shares(double seconds, int count, char **words)
{
	struct group groups[GROUPS];
	unsigned int i, thread;
	int field;

	/* The threads end with this process, and its parent does not */
	setpgid(0, 0);
	for (i = 0; i < (unsigned int)count; i++) {
		struct group *group = &groups[i];

		if (i == GROUPS ||
		    sscanf(words[i], "%m[^:]:%u:%u:%lu", &group->name,
			   &group->weight, &group->threads, &group->hold_ns) != 4)
			die("NAME:WEIGHT:THREADS:HOLD_NS");
		make_cgroup(group->name);
		must_put(in(CGROUPS "/%s/lock.weight", group->name),
			 in("%u", group->weight));
	}
	for (i = 0; i < (unsigned int)count; i++)
		for (thread = 0; thread < groups[i].threads; thread++)
			if (!fork()) {
				must_put(in(CGROUPS "/%s/cgroup.procs",
					    groups[i].name), "0");
				hold_for_ever(&groups[i]);
			}
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
	fflush(stdout);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
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

int main(int argc, char **argv)
{
	unsigned int i;

	for (i = 0; argc > 2 && i < 2; i++)
		if (!strcmp(argv[2], locks[i].name))
			lock = &locks[i];
	if (lock && argc > 4 && !strcmp(argv[1], "shares"))
		return shares(atof(argv[3]), argc - 4, argv + 4);
	if (lock && argc == 5 && !strcmp(argv[1], "torture"))
		return torture(atof(argv[3]), (unsigned int)atoi(argv[4]));
	fprintf(stderr, "usage: guest shares LOCK SECONDS NAME:WEIGHT:THREADS:HOLD_NS ...\n"
			"       guest torture LOCK SECONDS SEED\n");
	return 2;
}
