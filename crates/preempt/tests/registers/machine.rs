//! Everything a program can see of an x86-64 CPU, set to a pattern, held for a
//! while, and read back.

use std::arch::naked_asm;
use std::cell::UnsafeCell;

/// Registers, flags, extended state, red zone.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// 32 registers of 512 bits; with less, the lower parts of the first 16.
    pub(crate) vectors: [[u64; 8]; 32],
    /// k0 to k7.
    pub(crate) masks: [u64; 8],
    /// All but the stack pointer.
    pub(crate) general: [u64; 15],
    pub(crate) flags: u64,
    /// What lies below the stack pointer.
    pub(crate) red_zone: [u64; 16],
    /// Eight values on the x87 stack.
    pub(crate) x87: [f64; 8],
    pub(crate) mxcsr: u32,
    pub(crate) x87_control: u32,
}

impl Machine {
    /// What is different in `other`, by name and number.
    pub(crate) fn differences(&self, other: &Machine) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: &str, mine: &[u64], others: &[u64]| {
            for (number, (mine, other)) in mine.iter().zip(others).enumerate() {
                if mine != other {
                    found.push(format!("{name} {number}: {mine:#x}, {other:#x}"));
                }
            }
        };
        compare("general register", &self.general, &other.general);
        compare("flags", &[self.flags], &[other.flags]);
        compare(
            "word below the stack pointer",
            &self.red_zone,
            &other.red_zone,
        );
        compare("mxcsr", &[self.mxcsr.into()], &[other.mxcsr.into()]);
        let (mine, others) = (self.x87_control.into(), other.x87_control.into());
        compare("x87 control word", &[mine], &[others]);
        let (mine, others) = (self.x87.map(f64::to_bits), other.x87.map(f64::to_bits));
        compare("x87 register", &mine, &others);
        compare("mask register", &self.masks, &other.masks);
        let (mine, others) = (self.vectors.as_flattened(), other.vectors.as_flattened());
        compare("eighth of a vector", mine, others);
        found
    }
}

const ZERO: Machine = Machine {
    vectors: [[0; 8]; 32],
    masks: [0; 8],
    general: [0; 15],
    flags: 0,
    red_zone: [0; 16],
    x87: [0.0; 8],
    mxcsr: 0,
    x87_control: 0,
};

/// Where the assembly reads and writes. One test uses it.
#[repr(transparent)]
struct Shared(UnsafeCell<Machine>);

// SAFETY: only the thread that calls `hold` uses them.
unsafe impl Sync for Shared {}

static IN: Shared = Shared(UnsafeCell::new(ZERO));
static OUT: Shared = Shared(UnsafeCell::new(ZERO));
/// How wide vectors are: 0 for 128 bits, 1 for 256, 2 for 512.
static WIDTH: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

const VECTORS: usize = std::mem::offset_of!(Machine, vectors);
const MASKS: usize = std::mem::offset_of!(Machine, masks);
const GENERAL: usize = std::mem::offset_of!(Machine, general);
const FLAGS: usize = std::mem::offset_of!(Machine, flags);
const RED_ZONE: usize = std::mem::offset_of!(Machine, red_zone);
const X87: usize = std::mem::offset_of!(Machine, x87);
const MXCSR: usize = std::mem::offset_of!(Machine, mxcsr);
const X87_CONTROL: usize = std::mem::offset_of!(Machine, x87_control);

/// The width of this machine's vectors, as the assembly has it.
pub(crate) fn width() -> u8 {
    let width = if is_x86_feature_detected!("avx512bw") {
        2
    } else {
        u8::from(is_x86_feature_detected!("avx"))
    };
    WIDTH.store(width, std::sync::atomic::Ordering::Relaxed);
    width
}

/// Sets the CPU to `machine`, executes a few µs of nothing, and reads it back.
pub(crate) fn hold(machine: &Machine) -> Machine {
    // SAFETY: one thread at a time, see `Shared`; `hold_here` restores what a
    // function call preserves.
    unsafe {
        *IN.0.get() = *machine;
        *OUT.0.get() = ZERO;
        hold_here();
        *OUT.0.get()
    }
}

#[unsafe(naked)]
unsafe extern "sysv64" fn hold_here() {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "fninit",
        "fldcw [rip + {input} + {x87_control}]",
        ".irp i,0,1,2,3,4,5,6,7",
        "fld qword ptr [rip + {input} + {x87} + 8*\\i]",
        ".endr",
        "ldmxcsr [rip + {input} + {mxcsr}]",
        "cmp byte ptr [rip + {width}], 1",
        "jb 20f",
        "je 21f",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovups zmm\\i, [rip + {input} + {vectors} + 64*\\i]",
        ".endr",
        ".irp i,0,1,2,3,4,5,6,7",
        "kmovq k\\i, [rip + {input} + {masks} + 8*\\i]",
        ".endr",
        "jmp 22f",
        "21:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovups ymm\\i, [rip + {input} + {vectors} + 64*\\i]",
        ".endr",
        "jmp 22f",
        "20:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups xmm\\i, [rip + {input} + {vectors} + 64*\\i]",
        ".endr",
        "22:",
        "push qword ptr [rip + {input} + {flags}]",
        "popfq",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "mov rax, [rip + {input} + {red_zone} + 8*\\i]",
        "mov [rsp - 8 - 8*\\i], rax",
        ".endr",
        ".macro general name, at",
        "mov \\name, [rip + {input} + {general} + 8*\\at]",
        ".endm",
        "general rax, 0",
        "general rbx, 1",
        "general rcx, 2",
        "general rdx, 3",
        "general rsi, 4",
        "general rdi, 5",
        "general rbp, 6",
        "general r8, 7",
        "general r9, 8",
        "general r10, 9",
        "general r11, 10",
        "general r12, 11",
        "general r13, 12",
        "general r14, 13",
        "general r15, 14",
        ".purgem general",
        // Everything is set. Preempt here.
        ".rept 200",
        "pause",
        ".endr",
        ".macro general name, at",
        "mov [rip + {output} + {general} + 8*\\at], \\name",
        ".endm",
        "general rax, 0",
        "general rbx, 1",
        "general rcx, 2",
        "general rdx, 3",
        "general rsi, 4",
        "general rdi, 5",
        "general rbp, 6",
        "general r8, 7",
        "general r9, 8",
        "general r10, 9",
        "general r11, 10",
        "general r12, 11",
        "general r13, 12",
        "general r14, 13",
        "general r15, 14",
        ".purgem general",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "mov rax, [rsp - 8 - 8*\\i]",
        "mov [rip + {output} + {red_zone} + 8*\\i], rax",
        ".endr",
        "pushfq",
        "pop qword ptr [rip + {output} + {flags}]",
        "cld",
        "stmxcsr [rip + {output} + {mxcsr}]",
        "fnstcw [rip + {output} + {x87_control}]",
        ".irp i,7,6,5,4,3,2,1,0",
        "fstp qword ptr [rip + {output} + {x87} + 8*\\i]",
        ".endr",
        "cmp byte ptr [rip + {width}], 1",
        "jb 30f",
        "je 31f",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovups [rip + {output} + {vectors} + 64*\\i], zmm\\i",
        ".endr",
        ".irp i,0,1,2,3,4,5,6,7",
        "kmovq [rip + {output} + {masks} + 8*\\i], k\\i",
        ".endr",
        "vzeroupper",
        "jmp 32f",
        "31:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovups [rip + {output} + {vectors} + 64*\\i], ymm\\i",
        ".endr",
        "vzeroupper",
        "jmp 32f",
        "30:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups [rip + {output} + {vectors} + 64*\\i], xmm\\i",
        ".endr",
        "32:",
        "fninit",
        "push 0x1f80",
        "ldmxcsr [rsp]",
        "pop rax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        input = sym IN,
        output = sym OUT,
        width = sym WIDTH,
        vectors = const VECTORS,
        masks = const MASKS,
        general = const GENERAL,
        flags = const FLAGS,
        red_zone = const RED_ZONE,
        x87 = const X87,
        mxcsr = const MXCSR,
        x87_control = const X87_CONTROL,
    )
}

/// What a function call preserves, in `machine`: set, then `call` called, then
/// read back; everything else is zero.
#[allow(dead_code, reason = "one of the two users only interrupts")]
pub(crate) fn hold_across(machine: &Machine, call: extern "sysv64" fn()) -> Machine {
    // SAFETY: one thread at a time, see `Shared`; `hold_across_here` restores what
    // a function call preserves.
    unsafe {
        *IN.0.get() = *machine;
        *OUT.0.get() = ZERO;
        hold_across_here(call);
        *OUT.0.get()
    }
}

#[unsafe(naked)]
unsafe extern "sysv64" fn hold_across_here(call: extern "sysv64" fn()) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "fldcw [rip + {input} + {x87_control}]",
        "ldmxcsr [rip + {input} + {mxcsr}]",
        "mov rbx, [rip + {input} + {general} + 8*1]",
        "mov rbp, [rip + {input} + {general} + 8*6]",
        "mov r12, [rip + {input} + {general} + 8*11]",
        "mov r13, [rip + {input} + {general} + 8*12]",
        "mov r14, [rip + {input} + {general} + 8*13]",
        "mov r15, [rip + {input} + {general} + 8*14]",
        "call rdi",
        "mov [rip + {output} + {general} + 8*1], rbx",
        "mov [rip + {output} + {general} + 8*6], rbp",
        "mov [rip + {output} + {general} + 8*11], r12",
        "mov [rip + {output} + {general} + 8*12], r13",
        "mov [rip + {output} + {general} + 8*13], r14",
        "mov [rip + {output} + {general} + 8*14], r15",
        "fnstcw [rip + {output} + {x87_control}]",
        "stmxcsr [rip + {output} + {mxcsr}]",
        "fninit",
        "mov dword ptr [rsp], 0x1f80",
        "ldmxcsr [rsp]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        input = sym IN,
        output = sym OUT,
        general = const GENERAL,
        mxcsr = const MXCSR,
        x87_control = const X87_CONTROL,
    )
}

/// Overwrites everything that a function may overwrite.
#[unsafe(naked)]
pub(crate) unsafe extern "sysv64" fn spoil() {
    naked_asm!(
        "fninit",
        ".rept 8",
        "fldpi",
        ".endr",
        "fninit",
        "cmp byte ptr [rip + {width}], 1",
        "jb 20f",
        "je 21f",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vpternlogd zmm\\i, zmm\\i, zmm\\i, 255",
        ".endr",
        ".irp i,0,1,2,3,4,5,6,7",
        "kxnorq k\\i, k\\i, k\\i",
        ".endr",
        "jmp 22f",
        "21:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vcmptrueps ymm\\i, ymm\\i, ymm\\i",
        ".endr",
        "jmp 22f",
        "20:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "pcmpeqd xmm\\i, xmm\\i",
        ".endr",
        "22:",
        ".irp i,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "mov qword ptr [rsp - 8*\\i], -1",
        ".endr",
        // Sticky exceptions stay set; the control bits are preserved.
        "push 0x1fbf",
        "ldmxcsr [rsp]",
        "pop rax",
        "mov rax, -1",
        "mov rcx, rax",
        "mov rdx, rax",
        "mov rsi, rax",
        "mov rdi, rax",
        "mov r8, rax",
        "mov r9, rax",
        "mov r10, rax",
        "mov r11, rax",
        "xor eax, eax",
        "ret",
        width = sym WIDTH,
    )
}

/// All flags a program can set without a trap: carry, parity, adjust, zero, sign,
/// direction, overflow.
const FLAGS_SET: u64 = 0xcd5;
/// What reads as set whatever is written: bit 1, and interrupts enabled.
const FLAGS_ALWAYS: u64 = 0x202;
/// Rounding, flush to zero, denormals, sticky exceptions; all of them masked.
const MXCSR_SET: u32 = 0xe07f;
const MXCSR_ALWAYS: u32 = 0x1f80;
/// Rounding and precision; all exceptions masked.
const X87_CONTROL_SET: u32 = 0x0f00;
const X87_CONTROL_ALWAYS: u32 = 0x007f;

/// A machine whose every part is random, for vectors of this [`width`].
pub(crate) fn pattern(seed: u64, width: u8) -> Machine {
    let mut x = seed | 1;
    // Marsaglia's xorshift.
    let mut word = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let (registers, words) = [(16, 2), (16, 4), (32, 8)][usize::from(width)];
    let mut vectors = [[0; 8]; 32];
    for vector in &mut vectors[..registers] {
        vector[..words].fill_with(&mut word);
    }
    let mut masks = [0; 8];
    if width == 2 {
        masks.fill_with(&mut word);
    }
    Machine {
        vectors,
        masks,
        general: std::array::from_fn(|_| word()),
        flags: word() & FLAGS_SET | FLAGS_ALWAYS,
        red_zone: std::array::from_fn(|_| word()),
        // Whole numbers survive the way through any precision.
        x87: std::array::from_fn(|_| (word() >> 42) as f64),
        mxcsr: word() as u32 & MXCSR_SET | MXCSR_ALWAYS,
        x87_control: word() as u32 & X87_CONTROL_SET & !0x100 | X87_CONTROL_ALWAYS,
    }
}
