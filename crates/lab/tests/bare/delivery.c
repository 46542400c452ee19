// SPDX-License-Identifier: MIT OR Apache-2.0
/* From a request to the handler of a program. Names are behaviour. */
#include "user_interrupts.h"

static void a_clear_flag_holds_an_interrupt_back_until_stui(void)
{
    enable();
    aim(0, 1, 0);
    user(send_the_index);
    EQUAL(cpu()->count, 0);
    EQUAL(shared->upid[0].low & 3, 0);
    EQUAL(rdmsr(RR), 2);
    user_at((uint64_t)do_stui, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].rip, do_stui_end);
}

/* The notification waits for STI. */
static void shut_and_wait(void)
{
    clui();
    __asm__ volatile("sti; nop; nop");
    EQUAL(cpu()->count, 0);
}

static void clui_holds_an_interrupt_back(void)
{
    enable();
    attempt(stui);
    user_flags = IOPL;
    post(2);
    user(shut_and_wait);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 0);
    EQUAL(rdmsr(RR), 1 << 2);
}

static void a_request_that_is_taken_back_is_not_delivered(void)
{
    enable();
    attempt(stui);
    wrmsr(RR, 1 << 4);
    wrmsr(RR, 0);
    user(nothing);
    EQUAL(cpu()->count, 0);
    wrmsr(RR, 1 << 4);
    user(nothing);
    EQUAL(cpu()->count, 1);
}

static void compatibility_mode_holds_an_interrupt_back(void)
{
    enable();
    attempt(stui);
    wrmsr(RR, 1);
    user_at((uint64_t)do_stui_end, USER_CS32);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 0);
    user_at((uint64_t)do_stui_end, USER_CS);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].rip, do_stui_end);
}

static void sysret_lets_it_in(void)
{
    wrmsr(RR, 1 << 20);
    wrmsr(0xc0000081, 0x18ul << 48);
    __asm__ volatile("mov $2, %%r11d; sysretq" : : "c"(do_stui_end) : "r11");
}

static void sysret_delivers_what_is_pending(void)
{
    enable();
    attempt(stui);
    attempt(sysret_lets_it_in);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].vector, 20);
    EQUAL(cpu()->events[0].rip, do_stui_end);
}

static void the_highest_vector_comes_first(void)
{
    static const int order[] = { 63, 32, 31, 1, 0 };
    uint64_t requested = 0;

    enable();
    attempt(stui);
    for (int i = 0; i < 5; i++) {
        requested |= 1ul << order[i];
    }
    wrmsr(RR, requested);
    user_at((uint64_t)do_stui_end, USER_CS);
    EQUAL(cpu()->count, 5);
    for (int i = 0; i < 5; i++) {
        EQUAL(cpu()->events[i].vector, order[i]);
        /* One after the other, not one in the other: UIRET lets the next one in. */
        EQUAL(cpu()->events[i].rip, do_stui_end);
        EQUAL(cpu()->events[i].frame, cpu()->events[0].frame);
    }
    EQUAL(rdmsr(RR), 0);
}

static void let_others_in(struct user_interrupt *at)
{
    if (at->vector == 9) {
        stui();
        EQUAL(cpu()->count, 2);
    }
}

static void a_handler_that_sets_the_flag_is_interrupted(void)
{
    struct event *events = cpu()->events;

    enable();
    attempt(stui);
    cpu()->on_user_interrupt = let_others_in;
    wrmsr(RR, 1 << 9 | 1 << 3);
    user(nothing);
    EQUAL(cpu()->count, 2);
    EQUAL(events[0].vector, 9);
    EQUAL(events[1].vector, 3);
    CHECK(events[1].frame < events[0].frame);
    CHECK(testui());
}

/* Runs with a stack pointer of the case's choice. */
uint64_t the_stack;
extern char on_the_stack[], on_the_stack_end[];
__asm__(".globl on_the_stack, on_the_stack_end\n"
        "on_the_stack: mov the_stack, %rsp\nstui\non_the_stack_end: int $0x80");

static void deliver_on_stack(uint64_t adjust, uint64_t stack, uint64_t expected)
{
    struct event *event = &cpu()->events[cpu()->count];
    int before = cpu()->count;

    the_stack = stack;
    clui();
    wrmsr(STACKADJUST, adjust);
    wrmsr(RR, 1);
    user_at((uint64_t)on_the_stack, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, before + 1);
    EQUAL(event->frame, expected - 0x20);
    EQUAL(event->rsp, stack);
    EQUAL(cpu()->outcome.rsp, stack);
}

static void the_stack_is_adjusted_and_aligned(void)
{
    uint64_t top = (uint64_t)user_stacks[1], other = (uint64_t)user_stacks[2];

    enable();
    for (int odd = 0; odd < 16; odd++) {
        deliver_on_stack(0, top - odd, odd ? top - 16 : top);
        deliver_on_stack(128, top - odd, (odd ? top - 16 : top) - 128);
        deliver_on_stack(other | 1, top - odd, other);
    }
    /* An odd amount is no address less one: bit 0 alone decides. */
    deliver_on_stack(24, top, top - 32);
    deliver_on_stack(other | 9, top, other);
}

static void interrupts_off_hold_no_user_interrupt_back(void)
{
    enable();
    attempt(stui);
    user_flags = IOPL;
    wrmsr(RR, 1);
    user(nothing);
    EQUAL(cpu()->count, 1);
}

static void an_ordinary_interrupt_comes_before_a_user_interrupt(void)
{
    struct event *events = cpu()->events;

    enable();
    attempt(stui);
    wrmsr(RR, 1 << 11);
    send_ipi(0, ORDINARY);
    user_at((uint64_t)do_stui_end, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 2);
    EQUAL(events[0].kind, INTERRUPT);
    EQUAL(events[0].vector, ORDINARY);
    EQUAL(events[0].rip, do_stui_end);
    EQUAL(events[1].kind, USER_INTERRUPT);
    EQUAL(events[1].vector, 11);
    EQUAL(events[1].rip, do_stui_end);
}

static void the_handler_runs_without_single_steps(void)
{
    struct event *event = &cpu()->events[0];

    enable();
    attempt(stui);
    user_flags = IF | TF | DF | CF;
    wrmsr(RR, 1);
    user_at((uint64_t)do_stui, USER_CS);
    EQUAL(cpu()->count, 1);
    EQUAL(event->rip, do_stui);
    EQUAL(event->rflags & (IF | TF | DF | CF), IF | TF | DF | CF);
    EQUAL(event->own_flags & (IF | TF), IF);
    /* The trap comes after the first instruction of the program. */
    EQUAL(cpu()->outcome.vector, DB);
    EQUAL(cpu()->outcome.rip, do_stui_end);
    EQUAL(cpu()->outcome.rflags & (IF | TF | DF | CF), IF | TF | DF | CF);
}

static bool use_another_stack(struct trap *at)
{
    EQUAL(at->vector, PF);
    EQUAL(at->error, PF_USER | PF_WRITE);
    EQUAL(at->rip, on_the_stack_end);
    EQUAL(at->rsp, SPARE + 256);
    EQUAL(cpu()->count, 0);
    EQUAL(rdmsr(RR), 1 << 12);
    CHECK(testui());
    wrmsr(STACKADJUST, (uint64_t)user_stacks[1] | 1);
    cpu()->on_fault = NULL;
    return true;
}

static void a_frame_that_cannot_be_pushed_is_delivered_after_the_fault(void)
{
    enable();
    map(SPARE, 0);
    wrmsr(RR, 1 << 12);
    cpu()->on_fault = use_another_stack;
    the_stack = SPARE + 256;
    user_at((uint64_t)on_the_stack, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].vector, 12);
    EQUAL(cpu()->events[0].rsp, SPARE + 256);
}

const struct test_case cases[] = {
    CASE(a_clear_flag_holds_an_interrupt_back_until_stui),
    CASE(clui_holds_an_interrupt_back),
    CASE(a_request_that_is_taken_back_is_not_delivered),
    CASE(compatibility_mode_holds_an_interrupt_back),
    CASE(sysret_delivers_what_is_pending),
    CASE(the_highest_vector_comes_first),
    CASE(a_handler_that_sets_the_flag_is_interrupted),
    CASE(the_stack_is_adjusted_and_aligned),
    CASE(interrupts_off_hold_no_user_interrupt_back),
    CASE(an_ordinary_interrupt_comes_before_a_user_interrupt),
    CASE(the_handler_runs_without_single_steps),
    CASE(a_frame_that_cannot_be_pushed_is_delivered_after_the_fault),
    { NULL, NULL },
};
