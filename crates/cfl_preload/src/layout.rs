//! Where glibc keeps the bits that tell its mutexes and condition variables from
//! ours.
//!
//! The bytes of `pthread_mutex_t` and `pthread_cond_t` are glibc's own business
//! and move: the flags of a condition variable lie at byte 36 up to glibc 2.40 and at
//! byte 28 from 2.41 on. If ours were taken for glibc's, or glibc's for
//! ours, two processes that share one would wait for each other for ever. So
//! nothing is assumed: before the first lock, glibc initialises one object of
//! each kind, and the words in which they differ are looked at. A layout that is not
//! understood is refused, and the program runs on glibc's locks.
//!
//! What is required of a condition variable:
//!
//! ```text
//! private, CLOCK_REALTIME     zero, as the static initialiser is
//! shared between processes    one word has the value 1
//! CLOCK_MONOTONIC             the same word has the value 2
//! both                        the same word has the value 3
//! ```
//!
//! and that the word is one that our own condition variable leaves free.
//!
//! Of a mutex: that its kind lies at byte 16, has glibc's long-standing numbers
//! for the four types, and has another bit for whatever else glibc may be asked
//! for.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{c_int, clockid_t, pthread_cond_t, pthread_mutex_t};

use crate::{cond, glibc, mutex};

const COND_WORDS: usize = size_of::<pthread_cond_t>() / 4;
const MUTEX_WORDS: usize = size_of::<pthread_mutex_t>() / 4;

/// The word of a condition variable that has glibc's flags.
static COND_FLAGS: AtomicUsize = AtomicUsize::new(0);

/// The number of the 32-bit word of a condition variable that has glibc's flags.
/// Only after [`prepare`].
#[inline]
pub(crate) fn cond_flags_word() -> usize {
    COND_FLAGS.load(Relaxed)
}

/// Looks where the running glibc keeps its bits.
///
/// # Errors
///
/// A sentence that names the glibc, if the layout is not understood.
pub(crate) fn prepare() -> Result<(), String> {
    let understood = find_cond_flags(glibcs_cond).and_then(|word| {
        check_mutex(glibcs_mutex)?;
        Ok(word)
    });
    let word = understood.map_err(|what| {
        // SAFETY: glibc returns a terminated string that is never freed.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!(
            "glibc {}: {what}; this library has to be made for that glibc",
            version.to_string_lossy()
        )
    })?;
    COND_FLAGS.store(word, Relaxed);
    Ok(())
}

/// A condition variable that glibc has initialised so.
fn glibcs_cond(shared: c_int, clock: clockid_t) -> [u32; COND_WORDS] {
    // SAFETY: all are zeroed before glibc initialises them, and plain bytes;
    // sizes are equal, or this would not compile.
    unsafe {
        let mut attr = mem::zeroed();
        let mut cond: pthread_cond_t = mem::zeroed();
        libc::pthread_condattr_init(&mut attr);
        libc::pthread_condattr_setpshared(&mut attr, shared);
        libc::pthread_condattr_setclock(&mut attr, clock);
        glibc::pthread_cond_init(&mut cond, &attr);
        libc::pthread_condattr_destroy(&mut attr);
        mem::transmute(cond)
    }
}

/// The word of a condition variable with glibc's flags.
fn find_cond_flags(
    init: impl Fn(c_int, clockid_t) -> [u32; COND_WORDS],
) -> Result<usize, &'static str> {
    const UNKNOWN: &str = "condition variables of an unknown layout";
    let (private, shared) = (libc::PTHREAD_PROCESS_PRIVATE, libc::PTHREAD_PROCESS_SHARED);
    let (realtime, monotonic) = (libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC);
    let word = init(shared, realtime).iter().position(|word| *word != 0);
    let word = word.ok_or(UNKNOWN)?;
    let as_expected = [
        (private, realtime, 0),
        (shared, realtime, cond::SHARED),
        (private, monotonic, cond::MONOTONIC),
        (shared, monotonic, cond::SHARED | cond::MONOTONIC),
    ]
    .into_iter()
    .all(|(pshared, clock, flags)| {
        let mut expected = [0; COND_WORDS];
        expected[word] = flags;
        init(pshared, clock) == expected
    });
    match as_expected && cond::leaves_free(word) {
        true => Ok(word),
        false => Err(UNKNOWN),
    }
}

/// What a mutex can be made with.
#[derive(Clone, Copy)]
enum Attribute {
    Type(c_int),
    Shared,
    Robust,
    Protocol(c_int),
}

/// A mutex that glibc has initialised with this attribute.
fn glibcs_mutex(attribute: Attribute) -> [u32; MUTEX_WORDS] {
    // SAFETY: as in `glibcs_cond`.
    unsafe {
        let mut attr = mem::zeroed();
        let mut mutex: pthread_mutex_t = mem::zeroed();
        libc::pthread_mutexattr_init(&mut attr);
        match attribute {
            Attribute::Type(kind) => libc::pthread_mutexattr_settype(&mut attr, kind),
            Attribute::Shared => {
                libc::pthread_mutexattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED)
            }
            Attribute::Robust => {
                libc::pthread_mutexattr_setrobust(&mut attr, libc::PTHREAD_MUTEX_ROBUST)
            }
            Attribute::Protocol(protocol) => {
                libc::pthread_mutexattr_setprotocol(&mut attr, protocol)
            }
        };
        glibc::pthread_mutex_init(&mut mutex, &attr);
        libc::pthread_mutexattr_destroy(&mut attr);
        mem::transmute(mutex)
    }
}

/// Whether glibc's mutexes have the kind that ours build on.
fn check_mutex(init: impl Fn(Attribute) -> [u32; MUTEX_WORDS]) -> Result<(), &'static str> {
    // glibc's number for "adaptive", which the crate `libc` lacks.
    const ADAPTIVE: c_int = 3;
    let types = [
        libc::PTHREAD_MUTEX_NORMAL,
        libc::PTHREAD_MUTEX_RECURSIVE,
        libc::PTHREAD_MUTEX_ERRORCHECK,
        ADAPTIVE,
    ];
    let ours = types.into_iter().all(|kind| {
        let mut words = init(Attribute::Type(kind));
        let found = mem::take(&mut words[mutex::KIND_WORD]);
        words == [0; MUTEX_WORDS] && mutex::type_of_ours(found) == Some(kind)
    });
    let glibcs = [
        Attribute::Shared,
        Attribute::Robust,
        Attribute::Protocol(libc::PTHREAD_PRIO_INHERIT),
        Attribute::Protocol(libc::PTHREAD_PRIO_PROTECT),
    ]
    .into_iter()
    .all(|attribute| mutex::type_of_ours(init(attribute)[mutex::KIND_WORD]).is_none());
    match ours && glibcs {
        true => Ok(()),
        false => Err("mutexes of an unknown layout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A glibc whose flags are in this word, with these values.
    fn found(word: usize, shared: u32, monotonic: u32) -> Result<usize, &'static str> {
        find_cond_flags(|pshared, clock| {
            let mut words = [0; COND_WORDS];
            if pshared == libc::PTHREAD_PROCESS_SHARED {
                words[word] |= shared;
            }
            if clock == libc::CLOCK_MONOTONIC {
                words[word] |= monotonic;
            }
            words
        })
    }

    #[test]
    fn the_flags_are_found_wherever_a_known_glibc_has_them() {
        assert_eq!(found(9, 1, 2), Ok(9));
        assert_eq!(found(7, 1, 2), Ok(7));
    }

    #[test]
    fn other_bits_and_words_that_we_use_are_refused() {
        assert!(found(9, 2, 1).is_err());
        assert!(found(7, 4, 8).is_err());
        assert!(found(0, 1, 2).is_err());
        assert!(found(11, 1, 2).is_err());
        // A static initialiser that is not zero, and no difference at all.
        assert!(find_cond_flags(|_, _| [1; COND_WORDS]).is_err());
        assert!(find_cond_flags(|_, _| [0; COND_WORDS]).is_err());
    }

    #[test]
    fn a_mutex_whose_kind_lies_elsewhere_or_lacks_a_bit_is_refused() {
        assert_eq!(check_mutex(glibcs_mutex), Ok(()));
        let moved = |attribute| {
            let mut words = glibcs_mutex(attribute);
            words.swap(mutex::KIND_WORD, mutex::KIND_WORD - 1);
            words
        };
        assert!(check_mutex(moved).is_err());
        let robust_is_like_normal = |attribute| match attribute {
            Attribute::Robust => glibcs_mutex(Attribute::Type(libc::PTHREAD_MUTEX_NORMAL)),
            other => glibcs_mutex(other),
        };
        assert!(check_mutex(robust_is_like_normal).is_err());
    }

    #[test]
    fn the_running_glibc_is_understood() {
        assert_eq!(prepare(), Ok(()));
    }
}
