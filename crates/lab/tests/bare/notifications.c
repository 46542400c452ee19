// SPDX-License-Identifier: MIT OR Apache-2.0
/* An ordinary interrupt whose vector is UINV. Names are behaviour. */
#include "user_interrupts.h"

static void a_notification_is_taken_at_any_level_and_delivered_at_level_3(void)
{
    enable();
    attempt(stui);
    post(9);
    let_in();
    EQUAL(cpu()->count, 0);
    EQUAL(rdmsr(RR), 1 << 9);
    EQUAL(shared->upid[0].low & 3, 0);
    EQUAL(shared->upid[0].pir, 0);
    CHECK(!in_service(NOTIFY));
    user(nothing);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].vector, 9);
    EQUAL(cpu()->events[0].kind, USER_INTERRUPT);
    EQUAL(rdmsr(RR), 0);
}

static void notifications_add_to_what_is_requested(void)
{
    enable();
    wrmsr(RR, 1ul << 40);
    post(3);
    let_in();
    EQUAL(rdmsr(RR), 1ul << 40 | 1 << 3);
}

static void a_notification_waits_while_interrupts_are_off(void)
{
    enable();
    user_flags = IOPL;
    post(3);
    user(stui);
    EQUAL(cpu()->count, 0);
    EQUAL(shared->upid[0].low & 3, ON);
    EQUAL(rdmsr(RR), 0);
}

static void without_the_bit_in_cr4_a_notification_is_ordinary(void)
{
    enable();
    wrmsr(RR, 1 << 4);
    attempt(stui);
    write_cr4(read_cr4() & ~(uint64_t)CR4_UINTR);
    post(3);
    user(nothing);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].kind, INTERRUPT);
    EQUAL(cpu()->events[0].vector, NOTIFY);
    EQUAL(rdmsr(RR), 1 << 4);
    /* What was requested is delivered once the bit is set again. */
    write_cr4(read_cr4() | CR4_UINTR);
    user(nothing);
    EQUAL(cpu()->count, 2);
    EQUAL(cpu()->events[1].kind, USER_INTERRUPT);
}

static void a_page_fault_of_a_notification_is_the_kernels(void)
{
    enable();
    wrmsr(PD, SPARE + 128);
    map(SPARE, 0);
    send_ipi(0, NOTIFY);
    attempt(let_in);
    EQUAL(cpu()->outcome.vector, PF);
    EQUAL(cpu()->outcome.address, SPARE + 128);
    EQUAL(cpu()->outcome.error, PF_WRITE);
    /* The interrupt itself is over: it does not come back with the next one. */
    CHECK(!in_service(NOTIFY));
    wrmsr(PD, (uint64_t)&shared->upid[0]);
    shared->upid[0].pir = 1 << 4;
    send_ipi(0, ORDINARY);
    let_in();
    EQUAL(cpu()->count, 1);
    EQUAL(rdmsr(RR), 0);
    reset_upid(0);
    post(3);
    let_in();
    EQUAL(rdmsr(RR), 1 << 3);
}

extern char after_halt[];
static volatile bool sleeps;

static __attribute__((noinline)) void sleep_in_kernel(void)
{
    enable();
    sleeps = true;
    __asm__ volatile("sti; hlt\n.globl after_halt\nafter_halt: cli" : : : "memory");
    EQUAL(cpu()->count, 0);
    EQUAL(rdmsr(RR), 1 << 6);
}

static void a_notification_ends_a_halt(void)
{
    enable();
    aim(0, 6, 1);
    on(1, sleep_in_kernel);
    while (!sleeps) {
        pause();
    }
    for (int i = 0; i < LONG; i++) {
        pause();
    }
    user(send_the_index);
    join(1);
}

const struct test_case cases[] = {
    CASE(a_notification_is_taken_at_any_level_and_delivered_at_level_3),
    CASE(notifications_add_to_what_is_requested),
    CASE(a_notification_waits_while_interrupts_are_off),
    CASE(without_the_bit_in_cr4_a_notification_is_ordinary),
    CASE(a_page_fault_of_a_notification_is_the_kernels),
    CASE(a_notification_ends_a_halt),
    { NULL, NULL },
};
