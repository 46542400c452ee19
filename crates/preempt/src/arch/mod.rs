//! What depends on the CPU: going from one stack to another, the first frame of
//! a stack, the register that thread-locals are found by, and where a signal
//! found the program. One file for each CPU, with the same items:
//!
//! | item | what it is |
//! | --- | --- |
//! | `Saved` | what a stopped context is resumed from |
//! | `switch` | stops one context and resumes another |
//! | `first_frame` | a stack on which `switch` starts a function |
//! | `thread_pointer`, `quick_swap` | the register of thread-locals, and how to write it |
//! | `interrupted_at` | program counter and stack pointer under a signal |
//!
//! `switch` saves what a function call preserves. That is enough at a poll
//! point; under a signal, the kernel has saved everything else in its frame,
//! which stays on the stopped context's stack and is restored by the return
//! from the handler, in one step with the signal mask.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("giveway-preempt switches stacks on x86-64 and aarch64 only");

/// Where a stopped context goes on. The assembly knows the offsets.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Saved {
    /// The stack pointer, below the registers that `switch` pushed.
    stack_pointer: usize,
    /// The base of the context's thread-locals: the same for its whole life.
    thread_pointer: usize,
}

impl Saved {
    /// A context that runs, and will be stopped before it is resumed.
    pub(crate) const fn running(thread_pointer: usize) -> Saved {
        Saved {
            stack_pointer: 0,
            thread_pointer,
        }
    }
}

unsafe extern "C" {
    // The linker names the ends of a section with such a name.
    #[link_name = "__start_giveway_switch"]
    static SWITCH_START: u8;
    #[link_name = "__stop_giveway_switch"]
    static SWITCH_STOP: u8;
}

/// Where the instructions lie that change stacks.
pub(crate) fn switch_section() -> std::ops::Range<usize> {
    (&raw const SWITCH_START).addr()..(&raw const SWITCH_STOP).addr()
}
