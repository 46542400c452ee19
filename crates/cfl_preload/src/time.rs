//! Times that a program waits until: which clocks there are, and what the core
//! and the kernel want of them.

use std::ffi::c_int;

use giveway_machine::futex::Deadline;
use libc::{clockid_t, timespec};

/// How the futex call is told which clock a deadline is of; nothing for a
/// clock that cannot be waited for.
pub(crate) fn clock_flag(clock: clockid_t) -> Option<c_int> {
    match clock {
        libc::CLOCK_MONOTONIC => Some(0),
        libc::CLOCK_REALTIME => Some(libc::FUTEX_CLOCK_REALTIME),
        _ => None,
    }
}

/// Whether `time` is a time at all.
pub(crate) fn is_valid(time: &timespec) -> bool {
    (0..1_000_000_000).contains(&time.tv_nsec)
}

/// `time` of `clock` as the core wants it; nothing for another clock than
/// `CLOCK_REALTIME` and `CLOCK_MONOTONIC`. A time before the clock's beginning
/// has passed, as has the beginning; one too far off to count is the farthest.
pub(crate) fn deadline(clock: clockid_t, time: &timespec) -> Option<Deadline> {
    let ns = match u64::try_from(time.tv_sec) {
        Ok(seconds) => (seconds.saturating_mul(1_000_000_000))
            .saturating_add(time.tv_nsec as u64)
            .min(i64::MAX as u64),
        Err(_) => 0,
    };
    match clock {
        libc::CLOCK_MONOTONIC => Some(Deadline::Monotonic(ns)),
        libc::CLOCK_REALTIME => Some(Deadline::Realtime(ns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_counted_in_nanoseconds_and_end_somewhere() {
        let at = |tv_sec, tv_nsec| deadline(libc::CLOCK_REALTIME, &timespec { tv_sec, tv_nsec });
        assert_eq!(at(2, 5), Some(Deadline::Realtime(2_000_000_005)));
        assert_eq!(at(-7, 5), Some(Deadline::Realtime(0)));
        assert_eq!(at(i64::MAX, 0), Some(Deadline::Realtime(i64::MAX as u64)));
        let second = timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let monotonic = deadline(libc::CLOCK_MONOTONIC, &second);
        assert_eq!(monotonic, Some(Deadline::Monotonic(1_000_000_000)));
        assert_eq!(deadline(libc::CLOCK_TAI, &second), None);
    }
}
