//! The group of a thread, and its number.
//!
//! The settings' groups become rules of the core, which places a thread when it
//! first contends for a lock: by its name and its cgroup; the first rule that
//! matches decides. Threads are often started first and named then, by
//! themselves or by another thread, so `pthread_setname_np` has the
//! thread placed again.
//!
//! Weakness: a name given with `prctl(PR_SET_NAME)` or through `/proc`, and a
//! move to another cgroup, are not noticed after the thread was placed.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use giveway_locks::{Group, Rules};
use libc::{clockid_t, pthread_t};

use crate::config::GroupSettings;
use crate::errno::Errno;
use crate::{glibc, mode};

thread_local! {
    /// The kernel's number of this thread; 0 until somebody asks. Plain, so
    /// that it needs no destructor.
    static ID: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of the calling thread, which is not 0.
#[inline]
pub(crate) fn id() -> u32 {
    match ID.get() {
        0 => {
            // SAFETY: has no preconditions.
            let id = unsafe { libc::gettid() } as u32;
            ID.set(id);
            id
        }
        id => id,
    }
}

/// Whether the process has no other thread, so that the atomic instructions of a
/// lock can be left out, as glibc leaves them out of its own. Becomes false
/// before a second thread runs.
#[inline]
pub(crate) fn is_only_one() -> bool {
    // SAFETY: glibc's own, from 2.32 on; a byte, which only this process's
    // only thread changes.
    unsafe { __libc_single_threaded.load(Relaxed) != 0 }
}

unsafe extern "C" {
    static __libc_single_threaded: AtomicU8;
}

/// The only thread of a fork's child has another number.
pub(crate) fn fork_child() {
    ID.set(0);
}

/// Makes the groups, and has threads placed from now on.
///
/// # Errors
///
/// A sentence if a group cannot be made.
pub(crate) fn prepare(groups: &[GroupSettings]) -> Result<(), String> {
    let mut rules = Rules::new();
    for settings in groups {
        let group = Group::new(&settings.name)
            .and_then(|group| group.weight(settings.weight))
            .map_err(|error| format!("group {}: {error}", settings.name))?;
        for pattern in &settings.threads {
            rules = rules.thread(pattern, group);
        }
        for pattern in &settings.cgroups {
            rules = rules.cgroup(pattern, group);
        }
    }
    if !groups.is_empty() {
        rules.install();
    }
    Ok(())
}

/// `pthread_setname_np`, and a new place for the thread.
///
/// # Safety
///
/// As for `pthread_setname_np`.
pub(crate) unsafe fn set_name(thread: pthread_t, name: *const c_char) -> c_int {
    // SAFETY: passed on as it came.
    let result = unsafe { glibc::pthread_setname_np(thread, name) };
    if result != 0 || !mode::is_cfl() {
        return result;
    }
    let errno = Errno::save();
    // SAFETY: the thread is one that glibc has just named.
    match unsafe { id_of(thread) } {
        Some(other) if other != id() => giveway_locks::register_other(other),
        _ => giveway_locks::register(),
    }
    errno.restore();
    result
}

/// The kernel's number of a thread. glibc tells it only by the number of the
/// thread's CPU clock, whose form is the kernel's: the complement above three
/// bits that say which kind of clock it is.
///
/// # Safety
///
/// `thread` is a thread that has not been joined.
unsafe fn id_of(thread: pthread_t) -> Option<u32> {
    let mut clock: clockid_t = 0;
    // SAFETY: by the caller, and `clock` is a place for the answer.
    match unsafe { libc::pthread_getcpuclockid(thread, &mut clock) } {
        0 => u32::try_from(!(clock >> 3)).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_the_clock_is_the_threads() {
        // SAFETY: the calling thread is not joined while it calls.
        assert_eq!(unsafe { id_of(libc::pthread_self()) }, Some(id()));
        let other = std::thread::spawn(|| {
            // SAFETY: as above.
            (unsafe { id_of(libc::pthread_self()) }, id())
        });
        let (from_clock, number) = other.join().unwrap();
        assert_eq!(from_clock, Some(number));
        assert_ne!(number, id());
    }
}
