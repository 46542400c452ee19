//! Requests that come as a user interrupt (Section 4.2): from one program to
//! another thread of it, without the kernel, in less than 1 µs.
//!
//! **Not run on hardware.** No machine with user interrupts was at hand. What is
//! tested is the handler's assembly, on frames that look as the CPU would have
//! pushed them (module `tests`); what is read is the driver's source.
//!
//! Mainline Linux has no user interrupts. Intel's patches have system calls whose
//! numbers mean something else in mainline by now (471 is `rseq_slice_yield`),
//! so probing for them could do anything; they are not used. The out-of-tree
//! module of UB-ADBLAB gives `/dev/uintr`, and is. Its registration is for the
//! whole process: one worker per process.
//!
//! Delivery and return, by Intel's manual (volume 3, chapter 7; "UIRET"):
//!
//! ```text
//!        │ interrupted frame       │         handler ends:
//!        │ red zone, 128 bytes     │           UIRET pops rip, flags, rsp and
//!  +0x18 │ rsp                     │           lets user interrupts in again,
//!  +0x10 │ flags                   │           in one step
//!  +0x08 │ rip                     │
//!  +0x00 │ vector                  │◄─ rsp, a multiple of 16; UIF = 0
//! ```
//!
//! The handler saves what a function call does not preserve, and the extended
//! state: on the interrupted context's stack, as the kernel does for a signal.
//! Then everything is as in a signal handler. What differs from the published
//! code: nothing is written into the red zone (it jumps through −0x80(%rsp),
//! which is inside); the area is as large as the CPU says and without the tiles
//! of AMX (it reserves 8 KiB for everything); UIRET leaves no window between the
//! last register and the jump.

use std::arch::{asm, naked_asm};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context;
use crate::delivery::Delivery;
use crate::error::DeliveryError;

const DEVICE: &str = "/dev/uintr";
/// `_IOW('u', 0, HandlerArgs)` and `_IO('u', 1)`, as the driver has them.
const REGISTER_HANDLER: libc::c_ulong = 1 << 30 | 32 << 16 | (b'u' as libc::c_ulong) << 8;
const UNREGISTER_HANDLER: libc::c_ulong = (b'u' as libc::c_ulong) << 8 | 1;

/// The driver's argument; without a stack, frames go below the red zone.
#[repr(C)]
struct HandlerArgs {
    handler: *const (),
    stack: *const (),
    stack_size: usize,
    flags: u32,
}

const _: () = assert!(size_of::<HandlerArgs>() == 32);

/// Whether user interrupts can be used; otherwise, what is missing.
pub(crate) fn detect() -> Result<(), &'static str> {
    let leaf = |leaf, subleaf| std::arch::x86_64::__cpuid_count(leaf, subleaf);
    if leaf(0, 0).eax < 0xd || leaf(7, 0).edx & 1 << 5 == 0 {
        return Err("the CPU has no user interrupts");
    }
    if leaf(0xd, 1).eax & 1 << 1 == 0 {
        return Err("the CPU has no XSAVEC");
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map(drop)
        .map_err(|_| "the driver behind /dev/uintr, or the permission to open it")
}

/// A worker that user interrupts reach.
pub(crate) struct Receiver {
    device: File,
    index: u64,
}

impl Receiver {
    /// Makes the calling thread a receiver, which lets nothing in yet.
    pub(crate) fn register() -> Result<Receiver, DeliveryError> {
        let failed = |source| DeliveryError::System {
            delivery: Delivery::UserInterrupt,
            source,
        };
        prepare_extended_state();
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(failed)?;
        let args = HandlerArgs {
            handler: handler as *const (),
            stack: std::ptr::null(),
            stack_size: 0,
            flags: 0,
        };
        // SAFETY: the driver reads the structure it defines, and the handler is
        // one.
        let index = unsafe { libc::ioctl(device.as_raw_fd(), REGISTER_HANDLER, &args) };
        let index = u64::try_from(index).map_err(|_| failed(io::Error::last_os_error()))?;
        Ok(Receiver { device, index })
    }

    /// Interrupts the worker, from any thread of the process.
    pub(crate) fn send(&self) {
        // SAFETY: the index was registered; SENDUIPI changes no memory of ours.
        unsafe { asm!("senduipi {}", in(reg) self.index, options(nostack)) };
    }

    /// Keeps user interrupts out of the calling thread, or lets them in.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        // SAFETY: the thread has a handler, so the CPU has the instructions.
        unsafe {
            if blocked {
                asm!("clui", options(nostack));
            } else {
                asm!("stui", options(nostack));
            }
        }
    }

    /// Ends it, for the calling thread.
    pub(crate) fn unregister(&self) {
        self.set_blocked(true);
        // SAFETY: the driver takes the index as it is. It can only fail to know
        // it, and then there is nothing to end.
        unsafe { libc::ioctl(self.device.as_raw_fd(), UNREGISTER_HANDLER, self.index) };
    }
}

/// How large the extended state is, and which parts of it are saved. Written
/// before the first interrupt, read by the assembly.
static STATE_BYTES: AtomicU64 = AtomicU64::new(0);
static STATE_MASK: AtomicU64 = AtomicU64::new(0);

/// The tiles of AMX: 8 KiB that no engine keeps in registers across a point at
/// which it can be preempted.
const TILES: u64 = 1 << 17 | 1 << 18;

/// Asks the CPU about its extended state.
fn prepare_extended_state() {
    let (low, high): (u32, u32);
    // SAFETY: reads XCR0, which every CPU with XSAVEC has.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    let enabled = u64::from(high) << 32 | u64::from(low);
    let plain = std::arch::x86_64::__cpuid_count(0xd, 0).ebx;
    let compact = std::arch::x86_64::__cpuid_count(0xd, 1).ebx;
    STATE_BYTES.store(plain.max(compact).into(), Relaxed);
    STATE_MASK.store(enabled & !TILES, Relaxed);
}

/// A handler that calls `$interrupted(rip, rsp)` and ends as `$tail` says.
macro_rules! handler {
    ($(#[$meta:meta])* $name:ident, $interrupted:path, [$($tail:literal),+] $(, $operand:ident = $kind:tt $value:path)*) => {
        $(#[$meta])*
        #[unsafe(naked)]
        #[unsafe(link_section = "giveway_switch")]
        unsafe extern "sysv64" fn $name() {
            naked_asm!(
                "cld",
                "push rax",
                "push rcx",
                "push rdx",
                "push rbx",
                "push rbp",
                "push rsi",
                "push rdi",
                "push r8",
                "push r9",
                "push r10",
                "push r11",
                "push r12",
                "push r13",
                "push r14",
                "push r15",
                "mov rbp, rsp",
                // XSAVEC wants a multiple of 64, and XRSTOR a header of zeros.
                "sub rsp, [rip + {bytes}]",
                "and rsp, -64",
                "xor eax, eax",
                "lea rdi, [rsp + 512]",
                "mov ecx, 8",
                "rep stosq",
                "mov eax, [rip + {mask}]",
                "mov edx, [rip + {mask} + 4]",
                "xsavec64 [rsp]",
                // What a function may expect: no x87 values, default control.
                "fninit",
                "push 0x1f80",
                "ldmxcsr [rsp]",
                "add rsp, 8",
                "mov rdi, [rbp + 0x78 + 0x08]",
                "mov rsi, [rbp + 0x78 + 0x18]",
                "call {interrupted}",
                "mov eax, [rip + {mask}]",
                "mov edx, [rip + {mask} + 4]",
                "xrstor64 [rsp]",
                "mov rsp, rbp",
                "pop r15",
                "pop r14",
                "pop r13",
                "pop r12",
                "pop r11",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rdi",
                "pop rsi",
                "pop rbp",
                "pop rbx",
                "pop rdx",
                "pop rcx",
                "pop rax",
                // The vector.
                "lea rsp, [rsp + 8]",
                $($tail,)+
                bytes = sym STATE_BYTES,
                mask = sym STATE_MASK,
                interrupted = sym $interrupted,
                $($operand = $kind $value,)*
            )
        }
    };
}

handler! {
    /// What the CPU goes to.
    handler, interrupted, ["uiret"]
}

/// The rest of the handler.
extern "sysv64" fn interrupted(program_counter: usize, stack_pointer: usize) {
    // SAFETY: errno always has an address.
    let errno = unsafe { *libc::__errno_location() };
    context::interrupted((program_counter, stack_pointer));
    // SAFETY: as above, and it is the same context's errno as before.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests;
