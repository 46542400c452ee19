//! Whose locks the program runs on: ours, or glibc's after all.
//!
//! Decided once, at the first call of any function of this library, because
//! that may come before its constructor (from the constructor of a library
//! that is initialised earlier). A mutex must not change sides while it is in
//! use, so nothing is locked here before the settings are read.
//!
//! ```text
//! UNDECIDED -> DECIDING -> PLAIN     settings are in order, and leave locks as they are
//!                     |--> CFL       settings are in order, and every lock must look at them
//!                     '--> GLIBC     refused, or a glibc of unknown layout, with a message;
//!                                    or another program is meant
//! ```
//!
//! While the settings are read, the deciding thread's own calls go to glibc,
//! other threads wait. That is sound because a mutex that glibc has locked and
//! unlocked again is zero where our lock lives, and so is one of ours that was
//! never locked. Reading allocates from the library's own arena (`arena.rs`),
//! so normally there are no such calls.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use giveway_machine::futex;

use crate::config::{self, Settings};
use crate::errno::Errno;
use crate::{fork, layout, lock, message, stats, threads};

const UNDECIDED: u32 = 0;
const DECIDING: u32 = 1;
const CFL: u32 = 2;
const GLIBC: u32 = 3;
const PLAIN: u32 = 4;

static MODE: AtomicU32 = AtomicU32::new(UNDECIDED);
/// The thread that decides.
static DECIDER: AtomicI32 = AtomicI32::new(0);

/// Whether locks are ours.
#[inline]
pub(crate) fn is_cfl() -> bool {
    match MODE.load(Acquire) {
        PLAIN | CFL => true,
        GLIBC => false,
        _ => decide(),
    }
}

/// Whether locks are ours, have the default profile and are not counted. May
/// say no before that is decided.
#[inline]
pub(crate) fn is_plain() -> bool {
    MODE.load(Acquire) == PLAIN
}

#[cold]
fn decide() -> bool {
    let errno = Errno::save();
    // SAFETY: has no preconditions.
    let me = unsafe { libc::gettid() };
    let first = MODE.compare_exchange(UNDECIDED, DECIDING, Acquire, Acquire);
    if first.is_err() {
        while MODE.load(Acquire) == DECIDING {
            if DECIDER.load(Relaxed) == me {
                return false;
            }
            // Asleep: the decider may need this thread's CPU.
            futex::wait(&MODE, DECIDING, None);
        }
        return matches!(MODE.load(Acquire), CFL | PLAIN);
    }
    DECIDER.store(me, Relaxed);
    let ours = match config::read() {
        Ok(settings) if !is_meant(&settings) => false,
        Ok(settings) => apply(&settings),
        Err(problem) => {
            refuse(&problem);
            false
        }
    };
    let mode = match ours {
        true if lock::have_profile() || stats::are_kept() => CFL,
        true => PLAIN,
        false => GLIBC,
    };
    MODE.store(mode, Release);
    futex::wake(&MODE, u32::MAX);
    errno.restore();
    ours
}

/// Whether the settings are for this program.
fn is_meant(settings: &Settings) -> bool {
    // Not std's arguments: it learns them in a constructor, which may be later.
    // SAFETY: libc sets the pointer, to a terminated string, before any
    // constructor runs, and nobody changes it.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    (settings.programs.as_ref()).is_none_or(|patterns| {
        (patterns.iter()).any(|pattern| giveway_locks::matches(pattern.as_bytes(), name.to_bytes()))
    })
}

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// Puts the settings into force. Whether that succeeded.
fn apply(settings: &Settings) -> bool {
    let applied = layout::prepare()
        .and_then(|()| stats::prepare(&settings.stats))
        .and_then(|counts| lock::prepare(&settings.lock, counts))
        .and_then(|()| threads::prepare(&settings.group));
    if let Err(problem) = &applied {
        refuse(problem);
    } else {
        fork::register();
    }
    applied.is_ok()
}

fn refuse(problem: &str) {
    message::write(format_args!(
        "{problem}; the program runs on glibc's own locks"
    ));
}
