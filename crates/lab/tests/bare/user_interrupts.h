// SPDX-License-Identifier: MIT OR Apache-2.0
/* What the programs about user interrupts have in common. */
#ifndef USER_INTERRUPTS_H
#define USER_INTERRUPTS_H

#include "bare.h"

enum { NOTIFY = 0xec, ORDINARY = 0x41 };
/* Enough for another CPU to get an interrupt that was sent, in loops. */
enum { LONG = 20000 };

static inline uint64_t destination(int id)
{
    /* The APIC is in x2APIC mode if IA32_APIC_BASE says so. */
    return rdmsr(0x1b) & 0x400 ? id : id << 8;
}

/* What has been sent to a CPU: nothing, and it is told of by NOTIFY. */
static inline void reset_upid(int id)
{
    shared->upid[id].low = destination(id) << 32 | NOTIFY << 16;
    shared->upid[id].pir = 0;
}

/* Entry `index` of the table of all CPUs sends `vector` to `id`. */
static inline void aim(int index, int vector, int id)
{
    shared->uitt[index].low = vector << 8 | 1;
    shared->uitt[index].upid = (uint64_t)&shared->upid[id];
}

/* Lets the CPU that calls it send and receive. */
static inline void enable(void)
{
    int id = cpu()->id;

    reset_upid(id);
    write_cr4(read_cr4() | CR4_UINTR);
    wrmsr(HANDLER, (uint64_t)user_interrupt_entry);
    wrmsr(STACKADJUST, 128);
    wrmsr(PD, (uint64_t)&shared->upid[id]);
    wrmsr(TT, (uint64_t)shared->uitt | 1);
    wrmsr(MISC, (uint64_t)NOTIFY << 32 | UITT_LAST);
}

static inline void nothing(void) {}

static inline void let_in(void)
{
    __asm__ volatile("sti; nop; cli" : : : "memory");
}

/* One instruction after the label, so that a case knows its address. */
#define INSTRUCTION(name, text)                                              \
    extern char name[], name##_end[];                                        \
    __asm__(".globl " #name ", " #name "_end\n" #name ": " text "\n" #name   \
            "_end: int $0x80")
INSTRUCTION(do_stui, "stui");

/* Of the table of all CPUs. */
static uint64_t the_index __attribute__((unused));

static inline void send_the_index(void)
{
    senduipi(the_index);
}

/* What SENDUIPI does, without it. */
static inline void post(int vector)
{
    shared->upid[0].pir |= 1ul << vector;
    shared->upid[0].low |= ON;
    send_ipi(0, NOTIFY);
}

#endif
