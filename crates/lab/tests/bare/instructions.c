// SPDX-License-Identifier: MIT OR Apache-2.0
/* The instructions and registers of user interrupts: which CPU has them, and when. Names are behaviour. */
#include "user_interrupts.h"

INSTRUCTION(do_clui, "clui");
INSTRUCTION(do_testui, "testui");
INSTRUCTION(do_uiret, "uiret");
INSTRUCTION(do_senduipi, "senduipi %rax");
/* The same bytes in 32-bit mode, where RAX is EAX. */
static char *const instructions[] = { do_stui, do_clui, do_testui, do_uiret, do_senduipi };
INSTRUCTION(lock_stui, ".byte 0xf0, 0xf3, 0x0f, 0x01, 0xef");
INSTRUCTION(lock_senduipi, ".byte 0xf0, 0xf3, 0x0f, 0xc7, 0xf0");

static void illegal(char *instruction, uint64_t cs)
{
    user_at((uint64_t)instruction, cs);
    EQUAL(cpu()->outcome.vector, UD);
    EQUAL(cpu()->outcome.rip, instruction);
}

static uint32_t cpuid_7_edx(void)
{
    uint32_t a = 7, b, c = 0, d;

    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return d;
}

static void set_cr4_bit(void)
{
    write_cr4(read_cr4() | CR4_UINTR);
}

static uint32_t the_msr;
static uint64_t the_value;

static void read_the_msr(void)
{
    rdmsr(the_msr);
}

static void write_the_msr(void)
{
    wrmsr(the_msr, the_value);
}

static void a_cpu_without_them_has_nothing(void)
{
    EQUAL(cpuid_7_edx() >> 5 & 1, 0);
    attempt(set_cr4_bit);
    EQUAL(cpu()->outcome.vector, GP);
    for (the_msr = RR; the_msr <= TT; the_msr++) {
        attempt(read_the_msr);
        EQUAL(cpu()->outcome.vector, GP);
        attempt(write_the_msr);
        EQUAL(cpu()->outcome.vector, GP);
    }
    for (int i = 0; i < 5; i++) {
        illegal(instructions[i], USER_CS);
    }
}

static void cpuid_and_cr4_have_a_bit(void)
{
    EQUAL(cpuid_7_edx() >> 5 & 1, 1);
    EQUAL(read_cr4() & CR4_UINTR, 0);
    attempt(set_cr4_bit);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(read_cr4() & CR4_UINTR, CR4_UINTR);
}

static void instructions_need_the_bit_in_cr4(void)
{
    enable();
    write_cr4(read_cr4() & ~(uint64_t)CR4_UINTR);
    for (int i = 0; i < 5; i++) {
        illegal(instructions[i], USER_CS);
    }
    /* The registers do not need it. */
    EQUAL(rdmsr(STACKADJUST), 128);
}

static void instructions_need_64_bit_mode(void)
{
    enable();
    for (int i = 0; i < 5; i++) {
        illegal(instructions[i], USER_CS32);
    }
}

static void the_lock_prefix_is_illegal(void)
{
    enable();
    illegal(lock_stui, USER_CS);
    illegal(lock_senduipi, USER_CS);
}

static void an_msr_keeps(uint32_t msr, uint64_t value)
{
    wrmsr(msr, value);
    EQUAL(rdmsr(msr), value);
}

static void msrs_keep_what_is_written(void)
{
    an_msr_keeps(RR, 0x8000000000000001);
    an_msr_keeps(HANDLER, 0x00007fffffffffff);
    an_msr_keeps(HANDLER, 0xffff800000000000);
    an_msr_keeps(STACKADJUST, 0xffff800000000001);
    an_msr_keeps(MISC, 0xffffffffff);
    an_msr_keeps(PD, 0xffff8000000000c0);
    an_msr_keeps(TT, 0xffff8000000000f1);
}

static void an_msr_refuses(uint32_t msr, uint64_t value)
{
    uint64_t before = rdmsr(msr);

    the_msr = msr;
    the_value = value;
    attempt(write_the_msr);
    EQUAL(cpu()->outcome.vector, GP);
    EQUAL(cpu()->outcome.error, 0);
    EQUAL(rdmsr(msr), before);
}

static void msrs_refuse_reserved_bits_and_addresses_that_are_not_canonical(void)
{
    for (int bit = 40; bit < 64; bit++) {
        an_msr_refuses(MISC, 1ul << bit);
    }
    for (int bit = 0; bit < 6; bit++) {
        an_msr_refuses(PD, 1ul << bit);
    }
    for (int bit = 1; bit < 4; bit++) {
        an_msr_refuses(TT, 1ul << bit);
    }
    an_msr_refuses(HANDLER, 0x0000800000000000);
    an_msr_refuses(STACKADJUST, 0x0000800000000000);
    an_msr_refuses(PD, 0x0000800000000000);
    an_msr_refuses(TT, 0x0000800000000000);
}

static void use_the_flag(void)
{
    uint64_t flags;

    CHECK(!testui());
    stui();
    CHECK(testui());
    clui();
    CHECK(!testui());
    /* All flags of the last result set before, and DF, which stays. */
    __asm__ volatile("push %1; popf; testui; pushf; pop %0; cld"
                     : "=r"(flags) : "r"(0xcd5ul) : "memory");
    EQUAL(flags & 0xcd5, DF);
    stui();
    __asm__ volatile("push %1; popf; testui; pushf; pop %0; cld"
                     : "=r"(flags) : "r"(0xcd4ul) : "memory");
    EQUAL(flags & 0xcd5, DF | CF);
}

static void stui_and_clui_set_what_testui_reads(void)
{
    enable();
    user(use_the_flag);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    /* At any privilege level. */
    CHECK(testui());
    attempt(clui);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    CHECK(!testui());
}

uint64_t uiret_frame[3];
extern char return_by_frame[];
__asm__(".globl return_by_frame\n"
        "return_by_frame: pushq uiret_frame+16\npushq uiret_frame+8\npushq uiret_frame\nuiret");

static void uiret_loads_rip_rsp_and_the_flags_of_a_program(void)
{
    uint64_t loaded = 0x254dd5, stack = (uint64_t)user_stacks[2];

    enable();
    uiret_frame[0] = (uint64_t)do_stui_end;
    uiret_frame[2] = stack;

    /* Everything set, but for TF: the flags that are no program's stay. */
    uiret_frame[1] = ~(uint64_t)TF;
    user_flags = IF;
    user_at((uint64_t)return_by_frame, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->outcome.rip, do_stui_end + 2);
    EQUAL(cpu()->outcome.rsp, stack);
    EQUAL(cpu()->outcome.rflags & ~0x10000ul, (loaded & ~0x10100ul) | IF | 2);
    CHECK(testui());

    /* Nothing set. */
    clui();
    uiret_frame[1] = 0;
    user_flags = IF | IOPL | (loaded & ~TF);
    user_at((uint64_t)return_by_frame, USER_CS);
    EQUAL(cpu()->outcome.rflags, IF | IOPL | 2);
    CHECK(testui());
}

INSTRUCTION(do_clear_flags, "pushq $2; popfq");

static void flags_that_uiret_has_set_can_be_cleared(void)
{
    enable();
    uiret_frame[0] = (uint64_t)do_clear_flags;
    /* CF PF AF ZF SF DF OF */
    uiret_frame[1] = 0xcd5;
    uiret_frame[2] = (uint64_t)user_stacks[2];
    user_flags = IF;
    user_at((uint64_t)return_by_frame, USER_CS);
    EQUAL(cpu()->outcome.vector, RETURN_VECTOR);
    EQUAL(cpu()->outcome.rflags, IF | 2);
}

static void uiret_to_no_canonical_address_is_refused(void)
{
    enable();
    uiret_frame[0] = 0x800000000000;
    uiret_frame[1] = 2;
    uiret_frame[2] = (uint64_t)user_stacks[2];
    user_at((uint64_t)return_by_frame, USER_CS);
    EQUAL(cpu()->outcome.vector, GP);
    EQUAL(cpu()->outcome.error, 0);
    EQUAL(cpu()->outcome.rsp, user_stacks[1] - 24);
    CHECK(!testui());
}

/* --- Another emulator goes on with it --- */

static volatile bool moved;

static bool is_nmi(struct trap *at)
{
    moved = at->vector == NMI;
    return moved;
}

static void state_is_kept_when_the_machine_moves(void)
{
    enable();
    attempt(stui);
    wrmsr(RR, 1ul << 40 | 1 << 3);
    wrmsr(MISC, 0xed00000007);
    cpu()->on_fault = is_nmi;
    print("ready\n");
    while (!moved) {
        pause();
    }
    EQUAL(rdmsr(RR), 1ul << 40 | 1 << 3);
    EQUAL(rdmsr(HANDLER), user_interrupt_entry);
    EQUAL(rdmsr(STACKADJUST), 128);
    EQUAL(rdmsr(MISC), 0xed00000007);
    EQUAL(rdmsr(PD), &shared->upid[0]);
    EQUAL(rdmsr(TT), (uint64_t)shared->uitt | 1);
    CHECK(testui());
    user(nothing);
    EQUAL(cpu()->count, 2);
    EQUAL(cpu()->events[0].vector, 40);
}

const struct test_case cases[] = {
    CASE(a_cpu_without_them_has_nothing),
    CASE(cpuid_and_cr4_have_a_bit),
    CASE(instructions_need_the_bit_in_cr4),
    CASE(instructions_need_64_bit_mode),
    CASE(the_lock_prefix_is_illegal),
    CASE(msrs_keep_what_is_written),
    CASE(msrs_refuse_reserved_bits_and_addresses_that_are_not_canonical),
    CASE(stui_and_clui_set_what_testui_reads),
    CASE(uiret_loads_rip_rsp_and_the_flags_of_a_program),
    CASE(flags_that_uiret_has_set_can_be_cleared),
    CASE(uiret_to_no_canonical_address_is_refused),
    CASE(state_is_kept_when_the_machine_moves),
    { NULL, NULL },
};
