// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Prices of instructions, with those of tests/costs.rs: an instruction takes 1 ns, and
 * each price is so far from the others that a sum of them tells which were paid.
 */
#include "bare.h"

enum { LINE = 64, PAGE = 4096, KIB = 1024 };
enum { LOAD_USE = 3, L2 = 20, LLC = 100, MEMORY = 400, STREAM = 7, WALK = 1000 };
enum { TRANSFER = 5000, INVALIDATE = 2000, LOCKED = 50, EXCEPTION = 700 };
/* Of a byte, in 1/1000 ns. */
enum { STRING_BYTE = 250 };
/* What reading the clock and a loop around a measurement take, at most. */
enum { AROUND = 40 };

#define AREA ((char *)(16 * MIB))

static uint64_t load(volatile char *at)
{
    uint64_t begin = rdtsc();

    (void)*at;
    return rdtsc() - begin;
}

static uint64_t store(volatile char *at)
{
    uint64_t begin = rdtsc();

    *at = 1;
    return rdtsc() - begin;
}

#define COSTS(what, price)                     \
    do {                                       \
        uint64_t ns_ = (what), price_ = (price); \
        if (ns_ < price_ || ns_ > price_ + AROUND) { \
            fail(#what, __FILE__, __LINE__, ns_, price_); \
        }                                      \
    } while (0)

/* Lines in one circle, a line apart or in an order that no stream has; ns per load. */
static uint64_t chase(uint64_t bytes)
{
    uint64_t lines = bytes / LINE, begin;
    void *volatile *at = (void *volatile *)AREA;

    /* A multiplier that is 1 modulo 4 and an odd addend: one circle of a power of two. */
    for (uint64_t i = 0; i < lines; i++) {
        *(void **)(AREA + i * LINE) = AREA + (i * 1664525 + 1013904223) % lines * LINE;
    }
    for (uint64_t i = 0; i < 2 * lines; i++) {
        at = *at;
    }
    begin = rdtsc();
    for (uint64_t i = 0; i < 4096; i++) {
        at = *at;
    }
    return (rdtsc() - begin) / 4096;
}

/* The caches are of 16 KiB, 256 KiB and 2 MiB; the TLB reaches 8 MiB of these pages. */
static void a_chase_costs_what_the_cache_costs_that_holds_it(void)
{
    uint64_t in_l1 = chase(8 * KIB);

    CHECK(in_l1 <= 8);
    /* Of as many lines as the filter of free lines has, and of more. */
    COSTS(chase(32 * KIB), in_l1 + L2 - 4);
    COSTS(chase(128 * KIB), in_l1 + L2 - 4);
    COSTS(chase(MIB), in_l1 + LLC - 25);
    CHECK(chase(4 * MIB) >= in_l1 + MEMORY / 2);
}

static void the_first_touch_of_a_line_pays_for_memory_and_the_next_nothing(void)
{
    load(AREA + PAGE);
    COSTS(load(AREA + 10 * LINE), MEMORY);
    COSTS(load(AREA + 10 * LINE + 8), 0);
    COSTS(store(AREA + 10 * LINE), 0);
}

static void a_line_after_one_that_missed_is_of_a_stream(void)
{
    load(AREA + PAGE);
    COSTS(load(AREA + 10 * LINE), MEMORY);
    COSTS(load(AREA + 11 * LINE), STREAM);
    COSTS(load(AREA + 12 * LINE), STREAM);
    COSTS(load(AREA + 20 * LINE), MEMORY);
}

/* Pages are of 2 MiB here. */
static void a_page_that_the_tlb_lacks_pays_for_a_walk(void)
{
    COSTS(load((char *)(40 * MIB)), MEMORY + WALK);
    COSTS(load((char *)(40 * MIB) + 10 * LINE), MEMORY);
}

static __attribute__((noinline)) uint64_t in_turn(void *volatile *at)
{
    uint64_t begin = rdtsc();

    __asm__ volatile("mov (%0), %0; mov (%0), %0; mov (%0), %0; mov (%0), %0"
                     : "+r"(at) : : "memory");
    return rdtsc() - begin;
}

static __attribute__((noinline)) uint64_t side_by_side(void *volatile *at)
{
    void *loaded;
    uint64_t begin = rdtsc();

    __asm__ volatile("mov (%1), %0; mov (%1), %0; mov (%1), %0; mov (%1), %0"
                     : "=&r"(loaded) : "r"(at) : "memory");
    return rdtsc() - begin;
}

static void a_load_by_what_was_loaded_waits_for_it(void)
{
    *(void *volatile *)AREA = AREA;
    in_turn((void *volatile *)AREA);
    EQUAL(in_turn((void *volatile *)AREA) - side_by_side((void *volatile *)AREA), 3 * LOAD_USE);
}

static volatile int turn;
static volatile uint64_t other_ns;

static void store_there(void)
{
    store(AREA);
    other_ns = store(AREA);
}

static void load_there(void)
{
    load(AREA + PAGE);
    other_ns = load(AREA);
}

static void a_line_that_another_cpu_has_written_is_transferred(void)
{
    load(AREA + PAGE);
    on(1, store_there);
    join(1);
    COSTS(other_ns, 0);
    COSTS(load(AREA), TRANSFER);
    COSTS(load(AREA), 0);
    /* The other one has a copy still, which is of no use after a store. */
    COSTS(store(AREA), INVALIDATE);
    COSTS(store(AREA), 0);
    on(1, load_there);
    join(1);
    COSTS(other_ns, TRANSFER);
    COSTS(store(AREA), INVALIDATE);
}

static void bouncer(void)
{
    for (int i = 1; i < 200; i += 2) {
        while (turn != i) {
            pause();
        }
        turn = i + 1;
    }
}

static void a_line_in_turn_costs_each_turn_a_transfer(void)
{
    uint64_t begin;

    on(1, bouncer);
    while (turn != 0) {
        pause();
    }
    begin = rdtsc();
    for (int i = 0; i < 200; i += 2) {
        while (turn != i) {
            pause();
        }
        turn = i + 1;
    }
    begin = (rdtsc() - begin) / 200;
    /* A store is seen when it begins; what it pays is the storing CPU's own affair. */
    CHECK(begin >= TRANSFER - TRANSFER / 100 && begin <= TRANSFER + INVALIDATE);
    join(1);
}

static void an_atomic_instruction_has_a_price(void)
{
    volatile long *word = (volatile long *)AREA;
    uint64_t begin;

    store(AREA);
    begin = rdtsc();
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    COSTS(rdtsc() - begin, LOCKED);
}

static uint64_t copy(uint64_t bytes, int step)
{
    void *to = AREA, *from = AREA + 16 * KIB;
    uint64_t count = bytes / step, begin = rdtsc();

    if (step == 1) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    } else {
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    }
    begin = rdtsc() - begin;
    EQUAL(count, 0);
    EQUAL(to, AREA + bytes);
    EQUAL(from, AREA + 16 * KIB + bytes);
    return begin;
}

static void string_instructions_cost_bytes_and_not_steps(void)
{
    copy(4 * KIB, 1);
    COSTS(copy(4 * KIB, 1), 4 * KIB * STRING_BYTE / 1000);
    COSTS(copy(4 * KIB, 8), 4 * KIB * STRING_BYTE / 1000);
    COSTS(copy(2 * KIB, 8), 2 * KIB * STRING_BYTE / 1000);
}

static void do_nothing(void) {}

/* From CPL 3 and back: the software interrupt by which user() returns. */
static void an_exception_has_a_price(void)
{
    uint64_t begin;

    user(do_nothing);
    begin = rdtsc();
    user(do_nothing);
    begin = rdtsc() - begin;
    CHECK(begin >= EXCEPTION && begin < EXCEPTION + 500);
}

const struct test_case cases[] = {
    CASE(a_chase_costs_what_the_cache_costs_that_holds_it),
    CASE(the_first_touch_of_a_line_pays_for_memory_and_the_next_nothing),
    CASE(a_line_after_one_that_missed_is_of_a_stream),
    CASE(a_page_that_the_tlb_lacks_pays_for_a_walk),
    CASE(a_load_by_what_was_loaded_waits_for_it),
    CASE(a_line_that_another_cpu_has_written_is_transferred),
    CASE(a_line_in_turn_costs_each_turn_a_transfer),
    CASE(an_atomic_instruction_has_a_price),
    CASE(string_instructions_cost_bytes_and_not_steps),
    CASE(an_exception_has_a_price),
    { NULL, NULL },
};
