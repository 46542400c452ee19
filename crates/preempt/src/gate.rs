//! The four gates between an interrupt and a preemption.
//!
//! An interrupt comes at any instruction, but a context must not be left at every
//! one. The gates are checked in this order:
//!
//! | gate | refuses | because | the request is then taken by |
//! | --- | --- | --- | --- |
//! | `Region` | inside a region | a latch is held | the region's exit |
//! | `Level` | at the requested level, or above | its turn comes by itself | the switch down |
//! | `Text` | outside of the program's own code | the C library's locks and thread-local caches | a poll point, a region's exit, the sender's next signal |
//! | `Stack` | with little stack left, on another stack, or on top of another handler | two more frames may be needed; an alternate signal stack is used again from its top | the same |
//!
//! The paper has the first, and of the third only the instructions of the switch
//! itself (Sections 4.2 and 4.4). Go's runtime asks the same questions before it
//! preempts a goroutine by a signal.
//!
//! The third protects what regions do not reach: locks inside the C library
//! (which allocates, formats, resolves symbols), the vDSO, the dynamic loader.
//! The Rust standard library is part of the program's code; what it holds
//! process-wide locks for belongs into a region (docs/build/preempt.md lists it).

use std::ops::Range;
use std::sync::OnceLock;

use crate::arch;
use crate::error::EnterError;
use crate::local::Local;

/// Why an interrupt was not taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Gate {
    Region,
    Level,
    Text,
    Stack,
}

impl Gate {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    /// Whether a request that this gate refused has to be repeated, because
    /// nothing that is sure to come takes it.
    pub(crate) fn asks_for_another(self) -> bool {
        matches!(self, Gate::Text | Gate::Stack)
    }
}

/// The gate that keeps the context of these words, interrupted at this program counter
/// and stack pointer, from being preempted; `None` if it is preempted.
pub(crate) fn refusal(
    local: &Local,
    due: u32,
    (program_counter, stack_pointer): (usize, usize),
) -> Option<Gate> {
    if local.depth() != 0 {
        return Some(Gate::Region);
    }
    if due & local.mask() == 0 {
        return Some(Gate::Level);
    }
    if !is_engine_text(program_counter) {
        return Some(Gate::Text);
    }
    (!local.has_room(stack_pointer)).then_some(Gate::Stack)
}

/// Where in a stack a context may be interrupted and left.
pub(crate) fn room(stack: &Range<usize>) -> Range<usize> {
    stack.start + headroom()..stack.end
}

/// Text of the program, without the instructions that change stacks.
struct Text {
    /// Where the program's file begins in memory.
    base: usize,
    program: Range<usize>,
    switch: Range<usize>,
}

static TEXT: OnceLock<Text> = OnceLock::new();

/// Finds out where the program's own code lies. Must have succeeded once before
/// the first interrupt.
pub(crate) fn prepare() -> Result<(), EnterError> {
    if TEXT.get().is_some() {
        return Ok(());
    }
    let mut found = Program::default();
    // SAFETY: the callback has the type that is asked for, and `found` lives.
    unsafe { libc::dl_iterate_phdr(Some(look_at_program), (&raw mut found).cast()) };
    let program = found.text.ok_or(EnterError::NotExecutable)?;
    if !found.has_interpreter {
        return Err(EnterError::StaticLibc);
    }
    let switch = arch::switch_section();
    let base = found.base;
    TEXT.get_or_init(|| Text {
        base,
        program,
        switch,
    });
    headroom();
    Ok(())
}

/// Where in the program's file an instruction is; `None` if it is not in it.
pub(crate) fn offset(program_counter: usize) -> Option<usize> {
    let text = TEXT.get()?;
    let inside = text.program.contains(&program_counter);
    inside.then(|| program_counter - text.base)
}

/// Whether this is an instruction at which a context may be left.
fn is_engine_text(program_counter: usize) -> bool {
    TEXT.get().is_some_and(|text| {
        text.program.contains(&program_counter) && !text.switch.contains(&program_counter)
    })
}

/// How much stack a context must have left under an interrupt: a nested signal
/// frame with all extended state, and the handlers' own frames.
fn headroom() -> usize {
    static HEADROOM: OnceLock<usize> = OnceLock::new();
    *HEADROOM.get_or_init(|| {
        // SAFETY: reads the auxiliary vector; 0 if the kernel does not say.
        let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        2 * frame.max(4096) + (8 << 10)
    })
}

#[derive(Default)]
struct Program {
    base: usize,
    text: Option<Range<usize>>,
    has_interpreter: bool,
}

/// Looks at the first object, which is the program, and stops.
unsafe extern "C" fn look_at_program(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a valid object; `found` is `prepare`'s.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Program>()) };
    // SAFETY: the loader's own table and its length.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    found.base = info.dlpi_addr as usize;
    let here = look_at_program as *const () as usize;
    for header in headers {
        let start = info.dlpi_addr as usize + header.p_vaddr as usize;
        let range = start..start + header.p_memsz as usize;
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_X != 0 && range.contains(&here) => {
                found.text = Some(range);
            }
            libc::PT_INTERP => found.has_interpreter = true,
            _ => {}
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_text_is_the_programs_without_the_switch_and_without_libc() {
        prepare().unwrap();
        let mine = prepare as *const () as usize;
        assert!(is_engine_text(mine));
        assert!(!is_engine_text(arch::switch as *const () as usize));
        // SAFETY: a name that the C library has.
        let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
        assert!(!malloc.is_null());
        assert!(!is_engine_text(malloc.addr()));
        assert!(!is_engine_text(0));
    }
}
