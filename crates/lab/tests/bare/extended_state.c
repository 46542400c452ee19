// SPDX-License-Identifier: MIT OR Apache-2.0
/* XSAVEC, with which handlers save vectors, and XRSTOR of its form. Names are behaviour. */
#include "bare.h"

enum { X87 = 1, SSE = 2, AVX = 4, PKRU = 0x200 };
enum { LEGACY = 512, HEADER = 64, AVX_SIZE = 256 };
static const uint64_t COMPACTED = 1ul << 63;
enum { MXCSR = 0x1f80, OTHER_MXCSR = 0x7f80, KEYS = 0xc0 };

/* As large as any form: what XSAVEC leaves alone is seen. */
static struct {
    uint8_t legacy[LEGACY];
    uint64_t xstate_bv, xcomp_bv, reserved[6];
    uint8_t extended[4096];
} area __attribute__((aligned(64)));

static uint64_t asked;
static void *where = &area;

static void enable_extended_state(void)
{
    write_cr4(read_cr4() | 1 << 9 | 1 << 10 | 1 << 18 | 1 << 22); /* OSFXSR OSXMMEXCPT OSXSAVE PKE */
    __asm__ volatile("xsetbv" : : "a"(X87 | SSE | AVX | PKRU), "d"(0), "c"(0));
}

static void clear_area(void)
{
    uint8_t *byte = (uint8_t *)&area;

    for (size_t i = 0; i < sizeof(area); i++) {
        byte[i] = i >= LEGACY && i < LEGACY + HEADER ? 0 : 0xa5;
    }
}

static void xsavec(void)
{
    __asm__ volatile("xsavec64 (%0)" : : "r"(where), "a"((uint32_t)asked), "d"(0) : "memory");
}

static void xrstor(void)
{
    __asm__ volatile("xrstor64 (%0)" : : "r"(where), "a"((uint32_t)asked), "d"(0) : "memory");
}

/* Four values in YMM3, of which the upper two are AVX's, one in ST0, MXCSR and PKRU. */
static void load(uint64_t value)
{
    uint64_t vector[4] = { value, value + 1, value + 2, value + 3 };
    uint32_t mxcsr = value ? OTHER_MXCSR : MXCSR;

    __asm__ volatile("vmovdqu %0, %%ymm3" : : "m"(vector));
    __asm__ volatile("fninit; fildll %0" : : "m"(value));
    __asm__ volatile("ldmxcsr %0" : : "m"(mxcsr));
    __asm__ volatile("wrpkru" : : "a"(value ? KEYS : 0), "c"(0), "d"(0));
}

static struct {
    uint64_t vector[4], x87;
    uint32_t mxcsr, pkru;
} found;

static void look(void)
{
    uint32_t d;

    __asm__ volatile("vmovdqu %%ymm3, %0" : "=m"(found.vector));
    __asm__ volatile("stmxcsr %0" : "=m"(found.mxcsr));
    __asm__ volatile("rdpkru" : "=a"(found.pkru), "=d"(d) : "c"(0));
    __asm__ volatile("fistpll %0" : "=m"(found.x87));
}

static void refused(void (*function)(void), uint64_t vector)
{
    attempt(function);
    EQUAL(cpu()->outcome.vector, vector);
}

static void a_cpu_without_xsavec_refuses_its_form(void)
{
    uint32_t a = 0xd, b, c = 1, d;

    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    EQUAL(a >> 1 & 1, 0);
    enable_extended_state();
    clear_area();
    asked = X87;
    refused(xsavec, UD);
    area.xcomp_bv = COMPACTED | X87;
    refused(xrstor, GP);
}

static void xsavec_saves_what_xrstor_loads(void)
{
    uint64_t *avx = (uint64_t *)area.extended;
    uint64_t *pkru = (uint64_t *)(area.extended + AVX_SIZE);

    enable_extended_state();
    clear_area();
    asked = X87 | SSE | AVX | PKRU;
    load(0x1000);
    xsavec();
    EQUAL(area.xstate_bv, asked);
    EQUAL(area.xcomp_bv, COMPACTED | asked);
    EQUAL(*(uint64_t *)(area.legacy + 160 + 16 * 3 + 8), 0x1001);
    EQUAL(avx[6], 0x1002);
    EQUAL(pkru[0], KEYS);
    EQUAL(pkru[1], 0xa5a5a5a5a5a5a5a5);
    load(0);
    xrstor();
    look();
    for (int i = 0; i < 4; i++) {
        EQUAL(found.vector[i], 0x1000 + i);
    }
    EQUAL(found.x87, 0x1000);
    EQUAL(found.mxcsr, OTHER_MXCSR);
    EQUAL(found.pkru, KEYS);
}

static void what_is_not_asked_for_takes_no_room(void)
{
    uint64_t *extended = (uint64_t *)area.extended;

    enable_extended_state();
    clear_area();
    load(0x1000);
    asked = X87 | PKRU;
    xsavec();
    EQUAL(area.xstate_bv, asked);
    EQUAL(area.xcomp_bv, COMPACTED | asked);
    EQUAL(*(uint64_t *)(area.legacy + 160 + 16 * 3), 0xa5a5a5a5a5a5a5a5);
    EQUAL(extended[0], KEYS);
    EQUAL(extended[1], 0xa5a5a5a5a5a5a5a5);
    load(0);
    asked = X87 | SSE | AVX | PKRU;
    xrstor();
    look();
    EQUAL(found.pkru, KEYS);
    EQUAL(found.x87, 0x1000);
}

static void what_is_not_in_the_area_becomes_initial(void)
{
    enable_extended_state();
    clear_area();
    load(0x1000);
    asked = X87 | SSE | AVX | PKRU;
    xsavec();
    area.xstate_bv = X87;
    xrstor();
    look();
    for (int i = 0; i < 4; i++) {
        EQUAL(found.vector[i], 0);
    }
    EQUAL(found.mxcsr, MXCSR);
    EQUAL(found.pkru, 0);
    EQUAL(found.x87, 0x1000);
    /* Nor is what is not asked for loaded. */
    load(0x2000);
    area.xstate_bv = X87 | SSE | AVX;
    asked = X87;
    xrstor();
    look();
    EQUAL(found.vector[0], 0x2000);
    EQUAL(found.x87, 0x1000);
}

static void a_header_that_is_not_valid_is_refused(void)
{
    enable_extended_state();
    clear_area();
    asked = X87 | SSE | AVX;
    xsavec();
    refused(xrstor, RETURN_VECTOR);
    /* A component that is not enabled. */
    area.xcomp_bv |= 8;
    refused(xrstor, GP);
    /* One that the area does not have. */
    area.xcomp_bv = COMPACTED | X87 | SSE;
    refused(xrstor, GP);
    area.xcomp_bv = COMPACTED | asked;
    area.xstate_bv |= COMPACTED;
    refused(xrstor, GP);
    area.xstate_bv = asked;
    for (int i = 0; i < 6; i++) {
        area.reserved[i] = 1;
        refused(xrstor, GP);
        area.reserved[i] = 0;
    }
    refused(xrstor, RETURN_VECTOR);
    where = (uint8_t *)&area + 32;
    refused(xsavec, GP);
    where = &area;
    write_cr4(read_cr4() & ~(1ul << 18));
    refused(xsavec, UD);
}

static void cpuid_says_how_large_an_area_is(void)
{
    uint32_t a = 0xd, b, c = 1, d;

    enable_extended_state();
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    EQUAL(a >> 1 & 1, 1);
    EQUAL(b, LEGACY + HEADER + AVX_SIZE + 8);
    __asm__ volatile("xsetbv" : : "a"(X87 | SSE), "d"(0), "c"(0));
    a = 0xd;
    c = 1;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    EQUAL(b, LEGACY + HEADER);
}

const struct test_case cases[] = {
    CASE(a_cpu_without_xsavec_refuses_its_form),
    CASE(xsavec_saves_what_xrstor_loads),
    CASE(what_is_not_asked_for_takes_no_room),
    CASE(what_is_not_in_the_area_becomes_initial),
    CASE(a_header_that_is_not_valid_is_refused),
    CASE(cpuid_says_how_large_an_area_is),
    { NULL, NULL },
};
