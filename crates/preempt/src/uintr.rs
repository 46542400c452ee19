//! Requests that come as a user interrupt (Section 4.2): from one program to
//! another thread of it, without the kernel, in less than 1 µs.
//!
//! **Run in the lab's emulator, not on hardware.** No machine with user interrupts was at
//! hand. The handler's assembly is tested everywhere, on frames that look as the CPU
//! would have pushed them (module `tests`).
//!
//! Mainline Linux has no user interrupts. Intel's patches have system calls whose
//! numbers mean something else in mainline by now (471 is `rseq_slice_yield`),
//! so probing for them could do anything; they are not used. The module in
//! `kernel/uintr` gives `/dev/uintr`, and is: a receiver for each worker, and an index
//! with which any thread of the process sends to it. The driver of UB-ADBLAB, whose
//! interface that is, has one sender's index for one thread; it is refused.
//!
//! A worker that has left fails nobody: its sender is a quiet one, and is freed when
//! nobody can use it any more, with the [`Receiver`].
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
//! Then everything is as in a signal handler. But no kernel looks whether the frame
//! fits, and no signal mask keeps user interrupts out of a program's own signal
//! handlers, whose stacks may be small. So the general registers are all that is pushed
//! (with the CPU's frame and the red zone, 280 bytes) before the stack pointer is
//! compared with the context's bounds. Outside of them the rest is done on the worker's
//! spare stack, and the gate `Stack` refuses (L4).
//!
//! What differs from the published code: nothing is written into the red zone (it jumps
//! through −0x80(%rsp), which is inside); the area is as large as what is saved (it
//! reserves 8 KiB for everything); the tiles of AMX, which are as large as that, are saved
//! while they are in use; UIRET leaves no window between the last register and the jump.

use std::arch::{asm, naked_asm};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::context;
use crate::delivery::{Delivery, Kind};
use crate::error::DeliveryError;
use crate::{arch, local};

const DEVICE: &str = "/dev/uintr";

/// A number of `kernel/uintr/uintr.h`: `_IOW('u', number, size)`, `_IO` without a size.
const fn request(number: u8, size: usize) -> libc::c_ulong {
    let write = if size > 0 { 1 << 30 } else { 0 };
    write | (size as libc::c_ulong) << 16 | (b'u' as libc::c_ulong) << 8 | number as libc::c_ulong
}

const REGISTER_HANDLER: libc::c_ulong = request(0, size_of::<HandlerArgs>());
const UNREGISTER_HANDLER: libc::c_ulong = request(1, 0);
const REGISTER_SENDER: libc::c_ulong = request(2, size_of::<SenderArgs>());
const UNREGISTER_SENDER: libc::c_ulong = request(3, size_of::<u64>());
const INTERFACE: libc::c_ulong = request(32, 0);
const VERSION: libc::c_int = 1;

/// Without a stack, frames go below the red zone.
#[repr(C)]
struct HandlerArgs {
    handler: *const (),
    stack: *const (),
    stack_size: usize,
    flags: u32,
}

const _: () = assert!(size_of::<HandlerArgs>() == 32);

#[repr(C)]
struct SenderArgs {
    receiver: u64,
    vector: u32,
    flags: u32,
}

/// What is sent to a receiver that is no more goes nowhere.
const QUIET: u32 = 1;

/// Whether user interrupts can be used; otherwise, what is missing.
pub(crate) fn detect() -> Result<(), &'static str> {
    let leaf = |leaf, subleaf| std::arch::x86_64::__cpuid_count(leaf, subleaf);
    if leaf(0, 0).eax < 0xd || leaf(7, 0).edx & 1 << 5 == 0 {
        return Err("the CPU has no user interrupts");
    }
    if leaf(0xd, 1).eax & 1 << 1 == 0 {
        return Err("the CPU has no XSAVEC");
    }
    let device = open().map_err(|_| "the module uintr (kernel/uintr), which makes /dev/uintr")?;
    is_ours(&device)
        .then_some(())
        .ok_or("/dev/uintr is another driver's; load the module of kernel/uintr in its place")
}

/// Whether the module of `kernel/uintr` made the device, in the version used here. Asking
/// changes nothing.
fn is_ours(device: &File) -> bool {
    // SAFETY: it takes nothing, and no driver has another call of this number.
    unsafe { libc::ioctl(device.as_raw_fd(), INTERFACE) == VERSION }
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// A worker that user interrupts reach.
pub(crate) struct Receiver {
    device: File,
    /// The receiver; its number names it.
    file: OwnedFd,
    /// What SENDUIPI takes, in any thread of the process.
    index: u64,
}

impl Receiver {
    /// Makes the calling thread a receiver, which lets nothing in yet.
    pub(crate) fn register() -> Result<Receiver, DeliveryError> {
        Receiver::try_register().map_err(|source| DeliveryError::System {
            delivery: Delivery::UserInterrupt,
            source,
        })
    }

    fn try_register() -> io::Result<Receiver> {
        prepare();
        let device = open()?;
        // Before anything is registered: another driver would keep it.
        if !is_ours(&device) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let handler = HandlerArgs {
            handler: handler as *const (),
            stack: std::ptr::null(),
            stack_size: 0,
            flags: 0,
        };
        // SAFETY: the module reads the structure it defines, and the handler is one.
        let number =
            checked(unsafe { libc::ioctl(device.as_raw_fd(), REGISTER_HANDLER, &handler) })?;
        // SAFETY: the module has opened it for this call.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        let sender = SenderArgs {
            receiver: number as u64,
            vector: 0,
            flags: QUIET,
        };
        // SAFETY: as above.
        let index = checked(unsafe { libc::ioctl(device.as_raw_fd(), REGISTER_SENDER, &sender) });
        if index.is_err() {
            // SAFETY: it takes the number by value.
            unsafe { libc::ioctl(device.as_raw_fd(), UNREGISTER_HANDLER, word(number)) };
        }
        Ok(Receiver {
            device,
            file,
            index: index? as u64,
        })
    }

    /// Interrupts the worker, from any thread of the process.
    pub(crate) fn send(&self) {
        // SAFETY: the index is registered until this is dropped; SENDUIPI changes no
        // memory of ours.
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

    /// Ends it, for the calling thread. What is sent from now on goes nowhere.
    pub(crate) fn unregister(&self) {
        self.set_blocked(true);
        // SAFETY: it takes the number by value. It can only fail to know it, and then
        // there is nothing to end.
        unsafe {
            libc::ioctl(
                self.device.as_raw_fd(),
                UNREGISTER_HANDLER,
                word(self.file.as_raw_fd()),
            )
        };
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // SAFETY: it takes the index by value, and nobody is left who could use it.
        unsafe { libc::ioctl(self.device.as_raw_fd(), UNREGISTER_SENDER, self.index) };
    }
}

/// A number as `ioctl` takes it: all bits of the register count.
fn word(number: RawFd) -> libc::c_ulong {
    number as libc::c_ulong
}

fn checked(returned: libc::c_int) -> io::Result<libc::c_int> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

/// The parts of the extended state that are saved, and the bytes that they take. Written
/// before the first interrupt, read by the assembly, as all of these.
static STATE_MASK: AtomicU64 = AtomicU64::new(0);
static STATE_BYTES: AtomicU64 = AtomicU64::new(0);
/// The tiles of AMX, which are saved beside these while they are in use, and the bytes
/// with them. 0 where there are none.
static TILES_MASK: AtomicU64 = AtomicU64::new(0);
static TILES_BYTES: AtomicU64 = AtomicU64::new(0);
/// Where a thread has its [`local::Local`], from its thread pointer: the same in each, since
/// it is the program's own (`EnterError::NotExecutable`).
static LOCAL: AtomicU64 = AtomicU64::new(0);

/// XTILECFG and XTILEDATA.
const TILES: u64 = 1 << 17 | 1 << 18;

/// What the handler knows of the CPU and the program.
fn prepare() {
    let (low, high): (u32, u32);
    // SAFETY: reads XCR0, which every CPU with XSAVEC has.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    let enabled = u64::from(high) << 32 | u64::from(low);
    let leaf = |subleaf| std::arch::x86_64::__cpuid_count(0xd, subleaf);
    // Whether XGETBV says what is in use; else the tiles are always saved.
    let tells = leaf(1).eax & 1 << 2 != 0;
    let tiles = if tells { enabled & TILES } else { 0 };
    let part = |number| (leaf(number).eax, leaf(number).ecx & 1 << 1 != 0);
    STATE_MASK.store(enabled & !tiles, Relaxed);
    STATE_BYTES.store(area(enabled & !tiles, part), Relaxed);
    TILES_MASK.store(tiles, Relaxed);
    TILES_BYTES.store(area(enabled, part), Relaxed);
    let here = local::with(|local| std::ptr::from_ref(local).addr());
    LOCAL.store(here.wrapping_sub(arch::thread_pointer()) as u64, Relaxed);
}

/// How many bytes XSAVEC takes for a mask (volume 1, 13.4.3): the legacy area and the
/// header, then one part after the other. `part` has the size of one, and whether it
/// begins at a multiple of 64.
fn area(mask: u64, part: impl Fn(u32) -> (u32, bool)) -> u64 {
    let parts = (2..63).filter(|number| mask & 1 << number != 0).map(part);
    parts.fold(512 + 64, |end, (bytes, aligned)| {
        let begin = if aligned { (end + 63) & !63 } else { end };
        begin + u64::from(bytes)
    })
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
                // Elsewhere, unless the context has room here (L4).
                "mov rax, [rip + {local}]",
                "mov rcx, [rbp + 0x78 + 0x18]",
                "cmp rcx, fs:[rax + {floor}]",
                "jb 2f",
                "cmp rcx, fs:[rax + {ceiling}]",
                "jb 3f",
                "2:",
                "mov rsp, fs:[rax + {spare}]",
                "3:",
                // What is saved: the tiles only if they are in use now.
                "mov r12, [rip + {bytes}]",
                "mov r13, [rip + {mask}]",
                "mov r14, [rip + {tiles}]",
                "test r14, r14",
                "jz 4f",
                "mov ecx, 1",
                "xgetbv",
                "test eax, r14d",
                "jz 4f",
                "mov r12, [rip + {with_tiles}]",
                "or r13, r14",
                "4:",
                // XSAVEC wants a multiple of 64, and XRSTOR a header of zeros.
                "sub rsp, r12",
                "and rsp, -64",
                "xor eax, eax",
                "lea rdi, [rsp + 512]",
                "mov ecx, 8",
                "rep stosq",
                "mov eax, r13d",
                "mov rdx, r13",
                "shr rdx, 32",
                "xsavec64 [rsp]",
                // What a function may expect: no x87 values, default control.
                "fninit",
                "push 0x1f80",
                "ldmxcsr [rsp]",
                "add rsp, 8",
                "mov rdi, [rbp + 0x78 + 0x08]",
                "mov rsi, [rbp + 0x78 + 0x18]",
                "call {interrupted}",
                // Tiles that were not in use are not again, whoever has used them since.
                "or r13, r14",
                "mov eax, r13d",
                "mov rdx, r13",
                "shr rdx, 32",
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
                tiles = sym TILES_MASK,
                with_tiles = sym TILES_BYTES,
                local = sym LOCAL,
                floor = const local::offset::FLOOR,
                ceiling = const local::offset::CEILING,
                spare = const local::offset::SPARE,
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
    context::interrupted(Kind::User, (program_counter, stack_pointer));
    // SAFETY: as above, and it is the same context's errno as before.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests;
