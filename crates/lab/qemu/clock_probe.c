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
 *   clock_probe lock KIND THREADS
 *                        an exclusive lock that a thread on each of the first CPUs
 *                        takes without pause: `ticket`, `mcs`, `futex`, or `kernel`,
 *                        a spinlock of the kernel's. Sections that began before the
 *                        one before had ended must be 0, and the time it is held at
 *                        most the time that passed.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOPS = 5000000, COSTS = 20000, WAKES = 500, THREADS_MAX = 64, STEPS = 200 };
static const int64_t SKEW_NS = 100000000;
static const int64_t LOCK_NS = 200000000;

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

/* lock: sections of STEPS steps, back to back, on each of the first CPUs. */

/* A waiter's place in the queue of the MCS lock. */
struct mcs_node {
    _Alignas(64) _Atomic(struct mcs_node *) next;
    atomic_bool waits;
};

struct lock_kind {
    const char *name;
    void (*acquire)(int me);
    void (*release)(int me);
};

/* What a thread saw. */
static struct {
    _Alignas(64) int64_t held_ns;
    int64_t early_ns; /* at worst */
    long turns, early;
} seen[THREADS_MAX];

static const struct lock_kind *kind;
static atomic_int present;
/* What happens between these is counted. The second is set first. */
static _Atomic int64_t window_begin_ns, window_end_ns;
static int64_t last_end_ns; /* the lock protects it */
static volatile uint64_t guarded;

/* A section began so long before the one before had ended, or not if that is 0. */
static void began_early(int me, int64_t ns)
{
    if (ns > 0) {
        seen[me].early++;
        seen[me].early_ns = ns > seen[me].early_ns ? ns : seen[me].early_ns;
    }
}

/* The two words on lines of their own, so that an arrival is no store to the other. */
static struct {
    _Alignas(64) atomic_uint next;
    _Alignas(64) atomic_uint serving;
} ticket;

static void ticket_acquire(int me)
{
    unsigned mine = atomic_fetch_add(&ticket.next, 1);

    (void)me;
    while (atomic_load_explicit(&ticket.serving, memory_order_acquire) != mine) {
        __builtin_ia32_pause();
    }
}

static void ticket_release(int me)
{
    unsigned serving = atomic_load_explicit(&ticket.serving, memory_order_relaxed);

    (void)me;
    atomic_store_explicit(&ticket.serving, serving + 1, memory_order_release);
}

static struct mcs_node mcs_nodes[THREADS_MAX];
static _Atomic(struct mcs_node *) mcs_tail;

static void mcs_acquire(int me)
{
    struct mcs_node *node = &mcs_nodes[me], *before;

    atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
    atomic_store_explicit(&node->waits, true, memory_order_relaxed);
    before = atomic_exchange(&mcs_tail, node);
    if (!before) {
        return;
    }
    atomic_store_explicit(&before->next, node, memory_order_release);
    while (atomic_load_explicit(&node->waits, memory_order_acquire)) {
        __builtin_ia32_pause();
    }
}

static void mcs_release(int me)
{
    struct mcs_node *node = &mcs_nodes[me], *last = node, *next;

    next = atomic_load_explicit(&node->next, memory_order_acquire);
    if (!next) {
        if (atomic_compare_exchange_strong(&mcs_tail, &last, NULL)) {
            return;
        }
        while (!(next = atomic_load_explicit(&node->next, memory_order_acquire))) {
            __builtin_ia32_pause();
        }
    }
    atomic_store_explicit(&next->waits, false, memory_order_release);
}

/* 0 free, 1 held, 2 held and somebody may sleep: Drepper's third mutex. */
static atomic_int futex_word;

static void futex_acquire(int me)
{
    int was = 0;

    (void)me;
    if (atomic_compare_exchange_strong(&futex_word, &was, 1)) {
        return;
    }
    while (atomic_exchange(&futex_word, 2) != 0) {
        syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

static void futex_release(int me)
{
    (void)me;
    if (atomic_exchange(&futex_word, 0) == 2) {
        syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

/*
 * timer_settime() holds the timer's spinlock while it reads the clock twice: first for
 * what is left of the old setting, then to add the new one to it. Everyone sets the
 * same. So if more is left than that, this section's first reading lay before the
 * second one of the section before.
 */
static timer_t timer;

static void kernel_turn(int me)
{
    struct itimerspec set = { .it_value.tv_sec = 1000 }, old;

    if (timer_settime(timer, 0, &set, &old) != 0) {
        perror("clock_probe: timer_settime");
        exit(1);
    }
    began_early(me, (old.it_value.tv_sec - 1000) * INT64_C(1000000000) + old.it_value.tv_nsec);
    seen[me].turns += now_ns(CLOCK_MONOTONIC) < window_end_ns;
}

static const struct lock_kind kinds[] = {
    { "ticket", ticket_acquire, ticket_release },
    { "mcs", mcs_acquire, mcs_release },
    { "futex", futex_acquire, futex_release },
    { "kernel", NULL, NULL },
};

static void user_turn(int me)
{
    int64_t begin, end;

    kind->acquire(me);
    begin = now_ns(CLOCK_MONOTONIC);
    began_early(me, last_end_ns - begin);
    for (int i = 0; i < STEPS; i++) {
        guarded = guarded * 3 + 1;
    }
    end = now_ns(CLOCK_MONOTONIC);
    last_end_ns = end;
    kind->release(me);
    if (begin >= window_begin_ns && end <= window_end_ns) {
        seen[me].held_ns += end - begin;
        seen[me].turns++;
    }
}

static void *contender(void *arg)
{
    int me = arg_cpu(arg);

    pin(me);
    atomic_fetch_add(&present, 1);
    while (now_ns(CLOCK_MONOTONIC) < window_begin_ns || !window_begin_ns) {
        __builtin_ia32_pause();
    }
    while (now_ns(CLOCK_MONOTONIC) < window_end_ns) {
        if (kind->acquire) {
            user_turn(me);
        } else {
            kernel_turn(me);
        }
    }
    return NULL;
}

static void lock(const char *name, int threads)
{
    pthread_t others[THREADS_MAX];
    struct sigevent none = { .sigev_notify = SIGEV_NONE };
    int64_t begin, held = 0, early_ns = 0;
    long turns = 0, early = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!strcmp(name, kinds[i].name)) {
            kind = &kinds[i];
        }
    }
    if (!kind || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "clock_probe: lock ticket|mcs|futex|kernel 1..%d\n", THREADS_MAX);
        exit(2);
    }
    if (timer_create(CLOCK_MONOTONIC, &none, &timer) != 0) {
        perror("clock_probe: timer_create");
        exit(1);
    }
    for (int i = 0; i < threads; i++) {
        others[i] = start(contender, i);
    }
    while (atomic_load(&present) < threads) {
        sched_yield();
    }
    begin = now_ns(CLOCK_MONOTONIC) + 1000000;
    window_end_ns = begin + LOCK_NS;
    window_begin_ns = begin;
    for (int i = 0; i < threads; i++) {
        pthread_join(others[i], NULL);
        held += seen[i].held_ns;
        turns += seen[i].turns;
        early += seen[i].early;
        early_ns = seen[i].early_ns > early_ns ? seen[i].early_ns : early_ns;
    }
    printf("lock kind=%s threads=%d early=%ld early_ns=%ld turns=%ld held=%.4f turns_per_s=%.0f\n",
           name, threads, early, (long)early_ns, turns, (double)held / LOCK_NS, turns * 1e9 / LOCK_NS);
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
    } else if (!strcmp(what, "lock") && argc == 4) {
        lock(argv[2], atoi(argv[3]));
    } else {
        fprintf(stderr, "usage: clock_probe loop|spin|costs|skew A B|wake A B|lock KIND THREADS\n");
        return 2;
    }
    return 0;
}
