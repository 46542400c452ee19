//! Requests that come as a signal.
//!
//! The worker is preempted inside the handler. The kernel's frame, with all
//! registers, flags, extended state and the mask of the interrupted context,
//! stays on that context's stack; going back is returning from the handler.
//! So there is nothing to save by hand, no red zone to spare, no window between
//! the last register and the jump, and it is the same on every CPU.
//!
//! Flags of the handler, with their reasons:
//!
//! - `SA_SIGINFO` for the program counter and the stack pointer.
//! - `SA_RESTART`: a system call of the lower level goes on where it can.
//! - no `SA_ONSTACK`: the frame has to stay with its context.
//! - no `SA_NODEFER`: signals that come while the handler runs would pile up on
//!   one stack (C5).
//!
//! The signal is a standard one, which the kernel does not queue twice. SIGURG
//! is ignored by default, so that a stray one does no harm.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::arch;
use crate::context;
use crate::delivery::Kind;
use crate::error::DeliveryError;

/// The signals that have our handler.
static INSTALLED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Makes this signal preempt, in the whole process, for good.
pub(crate) fn install(signal: i32) -> Result<(), DeliveryError> {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if installed.contains(&signal) {
        return Ok(());
    }
    // SAFETY: plain data; the handler is async-signal-safe: it uses atomics,
    // thread-locals without destructors, and stacks of its own.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut before) != 0 {
            return Err(DeliveryError::BadSignal(signal));
        }
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
            return Err(DeliveryError::SignalTaken(signal));
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
            return Err(DeliveryError::BadSignal(signal));
        }
    }
    installed.push(signal);
    Ok(())
}

/// Sends the signal to one thread of this process.
pub(crate) fn send(thread: i32, signal: i32) -> io::Result<()> {
    // SAFETY: a system call on numbers. A thread that has ended is an error, or
    // another thread of this process, which ignores the signal.
    let code = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the signal in again, or keeps it out, for this thread (C5). One that
/// waits comes in at once.
pub(crate) fn set_blocked(signal: i32, blocked: bool) {
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    // SAFETY: plain data; changes the mask of this thread only.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

/// The kernel's thread id of the caller.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no preconditions. Not std's or the C library's idea of the thread,
    // which is that of the donor.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

unsafe extern "C" fn handler(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: errno always has an address; the kernel passes the context.
    let (errno, at) = unsafe { (*libc::__errno_location(), arch::interrupted_at(context)) };
    context::interrupted(Kind::Signal, at);
    // SAFETY: as above, and it is the same context's errno as before.
    unsafe { *libc::__errno_location() = errno };
}
