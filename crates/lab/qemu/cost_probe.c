// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * cost_probe: what do single operations cost here?
 *
 * The same program on a host and in a guest, to fit the prices of the lab's cost model
 * (docs/design/clock.md) and to check them. Build: cc -O2 -static -pthread cost_probe.c
 *
 *   cost_probe [--json] [--rounds N]
 *
 * Each line is measured in rounds of a millisecond or less; printed are the least and the
 * median, in ns per operation. On a machine that does other work beside, the least is
 * nearer to what the operation costs. Needs two CPUs.
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
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MAX = 1000, LINE = 64, KIB = 1024, MIB = 1024 * KIB };

static int rounds = 101;
static bool json;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        fail("cost_probe: cannot pin; are there two CPUs?");
    }
}

static pthread_t start(void *(*body)(void *))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, body, NULL) != 0) {
        fail("cost_probe: cannot start a thread");
    }
    return thread;
}

/* What one line measures: rounds, each with ns per operation. */
static double seen[ROUNDS_MAX];
static bool first_line = true;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const char *name)
{
    qsort(seen, rounds, sizeof(*seen), by_value);
    if (json) {
        printf("%s{\"line\": \"%s\", \"min_ns\": %.2f, \"median_ns\": %.2f}",
               first_line ? "[" : ",\n ", name, seen[0], seen[rounds / 2]);
    } else {
        printf("%-16s %10.2f %10.2f\n", name, seen[0], seen[rounds / 2]);
    }
    first_line = false;
    fflush(stdout);
}

/* Memory in pages of 4 KiB, whatever the kernel prefers. */
static void *memory(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        fail("cost_probe: no memory");
    }
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

/* Loads, each by the address that the one before found: lines of `bytes` in one random circle. */
static void chase(const char *name, size_t bytes, int loads)
{
    size_t lines = bytes / LINE, warm = lines < 1 << 20 ? 2 * lines : 1 << 16;
    char *base = memory(bytes);
    void *volatile *at;
    uint64_t random = 1;

    for (size_t i = 0; i < lines; i++) {
        *(size_t *)(base + i * LINE) = i;
    }
    /* Sattolo: a permutation of one circle. */
    for (size_t i = lines - 1; i > 0; i--) {
        size_t *a = (size_t *)(base + i * LINE), *b, was = *a;

        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        b = (size_t *)(base + (random >> 33) % i * LINE);
        *a = *b;
        *b = was;
    }
    for (size_t i = 0; i < lines; i++) {
        size_t next = *(size_t *)(base + i * LINE);

        *(void **)(base + i * LINE) = base + next * LINE;
    }
    at = (void *volatile *)base;
    for (size_t i = 0; i < warm; i++) {
        at = *at;
    }
    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < loads; i += 4) {
            at = *at;
            at = *at;
            at = *at;
            at = *at;
        }
        __asm__ volatile("" : : "r"(at));
        seen[round] = (double)(now_ns() - begin) / loads;
    }
    report(name);
    munmap(base, bytes);
}

/* All words of a large area in turn; ns per line of 64 bytes. */
static void sequential(void)
{
    size_t bytes = 64 * MIB, part = 256 * KIB;
    char *base = memory(bytes);
    uint64_t sum = 0;

    memset(base, 1, bytes);
    for (int round = 0; round < rounds; round++) {
        const uint64_t *at = (const uint64_t *)(base + round * part % bytes);
        int64_t begin = now_ns();

        for (size_t i = 0; i < part / 8; i++) {
            sum += at[i];
            __asm__ volatile("" : "+r"(sum));
        }
        seen[round] = (double)(now_ns() - begin) / (part / LINE);
    }
    report("sequential line");
    munmap(base, bytes);
}

static struct {
    _Alignas(128) atomic_long word;
    _Alignas(128) atomic_int go;
    _Alignas(128) atomic_int done;
} line;

static void locked_add(void)
{
    enum { ADDS = 10000 };

    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < ADDS; i++) {
            atomic_fetch_add(&line.word, 1);
        }
        seen[round] = (double)(now_ns() - begin) / ADDS;
    }
    report("locked add");
}

/* Two CPUs add to one line as fast as they can; ns per addition of either. */
enum { CONTENDED = 2000, BOUNCES = 400 };

static void *contender(void *arg)
{
    pin(1);
    for (int round = 0; round < rounds; round++) {
        while (atomic_load(&line.go) <= round) {
            __builtin_ia32_pause();
        }
        for (int i = 0; i < CONTENDED; i++) {
            atomic_fetch_add(&line.word, 1);
        }
        atomic_store(&line.done, round + 1);
    }
    return arg;
}

static void contended_add(void)
{
    pthread_t other;

    atomic_store(&line.go, 0);
    atomic_store(&line.done, 0);
    other = start(contender);
    for (int round = 0; round < rounds; round++) {
        int64_t begin;

        usleep(100);
        begin = now_ns();
        atomic_store(&line.go, round + 1);
        for (int i = 0; i < CONTENDED; i++) {
            atomic_fetch_add(&line.word, 1);
        }
        while (atomic_load(&line.done) <= round) {
            __builtin_ia32_pause();
        }
        seen[round] = (double)(now_ns() - begin) / (2 * CONTENDED);
    }
    pthread_join(other, NULL);
    report("contended add");
}

/* Two CPUs store to one line in turn; ns from store to store. */
static void *bouncer(void *arg)
{
    pin(1);
    for (long i = 1; i < 2L * rounds * BOUNCES; i += 2) {
        while (atomic_load_explicit(&line.word, memory_order_acquire) != i) {
            __builtin_ia32_pause();
        }
        atomic_store_explicit(&line.word, i + 1, memory_order_release);
    }
    return arg;
}

static void bounce(void)
{
    pthread_t other;
    long turn = 0;

    atomic_store(&line.word, 0);
    other = start(bouncer);
    usleep(1000);
    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < BOUNCES; i++, turn += 2) {
            while (atomic_load_explicit(&line.word, memory_order_acquire) != turn) {
                __builtin_ia32_pause();
            }
            atomic_store_explicit(&line.word, turn + 1, memory_order_release);
        }
        seen[round] = (double)(now_ns() - begin) / (2 * BOUNCES);
    }
    pthread_join(other, NULL);
    report("bounced line");
}

static void copy(const char *name, size_t bytes, int copies)
{
    char *from = memory(2 * bytes + LINE), *to = from + bytes;

    memset(from, 1, 2 * bytes);
    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < copies; i++) {
            memcpy(to, from, bytes);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        seen[round] = (double)(now_ns() - begin) / copies;
    }
    report(name);
    munmap(from, 2 * bytes + LINE);
}

static void first_touch(void)
{
    enum { PAGES = 128 };

    for (int round = 0; round < rounds; round++) {
        char *base = memory(PAGES * 4096);
        int64_t begin = now_ns();

        for (int i = 0; i < PAGES; i++) {
            base[i * 4096] = 1;
        }
        seen[round] = (double)(now_ns() - begin) / PAGES;
        munmap(base, PAGES * 4096);
    }
    report("page fault");
}

static void null_syscall(void)
{
    enum { CALLS = 2000 };

    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < CALLS; i++) {
            syscall(SYS_getppid);
        }
        seen[round] = (double)(now_ns() - begin) / CALLS;
    }
    report("null syscall");
}

/* Two threads of one CPU pass a byte through pipes; ns per switch. */
enum { PASSES = 100 };
static int there[2], back[2];

static void must(bool well)
{
    if (!well) {
        fail("cost_probe: a pipe");
    }
}

static void *passer(void *arg)
{
    char byte;

    for (int i = 0; i < rounds * PASSES; i++) {
        must(read(there[0], &byte, 1) == 1);
        must(write(back[1], &byte, 1) == 1);
    }
    return arg;
}

static void pipe_switch(void)
{
    pthread_t other;
    char byte = 0;

    must(pipe(there) == 0 && pipe(back) == 0);
    other = start(passer);
    for (int round = 0; round < rounds; round++) {
        int64_t begin = now_ns();

        for (int i = 0; i < PASSES; i++) {
            must(write(there[1], &byte, 1) == 1);
            must(read(back[0], &byte, 1) == 1);
        }
        seen[round] = (double)(now_ns() - begin) / (2 * PASSES);
    }
    pthread_join(other, NULL);
    report("pipe switch");
}

/* From before a wake-up until the thread runs, on another CPU that is idle. */
enum { WAKES = 5 };
static _Atomic int64_t sent_ns, woken_ns;

static void *sleeper(void *arg)
{
    pin(1);
    for (int i = 0; i < rounds * WAKES; i++) {
        while (atomic_load(&line.go) == i) {
            syscall(SYS_futex, &line.go, FUTEX_WAIT, i, NULL, NULL, 0);
        }
        atomic_store(&woken_ns, now_ns());
        atomic_store(&line.done, i + 1);
    }
    return arg;
}

static void wake_up(void)
{
    pthread_t other;

    atomic_store(&line.go, 0);
    atomic_store(&line.done, 0);
    other = start(sleeper);
    for (int round = 0; round < rounds; round++) {
        int64_t sum = 0;

        for (int i = 0; i < WAKES; i++) {
            usleep(200);
            atomic_store(&sent_ns, now_ns());
            atomic_fetch_add(&line.go, 1);
            syscall(SYS_futex, &line.go, FUTEX_WAKE, 1, NULL, NULL, 0);
            while (atomic_load(&line.done) != atomic_load(&line.go)) {
                usleep(50);
            }
            sum += woken_ns - sent_ns;
        }
        seen[round] = (double)sum / WAKES;
    }
    pthread_join(other, NULL);
    report("wake-up");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            json = true;
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc) {
            rounds = atoi(argv[++i]);
        } else {
            rounds = 0;
        }
    }
    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: cost_probe [--json] [--rounds 1..%d]\n", ROUNDS_MAX);
        return 2;
    }
    pin(0);
    if (!json) {
        printf("%-16s %10s %10s\n", "ns", "least", "median");
    }
    chase("load 16 KiB", 16 * KIB, 8000);
    chase("load 512 KiB", 512 * KIB, 8000);
    chase("load 16 MiB", 16 * MIB, 8000);
    chase("load 256 MiB", (size_t)256 * MIB, 8000);
    sequential();
    locked_add();
    contended_add();
    bounce();
    copy("copy 64 B", 64, 2000);
    copy("copy 8 KiB", 8 * KIB, 200);
    copy("copy 1 MiB", MIB, 4);
    null_syscall();
    first_touch();
    pipe_switch();
    wake_up();
    if (json) {
        printf("]\n");
    }
    return 0;
}
