//! aarch64, AAPCS64. Built and read, not run: no such machine was at hand.
//!
//! A stopped context's stack:
//!
//! ```text
//!         │ frames of the context  │
//! +0xb0   ├────────────────────────┤
//! +0xa0   │ fpcr                   │
//! +0x60   │ d8 … d15               │
//! +0x50   │ x29, x30 = where to go on
//! +0x00   │ x19 … x28              │◄── Saved::stack_pointer
//! ```
//!
//! First frame: x19 is the function, x20 its argument. Nothing is written below
//! the stack pointer, so that a signal's frame may be put there at any
//! instruction. TPIDR_EL0, by which thread-locals are found, is the program's
//! to write.

use std::arch::{asm, naked_asm};

use super::Saved;

/// Stops the current context in `from` and resumes `to`.
///
/// # Safety
/// Both contexts are of this thread, the caller runs in `from`, and both are
/// inside a region from before the switch until after it (C2).
#[unsafe(naked)]
#[unsafe(link_section = "giveway_switch")]
pub(crate) unsafe extern "C" fn switch(from: *mut Saved, to: *const Saved, quick: bool) {
    naked_asm!(
        "sub sp, sp, #0xb0",
        "stp x19, x20, [sp, #0x00]",
        "stp x21, x22, [sp, #0x10]",
        "stp x23, x24, [sp, #0x20]",
        "stp x25, x26, [sp, #0x30]",
        "stp x27, x28, [sp, #0x40]",
        "stp x29, x30, [sp, #0x50]",
        "stp d8, d9, [sp, #0x60]",
        "stp d10, d11, [sp, #0x70]",
        "stp d12, d13, [sp, #0x80]",
        "stp d14, d15, [sp, #0x90]",
        "mrs x9, fpcr",
        "str x9, [sp, #0xa0]",
        // A signal from here on finds either stack with all it holds above the
        // stack pointer, and a region under either thread pointer.
        "mov x9, sp",
        "str x9, [x0]",
        "ldr x9, [x1]",
        "mov sp, x9",
        "ldr x9, [x1, #8]",
        "msr tpidr_el0, x9",
        "ldr x9, [sp, #0xa0]",
        "msr fpcr, x9",
        "ldp x19, x20, [sp, #0x00]",
        "ldp x21, x22, [sp, #0x10]",
        "ldp x23, x24, [sp, #0x20]",
        "ldp x25, x26, [sp, #0x30]",
        "ldp x27, x28, [sp, #0x40]",
        "ldp x29, x30, [sp, #0x50]",
        "ldp d8, d9, [sp, #0x60]",
        "ldp d10, d11, [sp, #0x70]",
        "ldp d12, d13, [sp, #0x80]",
        "ldp d14, d15, [sp, #0x90]",
        "add sp, sp, #0xb0",
        "ret",
    )
}

/// Where a new context starts: calls the function of its first frame, which
/// does not return. Unwinders stop here.
#[unsafe(naked)]
#[unsafe(link_section = "giveway_switch")]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        "mov x29, xzr",
        "mov x0, x20",
        "blr x19",
        "brk #1",
        ".cfi_endproc",
    )
}

/// Prepares a stack that ends below `top` so that `switch` to it calls
/// `function(argument)` with the default control word.
///
/// # Safety
/// The memory below `top`, which is a multiple of 16, is a stack that nobody
/// uses, and `thread_pointer` that of a thread that does not run meanwhile.
pub(crate) unsafe fn first_frame(
    top: *mut u8,
    thread_pointer: usize,
    function: unsafe extern "C" fn(*const ()) -> !,
    argument: *const (),
) -> Saved {
    assert!(
        top.addr().is_multiple_of(16),
        "a stack ends at a multiple of 16"
    );
    let mut frame = [0u64; 0xb0 / 8];
    frame[0] = function as usize as u64;
    frame[1] = argument.addr() as u64;
    frame[0x58 / 8] = start as unsafe extern "C" fn() as usize as u64;
    // SAFETY: the bytes below `top` are the caller's.
    let stack_pointer = unsafe { top.cast::<[u64; 0xb0 / 8]>().sub(1) };
    // SAFETY: as above; aligned, as 0xb0 is a multiple of 16.
    unsafe { stack_pointer.write(frame) };
    Saved {
        stack_pointer: stack_pointer.expose_provenance(),
        thread_pointer,
    }
}

/// Whether programs may write the base of thread-locals themselves: always.
pub(crate) fn quick_swap() -> bool {
    true
}

/// The base of the current thread's thread-locals.
pub(crate) fn thread_pointer() -> usize {
    let base: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, nomem, pure)) };
    base
}

/// Program counter and stack pointer of what a signal interrupted.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn interrupted_at(context: *const libc::c_void) -> (usize, usize) {
    // SAFETY: the kernel passes a ucontext.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    (registers.pc as usize, registers.sp as usize)
}
