//! x86-64, System V.
//!
//! A stopped context's stack:
//!
//! ```text
//!         │ frames of the context  │
//! +0x38   │ where to go on         │
//! +0x30   │ rbp                    │
//! +0x28   │ rbx                    │
//! +0x20   │ r12  first frame: argument
//! +0x18   │ r13  first frame: function
//! +0x10   │ r14                    │
//! +0x08   │ r15                    │
//! +0x00   │ mxcsr │ x87 control    │◄── Saved::stack_pointer
//! ```
//!
//! Nothing is written below the stack pointer, so that a signal's frame may be
//! put there at any instruction.

use std::arch::{asm, naked_asm};

use super::Saved;

/// SSE and x87 control words as the ABI has them at program start.
const CONTROL_WORDS: u64 = 0x037f << 32 | 0x1f80;
/// `arch_prctl` and its command to write the base of thread-locals.
const ARCH_PRCTL: u32 = 158;
const ARCH_SET_FS: u32 = 0x1002;

/// Stops the current context in `from` and resumes `to`. `quick` is what
/// [`quick_swap`] said.
///
/// # Safety
/// Both contexts are of this thread, the caller runs in `from`, and both are
/// inside a region from before the switch until after it (C2).
#[unsafe(naked)]
#[unsafe(link_section = "giveway_switch")]
pub(crate) unsafe extern "sysv64" fn switch(from: *mut Saved, to: *const Saved, quick: bool) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        // Rounding, masks: the rest of both units is the caller's to save.
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        // A signal from here on finds either stack with all it holds above the
        // stack pointer, and a region under either thread pointer.
        "mov [rdi], rsp",
        "mov rsp, [rsi]",
        "mov rax, [rsi + 8]",
        "test dl, dl",
        "jz 2f",
        "wrfsbase rax",
        "3:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        // The kernel has not allowed wrfsbase: ask it to write the register.
        "2:",
        "mov rsi, rax",
        "mov edi, {set_fs}",
        "mov eax, {arch_prctl}",
        "syscall",
        "jmp 3b",
        set_fs = const ARCH_SET_FS,
        arch_prctl = const ARCH_PRCTL,
    )
}

/// Where a new context starts: calls the function of its first frame, which
/// does not return. Unwinders stop here.
#[unsafe(naked)]
#[unsafe(link_section = "giveway_switch")]
unsafe extern "sysv64" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        // Debuggers that follow frame pointers stop here, too.
        "xor ebp, ebp",
        "mov rdi, r12",
        "call r13",
        "ud2",
        ".cfi_endproc",
    )
}

/// Prepares a stack that ends below `top` so that `switch` to it calls
/// `function(argument)` with the default control words.
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
    let start = start as unsafe extern "sysv64" fn();
    let frame: [u64; 8] = [
        CONTROL_WORDS,
        0,
        0,
        function as usize as u64,
        argument.addr() as u64,
        0,
        0,
        start as usize as u64,
    ];
    // SAFETY: 64 bytes below `top` are the caller's.
    let stack_pointer = unsafe { top.cast::<[u64; 8]>().sub(1) };
    // SAFETY: as above; aligned, as 64 is a multiple of 16.
    unsafe { stack_pointer.write(frame) };
    Saved {
        stack_pointer: stack_pointer.expose_provenance(),
        thread_pointer,
    }
}

/// Whether programs may write the base of thread-locals themselves.
pub(crate) fn quick_swap() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: reads the auxiliary vector.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    capabilities & HWCAP2_FSGSBASE != 0
}

/// The base of the current thread's thread-locals.
pub(crate) fn thread_pointer() -> usize {
    let base: usize;
    // SAFETY: the ABI keeps the base in the first word it points to.
    unsafe { asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly, pure)) };
    base
}

/// Program counter and stack pointer of what a signal interrupted.
///
/// # Safety
/// `context` is the third argument of a signal handler.
pub(crate) unsafe fn interrupted_at(context: *const libc::c_void) -> (usize, usize) {
    // SAFETY: the kernel passes a ucontext.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    (
        registers[libc::REG_RIP as usize] as usize,
        registers[libc::REG_RSP as usize] as usize,
    )
}
