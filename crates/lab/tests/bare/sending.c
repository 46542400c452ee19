// SPDX-License-Identifier: MIT OR Apache-2.0
/* SENDUIPI: what it posts, whom it tells, what it refuses. Names are behaviour. */
#include "user_interrupts.h"

static void stui_and_send(void)
{
    stui();
    senduipi(the_index);
}

extern char after_senduipi[];

static __attribute__((noinline)) void send_and_know_where(void)
{
    stui();
    __asm__ volatile("senduipi %0\n.globl after_senduipi\nafter_senduipi: nop"
                     : : "r"(the_index) : "memory");
    EQUAL(cpu()->count, 1);
    CHECK(testui());
}

static void a_program_interrupts_itself(void)
{
    struct event *event = &cpu()->events[0];

    enable();
    aim(0, 63, 0);
    user(send_and_know_where);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
    EQUAL(event->kind, USER_INTERRUPT);
    EQUAL(event->vector, 63);
    EQUAL(event->rip, after_senduipi);
    CHECK(!event->uif);
    EQUAL(shared->upid[0].low & 3, 0);
    EQUAL(shared->upid[0].pir, 0);
    EQUAL(rdmsr(RR), 0);
    CHECK(!in_service(NOTIFY));
}

static volatile bool ready;

static void receive(void)
{
    stui();
    ready = true;
    while (cpu()->count == 0) {
        pause();
    }
}

static void be_receiver(void)
{
    enable();
    user(receive);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].kind, USER_INTERRUPT);
    EQUAL(cpu()->events[0].vector, 5);
}

static void interrupt_another_cpu(void)
{
    enable();
    aim(2, 5, 3);
    the_index = 2;
    on(3, be_receiver);
    while (!ready) {
        pause();
    }
    user(send_the_index);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    join(3);
    EQUAL(shared->upid[3].low & 3, 0);
    EQUAL(shared->upid[3].pir, 0);
    EQUAL(cpu()->count, 0);
}

static void a_program_interrupts_another_cpu(void)
{
    interrupt_another_cpu();
}

static void in_x2apic_mode_the_whole_field_is_the_destination(void)
{
    for (int id = 1; id < CPUS; id++) {
        on(id, x2apic);
        join(id);
    }
    x2apic();
    interrupt_another_cpu();
}

/* Notifications go to the kernel: a case counts them. */
static void count_notifications(void)
{
    enable();
    wrmsr(MISC, UITT_LAST);
    aim(0, 7, 0);
}

static void another_vector_goes_to_the_kernel(void)
{
    count_notifications();
    user(stui_and_send);
    let_in();
    EQUAL(cpu()->count, 1);
    EQUAL(cpu()->events[0].kind, INTERRUPT);
    EQUAL(cpu()->events[0].vector, NOTIFY);
    EQUAL(shared->upid[0].low & 3, ON);
    EQUAL(shared->upid[0].pir, 1 << 7);
    EQUAL(rdmsr(RR), 0);
}

static void suppressed_notifications_are_not_sent(void)
{
    count_notifications();
    shared->upid[0].low |= SN;
    user(stui_and_send);
    let_in();
    EQUAL(cpu()->count, 0);
    EQUAL(shared->upid[0].low & 3, SN);
    EQUAL(shared->upid[0].pir, 1 << 7);
}

static void an_outstanding_notification_is_not_sent_again(void)
{
    count_notifications();
    aim(1, 8, 0);
    user(stui_and_send);
    let_in();
    EQUAL(cpu()->count, 1);
    the_index = 1;
    user(stui_and_send);
    let_in();
    EQUAL(cpu()->count, 1);
    EQUAL(shared->upid[0].low & 3, ON);
    EQUAL(shared->upid[0].pir, 1 << 7 | 1 << 8);
}

static void a_vector_that_no_apic_sends_is_not_sent(void)
{
    enable();
    aim(0, 7, 0);
    shared->upid[0].low = destination(0) << 32 | 15 << 16;
    user(stui_and_send);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->count, 0);
    EQUAL(shared->upid[0].low & 3, ON);
    EQUAL(shared->upid[0].pir, 1 << 7);
}

static void sending_fails(uint64_t vector)
{
    user(send_the_index);
    EQUAL(cpu()->outcome.vector, vector);
    if (vector == GP) {
        EQUAL(cpu()->outcome.error, 0);
    }
    EQUAL(shared->upid[0].pir, 0);
    EQUAL(shared->upid[0].low & 3, 0);
}

static void an_index_beyond_the_table_is_refused(void)
{
    enable();
    aim(UITT_LAST, 1, 0);
    aim(UITT_LAST + 1, 1, 0);
    the_index = UITT_LAST + 1;
    sending_fails(GP);
    the_index = 1ul << 60;
    sending_fails(GP);
    the_index = UITT_LAST;
    user(send_the_index);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(shared->upid[0].pir | rdmsr(RR), 2);
}

static void senduipi_needs_the_bit_of_its_table(void)
{
    enable();
    aim(0, 1, 0);
    wrmsr(TT, (uint64_t)shared->uitt);
    sending_fails(UD);
}

static void an_entry_that_is_not_valid_is_refused(void)
{
    enable();
    aim(0, 1, 0);
    shared->uitt[0].low &= ~1ul;
    sending_fails(GP);
    for (int bit = 1; bit < 64; bit++) {
        if (bit >= 8 && bit < 14) {
            continue;
        }
        aim(0, 1, 0);
        shared->uitt[0].low |= 1ul << bit;
        sending_fails(GP);
    }
    for (int bit = 0; bit < 6; bit++) {
        aim(0, 1, 0);
        shared->uitt[0].upid |= 1ul << bit;
        sending_fails(GP);
    }
}

static void a_descriptor_with_reserved_bits_is_refused(void)
{
    enable();
    aim(0, 1, 0);
    for (int bit = 2; bit < 32; bit++) {
        if (bit >= 16 && bit < 24) {
            continue;
        }
        reset_upid(0);
        shared->upid[0].low |= 1ul << bit;
        sending_fails(GP);
    }
}

static void a_page_fault_of_senduipi_is_the_kernels(void)
{
    enable();
    map(SPARE, 0);
    wrmsr(TT, SPARE | 1);
    the_index = 1;
    sending_fails(PF);
    EQUAL(cpu()->outcome.address, SPARE + 16);
    EQUAL(cpu()->outcome.error, 0);

    wrmsr(TT, (uint64_t)shared->uitt | 1);
    aim(1, 1, 0);
    shared->uitt[1].upid = SPARE + 64;
    sending_fails(PF);
    EQUAL(cpu()->outcome.address, SPARE + 64);
    EQUAL(cpu()->outcome.error, PF_WRITE);

    /* CR0.WP is set. */
    map(SPARE, PAGE_PRESENT);
    sending_fails(PF);
    EQUAL(cpu()->outcome.error, PF_WRITE | PF_PRESENT);
}

static void touch_the_descriptor(void)
{
    (void)shared->upid[0].pir;
}

static void tables_are_the_kernels_and_smap_holds_for_them(void)
{
    enable();
    aim(0, 1, 0);
    user(touch_the_descriptor);
    EQUAL(cpu()->outcome.vector, PF);
    EQUAL(cpu()->outcome.error, PF_USER | PF_PRESENT);
    user(send_the_index);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);

    map(SPARE, PAGE_PRESENT | PAGE_WRITE | PAGE_USER);
    reset_upid(0);
    shared->uitt[0].upid = SPARE;
    wrmsr(RR, 0);
    /* With AC set the kernel may still touch the program's memory. */
    user_flags |= AC;
    __asm__ volatile("stac");
    write_cr4(read_cr4() | CR4_SMAP);
    sending_fails(PF);
    EQUAL(cpu()->outcome.address, SPARE);
    EQUAL(cpu()->outcome.error, PF_WRITE | PF_PRESENT);
}

const struct test_case cases[] = {
    CASE(a_program_interrupts_itself),
    CASE(a_program_interrupts_another_cpu),
    CASE(in_x2apic_mode_the_whole_field_is_the_destination),
    CASE(another_vector_goes_to_the_kernel),
    CASE(suppressed_notifications_are_not_sent),
    CASE(an_outstanding_notification_is_not_sent_again),
    CASE(a_vector_that_no_apic_sends_is_not_sent),
    CASE(an_index_beyond_the_table_is_refused),
    CASE(senduipi_needs_the_bit_of_its_table),
    CASE(an_entry_that_is_not_valid_is_refused),
    CASE(a_descriptor_with_reserved_bits_is_refused),
    CASE(a_page_fault_of_senduipi_is_the_kernels),
    CASE(tables_are_the_kernels_and_smap_holds_for_them),
    { NULL, NULL },
};
