// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * From power-on to C, and between C and what the CPU calls: see bare.h.
 *
 *   start32   where QEMU starts the first CPU: 32-bit protected mode, no paging
 *   ap16      where an INIT-SIPI starts another, copied to AP_PAGE
 *   both      -> long64: 64-bit mode, the tables of this file, a stack of its own
 *
 * Memory is mapped one to one: 1 GiB for everybody in pages of 2 MiB, of which C
 * changes single ones, and the last GiB below 4 GiB, with the APIC, for the kernel.
 */
#include "bare.h"

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18
    .asciz "Xen"
    .quad start32

    .data
    .balign 4096
pml4:
    .quad pdpt + 7
    .fill 511, 8, 0
pdpt:
    .quad page_directory + 7, 0, 0, 0xc0000083
    .fill 508, 8, 0
    .globl page_directory
page_directory:
    .set page, 0
    .rept 512
    .quad page + 0x87
    .set page, page + 0x200000
    .endr

started:
    .long 0

    .section .kernel, "aw"
    .balign 16
    .globl gdt
gdt:
    .quad 0
    .quad 0x00af9b000000ffff // KERNEL_CS
    .quad 0x00cf93000000ffff // KERNEL_DS
    .quad 0x00cffb000000ffff // USER_CS32
    .quad 0x00cff3000000ffff // USER_DS
    .quad 0x00affb000000ffff // USER_CS
    .quad 0x00cf9b000000ffff // KERNEL_CS32
    .quad 0
    .fill 2 * CPUS, 8, 0 // TSS_OF(cpu)
gdt_end:
    .globl gdt_pointer
gdt_pointer:
    .word gdt_end - gdt - 1
    .quad gdt

    .text
    .code32
    .globl start32
start32:
    mov %ebx, start_info
both:
    mov $KERNEL_DS, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $0x20, %eax // PAE
    mov %eax, %cr4
    mov $pml4, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x101, %eax // SCE, LME
    wrmsr
    mov $0x80010011, %eax // PG, WP, ET, PE
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $KERNEL_CS, $long64
    .code64
long64:
    mov $1, %edi
    lock xadd %edi, started(%rip)
    mov %edi, %eax
    inc %eax
    shl $STACK_LOG2, %eax
    lea kernel_stacks(%rax), %rsp
    call begin
    ud2

    .globl ap16, ap16_end
    .code16
ap16:
    cli
    lgdtl %cs:ap_pointer - ap16
    mov $0x11, %eax
    mov %eax, %cr0
    ljmpl $KERNEL_CS32, $both
ap_pointer:
    .word gdt_end - gdt - 1
    .long gdt
ap16_end:
    .code64

/* Every vector leaves a struct trap on the stack. */
    .macro push_all
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    .endm
    .macro pop_all
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    .endm

    .globl vectors
    .balign 16
vectors:
    .set vector, 0
    .rept 256
    .balign 16
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17)
    push $0
    .endif
    push $vector
    jmp trapped
    .set vector, vector + 1
    .endr
trapped:
    push_all
    mov %rsp, %rdi
    cld
    call trap
    pop_all
    add $16, %rsp
    iretq

/* What a user interrupt calls: a struct user_interrupt is on the stack. */
    .globl user_interrupt_entry
user_interrupt_entry:
    push_all
    mov %rsp, %rdi
    sub $8, %rsp
    cld
    call user_interrupted
    add $8, %rsp
    pop_all
    add $8, %rsp
    uiret

/* enter(struct trap *to, uint64_t *saved): goes there; comes back by come_back(saved). */
    .globl enter
enter:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rsi)
    mov %rdi, %rsp
    pop_all
    add $16, %rsp
    iretq
    .globl come_back
come_back:
    mov (%rdi), %rsp
    movq $0, (%rdi)
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

/* What enter() goes to: calls what RDI says and returns to the kernel. */
    .globl call_and_return
call_and_return:
    call *%rdi
    int $RETURN_VECTOR

    .section .note.GNU-stack, "", @progbits
