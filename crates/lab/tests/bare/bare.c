// SPDX-License-Identifier: MIT OR Apache-2.0
/* The machine of bare.h: CPUs, traps, the APIC, the serial port. */
#include "bare.h"

#define OF_KERNEL __attribute__((section(".kernel"), aligned(16)))

uint8_t kernel_stacks[CPUS][1 << STACK_LOG2] OF_KERNEL;
static uint32_t tss[CPUS][26] OF_KERNEL;
uint8_t user_stacks[CPUS][1 << STACK_LOG2] __attribute__((aligned(16)));
uint64_t user_flags = IF;
/* Written before memory is cleared: not in .bss. */
uint32_t start_info __attribute__((section(".data")));

static struct cpu cpus[CPUS];
static volatile int present;

extern uint64_t gdt[];
extern char gdt_pointer[], vectors[], ap16[], ap16_end[], call_and_return[];
void enter(struct trap *to, uint64_t *saved);
void come_back(uint64_t *saved);

static void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

void print(const char *text)
{
    while (*text) {
        outb(0x3f8, *text++);
    }
}

void print_number(uint64_t value)
{
    print("0x");
    for (int shift = 60; shift >= 0; shift -= 4) {
        if (value >> shift || shift == 0) {
            outb(0x3f8, "0123456789abcdef"[value >> shift & 15]);
        }
    }
}

static __attribute__((noreturn)) void power_off(void)
{
    /* The power management of the q35 chipset, where its firmware puts it. */
    __asm__ volatile("outw %0, %1" : : "a"((uint16_t)0x2000), "d"((uint16_t)0x604));
    for (;;) {
        __asm__ volatile("cli; hlt");
    }
}

/* At CPL 3 there are no ports: the kernel says it. */
static struct {
    const char *what, *file;
    int line;
    uint64_t found, expected;
} failure;

static __attribute__((noreturn)) void say_failure(void)
{
    print(failure.file);
    print(":");
    for (int unit = 1000; unit; unit /= 10) {
        outb(0x3f8, '0' + failure.line / unit % 10);
    }
    print(": ");
    print(failure.what);
    print(" is ");
    print_number(failure.found);
    print(", expected ");
    print_number(failure.expected);
    print(" (CPU ");
    print_number(cpu()->id);
    print(")\n");
    power_off();
}

void fail(const char *what, const char *file, int line, uint64_t found, uint64_t expected)
{
    uint16_t cs;

    failure.what = what;
    failure.file = file;
    failure.line = line;
    failure.found = found;
    failure.expected = expected;
    __asm__ volatile("mov %%cs, %0" : "=r"(cs));
    if (cs & 3) {
        __asm__ volatile("int $0x81");
    }
    say_failure();
}

enum { APIC_ID = 2, APIC_EOI = 0xb, APIC_SPURIOUS = 0xf, APIC_ISR = 0x10, APIC_ICR = 0x30 };
static bool x2apic_mode;

static volatile uint32_t *apic_register(int index)
{
    return (volatile uint32_t *)(0xfee00000ul + 16 * index);
}

static uint32_t apic_read(int index)
{
    return x2apic_mode ? rdmsr(0x800 + index) : *apic_register(index);
}

static void apic_write(int index, uint32_t value)
{
    if (x2apic_mode) {
        wrmsr(0x800 + index, value);
    } else {
        *apic_register(index) = value;
    }
}

static void apic_command(int id, uint32_t command)
{
    if (x2apic_mode) {
        wrmsr(0x800 + APIC_ICR, (uint64_t)id << 32 | command);
    } else {
        apic_write(APIC_ICR + 1, (uint32_t)id << 24);
        apic_write(APIC_ICR, command);
    }
}

void x2apic(void)
{
    wrmsr(0x1b, rdmsr(0x1b) | 0xc00);
    x2apic_mode = true;
}

void send_ipi(int id, uint8_t vector)
{
    apic_command(id, 0x4000 | vector);
}

bool in_service(uint8_t vector)
{
    return apic_read(APIC_ISR + vector / 32) >> vector % 32 & 1;
}

void trap(struct trap *at)
{
    struct cpu *me = cpu();

    if (at->vector == 0x81) {
        say_failure();
    }
    if (at->vector >= 32 && at->vector != RETURN_VECTOR) {
        struct event *event = &me->events[me->count];

        event->kind = INTERRUPT;
        event->vector = at->vector;
        event->rip = at->rip;
        event->tsc = rdtsc();
        me->count++;
        apic_write(APIC_EOI, 0);
        return;
    }
    if (at->vector < 32 && me->on_fault && me->on_fault(at)) {
        return;
    }
    me->outcome.vector = at->vector;
    me->outcome.error = at->error;
    me->outcome.rip = at->rip;
    me->outcome.rsp = at->rsp;
    me->outcome.rflags = at->rflags;
    __asm__ volatile("mov %%cr2, %0" : "=r"(me->outcome.address));
    if (!me->saved) {
        print("a fault nobody expects: vector ");
        print_number(at->vector);
        print(", error code ");
        print_number(at->error);
        print(", at ");
        print_number(at->rip);
        print(", address ");
        print_number(me->outcome.address);
        print("\n");
        power_off();
    }
    come_back(&me->saved);
}

void user_interrupted(struct user_interrupt *at)
{
    struct cpu *me = cpu();
    struct event *event = &me->events[me->count];

    event->kind = USER_INTERRUPT;
    event->own_flags = read_flags();
    event->uif = testui();
    event->vector = at->vector;
    event->rip = at->rip;
    event->rflags = at->rflags;
    event->rsp = at->rsp;
    event->frame = (uint64_t)&at->vector;
    event->tsc = rdtsc();
    me->count++;
    if (me->on_user_interrupt) {
        me->on_user_interrupt(at);
    }
}

/* Goes to `to` and waits for its end. Traps from CPL 3 use the stack below here. */
static void go(struct trap *to)
{
    struct cpu *me = cpu();
    uint64_t top = (uint64_t)__builtin_frame_address(0) - 512;

    tss[me->id][1] = (uint32_t)top;
    tss[me->id][2] = (uint32_t)(top >> 32);
    enter(to, &me->saved);
}

void user_at(uint64_t rip, uint64_t cs)
{
    struct trap to = {
        .rip = rip,
        .cs = cs,
        .rflags = user_flags | 2,
        .rsp = (uint64_t)user_stacks[cpu()->id + 1],
        .ss = USER_DS,
    };

    go(&to);
}

void user(void (*function)(void))
{
    struct trap to = {
        .rdi = (uint64_t)function,
        .rip = (uint64_t)call_and_return,
        .cs = USER_CS,
        .rflags = user_flags | 2,
        .rsp = (uint64_t)user_stacks[cpu()->id + 1],
        .ss = USER_DS,
    };

    go(&to);
}

void attempt(void (*function)(void))
{
    static uint8_t stack[CPUS][1 << STACK_LOG2] __attribute__((aligned(16)));
    struct trap to = {
        .rdi = (uint64_t)function,
        .rip = (uint64_t)call_and_return,
        .cs = KERNEL_CS,
        .rflags = 2,
        .rsp = (uint64_t)stack[cpu()->id + 1],
        .ss = KERNEL_DS,
    };

    go(&to);
}

void on(int id, void (*function)(void))
{
    __atomic_store_n(&cpus[id].work, function, __ATOMIC_SEQ_CST);
}

void join(int id)
{
    while (__atomic_load_n(&cpus[id].work, __ATOMIC_SEQ_CST)) {
        pause();
    }
}

void map(uint64_t address, uint64_t bits)
{
    page_directory[address / (2 * MIB)] = address | 0x80 | bits;
    __asm__ volatile("invlpg (%0)" : : "r"(address) : "memory");
}

static void load_tables(uint64_t id)
{
    static struct {
        uint16_t low, selector, flags, middle;
        uint32_t high, zero;
    } idt[256] OF_KERNEL;
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) idt_pointer = { sizeof(idt) - 1, (uint64_t)idt };
    struct cpu *me = &cpus[id];
    uint64_t base = (uint64_t)tss[id];

    for (int vector = 0; vector < 256; vector++) {
        uint64_t entry = (uint64_t)vectors + 16 * vector;

        idt[vector].low = entry;
        idt[vector].middle = entry >> 16;
        idt[vector].high = entry >> 32;
        idt[vector].selector = KERNEL_CS;
        idt[vector].flags = vector >= RETURN_VECTOR && vector <= 0x81 ? 0xee00 : 0x8e00;
    }
    gdt[TSS_OF(id) / 8] = (base & 0xffffff) << 16 | (base >> 24 & 0xff) << 56 |
                          0x890000000000 | (sizeof(tss[id]) - 1);
    gdt[TSS_OF(id) / 8 + 1] = base >> 32;
    __asm__ volatile("lidt %0; ltr %1" : : "m"(idt_pointer), "r"((uint16_t)TSS_OF(id)));
    me->self = me;
    me->id = id;
    wrmsr(0xc0000101, (uint64_t)me);
    apic_write(APIC_SPURIOUS, 0x1ff);
}

static void start_others(void)
{
    for (long i = 0; i < ap16_end - ap16; i++) {
        ((volatile char *)AP_PAGE)[i] = ap16[i];
    }
    for (int id = 1; id < CPUS; id++) {
        int before = present;

        apic_command(id, 0x4500);
        apic_command(id, 0x4600 | AP_PAGE >> 12);
        while (present == before) {
            pause();
        }
    }
}

static bool same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

static void run_case(const char *name)
{
    for (const struct test_case *one = cases; one->name; one++) {
        if (same(one->name, name)) {
            one->run();
            print("passed\n");
            power_off();
        }
    }
    print("there is no case ");
    print(name);
    print("\n");
    power_off();
}

__attribute__((noreturn)) void begin(uint64_t id)
{
    load_tables(id);
    if (id == 0) {
        /* No interrupts from the old controller, which has vectors of faults. */
        outb(0x21, 0xff);
        outb(0xa1, 0xff);
        /* The loader's information has the command line at offset 24. */
        const char *name = *(const char **)(uint64_t)(start_info + 24);

        map(SHARED, PAGE_PRESENT | PAGE_WRITE);
        map(KERNEL, PAGE_PRESENT | PAGE_WRITE);
        start_others();
        run_case(name);
    }
    __atomic_fetch_add(&present, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        struct cpu *me = cpu();

        if (me->work) {
            me->work();
            __atomic_store_n(&me->work, NULL, __ATOMIC_SEQ_CST);
        }
        pause();
    }
}
