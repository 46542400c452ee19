// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A machine without an operating system, for programs that show one rule of the CPU.
 *
 * The case that the kernel's command line names runs at CPL 0 on CPU 0, and may run
 * functions at CPL 3 and on other CPUs. What it expects and does not find ends it with a
 * line on the serial port; "passed" is the last line otherwise. Then the machine is
 * powered off.
 *
 *   user(f)         calls f at CPL 3 until it returns or faults: cpu()->outcome says which
 *   attempt(f)      the same at CPL 0
 *   on(n, f)        starts f at CPL 0 on CPU n; join(n) waits for its end
 *
 * Interrupts are off at CPL 0 unless a case lets them in, and on at CPL 3 unless
 * user_flags says otherwise. What the CPU calls is counted and noted in cpu()->events.
 */
#ifndef BARE_H
#define BARE_H

#define CPUS 4
#define STACK_LOG2 14
#define KERNEL_CS 0x08
#define KERNEL_DS 0x10
#define USER_CS32 0x1b
#define USER_DS 0x23
#define USER_CS 0x2b
#define KERNEL_CS32 0x30
#define TSS_OF(cpu) (0x40 + 16 * (cpu))
#define RETURN_VECTOR 0x80
#define AP_PAGE 0x8000

#ifndef __ASSEMBLER__
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB (1ul << 20)
/* Pages of 2 MiB that only the kernel may touch: of cases, and of bare.ld. */
#define SHARED (4 * MIB)
#define KERNEL (6 * MIB)
/* One that no case uses otherwise: for a case to map as it likes. */
#define SPARE (8 * MIB)

enum { DB = 1, NMI = 2, UD = 6, GP = 13, PF = 14 };
enum { PAGE_PRESENT = 1, PAGE_WRITE = 2, PAGE_USER = 4 };
enum { PF_PRESENT = 1, PF_WRITE = 2, PF_USER = 4 };
enum { CF = 1, TF = 0x100, IF = 0x200, DF = 0x400, IOPL = 0x3000, AC = 0x40000 };
enum { CR4_SMAP = 1 << 21, CR4_UINTR = 1 << 25 };
enum { RR = 0x985, HANDLER, STACKADJUST, MISC, PD, TT };

struct trap {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t vector, error, rip, cs, rflags, rsp, ss;
};

struct user_interrupt {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
    uint64_t vector, rip, rflags, rsp;
};

/* What the CPU has called. */
struct event {
    enum { INTERRUPT, USER_INTERRUPT } kind;
    uint64_t vector, rip, rflags, rsp;
    uint64_t frame;         /* the handler's stack pointer at its entry */
    uint64_t own_flags;     /* the handler's own */
    bool uif;               /* in the handler */
    uint64_t tsc;
};

struct cpu {
    struct cpu *self;
    uint64_t id;
    uint64_t saved;
    /* How what user() or attempt() called ended: RETURN_VECTOR, or the fault. */
    struct {
        uint64_t vector, error, rip, rsp, rflags, address;
    } outcome;
    struct event events[64];
    volatile int count;
    /* Called by the handler of user interrupts, at CPL 3; may be null. */
    void (*on_user_interrupt)(struct user_interrupt *at);
    /* Called for faults; true: go on where the frame says. May be null. */
    bool (*on_fault)(struct trap *at);
    void (*volatile work)(void);
};

/* What SENDUIPI reads and writes: user-interrupts.patch has a drawing. */
struct uitt_entry {
    uint64_t low, upid;
};

struct upid {
    volatile uint64_t low, pir;
    uint64_t unused[6];
};

enum { ON = 1, SN = 2 };
#define UITT_LAST 15u
#define UPIDS_MORE 12

struct shared {
    struct uitt_entry uitt[UITT_LAST + 2];
    /* One for each CPU, and some to spare. */
    struct upid upid[CPUS + UPIDS_MORE] __attribute__((aligned(64)));
};

static struct shared *const shared = (struct shared *)SHARED;

extern uint64_t page_directory[512];
extern uint64_t user_flags;
extern char user_interrupt_entry[];
extern uint8_t user_stacks[CPUS][1 << STACK_LOG2];

struct test_case {
    const char *name;
    void (*run)(void);
};
extern const struct test_case cases[];
#define CASE(name) { #name, name }

static inline struct cpu *cpu(void)
{
    struct cpu *self;

    __asm__ volatile("mov %%gs:0, %0" : "=r"(self));
    return self;
}

static inline uint64_t rdmsr(uint32_t msr)
{
    uint32_t low, high;

    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
    return low | (uint64_t)high << 32;
}

static inline void wrmsr(uint32_t msr, uint64_t value)
{
    __asm__ volatile("wrmsr" : : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)) : "memory");
}

static inline uint64_t read_cr4(void)
{
    uint64_t value;

    __asm__ volatile("mov %%cr4, %0" : "=r"(value));
    return value;
}

static inline void write_cr4(uint64_t value)
{
    __asm__ volatile("mov %0, %%cr4" : : "r"(value) : "memory");
}

static inline uint64_t read_flags(void)
{
    uint64_t value;

    __asm__ volatile("pushf; pop %0" : "=r"(value));
    return value;
}

static inline uint64_t rdtsc(void)
{
    uint32_t low, high;

    __asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return low | (uint64_t)high << 32;
}

static inline void pause(void)
{
    __asm__ volatile("pause" : : : "memory");
}

static inline void stui(void)
{
    __asm__ volatile("stui" : : : "memory");
}

static inline void clui(void)
{
    __asm__ volatile("clui" : : : "memory");
}

static inline bool testui(void)
{
    bool flag;

    __asm__ volatile("testui" : "=@ccc"(flag));
    return flag;
}

static inline void senduipi(uint64_t index)
{
    __asm__ volatile("senduipi %0" : : "r"(index) : "memory");
}

void print(const char *text);
void print_number(uint64_t value);
__attribute__((noreturn)) void fail(const char *what, const char *file, int line, uint64_t found,
                                    uint64_t expected);

/* Ends the case unless both are equal. */
#define EQUAL(found, expected)                                             \
    do {                                                                   \
        uint64_t found_ = (uint64_t)(found), expected_ = (uint64_t)(expected); \
        if (found_ != expected_) {                                         \
            fail(#found, __FILE__, __LINE__, found_, expected_);           \
        }                                                                  \
    } while (0)
#define CHECK(what) EQUAL(!!(what), true)

void user(void (*function)(void));
void user_at(uint64_t rip, uint64_t cs);
void attempt(void (*function)(void));
void on(int id, void (*function)(void));
void join(int id);
void map(uint64_t address, uint64_t bits);

/* The local APIC, in x2APIC mode after x2apic(). */
void x2apic(void);
void send_ipi(int id, uint8_t vector);
bool in_service(uint8_t vector);

#endif
#endif
