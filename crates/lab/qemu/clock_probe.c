// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * clock_probe: is the guest's clock fit for measuring?
 *
 * Runs in the guest; prints figures that docs/design/clock.md explains and gives
 * bounds for. Build on the host: cc -O1 -static -pthread clock_probe.c
 *
 *   clock_probe loop     CPU and wall time of a fixed loop. Run it alone and
 *                        beside any number of `spin`s: the CPU time must not
 *                        change by 1 % as long as a CPU is left for it.
 *   clock_probe spin     a busy neighbour; never returns
 *   clock_probe costs    PAUSE, clock reading, system call, in ns
 *   clock_probe skew A B by how much CPU A's time stamps lie in the future of
 *                        CPU B's clock, at worst; a quantum at most
 *   clock_probe wake A B latency of a futex wake-up of idle CPU B by CPU A
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOPS = 5000000, COSTS = 20000, WAKES = 500 };
static const int64_t SKEW_NS = 100000000;

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        perror("clock_probe: cannot pin; is there such a CPU?");
        exit(1);
    }
}

static void work(void)
{
    uint64_t x = 1;

    for (int i = 0; i < LOOPS; i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        __asm__ volatile("" : "+r"(x)); /* keep the loop */
    }
}

static void loop(void)
{
    int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t wall = now_ns(CLOCK_MONOTONIC);

    work();
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    printf("loop cpu_ns=%ld wall_ns=%ld\n", (long)cpu, (long)wall);
}

static void costs(void)
{
    int64_t t[4];

    t[0] = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < COSTS; i++) {
        __builtin_ia32_pause();
    }
    t[1] = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < COSTS; i++) {
        now_ns(CLOCK_MONOTONIC);
    }
    t[2] = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < COSTS; i++) {
        syscall(SYS_getppid);
    }
    t[3] = now_ns(CLOCK_MONOTONIC);
    printf("costs pause_ns=%ld clock_ns=%ld syscall_ns=%ld\n",
           (long)(t[1] - t[0]) / COSTS, (long)(t[2] - t[1]) / COSTS,
           (long)(t[3] - t[2]) / COSTS);
}

/* Threads of skew and wake get the number of their CPU. */
static int arg_cpu(void *arg)
{
    return (int)(intptr_t)arg;
}

static pthread_t start(void *(*body)(void *), int cpu)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, body, (void *)(intptr_t)cpu) != 0) {
        fprintf(stderr, "clock_probe: cannot start a thread\n");
        exit(1);
    }
    return thread;
}

static _Atomic int64_t stamp_ns;
static atomic_bool done;

static void *stamper(void *arg)
{
    pin(arg_cpu(arg));
    while (!atomic_load(&done)) {
        atomic_store(&stamp_ns, now_ns(CLOCK_MONOTONIC));
    }
    return NULL;
}

static void skew(int from, int to)
{
    int64_t end, worst = 0, now;
    pthread_t thread = start(stamper, from);

    pin(to);
    end = now_ns(CLOCK_MONOTONIC) + SKEW_NS;
    do {
        int64_t seen = atomic_load(&stamp_ns);

        now = now_ns(CLOCK_MONOTONIC);
        worst = seen - now > worst ? seen - now : worst;
    } while (now < end);
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    printf("skew from=%d to=%d ahead_ns=%ld\n", from, to, (long)worst);
}

/* wake: ping[0] counts wake-ups asked for, ping[1] those answered. */
static atomic_int ping[2];
static int64_t sent_ns;
static int64_t wake_sum_ns, wake_min_ns = INT64_MAX, wake_max_ns;

static void futex_wait_past(atomic_int *word, int value)
{
    while (atomic_load(word) == value) {
        syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
    }
}

static void futex_set(atomic_int *word, int value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *sleeper(void *arg)
{
    pin(arg_cpu(arg));
    for (int i = 0; i < WAKES; i++) {
        int64_t ns;

        futex_wait_past(&ping[0], i);
        ns = now_ns(CLOCK_MONOTONIC) - sent_ns;
        wake_sum_ns += ns;
        wake_min_ns = ns < wake_min_ns ? ns : wake_min_ns;
        wake_max_ns = ns > wake_max_ns ? ns : wake_max_ns;
        futex_set(&ping[1], i + 1);
    }
    return NULL;
}

static void wake(int from, int to)
{
    pthread_t thread = start(sleeper, to);

    pin(from);
    for (int i = 0; i < WAKES; i++) {
        /* Long enough for the sleeper's CPU to be idle; any phase. */
        struct timespec gap = { 0, 137000 + i * 7919 % 20000 };

        nanosleep(&gap, NULL);
        sent_ns = now_ns(CLOCK_MONOTONIC);
        futex_set(&ping[0], i + 1);
        futex_wait_past(&ping[1], i);
    }
    pthread_join(thread, NULL);
    printf("wake from=%d to=%d min_ns=%ld avg_ns=%ld max_ns=%ld\n", from, to,
           (long)wake_min_ns, (long)(wake_sum_ns / WAKES), (long)wake_max_ns);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "loop")) {
        loop();
    } else if (!strcmp(what, "spin")) {
        for (;;) {
            work();
        }
    } else if (!strcmp(what, "costs")) {
        costs();
    } else if (!strcmp(what, "skew") && argc == 4) {
        skew(atoi(argv[2]), atoi(argv[3]));
    } else if (!strcmp(what, "wake") && argc == 4) {
        wake(atoi(argv[2]), atoi(argv[3]));
    } else {
        fprintf(stderr, "usage: clock_probe loop|spin|costs|skew A B|wake A B\n");
        return 2;
    }
    return 0;
}
