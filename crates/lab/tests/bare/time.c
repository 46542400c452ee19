// SPDX-License-Identifier: MIT OR Apache-2.0
/* Two CPUs in virtual time. Names are behaviour. */
#include "user_interrupts.h"

static volatile bool ready, stop;

enum { ROUNDS = 40 };
static volatile uint64_t sent[ROUNDS];
static volatile int rounds;

static void receive_all(void)
{
    stui();
    ready = true;
    while (cpu()->count < ROUNDS) {
        pause();
    }
}

static void be_busy_receiver(void)
{
    enable();
    user(receive_all);
}

static struct cpu *volatile receiver;

static void tell_who(void)
{
    receiver = cpu();
}

static void send_all(void)
{
    for (rounds = 0; rounds < ROUNDS; rounds++) {
        /* Of different length, so that the two meet at all phases of the quantum. */
        for (volatile int i = 0; i < 40 * rounds; i++) {
        }
        sent[rounds] = rdtsc();
        senduipi(0);
        while (receiver->count <= rounds) {
            pause();
        }
    }
}

static void an_interrupt_is_never_seen_before_it_is_sent(void)
{
    enable();
    aim(0, 5, 1);
    on(1, tell_who);
    join(1);
    on(1, be_busy_receiver);
    while (!ready) {
        pause();
    }
    user(send_all);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    join(1);
    for (int i = 0; i < ROUNDS; i++) {
        struct event *event = &receiver->events[i];

        CHECK(event->tsc > sent[i]);
        print_number(sent[i]);
        print(" ");
        print_number(event->tsc);
        print("\n");
    }
}

/*
 * Where the kernel is told, the receiver does not touch the descriptor: SENDUIPI itself
 * has to wait. The receiver computes, so that it may be behind the sender; each round has
 * a descriptor of its own, of which nothing is outstanding.
 */
static volatile int begun;

static void receive_busily(void)
{
    int before = cpu()->count;

    begun = before + 1;
    while (cpu()->count == before) {
    }
}

static void be_receiver_in_the_kernel(void)
{
    enable();
    wrmsr(MISC, UITT_LAST);
    for (int i = 0; i < UPIDS_MORE; i++) {
        user(receive_busily);
    }
}

static void send_to_the_kernel(void)
{
    for (int round = 0; round < UPIDS_MORE; round++) {
        while (begun <= round) {
            pause();
        }
        for (volatile int i = 0; i < 200 + 40 * round; i++) {
        }
        sent[round] = rdtsc();
        senduipi(round);
        while (receiver->count <= round) {
            pause();
        }
    }
}

static void nor_is_one_for_the_kernel(void)
{
    enable();
    for (int i = 0; i < UPIDS_MORE; i++) {
        aim(i, 5, CPUS + i);
        shared->upid[CPUS + i].low = destination(1) << 32 | NOTIFY << 16;
    }
    on(1, tell_who);
    join(1);
    on(1, be_receiver_in_the_kernel);
    user(send_to_the_kernel);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    join(1);
    for (int i = 0; i < UPIDS_MORE; i++) {
        EQUAL(receiver->events[i].kind, INTERRUPT);
        CHECK(receiver->events[i].tsc > sent[i]);
    }
}

/*
 * The receiver lets the notification in after the sender's second one, in virtual time:
 * they are one interrupt. A receiver that took the first one ahead of the sender would
 * be interrupted twice.
 */
static void receive_after_a_while(void)
{
    __asm__ volatile("cli");
    stui();
    ready = true;
    while (!stop) {
        pause();
    }
    for (volatile int i = 0; i < 400; i++) {
    }
    __asm__ volatile("sti");
    for (volatile int i = 0; i < LONG; i++) {
    }
}

static void be_late_receiver(void)
{
    enable();
    user(receive_after_a_while);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
}

static void send_twice(void)
{
    senduipi(0);
    stop = true;
    for (volatile int i = 0; i < 200; i++) {
    }
    senduipi(0);
}

static void a_notification_is_not_taken_ahead_of_a_sender(void)
{
    enable();
    aim(0, 5, 1);
    user_flags = IF | IOPL;
    on(1, be_late_receiver);
    while (!ready) {
        pause();
    }
    user(send_twice);
    join(1);
}

const struct test_case cases[] = {
    CASE(an_interrupt_is_never_seen_before_it_is_sent),
    CASE(nor_is_one_for_the_kernel),
    CASE(a_notification_is_not_taken_ahead_of_a_sender),
    { NULL, NULL },
};
